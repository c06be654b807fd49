"""Verdicts on pairs of cells: faster, slower, equivalent or inconclusive.

A pair is a base and a test, each with one time per launch. Rules: docs/metrics.md. Their choice and error rates:
docs/decisions/0007-intervals-and-verdicts.md.
"""

import functools
import math
from argparse import ArgumentTypeError
from dataclasses import dataclass

import numpy as np

from regatta.core.statistics import PERCENTILES, Estimate, min_samples, paired_ratio_over_launches, ratio_over_launches
from regatta.core.text import is_unknown, three

# Benjamini and Hochberg's false discovery rate. If nothing differs, it is the chance of any faster or slower in
# a whole table: one in 100 campaigns that are compared with themselves.
FALSE_DISCOVERIES = 0.01
CHANCE = 0.05  # level for a single cell that a rank test must be able to reach
MIN_LAUNCHES_TEST = 3  # two launches are too few to estimate the scatter
POWER = 0.8  # power of the test with the launches still needed
MOST_LAUNCHES = 100  # limit per side; the scatter of a few launches cannot predict more
MIN_LAUNCHES_EQUIVALENT = {False: 3, True: 5}  # key: is paired. All on one side by chance in 1 of 20 and 1 of 32 cells
MAX_MARGIN = 100
MIN_NOISE_PAIRS = 5  # pairs of identical cells with MIN_LAUNCHES_TEST launches each

RANK_TEST = {False: "Mann-Whitney U", True: "Wilcoxon signed rank"}
T_TEST = {False: "Welch's t of logarithms", True: "paired t of logarithms"}
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
    """A pair of cells. `ratio`: time of test / time of base; above 1 is slower.

    is_paired: the launches at one index shared an allocation, and the ratio is the median of their ratios.
    p_value: that of the rank test named in `test`, two-sided, uncorrected; None if so few launches cannot reach 0.05
    (fewer than 4 and 4, or 6 pairs).
    shift_log, scatter_logs: mean difference of the logarithms of the times, and the standard deviations of (base,
    test), or if paired only that of the difference; None below MIN_LAUNCHES_TEST on either side.
    """

    ratio: Estimate
    num_base: int
    num_test: int
    is_paired: bool
    test: str
    p_value: float | None
    shift_log: float | None = None
    scatter_logs: tuple[float, ...] | None = None

    @property
    def least_p(self) -> float:
        """Return the smallest two-sided p that the rank test can reach with this many launches."""
        if self.is_paired:
            return 2 * 0.5**self.num_base
        return 2 / math.comb(self.num_base + self.num_test, self.num_base)


@dataclass(frozen=True)
class Verdict:
    """The verdict on one pair of a table.

    word: faster, slower, equivalent or inconclusive.
    test, p_value: two-sided, uncorrected: the rank test where it can reach the corrected level in a table of this
    length, else a t test. `none` and None below MIN_LAUNCHES_TEST on either side.
    p_adjusted: the same by Benjamini and Hochberg over the table.
    launches_needed: how many more launches on each side would probably settle it at the present scatter; 0 if it is
    settled. None if the interval of the ratio contains a limit of the margin, if the scatter is unknown, or
    if it would take more than MOST_LAUNCHES.
    """

    word: str
    test: str
    p_value: float | None
    p_adjusted: float | None
    launches_needed: int | None


def compare_launches(base: list[float], test: list[float], is_paired: bool) -> Compared:
    """Compare the times of the launches of a pair of cells, all above 0.

    is_paired: the launches at one index shared an allocation. Raises ValueError for paired lists of unequal length.
    """
    ratio = paired_ratio_over_launches(test, base) if is_paired else ratio_over_launches(test, base)
    sides = len(base), len(test)
    compared = Compared(ratio, *sides, is_paired, RANK_TEST[is_paired], None)
    if min(sides) < MIN_LAUNCHES_TEST:
        return compared
    logs = [np.log(test) - np.log(base)] if is_paired else [np.log(base), np.log(test)]
    shift = np.mean(logs[0]) if is_paired else np.mean(logs[1]) - np.mean(logs[0])
    p_value = _rank_p(logs) if compared.least_p <= CHANCE else None
    scatters = tuple(float(np.std(side, ddof=1)) for side in logs)
    return Compared(ratio, *sides, is_paired, RANK_TEST[is_paired], p_value, float(shift), scatters)


def judge_all(compared: list[Compared], margin: float | list[float]) -> list[Verdict]:
    """Return the verdicts of one table, in its order.

    margin: ratio by which times may differ and still be equivalent, such as 0.05: of all, or of each. slower: the whole
    interval of the ratio lies above 1 + margin, and p_adjusted is at most FALSE_DISCOVERIES. faster: the same below
    1 / (1 + margin). equivalent: the whole interval lies between the two, with MIN_LAUNCHES_EQUIVALENT launches.
    """
    floors = {}  # the median scatter of the table: a few launches may agree by chance
    for is_paired in (False, True):
        scatters = [s for c in compared if c.is_paired == is_paired and c.scatter_logs for s in c.scatter_logs]
        floors[is_paired] = float(np.median(scatters)) if scatters else None
    num_tested = sum(c.shift_log is not None for c in compared)
    tests = [_table_test(c, floors[c.is_paired], num_tested) for c in compared]
    known = [p for _, p in tests if p is not None]
    adjusted = iter(adjust_for_number(known))
    margins = margin if isinstance(margin, list) else [margin] * len(compared)
    verdicts = []
    for c, (test, p_value), limit in zip(compared, tests, margins, strict=True):
        p_adjusted = None if p_value is None else next(adjusted)
        word = _word(c, p_adjusted, limit)
        needed = 0 if word != "inconclusive" else _launches_needed(c, floors[c.is_paired], limit, num_tested)
        verdicts.append(Verdict(word, test, p_value, p_adjusted, needed))
    return verdicts


def adjust_for_number(p_values: list[float]) -> list[float]:
    """Return p values corrected by Benjamini and Hochberg (scipy.stats.false_discovery_control)."""
    num, order = len(p_values), np.argsort(p_values)
    raised = np.array(p_values)[order] * (num / np.arange(1, num + 1))
    adjusted = np.empty(num)
    adjusted[order] = np.minimum.accumulate(raised[::-1])[::-1]
    return np.clip(adjusted, 0, 1).tolist()


def noise_floor(ratios: list[float]) -> float | None:
    """Return the margin below which a ratio is noise, from the ratios of pairs of cells that measure the same (A/A).

    It is the 95th percentile of their distances from 1, or the largest if there are fewer than 59. None below
    MIN_NOISE_PAIRS.
    """
    if len(ratios) < MIN_NOISE_PAIRS:
        return None
    distances = [abs(math.log(ratio)) for ratio in ratios]
    probability = PERCENTILES["p95_s"]
    is_enough = len(distances) >= min_samples(probability)
    return math.expm1(float(np.quantile(distances, probability)) if is_enough else max(distances))


def sign_test(ratios: list[float]) -> float:
    """Return the two-sided p of ratios being above 1 as often as below it. Those of exactly 1 do not count."""
    from scipy.special import bdtr  # scipy.stats takes 0.5 s to import

    num_above, num_below = sum(ratio > 1 for ratio in ratios), sum(ratio < 1 for ratio in ratios)
    return min(1.0, 2 * float(bdtr(min(num_above, num_below), num_above + num_below, 0.5)))


def holds_limit(low: float | None, high: float | None, margin: float) -> bool:
    """Return whether the interval of a ratio contains a limit of the margin. low, high: None without an interval."""
    return low is not None and any(low <= limit <= high for limit in (1 + margin, 1 / (1 + margin)))


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


def _word(compared: Compared, p_adjusted: float | None, margin: float) -> str:
    low, high, limit = compared.ratio.low, compared.ratio.high, 1 + margin
    if low is None:
        return "inconclusive"
    if p_adjusted is not None and p_adjusted <= FALSE_DISCOVERIES:
        if low > limit:
            return "slower"
        if high < 1 / limit:
            return "faster"
    is_enough = min(compared.num_base, compared.num_test) >= MIN_LAUNCHES_EQUIVALENT[compared.is_paired]
    return "equivalent" if is_enough and 1 / limit <= low and high <= limit else "inconclusive"


def _rank_p(logs: list[np.ndarray]) -> float:
    """Return the two-sided p of the rank test: of two sides, or of one list of differences."""
    if len(logs) == 1:
        sizes = np.abs(logs[0])
        ranks = np.searchsorted(np.unique(sizes), sizes) + 1
        return _wilcoxon_p(tuple(sorted((np.sign(logs[0]) * ranks).tolist())))
    values = np.concatenate(logs)
    ranks = np.searchsorted(np.unique(values), values).tolist()
    return _mann_whitney_p(tuple(sorted(ranks[: len(logs[0])])), tuple(sorted(ranks[len(logs[0]) :])))


# Cached: p depends only on ranks, few launches have few rank patterns, and each call of scipy takes 1 ms.


@functools.lru_cache(100_000)
def _wilcoxon_p(ranks: tuple[float, ...]) -> float:
    import scipy.stats

    return float(scipy.stats.wilcoxon(ranks).pvalue) if any(ranks) else 1.0


@functools.lru_cache(100_000)
def _mann_whitney_p(base: tuple[int, ...], test: tuple[int, ...]) -> float:
    import scipy.stats

    is_small, is_tied = max(len(base), len(test)) <= 50, len({*base, *test}) < len(base) + len(test)
    method = "exact" if is_small and not is_tied else "asymptotic"  # the exact test does not handle ties
    return float(scipy.stats.mannwhitneyu(base, test, alternative="two-sided", method=method).pvalue)


def _table_test(compared: Compared, floor: float | None, num_tested: int) -> tuple[str, float | None]:
    """Return the name and the two-sided p of the test for a table of so many comparisons."""
    from scipy.special import stdtr  # scipy.stats takes 0.5 s to import

    if compared.shift_log is None:
        return NO_TEST, None
    if compared.least_p <= FALSE_DISCOVERIES / num_tested:
        return compared.test, compared.p_value
    name, shift, scatters = T_TEST[compared.is_paired], compared.shift_log, _at_least(compared, floor)
    if not any(scatters):
        return name, float(shift == 0)
    if compared.is_paired:
        t = abs(shift) / (scatters[0] / math.sqrt(compared.num_base))
        return name, float(2 * stdtr(compared.num_base - 1, -t))
    nums = (compared.num_base, compared.num_test)
    variances = [scatter**2 / num for scatter, num in zip(scatters, nums, strict=True)]
    freedom = sum(variances) ** 2 / sum(v**2 / (num - 1) for v, num in zip(variances, nums, strict=True))  # Welch
    return name, float(2 * stdtr(freedom, -abs(shift) / math.sqrt(sum(variances))))


def _at_least(compared: Compared, floor: float) -> tuple[float, ...]:
    """Return a cell's scatter, at least the median of its table."""
    scatters = compared.scatter_logs or (floor,) * (1 if compared.is_paired else 2)
    return tuple(max(scatter, floor) for scatter in scatters)


def _launches_needed(compared: Compared, floor: float | None, margin: float, num_tested: int) -> int | None:
    """Return how many more launches per side settle a comparison with power POWER, if ratio and scatter persist.

    The interval must exclude the margin's limit, and the corrected p fall below its level. Normal approximation; the
    standard error of a median is sqrt(pi / 2) times that of a mean.
    """
    from scipy.special import ndtri

    if floor is None or compared.ratio.median is None or holds_limit(compared.ratio.low, compared.ratio.high, margin):
        return None
    scatter = math.hypot(*_at_least(compared, floor))
    effect, limit = abs(math.log(compared.ratio.median)), math.log1p(margin)
    if effect == limit:
        return None
    z_power = float(-ndtri((1 - POWER) / (1 if effect > limit else 2)))  # equivalence must hold at both ends
    needed = math.pi / 2 * ((1.96 + z_power) * scatter / (effect - limit)) ** 2
    if effect > limit:
        z_table = float(-ndtri(FALSE_DISCOVERIES / 2 / max(num_tested, 1)))
        needed = max(needed, ((z_table + z_power) * scatter / effect) ** 2)
    least = MIN_LAUNCHES_TEST if effect > limit else MIN_LAUNCHES_EQUIVALENT[compared.is_paired]
    needed = max(math.ceil(needed) + 2, least)  # two more, since a few launches estimate the scatter poorly
    return max(needed - min(compared.num_base, compared.num_test), 1) if needed <= MOST_LAUNCHES else None
