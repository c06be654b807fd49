"""Training runs: time, loss and accuracy, in total, by rank and by epoch.

Definitions: docs/metrics.md.
"""

from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.core.names import PLACE, cell_names
from regatta.core.statistics import batch_of
from regatta.kit.columns import FULL_NAME, NUM_LAUNCHES, TEXT, WHOLE, Column, Columns, table_rows
from regatta.kit.kinds import FAIR, RESULT, SUMMARY, Kind, Value
from regatta.model.frozen import FrozenCampaign
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import Section, Table, on_one_shape
from regatta.report.plots import Plot, figures_of, named, section_of
from regatta.store.csv_files import make_table, result_column
from regatta.store.records import BENCHMARK, RANK_BYTES
from regatta.tables.estimates import over_launches
from regatta.tables.metrics import ACCURACY, EPOCH_TIMES, LOSSES, RUN_THROUGHPUT, TOTAL
from regatta.topics import base
from regatta.topics.base import FASTEST, ReportData, TableSpec, Topic, fastest_of_groups
from regatta.topics.memory import parts_tables

RANK_ACCURACY = "accuracy on the rank's share of the test images, after the last epoch: median over launches"
OUTCOME = (TOTAL, *EPOCH_TIMES, RUN_THROUGHPUT, *LOSSES, ACCURACY)
TOTAL_OF_RANK = Column("total_s", interval="interval", help="mean over launches of the rank's total")
TRAINING_RANKS = Columns(
    Column("cell", type=TEXT, help="the cell"),
    Column("rank", type=WHOLE, help="the rank"),
    Column("num_launches", type=WHOLE, help="number of launches with a valid record"),
    TOTAL_OF_RANK,
    Column("accuracy_ratio", help=RANK_ACCURACY),
    *(result_column(name, "memory", label="", help="largest over launches") for name in RANK_BYTES),
)


def training_ranks_table(campaign: FrozenCampaign, ranks: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each rank of each train_run cell that was measured. Ranks are never averaged."""
    index, of_rank = ["cell", "rank"], ranks.groupby(["cell", "rank"])
    times, launches = (ranks.pivot(index=index, columns="repeat", values=name) for name in ("total_s", "launch"))
    batches = np.array(list(map(batch_of, launches.where(times.notna()).to_numpy(object))), dtype=str)
    totals = over_launches(times.to_numpy(float, na_value=np.nan), np.full(len(times), BENCHMARK), batches)
    table = of_rank[list(RANK_BYTES)].max().assign(**dict(zip(TOTAL_OF_RANK.names, totals.ends, strict=True)))
    table = table.assign(num_launches=of_rank.size(), accuracy_ratio=of_rank["accuracy_ratio"].median()).reset_index()
    order = {cell.id: place for place, cell in enumerate(campaign.cells_of(BENCHMARK))}
    table = table.sort_values("cell", key=lambda cells: cells.map(order), kind="stable")
    return make_table(table.to_dict("records"), TRAINING_RANKS)


# Tables and figures of the report.

WORKLOAD = [name for name, axis in axes_of(BENCHMARK).items() if not axis.is_series]
ORDER = ["workload", "nodes", "gpus_per_node", "strategy", "norm"]
SAME = ("epochs", "batch_size", "accumulation_steps", "seed", "norm")  # named in the lead if all runs share them
SYNTHETIC = "Synthetic images are generated from the seed; their accuracy does not transfer to CIFAR-100."


EPOCH = Column("epoch", "epoch", WHOLE)
CURVES = tuple(  # columns of epochs.csv
    Plot(
        column.label.replace(" ", "-"),
        replace(column, interval="", source="", better=""),
        EPOCH,
        line=lambda name: (*name.series, "shape", *PLACE),
        title=lambda name: name.workload if "shape" in name.varied else on_one_shape(name),
        source="epochs",
    )
    for column in (ACCURACY, LOSSES[1], Column("epoch_s", "epoch time"))
)


def common_of_runs(runs: pd.DataFrame) -> str:
    """Return the settings that all runs share, and notes on their losses and accuracies."""
    first = cell_names(runs.to_dict("records"), BENCHMARK)[0]
    words = ", ".join(first.parts[field] for field in SAME if runs[field].nunique() == 1)
    sentences = [f"All runs: {words}." if words else "", SYNTHETIC if "synthetic" in set(runs["data"]) else ""]
    return " ".join(filter(None, sentences))


def curve_rows(runs: pd.DataFrame, epochs: pd.DataFrame, column: Column) -> pd.DataFrame:
    """Return a row for each run and epoch: a median over launches, and the value of each launch."""
    values = epochs[epochs[column.name].notna()].groupby(["cell", "epoch"])[column.name].agg(["median", list])
    rows = runs.drop(columns=column.name, errors="ignore").merge(values.reset_index(), on="cell")
    return rows.rename(columns={"median": column.name, "list": "launches"})


def section(data: ReportData) -> Section | None:
    """Return accuracy, loss and time by epoch in turn, for each workload, and tables of time, result and memory."""
    runs = data.cells_of(BENCHMARK)
    rows = runs[runs["num_launches"] > 0]
    if rows.empty:
        return None
    rows = named(data, rows).sort_values(ORDER, kind="stable")
    curves = [figures_of(data, plot, curve_rows(rows, data.tables["epochs"], plot.column)) for plot in CURVES]
    titles = list(dict.fromkeys(figure.title.partition(": ")[2] for of in curves for figure in of))
    figures = sorted(chain(*curves), key=lambda figure: titles.index(figure.title.partition(": ")[2]))
    columns = (FULL_NAME, NUM_LAUNCHES, *OUTCOME)
    outcome = Table.of_columns("Total time and final results", columns, rows, data.device, ("cells",))
    tables = (outcome, *parts_tables(data, rows))
    return section_of(runs, TOTAL, (common_of_runs(rows),), figures, tables)


KINDS = (
    Kind(
        *("training_runs", SUMMARY),
        lead="Training: {epochs:epoch} in {total_s}",
        parts=(
            *("test accuracy {accuracy_ratio}", "{name}", "within noise: {near}"),
            *("{num_undecided} undecided: one launch", "first of {num_workloads} workloads"),
        ),
        term="Training runs",
        help="One iteration is one epoch: training, then evaluation on the test images; no warm-up. Total: epochs of"
        " the slowest rank. Loss: mean cross-entropy over the images of all ranks; train loss during the epoch, test"
        " loss after it. Accuracy: correct predictions of all ranks / test images, after the last epoch (mean over"
        " launches; by epoch: median). Chance level of 100 classes: accuracy 1 %, test loss ln 100 = 4.61. The first"
        " epoch includes one-time setup. On a CPU, losses are bitwise reproducible; on a GPU they are not.",
    ),
    Kind(
        *("training", RESULT),
        lead="{name}: {epochs:epoch} in {total}, test accuracy {accuracy}.",
        parts=FASTEST,
    ),
    Kind(
        *("different_losses", FAIR),
        lead="Different losses: launches of a CPU training run differ in {num} of {num_known:cell}.",
        parts=("Example: {name}.",),
        advice="If torch version, CPU model and threads are the same (Provenance), an operator is nondeterministic.",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return accuracy and time of the fastest run of each workload, and which others may be as fast.

    The line of the summary is on the first workload: workloads are not compared.
    """
    runs, found = data.cells_of(BENCHMARK), []
    workloads = runs[runs["total_s"].notna()].groupby(WORKLOAD, dropna=False, sort=True)
    groups = [base.headline_rows(data, base.complete_rows(table_rows(group))) for _, group in workloads]
    for (fastest, values), group in zip(fastest_of_groups(data, groups, TOTAL), groups, strict=True):
        values |= {"name": data.names[fastest.cell], "epochs": int(fastest.epochs)}
        values |= {"total": Value.of(fastest, TOTAL), "accuracy": Value.of(fastest, ACCURACY)}
        source = of_cells("cells", [fastest.cell, *(row.cell for row in group)])
        found.append(Finding("training", values, (source,), (fastest.cell,)))
    return [*base.with_summary(data, found, partial(_summary, len(found))), *_different_losses(data)]


def _summary(num_workloads: int, first: Finding) -> Finding:
    values = {"total_s": first.values["total"], "accuracy_ratio": first.values["accuracy"]}
    values["epochs"] = first.values["epochs"]
    words = {name: first.values[name] for name in ("name", "near", "num_undecided")}
    words["num_workloads"] = num_workloads if num_workloads > 1 else None
    return replace(first, kind="training_runs", values=values, words=words)


def _different_losses(data: ReportData) -> list[Finding]:
    """Return the finding on different losses on CPUs, where a run repeats to the last digit; on a GPU it does not."""
    runs = data.cells_of(BENCHMARK)
    on_cpu = runs[(runs["device"] == "cpu") & runs["has_same_losses"].notna()]
    cells = tuple(on_cpu.loc[~on_cpu["has_same_losses"].astype(bool), "cell"])
    if not cells:
        return []
    values, words = {"num": len(cells), "num_known": len(on_cpu)}, {"name": data.names[cells[0]]}
    return [Finding("different_losses", values, (of_cells("cells", cells),), cells, words=words)]


TABLES = {
    "training_ranks": TableSpec.of(TRAINING_RANKS, training_ranks_table, "campaign", "ranks"),
}
TOPIC = Topic(*("training-runs", "Training runs", TABLES, section, findings), kinds=KINDS, benchmarks=("train_run",))
