"""Write what derives from declarations: JSON Schemas for editors, the list of all columns, tables of config/README.md.

python workflow/scripts/publish_schemas.py

columns.csv has each column of each CSV file with its type and definition. Editors use the JSON Schemas to complete and
check campaign and cluster files. Each is self-contained: the parameters of all benchmarks are inlined. Only
load_campaign checks what a schema cannot express, such as shapes that the cluster lacks.
"""

import copy
import csv
import io
import json
import re
import textwrap
from pathlib import Path

from regatta.campaign import program_entries as programs
from regatta.campaign import script_entries as scripts
from regatta.campaign.load import CELL_FIELDS, baseline_fields, fields_schema, file_schema
from regatta.campaign.versus import COMMON_AXES
from regatta.core.benchmarks import benchmark_names, built_in_names, load_benchmark
from regatta.core.errors import run_script, script_parser
from regatta.core.files import ROOT
from regatta.core.schemas import SCHEMAS
from regatta.kit.columns import Columns
from regatta.store.csv_files import CELL, COLLECTED, TYPES
from regatta.store.launch_files import write_text
from regatta.tables.cells import columns_with
from regatta.topics.catalog import TABLES

PUBLISHED = SCHEMAS / "published"
DIALECT = "http://json-schema.org/draft-07/schema#"  # the latest that every editor reads
COMMENT = "Generated from workflow/schemas/*.yaml by workflow/scripts/publish_schemas.py. Do not edit."
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
    "windows_ratio": "ratio",
    "margin": "ratio",
    "allocation_variation": "ratio",
}
COMMON_COLUMNS = {
    "cell": "id of the cell",
    "rank": "the rank",
    "num_planned": "launches that the campaign requests",
    "num_launches": "launches with a valid record",
    "num_places": "nodes or pairs that are compared",
    "interval": "kind of the intervals: none, single, range or interval",
}  # of several tables, where they declare no definition
NAMED_BY_USERS = (scripts.BENCHMARK, programs.BENCHMARK)  # their parameters; the axes are computed
NAMES_OF_TYPES = {"object": "mapping", "array": "list"}  # others have JSON Schema's names
PLURALS = {"string": "strings", "integer": "integers", "number": "numbers", "mapping": "mappings"}
LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
MAX_NAMES = 12  # longest enum in a table; longer ones have a separate list


def published_schemas() -> dict[Path, str]:
    """Return the content of each file of workflow/schemas/published/."""
    schemas = {"campaign": campaign_schema(), "cluster": file_schema("cluster")}
    head = {"$schema": DIALECT, "$comment": COMMENT}
    texts = {name: json.dumps(head | _plain(schema), indent=2, ensure_ascii=False) for name, schema in schemas.items()}
    files = {PUBLISHED / f"{name}.json": f"{text}\n" for name, text in texts.items()}
    return files | {PUBLISHED / "columns.csv": columns_csv()}


def columns_csv() -> str:
    """Return columns.csv: file, column, type and definition of each column, in the order of the files."""
    common = dict.fromkeys(CELL, "what the cell measures: config/README.md") | COMMON_COLUMNS
    types = {kind: name for name, kind in TYPES.items()}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("file", "column", "type", "definition"))
    for table, columns in all_columns().items():
        for column in columns.declared:
            for name in column.names:
                text = column.helps("cuda") or common.get(name) or column.label
                text = text.replace("see below", "see docs/metrics.md")
                writer.writerow((f"{table}.csv", name, types[column.type], text))
    return out.getvalue()


def all_columns() -> dict[str, Columns]:
    """Return the columns of each file of a results folder, without its ending."""
    of_topics = {f"tables/{name}": spec.columns for name, spec in TABLES.items()}
    return COLLECTED | {"cells": columns_with(map(load_benchmark, built_in_names()))} | of_topics


def campaign_schema() -> dict:
    """Return the campaign's schema with the benchmarks, their parameters, and the names of fields and axes inlined."""
    schema = copy.deepcopy(file_schema("campaign"))
    keys = schema["properties"]
    parameters: dict[str, list[str]] = {}
    for benchmark in benchmark_names():
        for name in load_benchmark(benchmark).parameters:
            parameters.setdefault(name, []).append(benchmark)
    fields = {name: {} for name in CELL_FIELDS}
    fields |= {name: {"description": f"Parameter of {', '.join(of)}"} for name, of in parameters.items()}
    for rules in (keys["exclude"], keys["gate"]["properties"]["references"]):
        rules["items"]["properties"]["when"]["properties"] = fields
    # With scripts, programs or files, also the names of their parameters, which the campaign and these have.
    file = {"type": "string", "pattern": "\\.py$"}
    of_users = {"properties": {"benchmark": {"anyOf": [{"enum": [scripts.BENCHMARK, programs.BENCHMARK]}, file]}}}
    has_user_code = {"properties": {"benchmarks": {"contains": of_users}}}
    only_known = {"properties": {"when": fields_schema({name: {} for name in fields})}}
    # An axis is a string, or the key `axis` of an object.
    axes, versus = {"enum": [*COMMON_AXES, *parameters]}, keys["versus"]
    del versus["type"]
    of_object = {"type": "object"} | {key: versus.pop(key) for key in ("properties", "additionalProperties")}
    versus["anyOf"] = [axes, {"type": "string"}, of_object]
    only_axes = {"anyOf": [axes, {"type": "object", "properties": {"axis": axes}}]}
    keys["baseline"]["properties"] = baseline_fields()
    of_gate = {"properties": {"references": {"items": only_known}}}
    only_known = {
        "exclude": {"items": only_known},
        "gate": of_gate,
        "baseline": fields_schema(baseline_fields()),
        "versus": only_axes,
    }
    schema["allOf"] = [{"if": has_user_code, "else": {"properties": only_known}}]
    entry = keys["benchmarks"]["items"]
    names = entry["properties"]["benchmark"]
    names["anyOf"] = [{"enum": names.pop("enum")}, file]
    entry["allOf"] = [
        {
            "if": {"required": ["benchmark"], "properties": {"benchmark": {"const": name}}},
            "then": {"properties": {"parameters": _parameters(name)}},
        }
        for name in benchmark_names()
    ]
    return schema


def _parameters(benchmark: str) -> dict:
    """Return the schema of the parameters of a benchmark."""
    return scripts.PARAMETERS if benchmark in NAMED_BY_USERS else load_benchmark(benchmark).schema


def _plain(rule: object) -> object:
    """Return a schema without Regatta's keys (x-...) and without the dialects of the schemas that were inlined."""
    if isinstance(rule, list):
        return [_plain(part) for part in rule]
    if not isinstance(rule, dict):
        return rule
    return {k: _plain(v) for k, v in rule.items() if not k.startswith("x-")}


def schemas_by_heading() -> dict[str, dict]:
    """Return the schema of each section, by its heading."""
    names = [name for name in benchmark_names() if name not in NAMED_BY_USERS]
    benchmarks = {f"## Parameters of `{name}`": load_benchmark(name).schema for name in names}
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
        lists = (", ".join(f"`{name}`" for name in names) for names in long_enums(schema))
        wrapped = (textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) for text in lists)
        section = NAMES.sub(lambda _, wrapped=wrapped: next(wrapped), section)
        text = before + title + section + mark + after
    return text


def rows(schema: dict, prefix: str = "") -> dict[str, str]:
    """Return the table rows of an object's keys, and of all keys below, by key."""
    found = {}
    for key, rule in schema.get("properties", {}).items():
        required = (*schema.get("required", ()), *schema.get("else", {}).get("required", ()))
        default = "**required**" if key in required else "none"
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
        words = ["null" if v is None else v for v in rule["enum"]]
        return "the names below" if len(words) > MAX_NAMES else " or ".join(f"`{word}`" for word in words)
    if "anyOf" in rule:
        return " or ".join(type_words(option, is_plural) for option in rule["anyOf"])
    if rule["type"] == "array":
        return f"list of {type_words(rule['items'], is_plural=True)}"
    names = [rule["type"]] if isinstance(rule["type"], str) else rule["type"]
    words = [NAMES_OF_TYPES.get(name, name) for name in names]
    limits = ", ".join(f"{sign} {rule[key]}" for key, sign in LIMITS.items() if key in rule)
    return " or ".join(PLURALS.get(w, w) if is_plural else w for w in words) + (f" {limits}" if limits else "")


def _unit(key: str, rule: dict) -> str:
    return rule.get("x-unit") or next((unit for end, unit in UNITS.items() if key.endswith(end)), "–")


def long_enums(schema: dict) -> list[list[str]]:
    rules = [rule.get("items", rule) for rule in schema["properties"].values()]
    return [rule["enum"] for rule in rules if len(rule.get("enum", [])) > MAX_NAMES]


def main() -> None:
    script_parser(__doc__).parse_args()
    texts = published_schemas() | {README: with_tables(README.read_text(encoding="utf-8"))}
    for path, text in texts.items():
        write_text(path, text)
        print(path)


if __name__ == "__main__":
    run_script(main)
