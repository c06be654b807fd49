"""The timed loops: blocks of single iterations, and pipelined windows.

Each iteration is timed by itself, with the device idle at both clock reads. There is no barrier between the iterations
of a block: ranks run as they would in training, held together only by the collectives they measure. Between blocks the
ranks exchange their times, outside any timed region.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import peers
import sampling


@dataclass
class Workload:
    """What a benchmark gives to be measured: plain functions, called on every rank alike.

    iterate: one iteration, the timed work and nothing else.
    check: named results of checks on this rank, run after the measurement, outside all timing.
    before_iteration: untimed preparation of an iteration, or None.
    check_before: like `check`, but before warm-up; if one is false, nothing is timed.
    has_windows: whether iterations may be run back to back without looking at their results.
    values: numbers and words for the record, read at the end. memory: bytes by name, the same on each rank.
    """

    iterate: Callable[[], None]
    check: Callable[[], dict[str, bool]]
    values: Callable[[], dict] = dict
    memory: Callable[[], dict[str, int | None]] = dict
    before_iteration: Callable[[], None] | None = None
    check_before: Callable[[], dict[str, bool]] | None = None
    has_windows: bool = False


@dataclass
class Blocks:
    """Times per iteration of one phase. own: this rank's; slowest: the maximum over ranks; ordered: that, sorted."""

    own: list[int] = field(default_factory=list)
    slowest: list[int] = field(default_factory=list)
    ordered: list[int] = field(default_factory=list)
    elapsed: int = 0
    stop: str | None = None


def time_block(
    workload: Workload, num_iterations: int, ranks: peers.Ranks, clock: Callable[[], int] = time.perf_counter_ns
) -> list[int]:
    """Return the duration of each of `num_iterations` iterations on this rank, in nanoseconds."""
    prepare, iterate, synchronize = workload.before_iteration, workload.iterate, ranks.synchronize
    durations = []
    for _ in range(num_iterations):
        if prepare is not None:
            prepare()
        synchronize()
        begin = clock()
        iterate()
        synchronize()
        durations.append(clock() - begin)
    return durations


def run_blocks(
    workload: Workload,
    ranks: peers.Ranks,
    decide: Callable[[Blocks], tuple[int, str | None]],
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Blocks:
    """Run blocks until rank 0's `decide` answers (0, reason). `stop` and the decision's clock are rank 0's."""
    blocks = Blocks()
    begin = clock()
    while True:
        blocks.elapsed = clock() - begin
        size = 0
        if ranks.rank == 0:
            size, blocks.stop = decide(blocks)
        size = peers.number_from_rank_0(size, ranks)
        if size == 0:
            return blocks
        durations = time_block(workload, size, ranks, clock)
        slowest = peers.largest_over_ranks(durations, ranks)
        blocks.own.extend(durations)
        blocks.slowest.extend(slowest)
        # list.sort merges the sorted head with the new tail, so sorting after each block stays cheap.
        blocks.ordered.extend(slowest)
        blocks.ordered.sort()


def warm_up(workload: Workload, ranks: peers.Ranks, plan: sampling.SamplingPlan) -> Blocks:
    return run_blocks(workload, ranks, lambda done: sampling.next_warmup_block(done.slowest, done.elapsed, plan))


def take_samples(workload: Workload, ranks: peers.Ranks, plan: sampling.SamplingPlan, warmup: Blocks) -> Blocks:
    recent = sorted(warmup.slowest[-sampling.WARMUP_BLOCK :])
    expected = sampling.median_of_sorted(recent)
    return run_blocks(
        workload, ranks, lambda done: sampling.next_sampling_block(done.ordered, done.elapsed, plan, expected)
    )


def time_windows(
    workload: Workload, ranks: peers.Ranks, samples: Blocks, clock: Callable[[], int] = time.perf_counter_ns
) -> tuple[int, list[int]]:
    """Return (steps per window, this rank's duration of each window). Within a window nothing waits for the device."""
    num_windows, steps = sampling.plan_windows(sampling.median_of_sorted(samples.ordered), samples.elapsed)
    num_windows = peers.number_from_rank_0(num_windows, ranks)
    steps = peers.number_from_rank_0(steps, ranks)
    durations = []
    for _ in range(num_windows):
        peers.barrier(ranks)
        ranks.synchronize()
        begin = clock()
        for _ in range(steps):
            workload.iterate()
        ranks.synchronize()
        durations.append(clock() - begin)
    return steps, durations
