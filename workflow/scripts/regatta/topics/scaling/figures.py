"""The figures of train_step: throughput and efficiency over the number of ranks."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from regatta.core.names import PLACE
from regatta.core.text import is_unknown, thousands
from regatta.kit.columns import TEXT, Column
from regatta.report import panels
from regatta.report.panels import CELL_NAME, LAUNCHES, MOST_FIGURES, Figure, Table
from regatta.report.plotting import Panel, PlotAxis, Series
from regatta.report.rows import Row, table_rows
from regatta.topics.base import ReportData, steps_by_cell
from regatta.topics.scaling.scaling_tables import EFFICIENCY, PER_RANK, SCALING, THROUGHPUT

Steps = dict[str, list[float]]  # seconds per step of each launch, by cell
HEADLINE_IN = 3.2  # height of its plot
LEAST_ZOOMED = 0.6  # lowest efficiency of an axis that does not begin at 0
BRIEF_NAME = Column("brief_name", "cell", TEXT, text=lambda row: row.cell_name.brief)
MOST_LINES = 6  # of the headline, whose labels stand at their ends
OTHER_BUCKETS = "other bucket sizes"


def scaling_figures(scaling: pd.DataFrame, steps: Steps, device: str) -> list[Figure]:
    """Return throughput and efficiency in turn, for each workload."""
    split = panels.panels(panels.in_order(panels.name_rows(scaling, "train_step")), context="bucket_cap_mb")
    shown = [(title, rows) for title, rows in split if rows["step_s"].notna().any()]
    if len(shown) > MOST_FIGURES:
        shown.sort(key=lambda panel: _lowest_efficiency(panel[1]))
    figures = []
    rates = PlotAxis(THROUGHPUT.heading(device), is_log=True, show=thousands)
    ratios = efficiency_axis(pd.concat([rows for _, rows in shown]), device) if shown else None
    for number, (title, rows) in enumerate(shown, start=1):
        others = rows[(rows["cell"] != rows["baseline"]).fillna(True)]
        sizes = sorted({1, *rows.loc[rows["step_s"].notna(), "world_size"]})
        of_rank = (others[PER_RANK.name] / others[EFFICIENCY.name]).max()
        has_base, of = not is_unknown(of_rank), (number, title, steps, device)
        ideal = (("ideal", tuple((n, float(of_rank) * n) for n in sizes)),) if has_base else ()
        figures.append(_figure(*of, rows, THROUGHPUT, rates, ideal))
        if has_base:
            full = (("100 %", ((min(others["world_size"]), 100), (max(others["world_size"]), 100))),)
            figures.append(_figure(*of, others, EFFICIENCY, ratios, full))
    return figures


def _figure(
    number: int,
    title: str,
    steps: Steps,
    device: str,
    rows: pd.DataFrame,
    column: Column,
    axis: PlotAxis,
    guides: tuple = (),
) -> Figure:
    """Return the figure of a rate over the ranks. A launch has the column's value for its time per step."""

    def value(row: Row) -> float | None:
        return column.of(row)[0]

    def of_launches(row: Row) -> list[float]:
        known = [] if value(row) is None else steps.get(row.cell, [])
        return [value(row) * row.step_s / step_s for step_s in known]

    kind, measured = column.label.capitalize(), rows[rows["step_s"].notna()]
    series = best_buckets_first(panels.make_series(rows, "label", "world_size", of_launches, value), measured)
    panel = Panel(panels.ranks_axis(measured), axis, series, guides, context=OTHER_BUCKETS)
    columns = (CELL_NAME, LAUNCHES, *SCALING.of_table(column.label))
    table = Table.of_columns(f"{kind} of {title}", columns, rows, device)
    return panels.make_figure(f"{column.label}-{number}", f"{kind}: {title}", panel, table, "scaling", column)


def headline(data: ReportData, rows: pd.DataFrame) -> Figure | None:
    """Return the efficiency of the fastest cell of each size, a line for each workload and stack.

    None without two sizes. Of more than MOST_LINES lines, those with the lowest efficiency. rows: with names.
    """
    known = rows[rows["efficiency_ratio"].notna() & (rows["cell"] != rows["baseline"]).fillna(False)]
    lines = []
    for _, of_line in known.groupby(["workload", "stack", "backend"], sort=True):
        best = [fastest(table_rows(of_size)) for _, of_size in of_line.groupby("world_size", sort=True)]
        lines += [best] if len(best) > 1 else []
    if not lines:
        return None
    lines.sort(key=lambda line: (-line[-1].world_size, line[-1].efficiency_ratio))
    shown = known[known["cell"].isin({row.cell for line in lines[:MOST_LINES] for row in line})]
    label = [name.say("subject", *name.settings, *PLACE, always=("subject",)) for name in shown["cell_name"]]
    steps = steps_by_cell(data.measurements)

    def of_launches(row: Row) -> list[float]:
        return [EFFICIENCY.of(row)[0] * row.step_s / step_s for step_s in steps.get(row.cell, ())]

    series = panels.make_series(shown.assign(label=label), *("label", "world_size"), of_launches, _efficiency)
    ends = min(shown["world_size"]), max(shown["world_size"])
    guides = (("100 %", tuple((end, 100) for end in ends)),)
    axis = efficiency_axis(shown, data.device)
    panel = Panel(panels.ranks_axis(shown), axis, series, guides, plot_in=HEADLINE_IN)
    title = "Scaling efficiency of the fastest cells"
    title += f": lowest {MOST_LINES} of {len(lines)}" if len(lines) > MOST_LINES else ""
    table = Table.of_columns(title, (BRIEF_NAME, LAUNCHES, EFFICIENCY), shown, data.device)
    return panels.make_figure("headline", title, panel, table, "scaling", EFFICIENCY)


def efficiency_axis(rows: pd.DataFrame, device: str) -> PlotAxis:
    """Return the axis of efficiencies; it begins above 0, and says so, if their intervals are above LEAST_ZOOMED."""
    lowest = rows[["efficiency_ratio", "efficiency_low_ratio"]].min(axis=None)
    low = math.floor(10 * lowest - 0.5) * 10 if not is_unknown(lowest) and lowest > LEAST_ZOOMED else 0
    heading = EFFICIENCY.heading(device)
    return PlotAxis(f"{heading}, axis from {low}" if low else heading, low=low)


def _efficiency(row: Row) -> float:
    return EFFICIENCY.of(row)[0]


def _lowest_efficiency(rows: pd.DataFrame) -> float:
    """Return the efficiency of the fastest cell at the largest shape with one; infinity without any."""
    known = table_rows(rows[rows["efficiency_ratio"].notna()])
    return float(fastest(known).efficiency_ratio) if known else math.inf


def best_buckets_first(series: tuple[Series, ...], measured: pd.DataFrame) -> tuple[Series, ...]:
    """Return the series, those as context whose bucket size is not the fastest at the largest shape of its kind."""
    kinds = defaultdict(list)
    for row in table_rows(measured):
        kinds[row.cell_name.without("shape", "bucket_cap_mb").full].append(row)
    best = {fastest(rows).label for rows in kinds.values()}
    return tuple(replace(one, is_context=one.label not in best) for one in series)


def candidates(rows: Sequence[Row]) -> list[Row]:
    """Return the measured cells of the largest world size; if any have all their launches, those alone.

    The mean of fewer launches is more prone to selection bias.
    """
    measured = [row for row in rows if not is_unknown(row.step_s)]
    largest = max((row.world_size for row in measured), default=0)
    of_largest = [row for row in measured if row.world_size == largest]
    return [row for row in of_largest if row.num_launches >= row.num_planned] or of_largest


def fastest(rows: Sequence[Row]) -> Row:
    """Return the fastest of the candidates, the first of equal ones."""
    return max(candidates(rows), key=lambda row: row.throughput_samples_per_s)
