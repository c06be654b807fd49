"""What all charts have: style, colors, legend, marks, and a place on the page or in a file.

Colors are CSS variables of workflow/report/style.css, so that a figure follows the page's theme. A mark that stands for
a cell has its id in the attribute data-cell.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from regatta.report.svg import GREY, GRID, INK, PLACEHOLDERS, svg_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = {  # of matplotlib, with the path of the same shape in a legend
    "o": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "s": "M-3.5 -3.5h7v7h-7z",
    "^": "M0 -4.5L4.5 4H-4.5z",
    "D": "M0 -5L5 0L0 5L-5 0z",
    "v": "M0 4.5L4.5 -4H-4.5z",
    "P": "M-1.5 -4h3v2.5h2.5v3h-2.5v2.5h-3v-2.5h-2.5v-3h2.5z",
}
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
    "grid.color": GRID,
    "text.color": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,  # grid lines mark the ticks
    "ytick.major.size": 0,
    "path.simplify": False,
    "hatch.linewidth": 1.2,
}


@dataclass(frozen=True)
class Medium:
    """What is drawn for. write: returns the text of a drawing with an accessible name.

    size_in: width and height of the canvas, from those on the page. colors: by name.
    """

    write: Callable[["Figure", str], str] = svg_of
    size_in: Callable[[float, float], tuple[float, float]] = lambda width, height: (width, height)
    colors: Mapping[str, str] = field(default_factory=lambda: PLACEHOLDERS)


PAGE = Medium()
ZOOMED = "zoomed"  # beside the label of an axis that does not start at 0
BREAK_PT = (8, 11)  # along such an axis: the strokes of its sign


@dataclass(frozen=True)
class Marks:
    """What a figure draws: a row for each mark, in the units of its axes. The first column is the mark's cell."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | None, ...], ...]


@dataclass(frozen=True)
class LegendEntry:
    """One line of a legend. marker: name in the template. cells: those of its series. has_line: not for areas."""

    label: str
    color: str
    dashes: tuple[float, ...] = ()
    marker: str = ""
    opacity: float = 1.0
    cells: tuple[str, ...] = ()
    has_line: bool = True

    @property
    def css_color(self) -> str:
        return f"var(--{self.color})"


class Chart:
    """What a figure draws, on a canvas in the report's style.

    size_in: width and height on the page. legend: of its series. is_labelled: whether these have labels, so that the
    page omits the legend. axes_text: completes the title to its accessible name. has_rows: its height is that of its
    rows, and no less. record: the only measurement that it shows, if it shows one.
    """

    size_in: tuple[float, float]
    legend: tuple[LegendEntry, ...] = ()
    is_labelled = False
    axes_text = ""
    has_rows = False
    record = ""

    def draw(self, figure_id: str, title: str, medium: Medium = PAGE) -> str:
        """Return the drawing for a medium. figure_id: unique on the page. title: what is shown.

        matplotlib takes 0.6 s to import, so it is imported where something is drawn: rules only need names of tables.
        """
        import matplotlib
        from matplotlib.colors import get_named_colors_mapping
        from matplotlib.figure import Figure

        for name, color in medium.colors.items():  # `update` would not clear the cache of this mapping
            get_named_colors_mapping()[name] = color
        wanted = {**matplotlib.rcParamsDefault, **STYLE, "svg.hashsalt": figure_id}
        del wanted["backend"]  # reading it would import pyplot
        changed = {name: value for name, value in wanted.items() if matplotlib.rcParams[name] != value}
        with matplotlib.rc_context({**changed, "backend": "svg"}):  # setting all of them takes 10 ms
            canvas = Figure(figsize=medium.size_in(*self.size_in), dpi=72)
            self.draw_on(canvas)
            return medium.write(canvas, ": ".join(filter(None, (title, self.axes_text))))

    def draw_on(self, canvas: "Figure") -> None:
        raise NotImplementedError

    @staticmethod
    def add_plot(canvas: "Figure", left: float, bottom: float, width: float, height: float, y: str = "") -> "Axes":
        """Return the plot of a canvas, at a place relative to it. y: label of the vertical axis, above it.

        Places are those on the page: a layout engine of another medium moves plot and label.
        """
        if y:
            canvas.suptitle(y, x=0.01, ha="left", va="top", fontsize=9).set_y(0.99)
        return canvas.subplots(
            gridspec_kw={"left": left, "bottom": bottom, "right": left + width, "top": bottom + height}
        )

    def marks(self) -> Marks:
        raise NotImplementedError


def draw_break(axes: "Axes", along: int) -> None:
    """Draw the sign that an axis does not start at 0, near its low end. along: 0 for the horizontal axis, 1."""
    box = axes.get_position()
    wide_pt, high_pt = 72 * axes.figure.get_size_inches() * (box.width, box.height)
    for at_pt in BREAK_PT:
        rising = ((at_pt - 1.5) / wide_pt, (at_pt + 1.5) / wide_pt), (-3 / high_pt, 3 / high_pt)
        if along:
            rising = (-3 / wide_pt, 3 / wide_pt), ((at_pt - 1.5) / high_pt, (at_pt + 1.5) / high_pt)
        axes.plot(*rising, transform=axes.transAxes, color=GREY, linewidth=1, clip_on=False)


def set_ticks(side, ticks: Sequence[tuple[float, str]]) -> None:
    """Set these ticks on one axis of a plot (matplotlib's choice if there are none), and no minor ones."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    if ticks:
        side.set_major_locator(FixedLocator([place for place, _ in ticks]))
        side.set_major_formatter(FixedFormatter([text for _, text in ticks]))
    side.set_minor_locator(NullLocator())
