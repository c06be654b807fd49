"""Spikes of a record: iterations far longer than its others, and whether all ranks, one host or one rank made them so.

As nccl-tests tells spikes of the whole system from those of one straggler. Whatever the class, a synchronised step is
long on all ranks; it is told by the time inside a collective, in a step without exchange, or waiting for the exchange.
Definitions and what cannot be told: docs/metrics.md, Stragglers.
"""

from dataclasses import dataclass

import numpy as np

from regatta.core.statistics import outer_fences

ALL_RANKS, ONE_HOST, ONE_RANK = "all_ranks", "one_host", "one_rank"
MOST_OF_SPIKE = 0.5  # the share of a spike's excess that has to be common to ranks, or gone without one


@dataclass(frozen=True)
class Spike:
    """kind: its class, None where nobody can tell. who: the rank's number, or the host's name, if it is one of these.

    excess_ratio: how much longer than the median iteration it is, over that.
    """

    iteration: int
    excess_ratio: float
    kind: str | None = None
    who: int | str | None = None


@dataclass(frozen=True)
class Times:
    """What tells of each rank, (ranks, iterations), in one unit. hosts: of each rank, None where unknown.

    times: what the last rank has the longest of (`is_last_longest`) or the shortest of. own: what each rank computed,
    only where `times` is what it waited besides.
    """

    times: np.ndarray
    hosts: tuple[str | None, ...]
    is_last_longest: bool
    own: np.ndarray | None = None


def find_spikes(found: Times, slowest: np.ndarray) -> tuple[Spike, ...] | None:
    """Return the iterations beyond the upper outer fence of the record's own; None below the 11 that carry a quartile.

    slowest: (iterations,), how long each took on the slowest rank.
    """
    fences = outer_fences(slowest)
    if fences is None:
        return None
    iterations = np.flatnonzero(slowest > fences[1]).tolist()
    if not iterations:
        return ()
    median = float(np.median(slowest))
    apart, own = _from_medians(found.times), None if found.own is None else _from_medians(found.own)
    spikes = []
    for iteration in iterations:
        excess = float(slowest[iteration]) - median
        who = _who(apart, own, found, iteration, MOST_OF_SPIKE * excess)
        spikes.append(Spike(iteration, excess / median, *who))
    return tuple(spikes)


def _from_medians(times: np.ndarray) -> np.ndarray:
    """Return how far each rank is from its own median: some are always first or last, spike or not."""
    return times - np.median(times, axis=1, keepdims=True)


def _who(
    apart: np.ndarray, own: np.ndarray | None, found: Times, at: int, most: float
) -> tuple[str | None, int | str | None]:
    """Return class and culprit of the spike in iteration `at`. most: of its excess, in the unit of the times."""
    if _rise(apart.min(axis=0), at) > most or (own is not None and _rise(own.min(axis=0), at) > most):
        return ALL_RANKS, None
    late = None if found.is_last_longest else _left_late(apart, at, most)
    if late is not None:
        return ONE_RANK, late
    column = apart[:, at]
    last = np.flatnonzero(column == (column.max() if found.is_last_longest else column.min())).tolist()
    if len(last) == 1 and _is_of(np.arange(len(apart)) == last[0], apart, found, at, most):
        return ONE_RANK, last[0]
    hosts = {found.hosts[rank] for rank in last}
    if len(hosts) == 1 and None not in found.hosts and len(set(found.hosts)) > 1:
        host = hosts.pop()
        if _is_of(np.array(found.hosts) == host, apart, found, at, most):
            return ONE_HOST, host
    return None, None


def _is_of(is_culprit: np.ndarray, apart: np.ndarray, found: Times, at: int, most: float) -> bool:
    """Say whether the spike is these ranks' alone: the others all waited for them, or computed no longer than ever."""
    others = apart[~is_culprit]
    if found.is_last_longest:
        return _rise(others.max(axis=0), at) <= most
    return _rise(others.min(axis=0), at) > most


def _left_late(apart: np.ndarray, at: int, most: float) -> int | None:
    """Return the rank that alone was long in a call and that all others waited for in the next one; None without one.

    It was held up after the call was over, and was late for the next. By this call alone it looks like the one that
    waited: of two ranks, the wrong one would be named.
    """
    is_long = apart[:, at] > most
    if is_long.sum() != 1 or at + 1 == apart.shape[1]:
        return None
    return int(np.argmax(is_long)) if np.array_equal(apart[:, at + 1] > most, ~is_long) else None


def _rise(times: np.ndarray, at: int) -> float:
    return float(times[at] - np.median(times))
