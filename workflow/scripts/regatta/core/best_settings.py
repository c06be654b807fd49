"""Multiple comparisons with the best: which of several settings may be the fastest, and how much slower the others are.

Hsu, Multiple Comparisons, 1996, with critical values of the studentized range: if all settings are equal, one is
excluded in 5 % of rows. Hsu's critical value controls errors per setting, not per row. Definitions: docs/metrics.md.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from regatta.core.moderation import CONFIDENCE, Array, launch_statistics, moderate

MIN_LAUNCHES_SETTING = 2  # with fewer, a setting is undecided
# Divisor of the prior's degrees of freedom: settings have different variances, and few rows determine the prior.
CAUTION = 1.5
# Few, since constants take time to compute; others are rounded down.
FREEDOMS = (0, 1, 1.2, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 25, 30, 40, 60, 120, 1000)
NORMAL = np.arange(-45, 46) / 5  # grid of standard normal values
DENSITY = np.exp(-(NORMAL**2) / 2) / np.exp(-(NORMAL**2) / 2).sum()


@dataclass(frozen=True)
class BestSettings:
    """The settings of each row, arrays of (..., rows, settings).

    cost, low, high: logarithm of the time over that of the best, and its simultaneous 95 % interval; NaN if undecided.
    may_be_best: not excluded. is_undecided: fewer than MIN_LAUNCHES_SETTING launches, or nothing to compare with.
    p_value: of the most significant difference of each row; 1 if the row excludes none.
    """

    cost: Array
    low: Array
    high: Array
    may_be_best: Array
    is_undecided: Array
    p_value: Array


def best_settings(logs: Array) -> BestSettings:
    """Return which settings may be the best. logs: log times of (..., rows, settings, launches), NaN where missing.

    A column is one launch that measured all settings, so that its common level can be removed. Columns in which a
    setting is missing are left out if two or more remain, more than half: else launches count as independent, since
    the other settings would lose theirs. All rows are of one benchmark, and share a prior.
    """
    is_measured = np.isfinite(logs)
    is_used = is_measured.sum(-1) >= MIN_LAUNCHES_SETTING
    is_used &= is_used.sum(-1, keepdims=True) >= 2
    is_complete = np.all(is_measured | ~is_used[..., None], -2) & is_used.any(-1, keepdims=True)
    num_columns = (is_measured & is_used[..., None]).any(-2).sum(-1)
    is_blocked = (is_complete.sum(-1) >= 2) & (2 * is_complete.sum(-1) > num_columns)
    kept = is_used[..., None] & (is_complete | ~is_blocked[..., None])[..., None, :]
    num, mean, variance, residuals = launch_statistics(np.where(kept, logs, np.nan))
    num_settings = is_used.sum(-1)
    common = np.nansum(residuals, -2, keepdims=True) / np.maximum(num_settings, 1)[..., None, None]
    freedom = np.where(is_blocked, (is_complete.sum(-1) - 1) * (num_settings - 1), np.maximum(num - 1, 0).sum(-1))
    squares = np.nansum((residuals - np.where(is_blocked[..., None, None], common, 0)) ** 2, (-1, -2))
    level, groups = np.nansum(mean, -1) / np.maximum(num_settings, 1), np.zeros(logs.shape[-3])
    of_rows = moderate(2 * squares / np.maximum(freedom, 1), freedom, level, groups, independent=freedom / CAUTION)
    i, j = np.triu_indices(logs.shape[-2], 1)
    of_pairs = np.nansum((residuals[..., i, :] - residuals[..., j, :]) ** 2, -1) / np.maximum(num[..., i] - 1, 1)
    of_pairs = np.where(is_blocked[..., None], of_pairs, variance[..., i] + variance[..., j])
    alone = np.where(is_blocked[..., None], num[..., i] - 1, num[..., i] + num[..., j] - 2)  # degrees of freedom
    alone = np.where(is_used[..., i] & is_used[..., j], alone, 0)
    shares = alone * (freedom / np.maximum(alone.sum(-1), 1))[..., None] / CAUTION
    flat = (*logs.shape[:-3], -1)
    levels, names = np.broadcast_to(level[..., None], shares.shape), np.repeat(groups, shares.shape[-1])
    arrays = (part.reshape(flat) for part in (of_pairs, alone, levels))
    found = moderate(*arrays, names, independent=shares.reshape(flat))
    variance = np.maximum(found[0].reshape(shares.shape), of_rows[0][..., None])
    freedom = np.minimum(found[1].reshape(shares.shape), of_rows[1][..., None])
    return _compared(mean, num, is_used, variance, freedom)


def _compared(mean: Array, num: Array, is_used: Array, variance: Array, freedom: Array) -> BestSettings:
    """Reduce the simultaneous intervals of all pairwise differences to those from the best."""
    i, j = np.triu_indices(mean.shape[-1], 1)
    inverse, num_settings = 1 / np.maximum(num, 1), is_used.sum(-1)[..., None]
    error = np.sqrt(variance / 2 * (inverse[..., i] + inverse[..., j]) / 2)
    freedom = np.array(FREEDOMS)[np.searchsorted(FREEDOMS, np.nan_to_num(freedom) + 1e-9, side="right") - 1]
    constant = _range_constant(num_settings, freedom)
    ends = []
    for width in (-constant * error, constant * error, 0 * error):
        gaps = np.full((*mean.shape, mean.shape[-1]), -np.inf)
        gaps[..., i, j], gaps[..., j, i] = mean[..., i] - mean[..., j] + width, mean[..., j] - mean[..., i] + width
        ends.append(np.where(is_used, np.fmax(np.fmax.reduce(gaps, -1), 0), np.nan))
    low, high, cost = ends
    ranges = np.where(is_used[..., i] & is_used[..., j], np.abs(mean[..., i] - mean[..., j]) / error, 0)
    pair = np.argmax(ranges / constant, -1)[..., None]
    q, limit, freedom = (np.take_along_axis(part, pair, -1) for part in (ranges, constant, freedom))
    p_value = _p_value(np.where(q > limit, np.round(q, 2), 0), num_settings, freedom)[..., 0]
    return BestSettings(cost, low, high, ~(low > 0), ~is_used, p_value)


@functools.partial(np.vectorize, otypes=[float])
@functools.lru_cache(10_000)
def _range_constant(num_settings: int, freedom: float) -> float:
    """Return the 95 % quantile of the studentized range."""
    if num_settings < 2 or freedom <= 0:
        return math.inf
    from scipy.optimize import brentq

    return brentq(lambda q: exceeding(q, num_settings, freedom) - (1 - CONFIDENCE), 0, 1e5, xtol=1e-12)


@functools.partial(np.vectorize, otypes=[float])
@functools.lru_cache(10_000)
def _p_value(q: float, num_settings: int, freedom: float) -> float:
    """Return p of a range of this size; 1 of one that is 0."""
    return exceeding(q, num_settings, freedom) if q else 1.0


def exceeding(q: float, num_settings: int, freedom: float) -> float:
    """Return the probability that the studentized range exceeds q, within 1e-9 of itself.

    It is an integral over log(s), s the estimated over the true deviation, of that of the range of normal values. Both
    integrands end smoothly in zero, so sums over a grid converge exponentially. scipy.stats.studentized_range takes 10
    times as long with an error of 3e-12, a quantile 100 ms, and half a second to import.
    """
    from scipy.special import ndtr

    most = 0.5 * math.log1p((80 + 2 * math.sqrt(40 * freedom)) / freedom)  # beyond the ends, less than exp(-40)
    least = -math.sqrt(40 / freedom) - 40 / freedom
    log_s = np.arange(least, most, min(0.1, 0.25 / math.sqrt(freedom)))
    weights = np.exp(freedom * log_s - freedom / 2 * np.expm1(2 * log_s))
    # If the largest value is NORMAL, each other is below it, with this probability by more than the range.
    lower = np.minimum(ndtr(NORMAL - (q * np.exp(log_s))[:, None]) / ndtr(NORMAL), 1 - 1e-16)
    largest = num_settings * ndtr(NORMAL) ** (num_settings - 1) * DENSITY
    return float(weights @ (-np.expm1((num_settings - 1) * np.log1p(-lower)) @ largest) / weights.sum())
