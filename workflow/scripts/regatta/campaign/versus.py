"""The key `versus`: the axis along which the report compares cells. It has no effect on what is measured."""

from collections.abc import Iterable

from regatta.campaign import program_entries as programs
from regatta.campaign.yaml_file import FileError, YamlFile
from regatta.core.benchmarks import load_benchmark, parse_bytes
from regatta.core.errors import nearest
from regatta.core.schemas import fill_defaults, load_schema, place, show

COMMON_AXES = ("stack", "backend", "nodes", "gpus_per_node")  # axes of every benchmark


def parameter_names(data: dict) -> list[str]:
    """Return the parameters of the campaign's benchmarks, then those that users named."""
    names = {entry["benchmark"] for entry in data.get("benchmarks", [])}
    known = sorted({parameter for name in names for parameter in load_benchmark(name).parameters})
    return [*known, *(name for name in programs.own_names(data) if name not in known)]


def complete_versus(versus: str | dict) -> dict:
    """Return `versus` with all its keys, even if the campaign gives the axis alone. Sizes are in bytes."""
    given = {"axis": versus} if isinstance(versus, str) else versus
    full = fill_defaults(given, load_schema("campaign")["properties"]["versus"])
    return full | {"reference": in_bytes(full["axis"], full["reference"])}


def versus_as_in_cells(data: dict) -> dict:
    """Return `versus` with all its keys. Parameters of programs are strings, so a reference among them is one too."""
    versus = complete_versus(data["versus"])
    reference = versus["reference"]
    text = str(reference).lower() if isinstance(reference, bool) else str(reference)
    return versus | ({"reference": text} if text in axis_values(data, versus["axis"]) else {})


def versus_errors(file: YamlFile, data: dict, stacks: Iterable[str]) -> list[FileError]:
    """Return the error of an axis that no cell of the campaign has, or of a reference that is not among its values.

    None if the benchmarks have errors: then their parameters are unknown. stacks: names of the stacks, with the copies
    for node types.
    """
    if "versus" not in data or not data.get("benchmarks"):
        return []
    versus, names = versus_as_in_cells(data), [*COMMON_AXES, *parameter_names(data)]
    axis, where = versus["axis"], ("versus",) if isinstance(data["versus"], str) else ("versus", "axis")
    if axis == programs.QUANTITY and programs.has_quantities(data):
        text = f"{place(where)} = {show(axis)} is not a valid axis: a ratio of two quantities has no meaning."
        return [file.error(where, f"{text} Choose another axis, or remove it.")]
    if axis not in names:
        text = f"{place(where)} = {show(axis)} is not an axis of this campaign.{nearest(axis, names)}"
        return [file.error(where, f"{text} Choose from: {', '.join(names)}.")]
    values = axis_values({**data, "stacks": stacks}, axis)
    if versus["reference"] is None or not values or _is_among(versus["reference"], values):
        return []
    given = data["versus"]["reference"]
    hint = nearest(given, values) if isinstance(given, str) else ""
    known = ", ".join(value if isinstance(value, str) else show(value) for value in values)
    text = f"versus.reference = {show(given)} is not a value of {axis} in this campaign.{hint} Choose from: {known}."
    return [file.error(("versus", "reference"), text)]


def axis_values(data: dict, axis: str) -> list:
    """Return the distinct values that a campaign lists for an axis, in the order of the file."""
    if axis == "stack":
        found = list(data.get("stacks", {}))
    elif axis == "backend":
        found = data.get("backend", [])
    elif axis in COMMON_AXES:
        found = [value for entry in data.get("shapes", []) for value in entry[axis]]
    else:
        entries = [(entry["parameters"], load_benchmark(entry["benchmark"]).schema) for entry in data["benchmarks"]]
        found = [in_bytes(axis, v) for given, schema in entries for v in fill_defaults(given, schema).get(axis, [])]
        of_users = [code["parameters"] for entry in data["benchmarks"] for _, code in entry.get("points", ())]
        found += [parameters[axis] for parameters in of_users if axis in parameters]
    return [value for index, value in enumerate(found) if not _is_among(value, found[:index])]


def _is_among(value: object, values: Iterable) -> bool:
    """Return whether a value is among others. In Python true equals 1; here it does not."""
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in values)


def in_bytes(name: str, value: object) -> object:
    """Return a message size, or a list of them, as the numbers in cells. Anything else is left as written.

    A value that is not a size matches no cell, and the plan reports that the rule has no effect.
    """
    if name != "message_bytes":
        return value
    if isinstance(value, list):
        return [in_bytes(name, one) for one in value]
    try:
        return parse_bytes(value)
    except (AttributeError, KeyError, TypeError):
        return value


def with_sizes_in_bytes(rules: list[dict]) -> list[dict]:
    """Return rules for cells, of `exclude` or of the gate, with message sizes as in cells."""
    return [rule | {"when": {name: in_bytes(name, value) for name, value in rule["when"].items()}} for rule in rules]
