"""Time that a step waits for gradient synchronization: tables/strategies.csv. Definitions: docs/metrics.md."""

import pandas as pd

from regatta.core.statistics import Estimate
from regatta.core.text import ranks_word, shape
from regatta.kit.columns import SYNCHRONIZED, Column, Columns
from regatta.kit.kinds import RESULT, Kind, Value
from regatta.model.frozen import FrozenCampaign
from regatta.report import panels
from regatta.report.findings import Finding, of_cells
from regatta.report.lines import Panel, PlotAxis
from regatta.report.panels import FULL_NAME, LAUNCHES, Figure, Section, Table
from regatta.report.row_strips import chart_of
from regatta.report.rows import table_rows
from regatta.store.csv_files import STEP_COLUMNS, described, make_table, result_column
from regatta.topics.base import ReportData, TableSpec, Topic, launch_means, rows_of_cells, values_by_cell

STEP = {"shown_as": "ms", "table": "steps", "better": "smaller", "note": SYNCHRONIZED}
STEP |= {"help": "median over launches of the median, mean or standard deviation of each launch"}
STEPS = (
    Column("step_p50_s", "step time p50", **STEP),
    Column("step_mean_s", "step time mean", **STEP),
    Column("step_std_s", "step time SD", **STEP),
)
PART_NAMES = "whole_step_s", "no_sync_s", "communication_s", "host_wait_s", "communication_stream_s", "exposed_stream_s"
SAME = "medians over launches of the columns of the same name"
PARTS = tuple(result_column(name, "parts_ns", table="steps", help=SAME) for name in PART_NAMES)
DIFFERENCE = (
    "`whole_step_s` − `no_sync_s` in each launch, then the arithmetic mean over launches. Includes all costs of"
    " synchronization, such as copies into buckets. Can be negative if it is smaller than the noise"
)
OVERLAP = (
    "1 − exposed / `communication_s` in each launch, then the arithmetic mean over launches: the share of communication"
    " that overlaps with computation. Negative if synchronization lengthens the step by more than it takes alone"
)
OF_STEP = "exposed / `whole_step_s` in each launch, then the arithmetic mean over launches"
SHARE = {"shown_as": "%", "table": "steps"}
EXPOSED = Column("exposed_s", "exposed communication", **STEP | {"note": "", "help": DIFFERENCE}, interval="interval")
EXPOSED_SHARE = Column(
    "exposed_share_ratio", "exposed share of the step", **SHARE, better="smaller", help=OF_STEP, key="exposed_percent"
)
HIDDEN = Column("hidden_ratio", "hidden communication", **SHARE, better="larger", help=OVERLAP)
MAXIMUM = "largest over launches"
NUM_CALLS = result_column("num_calls", table="steps", help=MAXIMUM)
MEMORY = tuple(result_column(name, "memory", help=MAXIMUM) for name in ("gradient_bytes", "algorithm_bytes"))
STRATEGIES = Columns(*described(STEP_COLUMNS), *STEPS, *PARTS, EXPOSED, EXPOSED_SHARE, HIDDEN, NUM_CALLS, *MEMORY)
LARGEST = [column.name for column in (NUM_CALLS, *MEMORY)]
MEDIANS = {column.name.removeprefix("step_"): column.name for column in (*STEPS, *PARTS)}
SHARES = [EXPOSED_SHARE.name, HIDDEN.name]


def strategies_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell of several ranks, measured or not.

    Hidden and exposed shares are computed in each launch, then averaged.
    """
    ok = measurements[measurements["status"] == "ok"]
    by_launch = ok["whole_step_s"] - ok["no_sync_s"]
    shares = {
        "exposed_share_ratio": by_launch / ok["whole_step_s"],
        "hidden_ratio": 1 - by_launch / ok["communication_s"],
    }
    launches = ok.assign(**shares).groupby("cell")
    found = launches[list(MEDIANS)].median().rename(columns=MEDIANS).assign(num_launches=launches.size())
    found = found.join([launches[SHARES].mean(), launches[LARGEST].max()])
    rows = rows_of_cells(campaign, "train_step", {EXPOSED: _exposed(ok)}, found)
    return make_table([row for row in rows if row["world_size"] > 1], STRATEGIES)


def _exposed(ok: pd.DataFrame) -> dict[str, Estimate]:
    """Return exposed communication by cell, in seconds: the mean over launches of the difference of two steps.

    It may be 0 or negative, so its mean is arithmetic. Division by the cell's step gives all cells a common scale.
    """
    ok = ok[ok["whole_step_s"] > 0]
    step_s = ok.groupby("cell")["whole_step_s"].mean().astype(float)
    shares = ok.assign(exposed=(ok["whole_step_s"] - ok["no_sync_s"]) / ok["cell"].map(step_s).astype(float))
    found = launch_means(shares, "exposed", is_log=False)
    return found | {cell: mean.times(step_s[cell]) for cell, mean in found.items()}


DODGE = 0.24  # between two series at a shape: places on this axis have no values


def strategy_figures(strategies: pd.DataFrame, measurements: pd.DataFrame) -> list[Figure]:
    """Return the figure of exposed shares: shapes across, one series for each stack; none without a known share.

    With one stack, a series is a strategy. A strategy without a step to compare with, such as fsdp, has no marks.
    """
    rows = strategies[strategies["step_p50_s"].notna()].sort_values("world_size", kind="stable")
    exposed = measurements["whole_step_s"] - measurements["no_sync_s"]
    values = values_by_cell(measurements.assign(share=exposed / measurements["whole_step_s"]), "share")
    rows = rows.assign(num_launches=[len(values.get(cell, ())) for cell in rows["cell"]])  # launches with both steps
    known = rows[rows["exposed_share_ratio"].notna()]
    if known.empty:
        return []
    axis = next((axis for axis in panels.HUE_AXES if axis in known and known[axis].nunique() > 1), "stack")
    shapes, hues = list(dict.fromkeys(map(shape, known["nodes"], known["gpus_per_node"]))), sorted(set(known["hue"]))
    aside = {hue: DODGE * (number - (len(hues) - 1) / 2) for number, hue in enumerate(hues)}
    places = [shapes.index(shape(row.nodes, row.gpus_per_node)) + aside[row.hue] for row in table_rows(known)]
    device, lowest = rows["device"].iloc[0], min(min(values[cell]) for cell in known["cell"])
    below = PlotAxis.of_categories(f"nodes × {ranks_word(device)} per node", shapes)
    beside = PlotAxis(EXPOSED_SHARE.heading(device), low=0 if lowest >= 0 else None)
    known = known.assign(place=places, label=known[axis])
    series = panels.make_series(known, "place", EXPOSED_SHARE, panels.by_cell(values))
    title, columns = "Gradient communication by shape", (FULL_NAME, LAUNCHES, *STRATEGIES.of_table("steps"))
    table = Table.of_columns(title, columns, rows, device)
    panel = Panel(below, beside, series)
    chart = chart_of(panel) if len(shapes) == 1 else panel  # series side by side at each shape
    return [Figure("strategies-1", title, chart, table, "strategies", EXPOSED_SHARE.block_key)]


def section(data: ReportData) -> Section:
    rows = data.named(data.tables["strategies"], "train_step")
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
    rows = data.tables["strategies"].dropna(subset=["exposed_share_ratio", "exposed_s"])
    found = []
    for worst in rows.nlargest(1, "exposed_share_ratio").itertuples():
        columns = {"share_ratio": EXPOSED_SHARE, "exposed": EXPOSED, "step": PARTS[0]}
        values = {name: Value.of(worst, column) for name, column in columns.items()}
        words = {"name": data.names[worst.cell], "num_cells": len(rows) if len(rows) > 1 else None}
        source = of_cells("strategies", [worst.cell])
        found.append(Finding("exposed", values, (source,), (worst.cell,), "strategies", words))
    return found


TABLES = {"strategies": TableSpec.of(STRATEGIES, strategies_table, "campaign", "measurements")}
TOPIC = Topic(*("gradient_communication", "Gradient communication", TABLES, section, findings), kinds=KINDS)
