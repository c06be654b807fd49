"""Verdicts on pairs of cells: faster, slower, equivalent or inconclusive.

A pair is a base and a test, each with one time per launch. Definitions: docs/metrics.md. Reasons and error rates:
docs/decisions/0007-intervals-and-verdicts.md. Statistics: regatta.core.moderation.
"""

import math
from argparse import ArgumentTypeError
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from regatta.core import moderation
from regatta.core.moderation import FALSE_DISCOVERIES, MIN_LAUNCHES, MOST_LAUNCHES, Contrasts
from regatta.core.statistics import Estimate, launch_table
from regatta.core.text import UNKNOWN, is_unknown, plural, three

MAX_MARGIN = 100
MIN_NOISE_PAIRS = 5  # pairs of identical cells with MIN_LAUNCHES launches each

MIN_FREEDOM_ALLOCATIONS = 2  # of two sides with several allocations; with 1, intervals are too wide to be useful

# By whether launches are paired, and whether allocations are the unit.
TEST = {
    (False, False): "moderated Welch's t of logarithms",
    (True, False): "moderated paired t of logarithms",
    (False, True): "moderated t of logarithms of allocations",
    (True, True): "moderated paired t of logarithms of allocations",
}
NO_TEST = "none"


def margin_option(text: str) -> float:
    """Read a margin from a command line. Raises ArgumentTypeError unless it is a ratio from 0 to MAX_MARGIN."""
    try:
        margin = float(text)
    except ValueError:
        margin = math.nan
    if not 0 <= margin <= MAX_MARGIN:
        raise ArgumentTypeError(f"{text} is not a ratio from 0 to {MAX_MARGIN}; give one such as 0.05")
    return margin


@dataclass(frozen=True)
class Compared:
    """The launches of a pair of cells, times above 0. group: the benchmark; cells of one group may share a prior.

    is_paired: launches with the same index shared an allocation. repeats: of the launches of base and test; empty if
    they are 0, 1, ... batches: of base and test, of `batch_of`. Launches of different cells of a batch in one repeat
    are one launch, so they are correlated. allocations: of the launches of base and test, as arbitrary names; empty if
    allocations are not the unit.
    """

    base: list[float]
    test: list[float]
    is_paired: bool
    group: str = ""
    allocations: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    repeats: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    batches: tuple[str, str] = ("", "")

    def __post_init__(self):
        if self.is_paired and len(self.base) != len(self.test):
            raise ValueError(f"{len(self.test)} launches cannot be paired with {len(self.base)}")

    @property
    def is_by_allocation(self) -> bool:
        """Return whether the allocation is the independent unit: two or more per side, or a history of one side."""
        nums = [len(set(of_side)) for of_side in self.allocations]
        is_enough = min(nums) > 1 if self.is_paired else min(nums) and sum(nums) - 2 >= MIN_FREEDOM_ALLOCATIONS
        return bool(is_enough) and self.num >= MIN_LAUNCHES

    def logs(self, side: int) -> dict[int, float]:
        """Return log times of the launches of base (0) or test (1), by repeat."""
        logs = np.log((self.base, self.test)[side]).tolist()
        return dict(zip(self.repeats[side] or range(len(logs)), logs, strict=True))

    def units(self, side: int) -> dict[int, float]:
        """Return log times of the independent units: of launches by repeat, or means over those of an allocation."""
        logs, names = self.logs(side), self.allocations[side]
        if not self.is_by_allocation:
            return logs
        pairs = list(zip(names, logs.values(), strict=True))
        means = (fmean(log for name, log in pairs if name == allocation) for allocation in dict.fromkeys(names))
        return dict(enumerate(means))

    def margin_with(self, margin: float, allocation_variation: float) -> float:
        """Return the margin beyond which a gate calls it slower; the interval may include that variation already."""
        return margin if self.is_by_allocation else margin + (1 + margin) * allocation_variation

    @property
    def num(self) -> int:
        """Return the number of launches of the side with fewer."""
        return min(len(self.base), len(self.test))

    @property
    def ratio(self) -> Estimate:
        """Return the ratio of the geometric means, test over base, with its range over launches or pairs."""
        if self.num == 0:
            return Estimate(0)
        base, test = np.log(self.base), np.log(self.test)
        ratio = math.exp(np.mean(test) - np.mean(base))
        if self.num == 1:
            return Estimate(1, ratio, None, None, "single")
        gaps = test - base if self.is_paired else np.subtract.outer(test, base)
        return Estimate(self.num, ratio, math.exp(gaps.min()), math.exp(gaps.max()), "range")


@dataclass(frozen=True)
class Verdict:
    """The verdict on one pair of a table.

    word: faster, slower, equivalent or inconclusive. ratio: of geometric means, test over base; above 1 is slower.
    test, p_value: two-sided, uncorrected; `none` and None below MIN_LAUNCHES on either side, and without a margin.
    p_adjusted: the same by Benjamini and Hochberg over the table.
    launches_needed: additional launches per side that settle it with 80 % probability; 0 if it is settled, None if more
    than MOST_LAUNCHES are needed or nothing is known about the variation. correlation: of successive launches; None
    unless significant. widening: the factor by which it widens the interval.
    """

    word: str
    ratio: Estimate
    test: str = NO_TEST
    p_value: float | None = None
    p_adjusted: float | None = None
    launches_needed: int | None = None
    correlation: float | None = None
    widening: float | None = None


def judge_all(
    compared: list[Compared], margin: float | list[float | None], allocation_variation: float | None = None
) -> list[Verdict]:
    """Return the verdicts of one table, in its order.

    margin: relative difference up to which times are equivalent, such as 0.05, for all pairs or for each. None: the
    pair has an interval, but is neither tested nor counted (A/A). Pairs with different tests have separate priors.
    allocation_variation: of a gate: added to the margin for faster and slower where the interval excludes variation
    between allocations. An inconclusive cell is then settled if it cannot be slower by more than that.
    """
    verdicts = [Verdict("inconclusive", pair.ratio) for pair in compared]
    known = [i for i, pair in enumerate(compared) if pair.num]
    if not known:
        return verdicts
    pairs = [compared[i] for i in known]
    limits = np.log1p(np.broadcast_to(np.array(margin, float), len(compared))[known])
    is_gate, variation = allocation_variation is not None, allocation_variation or 0.0
    allowances = [0.0 if pair.is_paired or pair.is_by_allocation else variation for pair in pairs]
    found, allowances = contrasts_of(pairs), np.log1p(allowances)
    p_value = np.where(np.isnan(limits), np.nan, found.p_value)
    adjusted = moderation.adjust_for_number(p_value)
    words = moderation.words(found, adjusted, limits, allowances)
    units = moderation.launches_needed(found, adjusted, limits, allowances, is_gate)
    is_open = (words == "inconclusive") & ~(is_gate & (found.shift + found.half_width <= limits + allowances))
    needed = np.where(is_open, np.ceil(units * [pair.num for pair in pairs] / found.num), 0)
    dependence = np.where(found.correlation > 0, [found.correlation, found.widening], np.nan)
    ends = np.exp([found.shift, found.shift - found.half_width, found.shift + found.half_width]).T
    numbers = np.stack([p_value, adjusted, needed, *dependence], -1)
    for i, word, of_ratio, of_row in zip(known, words.tolist(), ends.tolist(), numbers.tolist(), strict=True):
        verdicts[i] = _verdict(compared[i], word, of_ratio, of_row)
    return verdicts


def compare_all(pairs: list[Compared], margin: float, allocation_variation: float = 0.0) -> list[Verdict]:
    """Return the verdict on the launches of each cell, `test` now with `base` before.

    All cells are one table, as in every comparison (judge_all). With fewer than MIN_LAUNCHES on either side
    there is no test, and a gate must be able to fail: those cells are screened. Error rates of both:
    docs/decisions/0007-intervals-and-verdicts.md.
    """
    judged, limit = judge_all(pairs, margin, allocation_variation), (1 + margin) * (1 + allocation_variation)
    both = zip(pairs, judged, strict=True)
    return [verdict if pair.num >= MIN_LAUNCHES else screened(pair, limit) for pair, verdict in both]


def screened(pair: Compared, limit: float) -> Verdict:
    """Return the verdict on a cell with few launches: slower if all are slower than all before, beyond the margin."""
    is_slower, is_faster = min(pair.test) / max(pair.base) > limit, max(pair.test) / min(pair.base) < 1 / limit
    return Verdict("slower" if is_slower else "faster" if is_faster else "inconclusive", pair.ratio)


def _verdict(pair: Compared, word: str, ends: list[float], numbers: list[float]) -> Verdict:
    """ends: of the interval. numbers: the other fields of a verdict; NaN if unknown."""
    p, p_adjusted, needed, *dependence = (None if math.isnan(number) else number for number in numbers)
    ratio = Estimate(pair.num, *ends, "interval") if pair.num >= MIN_LAUNCHES else pair.ratio
    test = NO_TEST if p is None else TEST[pair.is_paired, pair.is_by_allocation]
    return Verdict(word, ratio, test, p, p_adjusted, None if needed is None else int(needed), *dependence)


def contrasts_of(compared: list[Compared]) -> Contrasts:
    """Return the contrasts of all pairs. Those with different tests inform each other in no way."""
    parts, order = [], []
    for kind in TEST:
        rows = [i for i, pair in enumerate(compared) if (pair.is_paired, pair.is_by_allocation) == kind]
        if rows:
            part = _of_kind([compared[i] for i in rows], *kind)
            parts.append(np.broadcast_arrays(*vars(part).values()))
            order += rows
    return Contrasts(*np.concatenate(parts, -1)[:, np.argsort(order)])


def _of_kind(compared: list[Compared], is_paired: bool, is_by_allocation: bool) -> Contrasts:
    groups = np.array([pair.group for pair in compared])
    base, test = (launch_table([pair.units(side) for pair in compared]) for side in (0, 1))
    batches = tuple(np.array([pair.batches[side] for pair in compared]) for side in (0, 1))
    if is_paired:
        both = np.unique(np.stack(batches), axis=1, return_inverse=True)[1]
        found = moderation.paired_contrasts(test - base, (base + test) / 2, groups, batches=both)
        return replace(found, least=2) if is_by_allocation else found
    if is_by_allocation:
        launches = tuple(launch_table([pair.logs(side) for pair in compared]) for side in (0, 1))
        return moderation.allocation_contrasts(base, test, groups, launches, batches)
    return moderation.unpaired_contrasts(base, test, groups, batches)


def noise_floor(ratios: list[float]) -> float | None:
    """Return the margin below which a ratio is noise, from the ratios of A/A pairs.

    It is the 97.5 % quantile of t with as many degrees of freedom as pairs, times their robust standard deviation: a
    single noisy pair does not set it. None below MIN_NOISE_PAIRS, and if most ratios are 1: times were rounded.
    """
    if len(ratios) < MIN_NOISE_PAIRS:
        return None
    deviation = 1.483 * np.median(np.abs(np.log(ratios)))
    return math.expm1(moderation.t_quantile(len(ratios), moderation.CONFIDENCE) * deviation) or None


def settled_direction(low: float | None, high: float | None, p_adjusted: float | None) -> str | None:
    """Return slower or faster if the interval or range of a ratio excludes 1 and the corrected p is low; else None."""
    if any(is_unknown(value) for value in (low, high, p_adjusted)) or p_adjusted > FALSE_DISCOVERIES:
        return None
    return "slower" if low > 1 else "faster" if high < 1 else None


def is_below_threshold(row: object) -> bool:
    """Return whether the interval of an inconclusive row is within its margin, the threshold of a gate.

    The row is not equivalent, because the threshold includes the variation between allocations.
    """
    if is_unknown(row.verdict) or row.verdict != "inconclusive" or is_unknown(row.p_adjusted):
        return False
    return 1 / (1 + row.margin_ratio) <= row.time_low_ratio and row.time_high_ratio <= 1 + row.margin_ratio


def has_both_directions(directions: list[str | None], p_values: list[float]) -> bool:
    """Return whether cells are significantly slower and others faster, beyond what chance adds to a true difference.

    The more real differences a table has, the less p is corrected, so a chance cell joins them. The direction with
    fewer cells needs two, or a p that is low after correction over the cells that are not in the other direction.
    """
    for word, other in (("slower", "faster"), ("faster", "slower")):
        family = [p for p, of in zip(p_values, directions, strict=True) if of != other and not is_unknown(p)]
        num = directions.count(word)
        if num == 0 or (num == 1 and p_values[directions.index(word)] * len(family) > FALSE_DISCOVERIES):
            return False
    return True


def worded(text: str, row: object) -> str:
    """Return a text about the verdict on a row: of a result, worse and better instead of slower and faster."""
    is_time = is_unknown(getattr(row, "result", None))
    return text if is_time else text.replace("slower", "worse").replace("faster", "better")


def verdict_text(row: object) -> str:
    """Return the verdict of a row of comparisons.csv; of an inconclusive one what is known, and what settles it."""
    return worded(_verdict_text(row), row)


def _verdict_text(row: object) -> str:
    if is_unknown(row.verdict) or row.verdict != "inconclusive":
        return UNKNOWN if is_unknown(row.verdict) else row.verdict
    low, high, needed = row.time_low_ratio, row.time_high_ratio, row.launches_needed
    text, is_tested = "too few launches" if is_unknown(low) else span_text(low, high), not is_unknown(row.p_adjusted)
    if is_below_threshold(row):
        text += f"; within the {margins_text([row.margin_ratio])} margin"
    elif (direction := settled_direction(low, high, row.p_adjusted)) is not None:
        limit = f" ({100 / (1 + row.margin_ratio) - 100:.1f} %)" if direction == "faster" else ""
        text += f"; may or may not exceed the {margins_text([row.margin_ratio])} margin{limit}"
    elif not is_unknown(low):
        text += " (range)" if not is_tested else ", not significant" if low >= 1 or high <= 1 else ""
    if is_unknown(needed):
        return f"{text}; needs more than {MOST_LAUNCHES} more launches per side" if is_tested else text
    return f"{text}; needs {plural(needed, 'more launch', 'more launches')} per side" if needed else text


def span_text(low: float, high: float) -> str:
    """Return the ends of a ratio: `between 3.0 % faster and 9.0 % slower`, `4.4-8.7 % slower`. Of the base time."""
    ends = [three(100 * abs(end - 1), 2) for end in (low, high)]
    if low < 1 < high:
        return f"between {ends[0]} % faster and {ends[1]} % slower"
    return f"{ends[0]}\N{EN DASH}{ends[1]} % slower" if low >= 1 else f"{ends[1]}\N{EN DASH}{ends[0]} % faster"


def margins_text(margins: Iterable[float]) -> str:
    """Return `5 %`, or `5 % or 3.2 %` of benchmarks with different margins."""
    return " or ".join(f"{round(100 * margin, 1):g} %" for margin in margins)
