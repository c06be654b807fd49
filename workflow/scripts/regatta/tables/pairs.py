"""Pairs of cells that are compared, one in each row: matched, judged, and summarized.

Within a campaign (tables/comparisons.csv), and between campaigns. The compared time is the primary time, one per
launch. Definitions: docs/metrics.md. Statistics: regatta.core.verdicts.
"""

import math
import statistics
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from regatta.core.groups import find_groups
from regatta.core.moderation import MIN_LAUNCHES
from regatta.core.names import cell_names
from regatta.core.patterns import Pattern, axes_of
from regatta.core.text import is_unknown
from regatta.core.verdicts import (
    Compared,
    Verdict,
    compare_all,
    judge_all,
    noise_floor,
    settled_direction,
    verdict_text,
)
from regatta.kit.columns import EACH, FLAG, OF_PAIR, REAL, TEXT, WHOLE, Column, Columns, in_file, table_rows
from regatta.model.frozen import FrozenCampaign, FrozenCell
from regatta.store.csv_files import CELL, cell_row, columns_in, custom_results, make_table
from regatta.tables.counterparts import CellPair, Pair, alike_stacks, cell_pairs, match_key, versus_of
from regatta.tables.primary_times import Times, primary_columns, results_by_cell, sides_of, times_by_cell

# One pair of cells. Columns of CELL describe `cell`, which differs from `reference` only in `axis`. Identical stacks
# have the verdict ALIKE, and neither a test nor a margin: these rows measure the noise and are not judged by it.
RESULT = "name and heading of the result of a user's benchmark that is compared instead of the time. If more is better,"
RESULT += " ratios are inverted: above 1 is worse"
MEAN_TIME = "geometric mean of the primary time over these launches"
TEST = "the test, its two-sided p, and p corrected over all rows of the table (Benjamini–Hochberg)"
SOURCES = (
    "`campaign`, `default`, `noise floor of n A/A pairs`, or between campaigns `option` or `gate`; empty for A/A pairs"
)
WIDENING = (
    "correlation of successive launches over rows with the same test, and how it widens the interval, if significant"
)
SHOWN = {"table": "pairs"}
COMPARED = "ok launches compared; if paired, number of pairs"
MEANS = "ratio of the geometric means over these launches; if allocations are the unit, each is counted once"
RATIO = Column("time_ratio", "ratio, {other} / {reference}", interval="interval", **SHOWN, group=OF_PAIR, help=MEANS)
MORE = "additional launches per side that would settle an inconclusive verdict"


def mean_column(name: str, label: str, result: str) -> Column:
    """Return the column of a mean time. On the page, a row of a result has the mean of this instead."""
    time, mean = Column(name, label, shown_as=EACH, **SHOWN, help=MEAN_TIME), Column(result)
    return replace(time, text=lambda row: (time if is_unknown(row.result) else mean).cell(row))


VERDICT = "see *Verdicts of a comparison*; `A/A` for identical stacks"
COMPARISONS = Columns(
    *in_file(TEXT, "the compared cell, and the reference: of two campaigns, that of base", "cell", "reference"),
    Column("axis", type=TEXT, help="what they differ in; `campaign` between campaigns"),
    *in_file(TEXT, "their values on the axis; between campaigns, the names of these", "value", "reference_value"),
    *in_file(TEXT, RESULT, "result", "result_label"),
    *in_file(REAL, "geometric mean of this result over these launches", "result_mean", "reference_result_mean"),
    *(Column(name, type=kind) for name, kind in CELL.items()),
    Column("num_planned", type=WHOLE),
    Column("num_launches", "launches", WHOLE, group=OF_PAIR, help=COMPARED),
    Column("num_reference_launches", "launches of the reference", WHOLE, group=OF_PAIR, help=COMPARED),
    Column("is_paired", type=FLAG, help="whether launches that shared an allocation are compared pair by pair"),
    mean_column("time_s", "time, {other}", "result_mean"),
    mean_column("reference_time_s", "time, {reference}", "reference_result_mean"),
    RATIO,
    Column("interval", type=TEXT, help="`single` with 1 launch on either side, `range` with 2, `interval` from 3"),
    Column("test", "test", TEXT, group=OF_PAIR, help=TEST),
    Column("p_value", "p", group=OF_PAIR, help=TEST),
    Column("p_adjusted", "p, corrected", group=OF_PAIR, help=TEST),
    Column("margin_ratio", "margin", shown_as="%", group=OF_PAIR, help="ratio - 1 up to which times are equivalent"),
    Column("margin_source", type=TEXT, help=SOURCES),
    Column("verdict", "verdict", TEXT, text=verdict_text, group=OF_PAIR, help=VERDICT),
    Column("launches_needed", "more launches needed per side", WHOLE, group=OF_PAIR, help=MORE),
    *in_file(REAL, WIDENING, "launch_correlation", "widening_ratio"),
)
MARGIN = 0.05  # default without a margin from the campaign or identical stacks; same as the gate's
NEARLY_ALL = 0.9  # share of ratios on one side of 1 from which the direction is also reported
ALIKE = "A/A"
ALIKE_RATIO = 0.05  # of the 95 % intervals of identical stacks exclude 1 by chance
ALIKE_P = 0.01  # of a binomial test below which more do than by chance
BASE_ONLY, TEST_ONLY = "only in base", "only in test"  # reasons for which a cell has no counterpart


@dataclass(frozen=True)
class Margin:
    """The ratio up to which times are equivalent, and where it comes from."""

    ratio: float
    source: str


Launches = Mapping[tuple[str, str], Compared]  # by the ids of cell and reference

# Families: rows that are judged together share priors, and their p values are corrected over all of them.


def comparisons_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row per pair of cells that differ only in the campaign's `versus`, or only in the stack's name.

    Then one for each declared result with a direction. Each result is a separate family.
    """
    pairs, is_alike = pairs_in(campaign), {pair.ids for pair in alike_stacks(campaign)}
    tables = [_family(campaign, times_by_cell(measurements), pairs, is_alike)]
    for benchmark in campaign.custom_benchmarks.values():
        of_benchmark = [pair for pair in pairs if pair.other.benchmark == benchmark.name]
        for column in custom_results(benchmark) if of_benchmark else ():
            if column.better:
                costs = results_by_cell(measurements, benchmark.name, column)
                tables.append(_with_result(_family(campaign, costs, of_benchmark, is_alike), column))
    return pd.concat(tables, ignore_index=True)


def _family(
    campaign: FrozenCampaign, times: dict[str, Times], pairs: list[CellPair], is_alike: Collection[frozenset]
) -> pd.DataFrame:
    """Return the rows of pairs, judged together. is_alike: ids of those with identical stacks."""
    compared, margins = [_compared(campaign, times, pair) for pair in pairs], margins_of(campaign, times)
    of_pairs = [None if pair.ids in is_alike else margins[pair.other.benchmark] for pair in pairs]
    values = [[_text(cell.field(pair.axis)) for cell in (pair.other, pair.reference)] for pair in pairs]
    return _judged_table(campaign, pairs, values, compared, of_pairs)


def _with_result(rows: pd.DataFrame, column: Column) -> pd.DataFrame:
    """Return rows with the values of a result instead of times."""
    found = {"result": column.name, "result_label": column.heading(rows["device"].iloc[0])}
    for name, time in (("result_mean", "time_s"), ("reference_result_mean", "reference_time_s")):
        found[name] = 1 / rows[time] if column.better == "larger" else rows[time]
    return rows.assign(**found, time_s=pd.NA, reference_time_s=pd.NA).astype(rows.dtypes)


def pairs_in(campaign: FrozenCampaign) -> list[CellPair]:
    """Return the pairs of cells that a campaign compares, then those of identical stacks."""
    pairs = cell_pairs(campaign)
    listed = {pair.ids for pair in pairs}
    return pairs + [pair for pair in alike_stacks(campaign) if pair.ids not in listed]


def launches_in(campaign: FrozenCampaign, measurements: pd.DataFrame) -> Launches:
    """Return the launches of each row of times in `comparisons_table`."""
    times = times_by_cell(measurements)
    return {(pair.other.id, pair.reference.id): _compared(campaign, times, pair) for pair in pairs_in(campaign)}


def matched_cells(
    *campaigns: tuple[FrozenCampaign, pd.DataFrame],
) -> tuple[list[CellPair], list[Compared], dict[str, list[FrozenCell]]]:
    """Return the pairs of cells of two campaigns that measure the same, their launches, and by the reason the cells
    without a pair.

    campaigns: each with its measurements.
    """
    columns = primary_columns(*(table for _, table in campaigns))
    base, test = (times_by_cell(table, columns) for _, table in campaigns)
    cells, others = ({match_key(cell): cell for cell in side.cells} for side, _ in campaigns)
    pairs, compared = [], []
    unmatched = {BASE_ONLY: [cell for key, cell in cells.items() if key not in others]}
    for key, other in others.items():
        cell, benchmark, version = cells.get(key), other.benchmark, other.version
        if cell is None:
            reason = TEST_ONLY
        elif (old := cell.version) != version:
            reason = f"not compared, measured by version {old} of {benchmark} in base and {version} in test"
        elif cell.id not in base or other.id not in test:
            reason = f"not compared, no ok launch in {'test' if cell.id in base else 'base'}"
        else:
            pairs.append(CellPair(cell, other, "campaign"))
            compared.append(sides_of(base[cell.id], test[other.id], benchmark, is_same_campaign=False))
            continue
        unmatched.setdefault(reason, []).append(other)
    return pairs, compared, {reason: cells for reason, cells in unmatched.items() if cells}


def pairs_of_campaigns(
    base: tuple[FrozenCampaign, pd.DataFrame],
    test: tuple[FrozenCampaign, pd.DataFrame],
    margin: float,
    allocation_variation: float | None = None,
) -> tuple[pd.DataFrame, list[Compared], dict[str, list[FrozenCell]]]:
    """Return one row per pair of cells of two campaigns, their launches, and the cells without a pair by the reason.

    base, test: campaign and measurements. allocation_variation: for the verdicts of a gate.
    """
    pairs, compared, unmatched = matched_cells(base, test)
    margins, verdicts = [Margin(margin, "option")] * len(pairs), None
    if allocation_variation is not None:
        margins = [Margin(pair.margin_with(margin, allocation_variation), "gate") for pair in compared]
        verdicts = compare_all(compared, margin, allocation_variation)
    values = [(test[0].name, base[0].name)] * len(pairs)
    return _judged_table(test[0], pairs, values, compared, margins, verdicts), compared, unmatched


def compared_steps(pairs: list[Pair], times: dict[str, Times], margin: float | None = None) -> dict[Pair, Verdict]:
    """Return the verdict on each ratio of step times, second cell over first. Incomplete pairs are excluded.

    margin: as in `judge_all`.
    """
    known = [pair for pair in pairs if None not in pair and pair[0] != pair[1]]
    sides = [replace(sides_of(*(times[cell] for cell in pair)), allocations=((), ())) for pair in known]
    return dict(zip(known, judge_all(sides, [margin] * len(sides)), strict=True))


def _compared(campaign: FrozenCampaign, times: dict[str, Times], pair: CellPair) -> Compared:
    """Return the launches of a pair. Without `allocations`, batches split by their duration do not count as such."""
    found = sides_of(times[pair.reference.id], times[pair.other.id], pair.other.benchmark)
    return found if campaign.allocations is not None else replace(found, allocations=((), ()))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def margins_of(campaign: FrozenCampaign, times: dict[str, Times]) -> dict[str, Margin]:
    """Return the margin of each benchmark: that of the campaign, and at least the noise of its identical stacks."""
    ratios: dict[str, list[float]] = {cell.benchmark: [] for cell in campaign.cells}
    for pair in alike_stacks(campaign):
        compared = _compared(campaign, times, pair)
        if compared.num >= MIN_LAUNCHES:
            ratios[compared.group].append(compared.ratio.mean)
    given = versus_of(campaign)["margin"]
    margins = dict.fromkeys(ratios, Margin(MARGIN, "default") if given is None else Margin(given, "campaign"))
    for benchmark, of_benchmark in ratios.items():
        noise = noise_floor(of_benchmark)
        if noise is not None and (given is None or noise > given):
            margins[benchmark] = Margin(noise, f"noise floor of {len(of_benchmark)} A/A pairs")
    return margins


def _judged_table(
    campaign: FrozenCampaign,
    pairs: list[CellPair],
    values: list[tuple[str, str]],
    compared: list[Compared],
    margins: list[Margin | None],
    verdicts: list[Verdict] | None = None,
) -> pd.DataFrame:
    """Return one row per pair, with the statistics of its launches.

    campaign: that of the compared cells. values: of other and reference. margins: None if both cells measure the same
    (A/A). p values are corrected over all tested rows: those with launches on both sides that are not A/A. Rows of a
    benchmark share a prior. verdicts: those of a gate.
    """
    if verdicts is None:
        verdicts = judge_all(compared, [None if margin is None else margin.ratio for margin in margins])
    rows = []
    for pair, (value, reference_value), sides, margin, verdict in zip(
        pairs, values, compared, margins, verdicts, strict=True
    ):
        row = cell_row(pair.other) | {"reference": pair.reference.id, "axis": pair.axis, "value": value}
        row |= {"reference_value": reference_value, "num_planned": campaign.repeats_of(pair.other)}
        row |= {"num_launches": len(sides.test), "num_reference_launches": len(sides.base)}
        row |= {"time_s": _mean(sides.test), "reference_time_s": _mean(sides.base)}
        if margin is not None:
            row |= {"margin_ratio": margin.ratio, "margin_source": margin.source}
        if sides.num:
            row |= verdict_values(verdict) | {"is_paired": sides.is_paired}
            row |= {"launch_correlation": verdict.correlation, "widening_ratio": verdict.widening}
            row |= {"test": None, "verdict": ALIKE} if margin is None else {}
        rows.append(row)
    return make_table(rows, columns_in(campaign, COMPARISONS))


def _mean(values: list[float]) -> float | None:
    return math.exp(np.mean(np.log(values))) if values else None


def verdict_values(verdict: Verdict) -> dict:
    """Return the columns of a verdict."""
    found = dict(zip(RATIO.names, verdict.ratio.ends, strict=True))
    found |= {"interval": verdict.ratio.kind, "verdict": verdict.word}
    return found | {name: getattr(verdict, name) for name in ("test", "p_value", "p_adjusted", "launches_needed")}


# What rows have in common.


def judged_rows(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have a verdict: launches on both sides, and stacks that are not identical (A/A)."""
    return directed(comparisons[(comparisons["verdict"].notna() & (comparisons["verdict"] != ALIKE)).fillna(False)])


def directed(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with `direction`: slower or faster if the difference is statistically significant, else empty."""
    return rows.assign(direction=[direction_of(row) or "" for row in table_rows(rows)])


def alike_that_differ(comparisons: pd.DataFrame) -> tuple[pd.DataFrame, int, float]:
    """Return the A/A rows whose interval excludes 1, of how many, and how many are expected by chance.

    Without rows if chance explains as many. Takes the rows as independent, which those of one launch are not.
    """
    from scipy.special import bdtrc

    rows = comparisons[(comparisons["verdict"] == ALIKE) & (comparisons["interval"] == "interval").fillna(False)]
    found = rows[(rows["time_low_ratio"] > 1) | (rows["time_high_ratio"] < 1)]
    is_chance = not len(found) or bdtrc(len(found) - 1, len(rows), ALIKE_RATIO) >= ALIKE_P
    return found.head(0) if is_chance else found, len(rows), ALIKE_RATIO * len(rows)


def by_effect(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the largest effect first, up or down; those without a ratio last."""
    ratio = comparisons["time_ratio"].astype(float)
    size = ratio.where(ratio >= 1, 1 / ratio)
    return comparisons.loc[size.sort_values(ascending=False, kind="stable", na_position="last").index]


def is_within_margin(comparisons: pd.DataFrame) -> pd.Series:
    """Return which rows are within the margin: neither faster nor slower, and with a ratio within the margin."""
    ratio, limit = comparisons["time_ratio"], 1 + comparisons["margin_ratio"]
    is_within = ((ratio <= limit) & (ratio >= 1 / limit)).fillna(False)
    return is_within & ~comparisons["verdict"].isin(["faster", "slower"])


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


def direction_of(row: object) -> str | None:
    """Return slower or faster if the difference of a row is statistically significant; else None."""
    return settled_direction(row.time_low_ratio, row.time_high_ratio, row.p_adjusted)


def num_significant(judged: pd.DataFrame) -> dict[str, int]:
    """Return how many pairs are significantly slower and faster, each by its own launches, regardless of the margin.

    There is no test over pairs: cells measured in the same launches are not independent.
    """
    return {word: int((judged["direction"] == word).sum()) for word in ("slower", "faster")}


def num_within(judged: pd.DataFrame) -> dict[str, int]:
    """Return how many pairs are significantly slower and faster, but within the margin."""
    return num_significant(judged[(judged["verdict"] == "equivalent").fillna(False)])


def repeats_needed(undecided: pd.DataFrame, repeats: int) -> int | None:
    """Return the number of launches that settles most of the inconclusive pairs; None if it is too large to predict.

    Pairs whose variation is unknown need as many launches as a test.
    """
    fewest = undecided[["num_launches", "num_reference_launches"]].min(axis=1)
    for_test = (MIN_LAUNCHES - fewest).where(fewest < MIN_LAUNCHES)
    median = statistics.median_high(undecided["launches_needed"].fillna(for_test).astype(float).fillna(math.inf))
    return None if math.isinf(median) else repeats + int(median)


def patterns_of(
    judged: pd.DataFrame, labels: pd.Series, launches: Launches
) -> Iterator[tuple[str, list[tuple[Pattern, float]]]]:
    """Yield where pairs are slower and faster: patterns with the median ratio of the pairs inside.

    Pairs without a test are left out. labels: of the compared values.
    """
    tested = judged[judged["p_adjusted"].notna()]
    if tested.empty:
        return
    rows, axis = tested.astype(object).where(tested.notna(), None).to_dict("records"), judged["axis"].iloc[0]
    names = [name.without(axis) for name in cell_names(rows)]
    values = [{axis: None, "value": label} for label in labels[tested.index]]
    axes = [axes_of(name, row) | value for name, row, value in zip(names, rows, values, strict=True)]
    compared = [launches[row["cell"], row["reference"]] for row in rows]
    for word, found in find_groups(axes, compared, tested["direction"].tolist()):
        ratios = [statistics.median(rows[i]["time_ratio"] for i in pattern.inside) for pattern in found]
        yield word, list(zip(found, map(float, ratios), strict=True))
