"""Statuses of measurements as the page shows them: in which order, with which mark."""

from collections import Counter

import pandas as pd

STATUSES = (
    "ok",
    "failed",
    "timeout",
    "out_of_memory",
    "placement",
    "node_failure",
    "not_measured",
    "not_started",
    "skipped",
)
MARKS = {
    "ok": "\N{CHECK MARK}",
    "not_measured": "\N{WHITE CIRCLE}",
    "not_started": "\N{WHITE CIRCLE}",
    "skipped": "\N{EN DASH}",
}
BAD_MARK = "\N{MULTIPLICATION SIGN}"


def shown_status(rows: pd.DataFrame) -> pd.Series:
    """Return the status of each row as the page shows it: a planned repeat that was skipped is not_started.

    What is left as skipped are cells that were never planned to run, which have no repeat.
    """
    is_repeat = (rows["status"] == "skipped") & rows["repeat"].notna()
    return rows["status"].mask(is_repeat.fillna(False), "not_started")


def status_counts(measurements: pd.DataFrame) -> list[tuple[str, int]]:
    """Return (status, number): measurements by status, cells skipped last; ok and what is not 0."""
    numbers = Counter(shown_status(measurements))
    return [(status, numbers[status]) for status in STATUSES if numbers[status] or status == "ok"]


def status_text(status: str) -> str:
    return f"{MARKS.get(status, BAD_MARK)} {status.replace('_', ' ')}"
