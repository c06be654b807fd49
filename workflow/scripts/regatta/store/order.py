"""Which of several records of one cell and repeat counts. Plan and report ask the same function, so that they agree.

A batch's generation is above that of each record that its plan found for its cells and repeats, and attempts are numbered.
Clocks have no part in either. Times decide where there is nothing better: between records without a generation (of
earlier versions, and imported ones), and between batches whose plans did not know each other's records.
"""

import contextlib
import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path

MAX_GENERATION = 10_000_000  # as in workflow/schemas/record.yaml; beyond it is no generation
MOST_SECONDS_AHEAD = 300  # by which clocks of one cluster may differ without a warning
BUILT_ON = (
    "*.json",
    "*.csv",
    "tables/*.csv",
    "launches/*.jsonl",
    "batches/*/*.json",
    "preflight/*.json",
    "preflight/*/*.json",
)
ATTEMPT = re.compile(r"-a([0-9]+)$")


def generation_of(header: dict) -> int:
    """Return the generation in a launch's first line, or 0 where it has none."""
    generation = header.get("generation")
    return generation if type(generation) is int and 1 <= generation <= MAX_GENERATION else 0


def record_order(launch: str, generation: int, time_utc: str, line: int) -> tuple[int, int, str, str, int]:
    """Return the key by which records of one cell and repeat are sorted: the last one counts.

    time_utc: of the launch. line: of the record in its launch file.
    """
    attempt = ATTEMPT.search(launch) if generation else None
    return generation, int(attempt[1]) if attempt else 0, time_utc, launch, line


def is_after_now(time_utc: object, now: float | None = None) -> bool:
    """Whether a recorded time has not come yet, by more than clocks may differ. What is no time is not."""
    try:
        seconds = datetime.strptime(time_utc, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except (TypeError, ValueError):
        return False
    return seconds > (time.time() if now is None else now) + MOST_SECONDS_AHEAD


def end_times_after_now(results: Path) -> None:
    """Give the files of a results folder that are newer than now the time of now: Snakemake refuses to build on them."""
    now = time.time()
    for path in (path for pattern in BUILT_ON for path in results.glob(pattern)):
        with contextlib.suppress(OSError):  # it may be somebody else's; then Snakemake says what is wrong
            if path.stat().st_mtime > now:
                os.utime(path)
