"""The time that the measured cells took, in rank-hours: cost, not performance."""

import pandas as pd

from regatta.core.text import rank_time
from regatta.report.findings import percent_number

TIMES = ("cells_s", "warmup_s", "measuring_s")  # columns of launches.csv


def cell_hours(measurements: pd.DataFrame) -> float | None:
    """Return ranks x hours between the start and the record of cells: setup, checks, warm-up and sampling."""
    seconds = measurements["elapsed_s"] * measurements["world_size"]
    return float(seconds.sum() / 3600) if seconds.notna().any() else None


def cell_time_text(measurements: pd.DataFrame, launches: pd.DataFrame, device: str) -> str:
    """Return the cell time, with its parts if launches.csv has exactly the records of measurements.csv."""
    hours, ranks = cell_hours(measurements), launches["nodes"] * launches["gpus_per_node"] / 3600
    used = launches["launch"].isin(measurements["launch"].dropna())
    total, warmup, sampling = (float((launches[name] * ranks)[used].sum()) for name in TIMES)
    if not hours or abs(total - hours) > 1e-6 * hours:
        return f"{rank_time(hours or 0, device)} (setup, checks, warm-up, sampling)"
    shares = {"sampling": sampling, "warm-up": warmup, "setup and checks": total - warmup - sampling}
    listed = ", ".join(f"{percent_number(part / total)} % {name}" for name, part in shares.items())
    return f"{rank_time(hours, device)}: {listed}"
