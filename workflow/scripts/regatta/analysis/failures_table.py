"""Everything that was planned and is not ok, and everything that was skipped: tables/failures.csv."""

import re

import pandas as pd

from regatta.analysis.tables import FAILURES, make_table
from regatta.cell_words import natural

LAUNCH_NAME = re.compile(r"(?P<batch>.+)-l\d+-a\d+")  # <batch>-l<number>-a<attempt>; the log lies with its batch


def failures_table(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each planned cell and repeat that is not ok, then one for each skipped cell."""
    rows = measurements[measurements["status"] != "ok"].astype(object)
    rows = rows.where(rows.notna(), None).to_dict("records")
    rows.sort(key=lambda row: (row["status"] == "skipped", natural(row["cell"]), row["repeat"] or 0))
    return make_table([row | {"log": log_path(row["launch"])} for row in rows], FAILURES)


def log_path(launch: str | None) -> str | None:
    """Return where the output of a launch is, relative to the results folder."""
    match = LAUNCH_NAME.fullmatch(launch or "")
    return f"batches/{match['batch']}/logs/{launch}.log" if match else None
