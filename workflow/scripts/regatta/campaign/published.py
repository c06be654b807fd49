"""JSON Schemas by which editors complete and check campaign and cluster files, made from workflow/schemas/*.yaml.

Each is self-contained: the parameters of all benchmarks are inlined. What a schema cannot say, such as a shape that the
cluster does not have, only load_campaign checks.
"""

import copy
import json
from pathlib import Path

from regatta.campaign.load import CELL_FIELDS, file_schema
from regatta.campaign.versus import OF_EVERY_CELL
from regatta.core.benchmarks import baseline_parameters, benchmark_names, load_benchmark
from regatta.core.schemas import SCHEMAS

PUBLISHED = SCHEMAS / "published"
DIALECT = (
    "http://json-schema.org/draft-07/schema#"  # the latest that every editor reads; nothing here needs a newer one
)
COMMENT = "Generated from workflow/schemas/*.yaml by workflow/scripts/publish_schemas.py. Do not edit."


def published_schemas() -> dict[Path, str]:
    """Return the content of each file of workflow/schemas/published/."""
    schemas = {"campaign": campaign_schema(), "cluster": file_schema("cluster")}
    return {PUBLISHED / f"{name}.json": _text(schema) for name, schema in schemas.items()}


def campaign_schema() -> dict:
    """Return the campaign's schema with the benchmarks, their parameters, and the names of fields and axes inlined."""
    schema = copy.deepcopy(file_schema("campaign"))
    parameters, keys = parameter_benchmarks(), schema["properties"]
    fields = {name: {} for name in CELL_FIELDS}
    fields |= {name: {"description": f"Parameter of {', '.join(of)}"} for name, of in parameters.items()}
    keys["exclude"]["items"]["properties"]["when"] |= {"properties": fields, "additionalProperties": False}
    keys["baseline"] |= {"properties": _baseline_fields(), "additionalProperties": False}
    axes = [*OF_EVERY_CELL, *parameters]
    keys["versus"] = _with_axes(keys["versus"], axes)
    _inline_benchmarks(keys["benchmarks"]["items"])
    return schema


def parameter_benchmarks() -> dict[str, list[str]]:
    """Return each parameter with the benchmarks that have it."""
    found: dict[str, list[str]] = {}
    for benchmark in benchmark_names():
        for name in load_benchmark(benchmark).parameters:
            found.setdefault(name, []).append(benchmark)
    return found


def _baseline_fields() -> dict[str, dict]:
    """Return the fields of `baseline`: one value of each, where the matrix has lists."""
    shape = {name: {"type": "integer", "minimum": 1} for name in ("nodes", "gpus_per_node")}
    rules = baseline_parameters()
    return shape | {name: {"description": rule["description"]} | rule["items"] for name, rule in rules.items()}


def _with_axes(versus: dict, axes: list[str]) -> dict:
    """Return the rule of `versus` with the known axes: as a text alone, and as the key `axis`."""
    of_object = {key: versus.pop(key) for key in ("properties", "additionalProperties")}
    of_object["properties"]["axis"] |= {"enum": axes}
    del versus["type"]
    return versus | {"anyOf": [{"enum": axes}, {"type": "object"} | of_object]}


def _inline_benchmarks(entry: dict) -> None:
    """Add to the rule of an entry of `benchmarks` which parameters each benchmark has."""
    names = benchmark_names()
    entry["properties"]["benchmark"]["enum"] = names
    entry["allOf"] = [
        {
            "if": {"required": ["benchmark"], "properties": {"benchmark": {"const": name}}},
            "then": {"properties": {"parameters": load_benchmark(name).schema}},
        }
        for name in names
    ]


def _text(schema: dict) -> str:
    plain = {"$schema": DIALECT, "$comment": COMMENT} | _without_extensions(schema)
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


def _without_extensions(rule: object) -> object:
    """Return a schema without Regatta's keys (x-...) and without the dialects of the schemas that were inlined."""
    if isinstance(rule, list):
        return [_without_extensions(part) for part in rule]
    if not isinstance(rule, dict):
        return rule
    return {k: _without_extensions(v) for k, v in rule.items() if not k.startswith("x-") and k != "$schema"}
