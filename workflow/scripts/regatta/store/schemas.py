"""The schemas of `workflow/schemas/` that hold several kinds of lines or files: record.yaml and frozen.yaml."""

from functools import cache
from pathlib import Path

import yaml

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
