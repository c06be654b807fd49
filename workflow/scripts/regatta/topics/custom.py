"""Benchmarks outside Regatta's tree: time of an iteration, and the results that each declares."""

from dataclasses import replace

import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.kit.columns import REAL, WHOLE, Column, table_rows
from regatta.model.frozen import FrozenCampaign
from regatta.report.findings import Finding
from regatta.report.panels import Section
from regatta.report.plots import Plot, figures_of, section_of, tables_of
from regatta.store.csv_files import TYPES
from regatta.tables.cells import results_of
from regatta.tables.metrics import CALL
from regatta.topics import user_code
from regatta.topics.base import ReportData, Topic

TIME = replace(CALL, label="time", shown_as="ms")


def columns_of(campaign: FrozenCampaign, benchmark: str) -> list[Column]:
    """Return the time and the results of a benchmark."""
    return [TIME, *results_of(campaign.custom_benchmarks[benchmark])]


def judged_columns(campaign: FrozenCampaign, benchmark: str) -> tuple[Column, ...]:
    """Return the results of a benchmark of which less or more is better, and its time. The first known one counts."""
    time, *results = columns_of(campaign, benchmark)
    return *(column for column in results if column.better), time


def rows_by_benchmark(data: ReportData) -> list[tuple[str, pd.DataFrame]]:
    """Return the measured cells of each benchmark that has any."""
    found = ((name, data.cells_of(name).dropna(subset=TIME.name)) for name in sorted(data.campaign.custom_benchmarks))
    return [(name, rows) for name, rows in found if len(rows)]


def section(data: ReportData) -> Section | None:
    """Return a figure of each quantity of which less or more is better, and a table of the cells of each benchmark."""
    figures, tables = [], []
    for benchmark, part in rows_by_benchmark(data):
        columns = columns_of(data.campaign, benchmark)
        tables += tables_of(data, part, columns)
        numeric = [axis for axis in axes_of(benchmark).values() if TYPES[axis.type] in (WHOLE, REAL)]
        over = next((axis for axis in numeric if part[axis.name].nunique() > 1), None)
        over = over and Column(over.name, over.label, TYPES[over.type])
        for column in (one for one in columns if one.better):
            plot = Plot(f"custom-{benchmark}-{column.name}".replace("_", "-"), column, over)
            figures += figures_of(data, plot, part, least=2)
    return section_of(data.tables["cells"], TIME, figures=figures, tables=tables)


LEADS = ("{benchmark}: {label} {value}",)
KINDS = user_code.kinds_of_subjects("custom", "other_custom", LEADS, user_code.BEST_OF, "benchmark")


def findings(data: ReportData) -> list[Finding]:
    """Return the best value of each benchmark on the most ranks: of its first result with a direction, or the time."""
    found = []
    for benchmark, part in rows_by_benchmark(data):
        largest, columns = (
            part[part["world_size"] == part["world_size"].max()],
            judged_columns(data.campaign, benchmark),
        )
        column = next(one for one in columns if largest[one.name].notna().any())
        rows, values = table_rows(largest.dropna(subset=column.name)), {"benchmark": benchmark, "label": column.label}
        found.append(user_code.best_value(data, rows, column, **values))
    return user_code.findings_of_subjects(data, KINDS, found)


TOPIC = Topic("custom", "Custom benchmarks", {}, section, findings, kinds=KINDS)
