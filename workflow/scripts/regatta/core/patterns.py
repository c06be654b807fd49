"""Describe where an effect is: the smallest description of the affected cells by their axes. docs/metrics.md.

Sets of cells are bits of an integer, so that 5,000 cells and all pairs of conditions take a fraction of a second.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache

from regatta.core.benchmarks import all_axes
from regatta.core.names import SEPARATOR, CellName
from regatta.core.text import plural, rank_word, ranks_word, size

EQUAL, UP_TO, FROM = "=", "<=", ">="
LIMITS = {EQUAL: "", UP_TO: "up to ", FROM: "at least "}
COUNTS = {"nodes": ("node", ""), "gpus_per_node": ("", " per node"), "world_size": ("", "")}  # noun, or that of ranks
LEAST_RATIO = 0.9  # recall and precision of a pattern, unless wrong verdicts explain less
FLIP_RATIO = 0.05  # assumed rate of wrong verdicts
FLIP_P = 0.01  # P(more wrong verdicts than tolerated)
CONDITION_COST = 1.5  # exceptions: a second condition explains at least two of them
LEAST_AFFECTED = 3
CHANCE = 0.01  # maximum Bonferroni-corrected p of a pattern
CHANCE_OF_PART = 0.001  # the same, for a pattern that misses many affected cells


@dataclass(frozen=True)
class Condition:
    """A value of an axis, or of an axis of numbers all values up to it or from it. relation: EQUAL, UP_TO, FROM."""

    axis: str
    relation: str
    value: object

    def text(self, device: str) -> str:
        """Return it in the words of names of cells: `8×4`, `up to 64 KiB`, `bucket at least 25 MiB`."""
        limit, known, value = LIMITS[self.relation], all_axes().get(self.axis), self.value
        if isinstance(value, str):
            is_host, name = self.axis.startswith("host"), value.replace("_", " ")
            return f"{name}s" if self.axis == "benchmark" else f"on {value}" if is_host else value
        if self.axis in COUNTS:
            noun, per = COUNTS[self.axis]
            nouns = (noun, f"{noun}s") if noun else (rank_word(device), ranks_word(device))
            return f"{limit}{plural(value, *nouns)}{per}"
        if known is None or isinstance(known.words, dict):
            return f"{self.axis.replace('_', ' ')} {limit}{value}"
        return known.words.format(limit + (size(value) if known.unit == "bytes" else f"{value:g}"))


def launches_text(numbers: Sequence[int]) -> str:
    """Return `launch 3`, `launches 3 and 4`, `launches 3 to 6` or `launches 1, 3 and 4`. numbers: ascending."""
    if len(numbers) == 1:
        return f"launch {numbers[0]}"
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"launches {numbers[0]} to {numbers[-1]}"
    return f"launches {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


@dataclass(frozen=True)
class Pattern:
    """The conditions that affected cells meet, with cells inside and outside. p_value: Bonferroni-corrected."""

    conditions: tuple[Condition, ...]
    inside: tuple[int, ...]
    num_affected_inside: int
    num_outside: int
    num_affected_outside: int
    p_value: float

    def text(self, device: str) -> str:
        """Return the conditions in words: `8×4 · up to 64 KiB`."""
        return SEPARATOR.join(condition.text(device) for condition in self.conditions)

    def counts_text(self, noun: str = "cell") -> tuple[str, str]:
        """Return how many are affected inside and outside: `6 of 6 cells`, `none of 90`."""
        inside = f"{self.num_affected_inside:,} of {plural(len(self.inside), noun)}"
        return inside, f"{self.num_affected_outside or 'none'} of {self.num_outside:,}"

    @property
    def cost(self) -> float:
        """Return the number of exceptions plus the condition penalty."""
        num_inside = len(self.inside) - self.num_affected_inside
        return num_inside + self.num_affected_outside + CONDITION_COST * len(self.conditions)

    @property
    def values(self) -> dict[str, object]:
        """Return the pattern as answer.json has it: docs/contracts.md."""
        conditions = [asdict(of) | {"axis": of.axis.partition(" ")[0]} for of in self.conditions]
        counts = {name: getattr(self, name) for name in ("num_affected_inside", "num_outside", "num_affected_outside")}
        return {"conditions": conditions, "num_inside": len(self.inside), **counts, "p_value": self.p_value}


def axes_of(name: CellName, fields: Mapping[str, object]) -> dict[str, object]:
    """Return the axes of a cell for `find_pattern`, the most general first: numbers as such, all else as in its name.

    fields: those of the cell, or the columns of any table that has them.
    """
    nodes, gpus = fields["nodes"], fields["gpus_per_node"]
    axes = {"benchmark": fields["benchmark"], **{axis: name.parts[axis] for axis in ("subject", "shape")}}
    axes |= {"nodes": nodes, "world_size": nodes * gpus, "gpus_per_node": gpus}
    for axis, text in name.parts.items():
        is_number = isinstance(value := fields.get(axis), int | float) and not isinstance(value, bool)
        axes.setdefault(axis, value if is_number else text)
    return axes


def find_pattern(rows: Sequence[dict[str, object]], is_affected: Sequence[bool | None]) -> Pattern | None:
    """Return the smallest description by at most two conditions that chance does not explain; None without any.

    rows: the values of the axes of each cell; unknown or inapplicable ones are absent or None. Of axes that describe
    the same cells, the first counts. What has several values, such as hosts, has an axis for each: `host n1`.
    is_affected: None if unknown; such a cell is half an exception where it is inside, and counts nowhere else.
    """
    affected = _bits([place for place, is_one in enumerate(is_affected) if is_one])
    known = _bits([place for place, is_one in enumerate(is_affected) if is_one is not None])
    if affected.bit_count() < LEAST_AFFECTED:
        return None
    num_known, tried, best, lowest = known.bit_count(), set(), None, math.inf
    for cells, conditions in _descriptions(rows):
        inside = cells & known
        if LEAST_AFFECTED <= inside.bit_count() < num_known and cells not in tried:
            tried.add(cells)
            num_unknown = (cells ^ inside).bit_count()
            cost = (inside ^ affected).bit_count() + num_unknown / 2 + CONDITION_COST * len(conditions)
            if cost < lowest and _describes(cells, inside, affected):
                best, lowest = (cells, conditions), cost
    if best is None:
        return None
    cells, conditions = best
    inside, num = (cells & affected).bit_count(), (cells & known).bit_count()
    p_value = min(1.0, len(tried) * chance_of(inside, num, affected.bit_count(), num_known))
    missed = affected.bit_count() - inside
    is_partial = missed > _tolerated(affected.bit_count(), num_known - num)
    if p_value > (CHANCE_OF_PART if is_partial else CHANCE):
        return None
    places = tuple(index for index in range(len(rows)) if cells >> index & 1)
    return Pattern(conditions, places, inside, len(rows) - len(places), missed, p_value)


def find_patterns(rows: Sequence[dict[str, object]], is_affected: Sequence[bool]) -> list[Pattern]:
    """Return the pattern of all cells, or one for each of several benchmarks if that leaves fewer exceptions.

    The latter have the benchmark as another condition. Outside are the cells that no pattern describes.
    """
    benchmarks: dict[object, list[int]] = {}
    for place, row in enumerate(rows):
        benchmarks.setdefault(row.get("benchmark"), []).append(place)
    whole, parts, missed, cost = find_pattern(rows, is_affected), [], 0, 0.0
    for name, places in benchmarks.items():
        affected = [is_affected[place] for place in places]
        found, num = find_pattern([rows[place] for place in places], affected), affected.count(True)
        num_known = len(places) - affected.count(None)
        if num >= LEAST_AFFECTED and num >= LEAST_RATIO * num_known:  # all of it: judged among all cells
            of_all = is_affected.count(True), len(rows) - is_affected.count(None)
            p_value = chance_of(num, num_known, *of_all)
            found = Pattern((), tuple(range(len(places))), num, 0, 0, p_value)
        if found and found.p_value * len(benchmarks) <= CHANCE:
            conditions = (Condition("benchmark", EQUAL, name), *found.conditions)
            parts.append(replace(found, conditions=conditions, inside=tuple(places[place] for place in found.inside)))
            missed, cost = missed + found.num_affected_outside, cost + found.cost
        else:
            missed, cost = missed + num, cost + num
    if not parts or (whole and whole.cost <= cost):
        return [whole] if whole else []
    outside = {"num_outside": len(rows) - sum(len(part.inside) for part in parts), "num_affected_outside": missed}
    return [replace(part, **outside) for part in parts]


def _descriptions(rows: Sequence[dict[str, object]]) -> Iterator[tuple[int, tuple[Condition, ...]]]:
    """Yield single conditions, then pairs of them on two axes, each with the cells that meet it, if these are enough.

    A number with a separate value for nearly each cell has thousands of conditions that single cells meet.
    """
    single = [found for found in _conditions(rows) if found[0].bit_count() >= LEAST_AFFECTED]
    yield from ((cells, (condition,)) for cells, condition in single)
    for (one, first), (other, second) in itertools.combinations(single, 2):
        if first.axis != second.axis:
            yield one & other, (first, second)


def _conditions(rows: Sequence[dict[str, object]]) -> list[tuple[int, Condition]]:
    """Return all conditions on single axes with the cells that meet them, equal values before ranges of them."""
    places: dict[str, dict[object, list[int]]] = {}
    for place, row in enumerate(rows):
        for axis, value in row.items():
            if value is not None:
                places.setdefault(axis, {}).setdefault(value, []).append(place)
    by_axis = {axis: {value: _bits(of) for value, of in values.items()} for axis, values in places.items()}
    return [found for axis, values in by_axis.items() for found in _of_axis(axis, values)]


def _bits(places: Sequence[int]) -> int:
    """Return the cells at some places."""
    found = bytearray(max(places, default=0) // 8 + 1)
    for place in places:
        found[place // 8] |= 1 << place % 8
    return int.from_bytes(found, "little")


def _of_axis(axis: str, values: dict[object, int]) -> Iterator[tuple[int, Condition]]:
    yield from ((cells, Condition(axis, EQUAL, value)) for value, cells in values.items())
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        for relation, ordered in ((UP_TO, sorted(values)), (FROM, sorted(values, reverse=True))):
            cells = 0
            for value in ordered:
                cells |= values[value]
                yield cells, Condition(axis, relation, value)


def _describes(cells: int, known: int, affected: int) -> bool:
    """Return whether nearly all cells with a known state are affected, and at least a third of those are."""
    num, both = known.bit_count(), (cells & affected).bit_count()
    is_most = both >= LEAST_AFFECTED and 2 * both > cells.bit_count() and 3 * both >= affected.bit_count()
    return is_most and num - both <= _tolerated(num, num)


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
