"""Stopping rules for warm-up and sampling: pure functions, called on rank 0 with the slowest rank's times.

A block is a run of iterations between two decisions. Every duration is in integer nanoseconds. Standard library only.
"""

import itertools
import math
from dataclasses import dataclass

NS_PER_S = 1_000_000_000

# Warm-up. DistributedDataParallel rebuilds its buckets after the first backward pass, so the second iteration differs
# from later ones, and three is the minimum.
WARMUP_BLOCK = 5
MIN_WARMUP_ITERATIONS = 3
STEADY_RATIO = 0.95

# A decision costs two small collectives and a sort. It is made at most every 50 ms or 5 % of the elapsed time, but at
# least every 10 % of max_seconds, which bounds how far sampling runs past its stopping criteria.
MIN_BLOCK_NS = 50_000_000
BLOCK_SHARE = 0.05
MAX_OVERSHOOT_RATIO = 0.1

# Pipelined windows: five, so that one outlier cannot affect all. A window of one step would be a blocking sample.
MAX_WINDOWS = 5
MIN_STEPS_PER_WINDOW = 2

# Interval of the median. With fewer samples, autocorrelated ones cannot be distinguished from independent ones.
MIN_SAMPLES_INTERVAL = 40
NUM_BLOCKS = 40  # to 79, or one per sample

# Rounds of whole and ablated iterations.
MIN_ROUNDS = 3
MAX_ROUNDS = 200
ROUNDS_SHARE = 0.3


@dataclass
class SamplingPlan:
    """The cell's `sampling`, as in docs/contracts.md. `target_precision` is a ratio: 0.01 is 1 % of the median.

    windows_ratio: time of the pipelined windows, divided by the time of sampling; None if the benchmark has none.
    """

    target_precision: float
    min_seconds: float
    max_seconds: float
    min_samples: int
    max_samples: int
    max_warmup_seconds: float
    windows_ratio: float | None = None


def median_of_sorted(ordered: list[int]) -> float:
    """Return the median; of an even number of values the mean of the middle two. Raises ValueError if there is none."""
    if not ordered:
        raise ValueError("no samples: they have no median.")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def median_interval_ranks(num_samples: int, correlation_time: float) -> tuple[int, int] | None:
    """Return the 1-based ranks of the order statistics that bound the median with 95 % confidence; None for too few.

    With t the correlation time, floor((m - 1.96 sqrt(m t)) / 2) and ceil(1 + (m + 1.96 sqrt(m t)) / 2). For t = 1 that
    is Hoefler and Belli, SC15 (doi 10.1145/2807591.2807644), section 3.1.3. None below 40 samples, and if a rank is
    outside. regatta/core/statistics.py has the same, and a test compares both.
    """
    reach = 1.96 * math.sqrt(num_samples * correlation_time)
    lower = math.floor((num_samples - reach) / 2)
    upper = math.ceil(1 + (num_samples + reach) / 2)
    is_known = num_samples >= MIN_SAMPLES_INTERVAL and lower >= 1 and upper <= num_samples
    return (lower, upper) if is_known else None


def correlation_time(samples: list[int], median: float) -> float:
    """Return the variance of the sum of the signs of sample minus median, over that of independent signs; at least 1.

    From sums of blocks: their variance, and their lag-1 correlation, corrected for the bias of short series
    and raised by one standard error. `_correlation_time` in regatta/core/statistics.py explains it.
    """
    num = len(samples)
    per_block = max(1, num // NUM_BLOCKS)
    num_blocks = num // per_block
    signs = [(sample > median) - (sample < median) for sample in samples]
    mean = sum(signs) / num
    power = sum(map(abs, signs)) / num - mean * mean
    ends = range(per_block, num_blocks * per_block + 1, per_block)
    sums = [sum(signs[end - per_block : end]) - mean * per_block for end in ends]
    power_of_sums = sum(value * value for value in sums)
    if not power_of_sums:
        return 1.0
    raw = sum(before * after for before, after in itertools.pairwise(sums)) / power_of_sums
    correlation = (num_blocks * raw + 1) / (num_blocks - 3) + 1 / math.sqrt(num)
    correlation = min(max(correlation, 0.0), 1 - 1 / num)
    ratio = max(power_of_sums / num_blocks / (power * per_block), 1.0)
    return min(ratio * (1 + correlation) / (1 - correlation), num)


def median_interval(samples: list[int], ordered: list[int]) -> tuple[int, int] | None:
    """Return the ends of the median's 95 % interval; None if the samples do not support one.

    samples: in the order of measuring. ordered: the same, sorted.
    """
    if len(samples) < MIN_SAMPLES_INTERVAL:
        return None
    ranks = median_interval_ranks(len(ordered), correlation_time(samples, median_of_sorted(ordered)))
    return None if ranks is None else (ordered[ranks[0] - 1], ordered[ranks[1] - 1])


def half_width_ratio(samples: list[int], ordered: list[int]) -> float | None:
    """Return half the width of the median's 95 % interval, divided by the median; None if there is no interval."""
    found = median_interval(samples, ordered)
    return (found[1] - found[0]) / 2 / median_of_sorted(ordered) if found and found[0] > 0 else None


def is_precise(samples: list[int], ordered: list[int], target: float) -> bool:
    """Return whether the half width is at most `target`. The signs are read only if independent samples allow it."""
    ranks = median_interval_ranks(len(ordered), 1.0)
    if ranks is None or ordered[ranks[1] - 1] - ordered[ranks[0] - 1] > 2 * target * median_of_sorted(ordered):
        return False
    ratio = half_width_ratio(samples, ordered)
    return ratio is not None and ratio <= target


def next_warmup_block(slowest: list[int], elapsed: int, plan: SamplingPlan) -> tuple[int, str | None]:
    """Return (iterations to do next, None), or (0, why the warm-up ended: steady or max_seconds).

    slowest: all warm-up iterations so far, in order. Steady: the median of the last five is at least 95 % of that of
    the five before. The first block is one iteration, whose duration limits the size of later blocks.
    """
    num_done = len(slowest)
    if num_done and num_done % WARMUP_BLOCK == 0 and num_done >= 2 * WARMUP_BLOCK:
        last = median_of_sorted(sorted(slowest[-WARMUP_BLOCK:]))
        before = median_of_sorted(sorted(slowest[-2 * WARMUP_BLOCK : -WARMUP_BLOCK]))
        if last >= STEADY_RATIO * before:
            return 0, "steady"
    remaining = int(plan.max_warmup_seconds * NS_PER_S) - elapsed
    if num_done >= MIN_WARMUP_ITERATIONS and remaining <= 0:
        return 0, "max_seconds"
    if num_done == 0:
        return 1, None
    num_that_fit = max(0, remaining) // max(1, slowest[-1])
    num_allowed = max(1, MIN_WARMUP_ITERATIONS - num_done, num_that_fit)
    return min(WARMUP_BLOCK - num_done % WARMUP_BLOCK, num_allowed), None


def stop_reason(samples: list[int], ordered: list[int], elapsed: int, plan: SamplingPlan) -> str | None:
    """Return why sampling ends here: precision, max_seconds, max_samples; or None to go on.

    samples: the slowest rank's, in order; ordered: the same, sorted. `min_samples` and `min_seconds` precede every
    other rule, so that a disturbance of the first samples cannot end the sampling.
    """
    if len(ordered) < plan.min_samples or elapsed < plan.min_seconds * NS_PER_S:
        return None
    if len(ordered) >= plan.max_samples:
        return "max_samples"
    if is_precise(samples, ordered, plan.target_precision):
        return "precision"
    return "max_seconds" if elapsed >= plan.max_seconds * NS_PER_S else None


def next_sampling_block(
    samples: list[int], ordered: list[int], elapsed: int, plan: SamplingPlan, expected: float
) -> tuple[int, str | None]:
    """Return (iterations to do next, None), or (0, why sampling ended).

    expected: an iteration's duration in warm-up, used until there are samples. A block does not exceed max_seconds by
    more than one iteration.
    """
    reason = stop_reason(samples, ordered, elapsed, plan)
    if reason:
        return 0, reason
    duration = max(1.0, median_of_sorted(ordered) if ordered else expected)
    block = min(max(MIN_BLOCK_NS, BLOCK_SHARE * elapsed), MAX_OVERSHOOT_RATIO * plan.max_seconds * NS_PER_S)
    remaining = plan.max_seconds * NS_PER_S - elapsed
    if remaining > 0:
        block = min(block, remaining)
    num_iterations = max(1, int(block / duration))
    if elapsed >= plan.min_seconds * NS_PER_S:  # before that, max_samples may be passed
        num_iterations = max(1, min(num_iterations, plan.max_samples - len(ordered)))
    return num_iterations, None


def plan_windows(median: float, sampling_elapsed: int, windows_ratio: float) -> tuple[int, int]:
    """Return (number of windows, steps in each): together at most `windows_ratio` of the sampling time.

    At least one window of two steps, even if these take longer.
    """
    num_steps = max(MIN_STEPS_PER_WINDOW, int(windows_ratio * sampling_elapsed / max(1.0, median)))
    num_windows = min(MAX_WINDOWS, num_steps // MIN_STEPS_PER_WINDOW)
    return num_windows, num_steps // num_windows


def plan_rounds(median: float, sampling_elapsed: int, num_runs: int) -> int:
    """Return how many rounds of `num_runs` iterations take about 30 % of the sampling time; 3 to 200."""
    return min(MAX_ROUNDS, max(MIN_ROUNDS, int(ROUNDS_SHARE * sampling_elapsed / max(1.0, median * num_runs))))


def quantiles(ordered: list[int], probabilities: list[float]) -> list[int]:
    """Return for each probability a sample (nearest rank, without interpolation)."""
    last = len(ordered) - 1
    return [ordered[min(last, max(0, math.ceil(probability * len(ordered)) - 1))] for probability in probabilities]
