"""Stopping rules for warm-up and sampling: pure functions, called on rank 0 with the slowest rank's times.

A block is a run of iterations between two decisions. Every duration is in integer nanoseconds. Standard library only.
"""

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


def median_interval_ranks(num_samples: int) -> tuple[int, int] | None:
    """Return the 1-based ranks of the order statistics that bound the median with 95 % confidence; None for 5 or fewer.

    Hoefler and Belli, SC15 (doi 10.1145/2807591.2807644), section 3.1.3: floor((m - 1.96 sqrt m) / 2) and
    ceil(1 + (m + 1.96 sqrt m) / 2). For 6 and 7 samples these are one outside the sample, and are clipped to its ends,
    which cover the median in 1 - 2/2**m of cases: 96.9 % and more.
    """
    if num_samples <= 5:
        return None
    reach = 1.96 * math.sqrt(num_samples)
    lower = math.floor((num_samples - reach) / 2)
    upper = math.ceil(1 + (num_samples + reach) / 2)
    return max(1, lower), min(num_samples, upper)


def half_width_ratio(ordered: list[int]) -> float | None:
    """Return half the width of the median's 95 % interval, divided by the median; None if there is no interval."""
    ranks = median_interval_ranks(len(ordered))
    if ranks is None:
        return None
    median = median_of_sorted(ordered)
    return (ordered[ranks[1] - 1] - ordered[ranks[0] - 1]) / 2 / median if median > 0 else None


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


def stop_reason(ordered: list[int], elapsed: int, plan: SamplingPlan) -> str | None:
    """Return why sampling ends here: precision, max_seconds, max_samples; or None to go on.

    ordered: the slowest rank's samples, sorted. `min_samples` and `min_seconds` precede every other rule, so that a
    disturbance of the first samples cannot end the sampling.
    """
    if len(ordered) < plan.min_samples or elapsed < plan.min_seconds * NS_PER_S:
        return None
    if len(ordered) >= plan.max_samples:
        return "max_samples"
    ratio = half_width_ratio(ordered)
    if ratio is not None and ratio <= plan.target_precision:
        return "precision"
    return "max_seconds" if elapsed >= plan.max_seconds * NS_PER_S else None


def next_sampling_block(
    ordered: list[int], elapsed: int, plan: SamplingPlan, expected: float
) -> tuple[int, str | None]:
    """Return (iterations to do next, None), or (0, why sampling ended).

    expected: an iteration's duration in warm-up, used until there are samples. A block does not exceed max_seconds by
    more than one iteration.
    """
    reason = stop_reason(ordered, elapsed, plan)
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
