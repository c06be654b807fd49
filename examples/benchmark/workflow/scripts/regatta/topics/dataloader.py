"""Data loading: throughput of torch's DataLoader over the number of workers, tables/data_loading.csv."""

import pandas as pd

from regatta.core.statistics import Estimate
from regatta.kit.columns import TEXT, Column, Columns
from regatta.model.frozen import Cell, FrozenCampaign
from regatta.report.panels import (
    LAUNCHES,
    Figure,
    Section,
    Table,
    make_figure,
    make_series,
    name_rows,
    on_one_shape,
    panels,
)
from regatta.report.plotting import Panel, PlotAxis
from regatta.store.collect import cell_row
from regatta.store.csv_files import described, make_table, result_column
from regatta.topics.base import ReportData, TableSpec, Topic, launch_means

PARAMETERS = ("num_workers", "batch_size", "sample_bytes", "num_batches")
THROUGHPUT = Column(
    *("throughput_samples_per_s", "throughput"),
    table="throughput",
    better="larger",
    interval="interval",
    help="samples of an epoch on all ranks / mean over launches of the slowest rank's time",
)
DATA_LOADING = Columns(
    *described(PARAMETERS),
    THROUGHPUT,
    Column("bandwidth_gb_per_s", "bandwidth", table="throughput", better="larger", help="the same in bytes"),
    result_column("first_batch_s", "parts_ns", table="throughput", help="median over launches of the first batch"),
)


def data_loading_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each dataloader cell, measured or not."""
    ok = measurements[(measurements["status"] == "ok") & (measurements["benchmark"] == "dataloader")]
    rows, means = [], launch_means(ok, "p50_s")
    for cell in campaign.cells_of("dataloader"):
        planned = {"num_planned": campaign.repeats}
        rows.append(cell_row(cell) | planned | _columns(cell, ok[ok["cell"] == cell.id], means[cell.id]))
    return make_table(rows, DATA_LOADING)


def _columns(cell: Cell, measured: pd.DataFrame, time: Estimate) -> dict:
    """Return the throughput of all ranks: samples of an epoch / mean over launches of the slowest rank's time."""
    row = {"num_launches": len(measured), "interval": time.kind}
    if time.mean is None:
        return row
    samples = cell.world_size * cell.parameters["batch_size"] * cell.parameters["num_batches"]
    return row | {
        "throughput_samples_per_s": samples / time.mean,
        "throughput_low_samples_per_s": time.high and samples / time.high,
        "throughput_high_samples_per_s": time.low and samples / time.low,
        "bandwidth_gb_per_s": samples * cell.parameters["sample_bytes"] / time.mean / 1e9,
        "first_batch_s": measured["first_batch_s"].median(),
    }


def section(data: ReportData) -> Section:
    rows = data.tables["data_loading"]
    measured = rows[rows["throughput_samples_per_s"].notna()]
    named = name_rows(measured, "dataloader", without=("num_workers",))
    found = panels(named, title=on_one_shape)
    figures = tuple(
        _figure(f"data-loading-{i}", *panel, data.ok, data.device) for i, panel in enumerate(found, start=1)
    )
    return Section("data-loading", "Data loading", "No data loading was measured.", figures=figures)


def _figure(figure_id: str, title: str, rows: pd.DataFrame, ok: pd.DataFrame, device: str) -> Figure:
    def throughputs(row) -> list[float]:
        samples = row.world_size * row.batch_size * row.num_batches
        return [samples / seconds for seconds in ok.loc[ok["cell"] == row.cell, "p50_s"].dropna()]

    series = make_series(rows, "label", "num_workers", throughputs, lambda row: row.throughput_samples_per_s)
    workers = sorted(set(rows["num_workers"]))
    x = PlotAxis("workers per rank", ticks=tuple((float(num), str(num)) for num in workers))
    panel = Panel(x, PlotAxis(THROUGHPUT.heading(device), low=0), series)
    table = _table(title, rows, device)
    return make_figure(figure_id, f"Data loading: {title}", panel, table, "data_loading", THROUGHPUT)


def _table(title: str, rows: pd.DataFrame, device: str) -> Table:
    loaders = [f"{row.num_workers} workers, {row.label}".replace("\n", " ") for row in rows.itertuples()]
    columns = (Column("loader", "loader", TEXT), LAUNCHES, *DATA_LOADING.of_table("throughput"))
    return Table.of_columns(f"Throughput of all ranks: {title}", columns, rows.assign(loader=loaders), device)


TERM = (
    "Data loading",
    "One iteration is one epoch on each rank, from the creation of the iterator to the last batch. Workers persist;"
    " nothing is prefetched before. Throughput: samples of all ranks over the time of the slowest. Samples are created"
    " in memory: storage, decoding and copies to a GPU are not included.",
)
TABLES = {
    "data_loading": TableSpec(
        DATA_LOADING, lambda campaign, tables: data_loading_table(campaign, tables["measurements"])
    )
}
TOPIC = Topic("dataloader", "Data loading", TABLES, section, terms=(TERM,))
