"""Training runs: time, loss and accuracy, in total (tables/training_runs.csv), by rank and by epoch.

Definitions: docs/metrics.md.
"""

from dataclasses import replace
from functools import partial

import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.core.names import PLACE, cell_names
from regatta.core.statistics import Estimate, fast_median, interval_values
from regatta.kit.columns import FLAG, TEXT, WHOLE, Column, Columns, number_text
from regatta.kit.findings import FAIR, RESULT, SUMMARY, Kind, Value
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import (
    LAUNCHES,
    Figure,
    Section,
    Table,
    how_to_read,
    make_figure,
    name_rows,
    on_one_shape,
    panels,
)
from regatta.report.plotting import DOT, Axis, Panel, Point, Series, size_ticks
from regatta.store.collect import cell_row
from regatta.store.csv_files import described, make_table, result_column
from regatta.store.records import BENCHMARK, MEMORY_BYTES, RANK_BYTES
from regatta.topics.base import (
    UNRELIABLE,
    LaunchValues,
    ReportData,
    TableSpec,
    Topic,
    cells_of,
    headline_rows,
    launch_means,
    unreliable,
)
from regatta.topics.comparison.tables import times_by_cell
from regatta.topics.memory import MEMORY_PARTS, NAME, parts_table
from regatta.topics.settings import FASTEST, compare_settings, fastest_values

ANCHOR = "training-runs"
OUTCOMES = (("total", "s"), ("train", "loss"), ("test", "loss"), ("accuracy", "ratio"))
TOTAL = Column(
    *("total_s", "total time"),
    table="outcome",
    better="smaller",
    interval="interval",
    note="sum of epochs",
    help="sum over epochs of `epoch_s`, then the mean over launches. Excludes setup and reading the data",
    is_shown=True,
    is_main=True,
)
EPOCH = {"table": "ranks", "better": "smaller"}
EPOCH |= {"help": "median over epochs of `train_s` and `test_s` in each launch, then the median over launches"}
THROUGHPUT = Column(
    *("throughput_samples_per_s", "throughput"),
    table="outcome",
    better="larger",
    help="`train_samples` / `epoch_train_s`",
)
LAST_EPOCH = {"table": "outcome", "interval": "interval"}
LAST_EPOCH |= {"help": "values of the last epoch: arithmetic mean over launches"}
TRAIN_LOSS, TEST_LOSS = (
    Column(f"{name}_loss", f"{name} loss", better="smaller", figures=4, **LAST_EPOCH) for name in ("train", "test")
)
ACCURACY = Column("accuracy_ratio", "accuracy", shown_as="%", better="larger", is_shown=True, **LAST_EPOCH)
TRAINING_RUNS = Columns(
    *described(axes_of(BENCHMARK)),
    TOTAL,
    *(Column(f"epoch_{name}_s", f"{name} time per epoch", **EPOCH) for name in ("train", "test")),
    *(THROUGHPUT, TRAIN_LOSS, TEST_LOSS, ACCURACY),
    Column(
        *("has_same_losses", "", FLAG),
        help="whether all launches have identical train and test losses in all epochs, to the last digit. Empty for a"
        " single launch. On a CPU, false causes a warning in the report; on a GPU, differences are expected",
    ),
    *MEMORY_PARTS,
)
RANK = Column("rank", "rank", WHOLE, help="the rank", text=lambda row: str(row.rank))
RANK_ACCURACY = replace(
    ACCURACY,
    label="rank accuracy",
    table="ranks",
    interval="",
    help="accuracy on the rank's share of the test images, after the last epoch: median over launches",
    applies=lambda row: row.rank != "slowest",
)
TRAINING_RANKS = Columns(
    Column("cell", type=TEXT, help="the cell"),
    RANK,
    Column("num_launches", type=WHOLE, help="number of launches with a valid record"),
    replace(TOTAL, help="mean over launches of the rank's total"),
    RANK_ACCURACY,
    *(result_column(name, "memory", table="ranks", help="largest over launches") for name in RANK_BYTES),
)


def training_runs_table(campaign: dict, measurements: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_run cell, measured or not."""
    memory, means, rows = LaunchValues(measurements, MEMORY_BYTES), _means(epochs), []
    for cell in cells_of(campaign, BENCHMARK):
        row = cell_row(cell) | {"num_planned": campaign["repeats"], "num_launches": 0, "interval": "none"}
        of_cell = epochs[epochs["cell"] == cell["id"]]
        if len(of_cell):
            row |= _outcome(of_cell) | {name: memory.largest(cell["id"], name) for name in MEMORY_BYTES}
            for name, unit in OUTCOMES:
                row |= interval_values(name, unit, means[f"{name}_{unit}"][cell["id"]])
            row |= {"interval": means["total_s"][cell["id"]].kind}
        rows.append(row)
    return make_table(rows, TRAINING_RUNS)


def _means(epochs: pd.DataFrame) -> dict[str, dict[str, Estimate]]:
    """Return total time, losses and accuracy by column and cell; losses and accuracy are those of the last epoch."""
    launches = epochs.groupby(["cell", "repeat"], sort=False)
    last = launches.tail(1).merge(launches["epoch_s"].sum().rename("total_s").reset_index())
    last = last.assign(benchmark=BENCHMARK)
    return {f"{name}_{unit}": launch_means(last, f"{name}_{unit}", name == "total") for name, unit in OUTCOMES}


def training_ranks_table(campaign: dict, ranks: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each rank of each train_run cell that was measured. Ranks are never averaged."""
    launches = ranks.assign(cell=ranks["cell"] + " " + ranks["rank"].astype(str), benchmark=BENCHMARK)
    rows, totals = [], launch_means(launches, "total_s")
    for cell in cells_of(campaign, BENCHMARK):
        for rank, of_rank in ranks[ranks["cell"] == cell["id"]].groupby("rank"):
            row = {"cell": cell["id"], "rank": rank, "num_launches": len(of_rank)}
            row |= interval_values("total", "s", totals[f"{cell['id']} {rank}"])
            row |= {"accuracy_ratio": _median(of_rank["accuracy_ratio"])}
            rows.append(row | of_rank[list(RANK_BYTES)].max().dropna().to_dict())
    return make_table(rows, TRAINING_RANKS)


def _median(values: pd.Series) -> float | None:
    known = values.dropna().astype(float).tolist()
    return fast_median(known) if known else None


def _outcome(epochs: pd.DataFrame) -> dict:
    """Return the columns of one cell without intervals. epochs: by launch, in order."""
    launches = epochs.groupby("repeat")
    row = {"num_launches": len(launches), "has_same_losses": _has_same_losses([launch for _, launch in launches])}
    row |= {f"epoch_{name}": _median(launches[name].median()) for name in ("train_s", "test_s")}
    num_images = epochs["train_samples"].iloc[0]
    is_known = row["epoch_train_s"] and not pd.isna(num_images)
    row["throughput_samples_per_s"] = int(num_images) / row["epoch_train_s"] if is_known else None
    return row


def _has_same_losses(launches: list[pd.DataFrame]) -> bool | None:
    """Return whether all losses of all launches are the same to the last digit; None for a single launch."""
    losses = [launch[["train_loss", "test_loss"]].reset_index(drop=True) for launch in launches]
    return all(other.equals(losses[0]) for other in losses[1:]) if len(losses) > 1 else None


# Tables and figures of the report.

WORKLOAD = [name for name, axis in axes_of(BENCHMARK).items() if not axis.is_series]
MAX_RANKS = 16  # beyond this, a table has only the slowest; tables/training_ranks.csv has all
MANY_EPOCHS = 6
ORDER = ["workload", "nodes", "gpus_per_node", "strategy", "norm"]
SAME = ("epochs", "batch_size", "accumulation_steps", "seed", "norm")  # named in the lead if all runs share them
SYNTHETIC = "Synthetic images are generated from the seed; their accuracy does not transfer to CIFAR-100."


RUN = Column("name", "run", TEXT)
CURVES = (ACCURACY, TEST_LOSS, Column("epoch_s", "epoch time"))  # columns of epochs.csv


def common_of_runs(runs: pd.DataFrame) -> str:
    """Return the settings that all runs share, and notes on their losses and accuracies."""
    names = cell_names(runs.to_dict("records"), BENCHMARK)
    words = [name.parts["subject"] for name in names[:1] if "subject" not in name.varied]
    words += [names[0].parts[field] for field in SAME if runs[field].nunique() == 1]
    sentences = [f"All runs: {', '.join(words)}."] if words else []
    sentences.append("Batch size: images per rank per backward pass.")
    sentences += [SYNTHETIC] if "synthetic" in set(runs["data"]) else []
    sentences += ["More ranks take fewer, larger steps per epoch."] if runs["world_size"].nunique() > 1 else []
    return " ".join(sentences)


def training_tables(runs: pd.DataFrame) -> list[Table]:
    """Return time and result of the runs, and their memory by purpose; none unmeasured."""
    rows = name_rows(runs, BENCHMARK).sort_values(ORDER, kind="stable")
    measured = rows[rows["num_launches"] > 0]
    if measured.empty:
        return []
    device, columns = rows["device"].iloc[0], (NAME, LAUNCHES, *TRAINING_RUNS.of_table("outcome"))
    outcome = Table.of_columns("Total time and final results", columns, rows, device, ("training_runs",))
    memory = parts_table(measured, "training_runs", device)
    return [outcome, memory] if memory else [outcome]


def time_table(title: str, rows: pd.DataFrame, ranks: pd.DataFrame) -> Table:
    """Return time and memory of each run, and below those of its ranks."""
    ranks = ranks.merge(rows[["cell", "name", "num_planned", "interval"]], on="cell")
    ranks = ranks[ranks.groupby("cell")["rank"].transform("size").between(2, MAX_RANKS)]
    is_one, order = rows["world_size"] == 1, {cell: place for place, cell in enumerate(rows["cell"])}
    runs = rows.assign(rank=is_one.map({True: "0", False: "slowest"}), is_run=True)
    shown = pd.concat([runs, ranks.assign(is_run=False)]).sort_values(
        "cell", kind="stable", key=lambda cells: cells.map(order)
    )
    of_epoch = (replace(column, applies=lambda row: row.is_run) for column in TRAINING_RUNS.of_table("ranks"))
    columns = (RUN, RANK, LAUNCHES, TOTAL, *of_epoch, *TRAINING_RANKS.of_table("ranks"))
    sources = ("training_runs", "training_ranks")
    return Table.of_columns(f"Time and memory of {title}, by rank", columns, shown, rows["device"].iloc[0], sources)


def training_run_figures(tables: dict[str, pd.DataFrame], epochs: pd.DataFrame) -> list[Figure]:
    """Return accuracy, loss and time by epoch in turn, for each workload. tables: those of training runs and ranks."""
    runs = name_rows(tables["training_runs"], BENCHMARK).sort_values(ORDER, kind="stable")
    found = panels(
        runs[runs["num_launches"] > 0],
        lambda name: (*name.series, "shape", *PLACE),
        lambda name: name.workload if "shape" in name.varied else on_one_shape(name),
        ("shape", *PLACE),
    )
    return [
        _figure(curve, number, title, rows, epochs, tables)
        for number, (title, rows) in enumerate(found, start=1)
        for curve in CURVES
    ]


def _figure(curve: Column, number: int, title: str, rows: pd.DataFrame, epochs: pd.DataFrame, tables: dict) -> Figure:
    shown = epochs[epochs["cell"].isin(rows["cell"])]
    device, is_time = rows["device"].iloc[0], curve.name == "epoch_s"
    ticks = size_ticks(sorted(set(shown["epoch"])), lambda epoch: f"{epoch:g}")
    low = 0 if curve is ACCURACY else None
    dot = DOT if shown["epoch"].nunique() <= MANY_EPOCHS else DOT / 2  # otherwise the dots hide the lines
    panel = Panel(
        Axis("epoch", ticks=ticks), Axis(curve.heading(device), low=low), _series(curve, rows, shown), dot=dot
    )
    table = time_table(title, rows, tables["training_ranks"]) if is_time else _epoch_table(curve, title, rows, panel)
    figure_id, title = f"{curve.label.replace(' ', '-')}-{number}", f"{curve.label.capitalize()}: {title}"
    return make_figure(figure_id, title, panel, table, "epochs")


def _series(curve: Column, rows: pd.DataFrame, epochs: pd.DataFrame) -> tuple[Series, ...]:
    series = []
    for row in rows.itertuples():
        known = epochs[(epochs["cell"] == row.cell) & epochs[curve.name].notna()]
        points = []
        for epoch, of_epoch in known.groupby("epoch"):
            values = list(map(curve.shown, of_epoch[curve.name]))
            points.append(Point(float(epoch), tuple(values), fast_median(values)))
        if points:
            series.append(Series(row.label, tuple(points)))
    return tuple(series)


def _epoch_table(curve: Column, title: str, rows: pd.DataFrame, panel: Panel) -> Table:
    """Return the medians over launches at the ticks of the axis, for each line."""
    values = {(series.label, point.x): point.reported for series in panel.series for point in series.points}

    def text(row, epoch: float) -> str:
        return number_text(values.get((row.label, epoch)), figures=curve.figures)

    epochs = (Column("", f"epoch {tick}", text=partial(text, epoch=epoch)) for epoch, tick in panel.x.ticks)
    device = rows["device"].iloc[0]
    caption = f"{curve.heading(device)} of {title}: median over launches"
    return Table.of_columns(caption, (RUN, LAUNCHES, *epochs), rows, device)


def section(data: ReportData) -> Section:
    runs = data.tables["training_runs"]
    figures = tuple(training_run_figures(data.tables, data.tables["epochs"]))
    lead = f"{common_of_runs(runs)} {how_to_read(runs, 'total_s')}" if figures else ""
    empty = "No training run was measured."
    return Section("training-runs", "Training runs", empty, lead, figures, tuple(training_tables(runs)))


KINDS = (
    Kind(
        *("training_runs", SUMMARY),
        lead="Training: {epochs:epoch} in {total_s}",
        parts=(
            *("test accuracy {accuracy_ratio}", "{name}", "within noise: {near}"),
            *("{num_undecided} undecided: one launch", "first of {num_workloads} workloads", UNRELIABLE),
        ),
        term="Training runs",
        help="One iteration is one epoch: training, then evaluation on the test images; no warm-up. Total: sum of epoch"
        " times of the slowest rank. Throughput: training images per epoch on all ranks / median training time of an"
        " epoch (median over launches). Loss: mean cross-entropy over the images of all ranks. Train loss: averaged"
        " during the epoch; test loss: after it. Accuracy: correct predictions of all ranks / test images, after the"
        " last epoch; mean over launches (in the table by epoch: median). Chance level of 100 classes: accuracy 1 %,"
        " test loss ln 100 = 4.61. The"
        " first epoch includes one-time setup. On a CPU, losses are bitwise reproducible for the same seed, ranks and"
        " threads; on a GPU they are not.",
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
        advice="With the same seed, ranks, torch version, CPU model and number of threads, losses are bitwise"
        " identical. If Provenance shows that these are the same, a strategy or an operator is nondeterministic.",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return accuracy and time of the fastest run of each workload, and which others may be as fast.

    The line of the summary is on the first workload: workloads are not compared.
    """
    runs, groups = data.tables["training_runs"], []
    for _, group in runs[runs["total_s"].notna()].groupby(WORKLOAD, dropna=False, sort=True):
        complete = group[group["num_launches"] >= group["num_planned"]]
        group = complete if len(complete) else group
        valid = headline_rows(data, group["cell"], lambda cell: (cell,))
        groups.append(group[group["cell"].isin(valid)])
    cells = [group["cell"].tolist() for group in groups]
    of_benchmark = {cell: BENCHMARK for of_group in cells for cell in of_group}
    settings, found = compare_settings(cells, times_by_cell(data.measurements), of_benchmark), []
    for group, compared in zip(groups, cells, strict=True):
        fastest = min(group.itertuples(), key=lambda row: row.total_s)
        values = {
            "name": data.names[fastest.cell],
            "epochs": int(fastest.epochs),
            "total": Value.of(fastest, TOTAL),
            "accuracy": Value.of(fastest, ACCURACY),
            **fastest_values(fastest.cell, compared, settings, data.cell_names),
        }
        source = of_cells("training_runs", [fastest.cell, *compared])
        found.append(Finding("training", values, (source,), (fastest.cell,), ANCHOR))
    first = headline_rows(data, found, lambda one: one.cells)[:1]
    return [*(_summary(one, len(found), data) for one in first), *found, *_different_losses(data)]


def _summary(first: Finding, num_workloads: int, data: ReportData) -> Finding:
    values = {"total_s": first.values["total"], "accuracy_ratio": first.values["accuracy"]}
    words = {name: first.values[name] for name in ("name", "near", "num_undecided")}
    words["num_workloads"] = num_workloads if num_workloads > 1 else None
    values |= {"epochs": first.values["epochs"]} | unreliable(data, first.cells)
    return Finding("training_runs", values, first.sources, first.cells, ANCHOR, words)


def _different_losses(data: ReportData) -> list[Finding]:
    """Return the finding on different losses on CPUs, where a run repeats to the last digit; on a GPU it does not."""
    runs = data.tables["training_runs"]
    on_cpu = runs[(runs["device"] == "cpu") & runs["has_same_losses"].notna()]
    cells = tuple(on_cpu.loc[~on_cpu["has_same_losses"].astype(bool), "cell"])
    if not cells:
        return []
    values, words = {"num": len(cells), "num_known": len(on_cpu)}, {"name": data.names[cells[0]]}
    return [Finding("different_losses", values, (of_cells("training_runs", cells),), cells, "warnings", words)]


TABLES = {
    "training_runs": TableSpec.of(TRAINING_RUNS, training_runs_table, "campaign", "measurements", "epochs"),
    "training_ranks": TableSpec.of(TRAINING_RANKS, training_ranks_table, "campaign", "ranks"),
}
TOPIC = Topic(*("training_runs", "Training runs", TABLES, section, findings), kinds=KINDS)
