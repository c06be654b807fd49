"""Multiple comparisons with the best: which of several settings may be the fastest, and what the others cost.

Hsu, Multiple Comparisons, 1996, with the constant of the studentized range: of equal settings, one is excluded in 5 %
of rows. Hsu's constant protects each setting, not the row. Definitions: docs/metrics.md.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from regatta.core.moderation import CONFIDENCE, Array, launch_statistics, moderate

MIN_LAUNCHES_SETTING = 2  # with fewer, a setting is undecided
# Degrees of freedom of the prior are divided by this: settings vary differently, and few rows determine the prior.
CAUTION = 1.5
# Few, since constants take time to compute.
FREEDOMS = (1, 1.2, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 25, 30, 40, 60, 120, 1000)


@dataclass(frozen=True)
class BestSettings:
    """The settings of each row, arrays of (..., rows, settings).

    cost, low, high: logarithm of the time over that of the best, and its simultaneous 95 % interval; NaN if undecided.
    may_be_best: not excluded. is_undecided: fewer than MIN_LAUNCHES_SETTING launches, or nothing to compare with.
    p_value: of each row, of its most significant difference; 1 for all rows that exclude none.
    """

    cost: Array
    low: Array
    high: Array
    may_be_best: Array
    is_undecided: Array
    p_value: Array


def best_settings(logs: Array, groups: Array) -> BestSettings:
    """Return which settings may be the best. logs: log times of (..., rows, settings, launches), NaN where missing.

    A column is one launch that measured all settings, so that its common level can be removed. Columns in which a
    setting is missing are left out if two or more remain, more than half: else launches count as independent, since
    the other settings would lose theirs. groups: as for the prior of `moderate`, whose cells are the rows here.
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
    freedom = np.maximum(freedom, 0).astype(float)
    squares = np.nansum((residuals - np.where(is_blocked[..., None, None], common, 0)) ** 2, (-1, -2))
    level = np.nansum(mean, -1) / np.maximum(num_settings, 1)
    of_rows = 2 * squares / np.maximum(freedom, 1), freedom
    of_rows = moderate(*of_rows, level, groups, independent=freedom / CAUTION)
    of_pairs = _pair_variances(residuals, variance, num, is_used, is_blocked)
    shares = of_pairs[1] * (freedom / np.maximum(of_pairs[1].sum(-1), 1))[..., None] / CAUTION
    flat = (*logs.shape[:-3], -1)
    levels, names = np.broadcast_to(level[..., None], shares.shape), np.repeat(groups, shares.shape[-1])
    arrays = (part.reshape(flat) for part in (*of_pairs, levels))
    found = moderate(*arrays, names, independent=shares.reshape(flat))
    variance = np.maximum(found[0].reshape(shares.shape), of_rows[0][..., None])
    freedom = np.minimum(found[1].reshape(shares.shape), of_rows[1][..., None])
    return _compared(mean, num, is_used, variance, freedom)


def _pair_variances(
    residuals: Array, variance: Array, num: Array, is_used: Array, is_blocked: Array
) -> tuple[Array, Array]:
    """Return the variance of the difference of each pair of settings in one launch, and its degrees of freedom."""
    i, j = np.triu_indices(num.shape[-1], 1)
    freedom = np.where(is_blocked[..., None], num[..., i] - 1, num[..., i] + num[..., j] - 2)
    freedom = np.where(is_used[..., i] & is_used[..., j], freedom, 0).astype(float)
    squares = np.nansum((residuals[..., i, :] - residuals[..., j, :]) ** 2, -1) / np.maximum(num[..., i] - 1, 1)
    return np.where(is_blocked[..., None], squares, variance[..., i] + variance[..., j]), freedom


def _compared(mean: Array, num: Array, is_used: Array, variance: Array, freedom: Array) -> BestSettings:
    """Reduce the differences of all pairs, with simultaneous intervals, to those from the best."""
    i, j = np.triu_indices(mean.shape[-1], 1)
    inverse, num_settings = 1 / np.maximum(num, 1), is_used.sum(-1)[..., None]
    error = np.sqrt(variance / 2 * (inverse[..., i] + inverse[..., j]) / 2)
    constant = range_constants(num_settings, freedom)
    ends = []
    for width in (-constant * error, constant * error, 0 * error):
        gaps = np.full((*mean.shape, mean.shape[-1]), -np.inf)
        gaps[..., i, j], gaps[..., j, i] = mean[..., i] - mean[..., j] + width, mean[..., j] - mean[..., i] + width
        ends.append(np.where(is_used, np.fmax(np.fmax.reduce(gaps, -1), 0), np.nan))
    low, high, cost = ends
    both = is_used[..., i] & is_used[..., j]
    ranges = np.where(both, np.abs(mean[..., i] - mean[..., j]) / error, 0)
    p_value = _p_values(ranges, constant, num_settings[..., 0], freedom)
    return BestSettings(cost, low, high, ~(low > 0), ~is_used, p_value)


def range_constants(num_settings: Array, freedom: Array) -> Array:
    """Return the 95 % quantiles of the studentized range, for degrees of freedom rounded down to FREEDOMS."""
    cases = np.stack(np.broadcast_arrays(num_settings, _rounded_down(freedom)), -1)
    unique, places = np.unique(cases.reshape(-1, 2), axis=0, return_inverse=True)
    found = np.array([_range_constant(int(num), float(freedom)) for num, freedom in unique])
    return found[places].reshape(cases.shape[:-1])


def _rounded_down(freedom: Array) -> Array:
    places = np.searchsorted(FREEDOMS, np.nan_to_num(freedom) + 1e-9, side="right") - 1
    return np.where(places < 0, 0.0, np.array(FREEDOMS)[np.maximum(places, 0)])


@functools.lru_cache(10_000)
def _range_constant(num_settings: int, freedom: float) -> float:
    from scipy.stats import studentized_range

    if num_settings < 2 or freedom <= 0:
        return math.inf
    return float(studentized_range.ppf(CONFIDENCE, num_settings, freedom))  # 100 ms


def _p_values(ranges: Array, constant: Array, num_settings: Array, freedom: Array) -> Array:
    """Return p of the pair of each row, (..., rows, pairs), whose range exceeds its constant most."""
    pair = np.argmax(ranges / constant, -1)[..., None]
    q, limit, freedom = (np.take_along_axis(part, pair, -1)[..., 0] for part in (ranges, constant, freedom))
    found = np.ones(q.shape)
    for place in zip(*np.nonzero(q > limit), strict=True):
        found[place] = _p_value(
            int(num_settings[place]), float(_rounded_down(freedom[place])), round(float(q[place]), 2)
        )
    return found


@functools.lru_cache(10_000)
def _p_value(num_settings: int, freedom: float, q: float) -> float:
    from scipy.stats import studentized_range

    return float(studentized_range.sf(q, num_settings, freedom))  # 20 ms
