"""Memory of a training step, by purpose."""

import pandas as pd

from regatta.report.panels import FULL_NAME, Section, Table, name_rows
from regatta.tables.metrics import MEMORY
from regatta.topics.base import ReportData, Topic


def parts_table(rows: pd.DataFrame, device: str) -> Table | None:
    """Return the memory of each cell by purpose, in the parts that any row has; None if none is known.

    rows: of `name_rows`.
    """
    table = Table.of_columns("Memory per rank", (FULL_NAME, *MEMORY), rows, device, ("cells",))
    return table if len(table.columns) > 1 else None


def section(data: ReportData) -> Section:
    rows = name_rows(data.cells_of("train_step"), "train_step").sort_values("workload", kind="stable")
    table = parts_table(rows[rows["num_launches"] > 0], data.device)
    return Section("memory", "Memory", lead="Maximum over ranks and launches.", tables=(table,) if table else ())


TOPIC = Topic("memory", "Memory", section=section, benchmarks=("train_step",))
