"""Comparisons in words, wherever they are shown: kinds of findings, and texts of rows."""

import json
import math
import statistics
from functools import partial

import pandas as pd

from regatta.core.benchmarks import all_axes
from regatta.core.moderation import FALSE_DISCOVERIES, MIN_LAUNCHES
from regatta.core.names import SEPARATOR, cell_names, value_text
from regatta.core.text import is_unknown, plural, size, with_minus_signs
from regatta.core.verdicts import MIN_NOISE_PAIRS, margins_text, settled_direction, span_text, verdict_text
from regatta.kit.findings import FAIR, LOW, NOTE, RESULT, SUMMARY, Kind
from regatta.report.findings import Finding, Source, percent_number
from regatta.topics.comparison.tables import ALIKE, MARGIN, RATIO, by_effect

VERDICTS = ("slower", "faster", "inconclusive", "equivalent")
UNSETTLED = "slower or faster with the margin not settled"
NEARLY_ALL = 0.9  # share of ratios on one side of 1 from which the direction is also reported
COMPARED = "Times: primary time of each benchmark, such as pipelined steps and calls."

# The statement on the pairs of two values. With `axis` it names the value to use, as the report's summary does.
LINE = "comparison"
OF_MARGIN = (
    "{num_beyond} by more than the {margin} margin",
    "{num_open} may or may not exceed the {margin} margin",
    "none by more than the {limit} margin",
    "{few:cell/cells} with too few launches for a verdict",
)
KINDS = (
    Kind(
        *("one_is_slower", SUMMARY),
        lead=("{axis}: {chosen}", "{value} is {word} in {significant} of {num:cell/cells}, by {size} (median)"),
        parts=(
            "{other} is {excess} slower (median of {num:cell/cells}, {significant} significantly)",
            "the other way round in {opposite}",
            *OF_MARGIN,
        ),
        line=LINE,
        term="Comparisons",
        help="Ratio of the geometric means of primary times over launches; above 1 is slower. From"
        f" {MIN_LAUNCHES} launches per side, it has a 95 % t interval of logarithms, moderated by the variance of all"
        " compared pairs and widened if successive launches are correlated. Launches of one allocation are paired. With"
        " several allocations, their means are the unit. Slower, faster: the interval lies beyond the margin, and"
        f" p ≤ {FALSE_DISCOVERIES:g}, corrected over all rows (Benjamini-Hochberg). Equivalent: it lies within the"
        " margin. Significant: it excludes 1 with the same p, regardless of the margin. Inconclusive: all others. No"
        " test combines pairs, as cells of one launch are not independent. Margin: the campaign's"
        f" (default {100 * MARGIN:g} %), and at least the noise floor of {MIN_NOISE_PAIRS} or more pairs of identical"
        " stacks (A/A), which get no verdict.",
    ),
    Kind(
        *("equal", SUMMARY),
        lead=("{axis}: either, equal within {within}", "{value} and {reference} are equal within {within}"),
        parts=("{num:cell/cells}",),
        line=LINE,
    ),
    Kind(
        *("both_ways", SUMMARY),
        lead=(
            "{axis}: depends on the cell",
            "{value} is slower in {slower}, {reference} in {faster} of {num:cell/cells}",
        ),
        parts=("{other} is slower in {slower}, {reference} in {faster} of {num:cell/cells}", *OF_MARGIN),
        line=LINE,
    ),
    Kind(
        *("uncertain", SUMMARY),
        lead=("{axis}: uncertain, {value} is {span}", "{value} is {span}"),
        parts=("significantly slower in {slower} of {num}", "significantly faster in {faster} of {num}", *OF_MARGIN),
        line=LINE,
    ),
    Kind(
        *("too_few_launches", SUMMARY),
        lead=("{axis}: too few launches for a verdict", "{value}: too few launches for a verdict"),
        parts=(("{value} vs. {reference}: median difference {median}", "median difference {median}"),),
        line=LINE,
    ),
    Kind(
        *("several_values", SUMMARY),
        lead=("{axis}: {chosen}", "{axis}: any, equal within {within}", "{axis}: compared with {reference}"),
        parts=("{pairs}",),
        line=LINE,
    ),
    Kind(
        *("verdicts", RESULT),
        lead="Verdicts at a margin of {of_margin}: {verdicts}.",
        parts=(
            "Differences below {half_width} cannot be detected (median half-width of the 95 % CIs, maximum"
            " {largest_half_width}).",
            "Largest difference: {largest}, ratio {largest_text}.",
            "Successive launches are correlated: {correlations}.",
            "Variation between allocations is not in the intervals of {num_without} of {num:pair/pairs}.",
        ),
        term="Half-width of an interval",
        help="√(high / low) − 1 of a ratio's 95 % interval: half its width on a log scale. Smaller differences are not"
        f" statistically significant. A verdict also requires the corrected p ≤ {FALSE_DISCOVERIES:g}.",
    ),
    Kind(
        *("alike_differ", LOW),
        lead="Identical stacks differ: the 95 % CI excludes 1 in {num} of {num_pairs:pair/pairs}.",
        parts=("{expected:.1f} are expected by chance.",),
        advice="Differences between other stacks can have the same cause. Look for other load, shared hosts and drift,"
        " and measure again.",
        next_step="free the nodes of other load, then measure again",
    ),
    Kind(
        *("not_interleaved", FAIR),
        lead="Not interleaved: in {num} of {num_pairs:compared pair/compared pairs}, all launches of one side started"
        " before all of the other ({axis}).",
        advice=(
            "A change of the machine over time can look like a difference between the two sides. {stacks} of one"
            " campaign alternate within a batch, unless launches were measured later.",
            "A change of the machine over time can look like a difference between the two sides.",
        ),
    ),
    Kind(
        *("open_pairs", NOTE),
        lead="Undecided: {num} of {num_pairs:compared pair/compared pairs}.",
        advice=(
            "More launches settle most of them: `repeats: {repeats}`.",
            "Most need more than 100 more launches per side: noise hides differences as large as the margin.",
        ),
        next_step="settle open comparisons: `repeats: {repeats}`",
    ),
    Kind(
        *("environment", RESULT),
        lead=(
            "{num:environment difference/environment differences}: {names}",
            "Environments unknown: {unknown}",
            "No environment difference was recorded",
        ),
    ),
    Kind(
        *("allocations_excluded", NOTE),
        lead="variation between allocations is not in the intervals of {num_excluded:cell/cells}: slower and faster"
        " only beyond {limit} % (margin and allocation_variation)",
    ),
    Kind(
        *("screened", NOTE),
        lead="{num} of {num_compared:compared cell/compared cells} only screened (fewer than"
        f" {MIN_LAUNCHES} launches on either side): slower means that every launch is slower than every earlier one by"
        " more than the margin; expected by chance: at most {most} of {num:cell/cells}",
    ),
)

KIND_OF = {kind.name: kind for kind in KINDS}


def row_text(row: object) -> str:
    """Return the result on a row: `slower: ratio 1.100 [1.080, 1.120], n = 6`."""
    return f"{verdict_text(row)}: ratio {interval_text(row)}, n = {launches_text(row)}"


def interval_text(row: object) -> str:
    """Return a ratio with its interval, `1.021 [1.018, 1.024]`, or its range, `1.021 (1.010 to 1.030)`."""
    return RATIO.cell(row) if is_unknown(row.time_low_ratio) else f"{RATIO.cell(row)} {RATIO.ends(row)}"


def launches_text(row: object) -> str:
    """Return n: launches of the cell and of its reference, as one number if they are equal."""
    reference, other = row.num_reference_launches, row.num_launches
    return str(other) if reference == other else f"{other} vs. {reference}"


def direction_of(row: object) -> str | None:
    """Return slower or faster if the difference of a row is statistically significant; else None."""
    return settled_direction(row.time_low_ratio, row.time_high_ratio, row.p_adjusted)


def is_unsettled(row: object) -> bool:
    """Return whether an inconclusive row has a significant direction; only its size against the margin is open."""
    return not is_unknown(row.verdict) and row.verdict == "inconclusive" and direction_of(row) is not None


def difference_text(ratio: float) -> str:
    """Return a ratio of times as a signed difference in percent: +2.1, −50."""
    number = percent_number(ratio - 1)
    return with_minus_signs(number if number == "0.0" or number.startswith("-") else f"+{number}")


def judged_rows(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have a verdict: launches on both sides, and stacks that are not identical (A/A)."""
    return comparisons[(comparisons["verdict"].notna() & (comparisons["verdict"] != ALIKE)).fillna(False)]


def is_one_pair(rows: pd.DataFrame) -> bool:
    """Return whether all rows compare the same two values of the axis."""
    return len(rows[["value", "reference_value"]].drop_duplicates()) <= 1


def direction(judged: pd.DataFrame) -> dict | None:
    """Return which side takes longer, where most pairs differ significantly and nearly all ratios agree."""
    ratios = judged["time_ratio"].astype(float)
    if not is_one_pair(judged):
        return None
    is_slower = ratios.median() > 1
    num = num_significant(judged)["slower" if is_slower else "faster"]
    if 2 * num <= len(ratios) or ((ratios > 1) if is_slower else (ratios < 1)).mean() < NEARLY_ALL:
        return None
    found = {"value": sides_text(judged)[1], "is_slower": bool(is_slower), "num": num, "num_pairs": len(ratios)}
    most = float(ratios.max() if is_slower else ratios.min())
    return found | {"median_ratio": float(ratios.median()), "most_ratio": most}


def num_significant(judged: pd.DataFrame) -> dict[str, int]:
    """Return how many pairs are significantly slower and faster, each by its own launches, regardless of the margin.

    There is no test over pairs: cells measured in the same launches are not independent.
    """
    words = [direction_of(row) for row in judged.itertuples()]
    return {word: words.count(word) for word in ("slower", "faster")}


def by_verdict(judged: pd.DataFrame) -> dict[str, int]:
    return {word: int((judged["verdict"] == word).sum()) for word in VERDICTS}


def half_widths(judged: pd.DataFrame) -> dict | None:
    """Return median and maximum of half the width of the 95 % intervals on a log scale, as ratio - 1.

    An interval around a smaller difference would include 1. num_unknown: pairs without an interval. None without any.
    """
    known = judged[(judged["interval"] == "interval").fillna(False)]
    found = ((known["time_high_ratio"] / known["time_low_ratio"]).astype(float) ** 0.5 - 1).tolist()
    if not found:
        return None
    values = {"median_ratio": statistics.median(found), "max_ratio": max(found)}
    return values | {"num": len(found), "num_unknown": len(judged) - len(found)}


def compared_findings(judged: pd.DataFrame, sources: tuple[Source, ...] = ()) -> list[Finding]:
    """Return the statement on compared pairs, and the verdicts behind it. judged: of `judged_rows`, with `label`."""
    if judged.empty:
        return []
    counts, fewest = by_verdict(judged), judged[["num_launches", "num_reference_launches"]].min(axis=1)
    unsettled = sum(is_unsettled(row) for row in judged.itertuples())
    half, is_campaign = half_widths(judged), judged["axis"] == "campaign"
    values = {
        "pair": pair_text(judged),
        "num": len(judged),
        "by_verdict": counts,
        "num_unsettled": unsettled,
        "num_undecidable": int((fewest < MIN_LAUNCHES).fillna(True).sum()),
        "margins": tuple(sorted(float(margin) for margin in judged["margin_ratio"].unique())),
        "num_significant": num_significant(judged),
        "direction": direction(judged),
        "median_ratio": float(judged["time_ratio"].median()) if is_one_pair(judged) else None,
        "half_widths": half,
    }
    shown = counts | {"inconclusive": counts["inconclusive"] - unsettled, UNSETTLED: unsettled}
    words = {
        "of_margin": margin_text(judged),
        "verdicts": ", ".join(f"{num} {word}" for word, num in shown.items() if num),
        "half_width": half and f"{percent_number(half['median_ratio'])} %",
        "largest_half_width": half and f"{percent_number(half['max_ratio'])} %",
        "correlations": correlations(judged),
        "num_without": int((is_campaign & ~judged["test"].str.endswith("of allocations")).sum()),
    }
    decided = largest_effect(judged)
    for row in decided.itertuples():
        values |= {"largest": row.label, "largest_ratio": float(row.time_ratio)}
        words["largest_text"] = interval_text(row)
    rest = sources, tuple(decided["cell"]), "comparisons"
    kind, of_statement = statement(judged)
    is_decidable = values["num_undecidable"] < values["num"]
    return [
        Finding(kind, values, *rest, of_statement),
        *([Finding("verdicts", values, *rest, words)] if is_decidable else []),
    ]


def statement(judged: pd.DataFrame) -> tuple[str, dict]:
    """Return the kind of the statement on compared pairs, and its words: in a report, it names the value to use."""
    pairs, axis = [part for _, part in judged.groupby(["reference_value", "value"], sort=False)], judged["axis"].iloc[0]
    label = axis_label(axis)
    words = {"other": ""} if axis == "campaign" else {"axis": f"{label[:1].upper()}{label[1:]}"}
    if len(pairs) == 1:
        kind, of_pair = _of_pair(judged)
        return kind, of_pair | words
    found = [_of_pair(part) for part in pairs]
    reference = " and ".join(axis_text(axis, value) for value in judged["reference_value"].unique())
    words |= {"reference": reference, "pairs": "; ".join(KIND_OF[kind].words(of)[0] for kind, of in found)}
    if all(kind == "equal" for kind, _ in found):
        words["within"] = within_text(judged)
    if all(kind == "one_is_slower" and of["word"] == "slower" for kind, of in found):
        words["chosen"] = reference
    return "several_values", words


def _of_pair(rows: pd.DataFrame) -> tuple[str, dict]:
    """Return kind and words of the statement on the pairs of two values."""
    (reference, value), found = sides_text(rows), direction(rows)
    counts, significant = by_verdict(rows), num_significant(rows)
    few = int(rows["p_adjusted"].isna().sum())
    margin, num_open = margins_text(rows["margin_ratio"].unique()), counts["inconclusive"] - few
    num_beyond = counts["slower"] + counts["faster"]
    words = {"reference": reference, "value": value, "num": len(rows), "margin": margin, **significant}
    words |= {"num_beyond": num_beyond, "num_open": num_open, "few": few, "other": value}
    words["limit"] = "" if num_beyond or num_open else margin
    if few == len(rows):
        return "too_few_launches", words | {"median": f"{difference_text(rows['time_ratio'].median())} %"}
    if found:
        sides, ratio = (reference, value), found["median_ratio"]
        (chosen, other), word = (sides, "slower") if found["is_slower"] else (sides[::-1], "faster")
        words |= {"word": word, "size": f"{percent_number(abs(ratio - 1))} %", "chosen": chosen, "other": other}
        words |= {"excess": f"{percent_number(max(ratio, 1 / ratio) - 1)} %", "significant": found["num"]}
        return "one_is_slower", words | {"opposite": sum(significant.values()) - found["num"]}
    if counts["equivalent"] == len(rows):
        return "equal", words | {"within": within_text(rows)}
    if all(significant.values()):
        return "both_ways", words
    known = rows[rows["interval"] == "interval"]
    return "uncertain", words | {"span": span_text(known["time_low_ratio"].min(), known["time_high_ratio"].max())}


def within_text(rows: pd.DataFrame) -> str:
    """Return the largest end of the intervals, up or down."""
    return f"{percent_number(max(rows['time_high_ratio'].max(), 1 / rows['time_low_ratio'].min()) - 1)} %"


def repeats_needed(undecided: pd.DataFrame, repeats: int) -> int | None:
    """Return the number of launches that settles most of the inconclusive pairs; None if it is too large to predict.

    Pairs whose variation is unknown need as many launches as a test.
    """
    fewest = undecided[["num_launches", "num_reference_launches"]].min(axis=1)
    for_test = (MIN_LAUNCHES - fewest).where(fewest < MIN_LAUNCHES)
    median = statistics.median_high(undecided["launches_needed"].fillna(for_test).astype(float).fillna(math.inf))
    return None if math.isinf(median) else repeats + int(median)


def largest_effect(judged: pd.DataFrame) -> pd.DataFrame:
    """Return the slower or faster row with the largest effect, if there is one."""
    return by_effect(judged[judged["verdict"].isin(["slower", "faster"])]).head(1)


def margin_text(judged: pd.DataFrame) -> str:
    """Return each margin and its source: `3.2 % (noise floor of 9 A/A pairs), 5 % (default)`."""
    margins = judged[["margin_ratio", "margin_source"]].drop_duplicates().itertuples(index=False)
    return ", ".join(f"{margins_text([ratio])} ({source})" for ratio, source in margins)


def correlations(rows: pd.DataFrame) -> list[str]:
    """Return each significant correlation of successive launches, and how it widens intervals."""
    return [
        f"{correlation:.2f} over {plural(len(of_test), 'pair')}, intervals"
        f" {of_test['widening_ratio'].median():.2f} times as wide"
        for correlation, of_test in rows.dropna(subset="launch_correlation").groupby("launch_correlation")
    ]


def pair_text(rows: pd.DataFrame) -> str:
    """Return what is compared: `stack bound vs. contained`, `bucket size 1 MiB vs. 25 MiB`."""
    axis, sides = rows["axis"].iloc[0], (dict.fromkeys(rows[name]) for name in ("value", "reference_value"))
    word = "" if axis == "campaign" else f"{axis_label(axis)} "
    return word + " vs. ".join(" and ".join(axis_text(axis, value) for value in values) for values in sides)


def sides_text(rows: pd.DataFrame) -> tuple[str, str]:
    """Return the words for the reference and for what is compared with it: of two campaigns, base and test."""
    axis = rows["axis"].iloc[0]
    if axis == "campaign":
        return "base", "test"
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
