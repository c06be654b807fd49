"""Moderated variances: the variance of a cell with few launches, stabilized by the variances of all cells.

Data are logarithms of times, arrays of (..., cells, launches) with NaN where a launch is missing; a column is one
launch or repeat. Leading axes are independent campaigns. batches, (cells,): cells with the same value share their
launches; by default all do. Definitions: docs/metrics.md. Error rates and rejected alternatives:
docs/decisions/0007-intervals-and-verdicts.md. Sources: Smyth 2004, doi:10.2202/1544-6115.1027; Welch
1947, doi:10.1093/biomet/34.1-2.28; Benjamini and Hochberg 1995, doi:10.1111/j.2517-6161.1995.tb02031.x.
"""

from dataclasses import dataclass, replace

import numpy as np

from regatta.core.correlation import CORRELATIONS, LONGEST, Array, Sides, inflation, serial_correlation, serial_factors

CONFIDENCE = 0.95
MIN_LAUNCHES = 3  # per side, for an interval and for a test
FALSE_DISCOVERIES = 0.01  # probability of any finding in a table if nothing differs
POWER = 0.8  # probability that the estimated number of additional launches settles a row
MOST_LAUNCHES = 100  # more are never recommended
MIN_OTHERS = 3  # with fewer, a single slow member shifts the median
MIN_CELLS_PRIOR = 8  # benchmarks with fewer cells share one prior
MIN_CELLS_TREND = 12  # with 8, a trend gives 4 % of unchanged campaigns of 3 launches a false finding

# Weak priors of the fit. Without them, 2 degrees of freedom per cell often give d0 = infinity.
PRIOR_MEAN = np.log([1, 1, 4])  # of a, b and log d0: the prior on d0 is log-normal around 4
PRIOR_FREEDOM_SD = 1.0  # of log d0
SLOPE_SD = 0.5  # of d log variance / d log time; 10 % at 20 us and 1 % at 300 ms give a slope of -0.48
LEAST_VARIANCE = 1e-18  # a relative variation of 1e-9 is below the resolution of any clock
MAX_STEPS, TOLERANCE = 200, 1e-8

BatchesOfSides = tuple[Array | None, Array | None]


@dataclass(frozen=True)
class Contrasts:
    """Differences of mean log times, arrays of (..., cells): test minus base.

    variance: moderated, of one launch (of one difference if paired; over both sides, weighted by 1/n). freedom: its
    degrees of freedom; 0 if nothing is known. num_base, num_test: launches. Pairs are compared with 0, known as from
    infinitely many. correlation: of successive launches, (..., 1), 0 unless significant. widening: factor of all
    standard errors for it. least: launches of either side for a test.
    """

    shift: Array
    variance: Array
    freedom: Array
    num_base: Array
    num_test: Array | float
    correlation: Array | float = 0.0
    widening: Array | float = 1.0
    least: Array | int = MIN_LAUNCHES

    @property
    def num(self) -> Array:
        """Return the launches of the side with fewer."""
        return np.minimum(self.num_base, self.num_test)

    def squared_error(self, more: Array | int = 0) -> Array:
        """Return the squared standard error of the shift, after so many more launches per side."""
        return self.variance * sum(1 / np.maximum(num + more, 1) for num in (self.num_base, self.num_test))

    @property
    def half_width(self) -> Array:
        """Return half the width of the 95 % interval of the shift."""
        return t_quantile(self.freedom, CONFIDENCE) * np.sqrt(self.squared_error())

    @property
    def p_value(self) -> Array:
        """Return the two-sided p of a shift of 0, not corrected for the number of cells; NaN for too few launches."""
        from scipy.special import stdtr

        p_value = 2 * stdtr(self.freedom, -np.abs(self.shift) / np.sqrt(self.squared_error()))
        return np.where(self.num < self.least, np.nan, p_value)


def t_quantile(freedom: Array, confidence: Array | float) -> Array:
    """Return the two-sided quantile of the t distribution."""
    from scipy.special import stdtrit

    return stdtrit(freedom, (1 + confidence) / 2)


def fit_prior(variance: Array, freedom: Array, level: Array, is_cautious: bool = False) -> tuple[Array, Array]:
    """Return s0 squared of each cell, (..., cells), and d0, (...,): variance / s0 squared follows F(freedom, d0).

    log s0 squared = a + b level, where level is log time; b is 0 below MIN_CELLS_TREND cells. Penalized maximum
    likelihood by Fisher scoring. Cells with 0 degrees of freedom have no weight, but get s0 squared. is_cautious: use
    the mode of the log-normal distribution of d0 instead of its median; the mode is lower if few cells determine it.
    """
    is_known = freedom > 0
    variance = np.where(is_known, np.maximum(variance, LEAST_VARIANCE), 1.0)
    total = np.maximum(freedom.sum(-1), 1e-300)
    has_trend = is_known.sum(-1, keepdims=True) >= MIN_CELLS_TREND
    x = np.where(has_trend, level - (np.sum(freedom * level, -1) / total)[..., None], 0)
    start = np.log(np.maximum(np.sum(freedom * variance, -1) / total, LEAST_VARIANCE))
    theta = start[..., None] * [1, 0, 0] + PRIOR_MEAN  # a, b, log d0
    for _ in range(MAX_STEPS):
        step, information = _scoring_step(theta, variance, freedom, x)
        theta += step
        if np.abs(step).max(initial=0) < TOLERANCE:
            break
    uncertainty = np.linalg.inv(information)[..., 2, 2] if is_cautious else 0  # squared standard error of log d0
    return np.exp(theta[..., 0, None] + theta[..., 1, None] * x), np.exp(theta[..., 2] - uncertainty)


def _scoring_step(theta: Array, variance: Array, d: Array, x: Array) -> tuple[Array, Array]:
    """Return the step of a, b and log d0: inverse expected information times gradient of the log posterior; and
    the information."""
    from scipy.special import digamma, polygamma

    a, b, log_k = np.moveaxis(theta, -1, 0)[..., None]
    k = np.exp(log_k)
    q = d * variance * np.exp(-a - b * x) / k
    u = q / (1 + q)
    by_a = (d + k) / 2 * u - d / 2
    by_k = (digamma((d + k) / 2) - digamma(k / 2) - d / k - np.log1p(q) + (1 + d / k) * u) / 2
    precision = np.array([0, SLOPE_SD**-2, PRIOR_FREEDOM_SD**-2])  # of the weak priors
    gradient = np.stack([part.sum(-1) for part in (by_a, by_a * x, k * by_k)], -1) - precision * (theta - PRIOR_MEAN)
    aa, ak = d * k / (2 * (d + k + 2)), -k * d / ((d + k) * (d + k + 2))
    num = (d > 0).sum(-1, keepdims=True)
    d = d.sum(-1, keepdims=True) / np.maximum(num, 1)  # the mean is accurate enough for a step
    kk = (polygamma(1, k / 2) - polygamma(1, (d + k) / 2)) / 4 - d / (k * (d + k)) + d / (2 * k * (d + k + 2))
    sums = [part.sum(-1) for part in (aa, aa * x, aa * x**2, ak, ak * x, num * k**2 * kk)]
    information = np.stack([sums[i] for i in (0, 1, 3, 1, 2, 4, 3, 4, 5)], -1).reshape(*theta.shape, 3)
    information += np.diag(np.maximum(precision, 1e-12))
    step = np.linalg.solve(information, gradient[..., None])[..., 0]
    return np.clip(step, -2, 2), information  # the first steps may be far too long


def moderate(
    variance: Array,
    freedom: Array,
    level: Array,
    groups: Array,
    sides: Sides = (),
    independent: Array | None = None,
) -> tuple[Array, Array]:
    """Return moderated variances and their degrees of freedom, (..., cells).

    groups: (cells,), the benchmark of each; those with MIN_CELLS_PRIOR cells of known variance have a prior each.
    sides: residuals of the launches, with batches. Cells of one launch share its ups and downs, so the prior is worth
    at most sum(d) / (1 + (G - 1) r) degrees of freedom, with r the mean correlation between the G cells, 0 between
    batches. independent: the degrees of freedom that count in this sum, if fewer; the prior is then cautious.
    """
    is_cautious, independent = independent is not None, freedom if independent is None else independent
    is_known = np.any(freedom > 0, tuple(range(freedom.ndim - 1)))
    names, counts = np.unique(groups[is_known], return_counts=True)
    groups = np.where(np.isin(groups, names[counts >= MIN_CELLS_PRIOR]), groups, "")
    found, found_freedom = np.empty(variance.shape), np.empty(variance.shape)
    for name in np.unique(groups):
        at = groups == name
        d = freedom[..., at]
        s0, d0 = fit_prior(variance[..., at], d, level[..., at], is_cautious)
        total = d0[..., None] + d
        found[..., at] = moderated = np.maximum((d0[..., None] * s0 + d * variance[..., at]) / total, LEAST_VARIANCE)
        most = independent[..., at].sum(-1)
        if sides:
            scale = np.sqrt(moderated)[..., None]
            most = most / inflation([(residuals[..., at, :] / scale, batches[at]) for residuals, batches in sides])
        found_freedom[..., at] = np.maximum(np.minimum(total, most[..., None]), d)
    return found, found_freedom


def launch_statistics(logs: Array) -> tuple[Array, Array, Array, Array]:
    """Return number, mean and variance (0 below two launches) of the launches of each cell, and the residuals."""
    num = np.isfinite(logs).sum(-1)
    mean = np.nansum(logs, -1) / np.where(num > 0, num, np.nan)
    residuals = logs - mean[..., None]
    return num, mean, np.nansum(residuals**2, -1) / np.maximum(num - 1, 1), residuals


def _widened(num: Array, variance: Array, correlation: Array) -> tuple[Array, Array, Array]:
    """Return the variance corrected for serial correlation, its degrees of freedom, and the correction factor.

    The corrected variance / n is the variance of the mean.
    """
    freedom, factor = np.maximum(num - 1.0, 0), np.ones(num.shape)
    place = np.broadcast_to(np.searchsorted(CORRELATIONS, correlation - 1e-9), num.shape)
    for count in np.unique(num[(num > 1) & (place > 0)]):
        at = (num == count) & (place > 0)
        known = min(int(count), LONGEST)
        factor[at], share = serial_factors(known)[1:, place[at]]
        freedom[at] = share * (count - 1) / (known - 1)
    return variance * factor, freedom, factor


def excess_kurtosis(logs: Array) -> Array:
    """Return the excess kurtosis of launches, pooled over cells, (..., 1), at least 0.

    It is the mean of G2 (Joanes and Gill 1998, doi:10.1111/1467-9884.00122), weighted by launches - 3: 3 show nothing.
    """
    num, _, variance, residuals = launch_statistics(logs)
    n, is_known = np.maximum(num, 3), (num > 3) & (variance > LEAST_VARIANCE)
    fourth = np.nansum(residuals**4, -1) / np.maximum(variance, LEAST_VARIANCE) ** 2
    excess = n * (n + 1) / (n - 1) / (n - 2) * fourth - 3 * (n - 1) ** 2 / (n - 2)  # G2 times n - 3
    excess, weight = (np.sum(part, -1, where=is_known) for part in (excess, n - 3))
    return np.maximum(excess / np.maximum(weight, 1), 0)[..., None]


def mean_intervals(values: Array, groups: Array, is_log: bool = True, batches: Array | None = None) -> Contrasts:
    """Return the means of cells: the contrast of each with 0. is_log: false if values are not log times.

    The variance of s^2 grows with the kurtosis of launches, so s^2 counts with fewer degrees of freedom. Contrasts of
    two cells do not need this: what makes one mean err cancels in them.
    """
    return paired_contrasts(values, values if is_log else 0 * values, groups, excess_kurtosis(values), batches)


def paired_contrasts(
    differences: Array, levels: Array, groups: Array, kurtosis: Array | float = 0.0, batches: Array | None = None
) -> Contrasts:
    """Return the contrasts of paired launches. levels: log times of the same shape, for the trend of the prior."""
    num, mean, variance, residuals = launch_statistics(differences)
    sides = ((residuals, _numbers(batches, groups)),)
    level, correlation = np.nan_to_num(launch_statistics(levels)[1]), serial_correlation(sides)
    variance, freedom, factor = _widened(num, variance, correlation)
    freedom = freedom / (1 + kurtosis * freedom / (2 * np.maximum(num, 1)))
    found = moderate(variance, freedom, level, groups, sides)
    return Contrasts(mean, *found, num, np.inf, correlation, np.sqrt(factor))


def _numbers(batches: Array | None, groups: Array) -> Array:
    """Return the batches of cells as numbers from 0."""
    return np.unique(np.zeros(len(groups)) if batches is None else batches, return_inverse=True)[1]


def unpaired_contrasts(base: Array, test: Array, groups: Array, batches: BatchesOfSides = (None, None)) -> Contrasts:
    """Return the contrasts of unpaired launches. batches: of base and test.

    Their variance has Welch's degrees of freedom, computed with moderated variances of both sides. Each side has a
    separate prior, because one stack may vary more. The variance of the contrast is then moderated as well.
    """
    nums, means, variances, residuals = zip(*map(launch_statistics, (base, test)), strict=True)
    batches = [_numbers(of_side, groups) for of_side in batches]
    level = np.nan_to_num(sum(means) / 2)
    correlation = serial_correlation(tuple(zip(residuals, batches, strict=True)))
    widened, freedoms, _ = _widened(np.array(nums), np.array(variances), correlation)
    moderated = [moderate(*side, level, groups)[0] for side in zip(widened, freedoms, strict=True)]
    counts, is_known = np.maximum(nums, 1), freedoms.min(0) > 0
    parts = moderated / counts
    welch = np.where(is_known, parts.sum(0) ** 2 / np.sum(parts**2 / np.maximum(freedoms, 1e-3), 0), 0.0)
    alone, error = (np.sum(np.maximum(of_launches, 1e-300) / counts, 0) for of_launches in (variances, widened))
    residuals = (np.where(is_known[..., None], of_side, np.nan) for of_side in residuals)
    sides = tuple(zip(residuals, batches, strict=True))
    found = moderate(error / np.sum(1 / counts, 0), welch, level, groups, sides)
    return Contrasts(means[1] - means[0], *found, *nums, correlation, np.sqrt(error / alone))


def allocation_contrasts(
    base: Array, test: Array, groups: Array, launches: tuple[Array, Array], batches: BatchesOfSides = (None, None)
) -> Contrasts:
    """Return the contrasts of mean log times of allocations, (..., cells, allocations), with a common variance.

    One side may have a single allocation, if the other has several. The cells of one side may vary more, or have fewer
    launches in an allocation, so the interval is at least that of `launches`: log times of base and test.
    """
    nums, means, _, residuals = zip(*map(launch_statistics, (base, test)), strict=True)
    freedom = sum(np.maximum(num - 1.0, 0) for num in nums)
    variance = sum(np.nansum(of_side**2, -1) for of_side in residuals) / np.maximum(freedom, 1)
    sides = tuple((of_side, _numbers(of, groups)) for of_side, of in zip(residuals, batches, strict=True))
    found = moderate(variance, freedom, np.nan_to_num(sum(means) / 2), groups, sides)
    contrasts = Contrasts(means[1] - means[0], *found, *nums, least=1)
    alone = unpaired_contrasts(*launches, groups, batches)
    is_wider = alone.half_width > contrasts.half_width
    variance = np.where(is_wider, alone.squared_error() / sum(1 / num for num in nums), contrasts.variance)
    return replace(contrasts, variance=variance, freedom=np.where(is_wider, alone.freedom, contrasts.freedom))


def adjust_for_number(p_value: Array) -> Array:
    """Return p values corrected over the last axis by Benjamini and Hochberg; NaN is not counted and stays."""
    order = np.argsort(p_value, -1)  # NaN last
    num = np.isfinite(p_value).sum(-1, keepdims=True)
    raised = np.take_along_axis(p_value, order, -1) * num / np.arange(1, p_value.shape[-1] + 1)
    lowest = np.fmin.accumulate(raised[..., ::-1], -1)[..., ::-1]
    return np.take_along_axis(np.minimum(lowest, 1), np.argsort(order, -1), -1)


def words(contrasts: Contrasts, p_adjusted: Array, margin: Array, allowance: Array | float = 0.0) -> Array:
    """Return faster, slower, equivalent or inconclusive for each cell.

    margin: logarithm of 1 + the relative difference up to which times are equivalent. allowance: logarithm added to it
    for faster and slower.
    """
    half, limit = contrasts.half_width, margin + allowance
    low, high = contrasts.shift - half, contrasts.shift + half
    is_found, is_enough = p_adjusted <= FALSE_DISCOVERIES, contrasts.num >= contrasts.least
    cases = [is_found & (low > limit), is_found & (high < -limit), is_enough & (-margin <= low) & (high <= margin)]
    return np.select(cases, ["slower", "faster", "equivalent"], "inconclusive")


def launches_needed(
    contrasts: Contrasts, p_adjusted: Array, margin: Array, allowance: Array | float = 0.0, is_gate: bool = False
) -> Array:
    """Return the smallest number of additional launches per side that settle a verdict with probability POWER.

    NaN if it is above MOST_LAUNCHES. is_gate: settled is what is slower by more than margin and allowance, or cannot
    be. From the predictive distribution: with m more launches the shift moves by a t variable, whose squared scale is
    the difference of the squared standard errors. The p that counts is that of one more finding in the table.
    """
    num = np.isfinite(p_adjusted).sum(-1, keepdims=True)
    num_found = (p_adjusted <= FALSE_DISCOVERIES).sum(-1, keepdims=True)
    level = FALSE_DISCOVERIES * np.minimum(num_found + 1, np.maximum(num, 1)) / np.maximum(num, 1)
    open_with = np.zeros(contrasts.shift.shape)  # so many more launches
    for step in (64, 32, 16, 8, 4, 2, 1):
        is_enough = _settled(contrasts, open_with + step, margin, allowance, level, is_gate) >= POWER
        open_with = np.where(is_enough, open_with, open_with + step)
    return np.where(open_with < MOST_LAUNCHES, open_with + 1, np.nan)


def _settled(
    contrasts: Contrasts, more: Array, margin: Array, allowance: Array | float, level: Array, is_gate: bool
) -> Array:
    """Return the probability of a verdict with this many additional launches per side."""
    from scipy.special import stdtr

    freedom, later = contrasts.freedom, contrasts.squared_error(more)
    error, moves = np.sqrt(later), np.sqrt(contrasts.squared_error() - later)
    half = t_quantile(freedom + more, CONFIDENCE) * error
    beyond = np.maximum(margin + allowance + half, t_quantile(freedom + more, 1 - level) * error)
    within = np.maximum(np.where(contrasts.num + more >= contrasts.least, margin - half, 0), 0)
    within = margin + allowance - half if is_gate else within
    ends = [(end * sign - contrasts.shift) / moves for end in (within, beyond) for sign in (1, -1)]
    up, down, more_up, more_down = (stdtr(freedom, end) for end in ends)
    if is_gate:  # however fast
        return up + 1 - more_up
    return up - down + 1 - more_up + more_down


def median_of_others(logs: Array) -> Array:
    """Return, for each of (..., members, launches), the median of the other members in the same launch; NaN if alone.

    With fewer than MIN_OTHERS others it is the median of all: one slow member of three would make the others look fast.
    """
    order = np.argsort(logs, -2)  # NaN last
    rank, ordered = np.argsort(order, -2), np.take_along_axis(logs, order, -2)
    num = np.isfinite(logs).sum(-2, keepdims=True)
    is_all, last = num <= MIN_OTHERS, logs.shape[-2] - 1
    middle = [np.maximum(place, 0) for place in ((num - 2 + is_all) // 2, (num - 1 + is_all) // 2)]
    places = [np.minimum(place + (~is_all & (place >= rank)), last) for place in middle]
    ends = [np.take_along_axis(ordered, place, -2) for place in places]
    return np.where((num > 1) & np.isfinite(logs), (ends[0] + ends[1]) / 2, np.nan)
