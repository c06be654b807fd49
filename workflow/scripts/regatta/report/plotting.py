"""Draw one panel: series of launches over an axis, as SVG bytes that are the same for the same data.

Every launch is a point, the line joins the reported values: they are those of the table. Colours are those of Okabe and Ito (jfly.uni-koeln.de/color) that
keep 3:1 against white, the sixth their orange darkened until it does; marker and dash tell series apart without colour.
"""

import base64
import gzip
import io
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from regatta.core.text import three

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# How a drawn figure becomes bytes: as vectors, or as a bitmap where the page has so many that it would grow too large.

PNG_START = b"\x89PNG"
BITMAP_DPI = 150  # three dots for two pixels of the page, where 3.9 inches are 390
BITMAP_COLOURS = 32

_is_bitmap: ContextVar[bool] = ContextVar("is_bitmap", default=False)


@contextmanager
def bitmaps(is_wanted: bool) -> Iterator[None]:
    """Draw bitmaps within this block if they are wanted."""
    token = _is_bitmap.set(is_wanted)
    try:
        yield
    finally:
        _is_bitmap.reset(token)


@contextmanager
def new_canvas(width_in: float, height_in: float, dpi: float = 72, **style: object) -> Iterator["Figure"]:
    """Yield an empty canvas in the report's style.

    matplotlib takes 0.6 s to import, so it is imported where something is drawn: Snakemake's rules need the names of
    tables alone.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **STYLE, "backend": "svg", **style}):
        yield Figure(figsize=(width_in, height_in), dpi=dpi)


def set_ticks(side, ticks: Sequence[tuple[float, str]]) -> None:
    """Put these ticks on one axis of a plot (matplotlib's own if there are none), and no minor ones."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter, NullLocator

    if ticks:
        side.set_major_locator(FixedLocator([place for place, _ in ticks]))
        side.set_major_formatter(FixedFormatter([text for _, text in ticks]))
    side.set_minor_locator(NullLocator())
    side.set_minor_formatter(NullFormatter())


def image_of(figure: "Figure") -> bytes:
    """Return a figure as SVG or PNG, the same bytes for the same figure."""
    buffer = io.BytesIO()
    if not _is_bitmap.get():
        figure.savefig(buffer, format="svg", dpi=200, metadata={"Date": None, "Creator": None})
        return buffer.getvalue()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(figure)
    figure.set_dpi(BITMAP_DPI)
    canvas.draw()
    picture = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba()).convert("RGB")
    picture.quantize(BITMAP_COLOURS, method=Image.Quantize.FASTOCTREE).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def mime_of(image: bytes) -> str:
    return "image/png" if image.startswith(PNG_START) else "image/svg+xml"


MAX_SERIES = 6
MAX_VECTOR_POINTS = 2000  # above this the points are an embedded bitmap: 50,000 of them as vectors are 5 MB
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#B87F00")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ((), (5, 2), (1.5, 1.5), (6, 2, 1.5, 2), (9, 3), (3, 1.5))
INK, GREY, GRID = "#222222", "#666666", "#E3E3E3"
DODGE, DOT = 2.5, 4.5
WIDTH_IN, HEIGHT_IN = 3.9, 3.1  # small, so that its text is still read at 300 pixels on a phone
STYLE = {
    "svg.hashsalt": "regatta",
    "svg.fonttype": "path",
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
    "path.simplify": False,
}


@dataclass(frozen=True)
class Point:
    """One cell in a panel. values: one for each launch. reported: the table's number, which the line goes through.

    is_on_line: False for a second shape of the same size.
    """

    x: float
    values: tuple[float, ...]
    reported: float
    is_on_line: bool = True


@dataclass(frozen=True)
class Series:
    """has_line: False where the places of the axis are names; a bar then marks the reported value."""

    label: str
    points: tuple[Point, ...]
    has_line: bool = True


@dataclass(frozen=True)
class Axis:
    """label: with unit. ticks: (place, text); empty: the axis chooses its own. show: how a log axis writes them."""

    label: str
    is_log: bool = False
    low: float | None = None
    high: float | None = None
    ticks: tuple[tuple[float, str], ...] = ()
    show: Callable[[float], str] = "{:g}".format


@dataclass(frozen=True)
class Panel:
    """What is drawn. guides: grey dashed lines, each a label and its points; those of `dotted` labels go beyond what was
    measured. dot: size of a launch, in points."""

    x: Axis
    y: Axis
    series: tuple[Series, ...]
    guides: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = field(default=())
    dot: float = DOT
    dotted: tuple[str, ...] = ()


def draw(panel: Panel) -> bytes:
    """Return the panel as SVG, or as PNG (regatta.report.plotting)."""
    # Labels are placed in pixels, which are points at 72 dpi, at whatever dpi the image is saved.
    with new_canvas(WIDTH_IN, HEIGHT_IN) as figure:
        axes = figure.add_axes((0.165, 0.205, 0.515, 0.7))
        is_raster = sum(len(p.values) for s in panel.series for p in s.points) > MAX_VECTOR_POINTS
        _scale(axes, panel)
        for label, line in panel.guides:
            dashes = (1, 2) if label in panel.dotted else (4, 3)
            axes.plot(*zip(*line, strict=True), color=GREY, dashes=dashes, linewidth=1.2, zorder=1.5, label=label)
        for index, series in enumerate(panel.series):
            dodge = DODGE * panel.dot / DOT * (index - (len(panel.series) - 1) / 2)
            _draw_series(axes, index, series, is_raster, dodge, panel.dot)
        _label_ends(axes, panel)
        return image_of(figure)


def _draw_series(axes: "Axes", index: int, series: Series, is_raster: bool, dodge: float, dot: float) -> None:
    """dodge: how many points the dots stand aside, so that series at the same place do not hide each other."""
    colour, marker = COLOURS[index], MARKERS[index]
    from matplotlib.transforms import ScaledTranslation

    aside = axes.transData + ScaledTranslation(dodge / 72, 0, axes.figure.dpi_scale_trans)
    line = [(p.x, p.reported) for p in series.points if p.is_on_line]
    if series.has_line:
        axes.plot(*zip(*line, strict=True), color=colour, dashes=DASHES[index] or (None, None), linewidth=1.8, zorder=2)
    else:
        axes.plot(
            *zip(*line, strict=True), linestyle="none", marker="_", markersize=16, markeredgewidth=1.8, color=colour,
            transform=aside, zorder=2,
        )  # fmt: skip
    for is_on_line in (True, False):
        dots = [(p.x, value) for p in series.points if p.is_on_line == is_on_line for value in p.values]
        if dots:
            axes.plot(
                *zip(*dots, strict=True), linestyle="none", marker=marker, markersize=dot, markeredgewidth=0.2 * dot,
                markerfacecolor=colour if is_on_line else "white", markeredgecolor=colour, alpha=0.75, zorder=3,
                rasterized=is_raster, transform=aside,
            )  # fmt: skip


def _scale(axes: "Axes", panel: Panel) -> None:
    """Set limits before anything is drawn, so that the labels at the line's ends know where they are."""
    dots = [(p.x, v) for s in panel.series for p in s.points for v in (*p.values, p.reported)]
    dots += [dot for _, line in panel.guides for dot in line]
    limits = (_limits(panel.x, [x for x, _ in dots], 0.06), _limits(panel.y, [y for _, y in dots], 0.08))
    axes.set_xlabel(panel.x.label)
    axes.figure.text(0.02, 0.985, panel.y.label, va="top")  # level, above its axis: read without turning the head
    if panel.x.is_log:
        axes.set_xscale("log")
    if panel.y.is_log:
        axes.set_yscale("log")
    axes.set(xlim=limits[0], ylim=limits[1])
    for side, axis, (low, high) in ((axes.xaxis, panel.x, limits[0]), (axes.yaxis, panel.y, limits[1])):
        ticks = axis.ticks or (log_ticks(low, high, axis.show) if axis.is_log else ())
        set_ticks(side, ticks)
    axes.grid(visible=True, color=GRID, linewidth=0.8)
    axes.tick_params(length=3)


def _limits(axis: Axis, values: list[float], margin: float) -> tuple[float, float]:
    low = min(values) if axis.low is None else axis.low
    high = max(values) if axis.high is None else axis.high
    if axis.is_log:
        gap = max(math.log(high / low), 0.7 if len(set(values)) == 1 else 0.1) * margin
        if high / low < 1.1:  # a single place, or nearly: show some room around it
            gap = 0.5
        return low / math.exp(gap), high * math.exp(gap)
    gap = (high - low or abs(high) or 1) * margin
    return low if axis.low is not None else low - gap, high + (gap if axis.high is None else 0)


def log_ticks(low: float, high: float, show: Callable[[float], str]) -> tuple[tuple[float, str], ...]:
    """Return round places of a log axis, 1-2-5 where they are few, whole decades where they are many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9)
    for steps in (fine, (1, 1.5, 2, 3, 4, 6, 8), (1, 2, 3, 5), (1, 2, 5), (1,)):
        places = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(places) <= 7:
            break
    if not places:  # an axis so short that no round place lies on it
        places = [math.sqrt(low * high)]
    places = places[:: math.ceil(len(places) / 7)]
    return tuple((place, show(place)) for place in places)


def _label_ends(axes: "Axes", panel: Panel) -> None:
    """Write each series' name at the right, level with its end and spread so that none covers another; guides too.

    A thin line leads from the end to the name. A series that ends before the others has its name beside its last point.
    """
    to_display, (_, bottom, right, top) = axes.transData, axes.bbox.extents  # pixels, which at 72 dpi are points
    from matplotlib.transforms import Affine2D

    in_points = Affine2D().scale(1 / 72) + axes.figure.dpi_scale_trans
    gap, x_text = 13, right + 12
    ends, early = [], []
    last = max(p.x for s in panel.series for p in s.points)
    for index, series in enumerate(panel.series):
        end = max((p.x, p.reported) for p in series.points if p.is_on_line)
        x, y = to_display.transform(end)
        is_at_end = end[0] == last or not series.has_line
        (ends if is_at_end else early).append([y, x, y, index, _wrapped(series.label)])
    _label_early(axes, early)
    for label, line in panel.guides:
        x, y = to_display.transform(line[-1])
        ends.append([y, x, y, None, label])
    rows = [label.count("\n") + 1 for *_, label in ends]
    places = spread([end[0] for end in ends], [gap * n for n in rows], bottom, top)
    for place, (_, x, y, index, label) in zip(places, ends, strict=True):
        colour = GREY if index is None else COLOURS[index]
        leader = {
            "color": colour,
            "linewidth": 0.7,
            "alpha": 0.6,
            "clip_on": False,
            "transform": in_points,
            "zorder": 1,
        }
        if x > right - 20:
            axes.plot([x, x_text - 5], [y, place], **leader)
        if index is not None:
            axes.plot(
                [x_text],
                [place],
                marker=MARKERS[index],
                markersize=5,
                color=colour,
                clip_on=False,
                transform=in_points,
                zorder=4,
            )
        axes.annotate(label, (x_text + 6, place), xycoords="figure points", va="center", fontsize=9, linespacing=1.1)


def _wrapped(label: str) -> str:
    """Return a label whose lines fit beside the panel, where they can be broken."""
    return "\n".join(part for line in label.split("\n") for part in textwrap.wrap(line, 14, break_long_words=False))


def _label_early(axes: "Axes", ends: list[list]) -> None:
    """Write the names of series that end inside the panel above their last points, on a white ground."""
    from matplotlib.patheffects import withStroke

    _, bottom, _, top = axes.bbox.extents
    for x in sorted({end[1] for end in ends}):
        own = [end for end in ends if end[1] == x]
        rows = [label.count("\n") + 1 for *_, label in own]
        places = spread(
            [end[0] + 7 + 6.5 * n for end, n in zip(own, rows, strict=True)], [13 * n for n in rows], bottom, top
        )
        for place, (*_, label) in zip(places, own, strict=True):
            axes.annotate(
                label, (x + 3, place), xycoords="figure points", va="center", fontsize=9, linespacing=1.1, zorder=5,
                path_effects=[withStroke(linewidth=3, foreground="white")],
            )  # fmt: skip


def spread(places: list[float], sizes: list[float], low: float, high: float) -> list[float]:
    """Move places apart until none overlaps, near where they were and, if they fit, between low and high.

    Those that begin as neighbours, closer than a third of a size, stand in the given order, from the top.
    """
    order: list[int] = []
    cluster: list[int] = []
    for i in sorted(range(len(places)), key=lambda i: places[i]):
        if cluster and places[i] - places[cluster[-1]] > sizes[i] / 3:
            order, cluster = order + sorted(cluster, reverse=True), []
        cluster.append(i)
    order += sorted(cluster, reverse=True)
    moved = list(places)
    edge = low
    for i in order:
        moved[i] = max(moved[i], edge + sizes[i] / 2)
        edge = moved[i] + sizes[i] / 2
    edge = max(high, low + sum(sizes))
    for i in reversed(order):
        moved[i] = min(moved[i], edge - sizes[i] / 2)
        edge = moved[i] - sizes[i] / 2
    return moved


def size_ticks(values: list[float], show=three, most: int = 6) -> tuple[tuple[float, str], ...]:
    """Return the measured places of an axis as ticks, thinned to at most `most`, the last one kept."""
    places = sorted(set(values))
    step = math.ceil(len(places) / most)
    return tuple((place, show(place)) for place in places[(len(places) - 1) % step :: step])


# How files and images are put into a page as data URIs, so that it is one file.

MAX_PLAIN_BYTES = 100_000  # a larger CSV is embedded as .csv.gz, a tenth of its size; pandas and R read that as it is
MAX_PLAIN_BYTES_LARGE = 2_000  # the same on a page of thousands of cells


def data_uri(content: str | bytes, mime: str) -> str:
    raw = content.encode() if isinstance(content, str) else content
    return f"data:{mime};base64,{base64.b64encode(raw).decode()}"


def image_uri(image: bytes) -> str:
    return data_uri(image, mime_of(image))


def filters(is_large: bool = False) -> dict[str, Callable]:
    """Return the filters of every page's templates. is_large: of a page of thousands of cells."""
    most = MAX_PLAIN_BYTES_LARGE if is_large else MAX_PLAIN_BYTES
    return {"image_uri": image_uri, "download": partial(download, max_plain_bytes=most)}


def download(csv: str, name: str, max_plain_bytes: int) -> tuple[str, str]:
    """Return the name under which a CSV is saved, and its URI."""
    raw = csv.encode()
    if len(raw) <= max_plain_bytes:
        return name, data_uri(raw, "text/csv")
    return f"{name}.gz", data_uri(gzip.compress(raw, mtime=0), "application/gzip")
