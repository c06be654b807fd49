"""The tables of config/README.md: each key of campaign, cluster and benchmarks with type, unit, default and meaning."""

import json
import re
import textwrap

from regatta.campaign.load import file_schema
from regatta.core.benchmarks import benchmark_names, load_benchmark
from regatta.core.files import ROOT

README = ROOT / "config" / "README.md"
HEAD = "| key | type | unit | default | meaning |\n|---|---|---|---|---|"
CAMPAIGN, CLUSTER = "## Campaign file", "## Cluster file"
ROW = re.compile(r"^\| `([^`]+)` \|.*$", re.MULTILINE)
ROWS = re.compile(r"(?:^\| `.*\n)+", re.MULTILINE)
NAMES = re.compile(r"(?<=<!-- names -->\n).*?(?=\n\n|\n\Z|\Z)", re.DOTALL)
UNITS = {
    "_seconds": "s",
    "_minutes": "min",
    "_bytes": "bytes",
    "_mb_per_node": "MiB",
    "target_precision": "ratio",
    "margin": "ratio",
}
TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}
TYPES |= {"object": "keys and values"}
PLURALS = {"text": "texts", "whole number": "whole numbers", "number": "numbers", "keys and values": "entries"}
LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
MAX_NAMES = 12  # of an enum in a table; longer ones have a separate list


def schemas_by_heading() -> dict[str, dict]:
    """Return the schema of each section, by its heading."""
    benchmarks = {f"## Parameters of `{name}`": load_benchmark(name).schema for name in benchmark_names()}
    return {CAMPAIGN: file_schema("campaign"), **benchmarks, CLUSTER: file_schema("cluster")}


def with_tables(text: str) -> str:
    """Return the text of config/README.md with the rows that the schemas declare, and a section for a new benchmark.

    Raises ValueError for a key of campaign or cluster without a row: only a person knows in which table it belongs.
    """
    for heading, schema in schemas_by_heading().items():
        known = rows(schema)
        table = "\n".join(known.values()) + "\n"
        if f"\n{heading}\n" not in text:
            text = text.replace(f"\n{CLUSTER}\n", f"\n{heading}\n\n{HEAD}\n{table}\n{CLUSTER}\n")
        before, title, section = text.partition(f"\n{heading}\n")
        section, mark, after = section.partition("\n## ")
        if heading not in (CAMPAIGN, CLUSTER):
            section = ROWS.sub(lambda _, table=table: table, section)
        elif missing := known.keys() - set(ROW.findall(section)):
            raise ValueError(f"config/README.md, {heading}: no row for {', '.join(sorted(missing))}")
        section = ROW.sub(lambda row, known=known: known.get(row[1], row[0]), section)
        names = iter(long_enums(schema))
        section = NAMES.sub(lambda _, names=names: _wrapped(next(names)), section)
        text = before + title + section + mark + after
    return text


def rows(schema: dict, prefix: str = "") -> dict[str, str]:
    """Return the table rows of an object's keys, and of all keys below, by key."""
    found = {}
    for key, rule in schema.get("properties", {}).items():
        default = "**required**" if key in schema.get("required", []) else "none"
        if "default" in rule:
            default = f"`{json.dumps(rule['default'])}`"
        path = f"{prefix}{key}"
        found[path] = f"| `{path}` | {type_words(rule)} | {_unit(key, rule)} | {default} | {rule['description']} |"
        found |= rows(rule, f"{path}.")
        found |= rows(rule.get("items", {}), f"{path}[].")
        named = rule.get("additionalProperties")
        if isinstance(named, dict):
            about = named.get("description", "An entry of this name")
            found[f"{path}.NAME"] = f"| `{path}.NAME` | {type_words(named)} | – | none | {about} |"
            found |= rows(named, f"{path}.NAME.")
    return found


def type_words(rule: dict, is_plural: bool = False) -> str:
    if "const" in rule:
        return f"`{rule['const']}`"
    if "enum" in rule:
        return "the names below" if len(rule["enum"]) > MAX_NAMES else " or ".join(f"`{v}`" for v in rule["enum"])
    if "anyOf" in rule:
        return " or ".join(type_words(option, is_plural) for option in rule["anyOf"])
    if rule["type"] == "array":
        return f"list of {type_words(rule['items'], is_plural=True)}"
    names = [rule["type"]] if isinstance(rule["type"], str) else rule["type"]
    words = [TYPES[name] for name in names]
    limits = ", ".join(f"{sign} {rule[key]}" for key, sign in LIMITS.items() if key in rule)
    return " or ".join(PLURALS.get(w, w) if is_plural else w for w in words) + (f" {limits}" if limits else "")


def _unit(key: str, rule: dict) -> str:
    return rule.get("x-unit") or next((unit for end, unit in UNITS.items() if key.endswith(end)), "–")


def long_enums(schema: dict) -> list[list[str]]:
    rules = [rule.get("items", rule) for rule in schema["properties"].values()]
    return [rule["enum"] for rule in rules if len(rule.get("enum", [])) > MAX_NAMES]


def _wrapped(names: list[str]) -> str:
    text = ", ".join(f"`{name}`" for name in names)
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)
