"""A strip: one mark for each rank, node or cell with its interval."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from regatta.core.names import SEPARATOR
from regatta.core.text import with_minus_signs
from regatta.report.charts import ZOOMED, Chart, LegendEntry, Marks, draw_break, set_ticks
from regatta.report.lines import ABOVE_IN, BELOW_IN, LABEL_PAD_PT, LEFT, PLOT_WIDTH, TICK_PAD_PT, WIDTH_IN, PlotAxis
from regatta.report.svg import GREY, GRID, INK, MARKS
from regatta.report.ticks import Ticks, ticks_between

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LARGE = 64  # marks; more are drawn small
MOST_APART = 200  # of more marks neighbors overlap
LAYERS = (5.0, 1.5)  # then their sizes, from the lowest style to the highest
MOST_GROUPS, MOST_LEVEL = 8, 4  # whose names fit above their marks, and side by side
STRIP_IN, NAMES_IN = 1.7, (0.16, 0.5)  # height of the plot; of names of groups, and of slanted ones
LEAST_BETWEEN = 0.1  # of the height: from a line with a name to the next
CLOSE = 0.03  # of the height: a grid line this close to a limit would double it
LANE_IN, LANE_LINES, LANE_COLUMNS = 1.0, 9, 8  # beside the plot: marks without a value, with names or side by side


@dataclass(frozen=True)
class Strip(Chart):
    """One mark with its interval for each rank, node or cell, from left to right.

    values: (value, low, high) of each; None without an interval, all of them without a value: the last ones, whose
    marks are in a lane beside the plot, below the label of their style. styles: color and marker of each. cells: of
    each, so that the mark opens it; empty if marks are no cells. first: number of the first. limits: dashed lines
    (label, place). names: of some, by index. groups: successive marks as (name, number), every second one shaded.
    listed: styles of the legend in order, if they are used.
    """

    x: str
    y: PlotAxis
    values: Sequence[tuple[float, float | None, float | None]]
    styles: Sequence[LegendEntry]
    cells: Sequence[str] = ()
    first: int = 0
    limits: tuple[tuple[str, float], ...] = ()
    names: Mapping[int, str] = field(default_factory=dict)
    groups: Sequence[tuple[str, int]] = ()
    listed: Sequence[LegendEntry] = ()
    record: str = ""

    @property
    def above_in(self) -> float:
        return ABOVE_IN + (NAMES_IN[len(self.groups) > MOST_LEVEL] if self.groups else 0)

    @property
    def size_in(self) -> tuple[float, float]:
        return WIDTH_IN, self.above_in + STRIP_IN + BELOW_IN

    @property
    def legend(self) -> tuple[LegendEntry, ...]:
        return tuple(replace(style, cells=self._cells_of(style)) for style in self.listed if style in self.styles)

    @property
    def axes_text(self) -> str:
        return f"{self.y.label} by {self.x.partition(',')[0]}"

    def _cells_of(self, style: LegendEntry) -> tuple[str, ...]:
        return tuple(cell for cell, one in zip(self.cells, self.styles, strict=False) if one == style)

    def draw_on(self, canvas) -> None:
        value, low, high = np.array(self.values, float).T
        is_known, (ends, ticks) = ~np.isnan(value), self._scale
        heading = f"{self.y.label}{SEPARATOR}{ZOOMED}" if self._is_zoomed else self.y.label
        places = np.arange(len(value)) + self.first
        width = 0.8 if len(value) > MOST_LARGE else 1.8
        height_in = self.size_in[1]
        plot_width = PLOT_WIDTH - (0 if is_known.all() else LANE_IN / WIDTH_IN)
        axes = self.add_plot(canvas, LEFT, BELOW_IN / height_in, plot_width, STRIP_IN / height_in, heading)
        for number, (text, limit) in enumerate(self.limits):
            axes.axhline(limit, color=GREY, dashes=(6, 2), linewidth=1, zorder=1.5)
            side = 0.5 if number else 0 if value[is_known][0] < limit else 1
            if any(0 < other - limit < LEAST_BETWEEN * (ends[1] - ends[0]) for _, other in self.limits):
                continue  # no room for its name
            where = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "fontsize": 8}
            where |= {"ha": {0: "left", 1: "right"}.get(side, "center"), "va": "bottom", "color": GREY}
            axes.annotate(text, (side, limit), (3 - 6 * side, 2), **where)
        for style, size in self.mark_sizes.items():
            chosen = is_known & [one == style for one in self.styles]
            axes.vlines(places[chosen], low[chosen], high[chosen], color=style.color, linewidth=width, alpha=0.7)
            if chosen.any():
                gid = MARKS + " ".join(np.array(self.cells)[chosen]) if self.cells else None
                shape = {"marker": style.marker, "markersize": size, "color": style.color, "linestyle": "none"}
                axes.plot(places[chosen], value[chosen], gid=gid, **shape)
        name = {"ha": "right", "va": "center", "fontsize": 8, "color": INK, "parse_math": False}
        for index, text in self.names.items():
            if is_known[index]:
                axes.annotate(text, (places[index], value[index]), (-6, 0), textcoords="offset points", **name)
        axes.set(xlim=(places[is_known][0] - 0.6, places[is_known][-1] + 0.6), ylim=ends)
        if not is_known.all():
            _draw_lane(axes, self, np.flatnonzero(~is_known).tolist(), LANE_IN / WIDTH_IN / plot_width)
        axes.set_xlabel(self.x, labelpad=LABEL_PAD_PT)
        axes.tick_params(axis="x", pad=TICK_PAD_PT)
        _draw_groups(axes, self)
        axes.locator_params(axis="x", nbins=8, integer=True)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        set_ticks(axes.yaxis, [tick for tick in ticks if self._beside_limit(tick[0]) <= 0])
        axes.grid(visible=True, clip_on=False, axis="y")
        for place, tick in zip(axes.yaxis.get_majorticklocs(), axes.yaxis.get_major_ticks(), strict=True):
            tick.gridline.set_visible(self._beside_limit(place) < 0)
        if self._is_zoomed:
            draw_break(axes, along=1)

    @property
    def mark_sizes(self) -> dict[LegendEntry, float]:
        """Return the size of marks by style, in the order of drawing: where marks overlap, lower ones are larger."""
        styles, num = list(dict.fromkeys(self.styles)), len(self.values)
        if num > MOST_APART and len(styles) > 1:
            return dict(zip(styles, np.linspace(*LAYERS, len(styles)).tolist(), strict=True))
        return dict.fromkeys(styles, 2.5 if num > MOST_LARGE else 5)

    @property
    def _is_zoomed(self) -> bool:
        """Return whether the axis begins above 0."""
        return self._scale[0][0] > 0

    def _beside_limit(self, place: float) -> float:
        """Return the distance of a grid line to a limit that is close to it, which may be 0; -1 if none is."""
        low, high = self._scale[0]
        distances = [abs(place - limit) for _, limit in self.limits]
        return next((distance for distance in distances if distance < CLOSE * (high - low)), -1)

    @cached_property
    def _scale(self) -> tuple[tuple[float, float], Ticks]:
        """Return the ends of the axis and its ticks. A zoomed axis starts at a tick."""
        low, high = self._ends()
        ticks = ticks_between(low, high, self.y, starts_below=low > 0 and self.y.low is None)
        return (min(low, ticks[0][0]), high), tuple((place, with_minus_signs(text)) for place, text in ticks)

    def _ends(self) -> tuple[float, float]:
        """Return the ends of the axis: its low end, else with room around values, intervals and limits."""
        known = [end for of in self.values for end in of if end is not None]
        known += [place for _, place in self.limits]
        gap = 0.06 * (max(known) - min(known) or abs(max(known)) or 1)
        low = min(known) - gap
        low = 0 if low <= 0 <= min(known) else low
        return low if self.y.low is None else self.y.low, max(known) + gap

    def marks(self) -> Marks:
        cells = self.cells or [""] * len(self.values)
        groups = [name for name, num in self.groups for _ in range(num)] or [style.label for style in self.styles]
        ends = ("low", "high") if any(low is not None for _, low, _ in self.values) else ()
        rows = zip(cells, groups, self.values, strict=True)
        return Marks(
            ("cell", "group", "place", self.y.label.partition(", ")[0], *ends),
            tuple((*of, place, *value[: 1 + len(ends)]) for place, (*of, value) in enumerate(rows, start=self.first)),
        )


def _draw_lane(axes: "Axes", strip: Strip, absent: list[int], width: float) -> None:
    """Draw the marks without a value in a lane beside the plot, with their names if these fit.

    absent: their indices. width: of the lane, relative to the plot.
    """
    styles = dict.fromkeys(strip.styles[index] for index in absent)
    parts = [(style, [index for index in absent if strip.styles[index] == style]) for style in styles]
    has_names = set(absent) <= set(strip.names) and len(parts) + len(absent) <= LANE_LINES
    lines = LANE_LINES // len(parts) - 1  # of marks side by side
    text = {"transform": axes.transAxes, "va": "center", "fontsize": 8, "parse_math": False}
    above, left = 0.5, 1 + 0.15 * width
    for style, of in parts:
        label = style.label if has_names else f"{style.label}: {len(of):,}"
        axes.text(left, 1 - above / LANE_LINES, label, color=GREY, **text)
        columns = 1 if has_names else max(LANE_COLUMNS, math.ceil(len(of) / lines))
        step, size = 0.8 * width / columns, 5 if columns <= LANE_COLUMNS else 2.5
        shape = {"marker": style.marker, "markersize": size, "color": style.color, "linestyle": "none"}
        x = [left + 0.05 * width + step * (place % columns) for place in range(len(of))]
        y = [1 - (above + 1 + place // columns) / LANE_LINES for place in range(len(of))]
        gid = MARKS + " ".join(strip.cells[index] for index in of) if strip.cells else None
        axes.plot(x, y, gid=gid, transform=axes.transAxes, clip_on=False, **shape)
        for index, height in zip(of, y, strict=True) if has_names else ():
            axes.text(left + 0.15 * width, height, _short(strip.names[index]), color=INK, **text)
        above += 1 + math.ceil(len(of) / columns)


def _short(name: str) -> str:
    return name if len(name) <= 10 else f"\N{HORIZONTAL ELLIPSIS}{name[-9:]}"


def _draw_groups(axes: "Axes", strip: Strip) -> None:
    """Shade every second group of marks, and name as many above as fit."""
    first, every = strip.first, math.ceil(len(strip.groups) / MOST_GROUPS)
    for index, (name, number) in enumerate(strip.groups):
        if index % 2:
            axes.axvspan(first - 0.5, first + number - 0.5, color=GRID, alpha=0.4, zorder=0, linewidth=0)
        if index % every == 0:
            text = _short(name)
            style = {"ha": "center", "va": "bottom", "fontsize": 8}
            style["rotation"] = 30 if len(strip.groups) > MOST_LEVEL else 0
            above = axes.get_xaxis_transform()
            axes.text(first + (number - 1) / 2, 1.02, text, transform=above, parse_math=False, **style)
        first += number
