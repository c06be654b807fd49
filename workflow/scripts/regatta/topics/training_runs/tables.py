"""Time, loss and accuracy of trainings: tables/training_runs.csv by cell, tables/training_ranks.csv by rank.

Definitions: docs/metrics.md.
"""

import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.core.statistics import over_launches
from regatta.store.collect import cell_row
from regatta.store.records import BENCHMARK, MEMORY_BYTES, RANK_BYTES
from regatta.store.tables import CELL, FLAG, REAL, SHAPE_COLUMNS, TEXT, WHOLE, make_table
from regatta.topics.base import LaunchValues, cells_of, interval_columns, interval_values

WITH_ENDS = ("total_s", "train_loss", "test_loss", "accuracy_ratio")  # each has `_low` and `_high` before its unit
PER_EPOCH = {"epoch_train_s": "train_s", "epoch_test_s": "test_s"}
TRAINING_RUNS = {
    "cell": TEXT,
    **{name: CELL[name] for name in (*axes_of(BENCHMARK), *SHAPE_COLUMNS)},
    "num_planned": WHOLE,
    "num_launches": WHOLE,
    "interval": TEXT,
    **interval_columns("total", "s"),
    "epoch_train_s": REAL,
    "epoch_test_s": REAL,
    "throughput_samples_per_s": REAL,
    **interval_columns("train", "loss"),
    **interval_columns("test", "loss"),
    **interval_columns("accuracy", "ratio"),
    "has_same_losses": FLAG,
    **dict.fromkeys(MEMORY_BYTES, WHOLE),
}
TRAINING_RANKS = {
    "cell": TEXT,
    "rank": WHOLE,
    "num_launches": WHOLE,
    **interval_columns("total", "s"),
    "accuracy_ratio": REAL,
    **dict.fromkeys(RANK_BYTES, WHOLE),
}


def training_runs_table(campaign: dict, measurements: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_run cell, measured or not."""
    memory, by_cell = LaunchValues(measurements, MEMORY_BYTES), dict(list(epochs.groupby("cell")))
    rows = []
    for cell in cells_of(campaign, BENCHMARK):
        row = cell_row(cell) | {"num_planned": campaign["repeats"], "num_launches": 0, "interval": "none"}
        if cell["id"] in by_cell:
            row |= _outcome([launch for _, launch in by_cell[cell["id"]].groupby("repeat")])
            row |= {name: memory.largest(cell["id"], name) for name in MEMORY_BYTES}
        rows.append(row)
    return make_table(rows, TRAINING_RUNS)


def training_ranks_table(campaign: dict, ranks: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each rank of each train_run cell that was measured. Ranks are never averaged."""
    rows = []
    by_cell = dict(list(ranks.groupby("cell")))
    for cell in cells_of(campaign, BENCHMARK):
        for rank, launches in by_cell[cell["id"]].groupby("rank") if cell["id"] in by_cell else ():
            largest = launches[list(RANK_BYTES)].max()
            rows.append(
                {
                    "cell": cell["id"],
                    "rank": rank,
                    "num_launches": len(launches),
                    **interval_values("total", "s", over_launches(launches["total_s"].dropna().tolist())),
                    "accuracy_ratio": over_launches(launches["accuracy_ratio"].dropna().tolist()).median,
                    **{name: None if pd.isna(value) else value for name, value in largest.items()},
                }
            )
    return make_table(rows, TRAINING_RANKS)


def _outcome(launches: list[pd.DataFrame]) -> dict:
    """Return the columns of one cell. launches: the epochs of each, in order; losses and accuracy are of the last."""
    of_launch = pd.DataFrame([_of_launch(launch) for launch in launches])
    row = {"num_launches": len(launches), "has_same_losses": _has_same_losses(launches)}
    for column in WITH_ENDS:
        row |= interval_values(*column.rsplit("_", 1), over_launches(of_launch[column].dropna().tolist()))
    row["interval"] = over_launches(of_launch["total_s"].tolist()).kind
    for column, name in PER_EPOCH.items():
        row[column] = over_launches(of_launch[name].dropna().tolist()).median
    num_images = launches[0]["train_samples"].iloc[0]
    is_known = row["epoch_train_s"] and not pd.isna(num_images)
    row["throughput_samples_per_s"] = int(num_images) / row["epoch_train_s"] if is_known else None
    return row


def _of_launch(launch: pd.DataFrame) -> dict[str, float | None]:
    last = launch.iloc[-1]
    values = {
        "total_s": launch["epoch_s"].sum(),
        **{name: launch[name].median() for name in PER_EPOCH.values()},
        **{name: last[name] for name in ("train_loss", "test_loss", "accuracy_ratio")},
    }
    return {name: None if pd.isna(value) else float(value) for name, value in values.items()}


def _has_same_losses(launches: list[pd.DataFrame]) -> bool | None:
    """Say whether all losses of all launches are the same to the last digit; None of a single launch."""
    columns = [launch[["train_loss", "test_loss"]].reset_index(drop=True) for launch in launches]
    return all(own.equals(columns[0]) for own in columns[1:]) if len(columns) > 1 else None
