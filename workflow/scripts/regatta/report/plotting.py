"""Draw one panel: series of launches over an axis, as reproducible inline SVG with real text.

Every launch is a point; the line joins the values of the table. Colors are CSS variables of workflow/report/style.css,
so that a figure follows the page's theme. Markers and dashes distinguish series without color. A mark that stands for a
cell has its id in the attribute data-cell.
"""

import base64
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from regatta.core.text import three
from regatta.report.svg import (
    COLORS,
    CSS_COLORS,
    FIT,
    FIT_CURVE,
    GREY,
    GRID,
    GROUND,
    INK,
    LINE,
    MARKS,
    SERIES,
    svg_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@contextmanager
def new_canvas(width_in: float, height_in: float, dpi: float = 72, **style: object) -> Iterator["Figure"]:
    """Yield an empty canvas in the report's style.

    matplotlib takes 0.6 s to import, so it is imported where something is drawn: rules only need names of tables.
    """
    import matplotlib
    from matplotlib.figure import Figure

    wanted = {**matplotlib.rcParamsDefault, **STYLE, **style}
    changed = {
        name: value for name, value in wanted.items() if name != "backend" and matplotlib.rcParams[name] != value
    }
    with matplotlib.rc_context({**changed, "backend": "svg"}):  # setting all of them takes 10 ms
        yield Figure(figsize=(width_in, height_in), dpi=dpi)


def set_ticks(side, ticks: Sequence[tuple[float, str]]) -> None:
    """Set these ticks on one axis of a plot (matplotlib's choice if there are none), and no minor ones."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter, NullLocator

    if ticks:
        side.set_major_locator(FixedLocator([place for place, _ in ticks]))
        side.set_major_formatter(FixedFormatter([text for _, text in ticks]))
    side.set_minor_locator(NullLocator())
    side.set_minor_formatter(NullFormatter())


MAX_SERIES = 12
MAX_POINTS = 1000  # of more launches only the ranges are drawn
MARKERS = {  # of matplotlib, with the path of the same shape in a legend
    "o": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "s": "M-3.5 -3.5h7v7h-7z",
    "^": "M0 -4.5L4.5 4H-4.5z",
    "D": "M0 -5L5 0L0 5L-5 0z",
    "v": "M0 4.5L4.5 -4H-4.5z",
    "P": "M-1.5 -4h3v2.5h2.5v3h-2.5v2.5h-3v-2.5h-2.5v-3h2.5z",
}
DASHES = ((), (5, 2), (1.5, 1.5), (6, 2, 1.5, 2), (9, 3), (3, 1.5))
EMPHASES = (1.6, 0.9, 0.6)  # size of lines and marks of each hue: those drawn later don't hide equal ones below
FAINTEST = 0.4  # opacity of the last series of a hue
DOT = 4.5
WIDTH_IN, PLOT_IN = 3.3, 1.35  # small, so that its text is legible with four figures in a row; height without labels
ABOVE_IN, BELOW_IN, LINE_IN = 0.26, 0.45, 0.16  # for the label above, ticks and label below, each more line of ticks
STYLE = {
    "svg.hashsalt": "regatta",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,  # grid lines mark the ticks
    "ytick.major.size": 0,
    "path.simplify": False,
}


@dataclass(frozen=True)
class Point:
    """One cell in a panel. values: one per launch. reported: the table's number, which the line goes through.

    is_on_line: False for a second shape of the same size. cell: its id, so that the mark opens it; empty: none.
    """

    x: float
    values: tuple[float, ...]
    reported: float
    is_on_line: bool = True
    cell: str = ""


@dataclass(frozen=True)
class Series:
    """One line. has_line: False on a categorical axis; a bar then marks the reported value. hue: index of its color.

    is_context: drawn in gray behind the others, with one entry for all of them in the legend.
    fit: a model's curve, which the page shows with `fit_text` while the pointer is on the series.
    """

    label: str
    points: tuple[Point, ...]
    has_line: bool = True
    hue: int = 0
    is_context: bool = False
    fit: tuple[tuple[float, float], ...] = ()
    fit_text: str = ""


@dataclass(frozen=True)
class Axis:
    """One axis. label: with unit. ticks: (place, text); empty: automatic. show: text of a tick on a log axis."""

    label: str
    is_log: bool = False
    low: float | None = None
    high: float | None = None
    ticks: tuple[tuple[float, str], ...] = ()
    show: Callable[[float], str] = "{:g}".format


@dataclass(frozen=True)
class Panel:
    """What is drawn. guides: gray dashed lines (label, points); dotted: labels of those beyond the measured range.

    dot: size of a launch, in points. context: label of the series that are context. limits: at most two horizontal
    lines (label, place), the higher first, with the label on the line.
    """

    x: Axis
    y: Axis
    series: tuple[Series, ...]
    guides: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = field(default=())
    dot: float = DOT
    dotted: tuple[str, ...] = ()
    context: str = ""
    limits: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Entry:
    """One line of a legend. style: how its swatch is drawn (SVG attributes); marker: name in the template."""

    label: str
    color: str
    dashes: tuple[float, ...] = ()
    marker: str = ""
    opacity: float = 1.0

    @property
    def css_color(self) -> str:
        return CSS_COLORS[self.color]


@dataclass(frozen=True)
class Drawing:
    """A drawn panel. legend: its guides and series, in the order of the panel."""

    svg: str
    legend: tuple[Entry, ...]


def draw(panel: Panel, figure_id: str, title: str) -> Drawing:
    """Draw a panel. figure_id: unique on the page. title: what is shown; its accessible name adds the axes."""
    styles = _styles(panel.series)
    has_points = sum(len(p.values) for s in panel.series for p in s.points) <= MAX_POINTS
    below_in = BELOW_IN + LINE_IN * max((text.count("\n") for _, text in panel.x.ticks), default=0)
    height_in = ABOVE_IN + PLOT_IN + below_in
    with new_canvas(WIDTH_IN, height_in, **{"svg.hashsalt": figure_id}) as figure:
        axes = figure.add_axes((0.16, below_in / height_in, 0.79, PLOT_IN / height_in))
        _scale(axes, panel)
        for guide, line in panel.guides:
            dashes = _guide_dashes(panel, guide)
            axes.plot(*zip(*line, strict=True), color=GREY, dashes=dashes, linewidth=1.2, zorder=1.5)
        for (text, place), (side, gap) in zip(panel.limits, (("bottom", 2), ("top", -2)), strict=False):
            axes.axhline(place, color=GREY, dashes=(6, 2), linewidth=1.2, zorder=1.5)
            where = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "verticalalignment": side}
            axes.annotate(text, (0, place), xytext=(3, gap), fontsize=8, **where)
        cells: list[list[str]] = []
        for series, style, factor in zip(panel.series, styles, _emphases(panel.series), strict=True):
            cells += _draw_series(axes, series, style, (factor * panel.dot, factor), has_points, len(cells))
        by = f" by {panel.x.label}" if panel.x.label else ""
        return Drawing(svg_of(figure, f"{title}: {panel.y.label}{by}", cells), _legend(panel, styles))


def legend(panel: Panel) -> tuple[Entry, ...]:
    """Return the legend of a panel without drawing it."""
    return _legend(panel, _styles(panel.series))


def _styles(series: Sequence[Series]) -> list[Entry]:
    """Return how each series is drawn: color by hue, dashes and opacity by its place among those of that hue."""
    main = [one for one in series if not one.is_context]
    numbers = {hue: sum(other.hue == hue for other in main) for hue in {one.hue for one in main}}
    places: dict[int, int] = {}
    found = []
    for one in series:
        if one.is_context:
            found.append(Entry(one.label, GREY, (), "o", FAINTEST))
            continue
        place = places[one.hue] = places.get(one.hue, -1) + 1
        share = place / max(numbers[one.hue] - 1, 1)
        index = one.hue % len(COLORS)
        marker = list(MARKERS)[(index if len(numbers) > 1 else place) % len(MARKERS)]
        opacity = 1 - (1 - FAINTEST) * share
        found.append(Entry(one.label, COLORS[index], DASHES[place % len(DASHES)], marker, opacity))
    return found


def _emphases(series: Sequence[Series]) -> list[float]:
    hues = sorted({one.hue for one in series if one.has_line and not one.is_context})
    by_hue = dict(zip(hues, (*EMPHASES, *[EMPHASES[-1]] * len(hues)), strict=False)) if len(hues) > 1 else {}
    return [1.0 if one.is_context else by_hue.get(one.hue, 1.0) for one in series]


def _draw_series(
    axes: "Axes", series: Series, style: Entry, sizes: tuple[float, float], has_points: bool, first: int
) -> list[list[str]]:
    """Draw a series and its fit; return the cells of the marks of each plot.

    sizes: that of a launch in points, and a factor of the line's width. first: number of the first of these plots.

    One plot has many marks: matplotlib is slow per plot. With a fit, all are in one layer, thus consecutive in
    the SVG, where `svg_of` groups them.
    """
    dot, emphasis = sizes
    above = 2 if series.fit else 3
    color, line = style.color, [(p.x, p.reported) for p in series.points if p.is_on_line]
    common = {"color": color, "alpha": style.opacity}
    if series.is_context:
        dot, has_points = dot / 2, False
    on_line = [point for point in series.points if point.is_on_line]
    if series.has_line:
        width = 1 if series.is_context else 1.8 * emphasis
        drawn = axes.plot(
            *zip(*line, strict=True), dashes=style.dashes or (None, None), linewidth=width, zorder=2, **common
        )
        _connect(drawn, on_line, SERIES if series.fit else "")
    else:
        bar = {"marker": "_", "markersize": 16, "markeredgewidth": 1.8, "linestyle": "none", "zorder": 2}
        for point in on_line:
            _connect(axes.plot([point.x], [point.reported], **bar, **common), [point])
    if not has_points and not series.is_context:
        ends = [(p.x, value) for p in series.points for value in (min(p.values), max(p.values), math.nan)]
        _connect(axes.plot(*zip(*ends, strict=True), linewidth=1, zorder=2, **common), series.points)
    found = []
    for is_on_line in (True, False):
        points = [point for point in series.points if point.is_on_line == is_on_line]
        marks = [(p, value) for p in points for value in (p.values if has_points else (p.reported,))]
        if not marks:
            continue
        shape = {"marker": style.marker, "markersize": dot, "markeredgewidth": 0.2 * dot, "linestyle": "none"}
        fill = {"markeredgecolor": color, "markerfacecolor": color if is_on_line else GROUND}
        places = zip(*((p.x, value) for p, value in marks), strict=True)
        [plot] = axes.plot(*places, zorder=above, alpha=style.opacity, **shape, **fill)
        plot.set_gid(f"{MARKS}{first + len(found)}")
        found.append([p.cell for p, _ in marks])
    if series.fit:
        corner = {"transform": axes.transAxes, "horizontalalignment": "right", "fontsize": 8, "zorder": 2}
        axes.text(0.99, 0.02, series.fit_text, gid=FIT, **corner)
        axes.plot(*zip(*series.fit, strict=True), color=INK, linewidth=1, zorder=2, gid=FIT_CURVE)
    return found


def _connect(drawn: list, points: Sequence[Point], begin: str = "") -> None:
    """Name the cells that a line belongs to: a filter dims it with their marks."""
    if begin or all(point.cell for point in points):
        drawn[0].set_gid(f"{begin}{LINE}{' '.join(point.cell or '' for point in points)}")


def _scale(axes: "Axes", panel: Panel) -> None:
    dots = [(p.x, v) for s in panel.series for p in s.points for v in (*p.values, p.reported)]
    dots += [dot for _, line in panel.guides for dot in line]
    dots += [(dots[0][0], place) for _, place in panel.limits]
    limits = (_limits(panel.x, [x for x, _ in dots], 0.06), _limits(panel.y, [y for _, y in dots], 0.08))
    axes.set_xlabel(panel.x.label)
    axes.figure.text(0.01, 0.99, panel.y.label, va="top", fontsize=9)  # horizontal, above its axis
    axes.set(**{f"{name}scale": "log" for name, axis in (("x", panel.x), ("y", panel.y)) if axis.is_log})
    axes.set(xlim=limits[0], ylim=limits[1])
    for side, axis, (low, high) in ((axes.xaxis, panel.x, limits[0]), (axes.yaxis, panel.y, limits[1])):
        set_ticks(side, axis.ticks or (log_ticks(low, high, axis.show) if axis.is_log else ()))
    axes.grid(visible=True, color=GRID, linewidth=0.8)


def _limits(axis: Axis, values: list[float], margin: float) -> tuple[float, float]:
    low = min(values) if axis.low is None else axis.low
    high = max(values) if axis.high is None else axis.high
    if axis.is_log:
        gap = max(math.log(high / low), 0.7 if len(set(values)) == 1 else 0.1) * margin
        if high / low < 1.1:  # nearly a single value: leave room around it
            gap = 0.5
        return low / math.exp(gap), high * math.exp(gap)
    gap = (high - low or abs(high) or 1) * margin
    return low if axis.low is not None else low - gap, high + (gap if axis.high is None else 0)


Ticks = tuple[tuple[float, str], ...]  # (place, text)


MOST_TICKS = 7


def log_ticks(low: float, high: float, show: Callable[[float], str]) -> Ticks:
    """Return a few round values on a log axis: even steps within a decade, 1-2-5 or whole decades beyond."""
    from matplotlib.ticker import LogLocator

    if high / low < 10:
        return linear_ticks(low, high, show)
    steps = (1, 2, 5) if high / low < 150 else (1, 3) if high / low < 1500 else (1,)
    found = LogLocator(subs=steps, numticks=MOST_TICKS).tick_values(low, high)
    places = [place for place in found if low <= place <= high]
    return tuple((float(place), show(place)) for place in places[:: math.ceil(len(places) / MOST_TICKS)])


def linear_ticks(low: float, high: float, show: Callable[[float], str]) -> Ticks:
    """Return at most MOST_TICKS values between low and high in even, round steps."""
    from matplotlib.ticker import MaxNLocator

    places = MaxNLocator(MOST_TICKS - 1, steps=[1, 2, 5, 10]).tick_values(low, high)
    return tuple((float(place), show(place)) for place in places if low <= place <= high)


def _legend(panel: Panel, styles: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return guides, then series, each in the order of the panel, so that it is the same in all figures."""
    guides = (Entry(label, GREY, _guide_dashes(panel, label)) for label, _ in panel.guides)
    main = (style for series, style in zip(panel.series, styles, strict=True) if not series.is_context)
    context = [Entry(panel.context, GREY, (), "o", FAINTEST)] if any(one.is_context for one in panel.series) else []
    return (*guides, *main, *context)


def _guide_dashes(panel: Panel, label: str) -> tuple[int, int]:
    return (1, 2) if label in panel.dotted else (4, 3)


def size_ticks(values: list[float], show=three, most: int = 6) -> Ticks:
    """Return the measured values of an axis as ticks, thinned to at most `most`, keeping the last."""
    places = sorted(set(values))
    step = math.ceil(len(places) / most)
    return tuple((place, show(place)) for place in places[(len(places) - 1) % step :: step])


def data_uri(content: bytes, mime: str) -> str:
    """Return a file as a data URI, which embeds it in a page."""
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"
