"""What each benchmark declares in workflow/schemas/benchmarks: its axes and the results that its records hold.

Columns, labels, names of cells, import and export are derived from it. The driver never imports the rank's programs: a
program's `VERSION = 1` is read from its source text.
"""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from regatta.core import schemas

SCHEMAS = schemas.SCHEMAS / "benchmarks"
COMMON_RESULTS = schemas.SCHEMAS / "results.yaml"
SCHEMAS_FOLDER = "workflow/schemas/benchmarks"  # in messages
PROGRAMS = Path(__file__).resolve().parents[2] / "bench"
GROUPS = {"values": {}, "parts_ns": {"type": "integer"}, "memory": {"type": "integer"}, "checks": {"type": "boolean"}}
TYPES = ("string", "integer", "number", "boolean")


@dataclass(frozen=True)
class Axis:
    """A parameter of a benchmark. type: of its column; words: how a value reads, a pattern or a text for each value.

    is_series: in figures it is said of a line, not of the panel.
    """

    name: str
    type: str
    label: str
    unit: str | None
    words: str | dict
    is_series: bool = False


@dataclass(frozen=True)
class Result:
    """A field of a record. group: values, parts_ns, memory or checks. column: of `table`; None: in the record only."""

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


@dataclass(frozen=True)
class Benchmark:
    """A benchmark's name, its version (numbers of two versions are not comparable), and its parameters' schema."""

    name: str
    version: int
    schema: dict

    @property
    def parameters(self) -> dict[str, dict]:
        return self.schema["properties"]

    @property
    def is_sampled(self) -> bool:
        """Whether the campaign's sampling sets the number of iterations; else a parameter does, such as epochs."""
        return self.schema.get("x-sampled", True)

    @property
    def has_baseline(self) -> bool:
        """Whether efficiency against the campaign's baseline is computed for it."""
        return self.schema.get("x-has-baseline", False)

    @property
    def subject(self) -> str:
        """What people call a cell of it first, such as {model}."""
        return self.schema["x-subject"]

    @property
    def file(self) -> str:
        return f"{SCHEMAS_FOLDER}/{self.name}.yaml"


def benchmark_names() -> list[str]:
    return sorted(path.stem for path in SCHEMAS.glob("*.yaml"))


@cache
def load_benchmark(name: str) -> Benchmark:
    program = PROGRAMS / f"{name}.py"
    if not program.is_file():
        raise ValueError(f"{SCHEMAS_FOLDER}/{name}.yaml has no program {program.name} in workflow/scripts/bench")
    return Benchmark(name, program_version(program), yaml.safe_load((SCHEMAS / f"{name}.yaml").read_text("utf-8")))


def baseline_parameters() -> dict[str, dict]:
    """Return the parameters, with their schema, by which a campaign names its baseline."""
    known = [load_benchmark(name) for name in benchmark_names()]
    return {axis: rule for benchmark in known if benchmark.has_baseline for axis, rule in benchmark.parameters.items()}


def program_version(program: Path) -> int:
    """Return the literal that a rank's program assigns to VERSION. Raises ValueError if it assigns none."""
    for node in ast.parse(program.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "VERSION" for t in node.targets):
            return ast.literal_eval(node.value)
    raise ValueError(f"workflow/scripts/bench/{program.name} assigns no VERSION")


@cache
def axes_of(name: str) -> dict[str, Axis]:
    """Return the declared axes of a benchmark by name. Raises ValueError for one that is not declared in full."""
    benchmark = load_benchmark(name)
    if missing := [key for key in ("x-subject", "properties") if key not in benchmark.schema]:
        raise ValueError(f"{benchmark.file} lacks {', '.join(missing)}")
    return {axis: declared_axis(benchmark, axis) for axis in benchmark.parameters}


def declared_axis(benchmark: Benchmark, name: str) -> Axis:
    rule = benchmark.parameters[name]
    if missing := [key for key in ("x-label", "items", "description") if key not in rule]:
        raise ValueError(f"{benchmark.file}: properties.{name} lacks {', '.join(missing)}")
    kind = _type_of(rule["items"], f"{benchmark.file}: properties.{name}")
    told = rule["x-label"], rule.get("x-unit"), rule.get("x-words", "{}"), rule.get("x-series", False)
    return Axis(name, kind, *told)


@cache
def all_axes() -> dict[str, Axis]:
    """Return every axis of any benchmark. One that several have is the same in all: it is one column."""
    found: dict[str, Axis] = {}
    for program in sorted(PROGRAMS.glob("*.py")):
        if program.stem not in benchmark_names() and "\ndef build(" in program.read_text(encoding="utf-8"):
            raise ValueError(
                f"workflow/scripts/bench/{program.name} has no schema {program.stem}.yaml in {SCHEMAS_FOLDER}"
            )
    for name in benchmark_names():
        for axis in axes_of(name).values():
            if found.setdefault(axis.name, axis) != axis:
                raise ValueError(f"{load_benchmark(name).file}: {axis.name} is declared otherwise in another schema")
    return found


@cache
def results_of(name: str) -> dict[tuple[str, str], Result]:
    """Return the results that a record of a benchmark may hold, by group and field."""
    common = _results(yaml.safe_load(COMMON_RESULTS.read_text("utf-8")), "workflow/schemas/results.yaml")
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
                raise ValueError(f"{load_benchmark(name).file}: column {result.column} is of another result too")
    return found


def undeclared(record: dict) -> list[str]:
    """Return what is wrong with each field of a record that its benchmark does not declare.

    A record of another version of the program is read as it is: nobody can declare what an old program wrote.
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


def _type_of(rule: dict, where: str) -> str:
    """Return the type of a column that holds all values of a rule. A size in bytes may be written as text."""
    if "anyOf" in rule:
        return _type_of(rule["anyOf"][0], where)
    if "enum" in rule:
        return "string"
    types = [rule["type"]] if isinstance(rule["type"], str) else [name for name in rule["type"] if name != "null"]
    if len(types) != 1 or types[0] not in TYPES:
        raise ValueError(f"{where} has type {types}: one of {', '.join(TYPES)} makes a column")
    return types[0]
