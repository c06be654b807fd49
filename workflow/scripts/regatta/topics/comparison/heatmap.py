"""Ratios at a glance: a matrix with one square for each pair of cells, and how many ratios are where (a histogram)."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from regatta.core.names import SEPARATOR, cell_names
from regatta.core.text import UNKNOWN, is_unknown, plural, shape
from regatta.report.matrix import Group, Matrix, Row, Square
from regatta.report.panels import ORDER
from regatta.report.rows import table_rows
from regatta.topics.comparison import texts
from regatta.topics.comparison.texts import difference_text

MOST_ROWS_OPEN = 40  # of more rows, each subject is folded
SCALE_END = 1.2  # ratio with the strongest color, and 1 / 1.2


def ratio_matrices(comparisons: pd.DataFrame, names: Mapping[str, str]) -> list[Matrix]:
    """Return a matrix for each pair of compared values: workloads and settings down, shapes across.

    comparisons: rows in the order of their subjects. names: those of reference cells by id.
    """
    rows = comparisons[comparisons["margin_ratio"].notna()]  # identical stacks (A/A) have none
    pairs = [part for _, part in rows.groupby(["reference_value", "value"], sort=False)]
    return [_matrix(part, names, is_only=len(pairs) == 1) for part in pairs if part["time_ratio"].notna().any()]


def _matrix(rows: pd.DataFrame, names: Mapping[str, str], is_only: bool) -> Matrix:
    rows = rows.assign(cell_name=[name.without(rows["axis"].iloc[0]) for name in cell_names(rows.to_dict("records"))])
    places = sorted({_place(row) for row in table_rows(rows)}, key=lambda place: (place[0] * place[1], place))
    groups: dict[tuple, dict[str, dict[tuple, Square]]] = defaultdict(lambda: defaultdict(dict))
    for subject in rows[["benchmark", "cell_name"]].itertuples():
        groups[subject.benchmark, subject.cell_name.parts["subject"]]  # in the order of the campaign
    settings = [column for column in ORDER if column in rows and column not in ("nodes", "gpus_per_node")]
    for row in table_rows(rows.sort_values(settings, kind="stable", na_position="first")):
        name = row.cell_name.without("subject", "shape")
        text, group = name.say(*name.parts, always=()), groups[row.benchmark, row.cell_name.parts["subject"]]
        if _place(row) in group[text]:  # one cell and several references
            text = SEPARATOR.join(filter(None, (text, f"vs. {names.get(row.reference, row.reference)}")))
        group[text][_place(row)] = _square(row)
    found = tuple(
        Group(subject, tuple(Row(text, tuple(map(by_place.get, places))) for text, by_place in by_row.items()))
        for (_, subject), by_row in groups.items()
    )
    is_folded = sum(len(group.rows) for group in found) > MOST_ROWS_OPEN
    reference, value = texts.sides_text(rows)
    pair = texts.pair_text(rows) if rows["axis"].iloc[0] != "campaign" else f"{value} vs. {reference}"
    caption = f"{pair}: change in time (%); positive: {value} is slower"
    label = "Ratios" if is_only else f"Ratios of {pair}"
    groups_shown = tuple(Group(group.name, group.rows, _summary(group.rows)) for group in found)
    return Matrix(caption, tuple(shape(*place) for place in places), groups_shown, is_folded, label)


def _place(row) -> tuple[int, int]:
    return int(row.nodes), int(row.gpus_per_node)


def _square(row) -> Square:
    cells, others = (row.cell,), (row.reference,)  # the drawer of the first shows the comparison
    if is_unknown(row.time_ratio):
        return Square(UNKNOWN, None, "missing", cells, f"{row.cell_name.brief}: no valid launches", others=others)
    ratio, limit = float(row.time_ratio), 1 + float(row.margin_ratio)
    note = f"{row.cell_name.brief}: {texts.row_text(row)}"
    state = "unsettled" if texts.is_unsettled(row) else row.verdict
    state += " insignificant" if not is_unknown(row.p_adjusted) and texts.direction_of(row) is None else ""
    if 1 / limit <= ratio <= limit:
        return Square(difference_text(ratio), None, state, cells, note, others=others)
    level = abs(math.log(ratio)) / math.log(SCALE_END)
    return Square(difference_text(ratio), level, state, cells, note, "above" if ratio > 1 else "below", others)


def _summary(rows: tuple[Row, ...]) -> str:
    """Return what a folded group shows: how many of its pairs are slower or faster."""
    states = [square.state for row in rows for square in row.squares if square is not None]
    slower, faster = states.count("slower"), states.count("faster")
    return f"{slower} slower, {faster} faster of {plural(len(states), 'pair')}"


@dataclass(frozen=True)
class Bar:
    """Ratios from low up to high, without high except in the last bar; those of the outermost bars may lie beyond.

    side: as of a Square.
    """

    low: float
    high: float
    num: int
    side: str


@dataclass(frozen=True)
class Histogram:
    """Numbers of ratios. margins: those marked. is_open: whether the outermost bar holds ratios beyond (low, high)."""

    bars: tuple[Bar, ...]
    margins: tuple[float, ...]
    is_open: tuple[bool, bool]

    @property
    def num(self) -> int:
        return sum(bar.num for bar in self.bars)

    def x(self, ratio: float) -> float:
        """Return the place of a ratio on the logarithmic axis, 0 to 1."""
        low, high = math.log(self.bars[0].low), math.log(self.bars[-1].high)
        return (math.log(ratio) - low) / (high - low)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Return (place, label) of the ends, the margins and no difference; the widest margin stands for all."""
        limit = 1 + max(self.margins)
        shown = {ratio: difference_text(ratio) for ratio in ((1 / limit, limit) if limit > 1 else ())} | {1.0: "0"}
        ends = self.bars[0].low, self.bars[-1].high
        marks = ("\N{LESS-THAN OR EQUAL TO} ", "\N{GREATER-THAN OR EQUAL TO} ")
        for ratio, mark, is_open in zip(ends, marks, self.is_open, strict=True):
            if not any(math.isclose(ratio, other) for other in shown):
                shown[ratio] = f"{mark if is_open else ''}{difference_text(ratio)}"
        return [(self.x(ratio), text) for ratio, text in sorted(shown.items())]


MIN_RATIOS = 5  # of a histogram
BARS_PER_MARGIN = (10, 5, 2)  # whole numbers, so that each limit of the margin is an edge between bars
MOST_BARS = 12  # on either side of 1
NO_MARGIN_WIDTH = 0.05


def ratio_histogram(judged: pd.DataFrame) -> Histogram | None:
    """Return how many ratios are where, on a logarithmic axis; None for a few. judged: of `texts.judged_rows`.

    The bars are as narrow as MOST_BARS allows, and reach the margin at least.
    """
    if len(judged) < MIN_RATIOS:
        return None
    margins = tuple(sorted({float(margin) for margin in judged["margin_ratio"]}))
    logs = [math.log(ratio) for ratio in judged["time_ratio"].astype(float)]
    limit, farthest = math.log1p(max(margins) or NO_MARGIN_WIDTH), max(map(abs, logs))
    inner = next((num for num in BARS_PER_MARGIN if num * farthest <= MOST_BARS * limit), BARS_PER_MARGIN[-1])
    width = limit / inner
    places = [value / width for value in logs]
    num = min(max(inner, math.ceil(inner * farthest / limit - 1e-9)), MOST_BARS)
    counts = [0] * 2 * num
    for place in places:
        counts[min(max(math.floor(place), -num), num - 1) + num] += 1
    is_open = min(places) < -num - 1e-9, max(places) > num + 1e-9
    edges = [math.exp(width * index) for index in range(-num, num + 1)]
    inner, bars = inner if max(margins) > 0 else 0, []
    for index, count in zip(range(-num, num), counts, strict=True):
        side = "above" if index >= inner else "below" if index < -inner else ""
        bars.append(Bar(edges[index + num], edges[index + num + 1], count, side))
    return Histogram(tuple(bars), margins, is_open)
