"""Time and memory of synchronized batch norms: tables/batch_norms.csv. Definitions: docs/metrics.md."""

import numpy as np
import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.core.names import PLACE
from regatta.core.statistics import interval_values
from regatta.core.text import ratio_text, thousands
from regatta.kit.columns import MICROSECONDS, SYNCHRONIZED, TEXT, WHOLE, Column, Columns
from regatta.kit.findings import RESULT, Kind, Value
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import (
    LAUNCHES,
    Figure,
    Section,
    Table,
    how_to_read,
    make_figure,
    make_series,
    name_rows,
    panels,
)
from regatta.report.plotting import Axis, Panel, size_ticks
from regatta.store.collect import cell_row
from regatta.store.csv_files import described, make_table, result_column
from regatta.topics.base import (
    LaunchValues,
    ReportData,
    TableSpec,
    Topic,
    cells_of,
    launch_means,
    steps_by_cell,
    with_primary,
)

TIME = {"shown_as": MICROSECONDS, "table": "layers", "interval": "interval", "note": SYNCHRONIZED}
BOTH_PASSES = Column(
    *("time_s", "forward and backward"),
    **TIME,
    better="smaller",
    help="forward and backward: mean over launches of `p50_s`, slowest rank",
    key="both_passes_us",
    is_shown=True,
    is_main=True,
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


def batch_norms_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each sync_batchnorm cell, measured or not."""
    largest, rows = [column.name for column in LARGEST], []
    launches = LaunchValues(measurements, largest)
    ok = measurements[(measurements["status"] == "ok") & (measurements["benchmark"] == "sync_batchnorm")]
    means = {"time": launch_means(with_primary(measurements), "primary_s")}  # of all cells: they share a prior
    means |= {column.stem: launch_means(ok, column.name) for column in PASSES}
    for cell in cells_of(campaign, "sync_batchnorm"):
        times = {name: of_cells[cell["id"]] for name, of_cells in means.items()}
        row = cell_row(cell) | {"num_planned": campaign["repeats"], "num_launches": launches.num_launches(cell["id"])}
        row |= {"interval": times["time"].kind} | {name: launches.largest(cell["id"], name) for name in largest}
        for name, found in times.items():
            row |= interval_values(name, "s", found)
        rows.append(row)
    return make_table(rows, BATCH_NORMS)


MOST_FINDINGS = 2
LAYER = Column(
    *("layer", "layer", TEXT),
    text=lambda row: row.cell_name.say(*row.cell_name.series, *row.cell_name.settings, *PLACE),
)
FEATURES = Column("hidden", "features", WHOLE)


def batch_norm_figures(batch_norms: pd.DataFrame, medians: dict[str, list[float]]) -> list[Figure]:
    """Return time over features for each shape. medians: seconds of each launch, by cell."""
    measured = batch_norms[batch_norms["time_s"].notna()]
    if measured.empty:
        return []
    rows = batch_norms.sort_values(["nodes", "gpus_per_node", "implementation", "batch_size", "hidden"], kind="stable")
    rows = name_rows(rows, "sync_batchnorm", without=("hidden",))
    features = sorted(set(measured["hidden"]))
    device = rows["device"].iloc[0]
    x = Axis(FEATURES.heading(device), True, min(features), max(features), size_ticks(features, str, most=4))
    all_times = [BOTH_PASSES.shown(t) for cell in measured["cell"] for t in medians[cell]]
    y = Axis(BOTH_PASSES.heading(device), True, min(all_times), max(all_times), show=thousands)
    found = [
        (title, part)
        for _, of_shape in rows.groupby(["nodes", "gpus_per_node"], sort=True)
        for title, part in panels(
            of_shape, lambda name: (*name.series, *name.settings, *PLACE), lambda name: name.say("shape")
        )
        if part["time_s"].notna().any()
    ]
    return [_figure(f"batch-norm-{number}", *panel, medians, x, y) for number, panel in enumerate(found, start=1)]


def _figure(figure_id: str, title: str, rows: pd.DataFrame, medians: dict, x: Axis, y: Axis) -> Figure:
    series = make_series(
        rows,
        "label",
        "hidden",
        lambda row: map(BOTH_PASSES.shown, medians.get(row.cell, [])),
        lambda row: BOTH_PASSES.shown(row.time_s),
    )
    columns = (LAYER, FEATURES, LAUNCHES, *BATCH_NORMS.of_table("layers"))
    table = Table.of_columns(f"Time, memory and errors of {title}", columns, rows, rows["device"].iloc[0])
    return make_figure(figure_id, f"Batch norm: {title}", Panel(x, y, series), table, "batch_norms")


def section(data: ReportData) -> Section:
    rows = data.tables["batch_norms"]
    figures = batch_norm_figures(rows, steps_by_cell(data.measurements))
    empty = "No synchronized batch norm was measured."
    lead = "Forward and backward pass of one layer on the slowest rank."
    lead = f"{lead} {how_to_read(rows, 'time_s')}" if figures else ""
    return Section("batch-norms", "Synchronized batch norm", empty, lead, tuple(figures))


KINDS = (
    Kind(
        *("batch_norm", RESULT),
        lead=(
            "Custom SyncBatchNorm takes {least}\N{EN DASH}{most}× as long as torch.nn.SyncBatchNorm.",
            "Custom SyncBatchNorm takes {least}× as long as torch.nn.SyncBatchNorm.",
        ),
        parts=("Largest difference: {name}, {time} vs. {torch_time}.",),
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return where the custom layer differs most from torch's on the same input, one for each shape and stack."""
    rows = data.tables["batch_norms"].dropna(subset="time_s")
    groups = rows.groupby(["nodes", "gpus_per_node", "stack", "backend"], sort=True)
    found = [finding for _, group in groups if (finding := _comparison(group, data.names))]
    found.sort(key=lambda finding: -abs(np.log(finding.values["time_ratio"])))
    return found[:MOST_FINDINGS]


def _comparison(rows: pd.DataFrame, names: dict[str, str]) -> Finding | None:
    """Return the time ratios of the custom layer and torch's on the same input; None without such an input."""
    key = ["batch_size", "hidden", "dtype", "stack", "backend"]
    cells = rows.pivot_table(index=key, columns="implementation", values="cell", aggfunc="first")
    if not {"own", "torch"} <= set(cells) or (cells := cells[["own", "torch"]].dropna()).empty:
        return None
    by_cell = {row.cell: row for row in rows.itertuples()}
    pairs = [(by_cell[custom], by_cell[torch]) for custom, torch in cells.to_numpy()]
    ratios = [float(custom.time_s / torch.time_s) for custom, torch in pairs]
    most = int(np.abs(np.log(ratios)).argmax())
    custom, torch = pairs[most]
    values = {
        "name": names[custom.cell],
        "time_ratio": ratios[most],
        "least_ratio": min(ratios),
        "most_ratio": max(ratios),
        "time": Value.of(custom, BOTH_PASSES),
        "torch_time": Value.of(torch, BOTH_PASSES),
        "num_inputs": len(ratios),
    }
    least, most = ratio_text(values["least_ratio"]), ratio_text(values["most_ratio"])
    words = {"least": least, "most": most if most != least else None}
    pair = (custom.cell, torch.cell)
    return Finding("batch_norm", values, (of_cells("batch_norms", pair),), pair, "batch-norms", words)


def methods(campaign: dict) -> list[tuple[str, str]]:
    if not cells_of(campaign, "sync_batchnorm"):
        return []
    text = (
        "One iteration is the forward and backward pass of one layer, with a device synchronization in between."
        " Batch: rows per rank; the statistics cover all ranks. Errors: largest absolute difference from a"
        " single-process fp64 reference, over ranks and launches. Memory is per rank and exact, except for the"
        " allocator peak. Saved for backward includes the input."
    )
    return [("Batch norm", text)]


TABLES = {
    "batch_norms": TableSpec(BATCH_NORMS, lambda campaign, tables: batch_norms_table(campaign, tables["measurements"]))
}
TOPIC = Topic("sync_batchnorm", "Synchronized batch norm", TABLES, section, findings, methods=methods, kinds=KINDS)
