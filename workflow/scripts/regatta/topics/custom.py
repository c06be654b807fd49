"""Benchmarks outside Regatta's tree: time of an iteration, and the results that each declares, tables/custom.csv."""

from collections.abc import Iterator

import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.core.names import PLACE
from regatta.core.text import is_unknown
from regatta.kit.columns import Column, Columns
from regatta.kit.kinds import RESULT, SUMMARY, Kind, Value
from regatta.model.frozen import FrozenCampaign
from regatta.report import panels
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import CELL_NAME, LAUNCHES, Figure, Section, Table, how_to_read, make_figure, name_rows
from regatta.report.plotting import Panel, PlotAxis
from regatta.report.rows import table_rows
from regatta.store.csv_files import described, extended, make_table
from regatta.topics.base import (
    MAIN,
    ReportData,
    TableSpec,
    Topic,
    headline_rows,
    launch_means,
    rows_of_cells,
    steps_by_cell,
    values_by_cell,
    with_primary,
)
from regatta.topics.scripts import name_below

LOG_RATIO = 16  # values that differ by more are on a logarithmic axis
TIME = Column(
    *("time_s", "time"),
    table="custom",
    shown_as="ms",
    better="smaller",
    interval="interval",
    help="time of an iteration on the slowest rank: mean over launches of each launch's median",
    **MAIN,
)
OF_RESULTS = {"interval": "interval", "table": "custom", "is_shown": True}
CUSTOM = extended(Columns(*described(("benchmark",)), TIME), OF_RESULTS)


def columns_of(campaign: FrozenCampaign, benchmark: str) -> list[Column]:
    """Return the time and the results of a benchmark."""
    return [TIME, *(CUSTOM.added[key] for key in campaign.benchmarks[benchmark]["results"])]


def custom_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each cell of a benchmark outside Regatta's tree, measured or not."""
    times, ok, rows = with_primary(measurements), measurements[measurements["status"] == "ok"], []
    for benchmark in campaign.benchmarks or {}:
        time, *results = columns_of(campaign, benchmark)
        means = {(time.stem, time.unit): launch_means(times, "primary_s")}
        means |= {(of.stem, of.unit): launch_means(ok, of.name, is_log=False) for of in results}
        rows += rows_of_cells(campaign, benchmark, means, ok[["cell"]].set_index("cell"))
    return make_table(rows, CUSTOM)


def section(data: ReportData) -> Section:
    """Return a figure of each quantity of which less or more is better, and a table of the cells of each benchmark."""
    rows, figures, tables = data.tables["custom"].dropna(subset=TIME.name), [], []
    for benchmark, part in rows.groupby("benchmark", sort=True):
        columns = columns_of(data.campaign, benchmark)
        named = name_rows(data.with_stack_places(part), benchmark)
        tables.append(Table.of_columns(benchmark, (CELL_NAME, LAUNCHES, *columns), named, data.device, ("custom",)))
        for column in (one for one in columns if one.better):
            known = part[part[column.name].notna()]
            figures += _figures(data, benchmark, known, column) if len(known) > 1 else ()
    lead = how_to_read(data.tables["custom"], TIME.name) if tables else ""
    return Section("custom", "Custom benchmarks", lead=lead, figures=tuple(figures), tables=tuple(tables))


def _figures(data: ReportData, benchmark: str, rows: pd.DataFrame, column: Column) -> Iterator[Figure]:
    """Yield figures of a column over the first numeric parameter that varies, or over ranks."""
    numeric = [axis.name for axis in axes_of(benchmark).values() if axis.type in ("integer", "number")]
    x = next((name for name in (*numeric, "world_size") if rows[name].nunique() > 1), None)
    if x is None:  # the table is enough
        return
    named = panels.in_order(name_rows(data.with_stack_places(rows), benchmark, without=(x,)))
    shape = () if x == "world_size" else ("shape",)
    found = panels.panels(named, lambda name: (*shape, *name.settings, *PLACE), lambda name: name.parts["subject"])
    below = _axis(axes_of(benchmark)[x].label, rows[x], ticks=True) if shape else panels.ranks_axis(rows)
    column = column.fitted(rows[column.name].max()) if column is TIME or column.unit == "bytes" else column
    values = steps_by_cell(data.measurements) if column.name == TIME.name else values_by_cell(data.ok, column.name)
    kind = column.label[:1].upper() + column.label[1:]
    for number, (title, part) in enumerate(found, start=1):
        series = panels.make_series(
            *(part, "label", x),
            lambda row: [column.shown(value) for value in values.get(row.cell, ())],
            lambda row: column.of(row)[0],
        )
        shown = name_rows(part.drop(columns="cell_name"), benchmark)
        table = Table.of_columns(f"{kind} of {title}", (CELL_NAME, LAUNCHES, column), shown, data.device)
        panel = Panel(below, _axis(column.heading(data.device), rows[column.name]), series)
        name = f"custom-{benchmark}-{column.name}-{number}".replace("_", "-")
        yield make_figure(name, f"{kind}: {title}", panel, table, "custom", column)


def _axis(label: str, values: pd.Series, ticks: bool = False) -> PlotAxis:
    """Return an axis from 0, or a logarithmic one if values differ by far. ticks: whether it has one for each value."""
    is_log = values.min() > 0 and values.max() > LOG_RATIO * values.min()
    if ticks:
        return PlotAxis(label, is_log, ticks=tuple((float(value), f"{value:g}") for value in sorted(values.unique())))
    return PlotAxis(label, is_log, low=0 if values.min() >= 0 and not is_log else None)


KINDS = (
    Kind(
        *("custom", SUMMARY, "{benchmark}: {label} {value}"),
        parts=("{name}", "best mean of {num:cell}", "first of {num_benchmarks:benchmark}"),
    ),
    Kind("other_custom", RESULT, "{benchmark}: {label} {value}.", ("{name}.", "Best mean of {num:cell}.")),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the best value of each benchmark on the most ranks: of its first result with a direction, or the time."""
    rows, found = data.tables["custom"].dropna(subset=TIME.name), []
    groups = [table_rows(part) for _, part in rows.groupby("benchmark", sort=True)]
    for of_benchmark in groups:
        benchmark = of_benchmark[0].benchmark
        largest = [row for row in of_benchmark if row.world_size == max(row.world_size for row in of_benchmark)]
        time, *results = columns_of(data.campaign, benchmark)
        known = [of for of in results if of.better and not all(is_unknown(getattr(row, of.name)) for row in largest)]
        column = next(iter(known), time)
        largest = [row for row in largest if not is_unknown(getattr(row, column.name))]
        shown = headline_rows(data, largest, lambda row: [row.cell])
        best = (max if column.better == "larger" else min)(shown, key=lambda row: getattr(row, column.name))
        values = {"benchmark": benchmark, "label": column.label, "value": Value.of(best, column)}
        words = {"name": name_below(data, best), "num": len(shown) if len(shown) > 1 else None}
        words |= {"num_benchmarks": len(groups) if len(groups) > 1 else None}
        source, kind = of_cells("custom", [row.cell for row in shown]), "other_custom" if found else "custom"
        found.append(Finding(kind, values, (source,), (best.cell,), "custom", words))
    return found


TABLES = {"custom": TableSpec.of(CUSTOM, custom_table, "campaign", "measurements")}
TOPIC = Topic("custom", "Custom benchmarks", TABLES, section, findings, kinds=KINDS)
