"""A row of the comparisons in words and numbers, the same in the terminal, in tables and in figures."""

import pandas as pd

from regatta.numbers import UNKNOWN, is_unknown, plural, three

VERDICTS = ("slower", "faster", "inconclusive", "equivalent")
BRACKETS = {"interval": "[{}, {}]", "range": "({} to {})"}
HOW_TO_READ = "Ratio: time of the one over time of the other, above 1 is slower. [ ] is a 95 % interval, ( ) the range over launches where they are fewer than 6."  # fmt: skip


def ratio_text(ratio: float | None) -> str:
    """Return a ratio with three decimals, or three figures where it is far from 1."""
    return three(ratio) if is_unknown(ratio) or not 0.1 <= ratio < 10 else f"{ratio:.3f}"


def spread_text(row) -> str:
    """Return a ratio with its spread: `1.021 [1.018, 1.024]`, or `1.021 (1.010 to 1.030)` of a range."""
    if is_unknown(row.time_low_ratio):
        return ratio_text(row.time_ratio)
    spread = BRACKETS[row.interval].format(ratio_text(row.time_low_ratio), ratio_text(row.time_high_ratio))
    return f"{ratio_text(row.time_ratio)} {spread}"


def launches_text(row) -> str:
    """Return n: launches of the reference and of the other, once where they are as many."""
    reference, other = row.num_reference_launches, row.num_launches
    return str(other) if reference == other else f"{reference}, {other}"


def verdict_text(row) -> str:
    """Return the verdict, and of an inconclusive one how many more launches would settle it."""
    if is_unknown(row.verdict):
        return UNKNOWN
    if row.verdict != "inconclusive" or is_unknown(row.launches_needed) or row.launches_needed == 0:
        return row.verdict
    return (
        f"inconclusive, {row.launches_needed} more launches"
        if row.launches_needed > 1
        else "inconclusive, 1 more launch"
    )


def summary(comparisons: pd.DataFrame) -> str:
    """Return how many comparisons ended in which word: `14 of 20 comparisons slower, 0 faster, 4 equivalent, ...`."""
    words = comparisons["verdict"].dropna()
    told = [f"{int((words == word).sum())} {word}" for word in VERDICTS]
    return f"{told[0].split()[0]} of {plural(len(words), 'comparison')} slower, {', '.join(told[1:])}"
