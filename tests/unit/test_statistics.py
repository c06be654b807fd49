import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regatta.core.statistics import (
    PERCENTILES,
    Estimate,
    drift,
    effective_samples,
    fast_median,
    launch_table,
    median_interval,
    min_samples,
    num_outliers,
    outer_fences,
    percentiles,
)
from regatta.tables import estimates

SECONDS = st.floats(min_value=1e-9, max_value=1e4)


def autoregressive(rho: float, shape: tuple[int, ...], seed: int = 1) -> np.ndarray:
    samples = np.random.default_rng(seed).standard_normal(shape)
    for i in range(1, shape[-1]):
        samples[..., i] = rho * samples[..., i - 1] + math.sqrt(1 - rho**2) * samples[..., i]
    return samples


@pytest.mark.parametrize(("name", "num"), [("p75_s", 11), ("p90_s", 29), ("p95_s", 59), ("p99_s", 299)])
def test_a_percentile_requires_a_minimum_sample_size(name, num):
    assert min_samples(PERCENTILES[name]) == num
    assert percentiles(np.arange(num - 1))[name] is None
    assert percentiles(np.arange(num))[name] == pytest.approx(PERCENTILES[name] * (num - 1))


def test_the_interval_of_a_median_is_taken_by_ranks():
    alternating = np.arange(1, 101).reshape(2, 50).T.ravel()  # 1, 51, 2, 52, ...: signs alternate
    assert median_interval(alternating) == (40, 61)  # (100 -+ 19.6) / 2: 40.2 and 60.8
    assert median_interval(np.full(40, 3.0)) == (3, 3)


def test_samples_that_do_not_support_an_interval_have_none():
    assert median_interval(np.arange(1, 40)) is None  # too few
    assert median_interval(np.arange(1, 101)) is None  # a trend: nothing repeats
    assert median_interval(np.array([])) is None


@pytest.mark.parametrize("rho", [0, 0.5, 0.8])
@pytest.mark.parametrize("num", [40, 100, 400])
def test_the_interval_of_a_median_holds_the_truth_of_autocorrelated_samples(rho, num):
    found = [median_interval(samples) for samples in autoregressive(rho, (1000, num), seed=num)]
    known = [ends[0] <= 0 <= ends[1] for ends in found if ends]
    assert np.mean(known) >= 0.89  # 90 % are promised
    assert rho == 0.8 or len(known) >= 900


def over_launches(cells, scale=None):
    """Return the estimate of each cell, given its launches as a list, or as a value by the number of the launch."""
    table = launch_table([cell if isinstance(cell, dict) else dict(enumerate(cell)) for cell in cells])
    found = estimates.over_launches(table, np.full(len(table), "a"), np.full(len(table), ""), scale)
    rows = zip(found.num.tolist(), *(end.tolist() for end in found.ends), found.kinds, strict=True)
    return [Estimate(num, *(None if math.isnan(end) else end for end in ends), kind) for num, *ends, kind in rows]


def test_two_launches_give_a_range_and_three_an_interval_of_the_geometric_mean():
    none, one, two, three = over_launches([[], [2.0], [1.0, 4.0], [4.0, 1.0, 2.0]])
    assert (none, one) == (Estimate(0), Estimate(1, pytest.approx(2.0), None, None, "single"))
    assert two == Estimate(2, pytest.approx(2.0), 1.0, 4.0, "range")
    assert (three.num, three.mean, three.kind) == (3, pytest.approx(2.0), "interval")
    assert three.low * three.high == pytest.approx(4.0)  # symmetric in logarithms
    assert over_launches([]) == []


def test_the_interval_is_the_moderated_t_interval_of_all_cells():
    """Eight cells with the variance v of logarithms: s0 = v, so the moderated variance is v too, and 8 x 2 degrees of
    freedom limit those of the prior; cells that rise and fall together have the 2 of one cell."""
    step = 0.1  # logarithms -0.1, 0, 0.1: variance 0.01 of a launch
    alike = over_launches([np.exp([-step, 0, step]) * scale for scale in range(1, 9)])
    t_of_2 = 4.302652729911275
    for scale, found in enumerate(alike, start=1):
        expected = scale * math.exp(t_of_2 * step / math.sqrt(3))
        assert found.high == pytest.approx(expected, rel=0.02)  # the weak prior moves s0
    orders = ([-1, 0, 1], [0, 1, -1], [1, -1, 0], [-1, 1, 0], [0, -1, 1], [1, 0, -1], [-1, 0, 1], [1, 0, -1])
    unlike = over_launches([np.exp(step * np.array(order)) for order in orders])
    assert all(found.high < 0.9 * expected for found, expected in zip(unlike, [one.high for one in alike], strict=True))


@given(st.lists(SECONDS, min_size=1, max_size=12), st.floats(min_value=1e-3, max_value=1e3))
def test_another_unit_of_time_changes_no_more_than_the_unit(values, factor):
    (found,), (scaled,) = (over_launches([of]) for of in (values, [factor * v for v in values]))
    assert scaled.kind == found.kind
    if found.low is not None and math.log(found.high / found.low) < 500:
        assert (scaled.low, scaled.high) == pytest.approx((factor * found.low, factor * found.high), rel=1e-6)


def test_launches_are_matched_by_their_index_and_gaps_are_left_out():
    full, gap = over_launches([{0: 1.0, 1: 2.0, 2: 4.0}, {0: 1.0, 2: 4.0, 5: 2.0}])
    assert (full.num, gap.num, gap.mean) == (3, 3, pytest.approx(2.0))


def test_a_number_that_may_be_negative_has_an_arithmetic_mean():
    (found,) = over_launches([[-1.0, 0.0, 4.0]], scale=np.ones(1))
    assert (found.mean, found.kind) == (pytest.approx(1.0), "interval")
    assert found.low + found.high == pytest.approx(2.0)


def test_intervals_of_results_cover_the_truth_of_a_cell_that_is_larger_than_the_others():
    """15 cells at 1 and one at 8, all with a variation of 2 %, in 500 campaigns of 3 launches. Each campaign is a group with
    a separate prior. With absolute variances, the intervals of the large cell cover 80 % instead of 95 %."""
    truth = np.tile([1.0] * 15 + [8.0], 500)
    values = truth[:, None] * (1 + 0.02 * np.random.default_rng(1).standard_normal((len(truth), 3)))
    groups = np.repeat(np.arange(500), 16)
    found = estimates.over_launches(values, groups, groups.astype(str), estimates.scale_of(values))
    is_held = ((found.low <= truth) & (truth <= found.high)).reshape(500, 16)
    assert is_held.mean() == pytest.approx(0.95, abs=0.01)
    assert is_held[:, 15].mean() == pytest.approx(0.95, abs=0.03)


def test_an_estimate_in_another_unit():
    assert Estimate(3, 2.0, 1.0, 4.0, "interval").times(10) == Estimate(3, 20.0, 10.0, 40.0, "interval")
    assert Estimate(1, 2.0, None, None, "single").times(10) == Estimate(1, 20.0, None, None, "single")


def test_the_autocorrelation_time_extrapolates_the_correlation_of_neighbours():
    # 20 samples, so 20 blocks of one. 10 low, then 10 high: 18 pairs of neighbours agree and one does not, so the
    # correlation of neighbours is 17/20, of a short series (20 x 0.85 + 1) / (20 - 3) = 18/17 and limited to 20 samples.
    halves = np.array([1.0] * 10 + [2.0] * 10)
    assert effective_samples(halves) == 1
    # Runs of two: 10 pairs agree, 9 do not: 1/20, then (1 + 1) / 17 = 2/17; (1 + 2/17) / (1 - 2/17) = 19/15.
    runs = np.array([1.0, 1.0, 2.0, 2.0] * 5)
    assert effective_samples(runs) == pytest.approx(20 * 15 / 19)


def test_the_autocorrelation_time_of_a_known_process_is_found_regardless_of_the_outliers():
    samples = autoregressive(0.7, (20_000,))  # (1 + 0.7) / (1 - 0.7) = 5.7, of ranks a little less
    assert len(samples) / effective_samples(samples) == pytest.approx(5.4, abs=1.5)  # of 40 blocks
    samples[::500] = 1e6
    assert len(samples) / effective_samples(samples) == pytest.approx(5.4, abs=1.5)


@pytest.mark.parametrize(
    ("rho", "num", "right"), [(0.8, 100, 11.1), (0.8, 400, 44.4), (0.5, 100, 33.3), (0.95, 400, 10.3)]
)
def test_the_effective_sample_size_is_not_too_large(rho, num, right):
    found = np.median([effective_samples(samples) for samples in autoregressive(rho, (300, num))])
    assert 0.75 * right <= found <= 1.1 * right


def test_samples_are_never_worth_more_than_they_are():
    assert effective_samples(np.array([1.0, 2.0] * 20)) == 40
    assert effective_samples(np.array([3.0] * 20)) == 20
    assert effective_samples(np.arange(19.0)) is None


def test_a_drift_is_the_change_from_first_to_last_sample():
    noise = 1e-4 * np.random.default_rng(1).standard_normal(100)
    rising = 1 + 0.001 * np.arange(100) + noise  # by 0.099, of a median of 1.0495
    assert drift(rising).change_ratio == pytest.approx(0.099 / 1.0495, rel=0.01)
    assert drift(rising).is_flagged
    falling = drift(rising[::-1])
    assert (falling.change_ratio < -0.09, falling.is_flagged) == (True, True)


def test_a_drift_that_is_sure_and_small_is_not_flagged():
    small = drift(1 + 0.0001 * np.arange(100))
    assert small.change_ratio == pytest.approx(0.0099 / 1.00495)
    assert not small.is_flagged


def test_a_drift_needs_samples_enough_to_tell():
    assert drift(np.arange(1.0, 20.0)) is None
    assert drift(np.arange(1.0, 21.0)).is_flagged


def test_a_drift_that_is_no_straight_line_is_found():
    assert drift(1 + 0.1 * np.exp(-np.arange(1000) / 250)).is_flagged


def test_a_drift_of_a_few_late_stalls_is_none():
    samples = np.ones(100) + 0.001 * np.random.default_rng(2).standard_normal(100)
    samples[[80, 85, 90, 95]] = 5
    assert not drift(samples).is_flagged


@pytest.mark.parametrize("rho", [0, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("num", [20, 60, 400])
def test_stationary_launches_rarely_pass_for_a_drift(rho, num):
    launches = 1 + 0.1 * autoregressive(rho, (600, num), seed=num)
    assert sum(drift(samples).is_flagged for samples in launches) <= 12  # 6 are allowed; 12 or more have p = 0.02


def test_a_drift_of_twice_the_scatter_is_found():
    launches = 1 + 0.02 * autoregressive(0, (100, 100)) + 0.05 * np.arange(100) / 99
    assert sum(drift(samples).is_flagged for samples in launches) >= 85


def test_fences_are_numpys_quartiles_and_need_eleven_samples():
    rng = np.random.default_rng(3)
    for num in (11, 12, 13, 14, 60):
        samples = rng.lognormal(size=num)
        low, high = np.quantile(samples, [0.25, 0.75])
        assert outer_fences(samples) == pytest.approx((low - 3 * (high - low), high + 3 * (high - low)))


def test_outliers_lie_three_interquartile_ranges_beyond_the_quartiles():
    # 1 to 19 and one more: quartiles 5.75 and 15.25, so the fences are 5.75 - 28.5 = -22.75 and 15.25 + 28.5 = 43.75.
    assert [num_outliers(np.array([*range(1, 20), last])) for last in (43.0, 44.0, -30.0)] == [0, 1, 1]
    assert num_outliers(np.arange(1.0, 11.0)) is None


@pytest.mark.parametrize("num", [1, 2, 5, 11, 29, 60, 299, 1000])
def test_medians_and_percentiles_are_those_of_numpy_to_the_last_bit(num):
    random = np.random.default_rng(num)
    for samples in (random.lognormal(-5, 2, num), random.integers(10**5, 10**10, num), np.full(num, 0.1)):
        assert fast_median(samples) == np.median(samples)
        for name, value in percentiles(samples).items():
            assert value is None or value == np.quantile(samples, PERCENTILES[name])
