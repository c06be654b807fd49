"""The rules of warm-up and sampling, against numbers computed by hand. Needs no torch."""

import pytest

from harness import sampling
from harness.sampling import NS_PER_S, SamplingPlan

PLAN = SamplingPlan(
    target_precision=0.01,
    min_seconds=1.0,
    max_seconds=2.0,
    min_samples=10,
    max_samples=1000,
    max_warmup_seconds=1.0,
    windows_ratio=0.3,
)
MS = 1_000_000


def test_median_of_an_even_number_is_the_mean_of_the_middle_two():
    assert sampling.median_of_sorted([1, 2, 3, 10]) == 2.5
    assert sampling.median_of_sorted([7]) == 7
    with pytest.raises(ValueError, match="no median"):
        sampling.median_of_sorted([])


@pytest.mark.parametrize(
    ("num_samples", "time", "ranks"),
    [
        (39, 1, None),  # independent or not, that cannot be known
        (40, 1, (13, 28)),  # 1.96 sqrt 40 = 12.4: 13.8; 27.2
        (100, 1, (40, 61)),  # 19.6: 40.2; 60.8
        (100, 4, (30, 71)),  # 39.2: 30.4; 70.6
        (100, 25, (1, 100)),  # 98: 1; 100
        (100, 26, None),
        (10000, 1, (4902, 5099)),  # 196: 4902; 5099
    ],
)
def test_ranks_of_the_interval_follow_hoefler_and_belli(num_samples, time, ranks):
    assert sampling.median_interval_ranks(num_samples, time) == ranks


def test_half_width_is_a_ratio_of_the_median():
    # 100 values, median 150.5. Signs alternate, so the time is 1, and ranks 40 and 61 are 140 and 161.
    samples = [101 + i // 2 + 50 * (i % 2) for i in range(100)]
    assert sampling.half_width_ratio(samples, sorted(samples)) == pytest.approx(10.5 / 150.5)
    assert sampling.half_width_ratio([5] * 39, [5] * 39) is None
    assert sampling.half_width_ratio([0] * 40, [0] * 40) is None
    assert sampling.half_width_ratio([], []) is None


def test_the_correlation_time_of_runs():
    # 40 blocks of one. Runs of two: 20 pairs of neighbours agree, 19 do not: 1/40. (40/40 + 1) / 37 + 1/sqrt 40 = r.
    correlation = 2 / 37 + 40**-0.5
    samples = [1, 1, 2, 2] * 10
    assert sampling.correlation_time(samples, 1.5) == pytest.approx((1 + correlation) / (1 - correlation))
    assert sampling.correlation_time([1] * 20 + [2] * 20, 1.5) == 40  # never more than the samples
    assert sampling.correlation_time([7] * 40, 7) == 1


def test_first_warmup_iteration_stands_alone():
    assert sampling.next_warmup_block([], 0, PLAN) == (1, None)
    assert sampling.next_warmup_block([10 * MS], 10 * MS, PLAN) == (4, None)


def test_warmup_is_steady_when_times_no_longer_fall():
    falling = [100 * MS] * 5 + [90 * MS] * 5  # 90 % of the block before
    assert sampling.next_warmup_block(falling, 950 * MS, PLAN)[1] is None
    assert sampling.next_warmup_block([100 * MS] * 5 + [96 * MS] * 5, 900 * MS, PLAN) == (0, "steady")
    assert sampling.next_warmup_block([50 * MS] * 5 + [90 * MS] * 5, 900 * MS, PLAN) == (0, "steady")


def test_one_block_is_not_enough_to_be_steady():
    assert sampling.next_warmup_block([MS] * 5, 5 * MS, PLAN) == (5, None)


def test_warmup_ends_with_its_time_but_not_before_three_iterations():
    long = 5 * NS_PER_S
    assert sampling.next_warmup_block([long], long, PLAN) == (2, None)
    assert sampling.next_warmup_block([long] * 2, 2 * long, PLAN) == (1, None)
    assert sampling.next_warmup_block([long] * 3, 3 * long, PLAN) == (0, "max_seconds")


def test_warmup_block_does_not_run_past_its_time():
    assert sampling.next_warmup_block([300 * MS] * 3, 700 * MS, PLAN) == (1, None)


@pytest.mark.parametrize(
    ("ordered", "elapsed_s", "reason"),
    [
        ([MS] * 9, 5.0, None),  # too few
        ([MS] * 10, 0.9, None),  # too early
        ([MS] * 10, 1.0, None),  # too few to know whether they are independent
        ([MS] * 40, 1.0, "precision"),
        ([MS] * 20 + [2 * MS] * 20, 1.9, None),
        ([MS] * 20 + [2 * MS] * 20, 2.0, "max_seconds"),
        ([MS] * 1000, 0.9, None),  # min_seconds holds back max_samples too
        ([MS] * 1000, 1.0, "max_samples"),
    ],
)
def test_sampling_stops_for_one_of_three_reasons(ordered, elapsed_s, reason):
    assert sampling.stop_reason(ordered, ordered, int(elapsed_s * NS_PER_S), PLAN) == reason


def test_sampling_block_lasts_about_50_ms_or_5_percent():
    assert sampling.next_sampling_block([], [], 0, PLAN, 10 * MS) == (5, None)
    patient = SamplingPlan(0.001, 100.0, 100.0, 10, 100_000, 1.0, 0.3)
    assert sampling.next_sampling_block([10 * MS], [10 * MS], 20 * NS_PER_S, patient, 1) == (100, None)


def test_sampling_block_is_one_iteration_where_that_takes_long():
    assert sampling.next_sampling_block([], [], 0, PLAN, 3 * NS_PER_S) == (1, None)


def test_sampling_block_does_not_run_past_max_seconds_or_max_samples():
    assert sampling.next_sampling_block([10 * MS], [10 * MS], int(1.98 * NS_PER_S), PLAN, 1) == (2, None)
    wide = sorted([MS] * 500 + [2 * MS] * 495)
    assert sampling.next_sampling_block(wide, wide, int(1.2 * NS_PER_S), PLAN, 1) == (5, None)
    assert sampling.next_sampling_block(wide, wide, int(0.9 * NS_PER_S), PLAN, 1) == (
        50,
        None,
    )  # not before min_seconds


def test_sampling_whose_decisions_are_followed_ends_at_max_seconds():
    """A clock that only iterations move: 40 ms and 60 ms in turn, never precise."""
    samples, elapsed, stop = [], 0, None
    while stop is None:
        size, stop = sampling.next_sampling_block(samples, sorted(samples), elapsed, PLAN, 50 * MS)
        for _ in range(size):
            samples.append((40 if len(samples) % 2 else 60) * MS)
            elapsed += samples[-1]
    assert stop == "max_seconds"
    assert 2.0 * NS_PER_S <= elapsed <= 2.0 * NS_PER_S + 60 * MS


def test_sampling_block_takes_at_most_a_tenth_of_a_small_budget():
    small = SamplingPlan(0.5, 0.0, 0.1, 6, 100_000, 0.1, 0.3)
    assert sampling.next_sampling_block([], [], 0, small, MS) == (10, None)  # not the 50 iterations of 50 ms
    samples, elapsed, stop = [], 0, None
    while stop is None:  # precise as soon as it may be, with 40 samples
        size, stop = sampling.next_sampling_block(samples, samples, elapsed, small, MS)
        samples, elapsed = samples + [MS] * size, elapsed + size * MS
    assert (stop, elapsed) == ("precision", 40 * MS)


def test_sampling_does_not_stop_on_an_interval_that_autocorrelation_makes_too_narrow():
    """Blocks of 50 alike: half widths of 0.7 % if they were independent, but there are only 20 of them."""
    runs = [(1000 + 10 * (7 * (i // 50) % 20)) * 1000 for i in range(1000)]
    plan = SamplingPlan(0.01, 0.0, 2.0, 10, 100_000, 1.0, 0.3)
    shuffled = [runs[389 * i % 1000] for i in range(1000)]
    assert sampling.stop_reason(shuffled, sorted(runs), NS_PER_S, plan) == "precision"
    assert sampling.stop_reason(runs, sorted(runs), NS_PER_S, plan) is None


@pytest.mark.parametrize(
    ("median_ms", "elapsed_s", "ratio", "windows"),
    [
        (10, 1.0, 0.3, (5, 6)),  # 0.3 s: 30 steps
        (40, 1.5, 0.3, (5, 2)),  # 11 steps
        (100, 1.5, 0.3, (2, 2)),  # 4 steps: fewer windows, not shorter ones
        (1000, 10.0, 0.3, (1, 3)),
        (1000, 10.0, 0.1, (1, 2)),  # 1 s holds one step, but one window of two is the minimum
        (10, 100.0, 0.3, (5, 600)),
        (10, 100.0, 0.05, (5, 100)),
        (0.05, 0.001, 0.3, (3, 2)),  # 20 iterations of 50 us: 6 steps, not half a second
    ],
)
def test_windows_take_at_most_their_ratio_of_the_sampling_time(median_ms, elapsed_s, ratio, windows):
    assert sampling.plan_windows(median_ms * MS, round(elapsed_s * NS_PER_S), ratio) == windows


def test_quantiles_are_values_that_were_measured():
    assert sampling.quantiles([10, 20, 30, 40], [0, 0.25, 0.5, 0.75, 1]) == [10, 10, 20, 30, 40]
    assert sampling.quantiles([10], [0, 0.5, 1]) == [10, 10, 10]
