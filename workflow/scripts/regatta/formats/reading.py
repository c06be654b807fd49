"""What every reader of a foreign file returns, and what the readers share: refusals, shapes, and complete parameters.

A reader gets the whole text of a file and its name, and returns a Source or raises UserError. It never returns part of a
file: what is cut off, is refused.
"""

from dataclasses import dataclass, field

from regatta.campaign.benchmarks import load_benchmark, normalise
from regatta.errors import UserError

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
