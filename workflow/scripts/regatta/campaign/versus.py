"""The campaign key `versus`: the axis along which the report compares cells. It decides nothing that is measured."""

from collections.abc import Iterable

from regatta.campaign.benchmarks import parse_bytes
from regatta.campaign.yaml_file import Mistake, YamlFile
from regatta.core.benchmarks import benchmark_names, load_benchmark
from regatta.core.errors import nearest
from regatta.core.schemas import fill_defaults, load_schema, place, show

OF_EVERY_CELL = ("stack", "backend", "nodes", "gpus_per_node")


def complete_versus(versus: str | dict) -> dict:
    """Return `versus` with all its keys, also where the campaign gives the axis alone. Sizes are numbers of bytes."""
    given = {"axis": versus} if isinstance(versus, str) else versus
    full = fill_defaults(given, load_schema("campaign")["properties"]["versus"])
    if full["axis"] == "message_bytes" and isinstance(full["reference"], str):
        full["reference"] = _bytes(full["reference"])
    return full


def versus_mistakes(file: YamlFile, data: dict) -> list[Mistake]:
    """An axis that no cell of the campaign has, and a reference that is no value of the axis."""
    if "versus" not in data or "benchmarks" not in data:
        return []
    versus, names = complete_versus(data["versus"]), _axes(data)
    if versus["axis"] not in names:
        where = ("versus",) if isinstance(data["versus"], str) else ("versus", "axis")
        text = (
            f"{file.at(where)}: {place(where)} = {show(versus['axis'])} is no axis of this campaign."
            f"{nearest(versus['axis'], names)} Choose from: {', '.join(names)}."
        )
        return [Mistake(where, text)]
    values = axis_values(data, versus["axis"])
    if versus["reference"] is None or not values or is_value(versus["reference"], values):
        return []
    where, given = ("versus", "reference"), data["versus"]["reference"]
    hint = nearest(given, values) if isinstance(given, str) else ""
    text = (
        f"{file.at(where)}: versus.reference = {show(given)} is no value of {versus['axis']} in this"
        f" campaign.{hint} Choose from: {', '.join(_word(value) for value in values)}."
    )
    return [Mistake(where, text)]


def versus_notes(file: YamlFile, data: dict) -> list[str]:
    """An axis that the file names, and that has one value: nothing is compared. The default is silent."""
    axis = data["versus"]["axis"]
    if "versus" not in file.data or len(axis_values(data, axis)) > 1:
        return []
    return [f"{file.at(('versus',))}: {axis} has one value in this campaign, so the report compares nothing"]


def axis_values(data: dict, axis: str) -> list:
    """Return the values that a campaign lists of an axis, each once, in the order of the file."""
    if axis == "stack":
        found = list(data.get("stacks", {}))
    elif axis == "backend":
        found = data.get("backend", [])
    elif axis in OF_EVERY_CELL:
        found = [value for entry in data.get("shapes", []) for value in entry[axis]]
    else:
        entries = [(entry["parameters"], load_benchmark(entry["benchmark"]).schema) for entry in data["benchmarks"]]
        found = [v for given, schema in entries for v in fill_defaults(given, schema).get(axis, [])]
        found = [_bytes(value) for value in found] if axis == "message_bytes" else found
    return [value for index, value in enumerate(found) if not is_value(value, found[:index])]


def is_value(value: object, values: Iterable) -> bool:
    """Return whether a value is among others. To Python true is 1, here it is not."""
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in values)


def _axes(data: dict) -> list[str]:
    names = [entry["benchmark"] for entry in data["benchmarks"]] or benchmark_names()
    return [*OF_EVERY_CELL, *sorted({parameter for name in names for parameter in load_benchmark(name).parameters})]


def _word(value: object) -> str:
    """Return a value as it is written in the file."""
    return value if isinstance(value, str) else show(value)


def _bytes(value: object) -> object:
    """Return a size as cells hold it, or what was written where it is no size."""
    try:
        return parse_bytes(value)
    except (AttributeError, KeyError, TypeError):
        return value
