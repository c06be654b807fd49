"""Describe where an effect is: the smallest description of the affected cells by their axes. docs/metrics.md.

Sets of cells are bits of an integer, so that 5,000 cells and all pairs of conditions take a fraction of a second.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

EQUAL, UP_TO, FROM = "=", "<=", ">="
LEAST_RATIO = 0.9  # of the affected cells are described, and of the described ones are affected
FLIP_RATIO = 0.05  # of cells may have a wrong verdict
FLIP_P = 0.01  # chance of more wrong verdicts than are tolerated
CONDITION_COST = 1.5  # exceptions: a second condition explains at least two of them
LEAST_AFFECTED = 3
CHANCE = 0.01  # that affected cells without a pattern are described


@dataclass(frozen=True)
class Condition:
    """A value of an axis, or of an axis of numbers all values up to it or from it. relation: EQUAL, UP_TO, FROM."""

    axis: str
    relation: str
    value: object


@dataclass(frozen=True)
class Pattern:
    """The conditions that affected cells meet, with cells inside and outside. p_value: corrected chance of as many."""

    conditions: tuple[Condition, ...]
    inside: tuple[int, ...]
    num_outside: int
    num_affected: int
    num_affected_outside: int
    p_value: float


def find_pattern(rows: Sequence[dict[str, object]], is_affected: Sequence[bool]) -> Pattern | None:
    """Return the smallest description by at most two conditions that chance does not explain; None without any.

    rows: the values of the axes of each cell; unknown or inapplicable ones are absent or None. Of axes that describe
    the same cells, the first counts.
    """
    affected = sum(1 << index for index, is_one in enumerate(is_affected) if is_one)
    if affected.bit_count() < LEAST_AFFECTED:
        return None
    known: dict[int, tuple[Condition, ...]] = {}
    single = _conditions(rows)
    for cells, condition in single:
        known.setdefault(cells, (condition,))
    for (one, first), (other, second) in itertools.combinations(list(single), 2):
        if (cells := one & other) not in known and cells.bit_count() >= LEAST_AFFECTED and first.axis != second.axis:
            known[cells] = (first, second)
    everything = (1 << len(rows)) - 1
    tried = [(cells, found) for cells, found in known.items() if LEAST_AFFECTED <= cells.bit_count() < len(rows)]
    described = [item for item in tried if _describes(item[0], affected, len(rows))]
    cost = {cells: (cells ^ affected).bit_count() + CONDITION_COST * len(found) for cells, found in described}
    best = min(described, key=lambda item: cost[item[0]], default=None)  # the first of equals
    if best is None:
        return None
    cells, conditions = best
    inside, num = (cells & affected).bit_count(), cells.bit_count()
    p_value = min(1.0, len(tried) * chance_of(inside, num, affected.bit_count(), len(rows)))
    if p_value > CHANCE:
        return None
    places = tuple(index for index in range(len(rows)) if cells >> index & 1)
    return Pattern(conditions, places, len(rows) - num, inside, (everything & ~cells & affected).bit_count(), p_value)


def _conditions(rows: Sequence[dict[str, object]]) -> list[tuple[int, Condition]]:
    """Return all conditions on single axes with the cells that meet them, equal values before ranges of them."""
    by_axis: dict[str, dict[object, int]] = {}
    for index, row in enumerate(rows):
        for axis, value in row.items():
            if value is not None:
                values = by_axis.setdefault(axis, {})
                values[value] = values.get(value, 0) | 1 << index
    return [found for axis, values in by_axis.items() for found in _of_axis(axis, values)]


def _of_axis(axis: str, values: dict[object, int]) -> Iterator[tuple[int, Condition]]:
    yield from ((cells, Condition(axis, EQUAL, value)) for value, cells in values.items())
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        for relation, ordered in ((UP_TO, sorted(values)), (FROM, sorted(values, reverse=True))):
            cells = 0
            for value in ordered:
                cells |= values[value]
                yield cells, Condition(axis, relation, value)


def _describes(cells: int, affected: int, num_rows: int) -> bool:
    """Return whether nearly all of these cells, and nearly none of the others, are affected."""
    num, num_affected, both = cells.bit_count(), affected.bit_count(), (cells & affected).bit_count()
    is_most = both >= LEAST_AFFECTED and 2 * both > num and 3 * both >= num_affected
    is_exact = num - both <= _tolerated(num, num) and num_affected - both <= _tolerated(num_affected, num_rows - num)
    return is_most and is_exact


def _tolerated(num: int, num_cells: int) -> int:
    """Return how many of `num` cells may be exceptions: 10 %, or as many as wrong verdicts on num_cells explain."""
    return max(math.floor((1 - LEAST_RATIO) * num + 1e-9), most_flips(num_cells))


@cache
def most_flips(num_cells: int) -> int:
    """Return how many wrong verdicts among some cells chance exceeds with probability FLIP_P at most."""
    num_cells = min(num_cells, 10_000)  # of more, 10 % are more; their powers are 0
    num, left = 0, 1 - (term := (1 - FLIP_RATIO) ** num_cells)
    while left > FLIP_P:
        num += 1
        term *= (num_cells - num + 1) / num * FLIP_RATIO / (1 - FLIP_RATIO)
        left -= term
    return num


def chance_of(inside: int, num: int, num_affected: int, num_rows: int) -> float:
    """Return the chance that at least `inside` of `num` cells are affected if these are placed at random."""
    most, ways = min(num, num_affected), math.comb(num_rows, num_affected)
    found = sum(math.comb(num, k) * math.comb(num_rows - num, num_affected - k) for k in range(inside, most + 1))
    return found / ways
