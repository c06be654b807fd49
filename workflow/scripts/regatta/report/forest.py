"""Draw a forest plot: one row for each comparison, its ratio of times as a mark, its spread as a line.

Style and colours are those of `figures`. The line at 1 means no difference, the grey band what is equivalent by the
margin. An interval is a thick line, a range a thin dashed one, since a range says less.
"""

import math
import textwrap
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter, NullLocator

from regatta.report.figures import COLOURS, GREY, GRID, INK, STYLE, WIDTH_IN, log_ticks
from regatta.report.images import image_of

MAX_LINES = 14  # of labels in a panel
LABEL_CHARACTERS = 24
LINE_POINTS, GAP_POINTS, TOP_POINTS, BOTTOM_POINTS = 11, 4, 20, 36
LEFT_POINTS, RIGHT_POINTS = 126, 30  # for the labels, and for n
POINTS_PER_INCH = 72
PIXELS_PER_POINT = 390 / (WIDTH_IN * POINTS_PER_INCH)  # as wide as the other figures of the report
BAND = "#ECEEF1"
NO_BREAK = "\N{NO-BREAK SPACE}"
# Verdict -> colour, marker, and whether the marker is filled: told apart without colour too.
MARKS = {
    "slower": (COLOURS[1], "s", True),
    "faster": (COLOURS[0], "o", True),
    "inconclusive": (COLOURS[3], "o", False),
    "equivalent": (COLOURS[2], "D", False),
}


@dataclass(frozen=True)
class Row:
    """One comparison. low, high: None where there is one launch. is_interval: False where they are a range."""

    label: str
    ratio: float
    low: float | None
    high: float | None
    is_interval: bool
    num: str
    verdict: str

    @property
    def lines(self) -> list[str]:
        """The label, broken after commas where that will do: never between a number and its unit."""
        whole = self.label.replace(" ", NO_BREAK).replace(f",{NO_BREAK}", ", ")
        return [line.replace(NO_BREAK, " ") for line in textwrap.wrap(whole, LABEL_CHARACTERS)] or [""]


def pages(rows: list[Row]) -> list[list[Row]]:
    """Split rows into panels of at most MAX_LINES lines of labels, in their order."""
    found: list[list[Row]] = []
    left = 0
    for row in rows:
        if not found or len(row.lines) > left:
            found.append([])
            left = MAX_LINES
        found[-1].append(row)
        left -= len(row.lines)
    return found


def draw_forest(rows: list[Row], margin: float) -> tuple[bytes, tuple[int, int]]:
    """Return the plot as SVG, and its size in pixels. margin: ratio up to which times are equivalent."""
    heights = [LINE_POINTS * len(row.lines) + GAP_POINTS for row in rows]
    height, width = sum(heights) + TOP_POINTS + BOTTOM_POINTS, WIDTH_IN * POINTS_PER_INCH
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **STYLE, "backend": "svg"}):
        figure = Figure(figsize=(WIDTH_IN, height / POINTS_PER_INCH), dpi=POINTS_PER_INCH)
        inner = width - LEFT_POINTS - RIGHT_POINTS
        axes = figure.add_axes((LEFT_POINTS / width, BOTTOM_POINTS / height, inner / width, sum(heights) / height))
        _scale(axes, rows, margin, sum(heights))
        place = sum(heights)
        for row, own in zip(rows, heights, strict=True):
            _draw_row(axes, row, place - own / 2)
            place -= own
        _legend(figure, rows, width, height)
        figure.text(0.5, 3 / height, "ratio of times: below 1 faster, above 1 slower", ha="center", fontsize=9)
        figure.text(1 - 3 / width, 24 / height, "n", ha="right", fontsize=9)
        return image_of(figure), (390, round(height * PIXELS_PER_POINT))


def _scale(axes: Axes, rows: list[Row], margin: float, height: float) -> None:
    values = [value for row in rows for value in (row.ratio, row.low, row.high) if value is not None]
    low, high = min([*values, 1 / (1 + margin)]), max([*values, 1 + margin])
    gap = max((high / low) ** 0.05, 1.001)
    axes.set_xscale("log")
    axes.set(xlim=(low / gap, high * gap), ylim=(0, height))
    ticks = ratio_ticks(low / gap, high * gap)
    axes.xaxis.set_major_locator(FixedLocator([place for place, _ in ticks]))
    axes.xaxis.set_major_formatter(FixedFormatter([text for _, text in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(NullLocator())
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="x", color=GRID, linewidth=0.8)
    axes.tick_params(length=3)
    if margin > 0:
        axes.axvspan(1 / (1 + margin), 1 + margin, color=BAND, linewidth=0, zorder=0.5)
        for edge in (1 / (1 + margin), 1 + margin):
            axes.axvline(edge, color=GREY, linewidth=0.7, dashes=(3, 2), zorder=1)
    axes.axvline(1, color=INK, linewidth=1, zorder=1.2)


def ratio_ticks(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Return at most five round places of an axis of ratios, 1 among them: even steps near 1, 1-2-5 on a long axis."""
    if high / low > 3:
        ticks = log_ticks(low, high, "{:g}".format)
        return ticks if len(ticks) <= 5 else tuple(t for t in ticks if t[1].strip("0.") in ("1", "2", "5"))[:6]
    for step in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
        places = [1 + k * step for k in range(math.ceil((low - 1) / step), math.floor((high - 1) / step) + 1)]
        if len(places) <= 5:
            break
    return tuple((place, f"{place:.3f}".rstrip("0").rstrip(".")) for place in places)


def _draw_row(axes: Axes, row: Row, place: float) -> None:
    colour, marker, is_filled = MARKS[row.verdict]
    if row.low is not None:
        style = {"linewidth": 2} if row.is_interval else {"linewidth": 0.9, "dashes": (3, 1.5)}
        axes.plot([row.low, row.high], [place, place], color=colour, solid_capstyle="butt", zorder=2, **style)
    axes.plot(
        [row.ratio], [place], linestyle="none", marker=marker, markersize=5.5, markeredgewidth=1.2,
        markerfacecolor=colour if is_filled else "white", markeredgecolor=colour, zorder=3,
    )  # fmt: skip
    beside = axes.get_yaxis_transform()
    text = {"transform": beside, "va": "center", "fontsize": 9, "linespacing": 1.0}
    inner = WIDTH_IN * POINTS_PER_INCH - LEFT_POINTS - RIGHT_POINTS
    axes.text(-(LEFT_POINTS - 3) / inner, place, "\n".join(row.lines), ha="left", **text)
    axes.text(1 + (RIGHT_POINTS - 3) / inner, place, row.num, ha="right", **text)


def _legend(figure: Figure, rows: list[Row], width: float, height: float) -> None:
    """Write which mark means which verdict, above the rows: those that the panel has."""
    place, level = 8.0, height - 9
    for verdict in dict.fromkeys(word for word in MARKS if any(row.verdict == word for row in rows)):
        colour, marker, is_filled = MARKS[verdict]
        figure.add_artist(
            matplotlib.lines.Line2D(
                [place / width], [level / height], linestyle="none", marker=marker, markersize=5.5, markeredgewidth=1.2,
                markerfacecolor=colour if is_filled else "white", markeredgecolor=colour,
            )
        )  # fmt: skip
        figure.text((place + 6) / width, level / height, verdict, va="center", fontsize=9)
        place += 18 + 5.4 * len(verdict)
