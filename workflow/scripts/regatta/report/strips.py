"""A strip: one mark for each rank, node or cell with its interval."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from regatta.core.names import SEPARATOR
from regatta.report.charts import ZOOMED, Chart, LegendEntry, Marks, draw_break, set_ticks
from regatta.report.lines import ABOVE_IN, BELOW_IN, LABEL_PAD_PT, LEFT, PLOT_WIDTH, TICK_PAD_PT, WIDTH_IN, PlotAxis
from regatta.report.svg import GREY, GRID, INK, MARKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LARGE = 64  # marks; more are drawn small
MOST_APART = 200  # of more marks neighbors overlap
LAYERS = (5.0, 1.5)  # then their sizes, from the lowest style to the highest
MOST_GROUPS, MOST_LEVEL = 8, 4  # whose names fit above their marks, and side by side
STRIP_IN, NAMES_IN = 1.7, (0.16, 0.5)  # height of the plot; of names of groups, and of slanted ones
LEAST_BETWEEN = 0.1  # of the height: from a line with a name to the next
FOOT = 0.04  # of the height: place of a mark without a value


@dataclass(frozen=True)
class Strip(Chart):
    """One mark with its interval for each rank, node or cell, from left to right.

    values: (value, low, high) of each; None without an interval, all of them without a value: then its mark is at the
    foot of the plot. styles: color and marker of each. cells: of each, so that the mark opens it; empty if marks are no
    cells. first: number of the first. limits: dashed lines (label, place). names: of some, by index. groups: successive
    marks as (name, number), every second one shaded. log_above: the axis is linear up to this value and logarithmic
    above it. listed: styles of the legend in order, if they are used.
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
    log_above: float = 0
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
        is_known, ends = ~np.isnan(value), self._ends()
        heading = f"{self.y.label}{SEPARATOR}{ZOOMED}" if self._is_zoomed else self.y.label
        places = np.arange(len(value)) + self.first
        width = 0.8 if len(value) > MOST_LARGE else 1.8
        height_in = self.size_in[1]
        axes = self.add_plot(canvas, LEFT, BELOW_IN / height_in, PLOT_WIDTH, STRIP_IN / height_in, heading)
        if self.log_above:
            axes.set_yscale("symlog", linthresh=self.log_above, linscale=1)
        for number, (text, limit) in enumerate(self.limits):
            axes.axhline(limit, color=GREY, dashes=(6, 2), linewidth=1, zorder=1.5)
            side = 0.5 if number else 0 if value[is_known][0] < limit else 1
            if any(0 < other - limit < LEAST_BETWEEN * (ends[1] - ends[0]) for _, other in self.limits):
                continue  # no room for its name
            where = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "fontsize": 8}
            where |= {"ha": {0: "left", 1: "right"}.get(side, "center"), "va": "bottom", "color": GREY}
            axes.annotate(text, (side, limit), (3 - 6 * side, 2), **where)
        for style, size in self.mark_sizes.items():
            of_style = np.array([one == style for one in self.styles])
            chosen = of_style & is_known
            axes.vlines(places[chosen], low[chosen], high[chosen], color=style.color, linewidth=width, alpha=0.7)
            shape = {"marker": style.marker, "markersize": size, "color": style.color, "linestyle": "none"}
            at_foot = axes.get_xaxis_transform()
            for which, heights, where in (
                (chosen, value, {}),
                (of_style & ~is_known, np.full(len(value), FOOT), {"transform": at_foot, "clip_on": False}),
            ):
                if which.any():
                    gid = MARKS + " ".join(np.array(self.cells)[which]) if self.cells else None
                    axes.plot(places[which], heights[which], gid=gid, **shape, **where)
        name = {"ha": "right", "va": "center", "fontsize": 8, "color": INK, "parse_math": False}
        for index, text in self.names.items():
            if is_known[index]:
                axes.annotate(text, (places[index], value[index]), (-6, 0), textcoords="offset points", **name)
            else:
                upright = {"rotation": 90, "ha": "center", "va": "bottom", "xycoords": axes.get_xaxis_transform()}
                where = {"xytext": (0, 7), "textcoords": "offset points"}
                axes.annotate(text, (places[index], FOOT), **where, **(name | upright))
        axes.set(xlim=(places[0] - 0.6, places[-1] + 0.6), ylim=ends)
        axes.set_xlabel(self.x, labelpad=LABEL_PAD_PT)
        axes.tick_params(axis="x", pad=TICK_PAD_PT)
        _draw_groups(axes, self)
        axes.locator_params(axis="x", nbins=8, integer=True)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        set_ticks(axes.yaxis, self.y.ticks)
        axes.grid(visible=True, clip_on=False, axis="y")
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
        return not self.log_above and self._ends()[0] > 0

    def _ends(self) -> tuple[float, float]:
        """Return the ends of the axis: those that it has, else with room around values, intervals and limits."""
        known = [end for of in self.values for end in of if end is not None]
        known += [place for _, place in self.limits]
        gap = 0.06 * (max(known) - min(known) or abs(max(known)) or 1)
        low = min(known) - gap
        low = 0 if low <= 0 <= min(known) else low
        return low if self.y.low is None else self.y.low, max(known) + gap if self.y.high is None else self.y.high

    def marks(self) -> Marks:
        cells = self.cells or [""] * len(self.values)
        groups = [name for name, num in self.groups for _ in range(num)] or [style.label for style in self.styles]
        ends = ("low", "high") if any(low is not None for _, low, _ in self.values) else ()
        rows = zip(cells, groups, self.values, strict=True)
        return Marks(
            ("cell", "group", "place", self.y.label.partition(", ")[0], *ends),
            tuple((*of, place, *value[: 1 + len(ends)]) for place, (*of, value) in enumerate(rows, start=self.first)),
        )


def _draw_groups(axes: "Axes", strip: Strip) -> None:
    """Shade every second group of marks, and name as many above as fit."""
    first, every = strip.first, math.ceil(len(strip.groups) / MOST_GROUPS)
    for index, (name, number) in enumerate(strip.groups):
        if index % 2:
            axes.axvspan(first - 0.5, first + number - 0.5, color=GRID, alpha=0.4, zorder=0, linewidth=0)
        if index % every == 0:
            text = name if len(name) <= 10 else f"\N{HORIZONTAL ELLIPSIS}{name[-9:]}"
            style = {"ha": "center", "va": "bottom", "fontsize": 8}
            style["rotation"] = 30 if len(strip.groups) > MOST_LEVEL else 0
            above = axes.get_xaxis_transform()
            axes.text(first + (number - 1) / 2, 1.02, text, transform=above, parse_math=False, **style)
        first += number
