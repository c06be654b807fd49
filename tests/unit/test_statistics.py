import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regatta.core.statistics import (
    PERCENTILES,
    autocorrelation_time,
    drift,
    effective_samples,
    fast_median,
    median_interval,
    min_samples,
    num_outliers,
    over_launches,
    percentiles,
    ratio_over_launches,
)

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


def test_few_launches_give_a_range_and_many_an_interval():
    assert over_launches([]).kind == "none"
    assert over_launches([2.0]) == over_launches([2.0])
    assert (over_launches([2.0]).kind, over_launches([2.0]).low) == ("single", None)
    five = over_launches([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (five.num, five.median, five.low, five.high, five.kind) == (5, 3.0, 1.0, 5.0, "range")
    assert over_launches([1.0] * 5 + [9.0]).kind == "interval"


def test_the_interval_over_launches_lies_between_two_pairs_of_order_statistics():
    # n = 6: ranks 1 and 6 cover 1 - 2/64 = 0.96875, ranks 2 and 5 cover 1 - 14/64 = 0.78125. The share of the way to
    # 0.95 is 0.01875 / 0.1875 = 0.1, and the weight (6 - 1) 0.1 / (1 + (6 - 2) 0.1) = 0.5 / 1.4.
    six = over_launches([6.0, 1.0, 5.0, 2.0, 4.0, 3.0])
    assert (six.num, six.median, six.kind) == (6, 3.5, "interval")
    assert (six.low, six.high) == (pytest.approx(1 + 0.5 / 1.4), pytest.approx(6 - 0.5 / 1.4))
    # n = 10: ranks 2 and 9 cover 1 - 22/1024, ranks 3 and 8 cover 1 - 112/1024: share 29.2/90, weight 0.65766.
    ten = over_launches([float(i) for i in range(1, 11)])
    assert (ten.low, ten.high) == (pytest.approx(2.65766, abs=1e-5), pytest.approx(8.34234, abs=1e-5))


@given(st.lists(SECONDS, min_size=2, max_size=25))
def test_the_spread_encloses_the_median_and_stays_inside_the_launches(values):
    spread = over_launches(values)
    ordered = [min(values), spread.low, spread.median, spread.high, max(values)]
    # Interpolation between two launches may round in the last digit.
    assert all(low <= high * (1 + 1e-12) for low, high in pairwise(ordered))


@given(st.lists(SECONDS, min_size=1, max_size=25), st.floats(min_value=1e-3, max_value=1e3))
def test_another_unit_of_time_changes_no_more_than_the_unit(values, factor):
    spread, scaled = over_launches(values), over_launches([factor * value for value in values])
    assert scaled.kind == spread.kind
    if spread.low is not None:
        assert (scaled.low, scaled.high) == (pytest.approx(factor * spread.low), pytest.approx(factor * spread.high))


def test_the_range_of_a_ratio_holds_every_pair_of_launches():
    ratio = ratio_over_launches([2.0, 3.0, 4.0], [1.0, 2.0])
    assert (ratio.median, ratio.low, ratio.high, ratio.kind) == (2.0, 1.0, 4.0, "range")
    assert ratio_over_launches([], [1.0]).kind == "none"
    assert ratio_over_launches([1.0], [2.0]).kind == "single"
    assert ratio_over_launches([1.0] * 6, [2.0] * 6).kind == "interval"


@pytest.mark.parametrize("num", [1, 2, 5, 6, 9])
def test_a_ratio_with_a_single_launch_on_either_side_has_no_spread(num):
    several = [2.0 + i for i in range(num)]
    for above, below, median in ((several, [1.0], np.median(several)), ([1.0], several, 1 / np.median(several))):
        ratio = ratio_over_launches(above, below)
        assert (ratio.kind, ratio.num, ratio.low, ratio.high) == ("single", 1, None, None)
        assert ratio.median == pytest.approx(median)


def test_the_interval_of_a_ratio_joins_those_of_both_medians():
    # 93.5 % of 6 launches: share 0.03375 / 0.1875 = 0.18, weight 5 x 0.18 / (1 + 4 x 0.18) = 0.9 / 1.72.
    above, below = [2.0, 4.0, 6.0, 8.0, 10.0, 12.0], [5.0, 5.0, 5.0, 5.0, 5.0, 5.0]
    down, up = math.log(7 / (2 + 2 * 0.9 / 1.72)), math.log((12 - 2 * 0.9 / 1.72) / 7)
    ratio = ratio_over_launches(above, below)  # the other side adds nothing
    assert (ratio.median, ratio.low, ratio.high) == (1.4, pytest.approx(1.4 / math.exp(down)), pytest.approx(1.4 * math.exp(up)))  # fmt: skip
    both = ratio_over_launches(above, above)
    assert (both.median, both.low, both.high) == (1.0, pytest.approx(math.exp(-math.hypot(down, up))), pytest.approx(1 / both.low))  # fmt: skip


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=2, max_size=12))
def test_a_ratio_and_its_inverse_say_the_same(pairs):
    above, below = map(list, zip(*pairs, strict=True))
    ratio, inverse = ratio_over_launches(above, below), ratio_over_launches(below, above)
    expected = [1 / ratio.median, 1 / ratio.high, 1 / ratio.low]
    assert [inverse.median, inverse.low, inverse.high] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("num", [6, 7, 10])
def test_the_intervals_hold_the_truth_in_95_of_100_cells(num):
    random = np.random.default_rng(num)
    launches = np.exp(0.05 * random.standard_normal((3, 2000, num)) + 0.1 * random.exponential(size=(3, 2000, num)))
    truth = np.median(np.exp(0.05 * random.standard_normal(400_000) + 0.1 * random.exponential(size=400_000)))
    medians = [over_launches(values) for values in launches[0].tolist()]
    assert 0.93 <= np.mean([spread.low <= truth <= spread.high for spread in medians]) <= 0.97
    ratios = map(ratio_over_launches, launches[1].tolist(), launches[2].tolist())
    assert 0.93 <= np.mean([ratio.low <= 1 <= ratio.high for ratio in ratios]) <= 0.975  # 96.8 % is expected


def test_the_autocorrelation_time_extrapolates_the_correlation_of_neighbours():
    # 20 samples, so 20 blocks of one. 10 low, then 10 high: 18 pairs of neighbours agree and one does not, so the
    # correlation of neighbours is 17/20, of a short series (20 x 0.85 + 1) / (20 - 3) = 18/17 and limited to 20 samples.
    halves = np.array([1.0] * 10 + [2.0] * 10)
    assert (autocorrelation_time(halves), effective_samples(halves)) == (20, 1)
    # Runs of two: 10 pairs agree, 9 do not: 1/20, then (1 + 1) / 17 = 2/17; (1 + 2/17) / (1 - 2/17) = 19/15.
    runs = np.array([1.0, 1.0, 2.0, 2.0] * 5)
    assert autocorrelation_time(runs) == pytest.approx(19 / 15)
    assert effective_samples(runs) == pytest.approx(20 * 15 / 19)


def test_the_autocorrelation_time_of_a_known_process_is_found_regardless_of_the_outliers():
    samples = autoregressive(0.7, (20_000,))  # (1 + 0.7) / (1 - 0.7) = 5.7, of ranks a little less
    assert autocorrelation_time(samples) == pytest.approx(5.4, abs=1.5)  # of 40 blocks
    samples[::500] = 1e6
    assert autocorrelation_time(samples) == pytest.approx(5.4, abs=1.5)


@pytest.mark.parametrize(
    ("rho", "num", "right"), [(0.8, 100, 11.1), (0.8, 400, 44.4), (0.5, 100, 33.3), (0.95, 400, 10.3)]
)
def test_the_effective_sample_size_is_not_too_large(rho, num, right):
    found = np.median([effective_samples(samples) for samples in autoregressive(rho, (300, num))])
    assert 0.75 * right <= found <= 1.1 * right


def test_samples_are_never_worth_more_than_they_are():
    assert autocorrelation_time(np.array([1.0, 2.0] * 20)) == 1
    assert effective_samples(np.array([3.0] * 20)) == 20
    assert autocorrelation_time(np.arange(19.0)) is None
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
