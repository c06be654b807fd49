"""The JSON files that one step of Regatta writes and another reads, held against workflow/schemas/frozen.yaml."""

import json
import re
from functools import cache
from pathlib import Path

import jsonschema
import yaml

# The schemas of `workflow/schemas/` that hold several kinds of lines or files: record.yaml and frozen.yaml.

SCHEMAS = Path(__file__).resolve().parents[3] / "schemas"


@cache
def schemas_by_kind(file: Path) -> dict[str, dict]:
    """Return for each of a file's `x-kinds` its schema, which refers to no other."""
    schema = yaml.safe_load(file.read_text(encoding="utf-8"))
    parts = schema["$defs"]
    return {kind: _with_parts(parts[kind], parts) for kind in schema["x-kinds"]}


def _with_parts(schema: object, parts: dict) -> object:
    """Return a schema with its parts in place of the references to them: jsonschema takes twice as long to follow those."""
    if isinstance(schema, list):
        return [_with_parts(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    part = parts[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else {}
    merged = part | {key: value for key, value in schema.items() if key != "$ref"}
    return {key: _with_parts(value, parts) for key, value in merged.items()}


SCHEMA = 1  # the version of all of them
SCHEMA_FILE = SCHEMAS / "frozen.yaml"
TYPE_NAMES = {
    "array": "a list",
    "object": "an object",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
# To JSON Schema 1.0 is a whole number and NaN, which Python reads, a number within all limits; to readers neither is.
_Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, value: type(value) is int,
            "number": lambda _, value: type(value) in (int, float) and value == value,
        }
    ),
)


def damage(value: object, path: Path) -> str | None:
    """Return how the content of a file differs from what its readers rely on, or None; also of a file without a schema.

    A file is known by its name: campaign.0123456789ab.json and preflight-0123456789ab.json, but batch.json.
    """
    name = re.fullmatch(r"([a-z]+)([.-][^.]*)?\.json", path.name)
    if name is None or name[1] not in schemas_by_kind(SCHEMA_FILE):
        return None
    return mismatch(value, name[1]) or (_lost_in_batch(value) if name[1] == "batch" else None)


def mismatch(value: object, kind: str, key: str | None = None) -> str | None:
    """Return where the content of a file of a kind, or one part of it, first breaks the schema, and how; or None."""
    try:  # the first by place: jsonschema goes through a set of names, in another order in each process
        error = min(_validator(kind, key).iter_errors(value), key=lambda error: list(error.absolute_path), default=None)
    except RecursionError:  # jsonschema prints the value that is wrong
        return "it is nested too deeply"
    if error is None:
        return None
    place = error.json_path[1:].removeprefix(".") or "it"
    if error.validator == "required":
        return f"{place} lacks {next(name for name in error.validator_value if name not in error.instance)}"
    types = error.schema["type"]
    wanted = [types] if isinstance(types, str) else types
    return f"{place} is {_shown(error.instance)}, not {error.schema.get('title') or ' or '.join(map(TYPE_NAMES.get, wanted))}"


@cache
def _validator(kind: str, key: str | None) -> jsonschema.protocols.Validator:
    schema = schemas_by_kind(SCHEMA_FILE)[kind]
    if key is not None:
        schema = {"type": "object", "required": [key], "properties": {key: schema["properties"][key]}}
    return _Validator(schema)


def _shown(value: object) -> str:
    """Long or nested values are named by their kind."""
    if isinstance(value, list | dict):
        return TYPE_NAMES["array" if isinstance(value, list) else "object"]
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _lost_in_batch(batch: dict) -> str | None:
    """Return which stack or cell of a launch the batch does not hold: JSON Schema cannot compare two places."""
    for index, launch in enumerate(batch["launches"]):
        for kind, names in (("stacks", [launch["stack"]]), ("cells", launch["cells"])):
            if lost := [name for name in names if name not in batch[kind]]:
                return f"launches[{index}] names {lost[0]!r}, which is none of its {kind}"
    return None
