"""The tables of times: when launches ran on which hosts, and what the time of the allocations was spent on.

timeline.csv and allocations.csv. Definitions: docs/metrics.md.
"""

import itertools
import math
from collections.abc import Callable

import pandas as pd

from regatta.core.text import UNKNOWN, is_unknown, natural, three, utc_seconds
from regatta.kit.columns import REAL, TEXT, WHOLE, Column, Columns, in_file
from regatta.store.csv_files import JOBS, LAUNCHES, make_table

DAY = 86400
CLOCK_TOLERANCE_S = 5  # whole seconds, of clocks on different hosts: a launch may seem to start before its job
_START = "start and end, in seconds since the first launch of the results folder started"
_SUM = "sum over its launches, each weighted by its share of the allocation's ranks: see below"
_HOURS = "nodes × GPUs per node × `allocation_s` / 3600, and × `idle_s` / 3600; process hours on CPUs"


def elapsed_text(seconds: float) -> str:
    """Return an elapsed time for the axis: 30 s, 10 min, 1.5 h, 7 days."""
    for factor, unit in ((DAY, "days"), (3600, "h"), (60, "min")):
        if seconds >= factor:
            number = f"{seconds / factor:.1f}".removesuffix(".0")
            return f"{number} {'day' if unit == 'days' and number == '1' else unit}"
    return f"{three(seconds) if seconds % 1 else int(seconds)} s"


def records(table: pd.DataFrame) -> list[dict]:
    """Return the rows of a table; what is unknown is None."""
    return table.astype(object).where(table.notna(), None).to_dict("records")


def hosts_of(rows: list[dict]) -> set[str]:
    return {host for row in rows for host in (row["hosts"] or "").split(", ") if host}


def hosts_by_launch(launches: pd.DataFrame) -> dict[str, str]:
    """Return the hosts of each launch as launches.csv lists them, where they were recorded."""
    known = launches.dropna(subset=["hosts"])
    return dict(zip(known["launch"], known["hosts"], strict=True))


def _elapsed(name: str) -> Callable[[object], str]:
    return lambda row: UNKNOWN if is_unknown(getattr(row, name)) else elapsed_text(round(getattr(row, name)))


_DURATION = "`end_utc` − `start_utc`, but at least `cells_s`: see below"
TIMELINE = Columns(
    Column("start_s", "start", table="launches", text=_elapsed("start_s"), help=_START),
    *in_file(REAL, _START, "end_s"),
    Column("duration_s", "duration", table="launches", text=_elapsed("duration_s"), help=_DURATION),
    *in_file(REAL, "`duration_s` − `cells_s`: start of the ranks, placement check, time between cells", "overhead_s"),
    *LAUNCHES.declared,
    *in_file(TEXT, "job in which the launch ran", "job"),
)
ALLOCATIONS = Columns(
    *JOBS.declared,
    *in_file(TEXT, "hosts of its launches", "hosts"),
    *in_file(REAL, _START, "start_s", "end_s"),
    *in_file(WHOLE, "launches of the batch that started after this job and before the next", "num_launches"),
    *in_file(REAL, "`end_utc` − `start_utc`, but at least the sum of its launches: see below", "allocation_s"),
    *in_file(REAL, _SUM, "measuring_s", "warmup_s", "cells_s", "launch_start_s"),
    *in_file(REAL, "part of `launch_start_s`, summed likewise; empty if no launch recorded it", "import_s"),
    *in_file(REAL, "`allocation_s` minus `cells_s` and `launch_start_s`", "idle_s"),
    *in_file(REAL, _HOURS, "gpu_hours", "idle_gpu_hours"),
    *in_file(REAL, "`measuring_s` / `allocation_s`", "measuring_ratio"),
    *in_file(REAL, "by how much the clock was stepped during the job: see below. Positive is forward", "clock_step_s"),
)


def timeline_table(launches: pd.DataFrame, jobs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per launch, by start. launches, jobs: the collected tables."""
    rows, _ = _rows(launches, jobs)
    return make_table([{name: row[name] for name in TIMELINE} for row in rows], TIMELINE)


def allocations_table(launches: pd.DataFrame, jobs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per job of a batch, by start; launches of a batch without a recorded job share one row."""
    _, allocations = _rows(launches, jobs)
    allocations.sort(key=lambda job: (_first_start_s(job), job["batch"]))
    return make_table([_allocation(job) for job in allocations], ALLOCATIONS)


def _first_start_s(job: dict) -> float:
    starts = [row.get("start_s") for row in (job, *job["launches"])]
    return min((start for start in starts if start is not None), default=math.inf)


def _rows(launches: pd.DataFrame, jobs: pd.DataFrame) -> tuple[list[dict], list[dict]]:
    """Return the launches by start, each with its job, and the jobs of batches, each with its `launches`.

    Times are relative to the start of the first launch. Launches of a batch that have no recorded job
    share one without times.
    """
    rows = records(launches)
    begin = min((start for row in rows if (start := utc_seconds(row["start_utc"])) is not None), default=None)
    found: dict[str, list[dict]] = {}
    for job in records(jobs):
        job |= _relative(job, begin) | {"launches": []}
        found.setdefault(job["batch"], []).append(job | _without_clock_step(job))
    for row in rows:
        row |= _relative(row, begin)
    rows.sort(key=lambda row: (row["start_s"] is None, row["start_s"] or 0, natural(row["launch"])))
    unrecorded: dict[str, dict] = {}
    for row in rows:
        batch = row["batch"]
        job = _job_of(row, found.get(batch, [])) or unrecorded.setdefault(batch, {"batch": batch, "launches": []})
        job["launches"].append(row)
        row |= _durations(row, job.get("elapsed_s")) | {"job": job.get("job")}
    return rows, [*itertools.chain.from_iterable(found.values()), *unrecorded.values()]


def _relative(row: dict, begin: int | None) -> dict:
    seconds = {name: utc_seconds(row[f"{name}_utc"]) for name in ("start", "end")}
    return {f"{n}_s": None if begin is None or at is None else float(at - begin) for n, at in seconds.items()}


def _without_clock_step(job: dict) -> dict:
    """Return the end of a job by its monotonic clock, and by how much the clock was stepped during it, if it was."""
    start_s, end_s, elapsed_s = job["start_s"], job["end_s"], job["elapsed_s"]
    if start_s is None or end_s is None:
        return {"clock_step_s": None}
    least_s = 0 if elapsed_s is None else elapsed_s  # an earlier version recorded none: at least 0
    step_s = end_s - start_s - least_s
    is_known = step_s < -CLOCK_TOLERANCE_S or (step_s > CLOCK_TOLERANCE_S and elapsed_s is not None)
    return {"end_s": start_s + least_s, "clock_step_s": step_s} if is_known else {"clock_step_s": None}


def _durations(row: dict, job_s: float | None) -> dict:
    """Return the duration of a launch: between its UTC times, or by the clock of its ranks if that is longer.

    job_s: duration of its job. If a launch appears longer, the clock was stepped during it, and only its cells count.
    """
    if row["start_s"] is None or (row["end_s"] is None and not row["cells_s"]):
        return {"duration_s": None, "overhead_s": None}
    end_s = row["start_s"] if row["end_s"] is None else row["end_s"]
    duration_s = max(end_s - row["start_s"], row["cells_s"])
    if job_s is not None and duration_s > job_s + CLOCK_TOLERANCE_S:
        duration_s = row["cells_s"]
    overhead_s = duration_s - row["cells_s"]
    import_s = None if row["import_s"] is None else min(row["import_s"], overhead_s)
    times = {"end_s": row["start_s"] + duration_s, "duration_s": duration_s}
    return times | {"overhead_s": overhead_s, "import_s": import_s}


def _job_of(row: dict, jobs: list[dict]) -> dict | None:
    """Return the last job of its batch that started before a launch; None if none is recorded."""
    at = row["end_s"] if row["start_s"] is None else row["start_s"]
    if at is None:
        return None
    started = [job for job in jobs if job["start_s"] is not None and job["start_s"] <= at + CLOCK_TOLERANCE_S]
    set_back = [job for job in jobs if (job["clock_step_s"] or 0) < 0]
    return (started[-1:] or set_back[:1] or [None])[0]


def _allocation(job: dict) -> dict:
    """Return the row of allocations.csv of a job with its launches. Without start and end, its times are unknown."""
    launches, row = job["launches"], {name: job.get(name) for name in (*JOBS, "start_s", "end_s", "clock_step_s")}
    for name in ("nodes", "gpus_per_node"):  # a job that started no launch, or whose batch.json is gone
        row[name] = next((of[name] for of in (job, *launches) if of.get(name) is not None), None)
    row |= {"hosts": ", ".join(sorted(hosts_of(launches), key=natural)) or None, "num_launches": len(launches)}
    # The part of the allocation's ranks that a launch uses: below 1 in a sweep, and in a packed allocation.
    sizes = [(one["nodes"], one["gpus_per_node"], row["nodes"], row["gpus_per_node"]) for one in launches]
    shares = [1.0 if None in of else of[0] * of[1] / (of[2] * of[3]) for of in sizes]

    def weighted(name: str) -> float:
        return sum(share * (launch[name] or 0) for share, launch in zip(shares, launches, strict=True))

    row |= {name: weighted(name) for name in ("measuring_s", "warmup_s", "cells_s")}
    if any(launch["duration_s"] is None for launch in launches):
        return row
    launches_s, row["launch_start_s"] = weighted("duration_s"), weighted("overhead_s")
    if any(launch["import_s"] is not None for launch in launches):
        row["import_s"] = weighted("import_s")
    if None in (row["start_s"], row["end_s"], row["nodes"], row["gpus_per_node"]):
        return row
    # Launches on the same ranks run one after another, so an allocation is never shorter than all of them.
    row["allocation_s"] = max(row["end_s"] - row["start_s"], launches_s)
    if row["clock_step_s"] and row["elapsed_s"] is not None and launches_s > row["elapsed_s"]:
        row["allocation_s"] = launches_s = max(row["elapsed_s"], row["cells_s"])  # a launch appears longer than it was
        row["launch_start_s"] = launches_s - row["cells_s"]
        row["import_s"] = None if row.get("import_s") is None else min(row["import_s"], row["launch_start_s"])
    row["idle_s"] = row["allocation_s"] - launches_s
    hours = row["nodes"] * row["gpus_per_node"] / 3600
    row |= {"gpu_hours": hours * row["allocation_s"], "idle_gpu_hours": hours * row["idle_s"]}
    row["measuring_ratio"] = row["measuring_s"] / row["allocation_s"] if row["allocation_s"] else None
    return row
