"""The figures of train_run: accuracy, loss and time of each epoch, every launch a point."""

from dataclasses import dataclass

import pandas as pd

from regatta.core.names import PLACE, CellName, cell_names
from regatta.core.statistics import over_launches
from regatta.core.text import (
    NOT_PLANNED,
    UNKNOWN,
    bracket,
    is_unknown,
    percent,
    plural,
    size,
    spread_head,
    three,
)
from regatta.report.panels import Figure, Table, launches, name_rows, on_one_shape, panels
from regatta.report.plotting import DOT, Axis, Panel, Point, Series, draw, size_ticks
from regatta.store.records import BENCHMARK
from regatta.store.tables import EPOCHS, to_exact_csv
from regatta.topics.memory import MEMORY_COLUMNS

# What trainings are called in the report, and the tables of what they took and reached.

MAX_RANKS = 16  # of a training with more ranks the table has the slowest alone; tables/training_ranks.csv has all
PEAKS = {"allocator's peak": "peak_allocated_bytes", "process (RSS)": "peak_rss_bytes"}
ORDER = ["workload", "nodes", "gpus_per_node", "strategy", "norm"]
SAME = ("epochs", "batch_size", "accumulation_steps", "seed", "norm")  # said once where all trainings share them
SYNTHETIC = "Synthetic images are made from the seed: what is learnt of them says nothing about CIFAR-100."


def common_of_runs(runs: pd.DataFrame) -> str:
    """Return what all trainings have in common, as one or two sentences."""
    names = cell_names(runs.to_dict("records"), BENCHMARK)
    words = [name.parts["subject"] for name in names[:1] if "subject" not in name.varied]
    words += [names[0].parts[field] for field in SAME if runs[field].nunique() == 1]
    sentences = [f"All trainings: {', '.join(words)}."] if words else []
    sentences.append("A batch is the images of one rank in one backward pass.")
    return " ".join([*sentences, *([SYNTHETIC] if "synthetic" in set(runs["data"]) else [])])


def training_tables(runs: pd.DataFrame) -> list[Table]:
    """Return what trainings took and reached, and their memory in the parts that are known of any; none unmeasured."""
    rows = name_rows(runs, BENCHMARK).sort_values(ORDER, kind="stable")
    measured = rows[rows["num_launches"] > 0]
    return [_outcome(rows), _memory(measured)] if len(measured) else []


def _outcome(rows: pd.DataFrame) -> Table:
    word = spread_head(rows["interval"])
    return Table(
        "What trainings took, and what they reached with their last epoch",
        ("training", "n", "total (s)", f"{word} (s)", "images/s", "train loss", "test loss", word, "accuracy (%)", f"{word} (%)"),
        tuple(
            (
                row.cell_name.full,
                launches(row),
                three(row.total_s),
                bracket(row.total_low_s, row.total_high_s, row.interval),
                three(row.throughput_samples_per_s),
                digits(row.train_loss),
                digits(row.test_loss),
                bracket(row.test_low_loss, row.test_high_loss, row.interval, digits),
                percent(row.accuracy_ratio),
                bracket(row.accuracy_low_ratio, row.accuracy_high_ratio, row.interval, percent),
            )
            for row in rows.itertuples()
        ),
        sources=("training_runs",),
    )  # fmt: skip


def digits(loss: float | None) -> str:
    """Return a loss with four decimals: strategies differ by less than three significant figures show."""
    return UNKNOWN if is_unknown(loss) else f"{loss:.4f}"


def time_table(title: str, rows: pd.DataFrame, ranks: pd.DataFrame) -> Table:
    """Return time and memory of each rank, below those of the training."""
    own = ranks[ranks["cell"].isin(rows["cell"])]
    peaks = {head: column for head, column in PEAKS.items() if own[column].notna().any()}
    heads = ("training", "rank", "n", "total (s)", f"{spread_head(rows['interval'])} (s)", "training (s/epoch)", "test (s/epoch)", "own accuracy (%)", *peaks)  # fmt: skip
    lines = []
    for row in rows.itertuples():
        total = three(row.total_s), bracket(row.total_low_s, row.total_high_s, row.interval)
        parts = three(row.epoch_train_s), three(row.epoch_test_s)
        accuracy = NOT_PLANNED if row.world_size > 1 else percent(row.accuracy_ratio)
        name = "slowest" if row.world_size > 1 else "0"
        lines.append((row.name, name, launches(row), *total, *parts, accuracy, *_sizes(row, peaks)))
        of_cell = own[own["cell"] == row.cell]
        for rank in of_cell.itertuples() if 1 < len(of_cell) <= MAX_RANKS else ():
            total = three(rank.total_s), bracket(rank.total_low_s, rank.total_high_s, row.interval)
            accuracy, num = percent(rank.accuracy_ratio), f"{rank.num_launches}/{row.num_planned}"
            lines.append((row.name, str(rank.rank), num, *total, NOT_PLANNED, NOT_PLANNED, accuracy, *_sizes(rank, peaks)))  # fmt: skip
    sources = ("training_runs", "training_ranks")
    return Table(f"Time and memory of {title}, by rank", heads, tuple(lines), sources=sources)


def _sizes(row, columns: dict[str, str]) -> list[str]:
    return [UNKNOWN if is_unknown(getattr(row, column)) else size(getattr(row, column)) for column in columns.values()]


def _memory(rows: pd.DataFrame) -> Table:
    known = {head: column for head, column in MEMORY_COLUMNS.items() if rows[column].notna().any()}
    lines = [(row.cell_name.full, *_sizes(row, known)) for row in rows.itertuples()]
    title = "Memory on the rank that took most, by what it is for"
    return Table(title, ("training", *known), tuple(lines), sources=("training_runs",))


PERCENT = 100
MAX_TOLD = 3  # trainings in one sentence; of more it tells the ends
MANY_EPOCHS = 6
FEWER_STEPS = "; more ranks take fewer, larger steps in an epoch"


@dataclass(frozen=True)
class Curve:
    """What a figure shows of each epoch. column: of epochs.csv; factor: to the unit of the axis."""

    kind: str
    title: str
    axis: str
    column: str
    factor: float
    told: str


CURVES = (
    Curve("accuracy", "Accuracy", "accuracy (%)", "accuracy_ratio", PERCENT, "Share of the test images that are named rightly after each epoch, in percent; higher is better. Guessing reaches 1 %."),
    Curve("test-loss", "Loss", "loss on the test images", "test_loss", 1.0, "Mean cross-entropy over the test images after each epoch, linear axis; lower is better. Guessing gives 4.61."),
    Curve("epoch-time", "Time of an epoch", "epoch (s)", "epoch_s", 1.0, "Time of each epoch on its slowest rank, training and test; lower is better. The first has one-time work in it."),
)  # fmt: skip
# Kind of a curve -> what it ends with: beginning and unit of its columns in training_runs.csv, and how it is written.
SHOWN = {
    "accuracy": ("accuracy", "ratio", percent, " %"),
    "test-loss": ("test", "loss", three, ""),
    "epoch-time": ("total", "s", three, " s"),
}


def training_run_figures(tables: dict[str, pd.DataFrame], epochs: pd.DataFrame) -> list[Figure]:
    """Return accuracy, loss and time by epoch in turn, for each workload. tables: of training runs and ranks."""
    runs = name_rows(tables["training_runs"], BENCHMARK).sort_values(ORDER, kind="stable")
    found = panels(
        runs[runs["num_launches"] > 0], lambda name: (*name.series, "shape", *PLACE), _title, ("shape", *PLACE)
    )
    return [
        _figure(curve, number, title, rows, epochs, tables)
        for number, (title, rows) in enumerate(found, start=1)
        for curve in CURVES
    ]


def _title(name: CellName) -> str:
    """Return the workload, with the shape where all trainings have one."""
    return name.workload if "shape" in name.varied else on_one_shape(name)


def _figure(curve: Curve, number: int, title: str, rows: pd.DataFrame, epochs: pd.DataFrame, tables: dict) -> Figure:
    own = epochs[epochs["cell"].isin(rows["cell"])]
    is_time = curve.kind == "epoch-time"
    text = curve.told
    if (rows["data"] == "synthetic").all() and not is_time:
        text += f" {SYNTHETIC}"
    nums = sorted(set(rows["num_launches"]))
    num = f"n = {nums[0]}" if len(nums) == 1 else f"n = {nums[0]} to {nums[-1]}"
    text += f" Each point is one launch ({num} per cell), the line joins their medians."
    alt = f"{title}: {_told(curve, rows)}."
    series, csv = _series(curve, rows, own), to_exact_csv(own[list(EPOCHS)])
    ticks = size_ticks(sorted(set(own["epoch"])), lambda epoch: f"{epoch:g}")
    low = 0 if curve.kind == "accuracy" else None
    dot = DOT if own["epoch"].nunique() <= MANY_EPOCHS else DOT / 2  # or the dots hide the lines
    panel = Panel(Axis("epoch", ticks=ticks), Axis(curve.axis, low=low), series, dot=dot)
    table = time_table(title, rows, tables["training_ranks"]) if is_time else _epoch_table(curve, title, rows, panel)
    words = (alt, text, table, csv)
    return Figure(f"{curve.kind}-{number}", f"{curve.title}: {title}", draw(panel), *words, source="epochs")


def _series(curve: Curve, rows: pd.DataFrame, epochs: pd.DataFrame) -> tuple[Series, ...]:
    series = []
    for row in rows.itertuples():
        own = epochs[(epochs["cell"] == row.cell) & epochs[curve.column].notna()]
        points = []
        for epoch, of_epoch in own.groupby("epoch"):
            values = [curve.factor * value for value in of_epoch[curve.column].tolist()]
            points.append(Point(float(epoch), tuple(values), over_launches(values).median))
        if points:
            series.append(Series(row.label, tuple(points)))
    return tuple(series)


def _epoch_table(curve: Curve, title: str, rows: pd.DataFrame, panel: Panel) -> Table:
    """Return the medians over launches at the ticks of the axis, for each line."""
    show = "{:.1f}".format if curve.factor == PERCENT else digits
    epochs = [epoch for epoch, _ in panel.x.ticks]
    of_label = {series.label: {point.x: point.reported for point in series.points} for series in panel.series}
    lines = []
    for row in rows.itertuples():
        values = of_label.get(row.label, {})
        shown = [show(values[epoch]) if epoch in values else UNKNOWN for epoch in epochs]
        lines.append((row.name, launches(row), *shown))
    heads = [f"epoch {epoch:g}" for epoch in epochs]
    return Table(f"{curve.axis.capitalize()} of {title}: median over launches", ("training", "n", *heads), tuple(lines))


def _ends(curve: Curve, rows: pd.DataFrame) -> list[dict]:
    """Return the trainings of which it is known where they ended, the lowest value first."""
    column = {"epoch-time": "total_s"}.get(curve.kind, curve.column)
    return sorted(rows[rows[column].notna()].to_dict("records"), key=lambda row: row[column])


def _told(curve: Curve, rows: pd.DataFrame) -> str:
    """Return where each training ended, or of many the best and the worst."""
    known = _ends(curve, rows)
    ends = sorted({int(row["epochs"]) for row in rows.to_dict("records")})
    after = plural(ends[0], "epoch") if len(ends) == 1 else f"{ends[0]} to {plural(ends[-1], 'epoch')}"
    if not known:
        return f"nothing is known after {after}"
    few = known if len(known) <= MAX_TOLD else [known[0], known[-1]]
    parts = [f"{_value(curve, row)} with {row['name']} (n = {row['num_launches']})" for row in few]
    lead = {
        "accuracy": f"accuracy after {after}",
        "test-loss": f"loss on the test images after {after}",
        "epoch-time": f"time of {after} on the slowest rank",
    }[curve.kind]
    told = f"from {' to '.join(parts)}" if len(few) < len(known) else ", ".join(parts)
    steps = FEWER_STEPS if curve.kind != "epoch-time" and rows["world_size"].nunique() > 1 else ""
    return f"{lead}: {told}{_overlap(curve, known[0], known[-1])}{steps}"


def _overlap(curve: Curve, least: dict, most: dict) -> str:
    """Return whether launches of the lowest and the highest overlap, where both have a spread. It is no test."""
    stem, unit, *_ = SHOWN[curve.kind]
    high, low = least[f"{stem}_high_{unit}"], most[f"{stem}_low_{unit}"]
    if least["cell"] == most["cell"] or is_unknown(high) or is_unknown(low):
        return ""
    return f"; the spreads of lowest and highest {'overlap' if high >= low else 'do not overlap'}"


def _value(curve: Curve, row: dict) -> str:
    """Return a value with its unit and spread: 27.7 % (27.3 to 27.9)."""
    stem, unit, show, end = SHOWN[curve.kind]
    spread = bracket(row[f"{stem}_low_{unit}"], row[f"{stem}_high_{unit}"], row["interval"], show)
    return f"{show(row[f'{stem}_{unit}'])}{end}" + ("" if spread == UNKNOWN else f" {spread}")
