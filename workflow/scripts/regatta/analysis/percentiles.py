"""Percentiles of single training steps, and the rate of one GPU at each: tables/percentiles.csv. Definitions: docs/metrics.md.

The columns are those of the table that PyTorch's DDP benchmark prints: seconds per iteration and examples per second and
GPU. A rate here is the batch over the time at that percentile, so the rate at p95 is that of the slow steps.
"""

import pandas as pd

from regatta.analysis.collect import cell_row
from regatta.analysis.tables import CELL, REAL, SCALING, TEXT, WHOLE, make_table
from regatta.cell_words import natural
from regatta.statistics import PERCENTILES, over_launches

TIMES = ("p50_s", *PERCENTILES)  # columns of measurements.csv


def rate_column(time: str) -> str:
    """Return the name of the rate that belongs to a time: p95_s -> p95_per_gpu_samples_per_s."""
    return f"{time.removesuffix('_s')}_per_gpu_samples_per_s"


WORKLOAD_AND_SHAPE = tuple(name for name in SCALING if name in CELL)
PERCENTILE_COLUMNS = {
    "cell": TEXT,
    **{name: CELL[name] for name in WORKLOAD_AND_SHAPE},
    "num_planned": WHOLE,
    "num_launches": WHOLE,
    "num_samples": WHOLE,
    **{name: REAL for time in TIMES for name in (time, rate_column(time))},
}


def percentiles_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell of the campaign, measured or not."""
    ok = measurements[(measurements["status"] == "ok") & measurements["p50_s"].notna()]
    ok = ok.loc[ok["benchmark"] == "train_step", ["cell", "num_iterations", *TIMES]]  # few columns are cut up fast
    launches = dict(list(ok.groupby("cell")))
    cells = [cell for cell in campaign["cells"] if cell["spec"]["benchmark"] == "train_step"]
    rows = [
        cell_row(cell)
        | {"num_planned": campaign["repeats"]}
        | _percentiles(cell, launches.get(cell["id"], ok.iloc[:0]))
        for cell in sorted(cells, key=lambda cell: natural(cell["id"]))
    ]
    return make_table(rows, PERCENTILE_COLUMNS)


def _percentiles(cell: dict, launches: pd.DataFrame) -> dict:
    """Return medians over launches of each launch's percentile, and rates of these medians.

    A percentile that one launch cannot carry is unknown: those that can took more samples because they were faster.
    """
    row = {"num_launches": len(launches), "num_samples": launches["num_iterations"].min() if len(launches) else None}
    for time in TIMES:
        is_carried = launches[time].notna().all()
        median = over_launches(launches[time].tolist()).median if is_carried else None
        batch = cell["spec"]["parameters"]["batch_size"]
        row |= {time: median, rate_column(time): None if median is None else batch / median}
    return row
