"""Declarations of each benchmark: its axes, and the results in its records.

Columns, labels, names of cells, import and export are derived from it. Those of Regatta are files in
workflow/schemas/benchmarks; those of files outside its tree come with a campaign (`custom_benchmarks`). The driver
never imports the ranks' programs: it reads their `VERSION = 1` from the source text.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
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
AXIS = {"type": "array", "minItems": 1, "uniqueItems": True}  # of every parameter
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
    has_baseline: its cells are compared with the campaign's baseline. is_alone: a launch measures one cell.
    file: with the declaration. declaration: of a benchmark outside Regatta's tree (workflow/schemas/frozen.yaml).
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
    declaration: dict | None = None

    @property
    def parameters(self) -> dict[str, dict]:
        return self.schema["properties"]

    @property
    def is_custom(self) -> bool:
        """Return whether its file is outside Regatta's tree."""
        return self.declaration is not None

    @cached_property
    def slug_axes(self) -> tuple[str, ...]:
        """Return the parameters that are part of a cell's readable id."""
        return tuple(name for name, rule in self.parameters.items() if rule.get("x-slug"))

    @cached_property
    def axes(self) -> dict[str, Axis]:
        """The axes by name."""
        found = {}
        for axis, rule in self.parameters.items():
            words, is_series = rule.get("x-words", "{}"), rule.get("x-series", False)
            kind = _column_type(rule["items"])
            found[axis] = Axis(axis, kind, rule["x-label"], rule.get("x-unit"), words, is_series, rule["description"])
        return found

    @cached_property
    def results(self) -> dict[tuple[str, str], Result]:
        """The results that a record may contain, by group and field."""
        return {
            (group, field): Result(group, field, **GROUPS[group] | keys)
            for groups in (schemas.load_schema("results"), self.schema.get("x-results", {}))
            for group, fields in groups.items()
            for field, keys in (fields or {}).items()
        }

    @cached_property
    def columns(self) -> dict[tuple[str, str], dict[str, Result]]:
        """The results that have a column, by group and table, then by its name."""
        found = defaultdict(dict)
        for result in self.results.values():
            if result.column:
                found[result.group, result.table][result.column] = result
        return found


_custom: dict[str, Benchmark] = {}


def declare(declarations: Mapping[str, dict]) -> None:
    """Make benchmarks outside Regatta's tree known by their names, for texts. Tables have them from the campaign."""
    _custom.update(custom_benchmarks(declarations))


def custom_benchmarks(declarations: Mapping[str, dict]) -> dict[str, Benchmark]:
    """Return benchmarks outside Regatta's tree by name. A later version of Regatta may have one of the same name."""
    return {name: _custom_benchmark(name, of) for name, of in declarations.items() if name not in built_in_names()}


def benchmark_names() -> tuple[str, ...]:
    """Return the names of all benchmarks, those of Regatta first."""
    return (*built_in_names(), *_custom)


@cache
def built_in_names() -> tuple[str, ...]:
    """Return the names of all schemas. Raises ValueError for a program without one."""
    names = tuple(sorted(path.stem for path in SCHEMAS.glob("*.yaml")))
    for program in sorted(PROGRAMS.glob("*.py")):
        if program.stem not in names and re.search(r"^def (build|measure_cell)\(", program.read_text("utf-8"), re.M):
            file = f"{program.stem}.yaml in {SCHEMAS_FOLDER}"
            raise ValueError(f"workflow/scripts/bench/{program.name} has no schema {file}")
    return names


def load_benchmark(name: str) -> Benchmark:
    """Return a benchmark. Raises ValueError for one that is not declared in full."""
    return _custom.get(name) or _load(name)


@cache
def _load(name: str) -> Benchmark:
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


def _benchmark(name: str, version: int, file: str, schema: dict, declaration: dict | None = None) -> Benchmark:
    axes = {axis: AXIS | rule for axis, rule in schema["properties"].items()}
    schema = {"type": "object", "additionalProperties": False} | schema | {"properties": axes}
    time = schema.get("x-primary-time", {"column": SAMPLES, "label": SAMPLES_LABEL})
    flags = (schema.get(key, default) for key, default in FLAGS.items())
    return Benchmark(name, version, file, schema, schema["x-subject"], time, *flags, declaration)


def _custom_benchmark(name: str, declaration: dict) -> Benchmark:
    """Return a benchmark outside Regatta's tree; its schema has the keys of workflow/schemas/benchmarks."""
    axes = {}
    for axis, rule in declaration["axes"].items():
        values = rule.get("choices", [])
        items = {"enum": values} if values else ONE_LINE if rule["type"] == "string" else {}
        text = axis.replace("_", " ")
        axes[axis] = {
            "x-label": text.capitalize(),
            "x-words": f"{text} {{}}",
            "x-slug": rule["type"] == "integer" or (values and all(SLUG.fullmatch(str(one)) for one in values)),
            "description": f"Parameter of {declaration['file']}",
            "items": {"type": rule["type"]} | items,
            **({"default": [rule["default"]]} if "default" in rule else {}),
        }
    results = {key: {"type": "number", "column": key} | keys for key, keys in declaration["results"].items()}
    required = [axis for axis, rule in axes.items() if "default" not in rule]
    schema = {"x-subject": name, "required": required, "properties": axes, "x-results": {"values": results}}
    return _benchmark(name, declaration["version"], declaration["file"], schema, declaration)


def baseline_parameters() -> dict[str, dict]:
    """Return the parameters, with their schema, by which a campaign names its baseline."""
    known = [load_benchmark(name) for name in benchmark_names()]
    return {axis: rule for benchmark in known if benchmark.has_baseline for axis, rule in benchmark.parameters.items()}


def axes_of(name: str) -> dict[str, Axis]:
    """Return the axes of a benchmark by name."""
    return load_benchmark(name).axes


def all_axes() -> dict[str, Axis]:
    """Return the axes of all benchmarks. One that several share is one column: a test requires them to be identical."""
    return {name: axis for benchmark in reversed(benchmark_names()) for name, axis in axes_of(benchmark).items()}


@cache
def result_columns(group: str, table: str = "measurements") -> dict[str, Result]:
    """Return the results of Regatta's benchmarks that have a column in a table, by its name."""
    found = (load_benchmark(name).columns[group, table] for name in built_in_names())
    return {column: result for of in found for column, result in of.items()}


def undeclared(record: dict, benchmark: Benchmark) -> list[str]:
    """Return an error for each field of a record that its benchmark does not declare.

    Records of a different version of the program are not checked: the schema declares only the current one.
    """
    if record["spec"].get("version") != benchmark.version:
        return []
    place = f"{'RESULTS' if benchmark.is_custom else 'x-results'} of {benchmark.file}"
    groups = ("values", "memory") if benchmark.is_custom else GROUPS  # parts and checks of a file need no declaration
    fields = [(group, field) for group in groups for field in record.get(group) or {}]
    known = benchmark.results
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
