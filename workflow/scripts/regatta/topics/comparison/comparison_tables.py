"""Pairs of cells, one in each row: inside a campaign (tables/comparisons.csv) and between two campaigns.

The compared time is the primary time, one per launch. Definitions: docs/metrics.md. Statistics: regatta.core.verdicts.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from regatta.campaign.expansion import canonical_json
from regatta.campaign.versus import complete_versus
from regatta.core.moderation import MIN_LAUNCHES
from regatta.core.verdicts import Compared, Verdict, judge_all, noise_floor, verdict_text
from regatta.kit.columns import EACH, FLAG, OF_PAIR, REAL, TEXT, WHOLE, Column, Columns, in_file
from regatta.model.frozen import Cell, FrozenCampaign, FrozenCell
from regatta.store.collect import cell_row
from regatta.store.csv_files import CELL, columns_in, make_table
from regatta.tables.primary_times import Times, sides_of, times_by_cell


@dataclass(frozen=True)
class CellPair:
    """Two cells of a frozen campaign."""

    reference: FrozenCell
    other: FrozenCell

    @property
    def ids(self) -> frozenset[str]:
        return frozenset((self.reference.id, self.other.id))


def versus_of(campaign: FrozenCampaign) -> dict:
    """Return axis, reference and margin of a frozen campaign, also of one frozen before the key existed."""
    return complete_versus(campaign.versus or "stack")


def cell_pairs(campaign: FrozenCampaign) -> list[CellPair]:
    """Return the pairs of cells that differ only in the axis `versus` of the campaign, in its order of cells.

    A parameter that is null in one of them has no effect there, so it need not be equal (bucket size of strategy none).
    """
    versus = versus_of(campaign)
    axis, wanted = versus["axis"], versus["reference"]
    cells = [cell for cell in campaign.cells if cell.field(axis) is not None]
    place = {cell.id: index for index, cell in enumerate(cells)}
    values = list(dict.fromkeys(_value(cell, axis) for cell in cells))
    found = []
    for group in _groups(cells, axis):
        first = min((value for _, value, _ in group), key=values.index) if wanted is None else canonical_json(wanted)
        references = [(cell, fields) for cell, value, fields in group if value == first]
        others = [(cell, fields) for cell, value, fields in group if value != first]
        found += [CellPair(a, b) for b, of_b in others for a, of_a in references if _is_alike(of_a, of_b)]
    return sorted(found, key=lambda pair: (place[pair.other.id], place[pair.reference.id]))


def alike_stacks(campaign: FrozenCampaign) -> list[CellPair]:
    """Return the pairs of cells whose stacks differ only in their names: they measure the same (A/A).

    Each is paired with the first of its kind, or with that of the reference if the campaign compares stacks.
    """
    versus = versus_of(campaign)
    first = versus["reference"] if versus["axis"] == "stack" else None
    groups = defaultdict(list)
    for cell in campaign.cells:
        groups[canonical_json(cell.spec | {"stack": cell.stack.settings})].append(cell)
    found = []
    for group in (group for group in groups.values() if len(group) > 1):
        reference = next((cell for cell in group if cell.stack.name == first), group[0])
        found += [CellPair(reference, cell) for cell in group if cell is not reference]
    return found


def _value(cell: Cell, axis: str) -> str:
    """Return a cell's value of the axis as one text, in which 1 and 1.0 are equal, 1 and true are not."""
    return canonical_json(cell.field(axis))


def _groups(cells: list[FrozenCell], axis: str) -> Iterator[list[tuple[FrozenCell, str, dict]]]:
    """Yield cells that agree in every field that is null in no cell of their benchmark: the candidates for pairs.

    Each with its value of the axis and its other fields.
    """
    by_benchmark = defaultdict(list)
    for cell in cells:
        by_benchmark[cell.benchmark].append((cell, _value(cell, axis), _flat(cell, axis)))
    for members in by_benchmark.values():
        known = [name for name in members[0][2] if all(fields.get(name) is not None for *_, fields in members)]
        groups = defaultdict(list)
        for member in members:
            groups[canonical_json([member[2][name] for name in known])].append(member)
        yield from groups.values()


def _flat(cell: Cell, axis: str) -> dict:
    """Return all fields of a cell except the axis. Names of stacks are unique within a campaign."""
    return {name: value for name, value in cell.fields_with([axis]).items() if name != axis}


def _is_alike(a: dict, b: dict) -> bool:
    return all(a.get(name) == b.get(name) or a.get(name) is None or b.get(name) is None for name in a.keys() | b.keys())


# One pair of cells. Columns of CELL describe `cell`, which differs from `reference` only in `axis`. Identical stacks
# have the verdict ALIKE, and neither a test nor a margin: these rows measure the noise and are not judged by it.
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
VERDICT = "see *Verdicts of a comparison*; `A/A` for identical stacks"
COMPARISONS = Columns(
    *in_file(TEXT, "the compared cell, and the reference: of two campaigns, that of base", "cell", "reference"),
    Column("axis", type=TEXT, help="what they differ in; `campaign` between campaigns"),
    *in_file(TEXT, "their values on the axis; between campaigns, the names of these", "value", "reference_value"),
    *(Column(name, type=kind) for name, kind in CELL.items()),
    Column("num_planned", type=WHOLE),
    Column("num_launches", "launches", WHOLE, group=OF_PAIR, help=COMPARED),
    Column("num_reference_launches", "launches of the reference", WHOLE, group=OF_PAIR, help=COMPARED),
    Column("is_paired", type=FLAG, help="whether launches that shared an allocation are compared pair by pair"),
    Column("time_s", "time, {other}", shown_as=EACH, **SHOWN, help=MEAN_TIME),
    Column("reference_time_s", "time, {reference}", shown_as=EACH, **SHOWN, help=MEAN_TIME),
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
ALIKE = "A/A"
ALIKE_RATIO = 0.05  # of the 95 % intervals of identical stacks exclude 1 by chance
ALIKE_P = 0.01  # of a binomial test below which more do than by chance


@dataclass(frozen=True)
class Margin:
    """The ratio up to which times are equivalent, and where it comes from."""

    ratio: float
    source: str


def comparisons_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row per pair of cells that differ only in the campaign's `versus`, or only in the stack's name."""
    times, axis = times_by_cell(measurements), versus_of(campaign)["axis"]
    alike = {pair.ids: pair for pair in alike_stacks(campaign)}
    pairs = [(pair, axis) for pair in cell_pairs(campaign)]
    listed = {pair.ids for pair, _ in pairs}
    pairs += [(pair, "stack") for ids, pair in alike.items() if ids not in listed]
    compared, margins = [_compared(campaign, times, pair) for pair, _ in pairs], margins_of(campaign, times)
    of_pairs = [None if pair.ids in alike else margins[pair.other.benchmark] for pair, _ in pairs]
    return compared_table(campaign, [_pair_row(campaign, *pair) for pair in pairs], compared, of_pairs)


def _pair_row(campaign: FrozenCampaign, pair: CellPair, axis: str) -> dict:
    return cell_row(pair.other) | {
        "reference": pair.reference.id,
        "axis": axis,
        "num_planned": campaign.repeats_of(pair.other),
        "value": _text(pair.other.field(axis)),
        "reference_value": _text(pair.reference.field(axis)),
    }


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


def alike_that_differ(comparisons: pd.DataFrame) -> tuple[pd.DataFrame, int, float]:
    """Return the A/A rows whose interval excludes 1, of how many, and how many are expected by chance.

    Without rows if chance explains as many. Takes the rows as independent, which those of one launch are not.
    """
    from scipy.special import bdtrc

    rows = comparisons[(comparisons["verdict"] == ALIKE) & (comparisons["interval"] == "interval").fillna(False)]
    found = rows[(rows["time_low_ratio"] > 1) | (rows["time_high_ratio"] < 1)]
    is_chance = not len(found) or bdtrc(len(found) - 1, len(rows), ALIKE_RATIO) >= ALIKE_P
    return found.head(0) if is_chance else found, len(rows), ALIKE_RATIO * len(rows)


def _compared(campaign: FrozenCampaign, times: dict[str, Times], pair: CellPair) -> Compared:
    """Return the launches of a pair. Without `allocations`, batches split by their duration do not count as such."""
    found = sides_of(times[pair.reference.id], times[pair.other.id], pair.other.benchmark)
    return found if campaign.allocations is not None else replace(found, allocations=((), ()))


def compared_table(
    campaign: FrozenCampaign,
    rows: list[dict],
    compared: list[Compared],
    margins: list[Margin | None],
    verdicts: list[Verdict] | None = None,
) -> pd.DataFrame:
    """Return rows with the statistics of their launches. campaign: that of the compared cells.

    margins: None if both cells measure the same (A/A).

    p values are corrected over all tested rows: those with launches on both sides that are not A/A. Rows of a benchmark
    share a prior. verdicts: those of a gate.
    """
    if verdicts is None:
        verdicts = judge_all(compared, [None if margin is None else margin.ratio for margin in margins])
    for row, pair, margin, verdict in zip(rows, compared, margins, verdicts, strict=True):
        row |= {"num_launches": len(pair.test), "num_reference_launches": len(pair.base)}
        row |= {"time_s": _mean(pair.test), "reference_time_s": _mean(pair.base)}
        if margin is not None:
            row |= {"margin_ratio": margin.ratio, "margin_source": margin.source}
        if pair.num:
            row |= verdict_values(verdict) | {"is_paired": pair.is_paired}
            row |= {"launch_correlation": verdict.correlation, "widening_ratio": verdict.widening}
            row |= {"test": None, "verdict": ALIKE} if margin is None else {}
    return make_table(rows, columns_in(campaign, COMPARISONS))


def _mean(values: list[float]) -> float | None:
    return math.exp(np.mean(np.log(values))) if values else None


def verdict_values(verdict: Verdict) -> dict:
    """Return the columns of a verdict."""
    found = dict(zip(RATIO.names, verdict.ratio.ends, strict=True))
    found |= {"interval": verdict.ratio.kind, "verdict": verdict.word}
    return found | {name: getattr(verdict, name) for name in ("test", "p_value", "p_adjusted", "launches_needed")}


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
