"""Code that all formats share: how a format is described, what its reader returns, and what its writer gets.

A reader gets the whole content of a file and its name, and returns an ImportedFile or raises UserError. A truncated
file is rejected, unless the user states it. A writer gets a ResultsFolder: frozen campaign, tables, and their records.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache

from regatta.core.benchmarks import load_benchmark, normalize
from regatta.core.errors import UserError
from regatta.core.schemas import first_violation, load_schema
from regatta.core.text import plural, quoted
from regatta.model.launches import Cause
from regatta.store.csv_files import CELL, FLAG, REAL, TEXT, WHOLE

NANOSECONDS = 10**9
LEAST_SECONDS, MOST_SECONDS = 1e-12, 1e9  # a number beyond these means a damaged file
# Times of one record that a file may print. window_step_s: mean over calls or steps that ran back to back.
TIMES = ("min_s", "p50_s", "p75_s", "p90_s", "p95_s", "p99_s", "max_s", "mean_s", "window_step_s")


@dataclass(frozen=True)
class Options:
    """Facts that the user states because the files do not. None: not stated. is_incomplete: rows may be missing."""

    nodes: int | None = None
    gpus_per_node: int | None = None
    operation: str | None = None
    is_incomplete: bool = False


@dataclass(frozen=True)
class Reading:
    """The content of a file for one cell.

    line: from 1; None in JSON. times_s: name of TIMES -> seconds. printed: the figures as the file has them.
    samples_ns: [rank][iteration]; slowest_ns: the slowest rank of each iteration, where the file does not distinguish
    ranks. steps_per_window: 1 where each step was timed and synchronized alone. failure: why the time does not count.
    crash: how the run ended before it had a time.
    stack, backend, version (of the benchmark): where the file names one for each cell, as an export does. run: number
    of the run within a file of several; environment: of that run; statistic: if runs differ in it.
    """

    line: int | None
    benchmark: str
    parameters: dict
    nodes: int
    gpus_per_node: int
    times_s: dict[str, float] = field(default_factory=dict)
    printed: dict[str, float | str | None] = field(default_factory=dict)
    samples_ns: list[list[int]] | None = None
    slowest_ns: list[int] | None = None
    steps_per_window: int | None = None
    num_iterations: int | None = None
    num_warmup: int | None = None
    failure: str | None = None
    crash: Cause | None = None
    stack: str | None = None
    backend: str | None = None
    version: int | None = None
    run: int = 0
    environment: dict | None = None
    statistic: str | None = None

    @property
    def has_only_times(self) -> bool:
        others = self.samples_ns, self.slowest_ns, self.num_iterations, self.num_warmup, self.failure, self.crash
        return all(value is None for value in others)


@dataclass(frozen=True)
class ImportedFile:
    """The content of a file.

    statistic: description of its times. twice: what a repeated cell in the file means: `refuse` (an error),
    `launch` (two launches), `again` (the same processes measured it again, an A/A). measured_at: the time in the file,
    of an unknown time zone. environment: keys of a launch file's `environment`.
    """

    statistic: str
    backend: str
    device: str
    readings: tuple[Reading, ...]
    notes: tuple[str, ...] = ()
    environment: dict = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    measured_at: str | None = None
    twice: str = "refuse"


@dataclass(frozen=True)
class Format:
    """A format: listed in `regatta.formats.FORMATS`, with a row of its name in docs/formats.md.

    contents: noun phrase for messages. recognize(content) and read(content, name of the file, options): content is the
    text of a file, or its value where is_json, validated against workflow/schemas/foreign.yaml. write(folder): the text
    to write, or a JSON value. benchmarks: those that a written file contains,
    empty: all. not_held: what else it leaves out. counts_processes: its files know processes, not GPUs. begins: pattern
    of what begins a line of its text; what stands before it is a prefix.
    """

    name: str
    contents: str
    recognize: Callable
    read: Callable
    is_json: bool = False
    write: Callable | None = None
    benchmarks: tuple[str, ...] = ()
    not_held: str = ""
    counts_processes: bool = False
    begins: str = ""


def object_with(*keys: str) -> Callable:
    """Return a function that tells whether JSON is an object with these keys, or a list that begins with one."""

    def recognize(value: object) -> bool:
        first = value[0] if isinstance(value, list) and value else value
        return isinstance(first, dict) and {*keys} <= first.keys()

    return recognize


def place_of(file: object, line: int | None) -> str:
    """Return where a message is about. line: from 1; None if lines mean nothing, as in JSON."""
    return str(file) if line is None else f"{file}:{line}"


def refusal(name: str, line: int | None, found: str, expected: str) -> UserError:
    """Return the error of a reader. line: see place_of."""
    return UserError(f"{place_of(name, line)}: {found}; expected {expected}. Nothing was imported.")


def shape_of(num_ranks: int, gpus_per_node: int) -> tuple[int, int] | None:
    """Return (nodes, GPUs per node) of the first num_ranks ranks, node by node, or None if nodes differ."""
    if num_ranks <= gpus_per_node:
        return 1, num_ranks
    nodes, rest = divmod(num_ranks, gpus_per_node)
    return None if rest else (nodes, gpus_per_node)


def shape_of_ranks(num_ranks: int, options: Options, name: str, line: int | None) -> tuple[int, int]:
    """Return (nodes, GPUs per node) of ranks whose number a file states. Raises UserError unless they fill nodes."""
    gpus_per_node = options.gpus_per_node or 1
    if num_ranks > 1 and options.gpus_per_node is None:
        raise refusal(name, line, f"{num_ranks} ranks on an unknown number of nodes", "--gpus-per-node")
    shape = shape_of(num_ranks, gpus_per_node)
    if shape is None or num_ranks == 0:
        raise refusal(
            name, line, f"{num_ranks} ranks on nodes of {gpus_per_node} GPUs", "whole nodes (--gpus-per-node)"
        )
    return shape


def stated_shape(options: Options, name: str, line: int | None) -> tuple[int, int]:
    """Return (nodes, GPUs per node), which the file does not state. Raises UserError unless the user does."""
    missing = [option for option in ("nodes", "gpus_per_node") if getattr(options, option) is None]
    if missing:
        want = " and ".join(f"--{option.replace('_', '-')}" for option in missing)
        raise refusal(name, line, "the file does not state where its ranks ran", want)
    return options.nodes, options.gpus_per_node


def parameters_of(benchmark: str, **given: object) -> dict:
    """Return all parameters of a cell, the rest at their defaults, null if they have no effect."""
    known = load_benchmark(benchmark)
    defaults = {name: rule.get("default", [None])[0] for name, rule in known.parameters.items()}
    return normalize(known, defaults | given)


def collective_parameters(operation: str, message_bytes: int | None, dtype: str | None) -> dict:
    """Return all parameters of a collective of another tool, also of operations that Regatta's benchmark lacks."""
    known = parameters_of("collective", operation=operation, message_bytes=message_bytes or 1, dtype=dtype)
    return known | {"message_bytes": message_bytes, "dtype": dtype, "algorithm": None}


def without_empty(readings: Iterable[Reading], name: str, line: int | None) -> tuple[tuple[Reading, ...], list[str]]:
    """Return the readings of collectives without those of 0 bytes, which measure nothing, and a note on these."""
    readings = list(readings)
    kept = tuple(reading for reading in readings if reading.parameters["message_bytes"] != 0)
    if not kept:
        raise refusal(name, line, "no result of 1 byte or more", "at least one")
    num = len(readings) - len(kept)
    return kept, [f"{plural(num, 'row')} of 0 bytes excluded"] if num else []


def lines_of(text: str) -> list[str]:
    """Return the lines of a file as editors count them."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def times_ns(values: list, name: str, place: str, per_second: int = 1) -> list[int]:
    """Return times in nanoseconds, each at least 1. Raises UserError for the first value that is not a time."""
    found = []
    for index, value in enumerate(values):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value <= MOST_SECONDS * per_second:
            raise refusal(
                name, None, f"{place}[{index}] = {quoted(json.dumps(value, default=repr))}", "a positive time"
            )
        found.append(max(1, round(value / per_second * NANOSECONDS)))
    return found


def parse_json(text: str, name: str, num_before: int = 0) -> object:
    """Return the value of JSON after num_before lines of a file. Raises UserError with the line where parsing fails.

    NaN, Infinity, and numbers beyond the range of a float become NotFinite, which no format accepts where it reads a
    value. A key that appears twice in one object is rejected.
    """
    try:
        return json.loads(text, parse_constant=NotFinite, parse_float=_finite, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        found = f"invalid JSON in column {error.colno} ({error.msg})"
        raise refusal(name, num_before + error.lineno, found, "a complete JSON file") from None
    except (ValueError, RecursionError) as error:
        raise refusal(name, num_before + 1, f"unsupported JSON ({error})", "valid numbers and unique keys") from None


class NotFinite:
    """A number of JSON that is not finite: no text, number, list or object, so that no reader takes it for a value."""

    def __init__(self, text: str) -> None:
        self.text = text if len(text) <= 40 else text[:37] + "..."

    def __repr__(self) -> str:
        return self.text


def _finite(text: str) -> float | NotFinite:
    value = float(text)
    return value if math.isfinite(value) else NotFinite(text)


def _object(pairs: list[tuple[str, object]]) -> dict:
    key, num = Counter(key for key, _ in pairs).most_common(1)[0] if pairs else ("", 1)
    if num > 1:  # readers of JSON differ in which of two values they take
        raise ValueError(f"key {quoted(key)} is duplicated within an object")
    return dict(pairs)


def check_json(value: object, name: str, kind: str) -> None:
    """Raise UserError unless JSON of a format (kind) has the form that its reader needs."""
    if found := first_violation(value, load_schema("foreign")["$defs"].get(kind, {})):
        raise UserError(f"{name}: {found}. Nothing was imported.")


# Entries of JSON, with the keys that Regatta adds when it writes such a file.


def entry_cell(entry: dict, num_ranks: int, options: Options, name: str, place: str) -> dict:
    """Return the fields of a reading beside its parameters. The user gives the GPUs per node where the entry does not.

    stack, version: None if the entry lacks them.
    """
    version = entry.get("version")
    cell = {"stack": entry.get("stack"), "version": None if version is None else int(version)}
    shape = entry.get("nodes"), entry.get("gpus_per_node")
    if None not in shape:
        if shape[0] * shape[1] != num_ranks:
            raise refusal(name, None, f"{place}.nodes = {shape[0]}", f"nodes x gpus_per_node = {num_ranks} ranks")
        return cell | {"nodes": int(shape[0]), "gpus_per_node": int(shape[1])}
    shape = shape_of_ranks(num_ranks, options, f"{name}: {place}", None)
    return cell | {"nodes": shape[0], "gpus_per_node": shape[1]}


def entry_parameters(entry: dict, benchmark: str, **named: object) -> dict:
    """Return all parameters of a cell: `named`, those that the entry's `parameters` has, the rest at their defaults."""
    known = parameters_of(benchmark, **named)
    for name, value in (entry.get("parameters") or {}).items():
        if name in known and name not in named:
            known[name] = int(value) if isinstance(value, float) and value.is_integer() else value
    return known


# Limits of launch files and tables: a file beyond them is rejected before anything is written.
STACK = "^[A-Za-z0-9][A-Za-z0-9_]{0,63}$"
STACK_FORM = "at most 64 letters, digits and underscores, beginning with a letter or digit"
PRINTABLE = {
    "type": ["string", "null"],
    "pattern": r"^(?=.*\S)[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{1,200}$",
    "description": "1 to 200 printable characters",
}
BY_KIND = {
    TEXT: PRINTABLE,
    WHOLE: {"type": ["integer", "null"], "minimum": 0, "maximum": 2**63 - 1},
    REAL: {"type": ["number", "null"], "minimum": 0, "maximum": 2**63 - 1},
    FLAG: {"type": ["boolean", "null"]},
}
MOST_PRINTED = 1e300
READING = {
    "properties": {
        "nodes": {"maximum": 100_000},
        "gpus_per_node": {"maximum": 100_000},
        "backend": PRINTABLE,
        "stack": {"pattern": STACK, "description": STACK_FORM},
        "parameters": {"properties": {name: BY_KIND[kind] for name, kind in CELL.items()}},
        "printed": {"additionalProperties": {"minimum": -MOST_PRINTED, "maximum": MOST_PRINTED}},
        "times_s": {"additionalProperties": {"minimum": LEAST_SECONDS, "maximum": MOST_SECONDS}},
    }
}


@cache
def _compiled() -> Callable:
    import fastjsonschema

    return fastjsonschema.compile(READING, use_default=False)


def _is_surely_valid(fields: dict) -> bool:
    """Return whether the fields of a reading are valid, in a tenth of the time. False: the slow check decides.

    Unlike that one, it accepts 1.0 as an integer and NaN as a number.
    """
    known = fields["parameters"]
    if any(type(value) is float and (value != value or CELL.get(name) != REAL) for name, value in known.items()):
        return False
    try:
        _compiled()(fields)
    except ValueError:
        return False
    return True


def check_source(name: str, source: ImportedFile) -> None:
    """Raise UserError for implausible figures, and for values that no table column can represent. name: file name."""
    cells = set()  # valid ones: a cell may have thousands of readings, which differ in their times
    for reading in source.readings:
        cell = id(reading.parameters), reading.nodes, reading.gpus_per_node, reading.backend, reading.stack
        times, printed = {} if reading.failure else reading.times_s, reading.printed.values()
        if (
            cell in cells
            and all(LEAST_SECONDS <= time <= MOST_SECONDS for time in times.values())
            and all(type(value) is float and abs(value) <= MOST_PRINTED for value in printed)
        ):
            continue
        fields = {key: getattr(reading, key) for key in READING["properties"]}
        fields |= {"backend": reading.backend or source.backend, "times_s": times}
        if _is_surely_valid(fields):
            cells.add(cell)
            continue
        if found := first_violation(fields, READING, is_strict=True):
            raise UserError(
                f"{place_of(name, reading.line)}: {found.removeprefix('parameters.')}. Nothing was imported."
            )
