"""What the report says about how its numbers came about. Constants are those of the code, so that words cannot drift."""

from regatta.analysis.collectives import BYTES_PER_GB
from regatta.analysis.scaling import EXCELLENT, GOOD, WIDE_RATIO
from regatta.cell_words import natural, with_words
from regatta.numbers import plural
from regatta.statistics import (
    CONFIDENCE,
    MIN_LAUNCHES_BOOTSTRAP,
    MIN_SAMPLES_INTERVAL,
    NUM_RESAMPLES,
    PERCENTILES,
    Z_95,
    min_samples,
)

ENDS = {"no_start": "no rank came up", "node_failure": "a node failed", "stopped": "stopped"}


def methods(campaign: dict) -> list[tuple[str, str]]:
    """Return (term, definition) pairs for the Methods section."""
    least = ", ".join(f"{name.removesuffix('_s')} {min_samples(p)}" for name, p in PERCENTILES.items())
    return [
        ("Launch", "One set of processes that measures each cell once. Launches are independent of each other, iterations are not, so spread is taken over launches."),
        ("Timer", "The monotonic clock of each rank, in nanoseconds. The device is synchronised before both readings; on a CPU nothing runs behind the clock."),
        ("Ranks", "An iteration costs what its slowest rank took: the maximum over ranks of each iteration. Ranks are never averaged."),
        ("Warm-up", "Iterations before the step time stops falling are timed, counted and discarded; the first is kept as a number of its own."),
        ("Sampling", _sampling(campaign)),
        ("Step time", "Of train_step (and the pipelined time of a collective): windows, in which several steps run back to back and the device is synchronised only at the window's ends. Time per step = total time of the slowest ranks / total steps. Single synchronised steps are in measurements.csv (p50_s)."),
        ("Throughput", "Ranks × batch per rank / median over launches of the time per step. Times are summarised, rates derived: rates are never averaged. The batch per rank is fixed, so this is weak scaling."),
        ("Efficiency", f"Throughput per rank / throughput per rank of the baseline, {_baseline(campaign)}, of the same workload, stack and backend. Above {EXCELLENT:.1f} excellent, above {GOOD:.1f} good, else poor; no word where the spread lies on both sides of a limit or is wider than {100 * WIDE_RATIO:g} % of the efficiency, which is then told as inconclusive, and none in this report where ranks had other numbers of threads than those of the baseline."),
        ("Where it is lost", "Wrapper = X(1) / X without DDP(1). Intra-node = X(g) / (g X(1)). Inter-node = X(kg) / (k X(g)), for k nodes of g ranks and throughput X. Their product is the efficiency against one rank without DDP. A part whose cell has no valid record is n/a."),
        ("Bandwidth", f"algbw = S / t, S the bytes of one rank's buffer (for all_gather, reduce_scatter and all_to_all it holds one part for each rank: the sum over ranks), t of one blocking call, or in pipelined columns of one call among many that are begun without waiting. busbw = algbw × 2(n−1)/n for all_reduce, × (n−1)/n for all_gather, reduce_scatter and all_to_all, × 1 for the others (nccl-tests, doc/PERFORMANCE.md). No busbw for one rank, and none for a barrier. 1 GB = {BYTES_PER_GB:,} bytes; 1 MiB = 2²⁰ and 1 GiB = 2³⁰ bytes."),
        ("Spread", f"Below {MIN_LAUNCHES_BOOTSTRAP} launches the smallest and largest launch (of a ratio: of all pairs of launches), which is a range and not an interval. From {MIN_LAUNCHES_BOOTSTRAP} a {100 * CONFIDENCE:g} % percentile bootstrap of the median over launches, {NUM_RESAMPLES:,} resamples, fixed seed. Within a launch (measurements.csv) order statistics, z = {Z_95}, from {MIN_SAMPLES_INTERVAL} samples."),
        ("Percentiles", f"Linear interpolation, only where the sample is large enough to hold a value beyond it with {100 * CONFIDENCE:g} % confidence ({least} samples)."),
        ("Tables", "n: launches with a valid record / launches planned. n/a: not known. –: not planned or without meaning. Numbers are rounded to three significant figures; the CSV files are not."),
    ]  # fmt: skip


def left_out(problems: dict, words: dict[str, str]) -> list[tuple[str, list[str]]]:
    """Return (what, items) for everything in the store that the report does not use. words: see regatta.cell_words."""
    invalid = [f"{p['launch']}, line {p['line']} ({p['kind']}): {p['problem']}" for p in problems["invalid"]]
    superseded = [
        f"{with_words(p['cell'], words)}, repeat {p['repeat']}: {p['status']} in {p['launch']}, line {p['line']}; later record {p['by']}"
        for p in problems["superseded"]
    ]
    beyond = [
        f"{with_words(p['cell'], words)}, repeat {p['repeat']}: {p['launch']}, line {p['line']}"
        for p in problems["beyond_repeats"]
    ]
    other = [
        f"{p['cell']}: {plural(p['num_records'], 'record')}"
        for p in sorted(problems["not_planned"], key=lambda p: natural(p["cell"]))
    ]
    num_other = sum(p["num_records"] for p in problems["not_planned"])
    groups = [
        (f"{plural(len(problems['corrupt']), 'line')} torn or corrupt", problems["corrupt"]),
        (f"{plural(len(invalid), 'line')} against the schema", invalid),
        (f"{plural(len(superseded), 'record')} superseded by a later one of the same cell and repeat", superseded),
        (f"{plural(len(beyond), 'record')} of repeats beyond those of the campaign", beyond),
        (
            f"{plural(num_other, 'record')} of {plural(len(other), 'cell')} that this campaign does not plan (any more)",
            other,
        ),
    ]
    return [(what, items) for what, items in groups if items]


def num_left_out(problems: dict) -> int:
    """Return how many lines and records of the store the report does not use."""
    lists = ("corrupt", "invalid", "superseded", "beyond_repeats")
    return sum(len(problems[name]) for name in lists) + sum(p["num_records"] for p in problems["not_planned"])


def interruptions(problems: dict) -> list[str]:
    """Return a line for each job that ended before its batch was finished, whatever became of the batch later."""
    lines = []
    for job in problems.get("interrupted", []):
        name = f"{job['batch']}, job {job['job']}" if job["job"] else job["batch"]
        on_hosts = f" ({', '.join(job['hosts'])})" if job["hosts"] else ""
        lines.append(f"{name}: {ENDS.get(job['kind'], job['kind'])}{on_hosts}: {job['cause']}")
    return lines


def _sampling(campaign: dict) -> str:
    rules = {tuple(sorted(cell["spec"]["sampling"].items())) for cell in campaign["cells"]}
    if not rules:
        return "Nothing was planned."
    texts = []
    for rule in sorted(rules):
        s = dict(rule)
        texts.append(
            f"A cell is sampled until the half width of the {100 * CONFIDENCE:g} % interval of its median is within"
            f" {s['target_precision']:.2g} of the median, but for {s['min_seconds']:g} s and {s['min_samples']:,} iterations at"
            f" least, and for {s['max_seconds']:g} s or {s['max_samples']:,} iterations at most; warm-up takes at most"
            f" {s['max_warmup_seconds']:g} s."
        )
    return " Or: ".join(texts)


def _baseline(campaign: dict) -> str:
    return ", ".join(f"{name} {value}" for name, value in campaign["baseline"].items())
