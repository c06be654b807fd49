"""The timed loops: blocks of single iterations, and pipelined windows.

Each iteration is timed separately, with the device idle at both clock reads. There is no barrier between the iterations
of a block: as in training, only the measured collectives synchronize ranks. Between blocks the ranks share their times,
outside any timed region.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from harness import peers, sampling


@dataclass
class Ablation:
    """An iteration without a part of its work, or that part alone, or one that is traced.

    prepare: untimed, before each. after: untimed, after each, with the device idle. parts: read at the end, name ->
    nanoseconds that the iterations recorded, one for each.
    """

    run: Callable[[], None]
    prepare: Callable[[], None] | None = None
    after: Callable[[], None] | None = None
    parts: Callable[[], dict[str, list[int]]] = dict


@dataclass
class Workload:
    """The functions of a benchmark, called on every rank alike.

    iterate: one iteration, the timed work and nothing else.
    check: named results of checks on this rank, run after the measurement, untimed.
    before_iteration: untimed preparation of an iteration, or None.
    check_before: like `check`, but before warm-up; if one is false, nothing is timed.
    has_windows: whether iterations may run back to back without checking their results.
    before_windows: untimed preparation of all windows, or None.
    run_window: runs that many iterations back to back, with all waiting of the host; None calls `iterate` instead.
    values: numbers and words for the record, read at the end. memory: bytes by name, the same on each rank.
    parts: read at the end, name -> this rank's nanoseconds in a part of each iteration, equally many on all ranks; the
    last ones are the samples'.
    num_iterations: exactly this many are timed, from the first on, without warm-up; None if the sampling decides.
    ablations: timed after the last check, because they may leave wrong results, alternating with `iterate`, which is
    then called `step`.
    """

    iterate: Callable[[], None]
    check: Callable[[], dict[str, bool]]
    values: Callable[[], dict] = dict
    memory: Callable[[], dict[str, int | None]] = dict
    before_iteration: Callable[[], None] | None = None
    check_before: Callable[[], dict[str, bool]] | None = None
    has_windows: bool = False
    before_windows: Callable[[], None] | None = None
    run_window: Callable[[int], None] | None = None
    parts: Callable[[], dict[str, list[int]]] = dict
    num_iterations: int | None = None
    ablations: dict[str, Ablation] = field(default_factory=dict)


@dataclass
class Blocks:
    """Times per iteration of one phase. local: this rank's; slowest: the maximum over ranks; ordered: that, sorted."""

    local: list[int] = field(default_factory=list)
    slowest: list[int] = field(default_factory=list)
    ordered: list[int] = field(default_factory=list)
    elapsed: int = 0
    stop: str | None = None


def time_block(
    iterate: Callable[[], None],
    prepare: Callable[[], None] | None,
    num_iterations: int,
    ranks: peers.Ranks,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> list[int]:
    """Return the nanoseconds of each of `num_iterations` iterations on this rank. prepare: before each, untimed."""
    synchronize = ranks.synchronize
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
    """Run blocks until rank 0's `decide` returns (0, reason). `stop` and the decision's clock are rank 0's."""
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
        durations = time_block(workload.iterate, workload.before_iteration, size, ranks, clock)
        slowest = peers.largest_over_ranks(durations, ranks)
        blocks.local.extend(durations)
        blocks.slowest.extend(slowest)
        # list.sort merges the sorted head with the new tail, so sorting after each block stays cheap.
        blocks.ordered.extend(slowest)
        blocks.ordered.sort()


def warm_up(workload: Workload, ranks: peers.Ranks, plan: sampling.SamplingPlan) -> Blocks:
    return run_blocks(workload, ranks, lambda done: sampling.next_warmup_block(done.slowest, done.elapsed, plan))


def take_samples(workload: Workload, ranks: peers.Ranks, plan: sampling.SamplingPlan, warmup: Blocks) -> Blocks:
    recent = sorted(warmup.slowest[-sampling.WARMUP_BLOCK :])
    expected = sampling.median_of_sorted(recent)

    def decide(done: Blocks) -> tuple[int, str | None]:
        return sampling.next_sampling_block(done.slowest, done.ordered, done.elapsed, plan, expected)

    return run_blocks(workload, ranks, decide)


def take_fixed(workload: Workload, ranks: peers.Ranks) -> Blocks:
    """Time the workload's fixed number of iterations, one by one."""

    def decide(done: Blocks) -> tuple[int, str | None]:
        return (1, None) if len(done.local) < workload.num_iterations else (0, "fixed")

    return run_blocks(workload, ranks, decide)


def time_ablations(workload: Workload, ranks: peers.Ranks, samples: Blocks) -> dict[str, list[int]]:
    """Return this rank's nanoseconds of whole and ablated iterations: name -> one for each round.

    Each round runs all of them once, in rotated order, so that a drift of the machine affects all alike. The first
    round is warm-up and not returned. A barrier precedes each: after an iteration without communication the ranks are
    not aligned, and the next would include the wait.
    """
    if not workload.ablations:
        return {}
    runs = {"step": Ablation(workload.iterate, workload.before_iteration), **workload.ablations}
    num_rounds = sampling.plan_rounds(sampling.median_of_sorted(samples.ordered), samples.elapsed, len(runs))
    num_rounds = peers.number_from_rank_0(num_rounds, ranks)
    durations: dict[str, list[int]] = {name: [] for name in runs}
    order = list(runs)
    for _ in range(1 + num_rounds):
        for name in order:
            peers.barrier(ranks)
            durations[name] += time_block(runs[name].run, runs[name].prepare, 1, ranks)
            if runs[name].after is not None:
                runs[name].after()
        order = [*order[1:], order[0]]
    recorded = {name: values for run in runs.values() for name, values in run.parts().items()}
    return {name: values[1:] for name, values in (durations | recorded).items()}


def time_windows(
    workload: Workload,
    ranks: peers.Ranks,
    samples: Blocks,
    windows_ratio: float,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> tuple[int, list[int]]:
    """Return (steps per window, this rank's duration of each window). Within a window the host does not wait."""
    median = sampling.median_of_sorted(samples.ordered)
    num_windows, steps = sampling.plan_windows(median, samples.elapsed, windows_ratio)
    num_windows = peers.number_from_rank_0(num_windows, ranks)
    steps = peers.number_from_rank_0(steps, ranks)
    durations = []
    if workload.before_windows is not None:
        workload.before_windows()
    for _ in range(num_windows):
        peers.barrier(ranks)
        ranks.synchronize()
        begin = clock()
        if workload.run_window is not None:
            workload.run_window(steps)
        else:
            for _ in range(steps):
                workload.iterate()
        ranks.synchronize()
        durations.append(clock() - begin)
    return steps, durations
