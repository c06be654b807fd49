"""Declarations of each benchmark in workflow/schemas/benchmarks: its axes, and the results in its records.

Columns, labels, names of cells, import and export are derived from it. The driver never imports the ranks' programs: it
reads their `VERSION = 1` from the source text.
"""

import math
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from regatta.core import schemas

SCHEMAS = schemas.SCHEMAS / "benchmarks"
SCHEMAS_FOLDER = "workflow/schemas/benchmarks"  # shown in messages
PROGRAMS = Path(__file__).resolve().parents[2] / "bench"
GROUPS = {"values": {}, "parts_ns": {"type": "integer"}, "memory": {"type": "integer"}, "checks": {"type": "boolean"}}
TYPES = ("string", "integer", "number", "boolean")
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9}
SAMPLES, SAMPLES_LABEL = "p50_s", "median iteration"  # the time of a launch that every record has
ELEMENT_BYTES = {"fp32": 4, "bf16": 2}


@dataclass(frozen=True)
class Axis:
    """A parameter of a benchmark. type: column type; words: how a value reads, a pattern or a string for each value.

    is_series: figures show it as the label of a line, not of the panel. help: definition.
    """

    name: str
    type: str
    label: str
    unit: str | None
    words: str | dict
    is_series: bool = False
    help: str = ""


@dataclass(frozen=True)
class Result:
    """A field of a record. group: values, parts_ns, memory or checks. column: of `table`; None: in the record only.

    help: definition of the column.
    """

    group: str
    name: str
    type: str
    label: str
    unit: str | None = None
    per: str | None = None
    over: str | None = None
    better: str | None = None
    table: str = "measurements"
    column: str | None = None
    help: str = ""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark's name, its version (results of two versions are not comparable), and its parameters' schema."""

    name: str
    version: int
    schema: dict

    @property
    def parameters(self) -> dict[str, dict]:
        return self.schema["properties"]

    @property
    def is_sampled(self) -> bool:
        """Return whether the campaign's sampling sets the number of iterations; else a parameter does (epochs)."""
        return self.schema.get("x-sampled", True)

    @property
    def has_windows(self) -> bool:
        """Return whether iterations are also timed back to back, in windows (sampling.windows_ratio)."""
        return self.schema.get("x-has-windows", False)

    @property
    def has_baseline(self) -> bool:
        """Return whether efficiency against the campaign's baseline is computed for it."""
        return self.schema.get("x-has-baseline", False)

    @property
    def primary_time(self) -> dict[str, str]:
        """Return column and label of the time of a launch by which its cells are judged."""
        return self.schema.get("x-primary-time", {"column": SAMPLES, "label": SAMPLES_LABEL})

    @property
    def subject(self) -> str:
        """Return the first part of its cells' names, such as {model}."""
        return self.schema["x-subject"]

    @property
    def file(self) -> str:
        return f"{SCHEMAS_FOLDER}/{self.name}.yaml"


def benchmark_names() -> tuple[str, ...]:
    return _names_in(SCHEMAS)


@cache
def _names_in(schemas: Path) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in schemas.glob("*.yaml")))


@cache
def load_benchmark(name: str) -> Benchmark:
    program = PROGRAMS / f"{name}.py"
    if not program.is_file():
        raise ValueError(f"workflow/schemas/benchmarks/{name}.yaml has no program {name}.py in workflow/scripts/bench")
    return Benchmark(name, program_version(program), schemas.read_schema(SCHEMAS / f"{name}.yaml"))


def baseline_parameters() -> dict[str, dict]:
    """Return the parameters, with their schema, by which a campaign names its baseline."""
    known = [load_benchmark(name) for name in benchmark_names()]
    return {axis: rule for benchmark in known if benchmark.has_baseline for axis, rule in benchmark.parameters.items()}


def program_version(program: Path) -> int:
    """Return the number that a rank's program assigns to VERSION. Raises ValueError if it assigns none."""
    if found := re.search(r"^VERSION = (\d+)\b", program.read_text(encoding="utf-8"), re.MULTILINE):
        return int(found[1])
    raise ValueError(f"workflow/scripts/bench/{program.name} assigns no VERSION")


@cache
def axes_of(name: str) -> dict[str, Axis]:
    """Return the declared axes of a benchmark by name. Raises ValueError for one that is not declared in full."""
    benchmark, axes = load_benchmark(name), {}
    if missing := [key for key in ("x-subject", "properties") if key not in benchmark.schema]:
        raise ValueError(f"{benchmark.file} lacks {', '.join(missing)}")
    for axis, rule in benchmark.parameters.items():
        where = f"{benchmark.file}: properties.{axis}"
        if missing := [key for key in ("x-label", "items", "description") if key not in rule]:
            raise ValueError(f"{where} lacks {', '.join(missing)}")
        words, is_series = rule.get("x-words", "{}"), rule.get("x-series", False)
        kind = _column_type(rule["items"], where)
        axes[axis] = Axis(axis, kind, rule["x-label"], rule.get("x-unit"), words, is_series, rule["description"])
    return axes


@cache
def all_axes() -> dict[str, Axis]:
    """Return the axes of all benchmarks. One that several share must be identical in all: it is one column."""
    found: dict[str, Axis] = {}
    for program in sorted(PROGRAMS.glob("*.py")):
        if program.stem not in benchmark_names() and "\ndef build(" in program.read_text(encoding="utf-8"):
            raise ValueError(
                f"workflow/scripts/bench/{program.name} has no schema {program.stem}.yaml in {SCHEMAS_FOLDER}"
            )
    for name in benchmark_names():
        for axis in axes_of(name).values():
            if replace(found.setdefault(axis.name, axis), words=axis.words, help=axis.help) != axis:
                raise ValueError(f"{load_benchmark(name).file}: {axis.name} is declared differently in another schema")
    return found


@cache
def results_of(name: str) -> dict[tuple[str, str], Result]:
    """Return the results that a record of a benchmark may contain, by group and field."""
    common = _results(schemas.load_schema("results"), "workflow/schemas/results.yaml")
    benchmark = load_benchmark(name)
    return common | _results(benchmark.schema.get("x-results", {}), f"{benchmark.file}: x-results")


@cache
def result_columns(group: str, table: str = "measurements") -> dict[str, Result]:
    """Return the results of any benchmark that have a column in a table, by its name."""
    found: dict[str, Result] = {}
    for name in benchmark_names():
        for result in results_of(name).values():
            if result.group != group or result.table != table or result.column is None:
                continue
            if found.setdefault(result.column, result) != result:
                raise ValueError(f"{load_benchmark(name).file}: column {result.column} is also used by another result")
    return found


def undeclared(record: dict) -> list[str]:
    """Return an error for each field of a record that its benchmark does not declare.

    Records of a different version of the program are not checked: the schema declares only the current one.
    """
    spec = record["spec"]
    name = spec.get("benchmark")
    if name not in benchmark_names() or spec.get("version") != load_benchmark(name).version:
        return []
    known, file = results_of(name), load_benchmark(name).file
    fields = [(group, field) for group in GROUPS for field in record.get(group) or {}]
    return [
        f"{g}.{f} is not declared in x-results of {file}: no table has it" for g, f in fields if (g, f) not in known
    ]


def _results(groups: dict, where: str) -> dict[tuple[str, str], Result]:
    found = {}
    for group, fields in groups.items():
        if group not in GROUPS:
            raise ValueError(f"{where}.{group}: unknown group. Choose from: {', '.join(GROUPS)}")
        for name, declared in (fields or {}).items():
            keys = GROUPS[group] | declared
            if unknown := keys.keys() - Result.__dataclass_fields__.keys():
                raise ValueError(f"{where}.{group}.{name}: unknown key {', '.join(sorted(unknown))}")
            if missing := [key for key in ("type", "label") if key not in keys]:
                raise ValueError(f"{where}.{group}.{name}: lacks {', '.join(missing)}")
            result = Result(group, name, **keys)
            if result.type not in TYPES or result.better not in (None, "smaller", "larger"):
                raise ValueError(f"{where}.{group}.{name}: unknown type {result.type!r} or better {result.better!r}")
            is_measurement = group == "values" and result.column and result.table == "measurements"
            if is_measurement and (result.per or result.type not in ("integer", "number")):
                raise ValueError(f"{where}.{group}.{name}: a column of measurements.csv needs one number per record")
            found[group, name] = result
    return found


def _column_type(rule: dict, where: str) -> str:
    """Return the type of a column that holds all values of a rule. A size in bytes may be written as text."""
    if "anyOf" in rule:
        return _column_type(rule["anyOf"][0], where)
    if "enum" in rule:
        return "string"
    types = [rule["type"]] if isinstance(rule["type"], str) else [name for name in rule["type"] if name != "null"]
    if len(types) != 1 or types[0] not in TYPES:
        raise ValueError(f"{where} has type {types}: one of {', '.join(TYPES)} makes a column")
    return types[0]


# A cell's parameters as they are hashed, and the combinations that a schema declares impossible.


def parse_bytes(value: int | str) -> int:
    """Return a number of bytes from an integer or a string such as `64KiB`. The schema has checked the form."""
    if isinstance(value, int):
        return value
    number, unit = re.fullmatch(r"(\d+) ?([A-Za-z]+)", value).groups()
    return int(number) * UNITS[unit]


def normalize(benchmark: Benchmark, parameters: dict) -> dict:
    """Return a cell's parameters as they are hashed: bytes as numbers, and null if a parameter has no effect."""
    normal = {}
    for name, rule in benchmark.parameters.items():
        value = parameters[name]
        if rule.get("x-unit") == "bytes":
            value = parse_bytes(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        applies = all(parameters[other] in values for other, values in rule.get("x-applies-when", {}).items())
        is_void = any(parameters[other] in values for other, values in rule.get("x-unless", {}).items())
        normal[name] = value if applies and not is_void else None
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
    """Return whether a value meets a condition: a value, a list, {not: list}, {above: n}, {below: n},
    {not_multiple_of: fields}."""
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
