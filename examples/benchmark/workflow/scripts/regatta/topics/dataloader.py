"""Data loading: throughput of torch's DataLoader over the number of workers."""

import pandas as pd

from regatta.kit.columns import WHOLE, Column
from regatta.report.chart import PlotAxis
from regatta.report.panels import CELL_NAME, LAUNCHES, Figure, Section, by_cell, figure_of_cells, on_one_shape, panels
from regatta.tables.metrics import LOADING
from regatta.tables.primary_times import values_by_cell
from regatta.topics.base import ReportData, Topic

RATE, *_ = LOADING
LOADER = Column("num_workers", "workers", WHOLE)


def section(data: ReportData) -> Section:
    measured = data.cells_of("dataloader").dropna(subset=RATE.name)
    named = data.named(measured, "dataloader", without=("num_workers",)).sort_values("num_workers", kind="stable")
    figures = tuple(
        _figure(f"data-loading-{number}", title, part, data)
        for number, (title, part) in enumerate(panels(named, title=on_one_shape), start=1)
    )
    return Section("data-loading", "Data loading", "No data loading was measured.", figures=figures)


def _figure(figure_id: str, title: str, rows: pd.DataFrame, data: ReportData) -> Figure:
    workers = sorted(set(rows["num_workers"]))
    x = PlotAxis("workers per rank", ticks=tuple((float(num), str(num)) for num in workers))
    y = PlotAxis(RATE.heading(data.device), low=0)
    times = values_by_cell(data.measurements, "p50_s")
    samples = dict(zip(rows["cell"], rows["world_size"] * rows["batch_size"] * rows["num_batches"], strict=True))
    rates = by_cell({cell: [samples[cell] / time for time in times[cell]] for cell in samples})
    shown = (f"Data loading: {title}", rows, "num_workers", RATE, rates)
    return figure_of_cells(figure_id, *shown, (x, y), (CELL_NAME, LOADER, LAUNCHES, *LOADING), "cells")


TERM = (
    "Data loading",
    "One iteration is one epoch on each rank, from the creation of the iterator to the last batch. Workers persist;"
    " nothing is prefetched before. Throughput: samples of all ranks over the time of the slowest. Samples are created"
    " in memory: storage, decoding and copies to a GPU are not included.",
)
TOPIC = Topic("dataloader", "Data loading", section=section, terms=(TERM,))
