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


@dataclass(frozen=True)
class BestSettings:
    """The settings of each row, arrays of (..., rows, settings).

    cost, low, high: logarithm of the time over that of the best, and its simultaneous 95 % interval; NaN if undecided.
    may_be_best: not excluded. is_undecided: fewer than MIN_LAUNCHES_SETTING launches, or nothing to compare with.
    """

    cost: Array
    low: Array
    high: Array
    may_be_best: Array
    is_undecided: Array


def best_settings(logs: Array, groups: Array) -> BestSettings:
    """Return which settings may be the best. logs: log times of (..., rows, settings, launches), NaN where missing.

    A column is one launch that measured all settings, so that its common level can be removed. Columns in which a
    setting is missing are left out, unless fewer than two remain: then launches count as independent. groups: as for
    the prior of `moderate`, whose cells are the rows here.
    """
    is_measured = np.isfinite(logs)
    is_used = is_measured.sum(-1) >= MIN_LAUNCHES_SETTING
    is_used &= is_used.sum(-1, keepdims=True) >= 2
    is_complete = np.all(is_measured | ~is_used[..., None], -2) & is_used.any(-1, keepdims=True)
    is_blocked = is_complete.sum(-1) >= 2
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
    return _compared(mean, num, is_used, variance, range_constants(num_settings[..., None], freedom))


def _pair_variances(
    residuals: Array, variance: Array, num: Array, is_used: Array, is_blocked: Array
) -> tuple[Array, Array]:
    """Return the variance of the difference of each pair of settings in one launch, and its degrees of freedom."""
    i, j = np.triu_indices(num.shape[-1], 1)
    freedom = np.where(is_blocked[..., None], num[..., i] - 1, num[..., i] + num[..., j] - 2)
    freedom = np.where(is_used[..., i] & is_used[..., j], freedom, 0).astype(float)
    squares = np.nansum((residuals[..., i, :] - residuals[..., j, :]) ** 2, -1) / np.maximum(num[..., i] - 1, 1)
    return np.where(is_blocked[..., None], squares, variance[..., i] + variance[..., j]), freedom


def _compared(mean: Array, num: Array, is_used: Array, variance: Array, constant: Array) -> BestSettings:
    """Reduce the differences of all pairs, with simultaneous intervals, to those from the best."""
    i, j = np.triu_indices(mean.shape[-1], 1)
    inverse = 1 / np.maximum(num, 1)
    half = constant * np.sqrt(variance / 2 * (inverse[..., i] + inverse[..., j]) / 2)
    ends = []
    for width in (-half, half, np.zeros(half.shape)):
        gaps = np.full((*mean.shape, mean.shape[-1]), -np.inf)
        gaps[..., i, j], gaps[..., j, i] = mean[..., i] - mean[..., j] + width, mean[..., j] - mean[..., i] + width
        ends.append(np.where(is_used, np.fmax(np.fmax.reduce(gaps, -1), 0), np.nan))
    low, high, cost = ends
    return BestSettings(cost, low, high, ~(low > 0), ~is_used)


def range_constants(num_settings: Array, freedom: Array) -> Array:
    """Return the 95 % quantiles of the studentized range, for degrees of freedom rounded down to two digits."""
    step = 10.0 ** (np.floor(np.log10(np.clip(freedom, 1, 1000))) - 1)
    rounded = np.floor(np.minimum(freedom, 1000) / step + 1e-9) * step
    cases = np.stack(np.broadcast_arrays(num_settings, rounded), -1)
    unique, places = np.unique(cases.reshape(-1, 2), axis=0, return_inverse=True)
    found = np.array([_range_constant(int(num), round(float(freedom), 1)) for num, freedom in unique])
    return found[places].reshape(cases.shape[:-1])


@functools.lru_cache(10_000)
def _range_constant(num_settings: int, freedom: float) -> float:
    from scipy.stats import studentized_range

    if num_settings < 2 or freedom <= 0:
        return math.inf
    return float(studentized_range.ppf(CONFIDENCE, num_settings, freedom))  # 50 ms
