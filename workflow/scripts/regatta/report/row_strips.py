"""A horizontal strip: a row with the launches of each cell, where a panel would have nothing along its axis."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from regatta.core.names import SEPARATOR
from regatta.report.charts import MARKERS, ZOOMED, Chart, LegendEntry, Marks, draw_break, set_ticks
from regatta.report.labels import shortened, split_common, wrapped
from regatta.report.lines import (
    FAINT,
    GUIDE_DASHES,
    TICK_LETTER_PT,
    WIDTH_IN,
    Panel,
    PlotAxis,
    Point,
    is_banded,
    styles_of,
)
from regatta.report.svg import GREY, LINE, MARKS
from regatta.report.ticks import Ticks, limits_along, ticks_between

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW_IN, TWO_LINES_IN, LEAST_IN = 0.24, 0.4, 0.9  # height of a row, by the lines of its label; of all rows
ABOVE_IN, GUIDE_IN, BELOW_IN = 0.24, 0.14, 0.24  # for the label of the axis, names of guides, ticks
MOST_ROWS = 24  # beyond, those of the context share one
ONE_LINE, MOST_NAME = 22, 28  # characters of a label in one line; of each of two lines
MOST_HEADING = 66  # of what stands above
NAME_LETTER_PT = 6.8  # of a character of a name, larger in print
GAP_PT, LINE_PT = 6, 11.5  # between plot and label or number; from one line to the next
LEAST_ABOVE_0 = 0.5  # of the highest value: an axis begins above 0 if all values are higher
LOG_RATIO = 10  # highest to lowest value of a logarithmic axis, at least
LEAST_ZOOMED = 0.04  # of the highest value: what such an axis spans at least


@dataclass(frozen=True)
class StripRow:
    """One row. points: one, or those of the context that share it."""

    label: str
    points: tuple[Point, ...]
    style: LegendEntry
    is_context: bool


@dataclass(frozen=True)
class RowStrip(Chart):
    """The points of a panel that has one place, or places without an order: one below the other along its y axis.

    Of each, the launches are faint, value and interval marked, and the value written. row_in: least height of a row.
    is_verdict: the label of a series is a verdict on the value, and beside it.
    """

    panel: Panel
    row_in: float = ROW_IN
    is_verdict: bool = False

    has_rows = True
    is_labelled = True

    @staticmethod
    def fits(panel: Panel) -> bool:
        """Return whether the x axis of a panel says nothing that names of rows would not say."""
        places = {point.x for one in panel.series for point in one.points}
        return bool(places) and (panel.x.is_categorical or len(places) == 1)

    @cached_property
    def _named(self) -> tuple[str, list[StripRow]]:
        """Return what the names of all rows have in common, and the rows."""
        panel, found = self.panel, []
        texts = {place: text.replace("\n", ", ") for place, text in panel.x.ticks} if panel.x.is_categorical else {}
        for series, style in zip(panel.series, styles_of(panel.series), strict=True):
            is_several = len({point.x for point in series.points}) < len(series.points)
            for point in series.points:
                of_series = "" if self.is_verdict else series.label
                names = (texts.get(round(point.x)), of_series, point.shape if is_several else "")
                name = SEPARATOR.join(filter(None, names))
                style = replace(style, opacity=1, marker=list(MARKERS)[series.hue % len(MARKERS)])
                found.append((point.x, StripRow(name, (point,), style, series.is_context)))
        rows = [row for _, row in sorted(found, key=lambda item: item[0])]  # stable: then by series
        if len(rows) > MOST_ROWS and (context := [row for row in rows if row.is_context]):
            others = replace(context[0], label=panel.context, points=tuple(row.points[0] for row in context))
            rows = [row for row in rows if not row.is_context]
            common, labels = split_common([row.label for row in rows])
            labels, rows = [*labels, panel.context], [*rows, others]
        else:
            common, labels = split_common([row.label for row in rows])
        short = (shortened(wrapped(label, ONE_LINE), MOST_NAME) for label in labels)
        return common, [replace(row, label=label) for row, label in zip(rows, short, strict=True)]

    @property
    def rows(self) -> list[StripRow]:
        return self._named[1]

    @property
    def heading(self) -> str:
        """Return what stands above: the label of the axis, the only place, and what all rows have in common."""
        x, place = self.panel.x, self.rows[0].points[0].x
        [tick, *_] = [*(text for at, text in x.ticks if at == place and x.label), f"{place:g}" if x.label else ""]
        first, _, rest = tick.partition("\n")
        tick = f"{first} ({rest})" if rest else first
        where = "" if x.is_categorical or not tick else f"{x.label.partition(' (')[0]}: {tick}"
        parts = (self.panel.y.drawn or self.panel.y.label, where, self._named[0])
        return shortened(SEPARATOR.join(filter(None, parts)), MOST_HEADING)

    @property
    def axes_text(self) -> str:
        return self.panel.axes_text if self.panel.x.is_categorical else self.heading

    @property
    def size_in(self) -> tuple[float, float]:
        return WIDTH_IN, self.above_in + len(self.rows) * self.height_in + BELOW_IN

    @property
    def height_in(self) -> float:
        is_high = self.is_verdict or any("\n" in row.label for row in self.rows)
        return max(self.row_in, LEAST_IN / len(self.rows), TWO_LINES_IN if is_high else 0)

    @property
    def lines(self) -> list[tuple[str, float]]:
        """Return (name, place) of the vertical lines."""
        place = self.rows[0].points[0].x
        guides = [(name, dict(line).get(place, line[0][1])) for name, line in self.panel.guides]
        return [*guides, *self.panel.limits]

    @property
    def above_in(self) -> float:
        return ABOVE_IN + GUIDE_IN * any(name for name, _ in self.lines)

    @property
    def axis(self) -> PlotAxis:
        """Return the axis, which begins near the values if all are far from 0; logarithmic only for a wide range."""
        axis, low, high = self.panel.y, min(self._values), max(self._values)
        if axis.low or axis.high is not None or low <= 0 or (axis.is_log and high > LOG_RATIO * low):
            return axis
        axis = replace(axis, is_log=False)
        if low <= LEAST_ABOVE_0 * high:
            return replace(axis, low=0)
        half = max(high - low, LEAST_ZOOMED * high) / 2
        return replace(axis, low=(low + high) / 2 - 1.16 * half, high=(low + high) / 2 + 1.16 * half)

    @property
    def _values(self) -> list[float]:
        points = [point for row in self.rows for point in row.points]
        values = [value for one in points for value in (*one.values, one.reported, *(one.ends or ()))]
        return values + [place for _, place in self.lines]

    def number_of(self, row: StripRow) -> str:
        """Return the text of a row's value, with a verdict; empty if it has several values."""
        number = "" if len(row.points) > 1 else self.panel.y.written(row.points[0].reported)
        return f"{number}\n{row.style.label}" if self.is_verdict else number

    def marks(self) -> Marks:
        """Return the marks of the panel, and the ends of intervals."""
        return self.panel.marks(has_all_ends=True)

    def draw_on(self, canvas) -> None:
        width_pt, height_in, rows, axis = 72 * WIDTH_IN, self.size_in[1], self.rows, self.axis
        left = (GAP_PT + NAME_LETTER_PT * _longest(row.label for row in rows)) / width_pt
        right = (GAP_PT + TICK_LETTER_PT * _longest(map(self.number_of, rows))) / width_pt
        place = left, BELOW_IN / height_in, 0.99 - left - right, len(rows) * self.height_in / height_in
        low, high = limits_along(axis, self._values, 0.08)
        is_zoomed, most = not axis.is_log and low > 0, MOST_HEADING - len(SEPARATOR + ZOOMED)
        heading = f"{shortened(self.heading, most)}{SEPARATOR}{ZOOMED}" if is_zoomed else self.heading
        axes = self.add_plot(canvas, *place, heading)
        axes.set(xscale="log" if axis.is_log else "linear", xlim=(low, high), ylim=(len(rows) - 0.5, -0.5))
        for name, at in self.lines:
            axes.axvline(at, color=GREY, dashes=GUIDE_DASHES, linewidth=1.2, zorder=1.5)
            above = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points", "ha": "center"}
            axes.annotate(name, (at, 1), (0, 2), va="bottom", fontsize=8, color=GREY, **above)
        for number, row in enumerate(rows):
            _draw_row(axes, number, row, self.panel.has_points)
            beside = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "va": "center_baseline"}
            for x, side, text in ((0, "right", row.label), (1, "left", self.number_of(row))):
                lines = text.split("\n")  # each a text, so that a larger one ends at the same place
                for index, line in enumerate(lines):
                    offset = GAP_PT * (2 * x - 1), LINE_PT * ((len(lines) - 1) / 2 - index)
                    axes.annotate(line, (x, number), offset, ha=side, fontsize=9, parse_math=False, **beside)
        set_ticks(axes.xaxis, _with_room(ticks_between(low, high, axis), axes, place[2] * width_pt))
        set_ticks(axes.yaxis, [(0, "")])
        axes.grid(visible=True, clip_on=False, axis="x")
        axes.spines["left"].set_visible(low == 0)
        if is_zoomed:
            draw_break(axes, along=0)


def _longest(texts: Iterable[str]) -> int:
    """Return the number of characters of the longest line of some texts."""
    return max(len(line) for text in texts for line in text.split("\n"))


def _draw_row(axes: "Axes", number: int, row: StripRow, has_points: bool) -> None:
    """Draw interval or range as a band, launches as faint points, and the value as a stroke."""
    common = {"color": row.style.color}
    for point in row.points:
        ends = point.ends or (None if has_points or not point.values else (min(point.values), max(point.values)))
        if ends:
            gid = f"{LINE}{point.cell}" if point.cell else None
            axes.plot(ends, (number, number), gid=gid, linewidth=6, alpha=0.3, solid_capstyle="butt", **common)
    shown = [(p, value) for p in row.points for value in p.values] if has_points and not row.is_context else []
    for marks, style in (
        (shown, {"marker": row.style.marker, "markersize": 4.5, "markeredgewidth": 0, "alpha": FAINT}),
        ([(p, p.reported) for p in row.points], {"marker": "|", "markersize": 12, "markeredgewidth": 2}),
    ):
        if marks:
            places = [value for _, value in marks], [number] * len(marks)
            axes.plot(*places, linestyle="none", gid=MARKS + " ".join(p.cell for p, _ in marks), **style, **common)


def _with_room(ticks: Ticks, axes: "Axes", width_pt: float) -> Ticks:
    """Return the ticks whose texts do not overlap one before."""
    found, end_pt = [], -math.inf
    for place, text in ticks:
        x, _ = axes.transAxes.inverted().transform(axes.transData.transform((place, 0)))
        half_pt = TICK_LETTER_PT * (len(text) + 1) / 2
        if x * width_pt - half_pt >= end_pt:
            found.append((place, text))
            end_pt = x * width_pt + half_pt
    return tuple(found)


def has_bands(charts: Sequence[Chart]) -> bool:
    """Return whether any of the charts marks intervals as bands."""
    strips, panels = ([chart for chart in charts if isinstance(chart, kind)] for kind in (RowStrip, Panel))
    lines = (series for panel in panels for series in panel.series)
    return any(point.ends for of in strips for row in of.rows for point in row.points) or any(map(is_banded, lines))


def chart_of(panel: Panel) -> Chart:
    """Return how a panel is drawn: as rows if it has nothing along its x axis."""
    return RowStrip(panel) if RowStrip.fits(panel) else panel
