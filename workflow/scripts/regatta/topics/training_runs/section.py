"""The topic of whole trainings: time, loss, accuracy. Definitions: docs/metrics.md."""

from regatta.core.text import plural
from regatta.report.findings import Advice, Finding, Value, of_cells, percent_text, time_text
from regatta.report.panels import Section
from regatta.topics.base import ReportData, TableSpec, Topic
from regatta.topics.training_runs.figures import common_of_runs, training_run_figures, training_tables
from regatta.topics.training_runs.tables import (
    TRAINING_RANKS,
    TRAINING_RUNS,
    training_ranks_table,
    training_runs_table,
)

WORKLOAD = ["model", "data", "epochs", "batch_size", "accumulation_steps", "seed"]


def section(data: ReportData) -> Section:
    runs = data.tables["training_runs"]
    figures = tuple(training_run_figures(data.tables, data.tables["epochs"]))
    lead = common_of_runs(runs) if figures else ""
    empty = "No training run was measured."
    return Section("training-runs", "Training runs", empty, lead, figures, tuple(training_tables(runs)))


def findings(data: ReportData) -> list[Finding]:
    """Return accuracy and time of the fastest training of each workload beside those of the slowest."""
    runs = data.tables["training_runs"]
    found = []
    for _, group in runs[runs["total_s"].notna()].groupby(WORKLOAD, dropna=False, sort=True):
        rows = sorted(group.itertuples(), key=lambda row: row.total_s)
        fastest, slowest = rows[0], rows[-1]
        values = {
            "name": data.names[fastest.cell],
            "epochs": int(fastest.epochs),
            "total": Value.of(fastest, "total", "s"),
            "accuracy": Value.of(fastest, "accuracy", "ratio"),
            "slowest": data.names[slowest.cell],
            "slowest_total": Value.of(slowest, "total", "s"),
            "num_cells": len(rows),
        }
        source = of_cells("training_runs", [fastest.cell, slowest.cell])
        found.append(Finding("training", values, (source,), (fastest.cell, slowest.cell), "training-runs"))
    return found


def sentence(finding: Finding) -> str:
    values = finding.values
    text = f"{values['name']}: {plural(values['epochs'], 'epoch')} in {time_text(values['total'])}"
    text += f", test accuracy {percent_text(values['accuracy'])}."
    if values["num_cells"] > 1:
        text += f" Slowest of {values['num_cells']}: {values['slowest']}, {time_text(values['slowest_total'])}."
    return text


def warnings(data: ReportData) -> list[Advice]:
    """On a CPU a training repeats to the last digit. On a GPU it does not, and nothing follows from that."""
    runs = data.tables["training_runs"]
    on_cpu = runs[(runs["device"] == "cpu") & runs["has_same_losses"].notna()]
    other = on_cpu[~on_cpu["has_same_losses"].astype(bool)]
    if other.empty:
        return []
    return [
        Advice(
            f"Launches of the same training on CPUs ended with different losses: {plural(len(other), 'cell')} of {len(on_cpu)},"
            f" such as {data.names[other['cell'].iloc[0]]}.",
            "The same seed on the same ranks gives the same losses to the last digit, with the same torch, kind of processor and"
            " number of threads. If Provenance shows these are the same, a strategy or an operator is not deterministic.",
            (of_cells("training_runs", other["cell"]),),
            {"num": len(other), "num_known": len(on_cpu)},
        )
    ]


def methods(campaign: dict) -> list[tuple[str, str]]:
    if all(cell["spec"]["benchmark"] != "train_run" for cell in campaign["cells"]):
        return []
    text = (
        "One iteration is one epoch: training, then the test images; no warm-up. Total: sum over epochs of the slowest rank."
        " Images/s: training images per epoch on all ranks / median training time of an epoch (median over launches). Loss: mean"
        " cross-entropy over the images of all ranks; train loss while weights change, test loss after the epoch. Accuracy:"
        " correct answers of all ranks / test images, after the last epoch; median over launches. On a CPU the same seed, ranks"
        " and threads give the same losses to the last digit; on a GPU they do not."
    )
    return [("Training runs", text)]


TABLES = {
    "training_runs": TableSpec(
        TRAINING_RUNS,
        lambda campaign, tables: training_runs_table(campaign, tables["measurements"], tables["epochs"]),
    ),
    "training_ranks": TableSpec(
        TRAINING_RANKS, lambda campaign, tables: training_ranks_table(campaign, tables["ranks"])
    ),
}
TOPIC = Topic("training_runs", "Training runs", TABLES, section, findings, sentence, warnings, methods)
