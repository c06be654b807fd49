"""What every format has: its description, what a reader returns, and the checks that all readers share.

A reader gets the whole content of a file and its name, and returns a Source or raises UserError. It never returns part
of a file: a file that was cut off is refused.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from regatta.core.benchmarks import load_benchmark, normalize
from regatta.core.errors import UserError
from regatta.core.schemas import first_violation, load_schema
from regatta.store.tables import CELL, FLAG, REAL, TEXT, WHOLE

NANOSECONDS = 10**9
LEAST_SECONDS, MOST_SECONDS = 1e-12, 1e9  # what is beyond is a damaged figure
# Times of one record that a file may print. window_step_s: of many calls or steps that ran back to back.
TIMES = ("min_s", "p50_s", "p75_s", "p90_s", "p95_s", "p99_s", "max_s", "mean_s", "window_step_s")


@dataclass(frozen=True)
class Options:
    """What the user says of the files because they do not say it themselves. None: not said."""

    nodes: int | None = None
    gpus_per_node: int | None = None


@dataclass(frozen=True)
class Reading:
    """What a file says of one cell.

    line: counted from 1; None in JSON. times_s: name of TIMES -> seconds. printed: the figures as the file has them.
    samples_ns: [rank][iteration]; slowest_ns: the slowest rank of each iteration, where the file does not
    distinguish ranks. steps_per_window: 1 where each step was timed and synchronised alone. failure: why the time does
    not count. stack, backend, version (of the benchmark): where the file names one for each cell, as an export does.
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
    stack: str | None = None
    backend: str | None = None
    version: int | None = None


@dataclass(frozen=True)
class Source:
    """What a file says.

    statistic: in words, what its times are. twice: what the same cell twice in the file means: `refuse` (an error),
    `launch` (two launches), `again` (the same processes measured it again, an A/A). measured_at: the time as the file
    has it, of an unknown zone. environment: keys of a launch file's `environment`.
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

    contents: noun phrase for messages. recognise(content) and read(content, name of the file, options): content is the
    text of a file, or its value where is_json; JSON is first held against workflow/schemas/foreign.yaml. write(folder):
    the text to write, or a JSON value; a list holds one object for each world size. benchmarks: those that a written
    file holds, empty: all. not_held: what else it leaves out.
    """

    name: str
    contents: str
    recognise: Callable
    read: Callable
    is_json: bool = False
    write: Callable | None = None
    benchmarks: tuple[str, ...] = ()
    not_held: str = ""


def refusal(name: str, line: int | None, found: str, expected: str) -> UserError:
    """Return the error of a reader. line: counted from 1; None where a file has no lines that mean anything."""
    place = name if line is None else f"{name}:{line}"
    return UserError(f"{place}: {found}; expected {expected}. Nothing was imported.")


def quoted(text: object, limit: int = 80) -> str:
    """Return a piece of a file for a message, on one line and short."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(str(text).split()))
    return f"'{shown if len(shown) <= limit else shown[: limit - 3] + '...'}'"


def shape_of(num_ranks: int, gpus_per_node: int) -> tuple[int, int] | None:
    """Return (nodes, GPUs per node) of the first num_ranks ranks, node by node, or None where nodes differ."""
    if num_ranks <= gpus_per_node:
        return 1, num_ranks
    nodes, rest = divmod(num_ranks, gpus_per_node)
    return None if rest else (nodes, gpus_per_node)


def parameters_of(benchmark: str, **given: object) -> dict:
    """Return all parameters of a cell, the rest at their defaults, null where they have no effect."""
    known = load_benchmark(benchmark)
    defaults = {name: rule.get("default", [None])[0] for name, rule in known.parameters.items()}
    return normalize(known, defaults | given)


def collective_parameters(operation: str, message_bytes: int | None, dtype: str | None) -> dict:
    """Return all parameters of a collective, also of an operation that Regatta's own benchmark does not have."""
    known = parameters_of("collective", operation=operation, message_bytes=message_bytes or 1, dtype=dtype)
    return known | {"message_bytes": message_bytes, "dtype": dtype}


def lines_of(text: str) -> list[str]:
    """Return the lines of a file as editors count them."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def times_ns(values: list, name: str, place: str, per_second: int = 1) -> list[int]:
    """Return times in nanoseconds, each at least 1. Raises UserError for the first value that is no time."""
    found = []
    for index, value in enumerate(values):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value <= MOST_SECONDS * per_second:
            raise refusal(name, None, f"{place}[{index}] = {quoted(json.dumps(value))}", "a time above 0")
        found.append(max(1, round(value / per_second * NANOSECONDS)))
    return found


def parse_json(text: str, name: str) -> object:
    """Return the value of a JSON file. Raises UserError with the line where it breaks off.

    Refused are NaN and Infinity, numbers too large to be held, and a key that stands twice in one object.
    """
    try:
        return json.loads(text, parse_constant=_constant, parse_float=_finite, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        found = f"JSON breaks off or is damaged in column {error.colno} ({error.msg})"
        raise refusal(name, error.lineno, found, "a whole JSON file") from None
    except (ValueError, RecursionError) as error:
        raise refusal(name, 1, f"JSON cannot be read ({error})", "JSON without such a value") from None


def _constant(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text if len(text) <= 40 else text[:37] + '...'} is no number that can be held")
    return value


def _object(pairs: list[tuple[str, object]]) -> dict:
    """Readers of JSON differ in which of two values they take."""
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {quoted(next(key for key in keys if keys.count(key) > 1))} stands twice in one object")
    return value


def check_json(value: object, name: str, kind: str) -> None:
    """Raise UserError unless JSON of a format (kind) has the form that its reader relies on."""
    if found := first_violation(value, load_schema("foreign")["$defs"].get(kind, {})):
        raise UserError(f"{name}: {found}. Nothing was imported.")


# Entries of JSON that may say what Regatta adds to such a file when it writes one.


def entry_shape(entry: dict, num_ranks: int, options: Options, name: str, place: str) -> tuple[int, int]:
    """Return (nodes, GPUs per node) as an entry states it, or by the GPUs of a node that the user gives."""
    shape = entry.get("nodes"), entry.get("gpus_per_node")
    if None not in shape:
        if shape[0] * shape[1] != num_ranks:
            raise refusal(name, None, f"{place}.nodes = {shape[0]}", f"nodes x gpus_per_node = {num_ranks} ranks")
        return int(shape[0]), int(shape[1])
    if num_ranks > 1 and options.gpus_per_node is None:
        raise UserError(
            f"{name}: {place} has {num_ranks} ranks, and the file does not say how many GPUs a node has. Add"
            " --gpus-per-node. Nothing was imported."
        )
    shape = shape_of(num_ranks, options.gpus_per_node or 1)
    if shape is None:
        want = f"whole nodes of {options.gpus_per_node} GPUs; correct --gpus-per-node"
        raise refusal(name, None, f"{place} has {num_ranks} ranks", want)
    return shape


def entry_parameters(entry: dict, benchmark: str, **named: object) -> dict:
    """Return all parameters of a cell: `named`, those that the entry's `parameters` has, the rest at their defaults."""
    known = parameters_of(benchmark, **named)
    for name, value in (entry.get("parameters") or {}).items():
        if name in known and name not in named:
            known[name] = int(value) if isinstance(value, float) and value.is_integer() else value
    return known


def entry_cell(entry: dict) -> dict:
    """Return the fields of a reading that identify its cell, None where the entry does not say them."""
    version = entry.get("version")
    return {"stack": entry.get("stack"), "version": None if version is None else int(version)}


# What a file says, held against what a launch file and a table can hold: refused before anything is written.

STACK = "^[A-Za-z0-9][A-Za-z0-9_]{0,63}$"
STACK_FORM = "letters, digits and underscore, at most 64, the first a letter or digit"
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
READING = {
    "properties": {
        "nodes": {"maximum": 100_000},
        "gpus_per_node": {"maximum": 100_000},
        "backend": PRINTABLE,
        "stack": {"pattern": STACK, "description": STACK_FORM},
        "parameters": {"properties": {name: BY_KIND[kind] for name, kind in CELL.items()}},
        "printed": {"additionalProperties": {"minimum": -1e300, "maximum": 1e300}},
        "times_s": {"additionalProperties": {"minimum": LEAST_SECONDS, "maximum": MOST_SECONDS}},
    }
}


def check_source(name: str, source: Source) -> None:
    """Raise UserError for implausible figures, and for values that no column of a table can hold. name: of the file."""
    for reading in source.readings:
        fields = {key: getattr(reading, key) for key in READING["properties"]}
        fields |= {"backend": reading.backend or source.backend, "times_s": {} if reading.failure else reading.times_s}
        if found := first_violation(fields, READING, is_strict=True):
            place = name if reading.line is None else f"{name}:{reading.line}"
            raise UserError(f"{place}: {found.removeprefix('parameters.')}. Nothing was imported.")
