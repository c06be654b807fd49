"""Time that a step waits for gradient synchronization. Definitions: docs/metrics.md."""

from dataclasses import replace

import pandas as pd

from regatta.core.text import ranks_word, shape
from regatta.kit.columns import FIGURES
from regatta.kit.kinds import RESULT, Kind, Value
from regatta.report import panels
from regatta.report.chart import PlotAxis
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import FULL_NAME, LAUNCHES, Figure, Section, Table
from regatta.tables.metrics import (
    CALL_MEAN,
    CALL_P50,
    CALL_SD,
    EXPOSED,
    EXPOSED_SHARE,
    HIDDEN,
    MEMORY,
    NUM_CALLS,
    PARTS,
)
from regatta.tables.primary_times import values_by_cell
from regatta.topics.base import ReportData, Topic

SIZES = [column for column in MEMORY if column.name in ("gradient_bytes", "algorithm_bytes")]
STEPS = (
    replace(CALL_P50, figures=FIGURES),
    CALL_MEAN,
    CALL_SD,
    *PARTS,
    EXPOSED,
    EXPOSED_SHARE,
    HIDDEN,
    NUM_CALLS,
    *SIZES,
)


def strategy_figures(strategies: pd.DataFrame, measurements: pd.DataFrame) -> list[Figure]:
    """Return the figure of exposed shares: shapes across, one series for each stack; none without a known share.

    With one stack, a series is a strategy. A strategy without a step to compare with, such as fsdp, has no marks.
    """
    rows = strategies[strategies["call_p50_s"].notna()].sort_values("world_size", kind="stable")
    exposed = measurements["whole_step_s"] - measurements["no_sync_s"]
    values = values_by_cell(measurements.assign(share=exposed / measurements["whole_step_s"]), "share")
    rows = rows.assign(num_launches=[len(values.get(cell, ())) for cell in rows["cell"]])  # launches with both steps
    known = rows[rows["exposed_share_ratio"].notna()]
    if known.empty:
        return []
    axis = next((axis for axis in panels.HUE_AXES if axis in known and known[axis].nunique() > 1), "stack")
    names = list(map(shape, known["nodes"], known["gpus_per_node"]))
    shapes = list(dict.fromkeys(names))
    device, lowest = rows["device"].iloc[0], min(min(values[cell]) for cell in known["cell"])
    below = PlotAxis.of_categories(f"nodes × {ranks_word(device)} per node", shapes)
    beside = PlotAxis(EXPOSED_SHARE.heading(device), low=0 if lowest >= 0 else None)
    known = known.assign(place=list(map(shapes.index, names)), label=known[axis])
    chart = panels.chart_of(known, "place", EXPOSED_SHARE, panels.by_cell(values), (below, beside))
    title, columns = "Gradient communication by shape", (FULL_NAME, LAUNCHES, *STEPS)
    table = Table.of_columns(title, columns, rows, device)
    return [Figure("strategies-1", title, chart, table, "cells", EXPOSED_SHARE.block_key)]


def parallel_cells(data: ReportData) -> pd.DataFrame:
    """Return the cells of training steps on several ranks."""
    rows = data.cells_of("train_step")
    return rows[rows["world_size"] > 1]


def section(data: ReportData) -> Section:
    rows = data.named(parallel_cells(data), "train_step")
    figures = strategy_figures(rows, data.measurements)
    empty = "No step was measured both with and without gradient synchronization."
    lead = (
        f"Data: host wait is not communication time on GPUs. {panels.how_to_read(rows, 'exposed_s', 'bar')}"
        if figures
        else ""
    )
    return Section("strategies", "Gradient communication", empty, lead, tuple(figures))


KINDS = (
    Kind(
        *("exposed", RESULT),
        lead=(
            "Exposed communication: {share_ratio:number} of the step ({name}; highest mean of {num_cells} cells).",
            "Exposed communication: {share_ratio:number} of the step ({name}; mean over launches).",
        ),
        parts=("Exposed: {exposed}; step: {step:number}.",),
        term="Exposed communication",
        help="Step time with minus without gradient synchronization: medians of interleaved rounds within each launch,"
        " then the mean over launches. Unknown for fsdp and static graphs, which cannot skip synchronization.",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the cell with the highest mean share of exposed communication in the step."""
    rows = parallel_cells(data).dropna(subset=["exposed_share_ratio", "exposed_s"])
    found = []
    for worst in rows.nlargest(1, "exposed_share_ratio").itertuples():
        columns = {"share_ratio": EXPOSED_SHARE, "exposed": EXPOSED, "step": PARTS[0]}
        values = {name: Value.of(worst, column) for name, column in columns.items()}
        words = {"name": data.names[worst.cell], "num_cells": len(rows) if len(rows) > 1 else None}
        source = of_cells("cells", [worst.cell])
        found.append(Finding("exposed", values, (source,), (worst.cell,), "strategies", words))
    return found


TOPIC = Topic(
    *("gradient_communication", "Gradient communication", {}, section, findings),
    kinds=KINDS,
    benchmarks=("train_step",),
)
