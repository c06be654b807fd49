"""Groups of pairs that are slower or faster: described by their axes, and tested by their mean over launches.

Definitions: docs/metrics.md. Reasons and error rates: docs/decisions/0007-intervals-and-verdicts.md.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from regatta.core.patterns import FLIP_RATIO, LEAST_AFFECTED, Pattern, find_patterns
from regatta.core.statistics import launch_table
from regatta.core.verdicts import Compared, contrasts_of

GROUP_P = 0.001  # largest p of the mean of a group over launches
ALLOCATION_P = 0.01  # largest p of that mean against other allocations
ALLOCATION_SD, ALLOCATION_FREEDOM = 0.028, 3  # prior of that test: 2 % on each side
NEARLY_ALL = 0.9  # share of affected pairs from which no group is named
UNDECIDED = math.log(1 / FLIP_RATIO - 1)  # greatest log odds


def find_groups(
    axes: Sequence[dict[str, object]], compared: Sequence[Compared], directions: Sequence[str]
) -> Iterator[tuple[str, list[Pattern]]]:
    """Yield the groups of slower and of faster pairs whose mean over launches is significant.

    axes, compared, directions: of all tested pairs. The counts of a pattern are those of significant pairs.
    """
    found = contrasts_of(compared)
    for word, sign in (("slower", 1), ("faster", -1)):
        is_found, shifts = np.array(directions) == word, sign * found.shift
        is_affected = _affected(shifts, found.squared_error(), is_found)
        if is_affected.count(True) >= NEARLY_ALL * (len(axes) - is_affected.count(None)):
            continue
        patterns = [
            pattern
            for pattern in find_patterns(axes, is_affected)
            if _is_beyond_launches(compared, pattern.inside, sign)
            and _is_beyond_allocations(compared, shifts, pattern.inside, is_affected)
        ]
        inside = {i for pattern in patterns for i in pattern.inside}
        outside = [is_one for i, is_one in enumerate(is_found.tolist()) if i not in inside]
        counts = {"num_outside": len(outside), "num_affected_outside": sum(outside)}
        if patterns:
            yield (
                word,
                [replace(of, num_affected_inside=int(is_found[list(of.inside)].sum()), **counts) for of in patterns],
            )


def _affected(shifts: np.ndarray, errors: np.ndarray, is_found: np.ndarray) -> list[bool | None]:
    """Return which pairs are affected: those that are significant, and those whose shift fits the effect of these.

    None: unknown, as effect and no effect fit about as well. errors: squared. If no pair is significant, the effect is
    that of the pair with the lowest p.
    """
    effect = np.median(shifts[is_found]) if is_found.any() else shifts[np.argmax(shifts / errors**0.5)]
    if effect <= 0:
        return [False] * len(shifts)
    odds = np.where(is_found, np.inf, (shifts - effect / 2) * effect / errors)  # log, of this effect against none
    return [None if abs(of_pair) < UNDECIDED else bool(of_pair > 0) for of_pair in odds]


def _is_beyond_launches(compared: Sequence[Compared], inside: Sequence[int], sign: int) -> bool:
    """Return whether the mean of a group in each launch differs significantly, judged as one more pair."""
    found = contrasts_of([*compared, mean_pair([compared[i] for i in inside])])
    return sign * found.shift[-1] > 0 and found.p_value[-1] <= GROUP_P


def mean_pair(pairs: Sequence[Compared]) -> Compared:
    """Return the mean of pairs in each launch as one pair. Variation that cells share is not averaged out."""
    times, longest = [], max(pairs, key=lambda pair: pair.num)
    for side in (0, 1):
        logs = launch_table([pair.logs(side) for pair in pairs])
        levels = np.nanmean(logs, 1, keepdims=True)
        times.append(np.exp(np.nanmean(logs - levels, 0) + levels.mean()).tolist())
    is_known = [len(of) for of in times] == [len(of) for of in longest.allocations]
    return Compared(
        *times,
        is_paired=all(pair.is_paired for pair in pairs),
        group=longest.group,
        allocations=longest.allocations if is_known else ((), ()),
        batches=("mean", "mean"),
    )


def _is_beyond_allocations(
    compared: Sequence[Compared], shifts: np.ndarray, inside: Sequence[int], is_affected: Sequence[bool | None]
) -> bool:
    """Return whether the mean of a group exceeds the variation between allocations, if sides have one per batch.

    It does if all allocations of the group have unaffected pairs too. Else the means of unaffected pairs in all other
    allocations show the variation between them.
    """
    from scipy.special import stdtr

    if all(compared[i].is_paired or compared[i].is_by_allocation for i in inside):
        return True  # it is in the test over launches
    others: dict[tuple, list[float]] = {}
    for i in {i for i, is_one in enumerate(is_affected) if is_one is False}.difference(inside):
        others.setdefault(compared[i].batches, []).append(shifts[i])
    batches = Counter(compared[i].batches for i in inside)
    if all(len(others.get(batch, ())) >= LEAST_AFFECTED for batch in batches):
        return True
    squares = [np.mean(of) ** 2 for of in others.values()]
    freedom, share = len(squares) + ALLOCATION_FREEDOM, sum((num / len(inside)) ** 2 for num in batches.values())
    variance = (sum(squares) + ALLOCATION_FREEDOM * ALLOCATION_SD**2) / freedom * share
    return 2 * stdtr(freedom, -abs(np.mean(shifts[list(inside)])) / math.sqrt(variance)) <= ALLOCATION_P
