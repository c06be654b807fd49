"""A row of the comparisons in words and numbers, the same in the terminal, in tables and in figures."""

import pandas as pd

from regatta.analysis.comparison import ALIKE
from regatta.numbers import UNKNOWN, bracket, is_unknown, percent, plural, ratio_text
from regatta.verdicts import MOST_LAUNCHES, holds_limit

VERDICTS = ("slower", "faster", "inconclusive", "equivalent")
SOURCES = {"campaign": "of the campaign", "default": "the default", "option": "as asked for"}
COMPARED = (
    "Compared are medians of synchronised steps and of blocking calls (p50_s), not the pipelined windows of Scaling."
)
HOW_TO_READ = "Ratio: time of the one over time of the other, above 1 is slower. [ ] is a 95 % interval, ( ) the range over launches where they are fewer than 6."  # fmt: skip


def spread_text(row) -> str:
    """Return a ratio with its spread: `1.021 [1.018, 1.024]`, or `1.021 (1.010 to 1.030)` of a range."""
    if is_unknown(row.time_low_ratio):
        return ratio_text(row.time_ratio)
    spread = bracket(row.time_low_ratio, row.time_high_ratio, row.interval, ratio_text)
    return f"{ratio_text(row.time_ratio)} {spread}"


def launches_text(row) -> str:
    """Return n: launches of the reference and of the other, once where they are as many."""
    reference, other = row.num_reference_launches, row.num_launches
    return str(other) if reference == other else f"{reference}, {other}"


def verdict_text(row) -> str:
    """Return the verdict, and of an inconclusive one how many more launches would settle it."""
    if is_unknown(row.verdict):
        return UNKNOWN
    if row.verdict != "inconclusive":
        return row.verdict
    if is_unknown(row.launches_needed):
        return f"inconclusive, more than {MOST_LAUNCHES} launches" if _needs_too_many(row) else row.verdict
    return (
        f"inconclusive, {row.launches_needed} more launches"
        if row.launches_needed > 1
        else "inconclusive, 1 more launch"
    )


def judged_rows(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have a verdict: launches on both sides, and stacks that are not alike (A/A)."""
    return comparisons[(comparisons["verdict"].notna() & (comparisons["verdict"] != ALIKE)).fillna(False)]


def margin_text(judged: pd.DataFrame) -> str:
    """Return the margin of each benchmark and where it comes from: `3.2 % (noise floor of 9 A/A pairs) of collective`."""
    own = judged[["benchmark", "margin_ratio", "margin_source"]].drop_duplicates()
    told = {
        f"{percent(ratio)} % ({SOURCES.get(source, source)})": [] for _, ratio, source in own.itertuples(index=False)
    }
    for benchmark, ratio, source in own.itertuples(index=False):
        told[f"{percent(ratio)} % ({SOURCES.get(source, source)})"].append(benchmark)
    if len(told) == 1:
        return next(iter(told))
    return ", ".join(f"{text} of {' and '.join(benchmarks)}" for text, benchmarks in told.items())


def excluding_text(judged: pd.DataFrame) -> str:
    """Return how many spreads do not hold 1, whatever the margin: `3 of 4 intervals exclude 1`. Empty without spreads."""
    told = []
    for kind, word in (("interval", "interval"), ("range", "range")):
        own = judged[judged["interval"] == kind]
        num = int(((own["time_low_ratio"] > 1) | (own["time_high_ratio"] < 1)).sum())
        if len(own):
            told.append(f"{num} of {plural(len(own), word)} exclude 1")
    return " and ".join(told)


def _needs_too_many(row) -> bool:
    """Return whether launches would settle it, but more of them than are foretold: the scatter is known, the limit is not
    inside the spread."""
    is_known = not (is_unknown(row.p_value) or is_unknown(row.time_low_ratio))
    return is_known and not holds_limit(row.time_low_ratio, row.time_high_ratio, row.margin_ratio)


def summary(comparisons: pd.DataFrame) -> str:
    """Return how many comparisons ended in which word: `14 of 20 comparisons slower, 0 faster, 4 equivalent, ...`."""
    words = judged_rows(comparisons)["verdict"]
    told = [f"{int((words == word).sum())} {word}" for word in VERDICTS]
    return f"{told[0].split()[0]} of {plural(len(words), 'comparison')} slower, {', '.join(told[1:])}"
