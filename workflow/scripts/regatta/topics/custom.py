"""Benchmarks outside Regatta's tree: time of an iteration, and the results that each declares, tables/custom.csv."""

import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.kit.columns import REAL, WHOLE, Column, Columns
from regatta.model.frozen import FrozenCampaign
from regatta.report.findings import Finding
from regatta.report.panels import Section, by_cell, how_to_read
from regatta.report.rows import table_rows
from regatta.store.csv_files import TYPES, described, extended, make_table
from regatta.topics import base, user_code
from regatta.topics.base import MAIN, ReportData, TableSpec, Topic

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


def judged_columns(campaign: FrozenCampaign, benchmark: str) -> tuple[Column, ...]:
    """Return the results of a benchmark of which less or more is better, and its time. The first known one counts."""
    time, *results = columns_of(campaign, benchmark)
    return *(column for column in results if column.better), time


def custom_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each cell of a benchmark outside Regatta's tree, measured or not."""
    times, ok, rows = base.primary_means(measurements), measurements[measurements["status"] == "ok"], []
    for benchmark in campaign.benchmarks or {}:
        time, *results = columns_of(campaign, benchmark)
        means = {time: times} | {column: base.launch_means(ok, column.name, is_log=False) for column in results}
        rows += base.rows_of_cells(campaign, benchmark, means)
    return make_table(rows, CUSTOM)


def section(data: ReportData) -> Section:
    """Return a figure of each quantity of which less or more is better, and a table of the cells of each benchmark."""
    rows, figures, tables = data.tables["custom"].dropna(subset=TIME.name), [], []
    for benchmark, part in rows.groupby("benchmark", sort=True):
        columns = columns_of(data.campaign, benchmark)
        tables += user_code.tables_of_cells(data, "custom", benchmark, part, columns, "benchmark")
        numeric = [axis for axis in axes_of(benchmark).values() if TYPES[axis.type] in (WHOLE, REAL)]
        over = next((axis for axis in numeric if part[axis.name].nunique() > 1), None)
        over = over and Column(over.name, over.label, TYPES[over.type])
        for column in (one for one in columns if one.better):
            figure_id = f"custom-{benchmark}-{column.name}".replace("_", "-")
            is_time = column is TIME
            values = base.steps_by_cell(data.measurements) if is_time else base.values_by_cell(data.ok, column.name)
            column = column.fitted(part[column.name].max()) if is_time or column.unit == "bytes" else column
            shown = (figure_id, "custom", benchmark, part, column, by_cell(values), over)
            figures += user_code.figures_of_cells(data, *shown)
    lead = how_to_read(data.tables["custom"], TIME.name, figures=figures) if tables else ""
    return Section("custom", "Custom benchmarks", lead=lead, figures=tuple(figures), tables=tuple(tables))


LEADS = ("{benchmark}: {label} {value}",)
KINDS = user_code.kinds_of_subjects("custom", "other_custom", LEADS, user_code.BEST_OF, "benchmark")


def findings(data: ReportData) -> list[Finding]:
    """Return the best value of each benchmark on the most ranks: of its first result with a direction, or the time."""
    found = []
    for benchmark, part in data.tables["custom"].dropna(subset=TIME.name).groupby("benchmark", sort=True):
        largest, columns = (
            part[part["world_size"] == part["world_size"].max()],
            judged_columns(data.campaign, benchmark),
        )
        column = next(one for one in columns if largest[one.name].notna().any())
        rows, values = table_rows(largest.dropna(subset=column.name)), {"benchmark": benchmark, "label": column.label}
        found.append(user_code.best_value(data, "custom", rows, column, **values))
    return user_code.findings_of_subjects(KINDS, found)


TABLES = {"custom": TableSpec.of(CUSTOM, custom_table, "campaign", "measurements")}
TOPIC = Topic("custom", "Custom benchmarks", TABLES, section, findings, kinds=KINDS)
