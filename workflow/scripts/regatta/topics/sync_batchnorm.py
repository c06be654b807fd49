"""Time and memory of synchronized batch norms: tables/batch_norms.csv. Definitions: docs/metrics.md."""

import numpy as np
import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.core.text import ratio_text
from regatta.kit.columns import MICROSECONDS, SYNCHRONIZED, WHOLE, Column, Columns
from regatta.kit.kinds import RESULT, Kind, Value
from regatta.model.frozen import FrozenCampaign
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import CELL_NAME, LAUNCHES, Section, Table, name_rows
from regatta.store.csv_files import described, make_table, result_column
from regatta.topics import base
from regatta.topics.base import MAIN, ReportData, TableSpec, Topic, launch_means, rows_of_cells

TIME = {"shown_as": MICROSECONDS, "table": "layers", "interval": "interval", "note": SYNCHRONIZED}
PASSES_HELP = "forward and backward: mean over launches of `p50_s`, slowest rank"
BOTH_PASSES = Column(
    *("time_s", "forward and backward"), **TIME | MAIN, better="smaller", help=PASSES_HELP, key="both_passes_us"
)
PASS = "means over launches of the columns of the same name. Means are not additive: `time_s` is not their sum"
PASSES = tuple(result_column(f"{name}_s", "parts_ns", **TIME, help=PASS) for name in ("forward", "backward"))
MAXIMUM = {"table": "layers", "help": "largest over launches"}
LARGEST = (
    *(
        result_column(f"{name}_bytes", "memory", **MAXIMUM)
        for name in ("parameter", "gradient", "saved", "peak_allocated")
    ),
    *(result_column(f"largest_{name}_error", **MAXIMUM) for name in ("output", "input_gradient")),
)
BATCH_NORMS = Columns(*described(axes_of("sync_batchnorm")), BOTH_PASSES, *PASSES, *LARGEST)


def batch_norms_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each sync_batchnorm cell, measured or not."""
    ok = measurements[(measurements["status"] == "ok") & (measurements["benchmark"] == "sync_batchnorm")]
    means = {BOTH_PASSES: base.primary_means(measurements)} | {
        column: launch_means(ok, column.name) for column in PASSES
    }
    largest = base.largest_values(measurements, [column.name for column in LARGEST])
    return make_table(rows_of_cells(campaign, "sync_batchnorm", means, largest), BATCH_NORMS)


FEATURES = Column("hidden", "features", WHOLE)


def section(data: ReportData) -> Section:
    """Return a table of the layers, by shape and implementation."""
    rows, title = data.tables["batch_norms"], "Synchronized batch norm"
    if rows["time_s"].isna().all():
        return Section("batch-norms", title)
    order = ["nodes", "gpus_per_node", "implementation", "batch_size", "hidden"]
    named = name_rows(rows, "sync_batchnorm", without=("hidden",)).sort_values(order, kind="stable")
    columns = (CELL_NAME, FEATURES, LAUNCHES, *BATCH_NORMS.of_table("layers"))
    table = Table.of_columns("Time, memory and errors of a layer", columns, named, data.device, ("batch_norms",))
    return Section("batch-norms", title, lead=ITERATION, tables=(table,))


ITERATION = (
    "Forward and backward pass of one layer on the slowest rank, with a device synchronization in between. Batch: rows"
    " per rank; the statistics cover all ranks. Errors: largest absolute difference from a single-process fp64"
    " reference. Memory is per rank and exact, except for the allocator peak. Saved for backward includes the input."
)
CUSTOM = "Custom SyncBatchNorm takes {least}%s× as long as torch.nn.SyncBatchNorm."
KINDS = (
    Kind(
        *("batch_norm", RESULT, (CUSTOM % "\N{EN DASH}{most}", CUSTOM % "")),
        parts=("Largest difference: {name}, {time} vs. {torch_time}.",),
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return where the custom layer differs most from torch's on the same input, shape and stack."""
    rows = data.tables["batch_norms"].dropna(subset="time_s")
    custom, torch = (rows[rows["implementation"] == name] for name in ("own", "torch"))
    same = ["nodes", "gpus_per_node", "stack", "backend", "batch_size", "hidden", "dtype"]
    pairs = custom.merge(torch, on=same, suffixes=("", "_torch"))
    ratios = (pairs["time_s"] / pairs["time_s_torch"]).astype(float)
    if pairs.empty:
        return []
    largest = int(np.log(ratios).abs().idxmax())
    cells = (pairs.loc[largest, "cell"], pairs.loc[largest, "cell_torch"])
    time, torch_time = (Value.of(rows[rows["cell"] == cell].iloc[0], BOTH_PASSES) for cell in cells)
    values = {"time_ratio": ratios[largest], "least_ratio": ratios.min(), "most_ratio": ratios.max()}
    values |= {"num_inputs": len(pairs), "time": time, "torch_time": torch_time}
    least, most = ratio_text(ratios.min()), ratio_text(ratios.max())
    words = {"name": data.names[cells[0]], "least": least, "most": most if most != least else None}
    return [Finding("batch_norm", values, (of_cells("batch_norms", cells),), cells, "batch-norms", words)]


TABLES = {"batch_norms": TableSpec.of(BATCH_NORMS, batch_norms_table, "campaign", "measurements")}
TOPIC = Topic("sync_batchnorm", "Synchronized batch norm", TABLES, section, findings, kinds=KINDS)
