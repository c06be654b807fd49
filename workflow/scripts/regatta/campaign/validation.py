"""Check a YAML file against one of `workflow/schemas/`, and say each mistake in words: file, line, value, what to do."""

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jsonschema
import yaml

from regatta.campaign.yaml_file import Where, YamlFile, place
from regatta.core.errors import UserError, nearest

SCHEMAS = Path(__file__).resolve().parents[3] / "schemas"
MAX_ERRORS_SHOWN = 10
TYPE_NAMES = {
    "array": "a list, as in [a, b]",
    "object": "keys and values",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


class Mistake(NamedTuple):
    """A message, and the place in the file that it is about."""

    where: Where
    text: str


@cache
def load_schema(name: str) -> dict:
    """Return `workflow/schemas/<name>.yaml`, for instance `campaign` or `benchmarks/collective`."""
    return yaml.safe_load((SCHEMAS / f"{name}.yaml").read_text(encoding="utf-8"))


def show(value: object) -> str:
    """Return a value as it may stand in a message: short, and in YAML's words."""
    text = {True: "true", False: "false", None: "null"}.get(value) if isinstance(value, bool | None) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def schema_mistakes(file: YamlFile, data: object, schema: dict, base: Where = ()) -> list[Mistake]:
    """Return one mistake for each way in which `data`, found at `base` in `file`, breaks the schema."""
    found = []
    for error in _Validator(schema).iter_errors(data):
        found += _mistakes(file, (*base, *error.absolute_path), error)
    return found


def raise_mistakes(file: YamlFile, mistakes: list[Mistake]) -> None:
    """Raise one UserError that holds all mistakes in the order of the file, if there are any."""
    lines = [mistake.text for mistake in sorted(mistakes, key=lambda mistake: file.lines.get(mistake.where, 0))]
    if len(lines) > MAX_ERRORS_SHOWN:
        lines = [*lines[:MAX_ERRORS_SHOWN], f"... and {len(lines) - MAX_ERRORS_SHOWN} more."]
    if lines:
        raise UserError("\n".join(lines))


def fill_defaults(data: dict, schema: dict) -> dict:
    """Return `data` with the schema's `default` for each key that is not there, at every level of objects."""
    filled = dict(data)
    for key, rule in schema.get("properties", {}).items():
        if key not in filled and "default" in rule:
            filled[key] = rule["default"]
        if isinstance(filled.get(key), dict) and rule.get("properties"):
            filled[key] = fill_defaults(filled[key], rule)
    return filled


def _pattern(_: object, pattern: str, value: object, __: dict) -> Iterator[jsonschema.ValidationError]:
    """As JSON Schema means it: `$` is the end of the text. Python's matches before a last line break, too."""
    if isinstance(value, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


_Validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"pattern": _pattern})


def _mistakes(file: YamlFile, where: Where, error: jsonschema.ValidationError) -> list[Mistake]:
    rule, value = error.validator, error.instance
    name = place(where) or "the file"
    if rule == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        keys = [key for key in value if key not in known]
        return [Mistake((*where, key), _unknown_key(file, where, key, known)) for key in keys]
    if rule == "required":
        missing = [key for key in error.validator_value if key not in value]
        text = f"{file.at(where)}: {name} lacks {', '.join(missing)}. Add "
        text += "; ".join(f"`{key}:` ({_meaning(error.schema, key)})" for key in missing)
        # jsonschema reports `required` once for each missing key; say it once.
        return [Mistake(where, text + ".")] if missing and error.message.startswith(repr(missing[0])) else []
    if "propertyNames" in error.schema_path:
        where = (*where, value)
        return [Mistake(where, f"{file.at(where)}: the name {show(value)} in {name} {_mend(rule, value, error)}")]
    return [Mistake(where, f"{file.at(where)}: {name} = {show(value)} {_mend(rule, value, error)}")]


def _unknown_key(file: YamlFile, where: Where, key: str, known: list[str]) -> str:
    inside = f" in {place(where)}" if where else ""
    return (
        f"{file.at((*where, key))}: unknown key '{key}'{inside}.{nearest(key, known)}"
        f" Keys that may stand here: {', '.join(known)}."
    )


def _meaning(schema: dict, key: str) -> str:
    return schema["properties"][key].get("description", key).split(". ")[0].rstrip(".")


def _mend(rule: str, value: object, error: jsonschema.ValidationError) -> str:
    """Return the second half of a message: what is wrong with the value, and what to write instead."""
    limit = error.validator_value
    about = error.schema.get("description", "")
    about = f" ({about.split('. ')[0].rstrip('.')})" if about else ""
    if rule == "type":
        wanted = " or ".join(TYPE_NAMES[t] for t in ([limit] if isinstance(limit, str) else limit))
        hint = ""
        if limit == "array" and not isinstance(value, dict | None):
            hint = f" Write [{value if isinstance(value, str) else show(value)}]."
        if limit in ("number", "integer") and isinstance(value, str) and _is_number(value):
            # Without an exponent: YAML reads 1e-05, which Python would print, as a text again.
            hint = f" YAML reads it as a text; write {Decimal(value):f}, without quotes."
        if "string" in limit and not about and isinstance(value, int | float) and not isinstance(value, bool):
            hint = f" Put it in quotes: '{show(value)}'."
        return f"is not {wanted}{about}.{hint}"
    if rule in ("enum", "const"):
        known = limit if rule == "enum" else [limit]
        listed = ", ".join(map(str, known)) if len(known) <= 12 else f"{len(known)} names, see config/README.md"
        hint = " Take the quotes off." if value in map(str, known) else nearest(value, known)
        return f"is not known here.{hint} Choose from: {listed}."
    if rule == "minItems":
        return f"is empty{about}. Give at least one value, or take the key out."
    if rule == "uniqueItems":
        twice = next(v for i, v in enumerate(value) if v in value[:i])
        return f"holds {show(twice)} twice. Keep one of the two."
    if rule == "minProperties":
        return f"is empty{about}. Give at least one entry."
    if rule in ("pattern", "anyOf"):
        return f"does not have the right form ({error.schema.get('description', limit)})."
    if rule in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
        words = {
            "minimum": "at least",
            "exclusiveMinimum": "more than",
            "maximum": "at most",
            "exclusiveMaximum": "less than",
        }
        return f"is out of range: it must be {words[rule]} {limit}{about}."
    if rule in ("maxLength", "minLength"):
        return f"has {len(value)} characters; allowed are {'at most' if rule == 'maxLength' else 'at least'} {limit}{about}."
    return f"is not allowed: {error.message}{about}."


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
