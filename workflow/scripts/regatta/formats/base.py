"""What every reader of a foreign file returns, and what the readers share: refusals, shapes, and complete parameters.

A reader gets the whole text of a file and its name, and returns a Source or raises UserError. It never returns part of a
file: what is cut off, is refused.
"""

import json
import math
import re
from dataclasses import dataclass, field

from regatta.campaign.benchmarks import normalise
from regatta.core.benchmarks import load_benchmark
from regatta.core.errors import UserError
from regatta.store.tables import CELL, FLAG, REAL, TEXT, WHOLE

NANOSECONDS = 10**9
LEAST_SECONDS, MOST_SECONDS = 1e-12, 1e9  # what is beyond is no time of a step or a call, but a damaged figure
MOST_RANKS = 10**7
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

    line: where it stands, counted from 1; None in JSON. times_s: name of TIMES -> seconds. printed: the figures as the
    file has them. samples_ns: [rank][iteration]; slowest_ns: the slowest rank of each iteration, where ranks are not told
    apart. steps_per_window: 1 where each step was timed and synchronised alone. failure: why the time does not count.
    stack, backend, version (of the benchmark): where the file names one for each cell, as Regatta's exports do.
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

    statistic: in words, what its times are. twice: what the same cell twice in the file means: `refuse` (a mistake),
    `launch` (two launches), `again` (the same processes measured it again, an A/A). measured_at: the time as the file has
    it, of an unknown zone. environment: keys of a launch file's `environment`.
    """

    format: str
    statistic: str
    backend: str
    device: str
    readings: tuple[Reading, ...]
    notes: tuple[str, ...] = ()
    environment: dict = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    measured_at: str | None = None
    twice: str = "refuse"


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
    return normalise(known, defaults | given)


def collective_parameters(operation: str, message_bytes: int | None, dtype: str | None) -> dict:
    """Return all parameters of a collective, also of an operation that Regatta's own benchmark does not have."""
    known = parameters_of("collective", operation=operation, message_bytes=message_bytes or 1, dtype=dtype)
    return known | {"message_bytes": message_bytes, "dtype": dtype}


def whole_ns(seconds: object) -> int | None:
    """Return a time in nanoseconds, at least 1, or None for what is no time."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
        return None
    return max(1, round(seconds * NANOSECONDS))


def lines_of(text: str) -> list[str]:
    """Return the lines of a file as editors count them."""
    return [line.removesuffix("\r") for line in text.split("\n")]


# JSON of other programs, read with care: the place of a mistake in the message, and types that are checked.

MOST_WHOLE, MOST_NUMBER = 10**15, 1e300  # comparisons with these are safe where conversions overflow


def parse_json(text: str, name: str) -> object:
    """Return the value of a JSON file. Raises UserError with the line where it breaks off.

    Refused are NaN and Infinity, numbers too large to be held, and a key that stands twice in one object.
    """
    try:
        return json.loads(text, parse_constant=_constant, parse_float=_finite, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        told = f"JSON breaks off or is damaged in column {error.colno} ({error.msg})"
        raise refusal(name, error.lineno, told, "a whole JSON file") from None
    except (ValueError, RecursionError) as error:
        raise refusal(name, 1, f"JSON cannot be read ({error})", "JSON without such a value") from None


def _constant(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text if len(text) <= 40 else text[:37] + '...'} is no number that can be held")
    return value


def _object(pairs: list[tuple[str, object]]) -> dict:
    """Which of two values is meant is not said, and readers of JSON differ in it."""
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {quoted(next(key for key in keys if keys.count(key) > 1))} stands twice in one object")
    return value


class Node:
    """A place in a JSON file: its value, its file and the keys that lead to it."""

    def __init__(self, value: object, name: str, place: str = ""):
        self.value, self.name, self.place = value, name, place

    def refuse(self, expected: str):
        shown = quoted(json.dumps(self.value))
        return refusal(self.name, None, f"{self.place or 'the file'} = {shown}", expected)

    def has(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def key(self, key: str) -> "Node":
        if not self.has(key):
            raise refusal(self.name, None, f"{self.place or 'the file'} has no key '{key}'", f"one with '{key}'")
        return Node(self.value[key], self.name, f"{self.place}.{key}".lstrip("."))

    def items(self) -> list["Node"]:
        if not isinstance(self.value, list):
            raise self.refuse("a list")
        return [Node(value, self.name, f"{self.place}[{i}]") for i, value in enumerate(self.value)]

    def members(self) -> list[tuple[str, "Node"]]:
        if not isinstance(self.value, dict):
            raise self.refuse("an object")
        return [(key, self.key(key)) for key in self.value]

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.refuse("a text")
        return self.value

    def whole(self, least: int = 1) -> int:
        """Return a whole number. 25.0 is one, true is none."""
        value = self.value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= MOST_WHOLE or value != int(value):
            raise self.refuse(f"a whole number of {least} or more")
        return int(value)

    def number(self, least: float = 0.0) -> float:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= MOST_NUMBER:
            raise self.refuse(f"a number of {least:g} or more")
        return float(value)

    def positive(self) -> float:
        if (value := self.number()) == 0:
            raise self.refuse("a number above 0")
        return value


# What a file says, held against what a launch file and a table can hold: refused before anything is written.

STACK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,63}")
STACK_FORM = "letters, digits and underscore, at most 64, the first a letter or digit"
MOST_INTEGER, MOST_LETTERS = 2**63 - 1, 200
EXPECTED = {
    TEXT: f"a text of 1 to {MOST_LETTERS} printable characters",
    WHOLE: "a whole number from 0 to 2^63 - 1",
    REAL: "a number of 0 or more",
    FLAG: "true or false",
}


def check_source(name: str, source: Source) -> None:
    """Raise UserError for figures of no machine, and for values that no column of a table can hold. name: of the file."""
    if not _fits(source.backend, TEXT):
        raise refusal(name, None, f"backend = {quoted(source.backend)}", EXPECTED[TEXT])
    for reading in source.readings:
        _check_figures(name, reading)
        if reading.backend is not None and not _fits(reading.backend, TEXT):
            raise refusal(name, reading.line, f"backend = {quoted(reading.backend)}", EXPECTED[TEXT])
        if reading.stack is not None and not STACK.fullmatch(reading.stack):
            raise refusal(name, reading.line, f"stack = {quoted(reading.stack)}", STACK_FORM)
        for parameter, value in reading.parameters.items():
            kind = CELL[parameter]
            if value is not None and not _fits(value, kind):
                raise refusal(name, reading.line, f"{parameter} = {_shown(value)}", EXPECTED[kind])
        for key, value in reading.printed.items():
            if isinstance(value, int | float) and not _is_held(value):
                raise refusal(
                    name, reading.line, f"{quoted(key)[1:-1]} = {_shown(value)}", "a number of at most 2^63 - 1"
                )


def _check_figures(name: str, reading: Reading) -> None:
    strange = [f"{time} = {value:g}" for time, value in reading.times_s.items()
               if not LEAST_SECONDS <= value <= MOST_SECONDS and not reading.failure]  # fmt: skip
    if reading.nodes * reading.gpus_per_node > MOST_RANKS:
        strange.append(f"{reading.nodes} x {reading.gpus_per_node} ranks")
    if strange:
        raise refusal(name, reading.line, ", ".join(strange), "figures of a machine")


def _fits(value: object, kind: str) -> bool:
    """Return whether a column of a table can hold a value that is known."""
    if kind == FLAG:
        return isinstance(value, bool)
    if kind == TEXT:
        return isinstance(value, str) and value.isprintable() and value.strip() != "" and len(value) <= MOST_LETTERS
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_held(value) or value < 0:
        return False
    return kind == REAL or isinstance(value, int)


def _is_held(value: float) -> bool:
    if isinstance(value, int):
        return abs(value) <= MOST_INTEGER
    return math.isfinite(value)


def _shown(value: object) -> str:
    """Python writes no whole number of more than 4300 digits."""
    try:
        return quoted(value)
    except ValueError:
        return "a number of thousands of digits"
