"""How the changes of all pairs are distributed, and the axis that the figure shares with the bars of a list."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from regatta.core.text import is_unknown
from regatta.report.charts import Chart, LegendEntry, Marks, set_ticks
from regatta.report.lines import BELOW_IN, GUIDE_DASHES, LEFT, PLOT_IN, PLOT_WIDTH, WIDTH_IN
from regatta.report.panels import Figure, Table
from regatta.report.svg import CELL, COLORS, GREY, GRID
from regatta.topics.comparison.texts import difference_text

HIGH_IN = PLOT_IN  # height of the plot
MOST_BEYOND = 4  # share of the axis beyond the 90 % of rows nearest to 1, relative to theirs
BINS_IN_MARGIN, MOST_BINS = (4, 2, 1), 40
MIN_PAIRS = 10  # of fewer, the list with intervals shows each
STYLES = {  # by verdict, from the axis upwards: color, opacity
    "equivalent": (GREY, 1),
    "inconclusive": (GREY, 0.4),
    "slower": (COLORS[1], 1),
    "faster": (COLORS[0], 1),
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
        """Return edges (log) over the axis: no bin crosses the margin or 1. Those beyond a narrow margin are wider."""
        if not self.margin:
            return np.linspace(-self.end, self.end, MOST_BINS + 1)
        beyond, most = self.end / self.margin, MOST_BINS // 2
        inside = next((num for num in BINS_IN_MARGIN if num * beyond <= most), 1)
        width = max(1 / inside, (beyond - 1) / (most - inside))
        width = math.ceil(width * inside - 1e-9) / inside
        num = math.ceil((beyond - 1) / width - 1e-9)
        right = [*(np.arange(inside) / inside), *(1 + width * np.arange(num + 1))]
        return self.margin * np.array([*(-edge for edge in reversed(right[1:])), *right])


@dataclass(frozen=True)
class Histogram(Chart):
    """The changes of all pairs: a bar for each verdict in each bin; those beyond the axis are in the last ones."""

    judged: pd.DataFrame

    size_in = WIDTH_IN, 0.15 + HIGH_IN + BELOW_IN
    axes_text = "number of pairs by change"

    @cached_property
    def axis(self) -> RatioAxis:
        return RatioAxis.of(self.judged)

    @cached_property
    def cells(self) -> dict[str, dict[int, list[str]]]:
        """Return the cells of each verdict that occurs by bin, in the order of STYLES."""
        edges, found = self.axis.bins(), {}
        # A ratio at an edge, such as one without a change, is in the bin to its right.
        logs = np.log(self.judged["time_ratio"].astype(float)) + 1e-9
        places = pd.Series(np.clip(np.searchsorted(edges, logs, side="right") - 1, 0, len(edges) - 2), logs.index)
        for verdict in STYLES:
            of_verdict = self.judged[self.judged["verdict"] == verdict]
            if len(of_verdict):
                found[verdict] = of_verdict.groupby(places)["cell"].agg(list).to_dict()
        return found

    @property
    def legend(self) -> tuple[LegendEntry, ...]:
        return tuple(LegendEntry(of, STYLES[of][0], (), "s", STYLES[of][1], has_line=False) for of in self.cells)

    @property
    def table(self) -> Table:
        edges, rows = self.axis.bins(), []
        for place in sorted({place for of_verdict in self.cells.values() for place in of_verdict}):
            low, high = (difference_text(math.exp(edge)) for edge in edges[place : place + 2])
            rows.append((f"{low} to {high}", *(str(len(of.get(place, ()))) for of in self.cells.values())))
        return Table("Pairs by change in time", ("change (%)", *self.cells), tuple(rows))

    def marks(self) -> Marks:
        rows = zip(self.judged["cell"], self.judged["time_ratio"].astype(float), self.judged["verdict"], strict=True)
        return Marks(("cell", "time_ratio", "verdict"), tuple(rows))

    def draw_on(self, canvas) -> None:
        from matplotlib.ticker import MaxNLocator

        axis, edges, height_in = self.axis, self.axis.bins(), self.size_in[1]
        axes = self.add_plot(canvas, LEFT, BELOW_IN / height_in, PLOT_WIDTH, HIGH_IN / height_in)
        axes.axvspan(-axis.margin, axis.margin, color=GRID, alpha=0.4, linewidth=0, zorder=0)
        for place in (-axis.margin, axis.margin):
            axes.axvline(place, color=GREY, dashes=GUIDE_DASHES, linewidth=1, zorder=1)
        heights = np.zeros(len(edges) - 1)
        for verdict, of_verdict in self.cells.items():
            nums = [len(found) for found in of_verdict.values()]
            places, (color, opacity) = list(of_verdict), STYLES[verdict]
            style = {"color": color, "alpha": opacity, "linewidth": 0.6, "align": "edge"}
            boxes = axes.bar(edges[places], nums, np.diff(edges)[places], heights[places], **style)
            for box, found in zip(boxes, of_verdict.values(), strict=True):
                box.set_gid(f"{CELL}{' '.join(found)}")
            heights[places] += nums
        axes.set(
            xlim=(edges[0], edges[-1]),
            ylim=(0, 1.1 * heights.max()),
            xlabel=f"Change in time; shaded: margin of {100 * math.expm1(axis.margin):.3g} %",
        )
        set_ticks(axes.xaxis, axis.ticks)
        first, *_, last = axes.get_xticklabels()  # inside the figure
        first.set_ha("left")
        last.set_ha("right")
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.grid(visible=True, clip_on=False, axis="y")


def histogram(judged: pd.DataFrame) -> Figure | None:
    """Return the figure of the rows, unless they are few."""
    if len(judged) < MIN_PAIRS:
        return None
    chart = Histogram(judged)
    return Figure("ratios", f"Change in time, {len(judged):,} pairs", chart, chart.table)
