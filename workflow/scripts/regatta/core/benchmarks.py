"""Declarations of each benchmark in workflow/schemas/benchmarks: its axes, and the results in its records.

Columns, labels, names of cells, import and export are derived from it. The driver never imports the ranks' programs: it
reads their `VERSION = 1` from the source text.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from regatta.core import schemas

SCHEMAS = schemas.SCHEMAS / "benchmarks"
SCHEMAS_FOLDER = "workflow/schemas/benchmarks"  # shown in messages
PROGRAMS = Path(__file__).resolve().parents[2] / "bench"
GROUPS = {"values": {}, "parts_ns": {"type": "integer"}, "memory": {"type": "integer"}, "checks": {"type": "boolean"}}
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9}
SAMPLES, SAMPLES_LABEL = "p50_s", "median iteration"  # the time of a launch that every record has
FLAGS = {"x-sampled": True, "x-has-windows": False, "x-has-baseline": False, "x-alone": False}  # with their defaults


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
    """A benchmark's name, its version (results of two versions are not comparable), and its parameters' schema.

    subject: the first part of its cells' names, such as {model}. primary_time: column and label of the time of a launch
    by which its cells are judged. is_sampled: the campaign's sampling sets the number of iterations; else a parameter
    does (epochs). has_windows: iterations are also timed back to back, in windows (sampling.windows_ratio).
    has_baseline: efficiency against the campaign's baseline is computed for it. is_alone: a launch measures one cell.
    """

    name: str
    version: int
    schema: dict
    subject: str
    primary_time: dict[str, str]
    is_sampled: bool
    has_windows: bool
    has_baseline: bool
    is_alone: bool

    @property
    def parameters(self) -> dict[str, dict]:
        return self.schema["properties"]

    @property
    def file(self) -> str:
        return f"{SCHEMAS_FOLDER}/{self.name}.yaml"


@cache
def benchmark_names() -> tuple[str, ...]:
    """Return the names of all schemas. Raises ValueError for a program without one."""
    names = tuple(sorted(path.stem for path in SCHEMAS.glob("*.yaml")))
    for program in sorted(PROGRAMS.glob("*.py")):
        if program.stem not in names and re.search(r"^def (build|measure_cell)\(", program.read_text("utf-8"), re.M):
            file = f"{program.stem}.yaml in {SCHEMAS_FOLDER}"
            raise ValueError(f"workflow/scripts/bench/{program.name} has no schema {file}")
    return names


@cache
def load_benchmark(name: str) -> Benchmark:
    """Return a benchmark. Raises ValueError for one that is not declared in full."""
    schema = schemas.read_schema(SCHEMAS / f"{name}.yaml")
    files = [path for path in (PROGRAMS / f"{name}.py", PROGRAMS / f"{name}.sh") if path.is_file()]
    if not files:
        raise ValueError(f"{SCHEMAS_FOLDER}/{name}.yaml has no program {name}.py in workflow/scripts/bench")
    version = re.search(r"^VERSION ?= ?(\d+)\b", files[0].read_text(encoding="utf-8"), re.MULTILINE)
    if version is None:
        raise ValueError(f"workflow/scripts/bench/{files[0].name} assigns no VERSION")
    if problem := schemas.first_violation(schema, schemas.load_schema("benchmark")):
        raise ValueError(f"{SCHEMAS_FOLDER}/{name}.yaml: {problem}")
    time = schema.get("x-primary-time", {"column": SAMPLES, "label": SAMPLES_LABEL})
    flags = (schema.get(key, default) for key, default in FLAGS.items())
    return Benchmark(name, int(version[1]), schema, schema["x-subject"], time, *flags)


def baseline_parameters() -> dict[str, dict]:
    """Return the parameters, with their schema, by which a campaign names its baseline."""
    known = [load_benchmark(name) for name in benchmark_names()]
    return {axis: rule for benchmark in known if benchmark.has_baseline for axis, rule in benchmark.parameters.items()}


@cache
def axes_of(name: str) -> dict[str, Axis]:
    """Return the axes of a benchmark by name."""
    found = {}
    for axis, rule in load_benchmark(name).parameters.items():
        words, is_series = rule.get("x-words", "{}"), rule.get("x-series", False)
        kind = _column_type(rule["items"])
        found[axis] = Axis(axis, kind, rule["x-label"], rule.get("x-unit"), words, is_series, rule["description"])
    return found


@cache
def all_axes() -> dict[str, Axis]:
    """Return the axes of all benchmarks. One that several share is one column: a test requires them to be identical."""
    return {name: axis for benchmark in reversed(benchmark_names()) for name, axis in axes_of(benchmark).items()}


@cache
def results_of(name: str) -> dict[tuple[str, str], Result]:
    """Return the results that a record of a benchmark may contain, by group and field."""
    declared = schemas.load_schema("results"), load_benchmark(name).schema.get("x-results", {})
    return {
        (group, field): Result(group, field, **GROUPS[group] | keys)
        for groups in declared
        for group, fields in groups.items()
        for field, keys in (fields or {}).items()
    }


@cache
def result_columns(group: str, table: str = "measurements") -> dict[str, Result]:
    """Return the results of any benchmark that have a column in a table, by its name."""
    results = [result for name in benchmark_names() for result in results_of(name).values()]
    return {of.column: of for of in results if of.column and (of.group, of.table) == (group, table)}


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


def _column_type(rule: dict) -> str:
    """Return the type of a column that holds all values of a rule. A size in bytes may be written as text."""
    kind = rule.get("anyOf", [rule])[0].get("type", "string")  # without a type: names
    return kind if isinstance(kind, str) else kind[0]  # a string or null


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
