"""Findings on comparisons: what the pairs of two values have in common, and how many have which verdict."""

import math
from collections.abc import Iterator
from functools import partial
from itertools import starmap

import pandas as pd

from regatta.core.moderation import FALSE_DISCOVERIES, MIN_LAUNCHES
from regatta.core.patterns import Pattern
from regatta.core.text import change_text, is_unknown
from regatta.core.verdicts import (
    MIN_NOISE_PAIRS,
    has_both_directions,
    is_below_threshold,
    margins_text,
    span_text,
    worded,
)
from regatta.kit.columns import table_rows
from regatta.kit.kinds import FAIR, LOW, NOTE, RESULT, SUMMARY, Kind, joined
from regatta.report.findings import Finding, Source, excess_text, percent_number
from regatta.tables.pairs import (
    MARGIN,
    NEARLY_ALL,
    RATIO,
    Launches,
    by_effect,
    half_widths,
    num_significant,
    num_within,
    patterns_of,
)
from regatta.topics.comparison.texts import (
    axis_label,
    axis_text,
    benchmark_words,
    difference_text,
    margin_text,
    pair_text,
    sides_text,
    within_texts,
)

VERDICTS = ("slower", "faster", "inconclusive", "equivalent")

# What the pairs of two values have in common, and of which pairs. If they name a value to use, it is `chosen`.
OUTCOMES = (
    Kind(
        *("slower", RESULT),
        lead="{other} {takes}",
        parts=(
            (
                "median of {num:cell/cells}: {judged}; {opposite} significant in the other direction",
                "median of {num:cell/cells}: {judged}",
            ),
        ),
    ),
    Kind(
        *("equal", RESULT),
        lead="{value} and {reference} differ by at most {within} %",
        parts=("{num:cell/cells}",),
    ),
    Kind(
        *("both_ways", RESULT),
        lead="{value} is {slow} in {slower} of {num:cell/cells}, {reference} in {faster}",
    ),
    Kind(
        *("uncertain", RESULT),
        lead=(
            "{value} is significantly {slow} in {slower} of {num:cell/cells}",
            "{value} is significantly {fast} in {faster} of {num:cell/cells}",
            "{value} is {span}",
        ),
        parts=(
            (
                "95 % CIs {ends}; {chance} in the other direction, perhaps by chance",
                "95 % CIs {ends}",
                "95 % CIs of {num:cell/cells}",
            ),
        ),
    ),
    Kind(*("undecided", RESULT), lead="{value} vs. {reference}: median difference {median} %"),
)
CHOICES = {"equal": "either", "both_ways": "depends on the cell", "uncertain": "uncertain", "undecided": "undecided"}

KINDS = (
    Kind(
        *("compared", SUMMARY),
        lead=("{axis}: {choice}; {first}", "{outcomes}"),
        parts=(
            "{of_axis}",
            "{where}",
            "{num_beyond} by more than the {margin} margin",
            "{num_open:cell/cells} may or may not exceed the {margin} margin",
            "none by more than the {limit} margin",
            "{few:cell/cells} with too few launches for a verdict",
        ),
        key="comparison",
        place=1,
        term="Comparisons",
        help="Ratio of the geometric means of primary times over launches; above 1 is slower. From"
        f" {MIN_LAUNCHES} launches per side, it has a 95 % t interval of logarithms, moderated by the variance of all"
        " compared pairs and widened if successive launches are correlated. Launches of one allocation are paired; with"
        " several allocations, their means are the unit. Slower, faster: the interval lies beyond the margin, and"
        f" p ≤ {FALSE_DISCOVERIES:g}, corrected over all rows (Benjamini-Hochberg). Equivalent: it lies within the"
        " margin. Significant: it excludes 1 with the same p, regardless of the margin. Inconclusive: all others."
        f" Margin: the campaign's (default {100 * MARGIN:g} %), and at least the noise floor of {MIN_NOISE_PAIRS} or"
        " more pairs of identical stacks (A/A), which get no verdict. No test combines pairs.",
    ),
    Kind(
        *("verdicts", RESULT),
        lead="Verdicts at a margin of {of_margin}: {verdicts}.",
        parts=(
            "Precision: ±{half_width} (median half-width of the 95 % CIs, maximum {largest_half_width}).",
            "Largest difference: {largest}, {largest_text} %.",
            "Launches are autocorrelated ({launch_correlation:.2f}): the intervals of {num_widened} of"
            " {num:pair/pairs} are widened by a factor of up to {widening_ratio:.2f}.",
            "One job per side in {num_without} of {num:pair/pairs}: another day may differ by more than the intervals.",
        ),
        term="Half-width of an interval",
        help="√(high / low) − 1 of a ratio's 95 % CI. Smaller differences are not statistically significant.",
    ),
    Kind(
        *("alike_differ", LOW),
        lead="Pairs of identical stacks differ: the 95 % CI excludes 1 in {num} of {num_pairs:pair/pairs}.",
        parts=("{expected:.1f} are expected by chance.",),
        advice="Other stacks may differ for the same reason. Check for load, shared hosts and drift; measure again.",
        next_step="free the nodes of other load, then measure again",
    ),
    Kind(
        *("not_interleaved", FAIR),
        lead="Not interleaved: one side ran after the other in {num} of {num_pairs:pair/pairs} ({axis}); drift could"
        " look like a difference.",
        advice="Measure both sides in one new campaign, which alternates between stacks.",
        next_step="measure again under a new campaign name: launches of both sides then alternate",
    ),
    Kind(
        *("open_pairs", NOTE),
        lead="Inconclusive: {num} of {num_pairs:compared pair/compared pairs}.",
        advice=(
            "More launches settle most of them: `repeats: {repeats}`.",
            "Most need more than 100 more launches per side: noise hides differences as large as the margin.",
        ),
        next_step="settle inconclusive comparisons: `repeats: {repeats}`, `{run}`",
    ),
    Kind(
        *("environment", RESULT),
        lead=(
            "{num:environment difference/environment differences}: {names}",
            "Environments unknown: {unknown}",
            "No environment difference was recorded",
        ),
    ),
)

KIND_OF = {kind.name: kind for kind in (*KINDS, *OUTCOMES)}


def largest_effect(judged: pd.DataFrame) -> pd.DataFrame:
    """Return the slower or faster row with the largest effect, if there is one."""
    return by_effect(judged[judged["verdict"].isin(["slower", "faster"])]).head(1)


def compared_findings(judged: pd.DataFrame, launches: Launches, sources: tuple[Source, ...] = ()) -> list[Finding]:
    """Return the statement on compared pairs, and the verdicts behind it.

    judged: of `judged_rows`, with `label`. launches: of these rows.
    """
    if judged.empty:
        return []
    counts = {word: int((judged["verdict"] == word).sum()) for word in VERDICTS}
    num_unsettled = sum(num_significant(judged[judged["verdict"] == "inconclusive"]).values())
    found, half, decided = list(map(outcome, summarized(judged))), half_widths(judged), largest_effect(judged)
    parts = [part for part, *_ in found]
    texts = [f"{statement} ({basis})" if basis else statement for _, statement, basis in found]
    directions, few = [part["direction"] for part in parts if part["direction"]], int(judged["p_adjusted"].isna().sum())
    times = judged[judged["result"].isna()]
    patterns = [
        (word, of)
        for word, of in patterns_of(times, times["value"].map(partial(axis_text, judged["axis"].iloc[0])), launches)
        if [condition.value for condition in of[0][0].conditions] not in [part["benchmarks"] for part in parts]
    ]  # without those that an outcome of one benchmark has
    values = {
        "pair": pair_text(judged),
        "num": len(judged),
        "by_verdict": counts,
        "num_unsettled": num_unsettled,
        "num_undecidable": few,
        "margins": tuple(sorted(float(margin) for margin in judged["margin_ratio"].unique())),
        "num_significant": num_significant(judged),
        "num_within": num_within(judged),
        "parts": parts,
        "patterns": [
            {"direction": word, **where.values, "median_ratio": ratio} for word, of in patterns for where, ratio in of
        ],
        "direction": max(directions, key=lambda of: abs(math.log(of["median_ratio"])), default=None),
        "median_ratio": parts[0]["median_ratio"] if len(parts) == 1 else None,
        "half_widths": half,
    }
    words = {"where": "; ".join(starmap(partial(where_text, judged), patterns))}
    notes = {"equivalent": " ({})".format(", ".join(within)) if (within := within_texts(judged)) else ""}
    notes["inconclusive"] = f" ({num_unsettled:,} significant)" if num_unsettled else ""
    shown = [f"{num:,} {word}{notes.get(word, '')}" for word, num in counts.items() if num]
    words |= {
        "outcomes": "; ".join(texts),
        "num_beyond": counts["slower"] + counts["faster"] - sum(part.get("num_beyond", 0) for part in parts),
        "num_open": counts["inconclusive"] - few - sum(map(is_below_threshold, table_rows(judged))),
        "few": few,
        "margin": margins_text(judged["margin_ratio"].unique()),
        "of_margin": margin_text(judged),
        "verdicts": ", ".join(shown),
        "half_width": half and f"{percent_number(half['median_ratio'])} %",
        "largest_half_width": half and f"{percent_number(half['max_ratio'])} %",
        "num_without": int(((judged["axis"] == "campaign") & ~judged["test"].str.endswith("of allocations")).sum()),
    }
    widened = judged[(judged["widening_ratio"] > 1).fillna(False)]
    values["num_widened"] = len(widened)
    for name in ("launch_correlation", "widening_ratio") if len(widened) else ():
        values[name] = float(widened[name].max())
    outcomes = {part["outcome"] for part in parts}
    is_different, is_equal = outcomes & {"slower", "both_ways"}, outcomes == {"equal"}
    words["mark"] = "different" if is_different else "equal" if is_equal else "uncertain"
    is_said = any("num_beyond" in part for part in parts)
    words["limit"] = "" if is_said or words["num_beyond"] or words["num_open"] or few else words["margin"]
    if (axis := judged["axis"].iloc[0]) != "campaign":
        label = axis_label(axis)
        words |= {"axis": f"{label[:1].upper()}{label[1:]}", "choice": choice(parts)}
        at = next((place for place, part in enumerate(parts) if part["chosen"]), 0)  # it leads
        _, words["first"], basis = found[at]
        words["of_axis"] = "; ".join(filter(None, (basis, *texts[:at], *texts[at + 1 :])))
    for row in decided.itertuples():
        values |= {"largest": row.label, "largest_ratio": float(row.time_ratio)}
        words["largest_text"] = change_text(row)
    kinds = ("compared",) if few == len(judged) else ("compared", "verdicts")
    return [Finding(kind, values, sources, tuple(decided["cell"]), "comparisons", words) for kind in kinds]


def where_text(judged: pd.DataFrame, word: str, found: list[tuple[Pattern, float]]) -> str:
    """Return `bound is slower for 8×4 (4 of 6 cells individually significant, median 5.5 %), none of 90 elsewhere`."""
    counts, device = [pattern.counts_text() for pattern, _ in found], judged["device"].iloc[0]
    where = " and ".join(
        f"{pattern.text(device)} ({inside} individually significant, median {percent_number(abs(ratio - 1))} %)"
        for (pattern, ratio), (inside, _) in zip(found, counts, strict=True)
    )
    return f"{sides_text(judged)[1]} is {word} for {where}, {counts[0][1]} elsewhere"


def summarized(judged: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the pairs that one outcome summarizes: those of two values, by benchmark if their sizes differ.

    They differ if the medians of their intervals do not overlap. Column `part` then names the benchmark; of results,
    which are separate, it names the result.
    """
    for _, rows in judged.groupby(["result_label", "reference_value", "value"], sort=False, dropna=False):
        if rows["result_label"].notna().any():
            yield rows.assign(part=rows["result_label"] + ": ")
            continue
        known = rows[(rows["interval"] == "interval").fillna(False)].astype(dict.fromkeys(RATIO.names, float))
        ends = known.groupby("benchmark")[list(RATIO.names)].median()
        if ends["time_low_ratio"].max() > ends["time_high_ratio"].min():
            by_benchmark = rows.groupby("benchmark", sort=False)
            yield from (part.assign(part=f"{benchmark_words(name)}: ") for name, part in by_benchmark)
        else:
            yield rows.assign(part="")


def outcome(rows: pd.DataFrame) -> tuple[dict, str, str]:
    """Return the outcome on pairs of two values as numbers, and in words: the statement, and of which pairs.

    direction: which side takes longer, where most pairs differ significantly and nearly all ratios agree.
    """
    sides, significant = sides_text(rows), num_significant(rows)
    ratios, known = rows["time_ratio"].astype(float), rows[(rows["interval"] == "interval").fillna(False)]
    low, high, median = known["time_low_ratio"].min(), known["time_high_ratio"].max(), float(ratios.median())
    is_slower = median > 1
    chosen, other = sides if is_slower else sides[::-1]
    num = significant["slower" if is_slower else "faster"]
    is_one_sided = ((ratios > 1) if is_slower else (ratios < 1)).mean() >= NEARLY_ALL and 2 * num > len(rows)
    name = "uncertain"
    if rows["p_adjusted"].isna().all():
        name = "undecided"
    elif is_one_sided:
        name = "slower"
    elif (rows["verdict"] == "equivalent").all():
        name = "equal"
    elif has_both_directions(rows["direction"].tolist(), rows["p_value"].tolist()):
        name = "both_ways"
    part = {"reference": sides[0], "value": sides[1], "benchmarks": rows["benchmark"].unique().tolist()}
    part |= {"outcome": name, "num": len(rows), "median_ratio": median, "direction": None, "chosen": None}
    first = next(rows.itertuples())
    part |= {} if is_unknown(first.result) else {"result": first.result}
    words = part | significant | {"other": other, "opposite": sum(significant.values()) - num}
    words |= {"slow": worded("slower", first), "fast": worded("faster", first)}
    if name == "uncertain" and all(significant.values()):
        fewer = min(significant, key=significant.get)
        words |= {"chance": significant[fewer], fewer: 0}
    num_beyond = int(rows["verdict"].isin(["slower", "faster"]).sum())
    within = num_within(rows)["slower" if is_slower else "faster"]
    judged = _judged_text(len(rows), num, within, num_beyond, margins_text(rows["margin_ratio"].unique()))
    takes = excess_text(max(median, 1 / median), worded("slower", first))
    words |= {"judged": worded(judged, first), "takes": takes, "median": difference_text(median)}
    if len(known):
        words |= {"within": percent_number(max(high, 1 / low) - 1), "span": worded(span_text(low, high), first)}
        words["ends"] = words["span"] if any(significant.values()) else None
    if name == "slower":
        most = float(ratios.max() if is_slower else ratios.min())
        shift = {"value": sides[1], "is_slower": is_slower, "num": num, "num_pairs": len(rows)}
        part |= {"chosen": chosen, "direction": shift | {"median_ratio": median, "most_ratio": most}}
        part["num_beyond"] = num_beyond
    statement, basis = KIND_OF[name].words(words)
    return part, rows["part"].iloc[0] + statement, basis


def _judged_text(num: int, significant: int, within: int, beyond: int, margin: str) -> str:
    """Return how many of a number of pairs are significant, and how many lie within and beyond the margin."""
    if num == significant == beyond:
        return f"all beyond the {margin} margin"
    counts = ("all" if num == significant else f"{significant:,}", f"{beyond:,}" if beyond else "none")
    if within == significant and not beyond:
        return f"{counts[0]} slower within the {margin} margin"
    return f"{counts[0]} significant, {counts[1]} beyond the {margin} margin"


def choice(parts: list[dict]) -> str:
    """Return the value to use: the one that is faster wherever two differ, and for which benchmarks if not for all."""
    outcomes, chosen = {part["outcome"] for part in parts}, {part["chosen"] for part in parts} - {None}
    if outcomes <= {"slower", "equal"} and len(chosen) == 1:
        return f"use {chosen.pop()}"
    if len(chosen) == 1 and len({(part["reference"], part["value"]) for part in parts}) == 1:
        better = [part for part in parts if part["chosen"]]
        of = [part.get("result") or benchmark_words(name) for part in better for name in part["benchmarks"]]
        return f"use {chosen.pop()} for {joined(of)}"
    if len(chosen) > 1 and any("result" in part for part in parts):
        return "depends on the result"
    if len(outcomes) == 1 and not chosen:
        return CHOICES[outcomes.pop()]
    return f"compared with {' and '.join(dict.fromkeys(part['reference'] for part in parts))}"
