"""Declarations of each benchmark: its axes, and the results in its records.

Columns, labels, names of cells, import and export are derived from it. Those of Regatta are files in
workflow/schemas/benchmarks; those of files outside its tree come with a campaign (`declare`). The driver never imports
the ranks' programs: it reads their `VERSION = 1` from the source text.
"""

import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from regatta.core import schemas

SCHEMAS = schemas.SCHEMAS / "benchmarks"
SCHEMAS_FOLDER = "workflow/schemas/benchmarks"  # shown in messages
PROGRAMS = Path(__file__).resolve().parents[2] / "bench"
GROUPS = {"values": {}, "parts_ns": {"type": "integer"}, "memory": {"type": "integer"}, "checks": {"type": "boolean"}}
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9}
SAMPLES, SAMPLES_LABEL = "p50_s", "median iteration"  # the time of a launch that every record has
ONE_LINE = {"pattern": "^[^\0\n\r]{0,200}$", "description": "one line of at most 200 characters"}
SLUG = re.compile(r"[A-Za-z0-9_.]{1,32}")
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
    file: with the declaration.
    """

    name: str
    version: int
    file: str
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

    @cached_property
    def slug_axes(self) -> tuple[str, ...]:
        """Return the parameters that are part of a cell's readable id."""
        return tuple(name for name, rule in self.parameters.items() if rule.get("x-slug"))


_declared: dict[str, dict] = {}


def declare(name: str, declaration: dict) -> None:
    """Add a benchmark of a file outside Regatta's tree, or replace it. declaration: see workflow/schemas/frozen.yaml.

    The columns of tables follow by `declare` of store/csv_files.py, which calls this.
    """
    if name not in built_in_names():  # a later version of Regatta may have one of this name
        _declared[name] = declaration
    for function in (load_benchmark, axes_of, all_axes, results_of, result_columns):
        function.cache_clear()


def declared_benchmarks() -> dict[str, dict]:
    """Return the declarations of files outside Regatta's tree that this process has read, by name."""
    return dict(_declared)


def benchmark_names() -> tuple[str, ...]:
    """Return the names of all benchmarks, those of Regatta first."""
    return (*built_in_names(), *_declared)


@cache
def built_in_names() -> tuple[str, ...]:
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
    if name in _declared:
        declaration = _declared[name]
        return _benchmark(name, declaration["version"], declaration["file"], _schema_of(name, declaration))
    schema = schemas.read_schema(SCHEMAS / f"{name}.yaml")
    files = [path for path in (PROGRAMS / f"{name}.py", PROGRAMS / f"{name}.sh") if path.is_file()]
    if not files:
        raise ValueError(f"{SCHEMAS_FOLDER}/{name}.yaml has no program {name}.py in workflow/scripts/bench")
    version = re.search(r"^VERSION ?= ?(\d+)\b", files[0].read_text(encoding="utf-8"), re.MULTILINE)
    if version is None:
        raise ValueError(f"workflow/scripts/bench/{files[0].name} assigns no VERSION")
    if problem := schemas.first_violation(schema, schemas.load_schema("benchmark")):
        raise ValueError(f"{SCHEMAS_FOLDER}/{name}.yaml: {problem}")
    return _benchmark(name, int(version[1]), f"{SCHEMAS_FOLDER}/{name}.yaml", schema)


def _benchmark(name: str, version: int, file: str, schema: dict) -> Benchmark:
    time = schema.get("x-primary-time", {"column": SAMPLES, "label": SAMPLES_LABEL})
    flags = (schema.get(key, default) for key, default in FLAGS.items())
    return Benchmark(name, version, file, schema, schema["x-subject"], time, *flags)


def _schema_of(name: str, declaration: dict) -> dict:
    """Return the schema of a benchmark outside Regatta's tree, with the keys of workflow/schemas/benchmarks."""
    axes = {}
    for axis, rule in declaration["axes"].items():
        values = rule.get("choices", [])
        items = {"enum": values} if values else ONE_LINE if rule["type"] == "string" else {}
        text = axis.replace("_", " ")
        axes[axis] = {
            "x-label": text.capitalize(),
            "x-words": f"{text} {{}}",
            "x-slug": rule["type"] == "integer" or (values and all(SLUG.fullmatch(str(one)) for one in values)),
            "type": "array",
            "minItems": 1,
            "uniqueItems": True,
            "description": f"Parameter of {declaration['file']}",
            "items": {"type": rule["type"]} | items,
            **({"default": [rule["default"]]} if "default" in rule else {}),
        }
    results = {key: {"type": "number", "column": key} | keys for key, keys in declaration["results"].items()}
    required = [axis for axis, rule in axes.items() if "default" not in rule]
    schema = {"x-subject": name, "type": "object", "additionalProperties": False, "required": required}
    return schema | {"properties": axes, "x-results": {"values": results}}


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
    known, place = results_of(name), f"{'RESULTS' if name in _declared else 'x-results'} of {load_benchmark(name).file}"
    groups = ("values", "memory") if name in _declared else GROUPS  # parts and checks of a file need no declaration
    fields = [(group, field) for group in groups for field in record.get(group) or {}]
    return [f"{g}.{f} is not declared in {place}: no table has it" for g, f in fields if (g, f) not in known]


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
