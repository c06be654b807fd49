"""The table that a benchmark prints: configuration, then results. Standard library only."""

import math
from collections.abc import Callable

from harness import sampling

# One-sided 95 % confidence in a p-quantile needs ln 0.05 / ln p independent values (docs/metrics.md, percentiles).
PERCENTILES = ((0.90, 29), (0.95, 59), (0.99, 299))

# Factor from algorithm bandwidth to bus bandwidth for n ranks: nccl-tests, doc/PERFORMANCE.md. 1 for all others.
BUS_FACTOR: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    **dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), lambda n: (n - 1) / n),
}

# A test compares them with workflow/schemas/results.yaml, which ranks cannot read.
MEMORY_LABELS = {
    "parameter_bytes": "parameters",
    "gradient_bytes": "gradients",
    "optimizer_bytes": "optimizer",
    "saved_bytes": "saved",
    "algorithm_bytes": "algorithm",
    "peak_rss_bytes": "peak RSS",
    "peak_allocated_bytes": "peak allocated",
    "peak_reserved_bytes": "peak reserved",
    "device_used_bytes": "device",
}
PART_NAMES = {"step": "step (alternating)", "no_sync": "without sync", "communication": "sync alone"}


def render(record: dict, places: list, threads_per_rank: int) -> str:
    """Return the text for a record. places: one per rank."""
    spec = record["spec"]
    lines = configuration(spec, places, threads_per_rank)
    rows = outcome_rows(record, len(places)) + memory_rows(record["memory"]) + check_rows(record)
    width = max(len(name) for name, _ in rows)
    return "\n".join(lines + [f"  {name:<{width}}  {value}" for name, value in rows])


def configuration(spec: dict, places: list, threads_per_rank: int) -> list[str]:
    hosts = sorted({place.host for place in places})
    threads = f"{threads_per_rank} thread{'s' if threads_per_rank > 1 else ''} each"
    how = "device synchronized before and after each iteration"
    how = "time between optimizer steps" if "script" in spec else how
    settings = ", ".join(f"{key} {value}" for key, value in spec["parameters"].items() if value is not None)
    return [
        f"# {spec['benchmark']} version {spec['version']}: {settings}",
        f"# {len(places)} rank{'s' if len(places) > 1 else ''} on {', '.join(hosts)}: {spec['device']}, "
        f"{spec['backend']}, {threads}",
        f"# Slowest rank; {how}. One launch: rerun for independent results.",
    ]


def slowest(rows: list[list[int]]) -> list[int]:
    """Return the maximum over ranks at each position of [rank][position]."""
    return [max(of_ranks) for of_ranks in zip(*rows, strict=True)]


def outcome_rows(record: dict, num_ranks: int) -> list[tuple[str, str]]:
    """Return rows for times and rates; a single row if nothing was timed."""
    if record["sampling"] is None:
        return [("samples", "none: a check failed before anything was timed")]
    samples = record["slowest_rank_samples_ns"] or slowest(record["samples_ns"])
    ordered = sorted(samples)
    median = sampling.median_of_sorted(ordered)
    warmup, taken = record["warmup"], record["sampling"]
    warmup_text = "none: the first iteration is measured too"
    if warmup:
        warmup_text = (
            f"{warmup['num_iterations']} iterations, {warmup['elapsed_ns'] / 1e9:.2f} s, stopped: {warmup['stop']}"
        )
        if warmup["first_iteration_ns"] is not None:
            warmup_text += f"; first {duration(warmup['first_iteration_ns'])}"
    rows = [
        ("warm-up", warmup_text),
        ("samples", f"{len(ordered)} in {taken['elapsed_ns'] / 1e9:.2f} s, stopped: {taken['stop']}"),
        ("median", f"{duration(median)}{interval(samples, ordered)}"),
        ("min .. max", f"{duration(ordered[0])} .. {duration(ordered[-1])}"),
    ]
    rows += [
        (f"p{round(100 * probability)}", duration(sampling.quantiles(ordered, [probability])[0]))
        for probability, num_needed in PERCENTILES
        if len(ordered) >= num_needed
    ]
    return rows + rate_rows(record, median, num_ranks) + part_rows(record["parts_ns"] or {})


def part_rows(parts: dict[str, list[list[int]]]) -> list[tuple[str, str]]:
    """Return a row for each part or ablated iteration, and for the exposed communication."""
    medians = {name: sampling.median_of_sorted(sorted(slowest(rows))) for name, rows in parts.items()}
    rows = [(PART_NAMES.get(name, name), duration(median)) for name, median in medians.items()]
    if "no_sync" in medians:
        exposed = medians["step"] - medians["no_sync"]
        rows.append(("exposed", f"{exposed / 1e6:.3f} ms, {exposed / medians['step']:.1%} of the step"))
    return rows


def interval(samples: list[int], ordered: list[int]) -> str:
    found = sampling.median_interval(samples, ordered)
    if found is None:
        return "  (too few samples for an interval)"
    lower, upper = map(duration, found)
    return f"  (95 %: {lower} .. {upper})"


def rate_rows(record: dict, median: float, num_ranks: int) -> list[tuple[str, str]]:
    """Return throughput for training steps, bandwidths for collectives."""
    parameters, rows, step = record["spec"]["parameters"], [], None
    if record["windows"]:
        steps = record["windows"]["steps_per_window"]
        windows = slowest(record["windows"]["elapsed_ns"])
        step = sum(windows) / (len(windows) * steps)  # work over time, as in the report (docs/metrics.md)
        noun = "call" if "operation" in parameters else "step"
        rows.append((f"pipelined {noun}", f"{duration(step)}  ({len(windows)} windows of {steps} {noun}s)"))
    samples = parameters.get("batch_size") or parameters.get("samples_per_step")
    if step and samples:
        rate = num_ranks * samples / step * 1e9
        rows.append(("throughput", f"{rate:.1f} samples/s, {rate / num_ranks:.1f} per rank"))
    if parameters.get("message_bytes"):
        factor = BUS_FACTOR.get(parameters["operation"], lambda n: 1.0)(num_ranks)
        for lead, elapsed in (("", median), ("pipelined ", step)):
            if elapsed:
                algbw = parameters["message_bytes"] / elapsed  # bytes per nanosecond are GB/s
                rows.append((f"{lead}algbw", f"{algbw:.4g} GB/s"))
                rows.append((f"{lead}busbw", f"{algbw * factor:.4g} GB/s  (algbw x {factor:.4g})"))
    return rows


def memory_rows(memory: dict) -> list[tuple[str, str]]:
    rows = []
    for key, label in MEMORY_LABELS.items():
        value = memory.get(key)
        if isinstance(value, list):
            rows.append((label, f"{max(value) / 2**20:.1f} MiB (maximum over ranks)"))
        elif value is not None:
            rows.append((label, f"{value / 2**20:.1f} MiB"))
    return rows


def check_rows(record: dict) -> list[tuple[str, str]]:
    rows = [(check, "yes" if has_passed else "NO") for check, has_passed in record["checks"].items()]
    last = {name: value[-1] if isinstance(value, list) and value else value for name, value in record["values"].items()}
    rows += [(name, f"{value:.4g}") for name, value in last.items() if isinstance(value, float)]
    status = record["status"] if record["cause"] is None else f"{record['status']}: {record['cause']}"
    return [*rows, ("status", status)]


def duration(nanoseconds: float) -> str:
    """Return a duration with four digits in a suitable unit."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            digits = max(0, 3 - int(math.log10(nanoseconds / size)))
            return f"{nanoseconds / size:.{digits}f} {unit}"
    return f"{nanoseconds:.0f} ns"
