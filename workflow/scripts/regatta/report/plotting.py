"""Draw one panel: series of launches over an axis, as reproducible SVG bytes.

Every launch is a point; the line joins the values of the table. Colors are those of Okabe and Ito
(jfly.uni-koeln.de/color) with a contrast of 3:1 against white, the sixth darkened to reach it. Markers and dashes
distinguish series without color.
"""

import base64
import io
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from regatta.core.text import three

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Figures are vectors, or bitmaps if many of them would make the page too large.
PNG_START = b"\x89PNG"
BITMAP_DPI = 150  # 1.5 dots per pixel of the page, where 3.9 inches are 390 pixels
BITMAP_COLORS = 32

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

    matplotlib takes 0.6 s to import, so it is imported where something is drawn: rules only need names of tables.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **STYLE, "backend": "svg", **style}):
        yield Figure(figsize=(width_in, height_in), dpi=dpi)


def set_ticks(side, ticks: Sequence[tuple[float, str]]) -> None:
    """Set these ticks on one axis of a plot (matplotlib's choice if there are none), and no minor ones."""
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
    picture.quantize(BITMAP_COLORS, method=Image.Quantize.FASTOCTREE).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


MAX_SERIES = 6
MAX_LEGEND_LINES = 14  # limit at full size
MAX_VECTOR_POINTS = 2000  # above this the points are an embedded bitmap: 50,000 of them as vectors are 5 MB
COLORS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#B87F00")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ((), (5, 2), (1.5, 1.5), (6, 2, 1.5, 2), (9, 3), (3, 1.5))
INK, GREY, GRID = "#222222", "#666666", "#E3E3E3"
DODGE, DOT = 2.5, 4.5
WIDTH_IN, HEIGHT_IN = 3.9, 3.1  # small, so that its text is legible at 300 pixels on a phone
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
    """One cell in a panel. values: one per launch. reported: the table's number, which the line goes through.

    is_on_line: False for a second shape of the same size.
    """

    x: float
    values: tuple[float, ...]
    reported: float
    is_on_line: bool = True


@dataclass(frozen=True)
class Series:
    """One line. has_line: False on a categorical axis; a bar then marks the reported value."""

    label: str
    points: tuple[Point, ...]
    has_line: bool = True


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

    dot: size of a launch, in points.
    """

    x: Axis
    y: Axis
    series: tuple[Series, ...]
    guides: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = field(default=())
    dot: float = DOT
    dotted: tuple[str, ...] = ()


def draw(panel: Panel) -> bytes:
    """Return the panel as SVG, or as PNG within `bitmaps`."""
    with new_canvas(WIDTH_IN, HEIGHT_IN) as figure:
        axes = figure.add_axes((0.165, 0.205, 0.515, 0.7))
        is_raster = sum(len(p.values) for s in panel.series for p in s.points) > MAX_VECTOR_POINTS
        _scale(axes, panel)
        for label, line in panel.guides:
            axes.plot(
                *zip(*line, strict=True), color=GREY, dashes=_guide_dashes(panel, label), linewidth=1.2, zorder=1.5
            )
        for index, series in enumerate(panel.series):
            dodge = DODGE * panel.dot / DOT * (index - (len(panel.series) - 1) / 2)
            _draw_series(axes, index, series, is_raster, dodge, panel.dot)
        _legend(axes, panel)
        return image_of(figure)


def _draw_series(axes: "Axes", index: int, series: Series, is_raster: bool, dodge: float, dot: float) -> None:
    """Draw the line and the launches. dodge: shift in points, so that series at one place do not hide each other."""
    from matplotlib.transforms import ScaledTranslation

    color, marker = COLORS[index], MARKERS[index]
    aside = axes.transData + ScaledTranslation(dodge / 72, 0, axes.figure.dpi_scale_trans)
    places = {"linestyle": "none", "transform": aside}
    line = [(p.x, p.reported) for p in series.points if p.is_on_line]
    if series.has_line:
        axes.plot(*zip(*line, strict=True), color=color, dashes=DASHES[index] or (None, None), linewidth=1.8, zorder=2)
    else:
        bar = {"marker": "_", "markersize": 16, "markeredgewidth": 1.8, "color": color, "zorder": 2}
        axes.plot(*zip(*line, strict=True), **bar, **places)
    for is_on_line in (True, False):
        dots = [(p.x, value) for p in series.points if p.is_on_line == is_on_line for value in p.values]
        if dots:
            shape = {"marker": marker, "markersize": dot, "markeredgewidth": 0.2 * dot, "markeredgecolor": color}
            fill = {"markerfacecolor": color if is_on_line else "white", "alpha": 0.75, "zorder": 3}
            axes.plot(*zip(*dots, strict=True), rasterized=is_raster, **shape, **fill, **places)


def _scale(axes: "Axes", panel: Panel) -> None:
    dots = [(p.x, v) for s in panel.series for p in s.points for v in (*p.values, p.reported)]
    dots += [dot for _, line in panel.guides for dot in line]
    limits = (_limits(panel.x, [x for x, _ in dots], 0.06), _limits(panel.y, [y for _, y in dots], 0.08))
    axes.set_xlabel(panel.x.label)
    axes.figure.text(0.02, 0.985, panel.y.label, va="top")  # horizontal, above its axis
    axes.set(**{f"{name}scale": "log" for name, axis in (("x", panel.x), ("y", panel.y)) if axis.is_log})
    axes.set(xlim=limits[0], ylim=limits[1])
    for side, axis, (low, high) in ((axes.xaxis, panel.x, limits[0]), (axes.yaxis, panel.y, limits[1])):
        set_ticks(side, axis.ticks or (log_ticks(low, high, axis.show) if axis.is_log else ()))
    axes.grid(visible=True, color=GRID, linewidth=0.8)
    axes.tick_params(length=3)


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


def log_ticks(low: float, high: float, show: Callable[[float], str], most: int = 7) -> Ticks:
    """Return at most `most` round values on a log axis: even steps within a decade, 1-2-5 or whole decades beyond."""
    from matplotlib.ticker import LogLocator

    if high / low < 10:
        return linear_ticks(low, high, show, most)
    steps = (1, 2, 5) if high / low < 150 else (1, 3) if high / low < 1500 else (1,)
    places = [place for place in LogLocator(subs=steps, numticks=most).tick_values(low, high) if low <= place <= high]
    return tuple((float(place), show(place)) for place in places[:: math.ceil(len(places) / most)])


def linear_ticks(low: float, high: float, show: Callable[[float], str], most: int = 7) -> Ticks:
    """Return at most `most` values between low and high in even, round steps."""
    from matplotlib.ticker import MaxNLocator

    places = MaxNLocator(most - 1, steps=[1, 2, 5, 10]).tick_values(low, high)
    return tuple((float(place), show(place)) for place in places if low <= place <= high)


def _legend(axes: "Axes", panel: Panel) -> None:
    """List series and guides at the right of the panel, in the order of their last values."""
    from matplotlib.lines import Line2D

    entries = []  # (last value, label, style)
    for series, marker, color in zip(panel.series, MARKERS, COLORS, strict=False):
        _, last = max((p.x, p.reported) for p in series.points if p.is_on_line)
        entries.append((last, series.label, {"marker": marker, "color": color}))
    for label, line in panel.guides:
        entries.append((line[-1][1], label, {"color": GREY, "dashes": _guide_dashes(panel, label)}))
    entries.sort(key=lambda entry: -entry[0])
    handles = [
        Line2D([], [], markersize=5, linewidth=1.2, label=_wrapped(label), **style) for _, label, style in entries
    ]
    spaces = {"handlelength": 1.2, "handletextpad": 0.4, "borderpad": 0, "borderaxespad": 0.5, "labelspacing": 0.4}
    num_lines = sum(handle.get_label().count("\n") + 1 for handle in handles)
    font_size = 9 * min(1, MAX_LEGEND_LINES / num_lines)
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=font_size, **spaces)


def _guide_dashes(panel: Panel, label: str) -> tuple[int, int]:
    return (1, 2) if label in panel.dotted else (4, 3)


def _wrapped(label: str) -> str:
    """Return a label whose lines fit beside the panel, broken at spaces and underscores."""
    lines = [textwrap.wrap(line.replace("_", "_ "), 14, break_long_words=False) for line in label.split("\n")]
    return "\n".join(part.replace("_ ", "_") for parts in lines for part in parts)


def size_ticks(values: list[float], show=three, most: int = 6) -> Ticks:
    """Return the measured values of an axis as ticks, thinned to at most `most`, keeping the last."""
    places = sorted(set(values))
    step = math.ceil(len(places) / most)
    return tuple((place, show(place)) for place in places[(len(places) - 1) % step :: step])


def data_uri(content: bytes, mime: str) -> str:
    """Return a file as a data URI, which embeds it in a page."""
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


def image_uri(image: bytes) -> str:
    return data_uri(image, "image/png" if image.startswith(PNG_START) else "image/svg+xml")
