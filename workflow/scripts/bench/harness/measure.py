"""Measure one cell: process group, setup, check, warm-up, samples, windows, check, memory."""

import sys
import time
from dataclasses import dataclass
from types import ModuleType

import torch
import torch.distributed as dist

from harness import host_load, launch_file, peers, process, sampling, timing
from harness.failures import Progress
from harness.process import count_other_ranks

# With more samples in total, a record keeps the maximum over ranks and quantiles per rank (docs/contracts.md).
MAX_SAMPLES_IN_RECORD = 65_536
MAX_PART_ITERATIONS = 1000  # limit of parts_ns
NO_SIZES = {"parameter_bytes": None, "gradient_bytes": None}
PEAKS = ("peak_rss_bytes", "peak_allocated_bytes", "peak_reserved_bytes", "device_used_bytes")
QUANTILE_PROBABILITIES = [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1]


@dataclass
class MeasuredCell:
    """The measured fields of a record, complete on every rank (docs/contracts.md, Record)."""

    status: str
    phase: str | None
    cause: str | None
    fields: dict


def measure(
    benchmark: ModuleType, spec: dict, ranks: peers.Ranks, store: dist.Store, name: str, progress: Progress
) -> MeasuredCell:
    """Measure one cell: the benchmark does it itself if it has `measure_cell`, as for a user's script."""
    if hasattr(benchmark, "measure_cell"):
        return benchmark.measure_cell(spec, ranks, store, name, progress)
    return measure_cell(benchmark, spec, ranks, store, name, progress)


def measure_cell(
    benchmark: ModuleType, spec: dict, ranks: peers.Ranks, store: dist.Store, name: str, progress: Progress
) -> MeasuredCell:
    """Measure one cell in a separate process group. `name` must be new to the store.

    After an exception the group is not ended: ranks may disagree, so the process has to end.
    """
    others = [count_on_host(ranks)]
    load = host_load.Monitor(ranks.local_rank == 0, ranks.host_cores, gpu_uuid(ranks))
    begin = time.perf_counter_ns()
    progress.phase = "init"
    peers.begin_group(ranks, spec["backend"], store, name)
    progress.phase = "setup"
    workload = benchmark.build(spec["parameters"], ranks)
    ranks.synchronize()
    fields = {"setup_ns": time.perf_counter_ns() - begin}
    plan = sampling.SamplingPlan(**spec["sampling"])
    fields |= run_phases(workload, ranks, plan, progress, load)
    del workload
    fields["host_load"] = host_load.record_field(peers.gather_rows(load.row(), ranks))
    fields["other_ranks"] = largest_known([*others, count_on_host(ranks)], ranks)
    peers.end_group()
    release_memory(ranks)
    failed = [check for check, has_passed in fields["checks"].items() if not has_passed]
    fields = {"elapsed_ns": time.perf_counter_ns() - begin, **fields}
    if failed:
        cause = f"check failed: {', '.join(failed)} is false on at least one rank"
        return MeasuredCell("failed", "check", cause, fields)
    return MeasuredCell("ok", None, None, fields)


def run_phases(
    workload: timing.Workload,
    ranks: peers.Ranks,
    plan: sampling.SamplingPlan,
    progress: Progress,
    load: host_load.Monitor,
) -> dict:
    """Return a record's times, checks and values. Nothing is timed if an early check fails."""
    checks = {}
    if workload.check_before is not None:
        progress.phase = "check"
        checks = peers.true_on_all_ranks(workload.check_before(), ranks)
    if not all(checks.values()):
        return {
            **dict.fromkeys(launch_file.TIMED_FIELDS),
            "checks": checks,
            "values": workload.values(),
            "memory": {**NO_SIZES, **workload.memory(), **dict.fromkeys(PEAKS)},
        }
    has_peak_rss = reset_peaks(ranks)
    progress.phase = "warmup"
    warmup = None if workload.num_iterations else timing.warm_up(workload, ranks, plan)
    load.read_gpu()
    progress.phase = "measure"
    samples = timing.take_samples(workload, ranks, plan, warmup) if warmup else timing.take_fixed(workload, ranks)
    load.read_gpu()
    parts = {name: durations[-len(samples.local) :] for name, durations in workload.parts().items()}
    windows = timing.time_windows(workload, ranks, samples, plan.windows_ratio) if workload.has_windows else None
    load.read_gpu()
    peaks = peak_fields(ranks, has_peak_rss)
    progress.phase = "check"
    late_checks = peers.true_on_all_ranks(workload.check(), ranks)
    checks |= {check: has_passed and checks.get(check, True) for check, has_passed in late_checks.items()}
    values, memory = workload.values(), {**NO_SIZES, **workload.memory(), **peaks}
    if all(checks.values()):
        progress.phase = "measure"
        parts |= timing.time_ablations(workload, ranks, samples)
    return {
        **warmup_and_sampling(warmup, samples),
        **sample_fields(samples, ranks),
        "windows": windows and {"steps_per_window": windows[0], "elapsed_ns": peers.gather_rows(windows[1], ranks)},
        "parts_ns": part_fields(parts, ranks),
        "checks": checks,
        "values": values,
        "memory": memory,
    }


def count_on_host(ranks: peers.Ranks) -> int:
    """Return how many ranks of other launches run on this host, -1 if unknown. One rank per host counts."""
    found = count_other_ranks() if ranks.local_rank == 0 else None
    return -1 if found is None else found


def gpu_uuid(ranks: peers.Ranks) -> str | None:
    """Return the UUID of this rank's GPU, "" if torch does not name it, None on a CPU."""
    if ranks.device.type != "cuda":
        return None
    uuid = getattr(torch.cuda.get_device_properties(ranks.device), "uuid", None)  # since torch 2.4
    return "" if uuid is None else f"GPU-{uuid}"


def largest_known(values: list[int], ranks: peers.Ranks) -> int | None:
    """Return the largest value of any rank, None if all are -1, unknown."""
    largest = max(peers.largest_over_ranks(values, ranks))
    return None if largest < 0 else largest


def warmup_and_sampling(warmup: timing.Blocks | None, samples: timing.Blocks) -> dict:
    ratio = sampling.half_width_ratio(samples.slowest, samples.ordered)
    taken = {"num_iterations": len(samples.slowest), "elapsed_ns": samples.elapsed, "stop": samples.stop}
    taken["half_width_ratio"] = None if ratio is None else round(ratio, 6)
    if warmup is None:
        return {"warmup": None, "sampling": taken}
    begun = {"num_iterations": len(warmup.slowest), "elapsed_ns": warmup.elapsed}
    begun |= {"first_iteration_ns": warmup.slowest[0], "stop": warmup.stop}
    return {"warmup": begun, "sampling": taken}


def sample_fields(samples: timing.Blocks, ranks: peers.Ranks) -> dict:
    """Return the three fields of a record with samples: all of them, or for very many the slowest rank's."""
    fields = dict.fromkeys(("samples_ns", "slowest_rank_samples_ns", "rank_quantiles_ns"))
    if len(samples.local) * ranks.world_size <= MAX_SAMPLES_IN_RECORD:
        return fields | {"samples_ns": peers.gather_rows(samples.local, ranks)}
    of_rank = sampling.quantiles(sorted(samples.local), QUANTILE_PROBABILITIES)
    quantiles = {"probabilities": QUANTILE_PROBABILITIES, "ranks": peers.gather_rows(of_rank, ranks)}
    return fields | {"slowest_rank_samples_ns": samples.slowest, "rank_quantiles_ns": quantiles}


def part_fields(parts: dict[str, list[int]], ranks: peers.Ranks) -> dict[str, list[list[int]]] | None:
    """Return the record's `parts_ns`: name -> [rank][iteration], of the last iterations if there are very many.

    Nanoseconds below 0 mean unknown: such a part is omitted.
    """
    kept = {name: durations[-MAX_PART_ITERATIONS:] for name, durations in parts.items()}
    rows = {name: peers.gather_rows(durations, ranks) for name, durations in kept.items()}
    return {name: by_rank for name, by_rank in rows.items() if not any(ns < 0 for row in by_rank for ns in row)} or None


def reset_peaks(ranks: peers.Ranks) -> bool:
    """Reset the peaks of memory to the current use. Return whether the peak of resident memory is known.

    Memory that the setup has freed is no part of a step: the whole model before it was sharded, data as they were
    read.
    """
    ranks.synchronize()
    process.trim_memory()
    if ranks.device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(ranks.device)
    return process.reset_peak_rss()


def peak_fields(ranks: peers.Ranks, has_peak_rss: bool) -> dict[str, list[int] | None]:
    """Return the record's `memory` by rank: peaks since the reset, so of warm-up, samples and windows; None if unknown.

    The allocator's peaks exclude memory of CUDA and NCCL; device_used_bytes is the whole device's use now, after the
    steps.
    """
    peak_rss = process.peak_rss_bytes() if has_peak_rss else None
    peaks = [-1 if peak_rss is None else peak_rss, -1, -1, -1]
    if ranks.device.type == "cuda":
        peaks[1] = torch.cuda.max_memory_allocated(ranks.device)
        peaks[2] = torch.cuda.max_memory_reserved(ranks.device)
        free, total = torch.cuda.mem_get_info(ranks.device)
        peaks[3] = total - free
    by_kind = zip(*peers.gather_rows(peaks, ranks), strict=True)
    return {name: None if min(values) < 0 else list(values) for name, values in zip(PEAKS, by_kind, strict=True)}


def release_memory(ranks: peers.Ranks) -> None:
    """Release a cell's memory and compiled code."""
    # With graphs of earlier cells, torch.compile would compile the next shape with dynamic shapes, and after eight of
    # them (recompile_limit) run the rest uncompiled. Before freezing, which would keep them.
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    process.release_memory()
    if ranks.device.type == "cuda":
        torch.cuda.empty_cache()
