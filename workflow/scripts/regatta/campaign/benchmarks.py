"""A cell's parameters as they are hashed, and the combinations that a benchmark's schema declares impossible."""

import math
import re

from regatta.core.benchmarks import Benchmark

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9}
ELEMENT_BYTES = {"fp32": 4, "bf16": 2}


def parse_bytes(value: int | str) -> int:
    """Return a number of bytes from a whole number or a text such as `64KiB`. The schema has checked the form."""
    if isinstance(value, int):
        return value
    number, unit = re.fullmatch(r"(\d+) ?([A-Za-z]+)", value).groups()
    return int(number) * UNITS[unit]


def normalise(benchmark: Benchmark, parameters: dict) -> dict:
    """Return a cell's parameters as they are hashed: bytes as numbers, and null where a parameter has no effect."""
    normal = {}
    for name, rule in benchmark.parameters.items():
        value = parameters[name]
        if rule.get("x-unit") == "bytes":
            value = parse_bytes(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        applies = rule.get("x-applies-when", {})
        unless = rule.get("x-unless", {})
        if any(parameters[other] not in values for other, values in applies.items()) or any(
            parameters[other] in values for other, values in unless.items()
        ):
            value = None
        normal[name] = value
    return normal


def impossible_combination(benchmark: Benchmark, spec: dict) -> str | None:
    """Return the reason of the first rule of `x-impossible` that a cell meets, or None."""
    parameters = spec["parameters"]
    fields = {**spec, **parameters, "world_size": spec["nodes"] * spec["gpus_per_node"]}
    fields["element_bytes"] = ELEMENT_BYTES.get(parameters.get("dtype"))
    for rule in benchmark.schema.get("x-impossible", []):
        if all(_meets(fields[name], wanted, fields) for name, wanted in rule["when"].items()):
            return rule["reason"].format(**fields)
    return None


def _meets(value: object, wanted: object, fields: dict) -> bool:
    """wanted: a value, a list of them, or one of {not: list}, {above: n}, {below: n}, {not_multiple_of: fields}."""
    if isinstance(wanted, list):
        return value in wanted
    if not isinstance(wanted, dict):
        return value == wanted
    ((rule, limit),) = wanted.items()
    if rule == "not":
        return value not in limit
    if value is None:
        return False
    if rule == "not_multiple_of":
        return value % math.prod(fields[name] for name in limit) != 0
    return {"above": value > limit, "below": value < limit}[rule]
