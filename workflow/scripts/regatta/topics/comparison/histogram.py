"""How the changes of all pairs are distributed, and the axis that the figure shares with the bars of a list."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from regatta.core.text import is_unknown
from regatta.report.panels import Figure, Table
from regatta.report.plotting import (
    BELOW_IN,
    GUIDE_DASHES,
    LEFT,
    PLOT_IN,
    PLOT_WIDTH,
    WIDTH_IN,
    LegendEntry,
    Marks,
    new_canvas,
    set_ticks,
)
from regatta.report.svg import CELL, COLORS, GREY, GRID, GROUND, Medium
from regatta.topics.comparison.texts import difference_text

MOST_BEYOND = 4  # share of the axis beyond the 90 % of rows nearest to 1, relative to theirs
BINS_IN_MARGIN, MOST_BINS = 4, 40
HEIGHT_IN = 0.15 + PLOT_IN + BELOW_IN
# By verdict, from the axis upwards, as the headings of the summary: label, fill, edge.
STYLES = {
    "equivalent": ("equivalent", GREY, GREY),
    "inconclusive": ("inconclusive", GROUND, GREY),
    "slower": ("slower", COLORS[1], COLORS[1]),
    "faster": ("faster", COLORS[0], COLORS[0]),
}


@dataclass(frozen=True)
class RatioAxis:
    """A logarithmic axis of ratios, with 1 in its middle. end: log of the ratio at its right end. margin: log."""

    end: float
    margin: float

    @classmethod
    def of(cls, judged: pd.DataFrame) -> "RatioAxis":
        """Return the axis of some rows. A few far outliers lie beyond it: with them, nothing else could be read."""
        margin = math.log1p(float(judged["margin_ratio"].max()))
        columns = ["time_ratio", "time_low_ratio", "time_high_ratio"]
        sizes = np.abs(np.log(judged[columns].astype(float))).max(axis=1).to_numpy()
        end = min(sizes.max(), MOST_BEYOND * np.quantile(sizes, 0.9))
        return cls(float(max(end, 2 * margin, 0.01)), margin)

    def percent(self, ratio: float) -> float:
        """Return the place of a ratio, from 0 to 100; one beyond the axis is at its end."""
        return round(50 + 50 * min(max(math.log(ratio) / self.end, -1.0), 1.0), 1)

    def strip(self, row: object) -> str:
        """Return a row as a path in a box of 100 x 16: a line from end to end, a mark at the ratio, arrows beyond."""
        ends = (row.time_ratio,) * 2 if is_unknown(row.time_low_ratio) else (row.time_low_ratio, row.time_high_ratio)
        low, middle, high = map(self.percent, (ends[0], row.time_ratio, ends[1]))
        arrows = "M3 5L0 8L3 11" if math.log(ends[0]) < -self.end else ""
        arrows += "M97 5L100 8L97 11" if math.log(ends[1]) > self.end else ""
        return f"M{low:g} 8H{high:g}M{middle:g} 3V13{arrows}"

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Return places (log) and texts in percent: no change, the ends, and the margin where its text has room."""
        limits = (-self.margin, self.margin) if self.margin > 0.15 * self.end else ()
        places = sorted({0.0, *limits, -self.end, self.end})
        return [(place, f"{difference_text(math.exp(place))} %" if place else "0") for place in places]

    def bins(self) -> np.ndarray:
        """Return edges (log) over the axis. The margin is one of them, unless it is far too narrow for the axis."""
        width = self.margin / BINS_IN_MARGIN or 2 * self.end / MOST_BINS
        while 2 * self.end / width > MOST_BINS:
            width *= 2
        num = math.ceil(self.end / width - 1e-9)
        return np.arange(-num, num + 1) * width


def histogram(judged: pd.DataFrame) -> Figure:
    """Return the figure of the rows, a bar for each verdict in each bin; those beyond the axis are in the last ones."""
    axis = RatioAxis.of(judged)
    edges = axis.bins()
    # A ratio at an edge, such as one without a change, is in the bin to its right.
    logs = np.log(judged["time_ratio"].astype(float).to_numpy()) + 1e-9
    places = np.clip(np.searchsorted(edges, logs, side="right") - 1, 0, len(edges) - 2).tolist()
    cells: dict[tuple[int, str], list[str]] = {}
    for place, verdict, cell in zip(places, judged["verdict"], judged["cell"], strict=True):
        cells.setdefault((place, verdict), []).append(cell)
    title = f"Change in time, {len(judged):,} {'pair' if len(judged) == 1 else 'pairs'}"
    used = [verdict for verdict in STYLES if any(verdict == of for _, of in cells)]
    legend = tuple(LegendEntry(STYLES[of][0], GREY if of == "inconclusive" else STYLES[of][1]) for of in used)
    table = _table(edges, cells, used)
    marks = partial(_marks, judged)
    return Figure("ratios", title, partial(_draw, axis, edges, cells, title), table, "", legend, marks=marks)


def _marks(judged: pd.DataFrame) -> Marks:
    """Return the ratio and the verdict of each pair."""
    rows = zip(judged["cell"], judged["time_ratio"].astype(float), judged["verdict"], strict=True)
    return Marks(("cell", "time_ratio", "verdict"), tuple(rows))


def _table(edges: np.ndarray, cells: dict[tuple[int, str], list[str]], used: Sequence[str]) -> Table:
    rows = []
    for place in sorted({place for place, _ in cells}):
        low, high = (difference_text(math.exp(edge)) for edge in edges[place : place + 2])
        rows.append((f"{low} to {high}", *(str(len(cells.get((place, of), ()))) for of in used)))
    return Table("Pairs by change in time", ("change (%)", *(STYLES[of][0] for of in used)), tuple(rows))


def _draw(axis: RatioAxis, edges: np.ndarray, cells: dict, title: str, figure_id: str, medium: Medium) -> str:
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator

    heights: Counter[int] = Counter()
    with new_canvas(medium, WIDTH_IN, HEIGHT_IN, **{"svg.hashsalt": figure_id}) as canvas:
        axes = canvas.add_axes((LEFT, BELOW_IN / HEIGHT_IN, PLOT_WIDTH, PLOT_IN / HEIGHT_IN))
        axes.axvspan(-axis.margin, axis.margin, color=GRID, alpha=0.4, linewidth=0, zorder=0)
        for place in (-axis.margin, axis.margin):
            axes.axvline(place, color=GREY, dashes=GUIDE_DASHES, linewidth=1, zorder=1)
        for verdict, (_, fill, edge) in STYLES.items():
            for place in range(len(edges) - 1):
                if found := cells.get((place, verdict)):
                    box = (edges[place], heights[place]), edges[place + 1] - edges[place], len(found)
                    axes.add_artist(
                        Rectangle(*box, gid=f"{CELL}{' '.join(found)}", facecolor=fill, edgecolor=edge, linewidth=0.6)
                    )
                    heights[place] += len(found)
        axes.set(
            xlim=(edges[0], edges[-1]), ylim=(0, 1.1 * max(heights.values())), xlabel="Change in time; margin shaded"
        )
        set_ticks(axes.xaxis, axis.ticks)
        first, *_, last = axes.get_xticklabels()  # inside the figure
        first.set_ha("left")
        last.set_ha("right")
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.grid(visible=True, axis="y", color=GRID, linewidth=0.8)
        return medium.write(canvas, f"{title}: number of pairs by change", ())
