"""Memory of a training step, by purpose."""

import pandas as pd

from regatta.kit.columns import FULL_NAME
from regatta.report.panels import Section, Table
from regatta.report.plots import named
from regatta.tables.metrics import MEMORY
from regatta.topics.base import ReportData, Topic


def parts_tables(data: ReportData, rows: pd.DataFrame) -> tuple[Table, ...]:
    """Return a table of the memory of each measured cell by purpose, in the parts that any has; none if all lack it."""
    rows = rows[rows["num_launches"] > 0]
    if rows[[column.name for column in MEMORY]].isna().all(axis=None):
        return ()
    rows = named(data, rows).sort_values(["subject_place", "workload"], kind="stable")
    return (Table.of_columns("Memory per rank", (FULL_NAME, *MEMORY), rows, data.device, ("cells",)),)


def section(data: ReportData) -> Section | None:
    tables = parts_tables(data, data.cells_of("train_step"))
    return Section("Maximum over ranks and launches.", tables=tables) if tables else None


TOPIC = Topic("memory", "Memory", section=section, benchmarks=("train_step",))
