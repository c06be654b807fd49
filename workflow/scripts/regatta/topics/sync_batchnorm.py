"""Time and memory of synchronized batch norms. Definitions: docs/metrics.md."""

from dataclasses import replace

import numpy as np

from regatta.core.text import ratio_text
from regatta.kit.columns import SYNCHRONIZED, WHOLE, Column
from regatta.kit.kinds import RESULT, Kind, Value
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import Section
from regatta.report.plots import named, tables_of
from regatta.tables.metrics import CALL, LAYER_ERRORS, MEMORY, PASSES
from regatta.topics.base import ReportData, Topic

BOTH_PASSES = replace(CALL, label="forward and backward", note=SYNCHRONIZED)
OF_LAYER = ("parameter_bytes", "gradient_bytes", "saved_bytes", "peak_allocated_bytes")
LAYER = (BOTH_PASSES, *PASSES, *(one for one in MEMORY if one.name in OF_LAYER), *LAYER_ERRORS)
FEATURES = Column("hidden", "features", WHOLE)
ORDER = ("nodes", "gpus_per_node", "implementation", "batch_size", "hidden")


def section(data: ReportData) -> Section | None:
    """Return a table of the layers, by shape and implementation."""
    rows = data.cells_of("sync_batchnorm")
    if rows["time_s"].isna().all():
        return None
    rows = named(data, rows, FEATURES).sort_values([*ORDER], kind="stable")
    caption = "Time, memory and errors of a layer"
    tables = tables_of(data, rows, (FEATURES, *LAYER), caption)
    return Section(ITERATION, tables=tables)


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
    rows = data.cells_of("sync_batchnorm").dropna(subset="time_s")
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
    return [Finding("batch_norm", values, (of_cells("cells", cells),), cells, words=words)]


TOPIC = Topic(
    "batch-norms", "Synchronized batch norm", {}, section, findings, kinds=KINDS, benchmarks=("sync_batchnorm",)
)
