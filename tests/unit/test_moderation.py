"""Moderated variances against formulas that are written out here, and comparisons with the best."""

import math
import statistics

import numpy as np
import pytest
import scipy.stats
from scipy.optimize import minimize
from scipy.special import gammaln

from regatta.core import moderation
from regatta.core.best_settings import best_settings
from regatta.core.correlation import serial_correlation
from regatta.core.moderation import (
    fit_prior,
    mean_intervals,
    median_of_others,
    moderate,
    paired_contrasts,
    unpaired_contrasts,
)


def draws(num_cells, freedom, d0, seed=1, slope=0.0):
    """Return variances around a scaled F distribution, and log times."""
    random, level = np.random.default_rng(seed), np.linspace(-3, 3, num_cells)
    s0 = 4e-4 * np.exp(slope * level)
    return s0 * random.chisquare(freedom, num_cells) / freedom / (random.chisquare(d0, num_cells) / d0), level


@pytest.mark.parametrize(("num_cells", "freedom", "slope"), [(50, 2, 0), (20, 4, -0.5), (4, 2, 0), (500, 2, -0.3)])
def test_the_prior_has_the_largest_posterior_density(num_cells, freedom, slope):
    variance, level = draws(num_cells, freedom, 4, slope=slope)
    x = level - level.mean() if num_cells >= moderation.MIN_CELLS_TREND else 0 * level

    def loss(theta):
        a, b, k = theta[0], theta[1], math.exp(theta[2])
        f = variance / np.exp(a + b * x)
        likelihood = gammaln((freedom + k) / 2) - gammaln(k / 2) + freedom / 2 * np.log(freedom * f / k)
        likelihood -= (freedom + k) / 2 * np.log1p(freedom * f / k)
        return -likelihood.sum() + b**2 / (2 * 0.5**2) + (theta[2] - math.log(4)) ** 2 / 2

    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 10_000}
    best = minimize(loss, [math.log(4e-4), 0, 1], method="Nelder-Mead", options=options).x
    s0, d0 = fit_prior(variance, np.full(num_cells, float(freedom)), level)
    assert math.log(d0) == pytest.approx(best[2], abs=1e-4)
    assert np.log(s0) == pytest.approx(best[0] + best[1] * x, abs=1e-4)


def test_many_cells_return_the_parameters_they_were_drawn_with():
    variance, level = draws(20_000, 4, 6, slope=-0.4)
    s0, d0 = fit_prior(variance, np.full(20_000, 4.0), level)
    assert d0 == pytest.approx(6, rel=0.05)
    assert np.polyfit(level, np.log(s0), 1) == pytest.approx([-0.4, math.log(4e-4)], abs=0.02)


def test_a_moderated_variance_is_the_weighted_mean_with_the_prior():
    variance, level = draws(50, 2, 4)
    freedom = np.full(50, 2.0)
    s0, d0 = fit_prior(variance, freedom, level)
    found, found_freedom = moderate(variance, freedom, level, np.full(50, "collective"))
    assert found == pytest.approx((d0 * s0 + 2 * variance) / (d0 + 2))
    assert found_freedom == pytest.approx(np.full(50, d0 + 2))  # far below the sum of all, 100


def test_the_prior_of_cells_that_share_the_ups_and_downs_of_launches_is_worth_less():
    random = np.random.default_rng(2)
    common = random.standard_normal(3)
    logs = 0.02 * (np.sqrt(0.99) * common + np.sqrt(0.01) * random.standard_normal((50, 3)))
    groups = np.full(50, "collective")
    alone = mean_intervals(0.02 * random.standard_normal((50, 3)), groups).freedom
    shared = mean_intervals(logs, groups).freedom
    assert alone.min() > 5
    assert shared.max() < 2.2  # 100 / (1 + 49 x 0.99) = 2.0
    assert shared.min() >= 2


@pytest.mark.parametrize("share", [0.0, 0.6, 0.9])
def test_two_allocations_that_do_not_differ_are_rarely_found_to(share):
    """share: of the variance common to all cells of an allocation, whose correlation rests on one difference."""
    random = np.random.default_rng(1)
    common, alone = random.standard_normal((1000, 1, 2)), random.standard_normal((1000, 50, 2))
    logs = 0.02 * (np.sqrt(share) * common + np.sqrt(1 - share) * alone)
    found = paired_contrasts(logs, np.zeros(logs.shape), np.full(50, "a"))
    p_value = 2 * scipy.stats.t.sf(np.abs(found.shift) / np.sqrt(found.squared_error()), found.freedom)
    assert np.mean((moderation.adjust_for_number(p_value) <= 0.01).any(-1)) <= 0.04
    assert np.mean(np.abs(found.shift) <= found.half_width) >= 0.93


def test_intervals_allow_for_means_of_fewer_launches_on_one_side():
    """Ten allocations of 5 launches and three of 1: the common variance of means is that of the side with more."""
    random = np.random.default_rng(12)
    base, test = (0.02 * random.standard_normal((300, 50, num)) for num in (50, 3))
    means = base.reshape(300, 50, 10, 5).mean(-1), test
    found = moderation.allocation_contrasts(*means, np.full(50, "a"), (base, test))
    assert np.mean(np.abs(found.shift) <= found.half_width) >= 0.93


def test_benchmarks_with_few_cells_share_a_prior():
    variance, level = draws(30, 2, 4)
    freedom, names = np.full(30, 2.0), np.array(["a"] * 20 + ["b"] * 7 + ["c"] * 3)
    found, _ = moderate(variance, freedom, level, names)
    for at in (slice(0, 20), slice(20, 30)):
        s0, d0 = fit_prior(variance[at], freedom[at], level[at])
        assert found[at] == pytest.approx((d0 * s0 + 2 * variance[at]) / (d0 + 2))


def test_cells_with_one_launch_do_not_count_as_cells_with_a_prior():
    variance, level = draws(30, 2, 4)
    freedom, names = np.full(30, 2.0), np.array([*"cdefghijklmnopqrstuv", *"b" * 10])
    freedom[23:] = 0  # three of ten have more than one launch
    found, _ = moderate(variance, freedom, level, names)
    s0, d0 = fit_prior(variance, freedom, level)  # a shared prior
    assert found[20:23] == pytest.approx(((d0 * s0 + 2 * variance) / (d0 + 2))[20:23])


def test_intervals_are_t_intervals_of_the_moderated_variance():
    logs = np.random.default_rng(3).normal(0, 0.02, (40, 5))
    found = mean_intervals(logs, np.full(40, "a"))
    quantile = scipy.stats.t.ppf(0.975, found.freedom)
    assert found.half_width == pytest.approx(quantile * np.sqrt(found.variance / 5))
    assert found.shift == pytest.approx(logs.mean(1))
    test = mean_intervals(logs + 0.05, np.full(40, "a"))
    expected = 2 * scipy.stats.t.sf(abs(test.shift) / np.sqrt(test.variance / 5), test.freedom)
    assert test.p_value == pytest.approx(expected, rel=1e-9)


def test_heavy_tails_reduce_the_degrees_of_freedom_of_means():
    """By G2 of scipy, averaged with weights of launches - 3: cells of 4 launches count 1, those of 8 count 5."""
    logs = 0.02 * np.random.default_rng(9).standard_t(4, (40, 8))
    logs[:20, 4:] = np.nan
    few, many = logs[:20, :4], logs[20:]
    sums = [weight * scipy.stats.kurtosis(part, axis=1, bias=False).sum() for weight, part in ((1, few), (5, many))]
    kurtosis = sum(sums) / (20 * 1 + 20 * 5)
    assert kurtosis > 0.5
    assert moderation.excess_kurtosis(logs).item() == pytest.approx(kurtosis)
    num, groups = np.repeat([4, 8], 20), np.full(40, "a")
    freedom, level = (num - 1) / (1 + kurtosis * (num - 1) / (2 * num)), np.nanmean(logs, 1)
    wanted = moderate(np.nanvar(logs, axis=1, ddof=1), freedom, level, groups)
    found = mean_intervals(logs, groups)
    assert found.variance == pytest.approx(wanted[0])
    assert found.freedom == pytest.approx(wanted[1])


@pytest.mark.parametrize(
    "logs", [np.random.default_rng(9).standard_t(2, (40, 3)), np.random.default_rng(9).random((40, 9))]
)
def test_three_launches_and_light_tails_leave_the_degrees_of_freedom(logs):
    assert moderation.excess_kurtosis(logs).item() == pytest.approx(0, abs=1e-12)


def test_intervals_cover_means_of_launches_of_which_5_percent_are_slow():
    """Most cells of 10 launches have no slow one, so their variance is too low. Without correction: 92.8 %."""
    random = np.random.default_rng(10)
    logs = 0.02 * random.standard_normal((1000, 50, 10)) * np.exp(0.5 * random.standard_normal((1000, 50, 1)))
    logs += np.log(1.1) * ((random.random(logs.shape) < 0.05) - 0.05)
    found = mean_intervals(logs, np.full(50, "a"))
    assert 0.94 <= np.mean(np.abs(found.shift) <= found.half_width) <= 0.97


def test_unpaired_contrasts_have_the_variance_of_welch():
    random = np.random.default_rng(4)
    base, test = random.normal(0, 0.02, (40, 3)), random.normal(0, 0.02, (40, 6))
    groups = np.full(40, "a")
    found = unpaired_contrasts(base, test, groups)
    sides = [moderate(logs.var(1, ddof=1), np.full(40, num - 1.0), (base.mean(1) + test.mean(1)) / 2, groups)[0] / num
             for logs, num in ((base, 3), (test, 6))]  # fmt: skip
    welch = (sides[0] + sides[1]) ** 2 / (sides[0] ** 2 / 2 + sides[1] ** 2 / 5)
    variance = (base.var(1, ddof=1) / 3 + test.var(1, ddof=1) / 6) / (1 / 3 + 1 / 6)
    s0, d0 = fit_prior(variance, welch, (base.mean(1) + test.mean(1)) / 2)
    assert found.variance == pytest.approx((d0 * s0 + welch * variance) / (d0 + welch))
    assert found.squared_error() == pytest.approx(found.variance / 2)
    assert found.squared_error(3) == pytest.approx(found.variance * (1 / 6 + 1 / 9))


def test_missing_launches_are_left_out():
    random = np.random.default_rng(5)
    logs = random.normal(0, 0.02, (30, 4))
    logs[7, 3] = logs[8, 1:] = np.nan
    found = mean_intervals(logs, np.full(30, "a"))
    assert found.shift[7] == pytest.approx(logs[7, :3].mean())
    assert found.num.tolist() == [4] * 7 + [3, 1] + [4] * 21
    assert np.isnan(found.p_value).tolist() == [i == 8 for i in range(30)]
    pairs = paired_contrasts(logs - logs[:, ::-1], logs, np.full(30, "a"))
    assert pairs.num[7] == 2


def test_campaigns_are_independent_of_each_other():
    logs = np.random.default_rng(6).normal(0, 0.02, (5, 20, 3))
    together = mean_intervals(logs, np.full(20, "a"))
    for campaign, half_width in zip(logs, together.half_width, strict=True):
        assert mean_intervals(campaign, np.full(20, "a")).half_width == pytest.approx(half_width, rel=1e-6)


def test_the_others_have_the_median_without_the_member_and_few_have_that_of_all():
    random = np.random.default_rng(7)
    logs = random.normal(size=(7, 6))
    logs[0, 0] = logs[3:, 1] = logs[4:, 2] = logs[1:, 3] = np.nan
    logs[2, 4] = logs[3, 4]
    found = median_of_others(logs)
    for (member, launch), value in np.ndenumerate(found):
        column = [time for time in logs[:, launch] if np.isfinite(time)]
        if np.isnan(logs[member, launch]) or len(column) == 1:
            assert np.isnan(value)
            continue
        if len(column) > 3:
            column.remove(logs[member, launch])
        assert value == pytest.approx(statistics.median(column))


def test_of_equal_settings_one_is_excluded_in_six_percent_of_rows():
    random = np.random.default_rng(8)
    for num, launches in ((2, 3), (4, 3), (6, 2)):
        logs = random.normal(0, 0.02, (1000, 1, num, launches)) + random.normal(0, 0.1, (1000, 1, 1, launches))
        excluded = ~best_settings(logs).may_be_best
        assert excluded.any(-1).mean() < 0.06 + 3 * (0.06 / 1000) ** 0.5


def test_two_settings_in_three_launches_have_the_paired_t_interval():
    """The common level of a launch is removed: its 10 % do not matter. Costs 0.05, 0.06 and 0.07."""
    level = np.array([0.0, 0.1, -0.1])
    found = best_settings(np.array([[level, level + np.array([0.05, 0.06, 0.07])]]))
    half = 4.302653 * 0.01 / math.sqrt(3)
    assert found.cost[0] == pytest.approx([0, 0.06])
    assert (found.low[0, 1], found.high[0, 1]) == pytest.approx((0.06 - half, 0.06 + half), rel=1e-3)
    assert found.may_be_best.tolist() == [[True, False]]


def test_a_setting_with_one_launch_is_undecided_and_excludes_nothing():
    logs = np.array([[[0.0, 0.01, 0.02], [0.5, 0.51, 0.52], [-1.0, np.nan, np.nan]]])
    found = best_settings(logs)
    assert found.is_undecided.tolist() == [[False, False, True]]
    assert found.may_be_best.tolist() == [[True, False, True]]
    assert np.isnan(found.cost[0, 2])
    assert best_settings(logs[..., :1]).is_undecided.all()


def test_settings_of_separate_launches_are_compared_without_blocks():
    logs = np.array([[[0.0, 0.01, np.nan, np.nan], [np.nan, np.nan, 0.5, 0.51]]])
    found = best_settings(logs)
    assert found.cost[0] == pytest.approx([0, 0.5])
    assert found.may_be_best.tolist() == [[True, False]]


def correlation_of(residuals, batches=None):
    """Return the correlation of successive launches, of cells of one batch or of several."""
    batches = np.zeros(residuals.shape[-2], int) if batches is None else batches
    return serial_correlation(((residuals, batches),))


def dependent(correlation, shape, seed=1):
    """Return launches of (..., cells, launches) whose successive launches have this correlation."""
    logs = np.random.default_rng(seed).standard_normal(shape)
    for i in range(1, shape[-1]):
        logs[..., i] = correlation * logs[..., i - 1] + math.sqrt(1 - correlation**2) * logs[..., i]
    return logs


@pytest.mark.parametrize("num", [3, 5, 10])
def test_the_correlation_of_successive_launches_is_found_without_bias(num):
    centered = dependent(0.3, (20_000, num))
    centered -= centered.mean(-1, keepdims=True)
    assert correlation_of(centered).item() == pytest.approx(0.3, abs=0.06)


@pytest.mark.parametrize("batches", [1, 2, 6])
@pytest.mark.parametrize("share", [0, 0.6, 0.9])
@pytest.mark.parametrize("num", [3, 5, 10])
def test_independent_launches_are_rarely_found_to_be_correlated(num, share, batches):
    random = np.random.default_rng(1)
    logs = share**0.5 * np.repeat(random.standard_normal((2_000, batches, num)), 30 // batches, 1)
    logs = logs + (1 - share) ** 0.5 * random.standard_normal((2_000, 30, num))
    found = correlation_of(logs - logs.mean(-1, keepdims=True), np.arange(30) * batches // 30)
    assert np.mean(found > 0) <= 0.075


def test_correlated_launches_widen_intervals_by_the_variance_of_an_autoregression():
    n, logs = 10, dependent(0.3, (200, 10)) * 0.02
    found = mean_intervals(logs, np.full(200, "b"))
    rho = found.correlation.item()
    sums = sum((1 - k / n) * rho**k for k in range(1, n))
    factor = (1 + 2 * sums) / (1 - 2 / (n - 1) * sums)
    assert found.widening == pytest.approx(np.full(200, math.sqrt(factor)))
    assert 0.93 <= np.mean(np.abs(found.shift) <= found.half_width) <= 0.98
    unpaired = unpaired_contrasts(logs[:100], logs[100:], np.full(100, "b"))
    assert unpaired.correlation.item() == rho
    assert unpaired.widening == pytest.approx(np.full(100, math.sqrt(factor)))


def test_a_missing_launch_is_no_neighbor():
    logs = dependent(0.6, (300, 6))
    logs[::2, 2] = np.nan
    centered = logs - np.nanmean(logs, -1, keepdims=True)
    assert correlation_of(centered).item() == pytest.approx(0.6, abs=0.15)
    assert np.isfinite(mean_intervals(logs, np.full(300, "b")).half_width).all()


def test_long_sequences_have_the_factor_of_their_limit():
    """(1 + rho) / (1 - rho), within 5 %: of 200 launches, which are tabulated as 30."""
    found = mean_intervals(dependent(0.5, (50, 200)), np.full(50, "b"))
    rho = found.correlation.item()
    assert rho == pytest.approx(0.5, abs=0.05)
    assert found.widening**2 == pytest.approx(np.full(50, (1 + rho) / (1 - rho)), rel=0.05)
