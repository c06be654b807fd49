"""Data loading: throughput of torch's DataLoader over the number of workers, tables/data_loading.csv."""

import pandas as pd

from regatta.core.statistics import Estimate, interval_values
from regatta.kit.columns import WHOLE, Column, Columns
from regatta.model.frozen import Cell, FrozenCampaign
from regatta.report.lines import PlotAxis
from regatta.report.panels import CELL_NAME, LAUNCHES, Figure, Section, by_cell, figure_of_cells, on_one_shape, panels
from regatta.store.collect import cell_row
from regatta.store.csv_files import described, make_table, result_column
from regatta.topics.base import ReportData, TableSpec, Topic, launch_means, values_by_cell

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
    samples = cell.world_size * cell.parameters["batch_size"] * cell.parameters["num_batches"]
    row |= interval_values("throughput", "samples_per_s", time.rate(samples))
    if time.mean is None:
        return row
    bandwidth = samples * cell.parameters["sample_bytes"] / time.mean / 1e9
    return row | {"bandwidth_gb_per_s": bandwidth, "first_batch_s": measured["first_batch_s"].median()}


LOADER = Column("num_workers", "workers", WHOLE)


def section(data: ReportData) -> Section:
    rows = data.tables["data_loading"]
    measured = rows[rows["throughput_samples_per_s"].notna()]
    named = data.named(measured, "dataloader", without=("num_workers",)).sort_values("num_workers", kind="stable")
    figures = tuple(
        _figure(f"data-loading-{number}", title, part, data)
        for number, (title, part) in enumerate(panels(named, title=on_one_shape), start=1)
    )
    return Section("data-loading", "Data loading", "No data loading was measured.", figures=figures)


def _figure(figure_id: str, title: str, rows: pd.DataFrame, data: ReportData) -> Figure:
    workers = sorted(set(rows["num_workers"]))
    x = PlotAxis("workers per rank", ticks=tuple((float(num), str(num)) for num in workers))
    y = PlotAxis(THROUGHPUT.heading(data.device), low=0)
    times = values_by_cell(data.measurements, "p50_s")
    samples = dict(zip(rows["cell"], rows["world_size"] * rows["batch_size"] * rows["num_batches"], strict=True))
    throughputs = by_cell({cell: [samples[cell] / time for time in times[cell]] for cell in samples})
    columns = (CELL_NAME, LOADER, LAUNCHES, *DATA_LOADING.of_table("throughput"))
    shown = (f"Data loading: {title}", rows, "num_workers", THROUGHPUT, throughputs)
    return figure_of_cells(figure_id, *shown, (x, y), columns, "data_loading")


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
