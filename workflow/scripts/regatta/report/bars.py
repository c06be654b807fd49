"""Draw stacked bars: what is left of a whole and the parts that are lost, one bar for each row, with their numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from regatta.core.text import with_minus_signs
from regatta.report.findings import percent_number
from regatta.report.panels import Figure, Table
from regatta.report.plotting import Marks, new_canvas, set_ticks
from regatta.report.svg import CELL, COLORS, GRID, GROUND, INK, LEVEL, PAGE, Medium

WIDTH_IN, ROW_IN, AROUND_IN = 5.6, 0.17, 0.85
NUMBER = 0.11  # of the width, for each column of numbers
FILLS = (LEVEL, COLORS[5], COLORS[1], COLORS[4])  # of what is left, and of each part


@dataclass(frozen=True)
class Bar:
    """One row. group: the heading above it and those that follow with the same one. parts: in percent.

    The first part is what is left, the others are lost; None: unknown, or does not apply. A gain is negative and has no
    place in the bar.
    """

    group: str
    label: str
    cell: str
    parts: tuple[float | None, ...]


def marks_of_bars(bars: Sequence[Bar], heads: Sequence[str]) -> Marks:
    """Return the segments of the bars. heads: of what is left, and of each part."""
    columns = ("cell", "name", "shape", *(f"{head} (%)" for head in heads))
    return Marks(columns, tuple((bar.cell, bar.group, bar.label, *bar.parts) for bar in bars))


def make_bars_figure(
    figure_id: str, title: str, bars: Sequence[Bar], heads: Sequence[str], table: Table, source: str, shows: str
) -> Figure:
    """Return a figure of bars. heads: as in `marks_of_bars`."""

    def draw(drawn_id: str, medium: Medium) -> str:
        return draw_bars(bars, heads, drawn_id, title, medium)

    return Figure(figure_id, title, draw, table, source, marks=partial(marks_of_bars, bars, heads), shows=shows)


def draw_bars(bars: Sequence[Bar], heads: Sequence[str], figure_id: str, title: str, medium: Medium = PAGE) -> str:
    """Draw bars from top to bottom, each group below its name. heads: as in `marks_of_bars`."""
    from matplotlib.patches import Rectangle

    places, groups = [], {}
    for bar in bars:
        if bar.group not in groups:
            groups[bar.group] = len(places) + len(groups)
        places.append(len(places) + len(groups))
    num_rows = len(bars) + len(groups)
    height_in = AROUND_IN + ROW_IN * num_rows
    with new_canvas(medium, WIDTH_IN, height_in, **{"svg.hashsalt": figure_id}) as figure:
        axes = figure.add_axes((0.09, 0.4 / height_in, 0.9 - NUMBER * len(heads), 1 - AROUND_IN / height_in))
        number_pt = NUMBER * 72 * figure.get_figwidth()
        text = {"fontsize": 9, "va": "center", "parse_math": False}
        for name, row in groups.items():
            axes.annotate(name, (0, row), (-34, 0), textcoords="offset points", fontweight="bold", **text)
        for bar, row in zip(bars, places, strict=True):
            begin = 0.0
            for value, fill in zip(bar.parts, FILLS, strict=True):
                if value is not None and value > 0:
                    shape = {"facecolor": fill, "edgecolor": GROUND, "linewidth": 1, "gid": f"{CELL}{bar.cell}"}
                    axes.add_artist(Rectangle((begin, row - 0.4), value, 0.8, **shape))
                    begin += value
            for column, value in enumerate(bar.parts):
                shown = "\N{EN DASH}" if value is None else with_minus_signs(percent_number(value / 100))
                place = ((column + 0.9) * number_pt, 0)
                at = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "ha": "right"}
                axes.annotate(shown, (1, row), place, **at, **text)
        for column, (head, fill) in enumerate(zip(heads, FILLS, strict=True)):
            for words, color, above in ((head.replace("-", "-\n"), INK, 5), ("\N{BLACK SQUARE}", fill, 25)):
                at = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "right", "va": "bottom"}
                axes.annotate(words, (1, 1), ((column + 0.9) * number_pt, above), color=color, fontsize=8, **at)
        axes.set(xlim=(0, max([100, *(sum(v for v in b.parts if v and v > 0) for b in bars)])))
        axes.spines["left"].set_visible(False)
        axes.set(ylim=(num_rows - 0.5, -0.5), xlabel="share of the ideal throughput (%)")
        set_ticks(axes.xaxis, [(tick, str(tick)) for tick in range(0, 101, 25)])
        set_ticks(axes.yaxis, [(row, bar.label) for row, bar in zip(places, bars, strict=True)])
        axes.grid(visible=True, axis="x", color=GRID, linewidth=0.8)
        return medium.write(figure, title, ())
