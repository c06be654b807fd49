"""Frozen files: the JSON files of a results folder that one step writes for another (docs/contracts.md).

Their schema is workflow/schemas/frozen.yaml.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from regatta.core.benchmarks import axes_of, built_in_names, declare
from regatta.core.errors import UserError
from regatta.core.schemas import first_violation, load_schema
from regatta.model.frozen import FrozenCampaign
from regatta.store.launch_files import read_file

SCHEMA = 1  # the version of all frozen files
LARGE_FILE_BYTES = 300_000  # compiling a schema takes as long as checking this by jsonschema


def read_frozen(path: Path, kind: str | None = None) -> dict:
    """Read a JSON file that Regatta has frozen, checked by workflow/schemas/frozen.yaml.

    kind: what it must be, such as campaign, regardless of its name. Raises UserError if it is damaged, of another kind,
    or of another version of its schema.
    """
    text = read_file(path)
    try:
        value = json.loads(text.decode())
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and value.get("schema", SCHEMA) != SCHEMA:
        raise UserError(
            f"{path}: has schema {str(value['schema'])[:40]}; this version of Regatta reads schema {SCHEMA}."
            " Use the version that wrote it, or delete the file and run the campaign again; nothing measured is lost."
        )
    # The name gives the schema, if it has one: campaign.0123456789ab.json, preflight-0123456789ab.json, batch.json.
    name = re.fullmatch(r"([a-z]+)([.-][^.]*)?\.json", path.name)
    found = None if isinstance(value, dict) else "not a JSON object"
    if found is None and len(text) > LARGE_FILE_BYTES and name and name[1] == "campaign" and _is_campaign(text):
        return value
    if kind and not (name and name[1] == kind):
        found = found or mismatch(value, kind)
        if found:
            raise UserError(
                f"{path}: is not a {kind} file ({found}). Specify {kind}.<digest>.json of a results folder."
            )
    if found is None and name and name[1] in frozen_schema()["x-kinds"]:
        found = mismatch(value, name[1]) or (_lost_in_batch(value) if name[1] == "batch" else None)
    if found:
        raise UserError(
            f"{path}: is damaged ({found}). Delete it and run the same command again; nothing measured is lost."
        )
    return value


def read_frozen_campaign(path: Path) -> FrozenCampaign:
    """Read a frozen campaign. Raises UserError if it is damaged, not one, or has a benchmark of another version."""
    campaign = FrozenCampaign.from_json(read_frozen(path, "campaign"))
    declare(campaign.benchmarks or {})
    known = (*built_in_names(), *campaign.custom_benchmarks)
    if unknown := sorted({cell.benchmark for cell in campaign.all_cells}.difference(known)):
        raise UserError(
            f"{path}: has cells of {', '.join(unknown)}, which this version of Regatta does not have. Use the version"
            " that wrote it; nothing measured is lost."
        )
    return campaign


class _Real(float):
    """A number that was written with a fraction or exponent, which fastjsonschema must not take for an integer."""

    def is_integer(self) -> bool:
        return False


def _is_campaign(text: bytes) -> bool:
    """Return whether a frozen campaign meets its schema: what `mismatch` finds out, 20 times as fast."""
    import fastjsonschema

    try:
        _check_campaign()(json.loads(text, parse_float=_Real, parse_constant=str))  # a NaN becomes a word: not allowed
    except fastjsonschema.JsonSchemaValueException:
        return False
    return True


@cache
def _check_campaign() -> Callable[[object], object]:
    import fastjsonschema

    return fastjsonschema.compile(frozen_schema()["$defs"]["campaign"], use_default=False)


@cache
def frozen_schema() -> dict:
    """Return workflow/schemas/frozen.yaml with the parameters of all benchmarks of Regatta, and references."""
    schema = load_schema("frozen")
    parts = schema["$defs"]
    kinds = {"integer": "size_or_unknown", "number": "number_or_unknown", "boolean": "flag_or_unknown"}
    axes = [axis for name in built_in_names() for axis in axes_of(name).values()]
    known = {axis.name: parts[kinds[axis.type]] for axis in axes if axis.type in kinds}
    parts["spec"]["properties"]["parameters"]["properties"] = known
    gate = load_schema("campaign")["properties"]["gate"]["properties"]
    parts["campaign"]["properties"]["references"] = gate["references"]
    return schema


def mismatch(value: object, kind: str, key: str | None = None) -> str | None:
    """Return where the content of a frozen file, or one part of it, first breaks its schema, and how; or None."""
    schema = frozen_schema()["$defs"][kind]
    if key is not None:
        schema = {"type": "object", "required": [key], "properties": {key: schema["properties"][key]}}
    return first_violation(value, schema, is_strict=True)


def _lost_in_batch(batch: dict) -> str | None:
    """Return which stack or cell of a launch is missing in the batch: JSON Schema cannot compare two places."""
    for index, launch in enumerate(batch["launches"]):
        for kind, names in (("stacks", [launch["stack"]]), ("cells", launch["cells"])):
            if lost := [name for name in names if name not in batch[kind]]:
                return f"launches[{index}] names {lost[0]!r}, which is not one of its {kind}"
    return None
