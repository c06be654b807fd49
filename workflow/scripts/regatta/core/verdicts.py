"""Whether one side of a comparison is faster, slower, the same, or whether the launches cannot tell.

A comparison is of two cells: a base and a test, each with one time per launch. The launch is the unit throughout.
Rules: docs/metrics.md. Why these, and how often they err: docs/decisions/0007-intervals-and-verdicts.md.
"""

import math
from argparse import ArgumentTypeError
from dataclasses import dataclass

import numpy as np

from regatta.core.statistics import PERCENTILES, Spread, min_samples, paired_ratio_over_launches, ratio_over_launches

# Benjamini and Hochberg's share of false discoveries. Where nothing differs it is the chance that a whole table says
# faster or slower anywhere: of 100 campaigns compared with themselves, one.
FALSE_DISCOVERIES = 0.01
CHANCE = 0.05  # of one cell: what a rank test must be able to reach
MIN_LAUNCHES_TEST = 3  # two launches have one difference, which says next to nothing of their scatter
POWER = 0.8  # with which the launches still needed settle a comparison
MOST_LAUNCHES = 100  # on each side; the scatter of the few that there are foretells no more
MIN_LAUNCHES_EQUIVALENT = {False: 3, True: 5}  # on both sides, pairs: all on one side in 1 of 20 and 1 of 32 cells
MAX_MARGIN = 100
MIN_NOISE_PAIRS = 5  # of cells that measure the same, of MIN_LAUNCHES_TEST launches each

RANK_TEST = {False: "Mann-Whitney U", True: "Wilcoxon signed rank"}
T_TEST = {False: "Welch's t of logarithms", True: "paired t of logarithms"}
NO_TEST = "none"


def margin_option(text: str) -> float:
    """Read a margin from a command line. Raises ArgumentTypeError for what is no ratio from 0 to MAX_MARGIN."""
    try:
        margin = float(text)
    except ValueError:
        margin = math.nan
    if not 0 <= margin <= MAX_MARGIN:
        raise ArgumentTypeError(f"{text} is no ratio from 0 to {MAX_MARGIN}; give one such as 0.05")
    return margin


@dataclass(frozen=True)
class Compared:
    """One cell's launches against those of its counterpart. `ratio`: time of test / time of base; above 1 is slower.

    is_paired: the launches at one index shared an allocation, and the ratio is the median of the launches' own ratios.
    p_value: of the rank test named in `test`, two-sided and of this cell alone; None where no outcome of so few
    launches could reach 0.05 (fewer than 4 and 4, or 6 pairs).
    shift_log, scatter_logs: mean difference of the logarithms of the times, and the standard deviations of (base, test),
    or where paired that of the difference alone; None below MIN_LAUNCHES_TEST on either side.
    """

    ratio: Spread
    num_base: int
    num_test: int
    is_paired: bool
    test: str
    p_value: float | None
    shift_log: float | None = None
    scatter_logs: tuple[float, ...] | None = None

    @property
    def least_p(self) -> float:
        """The smallest two-sided p that the rank test of so many launches can give."""
        return 2 * self.chance_of_one_side

    @property
    def chance_of_one_side(self) -> float:
        """How likely launches that do not differ all come out on one given side of those that they are compared with."""
        if self.is_paired:
            return 0.5**self.num_base
        return 1 / math.comb(self.num_base + self.num_test, self.num_base)


@dataclass(frozen=True)
class Verdict:
    """What is said of one comparison of a table.

    word: faster, slower, equivalent or inconclusive.
    test, p_value: the test that this table goes by, two-sided, of this cell alone: the rank test where it can reach the
    corrected level in a table of this length, else a t test. `none` and None below MIN_LAUNCHES_TEST on either side.
    p_adjusted: the same by Benjamini and Hochberg over the table.
    launches_needed: how many more launches on each side would probably settle it at the present scatter; 0 where it is
    settled. None where the spread of the ratio holds a limit of the margin, so that the ratio may lie on either side of
    it, where the scatter is not known, and where it would take more than MOST_LAUNCHES.
    """

    word: str
    test: str
    p_value: float | None
    p_adjusted: float | None
    launches_needed: int | None


def compare_launches(base: list[float], test: list[float], is_paired: bool) -> Compared:
    """Return how the launches of one cell compare with those of its counterpart. Times, all above 0.

    is_paired: the two lists are of equal length, and the launches at one index shared an allocation.
    Raises ValueError for lists of unequal length that are said to be paired.
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

    margin: ratio by which times may differ and still count as the same, such as 0.05: of all, or of each. slower: the whole spread of the ratio lies above 1 + margin, and p_adjusted is at most
    FALSE_DISCOVERIES. faster: the same below 1 / (1 + margin). equivalent: the whole spread lies between the two, of
    so many launches as MIN_LAUNCHES_EQUIVALENT says.
    """
    import scipy.stats  # half a second, which only comparisons need

    floors = {is_paired: _typical_scatter(compared, is_paired) for is_paired in (False, True)}
    num_tested = sum(c.shift_log is not None for c in compared)
    tests = [_table_test(c, floors[c.is_paired], num_tested) for c in compared]
    known = [p for _, p in tests if p is not None]
    adjusted = iter(scipy.stats.false_discovery_control(known, method="bh").tolist() if known else [])
    margins = margin if isinstance(margin, list) else [margin] * len(compared)
    verdicts = []
    for c, (test, p_value), own in zip(compared, tests, margins, strict=True):
        p_adjusted = None if p_value is None else next(adjusted)
        word = _word(c, p_adjusted, own)
        needed = 0 if word != "inconclusive" else _launches_needed(c, floors[c.is_paired], own, num_tested)
        verdicts.append(Verdict(word, test, p_value, p_adjusted, needed))
    return verdicts


def noise_floor(ratios: list[float]) -> float | None:
    """Return the margin below which a ratio is noise, from the ratios of pairs of cells that measure the same (A/A).

    The 95th percentile of how far they are from 1, up or down; the largest of them where there are too few pairs (59)
    to carry a percentile. None below MIN_NOISE_PAIRS.
    """
    if len(ratios) < MIN_NOISE_PAIRS:
        return None
    distances = [abs(math.log(ratio)) for ratio in ratios]
    probability = PERCENTILES["p95_s"]
    is_enough = len(distances) >= min_samples(probability)
    return math.expm1(float(np.quantile(distances, probability)) if is_enough else max(distances))


def sign_test(ratios: list[float]) -> float:
    """Return the two-sided p of ratios being as often above 1 as below it. Those of exactly 1 do not count."""
    from scipy.stats import binomtest

    num_above, num_below = sum(ratio > 1 for ratio in ratios), sum(ratio < 1 for ratio in ratios)
    return float(binomtest(num_above, num_above + num_below).pvalue) if num_above + num_below else 1.0


def holds_limit(low: float | None, high: float | None, margin: float) -> bool:
    """Return whether a spread of a ratio, from low to high, has an end of the margin in it. None: there is no spread."""
    return low is not None and any(low <= limit <= high for limit in (1 + margin, 1 / (1 + margin)))


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
    """Return the two-sided p of the rank test: of two sides, or of the differences where there is one."""
    import scipy.stats

    if len(logs) == 1:
        return float(scipy.stats.wilcoxon(logs[0]).pvalue) if np.any(logs[0]) else 1.0
    is_small, is_tied = max(map(len, logs)) <= 50, len(np.unique(np.concatenate(logs))) < sum(map(len, logs))
    method = "exact" if is_small and not is_tied else "asymptotic"  # the exact test knows no ties
    return float(scipy.stats.mannwhitneyu(*logs, alternative="two-sided", method=method).pvalue)


def _typical_scatter(compared: list[Compared], is_paired: bool) -> float | None:
    """Return the median over the table of the launches' scatter, which few launches may agree better than by luck."""
    scatters = [s for c in compared if c.is_paired == is_paired and c.scatter_logs for s in c.scatter_logs]
    return float(np.median(scatters)) if scatters else None


def _table_test(compared: Compared, floor: float | None, num_tested: int) -> tuple[str, float | None]:
    """Return the name and the two-sided p of the test that a table of so many comparisons goes by."""
    import scipy.stats

    if compared.shift_log is None:
        return NO_TEST, None
    if compared.least_p <= FALSE_DISCOVERIES / num_tested:
        return compared.test, compared.p_value
    name, shift, scatters = T_TEST[compared.is_paired], compared.shift_log, _at_least(compared, floor)
    if not any(scatters):
        return name, float(shift == 0)
    if compared.is_paired:
        t = abs(shift) / (scatters[0] / math.sqrt(compared.num_base))
        return name, float(2 * scipy.stats.t.sf(t, compared.num_base - 1))
    sides = (0.0, scatters[0], compared.num_base, shift, scatters[1], compared.num_test)
    return name, float(scipy.stats.ttest_ind_from_stats(*sides, equal_var=False).pvalue)


def _at_least(compared: Compared, floor: float) -> tuple[float, ...]:
    """Return a cell's scatter, and no less than is typical of its table: three launches agree by luck now and then."""
    own = compared.scatter_logs or (floor,) * (1 if compared.is_paired else 2)
    return tuple(max(scatter, floor) for scatter in own)


def _launches_needed(compared: Compared, floor: float | None, margin: float, num_tested: int) -> int | None:
    """Return how many more launches per side settle a comparison with a chance of POWER, if its ratio and scatter last.

    The interval must come clear of the margin, and the corrected p below its level. Normal approximation; the standard
    error of a median is sqrt(pi / 2) times that of a mean.
    """
    from scipy.special import ndtri

    if floor is None or compared.ratio.median is None or holds_limit(compared.ratio.low, compared.ratio.high, margin):
        return None
    scatter, effect, limit = (
        math.hypot(*_at_least(compared, floor)),
        abs(math.log(compared.ratio.median)),
        math.log1p(margin),
    )
    if effect == limit:
        return None
    z_power = float(-ndtri((1 - POWER) / (1 if effect > limit else 2)))  # equivalence must hold at both ends
    needed = math.pi / 2 * ((1.96 + z_power) * scatter / (effect - limit)) ** 2
    if effect > limit:
        z_table = float(-ndtri(FALSE_DISCOVERIES / 2 / max(num_tested, 1)))
        needed = max(needed, ((z_table + z_power) * scatter / effect) ** 2)
    least = MIN_LAUNCHES_TEST if effect > limit else MIN_LAUNCHES_EQUIVALENT[compared.is_paired]
    needed = max(math.ceil(needed) + 2, least)  # two more, for what the scatter of so few is worth
    return max(needed - min(compared.num_base, compared.num_test), 1) if needed <= MOST_LAUNCHES else None
