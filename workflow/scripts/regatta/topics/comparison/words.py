"""A row of the comparisons in words and numbers, the same in the terminal, in tables and in figures."""

import pandas as pd

from regatta.core.text import UNKNOWN, bracket, is_unknown, percent, plural, ratio_text, three
from regatta.core.verdicts import FALSE_DISCOVERIES, MIN_LAUNCHES_TEST, MOST_LAUNCHES, holds_limit, sign_test
from regatta.topics.comparison.tables import ALIKE

VERDICTS = ("slower", "faster", "inconclusive", "equivalent")
NEARLY_ALL = 0.9  # of the ratios on one side of 1: then the side is told, besides the verdicts
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
    """Return how many intervals do not hold 1, whatever the margin: `3 of 4 intervals exclude 1`. Empty without intervals.

    A range of few launches says nothing of the kind: where nothing differs, that of two and two launches misses 1 in one
    cell of three, and that of two pairs in one of two.
    """
    own = judged[judged["interval"] == "interval"]
    num = int(((own["time_low_ratio"] > 1) | (own["time_high_ratio"] < 1)).sum())
    return f"{num} of {plural(len(own), 'interval')} exclude 1" if len(own) else ""


def direction(judged: pd.DataFrame) -> dict | None:
    """Return which side takes longer, where nearly all ratios agree and a sign test does not call it chance."""
    ratios = judged["time_ratio"].astype(float)
    if not len(ratios) or len(judged[["value", "reference_value"]].drop_duplicates()) > 1:
        return None
    p_value = sign_test(ratios.tolist())
    num_above, num_below = int((ratios > 1).sum()), int((ratios < 1).sum())
    if p_value > FALSE_DISCOVERIES or max(num_above, num_below) < NEARLY_ALL * len(ratios):
        return None
    is_slower = num_above > num_below
    return {
        "value": judged["value"].iloc[0],
        "is_slower": is_slower,
        "num": max(num_above, num_below),
        "num_pairs": len(ratios),
        "median_ratio": float(ratios.median()),
        "most_ratio": float(ratios.max() if is_slower else ratios.min()),
        "p_value": p_value,
    }


def direction_text(found: dict | None) -> str:
    """Return `bound is slower in 82 of 82 pairs, by 2.1 % (median; at most 2.8 %; sign test, p < 0.001)`; of None nothing."""
    if found is None:
        return ""
    typical, most = (percent(abs(found[name] - 1)) for name in ("median_ratio", "most_ratio"))
    word = "slower" if found["is_slower"] else "faster"
    p_value = "p < 0.001" if found["p_value"] < 0.001 else f"p = {three(found['p_value'])}"
    return (
        f"{found['value']} is {word} in {found['num']} of {plural(found['num_pairs'], 'pair')}, by {typical} % (median; at"
        f" most {most} %; sign test, {p_value})"
    )


def too_few(judged: pd.DataFrame) -> pd.Series:
    """Return of which rows a side has so few launches that no verdict is possible, whatever the times."""
    fewest = judged[["num_launches", "num_reference_launches"]].min(axis=1)
    return (fewest < MIN_LAUNCHES_TEST).fillna(True)


def p_text(value: float | None) -> str:
    if is_unknown(value):
        return UNKNOWN
    return "below 0.001" if value < 0.001 else three(value)


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


def finding_text(judged: pd.DataFrame) -> str:
    """Return what all rows with a verdict say: a direction, if there is one, and the verdicts that occur."""
    few, found = too_few(judged), direction(judged)
    lead = direction_text(found)
    none_possible = f"no verdict is possible below {MIN_LAUNCHES_TEST} launches"
    if few.all():
        return f"{lead or plural(len(judged), 'comparison')}; {none_possible}"
    words = judged["verdict"]
    counts = ", ".join(f"{num} {word}" for word in VERDICTS if (num := int((words == word).sum())))
    margin = margin_text(judged)
    if lead and (words == "equivalent").all():
        text = f"{lead}: within the margin of {margin}"
    elif lead:
        text = f"{lead}; {counts}, by a margin of {margin}"
    else:
        excluding = excluding_text(judged)
        text = f"of {plural(len(judged), 'comparison')} {counts}, by a margin of {margin}"
        text += f"; {excluding}" if excluding else ""
    return text + (f"; in {int(few.sum())} {none_possible}" if few.any() else "")
