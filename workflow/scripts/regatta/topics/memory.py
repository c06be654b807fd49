"""Memory of a training step: by purpose, and over the batch size if two or more were measured."""

from collections.abc import Callable

import pandas as pd

from regatta.core.names import SEPARATOR
from regatta.core.text import rank_word, size
from regatta.kit.columns import CELL_ID, WHOLE, Column, Columns
from regatta.report.panels import (
    Figure,
    Section,
    Table,
    in_order,
    make_figure,
    name_rows,
    on_one_shape,
    panels,
    size_text,
    text_of,
)
from regatta.report.plotting import MAX_SERIES, Axis, Panel, Point, Series, size_ticks
from regatta.store.collect import cell_row
from regatta.store.csv_files import CELL, SHAPE_COLUMNS, STEP_COLUMNS, make_table, result_column
from regatta.store.records import MEMORY_BYTES
from regatta.topics.base import LaunchValues, ReportData, TableSpec, Topic, cells_of

MEMORY_PARTS = tuple(result_column(name, "memory") for name in MEMORY_BYTES)
MEMORY = Columns(
    CELL_ID,
    *(Column(name, type=CELL[name]) for name in (*STEP_COLUMNS, *SHAPE_COLUMNS)),
    Column("num_launches", type=WHOLE),
    *MEMORY_PARTS,
    Column("part_bytes", type=WHOLE, help="sum of the parts"),
)
PARTS = ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "saved_bytes", "algorithm_bytes")
GIB = 2**30
LINES = {"saved": "saved_bytes", "all parts": "part_bytes"}
MEMORY_COLUMNS = {
    "weights": "parameter_bytes",
    "gradients": "gradient_bytes",
    "optimizer": "optimizer_bytes",
    "saved for backward": "saved_bytes",
    "buckets": "algorithm_bytes",
    "allocator peak": "peak_allocated_bytes",
    "device": "device_used_bytes",
    "process (RSS)": "peak_rss_bytes",
}


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
    found = panels(rows, lambda name: name.series, on_one_shape, most=MAX_SERIES // len(LINES))
    return [_figure(f"memory-{number}", title, part, device) for number, (title, part) in enumerate(found, start=1)]


def _figure(figure_id: str, title: str, rows: pd.DataFrame, device: str) -> Figure:
    rows = rows.sort_values("batch_size", kind="stable")
    several = rows["label"].nunique() > 1
    series = []
    for name, group in rows.groupby("label", sort=False):
        for label, column in LINES.items():
            points = ((row.batch_size, getattr(row, column) / GIB) for row in group.itertuples())
            label = f"{name}\n{label}" if several else label
            series.append(Series(label, tuple(Point(float(x), (y,), y) for x, y in points)))
    batches = sorted(set(rows["batch_size"]))
    x = Axis(f"batch of one {rank_word(device)}", is_log=True, ticks=size_ticks(batches, str))
    y = Axis("GiB", low=0, high=1.05 * float(rows["part_bytes"].max()) / GIB)
    columns = {
        "cell": lambda row: f"{row.cell_name.say(*row.cell_name.series)}{SEPARATOR}batch {row.batch_size}",
        "n": text_of("num_launches", str),
        **size_columns(rows, LINES | {"allocator peak": "peak_allocated_bytes"}),
        "saved per sample": lambda row: size(int(row.saved_bytes / row.batch_size)),
    }
    table = Table.of(f"Memory of {title} by batch size", columns, rows)
    return make_figure(figure_id, f"Memory by batch size: {title}", Panel(x, y, tuple(series)), table, "memory")


def size_columns(rows: pd.DataFrame, columns: dict[str, str]) -> dict[str, Callable]:
    """Return the columns of a table that any row has. columns: heading -> column in bytes."""
    known = {head: column for head, column in columns.items() if rows[column].notna().any()}
    return {head: text_of(column, size_text) for head, column in known.items()}


def parts_table(rows: pd.DataFrame, cell: str, source: str) -> Table | None:
    """Return the memory of each cell by purpose, in the parts that any row has; None if none is known.

    rows: of `name_rows`. cell: heading of the names. source: the table that has the rows.
    """
    known = size_columns(rows, MEMORY_COLUMNS)
    columns = {cell: lambda row: row.cell_name.full, **known}
    title = "Memory per rank by purpose (maximum over ranks and launches)"
    return Table.of(title, columns, rows, (source,)) if known else None


def memory_tables(memory: pd.DataFrame) -> Table | None:
    """Return the memory of each training cell by purpose; None if none is known."""
    rows = name_rows(memory, "train_step")
    rows = in_order(rows[rows["num_launches"] > 0]).sort_values("workload", kind="stable")
    return parts_table(rows, "cell", "memory")


def section(data: ReportData) -> Section:
    table = memory_tables(data.tables["memory"])
    figures = tuple(memory_figures(data.tables["memory"], data.device))
    lead = (
        "Memory of one rank, launch with the highest value. Saved: by autograd for the backward pass. All parts: also"
        " weights, gradients, optimizer and buckets."
    )
    empty = "No memory data was recorded."
    return Section("memory", "Memory", empty, lead if figures else "", figures, (table,) if table else ())


TABLES = {"memory": TableSpec(MEMORY, lambda campaign, tables: memory_table(campaign, tables["measurements"]))}
TOPIC = Topic("memory", "Memory", TABLES, section)
