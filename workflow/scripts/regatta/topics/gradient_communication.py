"""Time that a step waits for gradient synchronization: tables/strategies.csv. Definitions: docs/metrics.md."""

import pandas as pd

from regatta.core.statistics import Estimate
from regatta.core.text import ranks_word, shape
from regatta.kit.columns import SYNCHRONIZED, TEXT, Column, Columns
from regatta.kit.kinds import RESULT, Kind, Value
from regatta.model.frozen import FrozenCampaign
from regatta.report import panels
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import LAUNCHES, Figure, Section, Table
from regatta.report.plotting import Panel, PlotAxis, Point, Series
from regatta.report.rows import table_rows
from regatta.store.csv_files import STEP_COLUMNS, described, make_table, result_column
from regatta.topics.base import ReportData, TableSpec, Topic, launch_means, rows_of_cells, values_by_cell

STEP = {"shown_as": "ms", "table": "steps", "better": "smaller", "note": SYNCHRONIZED}
STEP |= {"help": "medians over launches of `p50_s`, `mean_s`, `std_s`"}
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
    rows = rows_of_cells(campaign, "train_step", {("exposed", "s"): _exposed(ok)}, found)
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


NAME = Column("full", "cell", TEXT, text=lambda row: row.cell_name.full)
DODGE = 0.24  # between two series at a shape: places on this axis have no values


def strategy_figures(strategies: pd.DataFrame, measurements: pd.DataFrame) -> list[Figure]:
    """Return the figure of exposed shares: shapes across, one series for each stack; none without a known share.

    With one stack, a series is a strategy. A strategy without a step to compare with, such as fsdp, has no marks.
    """
    rows = panels.in_order(panels.name_rows(strategies, "train_step"))
    rows = rows[rows["step_p50_s"].notna()].sort_values("world_size", kind="stable")
    exposed = measurements["whole_step_s"] - measurements["no_sync_s"]
    values = values_by_cell(measurements.assign(share=exposed / measurements["whole_step_s"]), "share")
    rows = rows.assign(num_launches=[len(values.get(cell, ())) for cell in rows["cell"]])  # launches with both steps
    known = rows[rows["exposed_share_ratio"].notna()]
    if known.empty:
        return []
    axis = next((axis for axis in panels.HUE_AXES if axis in known and known[axis].nunique() > 1), "stack")
    shapes = list(dict.fromkeys(map(shape, known["nodes"], known["gpus_per_node"])))
    groups, series = [known[known["hue"] == hue] for hue in sorted(known["hue"].unique())], []
    for number, of_series in enumerate(groups):
        aside, points = DODGE * (number - (len(groups) - 1) / 2), []
        for row in table_rows(of_series):
            launches = tuple(map(EXPOSED_SHARE.shown, values[row.cell]))
            place = shapes.index(shape(row.nodes, row.gpus_per_node)) + aside
            points.append(Point(place, launches, EXPOSED_SHARE.of(row)[0], cell=row.cell))
        series.append(Series(of_series[axis].iloc[0], tuple(points), has_line=False, hue=int(of_series["hue"].iloc[0])))
    device = rows["device"].iloc[0]
    ranks, lowest = ranks_word(device), min(value for one in series for point in one.points for value in point.values)
    x = PlotAxis(f"nodes × {ranks} per node", low=-0.5, high=len(shapes) - 0.5, ticks=tuple(enumerate(shapes)))
    panel = Panel(x, PlotAxis(EXPOSED_SHARE.heading(device), low=0 if lowest >= 0 else None), tuple(series))
    table = Table.of_columns("Step and communication", (NAME, LAUNCHES, *STRATEGIES.of_table("steps")), rows, device)
    return [
        panels.make_figure("strategies-1", "Gradient communication by shape", panel, table, "strategies", EXPOSED_SHARE)
    ]


def section(data: ReportData) -> Section:
    rows = data.with_stack_places(data.tables["strategies"])
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
