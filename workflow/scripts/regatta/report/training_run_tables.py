"""What trainings are called in the report, and the tables of what they took and reached."""

import pandas as pd

from regatta.numbers import NOT_PLANNED, UNKNOWN, bracket, is_unknown, percent, plural, shape, size, spread_head, three
from regatta.report.memory_figures import MEMORY_COLUMNS
from regatta.report.panels import Table, launches

MAX_RANKS = 16  # of a training with more ranks the table has the slowest alone; tables/training_ranks.csv has all
PEAKS = {"allocator's peak": "peak_allocated_bytes", "process (RSS)": "peak_rss_bytes"}
WORDS = ["strategy", "norm", "shape", "stack", "backend"]
WORKLOAD = ["model", "data", "epochs", "batch_size", "accumulation_steps", "seed"]
ORDER = ["workload", "nodes", "gpus_per_node", "strategy", "norm"]
IMAGES = {"cifar100": "CIFAR-100", "synthetic": "synthetic images"}
SYNTHETIC = "Synthetic images are made from the seed: what is learnt of them says nothing about CIFAR-100."


def name_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Add the words of cells to rows of training_runs: `shape`, `workload` (what varies of it), `name`, and `full_name` with both."""
    rows = runs.assign(
        shape=[shape(row.nodes, row.gpus_per_node) for row in runs.itertuples()],
        images=[IMAGES.get(row.data, row.data) for row in runs.itertuples()],
    )
    told = [column for column in WORKLOAD if runs[column].nunique() > 1 and column not in ("model", "data")]
    words = [column for column in WORDS if column in ("strategy", "shape") or rows[column].nunique() > 1]
    records = rows.to_dict("records")
    workload = [
        ", ".join([f"{row['model']} on {row['images']}", *(workload_word(c, row[c]) for c in told)]) for row in records
    ]
    name = [", ".join(row[column] for column in words) for row in records]
    is_same = len(set(workload)) == 1
    full_name = name if is_same else [f"{where}: {text}" for where, text in zip(workload, name, strict=True)]
    return rows.assign(workload=workload, name=name, full_name=full_name)


def workload_word(column: str, value: object) -> str:
    return {
        "epochs": plural(value, "epoch") if column == "epochs" else "",
        "batch_size": f"batch {value}",
        "accumulation_steps": f"{plural(value, 'batch', 'batches')} a step",
        "seed": f"seed {value}",
    }.get(column, str(value))


def common_of_runs(runs: pd.DataFrame) -> str:
    """Return what all trainings have in common, as one or two sentences."""
    same = [column for column in WORKLOAD if runs[column].nunique() == 1 and column not in ("model", "data")]
    words = [workload_word(column, runs[column].iloc[0]) for column in same]
    if runs["model"].nunique() == runs["data"].nunique() == 1:
        words.insert(0, f"{runs['model'].iloc[0]} on {IMAGES[runs['data'].iloc[0]]}")
    if runs["norm"].nunique() == 1:
        words.append(f"batch norm {runs['norm'].iloc[0]}")
    sentences = [f"All trainings: {', '.join(words)}."] if words else []
    sentences.append("A batch is the images of one rank in one backward pass.")
    return " ".join([*sentences, *([SYNTHETIC] if "synthetic" in set(runs["data"]) else [])])


def training_tables(runs: pd.DataFrame) -> list[Table]:
    """Return what trainings took and reached, and their memory in the parts that are known of any; none unmeasured."""
    rows = name_runs(runs).sort_values(ORDER, kind="stable")
    measured = rows[rows["num_launches"] > 0]
    return [_outcome(rows), _memory(measured)] if len(measured) else []


def _outcome(rows: pd.DataFrame) -> Table:
    word = spread_head(rows["interval"])
    return Table(
        "What trainings took, and what they reached with their last epoch",
        ("training", "n", "total (s)", f"{word} (s)", "images/s", "train loss", "test loss", word, "accuracy (%)", f"{word} (%)"),
        tuple(
            (
                row.full_name,
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
    lines = [(row.full_name, *_sizes(row, known)) for row in rows.itertuples()]
    title = "Memory on the rank that took most, by what it is for"
    return Table(title, ("training", *known), tuple(lines), sources=("training_runs",))
