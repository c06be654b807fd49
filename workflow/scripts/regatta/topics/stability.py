"""The topic of stability: variation between launches as one strip, and iterations of the most variable cells.

Stragglers, percentiles and warnings are parts of its section. Definitions: docs/metrics.md.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from regatta.kit.columns import TEXT, WHOLE, Column
from regatta.model.frozen import FrozenCampaign
from regatta.report.cell_numbers import RANGE
from regatta.report.charts import MARKERS, Chart, LegendEntry, Marks, set_ticks
from regatta.report.panels import Figure, Section, Table
from regatta.report.plotting import DASHES, LEFT, MAX_POINTS, PLOT_WIDTH, WIDTH_IN, PlotAxis
from regatta.report.strips import Strip
from regatta.report.svg import CELL, COLORS, GRID
from regatta.store.launch_files import read_one_line
from regatta.store.records import slowest_rank
from regatta.topics.base import ReportData, Topic
from regatta.topics.quality import CELLS_GOOD_RATIO, DISAGREEMENT_RATIO, LAUNCH_RANGES, LIMIT

MOST_ROWS = 20  # of the strip's table
MOST_ECDFS = 5
MOST_STEPS = 50  # of one line; of more iterations these quantiles are drawn
QUANTILES = np.linspace(0, 1, MOST_STEPS + 1)
LEAST_OPACITY = 0.65  # of the last launch's line; dashes distinguish launches too
TICKS = (0, 1, 2, 3, 4, 5, 10, 20, 50, 100, 200, 500, 1000)  # percent
ITERATIONS = (
    Column("launch", "launch", WHOLE),
    Column("num_samples", "iterations", WHOLE),
    *(Column(f"{name}_s", name, shown_as="ms") for name in ("min", "p50", "max")),
)
TIME = Column("iteration_s", "time", shown_as="ms")


def section(data: ReportData) -> Section:
    rows, styles = most_variable(data.tables["launch_ranges"]), stack_styles(data.campaign)
    figures = (variation_figure(rows, styles, data.names, data.device),) if len(rows) else ()
    ecdfs = ecdf_figures(rows, data.ok, data.launches, styles, data.names)
    title, num_over = "Iterations by launch", (rows["range_ratio"] > DISAGREEMENT_RATIO).sum()
    lead = (
        "Share of iterations at or below each time, for the cells with the largest variation. Single synchronized"
        " iterations, slowest rank; pipelined windows are not included."
    )
    # Folded if so few cells vary that confidence may be good.
    summary = "" if num_over > CELLS_GOOD_RATIO * len(rows) else title
    part = Section("launch-times", title, lead=lead, figures=ecdfs, summary=summary)
    lead = f"Variation: range over launches / median. Dashed line: {LIMIT}." if figures else ""
    return Section("stability", "Stability", lead=lead, figures=figures, parts=(part,) if ecdfs else ())


def most_variable(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return the cells with a known range, the largest first; equal ones in the order of the table."""
    return ranges.dropna(subset="range_ratio").sort_values("range_ratio", ascending=False, kind="stable")


def stack_styles(campaign: FrozenCampaign) -> dict[str, LegendEntry]:
    """Return the color and marker of each cell's stack, by the cell's id in the order of the campaign."""
    stacks = {cell.id: cell.stack.name for cell in campaign.cells}
    styles = {}
    for place, stack in enumerate(dict.fromkeys(stacks.values())):
        hue = place % len(COLORS)
        styles[stack] = LegendEntry(stack, COLORS[hue], marker=list(MARKERS)[hue])
    return {cell: styles[stack] for cell, stack in stacks.items()}


def variation_figure(rows: pd.DataFrame, styles: dict[str, LegendEntry], names: dict[str, str], device: str) -> Figure:
    """Return the strip with a mark for each of the rows. styles: of `stack_styles`."""
    cell = Column("cell", "cell", TEXT, text=lambda row: names[row.cell])
    columns = (cell, Column("num_launches", "launches", WHOLE), *LAUNCH_RANGES.of_table("variation"))
    first = f"; first {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else ""
    table = Table.of_columns(f"Variation, largest first{first}", columns, rows.head(MOST_ROWS), device)
    cells, limit = rows["cell"].head(MAX_POINTS).tolist(), RANGE.shown(DISAGREEMENT_RATIO)
    values = [RANGE.shown(ratio) for ratio in rows["range_ratio"].head(MAX_POINTS)]
    high = max(1.15 * values[0], 1.3 * limit)
    above = f", logarithmic above {limit:g}" if high > 2 * limit else ""
    ticks = tuple((tick, f"{tick:g}") for tick in TICKS if tick <= high)
    strip = Strip(
        "cell, the most variable first",
        PlotAxis(f"{RANGE.heading(device)}{above}", low=-0.02 * limit, high=high, ticks=ticks),
        [(value, None, None) for value in values],
        [styles[cell] for cell in cells],
        cells,
        first=1,
        limits=(limit,),
        log_above=limit,
        listed=tuple(dict.fromkeys(styles.values())) if len({styles[cell] for cell in cells}) > 1 else (),
    )
    return Figure("variation", "Variation between launches", strip, table, "launch_ranges", RANGE.block_key)


def iteration_times(ok: pd.DataFrame, cell: str, launches: Path) -> dict[int, np.ndarray]:
    """Return the synchronized iterations of the slowest rank in seconds, by repeat, of each launch that has some."""
    found = {}
    for row in ok[ok["cell"] == cell].sort_values("repeat").itertuples():
        record = read_one_line(launches / f"{row.launch}.jsonl", int(row.line))
        try:
            found[int(row.repeat)] = slowest_rank(record, int(row.world_size)) * 1e-9
        except (AttributeError, TypeError, ValueError):  # imported without times, or changed since it was collected
            continue
    return found


def ecdf_figures(
    rows: pd.DataFrame, ok: pd.DataFrame, launches: Path, styles: dict[str, LegendEntry], names: dict[str, str]
) -> tuple[Figure, ...]:
    """Return the figures of the first MOST_ECDFS rows that vary and have iterations. rows: of `most_variable`."""
    cells = rows.loc[rows["range_ratio"] > 0, "cell"].head(MOST_ECDFS)
    times = {cell: found for cell in cells if (found := iteration_times(ok, cell, launches))}
    figures = []
    for number, (cell, of_launches) in enumerate(times.items(), start=1):
        values = [(repeat + 1, len(of), *np.quantile(of, (0, 0.5, 1))) for repeat, of in of_launches.items()]
        table = pd.DataFrame(values, columns=[column.name for column in ITERATIONS])
        # As a landmark, a table needs a unique name.
        table = Table.of_columns(f"Iterations by launch, {names[cell]}", ITERATIONS, table, "")
        chart = Distributions(cell, of_launches, styles[cell].color)
        figures.append(Figure(f"ecdf-{number}", names[cell], chart, table, "launches/*.jsonl"))
    return tuple(figures)


@dataclass(frozen=True)
class Distributions(Chart):
    """The share of iterations of a cell at or below each time, a line for each launch. times: seconds, by repeat."""

    cell: str
    times: dict[int, np.ndarray]
    color: str

    size_in = WIDTH_IN, 2.0
    axes_text = f"share of iterations by {TIME.heading('')}"

    @property
    def legend(self) -> tuple[LegendEntry, ...]:
        fading = (1 - LEAST_OPACITY) / max(len(self.times) - 1, 1)
        return tuple(
            LegendEntry(f"launch {repeat + 1}", self.color, DASHES[place % len(DASHES)], opacity=1 - fading * place)
            for place, repeat in enumerate(self.times)
        )

    @property
    def lines(self) -> list[tuple[LegendEntry, np.ndarray]]:
        """Return the style of each launch and its times, or quantiles of many, in the unit of the axis."""
        drawn = (
            TIME.factor * (of if len(of) <= MOST_STEPS else np.quantile(of, QUANTILES, method="inverted_cdf"))
            for of in self.times.values()
        )
        return list(zip(self.legend, drawn, strict=True))

    def draw_on(self, canvas) -> None:
        axes = self.add_plot(canvas, LEFT, 0.24, PLOT_WIDTH, 0.71)
        for style, of_launch in self.lines:
            line = {"color": style.color, "alpha": style.opacity, "dashes": style.dashes or (None, None)}
            axes.ecdf(of_launch, linewidth=1.6, **line).set_gid(f"{CELL}{self.cell}")
        axes.set(ylim=(-0.02, 1.04), xlabel=TIME.heading(""))
        set_ticks(axes.yaxis, [(0, "0"), (0.5, "0.5"), (1, "1")])
        axes.locator_params(axis="x", nbins=4)
        axes.grid(visible=True, color=GRID, linewidth=0.8)

    def marks(self) -> Marks:
        rows = (
            (self.cell, style.label, float(time), step / len(of_launch))
            for style, of_launch in self.lines
            for step, time in enumerate(np.sort(of_launch), start=1)
        )
        return Marks(("cell", "series", TIME.heading(""), "share of iterations"), tuple(rows))


TOPIC = Topic("stability", "Stability", section=section, is_of_sweeps=True)
