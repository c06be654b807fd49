"""Memory of a training step, by purpose."""

import pandas as pd

from regatta.kit.columns import CELL_ID, WHOLE, Column, Columns
from regatta.model.frozen import FrozenCampaign
from regatta.report.panels import FULL_NAME, Section, Table, name_rows
from regatta.store.csv_files import CELL, SHAPE_COLUMNS, STEP_COLUMNS, make_table, result_column
from regatta.store.records import MEMORY_BYTES
from regatta.topics.base import ReportData, TableSpec, Topic, largest_values, rows_of_cells

MEMORY_PARTS = tuple(result_column(name, "memory", help="largest over launches, of one rank") for name in MEMORY_BYTES)
PARTS = ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "saved_bytes", "algorithm_bytes")
ALL_PARTS = Column(
    *("part_bytes", "all parts", WHOLE),
    shown_as="MiB",
    better="smaller",
    help="sum of the known values of `parameter_bytes`, `gradient_bytes`, `optimizer_bytes`, `saved_bytes` and"
    " `algorithm_bytes`. Empty if `saved_bytes` is",
    group="memory",
)
MEMORY = Columns(
    CELL_ID,
    *(Column(name, type=CELL[name]) for name in (*STEP_COLUMNS, *SHAPE_COLUMNS)),
    Column("num_launches", type=WHOLE),
    *MEMORY_PARTS,
    ALL_PARTS,
)


def memory_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell: the largest of its launches, in bytes on one rank."""
    found = largest_values(measurements, MEMORY_BYTES)
    parts = found[list(PARTS)].sum(axis=1).where(found["saved_bytes"].notna())
    num_launches = measurements[measurements["status"] == "ok"].groupby("cell").size()
    found = found.assign(part_bytes=parts, num_launches=num_launches)
    return make_table(rows_of_cells(campaign, "train_step", {}, found), MEMORY)


def parts_table(rows: pd.DataFrame, source: str, device: str) -> Table | None:
    """Return the memory of each cell by purpose, in the parts that any row has; None if none is known.

    rows: of `name_rows`. source: the table that has the rows.
    """
    title = "Memory per rank"
    table = Table.of_columns(title, (FULL_NAME, *MEMORY.of_table("memory")), rows, device, (source,))
    return table if len(table.columns) > 1 else None


def section(data: ReportData) -> Section:
    rows = name_rows(data.tables["memory"], "train_step").sort_values("workload", kind="stable")
    table = parts_table(rows[rows["num_launches"] > 0], "memory", data.device)
    return Section("memory", "Memory", lead="Maximum over ranks and launches.", tables=(table,) if table else ())


TABLES = {"memory": TableSpec.of(MEMORY, memory_table, "campaign", "measurements")}
TOPIC = Topic("memory", "Memory", TABLES, section)
