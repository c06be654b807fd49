"""Draw a strip: one mark for each rank, node or cell with its interval, as inline SVG like those of plotting.py."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from regatta.report.panels import Figure, Table
from regatta.report.plotting import LEFT, PLOT_WIDTH, WIDTH_IN, LegendEntry, Marks, PlotAxis, new_canvas, set_ticks
from regatta.report.svg import GREY, GRID, INK, MARKS, PAGE, Medium

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STRIP_IN = 2.2
MOST_LARGE = 64  # marks; more are drawn small
MOST_GROUPS = 8  # whose names fit above their marks


@dataclass(frozen=True)
class Strip:
    """One mark with its interval for each rank, node or cell, from left to right.

    values: (value, low, high) of each; None without an interval. styles: color and marker of each. cells: of each, so
    that the mark opens it; empty if marks are no cells. first: number of the first. limits: dashed lines. names: of
    some, by index. groups: successive marks as (name, number), every second one shaded. log_above: the axis is linear
    up to this value and logarithmic above it.
    """

    x: str
    y: PlotAxis
    values: Sequence[tuple[float, float | None, float | None]]
    styles: Sequence[LegendEntry]
    cells: Sequence[str] = ()
    first: int = 0
    limits: tuple[float, ...] = ()
    names: Mapping[int, str] = field(default_factory=dict)
    groups: Sequence[tuple[str, int]] = ()
    log_above: float = 0


def make_strip_figure(
    figure_id: str,
    title: str,
    strip: Strip,
    table: Table,
    source: str,
    styles: Sequence[LegendEntry] = (),
    shows: str = "",
) -> Figure:
    """Return a figure of a strip. styles: of its legend."""

    def draw(drawn_id: str, medium: Medium) -> str:
        return draw_strip(strip, drawn_id, title, medium)

    of_style = {
        style: tuple(cell for cell, one in zip(strip.cells, strip.styles, strict=True) if one == style)
        for style in styles
        if strip.cells
    }
    legend = tuple(replace(style, cells=of_style.get(style, ())) for style in styles)
    return Figure(figure_id, title, draw, table, source, legend, marks=partial(marks_of_strip, strip), shows=shows)


def draw_strip(strip: Strip, figure_id: str, title: str, medium: Medium = PAGE) -> str:
    """Draw a strip. figure_id: unique on the page. title: what is shown; its name adds the axes."""
    value, low, high = np.array(strip.values, float).T
    places, cells = np.arange(len(value)) + strip.first, []
    width, size = (0.8, 2.5) if len(value) > MOST_LARGE else (1.8, 5)
    with new_canvas(medium, WIDTH_IN, STRIP_IN, **{"svg.hashsalt": figure_id}) as canvas:
        axes = canvas.add_axes((LEFT, 0.19, PLOT_WIDTH, 0.53 if strip.groups else 0.68))
        if strip.log_above:
            axes.set_yscale("symlog", linthresh=strip.log_above, linscale=1)
        for limit in strip.limits:
            axes.axhline(limit, color=GREY, dashes=(6, 2), linewidth=1, zorder=1.5)
        for style in dict.fromkeys(strip.styles):
            chosen = np.array([one == style for one in strip.styles])
            axes.vlines(places[chosen], low[chosen], high[chosen], color=style.color, linewidth=width, alpha=0.7)
            shape = {"marker": style.marker, "markersize": size, "color": style.color, "linestyle": "none"}
            [plot] = axes.plot(places[chosen], value[chosen], **shape)
            if strip.cells:
                plot.set_gid(f"{MARKS}{len(cells)}")
                cells.append([cell for cell, is_chosen in zip(strip.cells, chosen, strict=True) if is_chosen])
        name = {"ha": "right", "va": "center", "fontsize": 8, "color": INK, "parse_math": False}
        for index, text in strip.names.items():
            axes.annotate(text, (places[index], value[index]), (-6, 0), textcoords="offset points", **name)
        axes.set(xlim=(places[0] - 0.6, places[-1] + 0.6), xlabel=strip.x, ylim=(strip.y.low, strip.y.high))
        _draw_groups(axes, strip)
        axes.locator_params(axis="x", nbins=8, integer=True)
        set_ticks(axes.yaxis, strip.y.ticks)
        axes.grid(visible=True, axis="y", color=GRID, linewidth=0.8)
        canvas.text(0.01, 0.99, strip.y.label, va="top", fontsize=9)
        return medium.write(canvas, f"{title}: {strip.y.label} by {strip.x.partition(',')[0]}", cells)


def marks_of_strip(strip: Strip) -> Marks:
    """Return the marks of a strip, each with its interval."""
    cells, first = strip.cells or [""] * len(strip.values), strip.first
    groups = [name for name, num in strip.groups for _ in range(num)] or [style.label for style in strip.styles]
    ends = any(low is not None for _, low, _ in strip.values)
    rows = (
        (*of, place, *value[: 3 if ends else 1])
        for place, (*of, value) in enumerate(zip(cells, groups, strip.values, strict=True), start=first)
    )
    return Marks(
        ("cell", "group", "place", strip.y.label.partition(", ")[0], *(("low", "high") if ends else ())), tuple(rows)
    )


def _draw_groups(axes: "Axes", strip: Strip) -> None:
    """Shade every second group of marks, and name as many above as fit."""
    first, every = strip.first, math.ceil(len(strip.groups) / MOST_GROUPS)
    for index, (name, number) in enumerate(strip.groups):
        if index % 2:
            axes.axvspan(first - 0.5, first + number - 0.5, color=GRID, alpha=0.4, zorder=0, linewidth=0)
        if index % every == 0:
            text = name if len(name) <= 10 else f"\N{HORIZONTAL ELLIPSIS}{name[-9:]}"
            style = {"ha": "center", "va": "bottom", "fontsize": 8, "rotation": 30 if len(strip.groups) > 4 else 0}
            above = axes.get_xaxis_transform()
            axes.text(first + (number - 1) / 2, 1.02, text, transform=above, parse_math=False, **style)
        first += number
