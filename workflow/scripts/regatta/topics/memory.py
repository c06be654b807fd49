"""Memory of a training step: by purpose, and over the batch size if two or more were measured."""

from dataclasses import replace

import pandas as pd

from regatta.core.names import SEPARATOR
from regatta.core.text import rank_word
from regatta.kit.columns import CELL_ID, TEXT, WHOLE, Column, Columns
from regatta.report.panels import (
    Figure,
    Section,
    Table,
    in_order,
    make_figure,
    name_rows,
    on_one_shape,
    panels,
)
from regatta.report.plotting import MAX_SERIES, Axis, Panel, Point, Series, size_ticks
from regatta.store.collect import cell_row
from regatta.store.csv_files import CELL, SHAPE_COLUMNS, STEP_COLUMNS, make_table, result_column
from regatta.store.records import MEMORY_BYTES
from regatta.topics.base import LaunchValues, ReportData, TableSpec, Topic, cells_of

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
NUM_LAUNCHES = Column("num_launches", "n", WHOLE)
MEMORY = Columns(
    CELL_ID,
    *(Column(name, type=CELL[name]) for name in (*STEP_COLUMNS, *SHAPE_COLUMNS)),
    replace(NUM_LAUNCHES, label=""),
    *MEMORY_PARTS,
    ALL_PARTS,
)
SAVED, PEAK = (result_column(f"{name}_bytes", "memory") for name in ("saved", "peak_allocated"))
BY_BATCH = (SAVED, ALL_PARTS)  # lines of the figure
NAME = Column("name", "cell", TEXT, text=lambda row: row.cell_name.full)
BATCH = Column(
    *("name", "cell", TEXT),
    text=lambda row: f"{row.cell_name.say(*row.cell_name.series)}{SEPARATOR}batch {row.batch_size}",
)


def memory_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell: the largest of its launches, in bytes on one rank."""
    launches = LaunchValues(measurements, MEMORY_BYTES)
    rows = []
    for cell in cells_of(campaign, "train_step"):
        row = cell_row(cell) | {"num_launches": launches.num_launches(cell["id"])}
        row |= {name: launches.largest(cell["id"], name) for name in MEMORY_BYTES}
        if row["saved_bytes"] is not None:
            row["part_bytes"] = sum(row[name] or 0 for name in PARTS)
        rows.append(row)
    return make_table(rows, MEMORY)


def memory_figures(memory: pd.DataFrame, device: str) -> list[Figure]:
    """Return memory on one rank over the batch size, for each workload and shape with two sizes or more."""
    rows = memory[(memory["num_launches"] > 0) & memory["saved_bytes"].notna()]
    # The batch is an axis here, so it is no part of a workload's name.
    rows = in_order(name_rows(rows, "train_step", without=("batch_size",)))
    curves = [on_one_shape(name) + name.label(*name.series) for name in rows["cell_name"]]
    rows = rows[rows.groupby(curves)["batch_size"].transform("nunique") > 1]
    found = panels(rows, lambda name: name.series, on_one_shape, most=MAX_SERIES // len(BY_BATCH))
    return [_figure(f"memory-{number}", title, part, device) for number, (title, part) in enumerate(found, start=1)]


def _figure(figure_id: str, title: str, rows: pd.DataFrame, device: str) -> Figure:
    rows = rows.sort_values("batch_size", kind="stable")
    several, size = rows["label"].nunique() > 1, ALL_PARTS.fitted(rows["part_bytes"].max())
    series = []
    for name, group in rows.groupby("label", sort=False):
        for column in BY_BATCH:
            points = zip(group["batch_size"], size.factor * group[column.name], strict=True)
            label = f"{name}\n{column.label}" if several else column.label
            series.append(Series(label, tuple(Point(float(x), (y,), y) for x, y in points)))
    batches = sorted(set(rows["batch_size"]))
    x = Axis(f"batch of one {rank_word(device)}", is_log=True, ticks=size_ticks(batches, str))
    high = 1.05 * size.shown(rows["part_bytes"].max())
    y = Axis(replace(size, label="memory").heading(device), low=0, high=high)
    columns = (BATCH, NUM_LAUNCHES, *BY_BATCH, PEAK, replace(SAVED, name="sample_bytes", label="saved per sample"))
    rows = rows.assign(sample_bytes=rows["saved_bytes"] / rows["batch_size"])
    table = Table.of_columns(f"Memory of {title} by batch size", columns, rows, device)
    return make_figure(figure_id, f"Memory by batch size: {title}", Panel(x, y, tuple(series)), table, "memory")


def parts_table(rows: pd.DataFrame, source: str, device: str) -> Table | None:
    """Return the memory of each cell by purpose, in the parts that any row has; None if none is known.

    rows: of `name_rows`. source: the table that has the rows.
    """
    title = "Memory per rank by purpose (maximum over ranks and launches)"
    table = Table.of_columns(title, (NAME, *MEMORY.of_table("memory")), rows, device, (source,))
    return table if len(table.columns) > 1 else None


def section(data: ReportData) -> Section:
    rows = name_rows(data.tables["memory"], "train_step")
    rows = in_order(rows[rows["num_launches"] > 0]).sort_values("workload", kind="stable")
    table, figures = parts_table(rows, "memory", data.device), tuple(memory_figures(data.tables["memory"], data.device))
    lead = (
        "Memory of one rank, launch with the highest value. Saved: by autograd for the backward pass. All parts: also"
        " weights, gradients, optimizer and buckets."
    )
    return Section("memory", "Memory", lead=lead if figures else "", figures=figures, tables=(table,) if table else ())


TABLES = {"memory": TableSpec.of(MEMORY, memory_table, "campaign", "measurements")}
TOPIC = Topic("memory", "Memory", TABLES, section)
