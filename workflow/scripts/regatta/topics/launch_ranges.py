"""How far the launches of each cell lie apart: tables/launch_ranges.csv. Definitions: docs/metrics.md."""

import pandas as pd

from regatta.core.text import natural
from regatta.store.tables import REAL, TEXT, WHOLE, make_table

LAUNCH_RANGES = {
    "cell": TEXT,
    "num_launches": WHOLE,
    "median_s": REAL,
    "min_s": REAL,
    "max_s": REAL,
    "range_ratio": REAL,
}


def launch_ranges_table(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each cell with an ok launch that has a time: of one step in windows, else the launch's median.

    range_ratio: (largest - smallest) / median; unknown of one launch.
    """
    ok = measurements[measurements["status"] == "ok"]
    value = ok["window_step_s"].fillna(ok["p50_s"])
    found = value.groupby(ok["cell"]).agg(["count", "median", "min", "max"])
    rows = [
        {"cell": row.Index, "num_launches": row.count_, "median_s": row.median_, "min_s": row.min_, "max_s": row.max_}
        | {"range_ratio": (row.max_ - row.min_) / row.median_ if row.count_ > 1 else None}
        for row in found[found["count"] > 0].add_suffix("_").itertuples()
    ]
    return make_table(sorted(rows, key=lambda row: natural(row["cell"])), LAUNCH_RANGES)
