"""Comparisons as shown to readers: texts of rows, the table with the largest effect first, and findings."""

import json
import statistics
from functools import partial

import pandas as pd

from regatta.core import verdicts
from regatta.core.benchmarks import all_axes
from regatta.core.moderation import MIN_LAUNCHES, MOST_LAUNCHES
from regatta.core.names import SEPARATOR, cell_names, value_text
from regatta.core.text import UNKNOWN, is_unknown, percent, plural, size
from regatta.core.verdicts import settled_direction
from regatta.kit.columns import TEXT, WHOLE, Column
from regatta.report.panels import Table
from regatta.topics.comparison.tables import ALIKE, COMPARISONS, RATIO, by_effect

VERDICTS = ("slower", "faster", "inconclusive", "equivalent")
UNSETTLED = "slower or faster with the margin not settled"
NEARLY_ALL = 0.9  # share of ratios on one side of 1 from which the direction is also reported
SETTLED_BY = ["time_low_ratio", "time_high_ratio", "p_adjusted"]  # the columns that settle a direction
SOURCES = {"campaign": "from the campaign", "default": "default", "option": "from the command line"}
BASE, TEST = "base", "test"  # the words for two campaigns
COMPARED = "Times: primary time of each benchmark, such as pipelined steps and calls."


def interval_text(row) -> str:
    """Return a ratio with its interval, `1.021 [1.018, 1.024]`, or its range, `1.021 (1.010 to 1.030)`."""
    return RATIO.cell(row) if is_unknown(row.time_low_ratio) else f"{RATIO.cell(row)} {RATIO.ends(row)}"


def launches_text(row) -> str:
    """Return n: launches of the cell and of its reference, as one number if they are equal."""
    reference, other = row.num_reference_launches, row.num_launches
    return str(other) if reference == other else f"{other} vs. {reference}"


def is_unsettled(row) -> bool:
    """Return whether an inconclusive row has a significant direction; only its size against the margin is open."""
    is_inconclusive = not is_unknown(row.verdict) and row.verdict == "inconclusive"
    ends = row.time_low_ratio, row.time_high_ratio
    return is_inconclusive and settled_direction(*ends, row.p_adjusted) is not None


def is_insignificant(row) -> bool:
    """Return whether a row was tested, and its difference is not statistically significant."""
    tested = not is_unknown(row.p_adjusted)
    return tested and settled_direction(row.time_low_ratio, row.time_high_ratio, row.p_adjusted) is None


def num_unsettled(rows: pd.DataFrame) -> int:
    return sum(is_unsettled(row) for row in rows.itertuples())


def verdict_text(row) -> str:
    """Return the verdict, and for an inconclusive one the estimated number of launches that would settle it."""
    if is_unknown(row.verdict):
        return UNKNOWN
    ends = row.time_low_ratio, row.time_high_ratio
    text = verdicts.verdict_text(row.verdict, *ends, row.interval, row.p_adjusted, row.margin_ratio)
    if row.verdict != "inconclusive":
        return text
    if not is_unknown(row.launches_needed):
        return f"{text}; about {plural(row.launches_needed, 'more launch', 'more launches')} per side needed"
    if not is_unknown(row.p_value):
        return f"{text}; more than {MOST_LAUNCHES} launches per side needed"
    return text


def judged_rows(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have a verdict: launches on both sides, and stacks that are not identical (A/A)."""
    return comparisons[(comparisons["verdict"].notna() & (comparisons["verdict"] != ALIKE)).fillna(False)]


def margin_text(judged: pd.DataFrame) -> str:
    """Return the margin of each benchmark and its source: `3.2 % (noise floor of 9 A/A pairs) of collective`."""
    margins: dict[str, list[str]] = {}
    rows = judged[["benchmark", "margin_ratio", "margin_source"]].drop_duplicates()
    for benchmark, ratio, source in rows.itertuples(index=False):
        margins.setdefault(f"{percent(ratio)} % ({SOURCES.get(source, source)})", []).append(benchmark)
    if len(margins) == 1:
        return next(iter(margins))
    return ", ".join(f"{text} of {' and '.join(benchmarks)}" for text, benchmarks in margins.items())


def half_widths(judged: pd.DataFrame) -> list[float]:
    """Return half the width of each pair's 95 % interval on a log scale, as a ratio - 1, ascending.

    Pairs without an interval are left out. An interval around a smaller difference would include 1.
    """
    known = judged[(judged["interval"] == "interval").fillna(False)]
    return sorted((known["time_high_ratio"] / known["time_low_ratio"]).astype(float) ** 0.5 - 1)


def half_width_values(judged: pd.DataFrame) -> dict | None:
    """Return median and maximum of the half-widths, and of how many pairs they are known; None without any."""
    found = half_widths(judged)
    if not found:
        return None
    values = {"median_ratio": float(statistics.median(found)), "max_ratio": float(found[-1])}
    return values | {"num": len(found), "num_unknown": len(judged) - len(found)}


def half_width_text(values: dict | None) -> str:
    """Return which differences are not statistically significant. values: of `half_width_values`."""
    if values is None:
        return f"No confidence intervals: {MIN_LAUNCHES} launches per cell are needed."
    median, most = (f"{percent(values[name])} %" for name in ("median_ratio", "max_ratio"))
    pairs = plural(values["num_unknown"], "pair")
    unknown = f" {pairs} with fewer than {MIN_LAUNCHES} launches: range used." if values["num_unknown"] else ""
    reach = f" (median half-width of the 95 % CIs; maximum {most})" if values["num"] > 1 else ""
    return f"Resolution: differences below about {median} cannot be detected{reach}.{unknown}"


def num_significant(judged: pd.DataFrame) -> dict[str, int]:
    """Return how many pairs are significantly slower and faster, each by its own launches, regardless of the margin.

    There is no test over pairs: cells measured in the same launches are not independent.
    """
    words = [settled_direction(*row) for row in judged[SETTLED_BY].itertuples(index=False)]
    return {word: words.count(word) for word in ("slower", "faster")}


def is_one_pair(rows: pd.DataFrame) -> bool:
    """Return whether all rows compare the same two values of the axis."""
    return len(rows[["value", "reference_value"]].drop_duplicates()) <= 1


def direction(judged: pd.DataFrame) -> dict | None:
    """Return which side takes longer, where most pairs differ significantly and nearly all ratios agree."""
    ratios = judged["time_ratio"].astype(float)
    if not len(ratios) or not is_one_pair(judged):
        return None
    is_slower = ratios.median() > 1
    num = num_significant(judged)["slower" if is_slower else "faster"]
    if 2 * num <= len(ratios) or ((ratios > 1) if is_slower else (ratios < 1)).mean() < NEARLY_ALL:
        return None
    return {
        "value": sides_text(judged)[1],
        "is_slower": bool(is_slower),
        "num": num,
        "num_pairs": len(ratios),
        "median_ratio": float(ratios.median()),
        "most_ratio": float(ratios.max() if is_slower else ratios.min()),
    }


def direction_text(found: dict | None) -> str:
    """Return `bound is significantly slower in 7 of 8 pairs (median of all 2.1 %, maximum 2.8 %)`, or ""."""
    if found is None:
        return ""
    typical, most = (percent(abs(found[name] - 1)) for name in ("median_ratio", "most_ratio"))
    word = "slower" if found["is_slower"] else "faster"
    pairs = f"{found['num']} of {plural(found['num_pairs'], 'pair')}"
    return f"{found['value']} is significantly {word} in {pairs} (median of all {typical} %, maximum {most} %)"


def significant_text(counts: dict[str, int], num_pairs: int) -> str:
    """Return `statistically significant in 4 of 8 pairs (3 slower, 1 faster)`. counts: of `num_significant`."""
    num, pairs = sum(counts.values()), plural(num_pairs, "pair")
    if not num:
        return "not statistically significant" + (f" in any of {pairs}" if num_pairs > 1 else "")
    sides = f"{counts['slower']} slower, {counts['faster']} faster"
    return "statistically significant" + (f" in {num} of {pairs} ({sides})" if num_pairs > 1 else "")


def correlation_text(rows: pd.DataFrame) -> str:
    """Return a sentence on a significant correlation of successive launches; empty without one."""
    found = [group for _, group in rows.dropna(subset="launch_correlation").groupby("launch_correlation")]
    texts = [
        f"{of_test['launch_correlation'].iloc[0]:.2f} over {plural(len(of_test), 'pair')}, intervals"
        f" {of_test['widening_ratio'].median():.2f} times as wide"
        for of_test in found
    ]
    return f"Successive launches are correlated: {'; '.join(texts)}." if texts else ""


def allocations_text(rows: pd.DataFrame) -> str:
    """Return a sentence about intervals that exclude variation between allocations; empty without any."""
    num = int(
        (~rows["test"].isin([of for (_, is_by_allocation), of in verdicts.TEST.items() if is_by_allocation])).sum()
    )
    return (
        f"Variation between allocations is not in the intervals of {num:,} of {plural(len(rows), 'row')}."
        if num
        else ""
    )


def margins_text(margins: tuple[float, ...]) -> str:
    """Return `5 %`, or `5 % or 3.2 %` where benchmarks have different margins."""
    return " or ".join(f"{round(100 * margin, 1):g} %" for margin in margins)


def counts_text(comparisons: pd.DataFrame) -> str:
    """Return the number of comparisons by verdict: `14 of 20 comparisons slower, 0 faster, 4 equivalent, ...`."""
    judged = judged_rows(comparisons)
    counted = counts_by_word(by_verdict(judged), num_unsettled(judged))
    listed = ", ".join(f"{num} {word}" for word, num in counted.items() if word != "slower")
    return f"{counted['slower']} of {plural(len(judged), 'comparison')} slower, {listed}"


def by_verdict(judged: pd.DataFrame) -> dict[str, int]:
    return {word: int((judged["verdict"] == word).sum()) for word in VERDICTS}


def counts_by_word(counts: dict[str, int], unsettled: int) -> dict[str, int]:
    """Return counts by verdict for people: inconclusive rows with a settled direction are counted separately."""
    found = counts | {"inconclusive": counts["inconclusive"] - unsettled}
    return found | ({UNSETTLED: unsettled} if unsettled else {})


def pair_text(rows: pd.DataFrame) -> str:
    """Return what is compared: `stack bound vs. contained`, `bucket size 1 MiB vs. 25 MiB`."""
    [axis], *sides = (list(dict.fromkeys(rows[name])) for name in ("axis", "value", "reference_value"))
    word = "" if axis == "campaign" else f"{axis_label(axis)} "
    return word + " vs. ".join(" and ".join(axis_text(axis, value) for value in values) for values in sides)


def sides_text(rows: pd.DataFrame) -> tuple[str, str]:
    """Return the words for the reference and for what is compared with it: of two campaigns, base and test."""
    axis = rows["axis"].iloc[0]
    if axis == "campaign":
        return BASE, TEST
    if not is_one_pair(rows):
        return "reference", "compared"
    return axis_text(axis, rows["reference_value"].iloc[0]), axis_text(axis, rows["value"].iloc[0])


def axis_label(axis: str) -> str:
    """Return the label of the axis of a comparison within a sentence."""
    label = all_axes()[axis].label if axis in all_axes() else axis.replace("_", " ")
    return label if label[:2].isupper() else label[:1].lower() + label[1:]


def axis_text(axis: str, value: str) -> str:
    """Return a value of the axis of a comparison, given as in comparisons.csv, with its unit."""
    known = all_axes().get(axis)
    if known is None or value == "None":
        return value
    typed = value if known.type == "string" else json.loads(value)
    if known.unit is None:
        return value_text(known, typed)
    if known.unit == "bytes":
        return size(typed)
    return f"{f'{typed:g}' if isinstance(typed, float) else typed} {known.unit}"


def finding_values(judged: pd.DataFrame) -> dict:
    """Return the counts by verdict, how many pairs differ significantly, in which direction, and the largest effect.

    judged: of `judged_rows`, with the column `label`, a name of each row.
    """
    fewest = judged[["num_launches", "num_reference_launches"]].min(axis=1)
    values = {
        "pair": pair_text(judged),
        "num": len(judged),
        "by_verdict": by_verdict(judged),
        "num_unsettled": num_unsettled(judged),
        "num_undecidable": int((fewest < MIN_LAUNCHES).fillna(True).sum()),
        "margins": tuple(sorted(float(margin) for margin in judged["margin_ratio"].unique())),
        "num_significant": num_significant(judged),
        "direction": direction(judged),
        "median_ratio": float(judged["time_ratio"].median()) if is_one_pair(judged) else None,
        "half_widths": half_width_values(judged),
    }
    for row in largest_effect(judged).itertuples():
        values |= {"largest": row.label, "largest_ratio": float(row.time_ratio), "largest_text": interval_text(row)}
    return values


def largest_effect(judged: pd.DataFrame) -> pd.DataFrame:
    """Return the slower or faster row with the largest effect, if there is one."""
    return by_effect(judged[judged["verdict"].isin(["slower", "faster"])]).head(1)


def finding_text(values: dict) -> str:
    """Return `finding_values` as sentences."""
    num, num_undecidable = values["num"], values["num_undecidable"]
    pairs = significant_text(values["num_significant"], num) if num_undecidable < num else plural(num, "comparison")
    texts = [f"{values['pair'][:1].upper()}{values['pair'][1:]}: {direction_text(values['direction']) or pairs}."]
    if num_undecidable < num:
        counted = counts_by_word(values["by_verdict"], values["num_unsettled"])
        counts = ", ".join(f"{num} {word}" for word, num in counted.items() if num)
        texts.append(f"Verdicts at a margin of {margins_text(values['margins'])}: {counts}.")
        texts.append(half_width_text(values["half_widths"]))
    if num_undecidable:
        few = f"{num_undecidable} of {num}" if num_undecidable < num else "All"
        texts.append(f"{few} have fewer than {MIN_LAUNCHES} launches, too few for a verdict.")
    if "largest" in values:
        texts.append(f"Largest difference: {values['largest']}, ratio {values['largest_text']}.")
    return " ".join(texts)


LABEL = Column("label", "cell", TEXT)
VERDICT = Column("verdict", "verdict", TEXT, text=verdict_text)
LAUNCHES = Column("num_launches", "n", WHOLE, text=launches_text)


def comparison_table(
    title: str, labeled: pd.DataFrame, sources: tuple[str, ...] = (), has_verdict: bool = True
) -> Table:
    """Return rows as a table, the verdict early so that a narrow screen shows it. labeled: of `with_labels`."""
    words = dict(zip(("reference", "other"), sides_text(labeled), strict=True))
    columns = (LABEL, *((VERDICT,) if has_verdict else ()), *COMPARISONS.of_table("pairs"), LAUNCHES)
    return Table.of_columns(title, columns, labeled, labeled["device"].iloc[0], sources, **words)


MOST_ROWS = 40  # of the table; the others are in comparisons.csv


def largest_first(judged: pd.DataFrame) -> Table:
    """Return the rows with the largest effects. judged: of `judged_rows`."""
    shown = by_effect(with_labels(judged)).head(MOST_ROWS)
    title = "Comparisons, largest effect first"
    if len(shown) < len(judged):
        title += f" ({len(shown)} of {len(judged)}; all: comparisons.csv)"
    return comparison_table(title, shown, ("comparisons",))


def with_labels(rows: pd.DataFrame) -> pd.DataFrame:
    """Add `label`, the name of each row: the compared values if they differ between rows, and the cell."""
    if not len(rows):
        return rows.assign(label=[])
    axis = rows["axis"].iloc[0]
    names = pd.Series([name.without(axis).brief for name in cell_names(rows.to_dict("records"))], index=rows.index)
    values, references = (rows[name].map(partial(axis_text, axis)) for name in ("value", "reference_value"))
    pairs = values + " vs. " + references
    if pairs.nunique() > 1:
        names = (values if references.nunique() == 1 else pairs) + SEPARATOR + names
    return rows.assign(label=names)
