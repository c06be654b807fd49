"""When launches ran, and what the time of each allocation was spent on: timeline.csv and allocations.csv."""

import pandas as pd

from regatta.core.text import natural
from regatta.store.csv_files import REAL, TEXT, WHOLE, make_table
from regatta.store.launch_times import utc_seconds
from regatta.topics.base import plain_rows

CLOCK_TOLERANCE_S = 5  # whole seconds, of clocks on different hosts: a launch may seem to start before its job
_PLACE = {"hosts": TEXT, **dict.fromkeys(("nodes", "gpus_per_node"), WHOLE)}
_TIMES = {**dict.fromkeys(("start_utc", "end_utc", "end"), TEXT), **dict.fromkeys(("start_s", "end_s"), REAL)}
TIMELINE = {
    **dict.fromkeys(("batch", "launch", "job", "stack"), TEXT),
    **_PLACE,
    **_TIMES,
    **dict.fromkeys(("duration_s", "measuring_s", "warmup_s", "cells_s", "overhead_s"), REAL),
    **dict.fromkeys(("num_ok", "num_failed"), WHOLE),
}
# Parts of an allocation, in the order in which the report lists them.
PARTS = ("measuring_s", "warmup_s", "cells_s", "launch_start_s", "idle_s")
ALLOCATIONS = {
    **dict.fromkeys(("batch", "job"), TEXT),
    **_PLACE,
    **_TIMES,
    "num_launches": WHOLE,
    **dict.fromkeys(("allocation_s", *PARTS, "gpu_hours", "idle_gpu_hours", "measuring_ratio"), REAL),
}


def timeline_table(launches: pd.DataFrame, jobs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per launch, by start. launches, jobs: the collected tables."""
    rows, _ = _rows(launches, jobs)
    return make_table([{name: row[name] for name in TIMELINE} for row in rows], TIMELINE)


def allocations_table(launches: pd.DataFrame, jobs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per job of a batch, by start; launches of a batch without a recorded job share one row."""
    rows, attempts = _rows(launches, jobs)
    for row in rows:
        key = (row["batch"], row["attempt"])
        attempts.setdefault(key, {"batch": row["batch"]}).setdefault("launches", []).append(row)
    return make_table([_allocation(attempts[key]) for key in sorted(attempts, key=_order(attempts))], ALLOCATIONS)


def _order(attempts: dict):
    def order(key: tuple) -> tuple:
        starts = [row["start_s"] for row in (attempts[key], *attempts[key].get("launches", ())) if "start_s" in row]
        return (min((start for start in starts if start is not None), default=float("inf")), key[0], key[1] or 0)

    return order


def _rows(launches: pd.DataFrame, jobs: pd.DataFrame) -> tuple[list[dict], dict[tuple, dict]]:
    """Return the launches by start, and the jobs by (batch, number of the job in its batch).

    Both get times relative to the start of the first launch; a launch also the job in which it ran.
    """
    rows = plain_rows(launches, tuple(launches.columns))
    begin = min((start for row in rows if (start := utc_seconds(row["start_utc"])) is not None), default=None)
    attempts: dict[tuple, dict] = {}
    for job in plain_rows(jobs, tuple(jobs.columns)):
        number = sum(batch == job["batch"] for batch, _ in attempts)
        attempts[job["batch"], number] = job | _relative(job, begin)
    for row in rows:
        row |= _relative(row, begin)
        row |= _durations(row)
        row["attempt"] = _attempt(row, attempts)
        row["job"] = attempts.get((row["batch"], row["attempt"]), {}).get("job")
    rows.sort(key=lambda row: (row["start_s"] is None, row["start_s"] or 0, natural(row["launch"])))
    return rows, attempts


def _relative(row: dict, begin: int | None) -> dict:
    seconds = {name: utc_seconds(row[f"{name}_utc"]) for name in ("start", "end")}
    return {f"{n}_s": None if begin is None or at is None else float(at - begin) for n, at in seconds.items()}


def _durations(row: dict) -> dict:
    """Return the duration of a launch: between its UTC times, or by the clock of its ranks if that is longer."""
    if row["start_s"] is None or (row["end_s"] is None and not row["cells_s"]):
        return {"duration_s": None, "overhead_s": None}
    end_s = row["start_s"] if row["end_s"] is None else row["end_s"]
    duration_s = max(end_s - row["start_s"], row["cells_s"])
    return {"end_s": row["start_s"] + duration_s, "duration_s": duration_s, "overhead_s": duration_s - row["cells_s"]}


def _attempt(row: dict, attempts: dict[tuple, dict]) -> int | None:
    """Return the number of the last job of the batch that started before the launch; None if none is recorded."""
    at = row["end_s"] if row["start_s"] is None else row["start_s"]
    if at is None:
        return None
    jobs = [(number, job["start_s"]) for (batch, number), job in attempts.items() if batch == row["batch"]]
    started = [number for number, start in jobs if start is not None and start <= at + CLOCK_TOLERANCE_S]
    return max(started, default=None)


def _allocation(attempt: dict) -> dict:
    """Return the row of allocations.csv of a job with its launches. Without start and end, its times are unknown."""
    launches = attempt.get("launches", [])
    place = [attempt, *launches]  # a job that started no launch, or whose batch.json is gone
    nodes = next((row["nodes"] for row in place if row.get("nodes") is not None), None)
    gpus = next((row["gpus_per_node"] for row in place if row.get("gpus_per_node") is not None), None)
    hosts = sorted({host for row in launches for host in (row["hosts"] or "").split(", ") if host}, key=natural)
    row = {name: attempt.get(name) for name in ("batch", "job", *_TIMES)}
    row |= {"hosts": ", ".join(hosts) or None, "nodes": nodes, "gpus_per_node": gpus, "num_launches": len(launches)}
    row |= {name: sum(launch[name] for launch in launches) for name in ("measuring_s", "warmup_s", "cells_s")}
    if any(launch["duration_s"] is None for launch in launches):
        return row
    launches_s = sum(launch["duration_s"] for launch in launches)
    row["launch_start_s"] = sum(launch["overhead_s"] for launch in launches)
    if row["start_s"] is None or row["end_s"] is None or nodes is None or gpus is None:
        return row
    # Launches of a batch run one after another, so an allocation is never shorter than all of them.
    row["allocation_s"] = max(row["end_s"] - row["start_s"], launches_s)
    row["idle_s"] = row["allocation_s"] - launches_s
    hours = nodes * gpus / 3600
    row |= {"gpu_hours": hours * row["allocation_s"], "idle_gpu_hours": hours * row["idle_s"]}
    row["measuring_ratio"] = row["measuring_s"] / row["allocation_s"] if row["allocation_s"] else None
    return row
