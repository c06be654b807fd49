"""What the report says about how its numbers came about. Constants are those of the code, so that words cannot drift."""

from regatta.core.names import name_of
from regatta.core.statistics import (
    CONFIDENCE,
    MIN_LAUNCHES_INTERVAL,
    MIN_SAMPLES_INTERVAL,
    OUTER_FENCE,
    PERCENTILES,
    Z_95,
    min_samples,
)
from regatta.core.text import natural, plural
from regatta.core.verdicts import FALSE_DISCOVERIES, MIN_LAUNCHES_EQUIVALENT, MIN_LAUNCHES_TEST, MIN_NOISE_PAIRS
from regatta.topics.communication import BYTES_PER_GB
from regatta.topics.comparison.tables import MARGIN, alike_stacks, cell_pairs
from regatta.topics.fits import collectives as communication_model
from regatta.topics.fits import scaling as scaling_models
from regatta.topics.scaling.tables import EXCELLENT, GOOD, WIDE_RATIO
from regatta.topics.stragglers.spikes import MOST_OF_SPIKE
from regatta.topics.stragglers.tables import MOST_OF_RECORDS
from regatta.topics.stragglers.waits import LAG_RATIO, SUSPECT_P

# Terms of the Methods section on what is derived from times by more than a ratio. Each only where a campaign has it.

COMPARISONS = (
    "Ratio of the medians over launches of p50_s (synchronised steps, blocking calls), or where launches shared an allocation the median of their own"
    f" ratios; above 1 is slower. Slower and faster: the whole spread lies beyond the margin, and p that the ratio is 1 is at most {FALSE_DISCOVERIES:g},"
    " corrected by Benjamini and Hochberg over all rows. The test is Mann–Whitney's U or Wilcoxon's signed ranks, and a t test of logarithms where no outcome"
    f" of a rank test could reach the corrected level. Equivalent: the whole spread lies within the margin, from {MIN_LAUNCHES_EQUIVALENT[False]} launches on"
    f" both sides or {MIN_LAUNCHES_EQUIVALENT[True]} pairs. Margin: the campaign's (else {100 * MARGIN:g} %), and of a benchmark with {MIN_NOISE_PAIRS} pairs or"
    f" more of cells on alike stacks (A/A), {MIN_LAUNCHES_TEST} launches each, no less than the 95th percentile of how far those are from 1, the largest of"
    " fewer than 59. A/A pairs themselves are not judged."
)
COMMUNICATION_MODEL = (
    "T(S) = a + c √S + S/B, fitted to the latencies of a collective's sizes by robust least squares of logarithms; a parameter that the sizes cannot tell is"
    " left out, and a model that misses too many sizes is refused. The spread is the wider of that over launches and that of the residuals. B is algorithm"
    " bandwidth (algbw), S over the time per call."
)
SCALING_MODELS = (
    "X(n) = X₁ n / (1 + σ (n − 1) + κ n (n − 1)), with κ = 0 Amdahl's law, else the Universal Scalability Law, fitted in the same way to weak-scaling"
    " throughput; of models that fit, the one with the lower AICc. A model whose residuals are more than the launches' scatter explains (F test of lack of fit,"
    f" p below {scaling_models.LACK_P:g}) is refused, unless it comes within {100 * scaling_models.LEAST_MISFIT:g} % of every size. None predicts beyond twice the largest n."
)
BEST_BUCKET = (
    "The measured best has the fastest median step; it is no test. The predicted one is √(s w o), for s bytes of gradients, bandwidth w and cost o of a call"
    " of the all-reduce: what the calls cost then equals what the last bucket, which nothing hides, takes. Its spread is that of w and o, not of the formula."
)
EXPOSED = (
    "The step minus the same step without exchange of gradients, medians of rounds in which both take turns, in each launch, then the median over launches. Hidden"
    " is 1 − exposed / the time of the exchange alone. n: launches with both steps. Not known of fsdp and static graphs, which have no such step."
)
MFU = (
    "Operations of the model's products (of the model, not of the hardware: a multiply and an add are two) per second and GPU, over the GPU's peak in the"
    " cluster file for the fastest arithmetic that torch's settings allow. Empty where GPU, settings or peak are not known."
)


def analysis_terms(campaign: dict) -> list[tuple[str, str]]:
    """Return (term, definition) pairs of what the cells of a campaign can give. Definitions: docs/metrics.md."""
    cells = [cell["spec"] for cell in campaign["cells"]]
    steps = [spec for spec in cells if spec["benchmark"] == "train_step"]
    wrapped = [spec for spec in steps if spec["parameters"].get("strategy") not in (None, "none")]
    on_several = [spec for spec in wrapped if _world_size(spec) > 1]
    sizes = {spec["parameters"].get("message_bytes") for spec in cells} - {None}
    buckets = {spec["parameters"].get("bucket_cap_mb") for spec in on_several} - {None}
    terms = {
        "Comparisons": (COMPARISONS, bool(cell_pairs(campaign) or alike_stacks(campaign))),
        "Communication model": (COMMUNICATION_MODEL, len(sizes) >= communication_model.MIN_SIZES),
        "Scaling models": (
            SCALING_MODELS,
            len(set(map(_world_size, wrapped))) >= min(scaling_models.MIN_SIZES.values()),
        ),
        "Best bucket": (BEST_BUCKET, len(buckets) > 1),
        "Exposed communication": (EXPOSED, bool(on_several)),
        "MFU": (MFU, bool(steps and campaign["cluster"].get("peaks"))),
    }
    return [(term, text) for term, (text, is_there) in terms.items() if is_there]


def _world_size(spec: dict) -> int:
    return spec["nodes"] * spec["gpus_per_node"]


ENDS = {"no_start": "no rank came up", "node_failure": "a node failed", "stopped": "stopped"}


def methods(campaign: dict) -> list[tuple[str, str]]:
    """Return (term, definition) pairs for the Methods section."""
    least = ", ".join(f"{name.removesuffix('_s')} {min_samples(p)}" for name, p in PERCENTILES.items())
    return [
        ("Launch", "One set of processes that measures each cell once. Iterations of a launch are not independent of each other, so spread is taken over launches. Launches of one batch share an allocation: what differs between allocations (nodes, neighbours, hours) is in no spread."),
        ("Timer", "The monotonic clock of each rank, in nanoseconds. The device is synchronised before both readings; on a CPU nothing runs behind the clock."),
        ("Ranks", "An iteration costs what its slowest rank took: the maximum over ranks of each iteration. Ranks are never averaged."),
        ("Warm-up", "Iterations before the step time stops falling are timed, counted and discarded; the first is kept as a number of its own."),
        ("Sampling", _sampling(campaign)),
        ("Step time", "Of train_step (and the pipelined time of a collective): windows, in which several steps run back to back and the device is synchronised only at the window's ends. Time per step = total time of the slowest ranks / total steps. Single synchronised steps are in measurements.csv (p50_s)."),
        ("Throughput", "Ranks × batch per rank / median over launches of the time per step. Times are summarised, rates derived: rates are never averaged. The batch per rank is fixed, so this is weak scaling."),
        ("Efficiency", f"Throughput per rank / throughput per rank of the baseline, {_baseline(campaign)}, of the same workload, stack and backend. Above {EXCELLENT:.1f} excellent, above {GOOD:.1f} good, else poor; no word where the spread lies on both sides of a limit or is wider than {100 * WIDE_RATIO:g} % of the efficiency, which is then told as inconclusive, and none in this report where ranks had other numbers of threads than those of the baseline."),
        ("Where it is lost", "Wrapper = X(1) / X without DDP(1). Intra-node = X(g) / (g X(1)). Inter-node = X(kg) / (k X(g)), for k nodes of g ranks and throughput X. Their product is the efficiency against one rank without DDP. A part whose cell has no valid record is n/a."),
        ("Bandwidth", f"algbw = S / t, S the bytes of one rank's buffer (for all_gather, reduce_scatter and all_to_all it holds one part for each rank: the sum over ranks), t of one blocking call, or in pipelined columns of one call among many that are begun without waiting. busbw = algbw × 2(n−1)/n for all_reduce, × (n−1)/n for all_gather, reduce_scatter and all_to_all, × 1 for the others (nccl-tests, doc/PERFORMANCE.md). No busbw for one rank, and none for a barrier. 1 GB = {BYTES_PER_GB:,} bytes; 1 MiB = 2²⁰ and 1 GiB = 2³⁰ bytes."),
        ("Spread", f"Below {MIN_LAUNCHES_INTERVAL} launches the smallest and largest launch (of a ratio: of all pairs of launches), which is a range and not an interval: (a to b). From {MIN_LAUNCHES_INTERVAL} the {100 * CONFIDENCE:g} % interval of the median over launches by interpolated order statistics (Hettmansperger and Sheather, 1986), written [a, b]; of a ratio of two medians the intervals of both, combined on logarithms (Zou and Donner, 2008). Within a launch (measurements.csv) order statistics, z = {Z_95}, from {MIN_SAMPLES_INTERVAL} samples."),
        ("Percentiles", f"Linear interpolation, only where the sample is large enough to hold a value beyond it with {100 * CONFIDENCE:g} % confidence ({least} samples)."),
        *analysis_terms(campaign),
        *_stragglers(campaign),
        *_own_terms(campaign),
        *_imported(campaign),
        ("Tables", "n: launches with a valid record / launches planned. n/a: not known. –: not planned or without meaning. Numbers are rounded to three significant figures, percentiles of the step to four, ratios to three decimals; the CSV files are not."),
    ]  # fmt: skip


def _stragglers(campaign: dict) -> list[tuple[str, str]]:
    """Return what a straggler and a spike are, for a campaign with cells of several ranks."""
    if all(cell["spec"]["nodes"] * cell["spec"]["gpus_per_node"] < 2 for cell in campaign["cells"]):
        return []
    text = (
        "The rank that all others wait for: the one that spends least time in a collective which no rank leaves before all have come, or"
        " most in a step without exchange of gradients. Synchronised step times cannot tell. Suspect of a record: last in more iterations"
        f" than chance would give any rank in {100 * SUSPECT_P:g} % of records (binomial), and later than the median of the others by more"
        f" than {100 * LAG_RATIO:g} % of the iteration. Suspect of a launch: of more than {100 * MOST_OF_RECORDS:g} % of its records. Persistent:"
        " suspect of more launches than chance gives, the launch being the unit (binomial, of hosts Poisson binomial, corrected by"
        f" Benjamini and Hochberg over the table, below {100 * FALSE_DISCOVERIES:g} %)."
    )
    spikes = (
        f"Iterations whose slowest rank lies beyond the upper outer fence of their record ({OUTER_FENCE} interquartile ranges above the upper"
        f" quartile). Of all ranks: more than {100 * MOST_OF_SPIKE:g} % of what it is longer than the median is common to all, as where the network is"
        " slow. Of one rank, or of one host's ranks: without them it is not. In a collective the culprit is who did not wait while all others did."
        " Unknown: all else. Whole steps on GPUs are as long on all ranks and are not classed. Extra time: that of the spikes beyond the median"
        " iteration, over all iterations."
    )
    return [("Stragglers", text), ("Spikes", spikes)]


# What is to be known of a benchmark's numbers beside the terms of all. Only of those that a campaign has.
OWN_TERMS = {
    "train_run": ("Training runs", "One iteration is one epoch: training, then the test images. There is no warm-up, and as many epochs as the campaign asks for. Total: the sum over epochs of the slowest rank. Images/s: training images of an epoch, of all ranks, / median over launches of the launch's median training time of an epoch. Loss: mean cross-entropy over images of all ranks; train loss while weights change, test loss after the epoch. Accuracy: right answers of all ranks / test images, which is no mean over ranks; a rank's own accuracy is that of its share. What was reached is that of the last epoch; of several launches the median. On a CPU the same seed, ranks and threads give the same losses to the last digit; on a GPU they do not."),
    "sync_batchnorm": ("Batch norm", "One iteration is forward and backward of one layer, with a wait for the device between them. The statistics are those of the rows of all ranks. Errors: the largest absolute difference from one process in fp64 on the joined rows, over ranks and launches. Memory is of one rank, exact except for the allocator's peak; saved for backward includes the layer's input."),
}  # fmt: skip


def _own_terms(campaign: dict) -> list[tuple[str, str]]:
    benchmarks = {cell["spec"]["benchmark"] for cell in campaign["cells"]}
    return [term for benchmark, term in OWN_TERMS.items() if benchmark in benchmarks]


def left_out(problems: dict, names: dict[str, str]) -> list[tuple[str, list[str]]]:
    """Return (what, items) for everything in the store that the report does not use. names: by cell."""
    invalid = [f"{p['launch']}, line {p['line']} ({p['kind']}): {p['problem']}" for p in problems["invalid"]]
    superseded = [
        f"{name_of(p['cell'], names)}, repeat {p['repeat']}: {p['status']} in {p['launch']}, line {p['line']}; later record {p['by']}"
        for p in problems["superseded"]
    ]
    beyond = [
        f"{name_of(p['cell'], names)}, repeat {p['repeat']}: {p['launch']}, line {p['line']}"
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
    rules = {tuple(sorted(cell["spec"]["sampling"].items())) for cell in campaign["cells"] if cell["spec"]["sampling"]}
    if not rules:
        return "It was up to the program whose files were imported." if campaign["cells"] else "Nothing was planned."
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


def _imported(campaign: dict) -> list[tuple[str, str]]:
    """Return what is to be known of numbers that another program measured."""
    if not (files := campaign.get("imported")):
        return []
    told = "; ".join(f"{file['file']} ({file['format']}, stack {file['stack']}): {file['statistic']}" for file in files)
    notes = " ".join(f"{note}." for note in dict.fromkeys(note for file in files for note in file["notes"]))
    text = (
        "Nothing here was measured by Regatta; the terms above on launch, timer, ranks, warm-up, sampling, step time and percentiles do not hold. Where a file has no"
        " samples, throughput and efficiency come from the median that it prints, or for want of one from the mean (column stop of"
        " measurements.csv says which); such a number is one launch, and has no interval. Times of records are those of the import."
        f" Files: {told}."
    )
    return [("Imported", f"{text} {notes}".strip())]


def _baseline(campaign: dict) -> str:
    return ", ".join(f"{name} {value}" for name, value in campaign["baseline"].items())
