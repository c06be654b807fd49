"""Methods: how the numbers came about, as far as it holds for all of them. Topics add their terms.

Constants are those of the code, so that the words cannot drift from it.
"""

from collections.abc import Iterable

from regatta.core.names import name_of
from regatta.core.statistics import CONFIDENCE, MIN_LAUNCHES_INTERVAL, MIN_SAMPLES_INTERVAL, Z_95
from regatta.core.text import natural, plural


def methods(campaign: dict, of_topics: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return (term, definition) pairs for the Methods section. of_topics: the terms of the topics."""
    return [
        (
            "Launch",
            "One set of processes that measures each cell once: the independent unit of all statistics. Iterations of a launch"
            " are not independent. Launches of one batch share an allocation, so differences between allocations (nodes,"
            " neighbors, hours) are in no interval.",
        ),
        (
            "Timer",
            "The monotonic clock of each rank, in nanoseconds, read with the device synchronized before both readings.",
        ),
        ("Ranks", "An iteration takes as long as its slowest rank: the maximum over ranks. Ranks are never averaged."),
        ("Warm-up", "Iterations before the step time stops falling are timed, counted and excluded."),
        ("Sampling", _sampling(campaign)),
        (
            "Intervals",
            f"Below {MIN_LAUNCHES_INTERVAL} launches: the range, smallest to largest launch (ratios: of all pairs of launches),"
            f" written (a to b). From {MIN_LAUNCHES_INTERVAL}: the {100 * CONFIDENCE:g} % confidence interval of the median over"
            " launches by interpolated order statistics (Hettmansperger and Sheather, 1986), written [a, b]; for a ratio of two"
            " medians, both intervals combined on logarithms (Zou and Donner, 2008). Within a launch (measurements.csv): order"
            f" statistics, z = {Z_95}, from {MIN_SAMPLES_INTERVAL} samples.",
        ),
        *of_topics,
        *_imported(campaign),
        (
            "Tables",
            "n: launches with a valid record / launches planned. n/a: unknown. –: not planned or not applicable. Numbers have"
            " three significant figures, step-time percentiles four, ratios three decimals; the CSV files have all digits.",
        ),
    ]


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
