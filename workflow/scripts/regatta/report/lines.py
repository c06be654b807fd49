"""A panel: series of launches over an axis. Every launch is a point; the line joins the values of the table.

Markers and dashes distinguish series without color.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from regatta.core.names import SEPARATOR
from regatta.report.charts import MARKERS, ZOOMED, Chart, LegendEntry, Marks, draw_break, set_ticks
from regatta.report.labels import apart, shortened, split_common, wrapped
from regatta.report.series import Point, Series
from regatta.report.svg import COLORS, GREY, GROUND, LINE, MARKS
from regatta.report.ticks import PlotAxis, Ticks, limits_along, ticks_between

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MAX_SERIES = 12
MAX_POINTS = 1000  # of more launches only the ranges are drawn
SIGNS = dict(zip(MARKERS, "\u25cf\u25a0\u25b2\u25c6\u25bc\u271a", strict=True))  # circle, square, triangle, ...
DASHES = ((), (5, 2), (1.5, 1.5), (6, 2, 1.5, 2), (9, 3), (3, 1.5))
EMPHASES = (1.6, 0.9, 0.6)  # size of lines and marks of each hue: those drawn later don't hide equal ones below
WIDER = 1.7  # than the last series of a hue: the others, so that they are seen below it where lines coincide
GUIDE_DASHES = (4, 3)
FAINT, BAND = 0.45, 0.2  # opacity of launches, and of bands
FAINTEST = 0.4  # opacity of the first series of a hue
DOT = 4.5
MOST_LABELS = 6
BESIDE_SLOPE = 0.35  # of its width, for its values on either side
LABEL_PT, MOST_LABEL = (14, 27), 26  # height of a label of one line, and of two; characters of one line
ONE_LINE = 14  # characters of a label; longer ones have two lines where there is room
LEFT, PLOT_WIDTH = 0.08, 0.89  # of the plot, relative to the figure
BESIDE_PT, LETTER_PT = 19, 5.7  # width of a label: of its sign and gap, and of one character
TICK_GAP_PT, TICK_LETTER_PT = 5, 5.8  # around a tick of the vertical axis; its characters, larger on a phone
WIDTH_IN, PLOT_IN = 5.6, 2.4  # two per row; height without labels
ABOVE_IN, BELOW_IN, LINE_IN = 0.22, 0.46, 0.18  # for the label above, ticks and label below, each more line of ticks
LINE_SPACING, TICK_PAD_PT, LABEL_PAD_PT = 1.45, 5, 4  # room for the larger letters of phone and print


@dataclass(frozen=True)
class Panel(Chart):
    """Series of launches over an axis. guides: gray dashed lines (label, points). dot: size of a launch, in points.

    context: label of the series that are context. limits: at most two horizontal lines (label, place), the higher
    first, with the label on the line. plot_in: height without labels.
    """

    x: PlotAxis
    y: PlotAxis
    series: tuple[Series, ...]
    guides: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = ()
    dot: float = DOT
    context: str = ""
    limits: tuple[tuple[str, float], ...] = ()
    plot_in: float = PLOT_IN

    @property
    def has_points(self) -> bool:
        """Return whether each launch is drawn; of too many, the range of each cell is."""
        return sum(len(point.values) for one in self.series for point in one.points) <= MAX_POINTS

    @property
    def is_labelled(self) -> bool:
        """Return whether to label lines at their ends instead of in a legend: few lines over several places."""
        lines = [one for one in self.series if not one.is_context]
        is_line = not self.x.is_categorical and all(len(one.points) > 1 for one in lines)
        return bool(lines) and len(lines) <= MOST_LABELS and is_line

    @property
    def is_slope(self) -> bool:
        """Return whether to write the values of lines at both ends: few lines, each between the same two places."""
        lines = [one.points for one in self.series if not one.is_context]
        pairs = {tuple(point.x for point in points) for points in lines}
        is_pair = len(pairs) == 1 and len({*min(pairs)}) == len(min(pairs)) == 2
        return is_pair and len(lines) <= MOST_LABELS and not self.x.is_categorical

    @cached_property
    def end_labels(self) -> tuple[str, list[str]]:
        """Return what the labels of lines have in common, the rest of each, then those of guides and context."""
        labels = [one.label for one in self.series if not one.is_context]
        if not self.is_labelled:
            return "", labels
        common, rest = split_common(labels)
        rest = [*rest, *(label for label, _ in self.guides), *([self.context] if self.context_end else [])]
        if len(rest) * LABEL_PT[1] <= 72 * self.plot_in:
            rest = [wrapped(label, ONE_LINE) for label in rest]
        return common, [shortened(label, MOST_LABEL) for label in rest]

    @property
    def axes_text(self) -> str:
        return f"{self.y.label} by {self.x.label}" if self.x.label else self.y.label

    @property
    def context_end(self) -> Series | None:
        """Return the series of the context that its label is beside: the lowest of those that are longest."""
        context = [one for one in self.series if one.is_context and self.context]
        return max(context, key=lambda one: (one.points[-1].x, -one.points[-1].reported), default=None)

    @property
    def below_in(self) -> float:
        return BELOW_IN + LINE_IN * max((text.count("\n") for _, text in self.x.ticks), default=0)

    @property
    def size_in(self) -> tuple[float, float]:
        return WIDTH_IN, ABOVE_IN + self.plot_in + self.below_in

    @property
    def legend(self) -> tuple[LegendEntry, ...]:
        """Return guides, then series, each in the order of the panel, so that it is the same in all figures."""
        styles = list(zip(self.series, styles_of(self.series), strict=True))
        guides = (LegendEntry(label, GREY, GUIDE_DASHES) for label, _ in self.guides)
        of_series = (replace(style, cells=of.cells) for of, style in styles if not of.is_context)
        context = [(of.cells, style) for of, style in styles if of.is_context]
        others = tuple(cell for cells, _ in context for cell in cells)
        return (*guides, *of_series, *(replace(style, label=self.context, cells=others) for _, style in context[:1]))

    def marks(self, *, has_all_ends: bool = False) -> Marks:
        """Return of each point the value that its line goes through, those of its launches, and the ends of bands.

        has_all_ends: also those of intervals that are no part of a band.
        """
        texts = {} if self.x.is_log else {place: text.replace("\n", " ") for place, text in self.x.ticks}
        rows = [("", label, "", "guide", x, y) for label, line in self.guides for x, y in line]
        rows += [("", label, "", "limit", None, place) for label, place in self.limits]
        for series in self.series:
            place = series.label.replace("\n", " "), "context" if series.is_context else ""
            for point in series.points:
                values = [("value", point.reported)]
                if self.has_points and not series.is_context:
                    values += [(f"launch {number}", value) for number, value in enumerate(point.values, start=1)]
                elif not series.is_context:
                    values += [("minimum", min(point.values)), ("maximum", max(point.values))]
                if point.ends and (has_all_ends or is_banded(series)):
                    values += zip(("low", "high"), point.ends, strict=True)
                rows += [
                    (point.cell, *place, what, texts.get(round(point.x), point.x), value) for what, value in values
                ]
        columns = ("cell", "series", "kind", "mark", self.x.label or "x", self.y.label.partition(", ")[0])
        return Marks(columns, tuple(rows))

    def draw_on(self, canvas) -> None:
        height_in = self.size_in[1]
        common, names = self.end_labels
        longest = max((len(line) for name in names for line in name.split("\n")), default=0) + 7 * self.is_slope
        beside = (BESIDE_PT + LETTER_PT * longest) / (72 * WIDTH_IN) if self.is_labelled else 0
        limits = _limits_of(self)
        ticks = [axis.ticks or ticks_between(*ends, axis) for axis, ends in zip((self.x, self.y), limits, strict=True)]
        left = max(LEFT, (TICK_GAP_PT + TICK_LETTER_PT * max(len(text) for _, text in ticks[1])) / (72 * WIDTH_IN))
        inside = BESIDE_SLOPE / (1 + 2 * BESIDE_SLOPE) if self.is_slope else 0  # of labels, in the plot
        width = min(LEFT + PLOT_WIDTH - left, (1 - left - beside) / (1 - inside))
        place = left, self.below_in / height_in, width, self.plot_in / height_in
        zoomed = ZOOMED if not self.y.is_log and limits[1][0] > 0 else ""
        heading = SEPARATOR.join(filter(None, (self.y.drawn or self.y.label, common, zoomed)))
        axes = self.add_plot(canvas, *place, heading)
        _scale(axes, self, limits, ticks)
        for _, line in self.guides:
            axes.plot(*zip(*line, strict=True), color=GREY, dashes=GUIDE_DASHES, linewidth=1.2, zorder=1.5)
        for (text, place), (side, gap) in zip(self.limits, (("bottom", 2), ("top", -2)), strict=False):
            axes.axhline(place, color=GREY, dashes=(6, 2), linewidth=1.2, zorder=1.5)
            where = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "verticalalignment": side}
            axes.annotate(text, (0, place), xytext=(3, gap), fontsize=8, **where)
        styles = styles_of(self.series)
        for series, style in zip(self.series, styles, strict=True):
            _draw_series(axes, self, series, style)
        if self.is_labelled or self.is_slope:
            _label_ends(axes, self, -1)
        if self.is_slope:
            _label_ends(axes, self, 0)


def _label_ends(axes: "Axes", panel: Panel, end: int) -> None:
    """Write labels at the first (0) or last (-1) point of lines; those that would overlap move apart.

    The last point has the name of its line or guide, of lines with labels. Both have their values, of slopes.
    """
    is_named = panel.is_labelled and end == -1
    names, ends = iter(panel.end_labels[1]), []
    for series, style in zip(panel.series, styles_of(panel.series), strict=True):
        if not series.is_context:
            point, name = series.points[end], next(names)
            value = panel.y.written(point.reported) if panel.is_slope else ""
            marker = style.marker if is_named or end == -1 else ""
            text = " ".join(filter(None, (name if is_named else "", value)))
            ends.append(((point.x, point.reported), text, style.color, marker, series.cells))
    if is_named:
        ends += [(line[end], next(names), GREY, "", ()) for _, line in panel.guides]
    if is_named and (series := panel.context_end):
        cells = tuple(cell for one in panel.series if one.is_context for cell in one.cells)
        ends.append(((series.points[-1].x, series.points[-1].reported), next(names), GREY, "", cells))
    ends.sort(key=lambda one: one[0][1])
    dots_per_point = axes.figure.dpi / 72
    wanted = [axes.transData.transform(place)[1] / dots_per_point for place, *_ in ends]
    heights = [LABEL_PT[text.count("\n")] for _, text, *_ in ends]
    places = apart(wanted, heights, axes.bbox.ymax / dots_per_point)
    x, (offset, side) = (max if end else min)(x for (x, _), *_ in ends), (8, "left") if end else (-8, "right")
    if is_named and not panel.is_slope:  # beside the plot, with its grid
        x, offset = axes.get_xlim()[1], 5
    for ((_, y), label, color, marker, cells), wish, place in zip(ends, wanted, places, strict=True):
        where = {"xytext": (offset, place - wish), "textcoords": "offset points", "ha": side, "va": "center"}
        where["linespacing"] = LINE_SPACING
        text = f"{SIGNS[marker]} {label}" if marker else label
        drawn = axes.annotate(text, (x, y), fontsize=9, color=color, parse_math=False, **where)
        drawn.set_gid(f"{LINE}{' '.join(cells)}")


def styles_of(series: Sequence[Series]) -> list[LegendEntry]:
    """Return how each series is drawn: color by hue, dashes and opacity by its place among those of that hue.

    The last one, such as the largest shape, is solid and darkest. The first one of a hue has the hue's marker, which is
    the same in all figures; each other one has a marker that no other line of the panel has, while there are any.
    """
    numbers, places, found = Counter(one.hue for one in series if not one.is_context), Counter(), []
    spare = iter([marker for hue, marker in enumerate(MARKERS) if hue not in {of % len(COLORS) for of in numbers}])
    for one in series:
        if one.is_context:
            found.append(LegendEntry(one.label, GREY, (), "o", FAINTEST))
            continue
        place, index = places[one.hue], one.hue % len(COLORS)
        places[one.hue] += 1
        of_hue = list(MARKERS)[(index + place) % len(MARKERS)]
        marker = next(spare, of_hue) if place else of_hue
        from_last = numbers[one.hue] - 1 - place
        opacity = 1 - (1 - FAINTEST) * from_last / max(numbers[one.hue] - 1, 1)
        found.append(LegendEntry(one.label, COLORS[index], DASHES[from_last % len(DASHES)], marker, opacity))
    return found


def _draw_series(axes: "Axes", panel: Panel, series: Series, style: LegendEntry) -> None:
    """Draw a series. Marks of one style are one plot with the cell of each: matplotlib is slow per plot."""
    hues = sorted({one.hue for one in panel.series})
    emphasis = EMPHASES[min(hues.index(series.hue), len(EMPHASES) - 1)] if len(hues) > 1 else 1
    wider = WIDER if style.opacity < 1 else 1
    dot, width = emphasis * panel.dot * wider**0.5, 1.8 * emphasis * wider
    if series.is_context:
        dot, width = panel.dot / 2, 1
    common = {"color": style.color, "alpha": style.opacity, "zorder": 2}

    def marks(points: Sequence[Point], values: Callable[[Point], Sequence[float]], **shape: object) -> None:
        if places := [(p.x, value) for p in points for value in values(p)]:
            gid = MARKS + " ".join(p.cell for p in points for _ in values(p))
            axes.plot(*zip(*places, strict=True), linestyle="none", gid=gid, **(common | shape))

    def line(points: Sequence[Point], places: Sequence[tuple[float, float]], **shape: object) -> None:
        """Name the cells that a line belongs to: a filter dims it with their marks."""
        gid = f"{LINE}{' '.join(p.cell for p in points)}" if all(p.cell for p in points) else None
        axes.plot(*zip(*places, strict=True), gid=gid, **common, **shape)

    on_line = [point for point in series.points if point.is_on_line]
    others = [point for point in series.points if not point.is_on_line]
    if not panel.x.is_categorical:
        places, dashes = [(p.x, p.reported) for p in on_line], style.dashes or (None, None)
        line(on_line, places, dashes=dashes, linewidth=width)
    else:
        marks(on_line, lambda p: (p.reported,), marker="_", markersize=16, markeredgewidth=1.8)
    if not (panel.has_points or series.is_context):
        ends = [(p.x, end) for p in series.points for end in (min(p.values), max(p.values), math.nan)]
        line(series.points, ends, linewidth=1)
    shape = {"marker": style.marker, "markersize": dot, "markeredgewidth": 0.2 * dot, "zorder": 3}
    if is_banded(series) and not panel.x.is_categorical:
        low, high = ([p.ends[end] for p in on_line] for end in (0, 1))
        places = [p.x for p in on_line]
        gid = f"{LINE}{' '.join(p.cell for p in on_line)}" if all(p.cell for p in on_line) else None
        outline = [*places, *reversed(places)], [*low, *reversed(high)]
        axes.fill(*outline, color=style.color, alpha=BAND, linewidth=0, gid=gid)
    of_launches = panel.has_points and not series.is_context
    faint = shape | {"alpha": FAINT * style.opacity, "markersize": 0.75 * dot, "markeredgewidth": 0}
    for points, fill in ((on_line, style.color), (others, GROUND)):
        if of_launches:
            marks(points, lambda p: p.values if len(p.values) > 1 else (), markerfacecolor=style.color, **faint)
        marks(points, lambda p: (p.reported,), markerfacecolor=fill, **shape)


def is_banded(series: Series) -> bool:
    """Return whether a line has a band: the intervals of all its points."""
    return not series.is_context and all(point.ends for point in series.points if point.is_on_line)


def _limits_of(panel: Panel) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the ends of both axes, which have room for all that the panel draws."""
    dots = [(p.x, v) for s in panel.series for p in s.points for v in (*p.values, p.reported, *(p.ends or ()))]
    dots += [dot for _, line in panel.guides for dot in line]
    dots += [(dots[0][0], place) for _, place in panel.limits]
    beside = BESIDE_SLOPE if panel.is_slope else 0.06
    return limits_along(panel.x, [x for x, _ in dots], beside), limits_along(panel.y, [y for _, y in dots], 0.08)


def _scale(axes: "Axes", panel: Panel, limits: Sequence[tuple[float, float]], ticks: Sequence[Ticks]) -> None:
    axes.set_xlabel(panel.x.label, labelpad=LABEL_PAD_PT)
    axes.tick_params(axis="x", pad=TICK_PAD_PT)
    axes.set(**{f"{name}scale": "log" for name, axis in (("x", panel.x), ("y", panel.y)) if axis.is_log})
    axes.set(xlim=limits[0], ylim=limits[1])
    for side, of_side in zip((axes.xaxis, axes.yaxis), ticks, strict=True):
        set_ticks(side, of_side)
    for label in axes.get_xticklabels():
        label.set_linespacing(LINE_SPACING)
    axes.grid(visible=True, clip_on=False, axis="x" if panel.is_slope else "both")  # no line through values
    if not panel.y.is_log and limits[1][0] > 0:
        draw_break(axes, along=1)
