"""Verdicts on pairs of cells: faster, slower, equivalent or inconclusive.

A pair is a base and a test, each with one time per launch. Rules: docs/metrics.md. Their choice and error rates:
docs/decisions/0007-intervals-and-verdicts.md. Statistics: regatta.core.moderation.
"""

import math
from argparse import ArgumentTypeError
from dataclasses import dataclass

import numpy as np

from regatta.core import moderation
from regatta.core.moderation import FALSE_DISCOVERIES, MIN_LAUNCHES, Contrasts
from regatta.core.statistics import Estimate
from regatta.core.text import is_unknown, three

MAX_MARGIN = 100
MIN_NOISE_PAIRS = 5  # pairs of identical cells with MIN_LAUNCHES launches each

TEST = {False: "moderated Welch's t of logarithms", True: "moderated paired t of logarithms"}
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
    """The launches of a pair of cells, times above 0. group: cells of one group, a benchmark, may share a prior.

    is_paired: the launches at one index shared an allocation. Launches of different cells at one index are taken as
    one launch, whose ups and downs they share.
    """

    base: list[float]
    test: list[float]
    is_paired: bool
    group: str = ""

    def __post_init__(self):
        if self.is_paired and len(self.base) != len(self.test):
            raise ValueError(f"{len(self.test)} launches cannot be paired with {len(self.base)}")

    @property
    def num(self) -> int:
        """Return the launches of the side with fewer."""
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
    launches_needed: how many more launches on each side settle it with 80 % probability; 0 if it is settled, None if it
    takes more than MOST_LAUNCHES or nothing is known about the variation.
    """

    word: str
    ratio: Estimate
    test: str
    p_value: float | None
    p_adjusted: float | None
    launches_needed: int | None


def judge_all(compared: list[Compared], margin: float | list[float | None]) -> list[Verdict]:
    """Return the verdicts of one table, in its order.

    margin: ratio by which times may differ and still be equivalent, such as 0.05: of all, or of each. None: the pair
    has an interval, but is not judged and not counted (A/A). Paired and unpaired pairs have priors of their own.
    """
    margins = np.array(margin if isinstance(margin, list) else [margin] * len(compared), float)
    limits, parts, order = np.log1p(margins), [], []
    for is_paired in (False, True):
        rows = [i for i, pair in enumerate(compared) if pair.is_paired == is_paired and pair.num]
        if rows:
            parts.append(_contrasts([compared[i] for i in rows], is_paired))
            order += rows
    verdicts = [Verdict("inconclusive", pair.ratio, NO_TEST, None, None, None) for pair in compared]
    if not order:
        return verdicts
    p_value = np.where(np.isnan(limits[order]), np.nan, np.concatenate([part.p_value for part in parts]))
    adjusted, begin = moderation.adjust_for_number(p_value), 0
    for part in parts:
        at = slice(begin, begin := begin + len(part.shift))
        rows = order[at]
        words = moderation.words(part, adjusted[at], limits[rows])
        needed = moderation.launches_needed(part, adjusted, limits[rows])
        values = zip(
            rows, words.tolist(), _ratios(part, compared, rows), p_value[at], adjusted[at], needed, strict=True
        )
        for row, word, ratio, *numbers in values:
            p, p_adjusted, more = (None if math.isnan(number) else float(number) for number in numbers)
            more = 0 if word != "inconclusive" else None if more is None else int(more)
            test = NO_TEST if p is None else TEST[compared[row].is_paired]
            verdicts[row] = Verdict(word, ratio, test, p, p_adjusted, more)
    return verdicts


def _contrasts(compared: list[Compared], is_paired: bool) -> Contrasts:
    groups = np.array([pair.group for pair in compared])
    base, test = (_logs([getattr(pair, side) for pair in compared]) for side in ("base", "test"))
    if is_paired:
        return moderation.paired_contrasts(test - base, (base + test) / 2, groups)
    return moderation.unpaired_contrasts(base, test, groups)


def _logs(times: list[list[float]]) -> np.ndarray:
    """Return log times of (cells, launches), NaN after the last launch of a cell."""
    logs = np.full((len(times), max(map(len, times))), np.nan)
    for row, values in zip(logs, times, strict=True):
        row[: len(values)] = np.log(values)
    return logs


def _ratios(contrasts: Contrasts, compared: list[Compared], rows: list[int]) -> list[Estimate]:
    """Return ratios with their intervals; with ranges below MIN_LAUNCHES."""
    shift, half = contrasts.shift, contrasts.half_width
    ends = zip(rows, np.exp([shift, shift - half, shift + half]).T.tolist(), strict=True)
    nums = [compared[row].num for row in rows]
    return [
        Estimate(num, *values, "interval") if num >= MIN_LAUNCHES else compared[row].ratio
        for num, (row, values) in zip(nums, ends, strict=True)
    ]


def noise_floor(ratios: list[float]) -> float | None:
    """Return the margin below which a ratio is noise, from the ratios of pairs of cells that measure the same (A/A).

    It is the 97.5 % quantile of t with as many degrees of freedom as pairs, times their robust standard deviation: a
    single noisy pair does not set it. None below MIN_NOISE_PAIRS.
    """
    from scipy.special import stdtrit

    if len(ratios) < MIN_NOISE_PAIRS:
        return None
    return math.expm1(float(stdtrit(len(ratios), 0.975)) * 1.483 * float(np.median(np.abs(np.log(ratios)))))


def sign_test(ratios: list[float]) -> float:
    """Return the two-sided p of ratios being above 1 as often as below it. Those of exactly 1 do not count."""
    from scipy.special import bdtr  # scipy.stats takes 0.5 s to import

    num_above, num_below = sum(ratio > 1 for ratio in ratios), sum(ratio < 1 for ratio in ratios)
    return min(1.0, 2 * float(bdtr(min(num_above, num_below), num_above + num_below, 0.5)))


def settled_direction(low: float | None, high: float | None, p_adjusted: float | None) -> str | None:
    """Return slower or faster if the interval or range of a ratio excludes 1 and the corrected p is low; else None."""
    if any(is_unknown(value) for value in (low, high, p_adjusted)) or p_adjusted > FALSE_DISCOVERIES:
        return None
    return "slower" if low > 1 else "faster" if high < 1 else None


def verdict_text(
    word: str, low: float | None, high: float | None, kind: str, p_adjusted: float | None, margin: float
) -> str:
    """Return a verdict for people: an inconclusive one with a settled direction names it and its size.

    low, high: ends of the ratio's interval or range. kind: "interval" or "range". The percentages are of the base time.
    """
    direction = settled_direction(low, high, p_adjusted)
    if word != "inconclusive" or direction is None:
        return word
    least, most = sorted((abs(low - 1), abs(high - 1)))
    size = f"{three(100 * least, 2)}\N{EN DASH}{three(100 * most, 2)} %"
    by = f"(range {size})" if kind == "range" else f"by {size}"
    limit = f" ({100 / (1 + margin) - 100:.1f} %)" if direction == "faster" else ""
    return f"{direction} {by}; whether beyond the {round(100 * margin, 1):g} % margin{limit} is not settled"
