"""Time that a step waits for gradient synchronization. Definitions: docs/metrics.md."""

from dataclasses import replace

import pandas as pd

from regatta.kit.columns import FIGURES
from regatta.kit.kinds import RESULT, Kind, Value
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import Section, folded, series_fields, workload
from regatta.report.plots import Plot, figures_of, named, section_of
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
    THROUGHPUT,
)
from regatta.topics.base import ReportData, Topic, with_context

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


OTHER_BUCKETS = "other bucket sizes"
SHARE = replace(EXPOSED_SHARE, applies=None)  # so that a strategy without a step to compare with has a row
PLOT = Plot("strategies", SHARE, None, STEPS, series_fields, workload, context=OTHER_BUCKETS)


def parallel_cells(data: ReportData) -> pd.DataFrame:
    """Return the cells of training steps on several ranks."""
    rows = data.cells_of("train_step")
    return rows[rows["world_size"] > 1]


def section(data: ReportData) -> Section | None:
    """Return the share of exposed communication; of one shape, the figures are folded.

    A strategy without a step to compare with, as fsdp, has no marks.
    """
    rows = parallel_cells(data)
    timed = with_context(named(data, rows.dropna(subset=CALL_P50.name)), "bucket_cap_mb", THROUGHPUT)
    sentences = ("Data: host wait is not communication time on GPUs.",)
    found = section_of(rows, EXPOSED_SHARE, sentences, figures_of(data, PLOT, timed))
    if not found or found.figures[0].chart.form != "rows":
        return found
    return replace(found, figures=(), parts=folded("exposed", "Exposed share of the step", found.figures))


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
        found.append(Finding("exposed", values, (source,), (worst.cell,), words=words))
    return found


TOPIC = Topic(
    *("strategies", "Gradient communication", {}, section, findings),
    kinds=KINDS,
    benchmarks=("train_step",),
)
