"""Validate values against `workflow/schemas/`: one message for each violation, with place, value and remedy.

They are JSON Schema of version 2020-12.
"""

import contextlib
import math
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jsonschema
import yaml

from regatta.core.errors import nearest

SCHEMAS = Path(__file__).resolve().parents[3] / "schemas"
TYPE_NAMES = {
    "array": "a list, as in [a, b]",
    "object": "a mapping (key: value)",
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
MOST_LISTED = 20  # known values in a message
LIMITS = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most", "exclusiveMaximum": "less than"}
EMPTY = {"minItems": " Give at least one value, or remove the key.", "minProperties": " Give at least one entry."}
# PyTorch uses the name cuda for AMD GPUs, and nccl for RCCL (docs.pytorch.org, notes/hip).
PYTORCH_NAMES = {**dict.fromkeys(("rocm", "hip", "amd", "gpu"), "cuda"), "rccl": "nccl"}
LENGTHS = {"minLength": "at least", "maxLength": "at most"}

Where = tuple[str | int, ...]  # ("benchmarks", 0, "parameters", "model", 1)


class Violation(NamedTuple):
    """A problem at a place in a file, and its remedy: empty, or a sentence after a space."""

    where: Where
    text: str
    remedy: str = ""


@cache
def load_schema(name: str) -> dict:
    """Return `workflow/schemas/<name>.yaml`, for instance `campaign` or `benchmarks/collective`."""
    return read_schema(SCHEMAS / f"{name}.yaml")


def read_schema(path: Path) -> dict:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times as fast
    return yaml.load(path.read_text(encoding="utf-8"), loader)


def place(where: Where) -> str:
    """Return a place as people write it: `benchmarks[0].parameters.model[1]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where).lstrip(".")


def show(value: object) -> str:
    """Return a value for a message: short, and in YAML notation."""
    text = {True: "true", False: "false", None: "null"}.get(value) if isinstance(value, bool | None) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def violations(value: object, schema: dict, base: Where = ()) -> list[Violation]:
    """Return all violations of a value at `base` of its file."""
    found = _Validator(schema).iter_errors(value)
    return [violation for error in found for violation in _violations((*base, *error.absolute_path), error)]


def first_violation(value: object, schema: dict, is_strict: bool = False) -> str | None:
    """Return the first violation of a value by place, or None.

    is_strict: 1.0 is not an integer and NaN is not a number, as Python readers require.
    """
    try:  # jsonschema's order differs between processes
        errors = (_StrictValidator if is_strict else _Validator)(schema).iter_errors(value)
        error = min(errors, key=lambda error: list(error.absolute_path), default=None)
        return None if error is None else next(iter(_violations(tuple(error.absolute_path), error))).text
    except RecursionError:  # jsonschema prints the value that is wrong
        return "it is nested too deeply"


def fill_defaults(data: dict, schema: dict) -> dict:
    """Return `data` with the schema's `default` for each missing key, at every level of objects."""
    filled = dict(data)
    for key, rule in schema.get("properties", {}).items():
        if key not in filled and "default" in rule:
            filled[key] = rule["default"]
        if isinstance(filled.get(key), dict) and rule.get("properties"):
            filled[key] = fill_defaults(filled[key], rule)
    return filled


def _pattern(_: object, pattern: str, value: object, __: dict) -> Iterator[jsonschema.ValidationError]:
    """Check a pattern as JSON Schema does: `$` is the end of the text. Python's also matches before a last newline."""
    if isinstance(value, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


_Validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"pattern": _pattern})
_StrictValidator = jsonschema.validators.extend(
    _Validator,
    type_checker=_Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, value: type(value) is int,
            "number": lambda _, value: type(value) in (int, float) and value == value,
        }
    ),
)


def _violations(where: Where, error: jsonschema.ValidationError) -> Iterator[Violation]:
    rule, value = error.validator, error.instance
    name = place(where) or "the file"
    if rule == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        inside = f" in {place(where)}" if where else ""
        for key in value:
            if key not in known:
                remedy = f"{nearest(key, known)} Allowed keys: {', '.join(known)}."
                yield Violation((*where, key), f"unknown key '{key}'{inside}", remedy)
    elif rule == "required":
        missing = [key for key in error.validator_value if key not in value]
        # jsonschema reports `required` once for each missing key; the first report names them all.
        if error.message.startswith(repr(missing[0])):
            rules = error.schema.get("properties", {})
            remedy = "; ".join(f"`{key}:` ({_description(rules.get(key, {})) or key})" for key in missing)
            yield Violation(where, f"{name} lacks {', '.join(missing)}", f" Add {remedy}.")
    else:
        text, remedy = _explanation(rule, value, error)
        if "propertyNames" in error.schema_path:
            yield Violation((*where, value), f"the name {show(value)} in {name} {text}", remedy)
        else:
            yield Violation(where, f"{name} = {show(value)} {text}", remedy)


def _description(schema: dict) -> str:
    """Return the first sentence of a schema's description, without its full stop."""
    return schema.get("description", "").split(". ")[0].rstrip(".")


def _explanation(rule: str, value: object, error: jsonschema.ValidationError) -> tuple[str, str]:
    """Return what is wrong with a value, and what to write instead."""
    limit = error.validator_value
    about = f" ({meaning})" if (meaning := _description(error.schema)) else ""
    if rule == "type":
        wanted = " or ".join(TYPE_NAMES[t] for t in ([limit] if isinstance(limit, str) else limit))
        return f"is not {wanted}{about}", _type_hint(limit, value, error.schema)
    if rule in ("enum", "const"):
        known = limit if rule == "enum" else [limit]
        listed = ", ".join("null" if word is None else str(word) for word in known)
        listed = listed if len(known) <= MOST_LISTED else f"{len(known)} names, see config/README.md"
        hint = " Remove the quotes." if value in map(str, known) else nearest(value, known)
        if (name := _pytorch_name(value, known)) != value:
            hint = f" Write '{name}': PyTorch uses this name for AMD GPUs too."
        return f"is unknown.{hint} Choose from: {listed}", ""
    if rule in EMPTY:
        return f"is empty{about}", EMPTY[rule]
    if rule == "uniqueItems":
        twice = next(v for i, v in enumerate(value) if v in value[:i])
        return f"lists {show(twice)} more than once", " Keep one of them."
    if rule in ("pattern", "anyOf", "oneOf"):
        return f"is invalid ({error.schema.get('description', limit)})", ""
    if rule in LIMITS:
        return f"is out of range: it must be {LIMITS[rule]} {limit}{about}", ""
    if rule in LENGTHS:
        return f"has {len(value)} characters; allowed are {LENGTHS[rule]} {limit}{about}", ""
    return f"is not allowed: {error.message}{about}", ""


def _as_list(value: object) -> str:
    """Return a value as a YAML list of one line. The words of a command line become its items."""
    if not isinstance(value, str) or not value.isprintable():
        return f"[{show(value)}]"
    if not re.search(r"[\s{}]", value):
        return f"[{value}]"
    return yaml.safe_dump(value.split(), default_flow_style=True, width=math.inf, allow_unicode=True).strip()


def _pytorch_name(value: object, known: Iterable[object]) -> object:
    """Return PyTorch's name for a ROCm name if it is one of the known values, else the value."""
    name = PYTORCH_NAMES.get(value.lower(), value) if isinstance(value, str) else value
    return name if name in known else value


def _type_hint(wanted: str | list[str], value: object, schema: dict) -> str:
    if wanted == "array" and not isinstance(value, dict | None):
        return f" Write {_as_list(_pytorch_name(value, schema.get('items', {}).get('enum', ())))}."
    if wanted in ("number", "integer") and isinstance(value, str):
        with contextlib.suppress(InvalidOperation):
            if (number := Decimal(value)).is_finite():  # without an exponent: YAML reads 1e-05 as a string
                return f" YAML reads it as a string; write {number:f}, without quotes."
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if "string" in wanted and (is_number or (isinstance(value, list) and all(isinstance(v, str) for v in value))):
        text = show(value) if is_number else f"[{', '.join(value)}]"  # such as the constraint [a|b]
        if re.search(schema.get("pattern", ""), text):
            return f" Put it in quotes: {text!r}."
    return ""
