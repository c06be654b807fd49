"""The timeline: when launches ran on which hosts, and what the time of the allocations was spent on.

Tables timeline.csv and allocations.csv. Definitions: docs/metrics.md.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from regatta.core.text import UNKNOWN, is_unknown, natural, plural, rank_time, utc_seconds
from regatta.kit.columns import REAL, TEXT, WHOLE, Column, Columns, in_file
from regatta.kit.kinds import LOW, NOTE, RESULT, Kind
from regatta.report.findings import Finding, of_rows, percent_number
from regatta.report.panels import Figure, Section, Table
from regatta.store.csv_files import JOBS, LAUNCHES, make_table
from regatta.topics import gantt
from regatta.topics.base import ReportData, TableSpec, Topic, plain_rows
from regatta.topics.gantt import elapsed_text, hosts_of

CLOCK_TOLERANCE_S = 5  # whole seconds, of clocks on different hosts: a launch may seem to start before its job
_START = "start and end, in seconds since the first launch of the results folder started"
_SUM = "sum over its launches, each weighted by its share of the allocation's ranks: see below"
_HOURS = "nodes × GPUs per node × `allocation_s` / 3600, and × `idle_s` / 3600; process hours on CPUs"


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

    Times are relative to the start of the first launch. A batch whose launches have no recorded job has one without
    times.
    """
    rows = plain_rows(launches, tuple(launches.columns))
    begin = min((start for row in rows if (start := utc_seconds(row["start_utc"])) is not None), default=None)
    found: dict[str, list[dict]] = {}
    for job in plain_rows(jobs, tuple(jobs.columns)):
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


# The section.

# Parts of the allocated time, as in a sentence.
PARTS = {"measuring": "measuring", "warmup": "warm-up", "other": "setup and checks"}
PARTS |= {"launch_start": "launch startup", "import": "imports", "idle": "idle"}


def section(data: ReportData) -> Section:
    """Return the chart of launches by host, and their table."""
    timeline, hours = data.tables["timeline"], allocated_hours(data.tables["allocations"])
    if timeline.empty:
        return Section("timeline", "Timeline")
    repeats = data.measurements.dropna(subset="launch").drop_duplicates("launch").set_index("launch")["repeat"]
    launches = plain_rows(timeline.assign(repeat=timeline["launch"].map(repeats)), (*TIMELINE, "repeat"))
    rows = gantt.bars_of(launches, plain_rows(data.tables["allocations"], tuple(ALLOCATIONS)))
    shown = gantt.shown_rows(rows) if rows else []
    notes = ["Each bar sums several consecutive launches."] if gantt.is_summed(launches) else []
    if len(shown) < len(rows):
        num = len(rows) - len(shown)
        notes.append(f"Not drawn: {num:,} of {plural(len(rows), 'node')}, those with fewer failures.")
    table = Table.of_columns("Launches", TIMELINE.of_table("launches"), timeline, data.device, ("timeline",))
    chart = gantt.chart_of({name: rows[name] for name in shown}) if rows else None
    figure = Figure("gantt", "Timeline of launches", chart, table, "timeline") if chart else None
    idle = f"{percent_number(hours['idle'] / hours['total'])} % idle" if hours["total"] else ""
    state, tables = idle or plural(len(timeline), "launch", "launches"), (replace(table, is_words=True),)
    # With allocations, the finding on them has the shares.
    shares = gantt.shares_of([bar for bars in rows.values() for bar in bars]) if not hours["total"] else {}
    content = {"figure": figure, "note": " ".join(notes), "spent": gantt.shares_text(shares)}
    return Section("timeline", "Timeline", "", (), tables, "timeline.html.j2", content, (state, "quiet"))


def allocated_hours(allocations: pd.DataFrame) -> dict[str, float]:
    """Return ranks x hours in total and by part of the allocations whose start and end were recorded.

    Shares are computed from these sums.
    """
    known = allocations.dropna(subset="gpu_hours")
    hours = {name: known[f"{name}_s"] for name in ("measuring", "warmup")}
    hours |= {"other": known["cells_s"] - hours["measuring"] - hours["warmup"], "import": known["import_s"].fillna(0.0)}
    hours |= {"launch_start": known["launch_start_s"] - hours["import"]}
    ranks = known["nodes"] * known["gpus_per_node"] / 3600
    found = {"total": known["gpu_hours"], **{part: ranks * of_part for part, of_part in hours.items()}}
    return {part: float(of_part.sum()) for part, of_part in (found | {"idle": known["idle_gpu_hours"]}).items()}


KINDS = (
    Kind(
        *("allocated_time", RESULT),
        lead=(
            "Allocated {allocated}: {shares} ({idle}).",
            "Start and end of allocations were not recorded: idle time unknown.",
        ),
        parts=("Start or end of {num_excluded} of {num:allocation} not recorded: excluded, idle time unknown.",),
        term="Allocated time",
        help="An allocation lasts from the first to the last action of the supervisor in a job, excluding queue time."
        " Measuring: iterations and windows. Setup, checks: the rest of the cells. Imports: process start to the end of"
        " imports, slowest rank; launch startup if not recorded. Launch startup: other time of launches. Idle:"
        " allocated time outside launches. GPU hours: ranks of the shape × hours. In the chart, the parts of a launch"
        " are summed over its cells.",
    ),
    Kind(
        *("clock_step", NOTE),
        lead="Clock stepped: {way} by {size} during a job ({num:job} affected).",
        advice="Hours are correct; timestamps of launches in these jobs are not. Synchronize all clocks (chrony).",
    ),
    Kind(
        *("overlapping_launches", LOW),
        lead="Overlapping launches: {num} of {num_launches:launch/launches} overlapped with another on the same host.",
        parts=("Example: {first} and {second} on {host}.",),
        advice="Their times are not comparable. Use exclusive allocations, and one Regatta run at a time.",
        next_step="run one campaign at a time, on whole nodes: `exclusive: true`",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return what allocations were spent on, and what makes these times doubtful."""
    return [*_allocated(data), *_clock_steps(data), *_overlapping(data)]


def _allocated(data: ReportData) -> list[Finding]:
    table, hours = data.tables["allocations"], allocated_hours(data.tables["allocations"])
    if table.empty:
        return []
    table = table.sort_values("idle_gpu_hours", ascending=False, kind="stable")
    values, words = {"num": len(table)}, {}
    if hours["total"]:
        values |= {"num_excluded": int(table["gpu_hours"].isna().sum()), "idle_hours": hours["idle"]}
        values |= {"allocated_hours": hours["total"], "idle_ratio": hours["idle"] / hours["total"]}
        parts = {part: label for part, label in PARTS.items() if part != "import" or hours[part]}
        shares = [f"{percent_number(hours[part] / hours['total'])} % {label}" for part, label in parts.items()]
        words = {name: rank_time(values[f"{name}_hours"], data.device) for name in ("idle", "allocated")}
        words["shares"] = ", ".join(shares)
    return [Finding("allocated_time", values, (of_rows("allocations", table),), words=words)]


def _clock_steps(data: ReportData) -> list[Finding]:
    """Return the finding that the clock was stepped during jobs, with the largest step first."""
    rows = data.tables["allocations"].dropna(subset="clock_step_s")
    if rows.empty:
        return []
    rows = rows.sort_values("clock_step_s", key=abs, ascending=False, kind="stable")
    step_s = float(rows["clock_step_s"].iloc[0])
    words = {"size": elapsed_text(round(abs(step_s))), "way": "forward" if step_s > 0 else "back"}
    values = {"step_s": step_s, "num": len(rows)}
    return [Finding("clock_step", values, (of_rows("allocations", rows),), (), "warnings", words)]


def _overlapping(data: ReportData) -> list[Finding]:
    """Return the finding that launches ran on a host at the same time."""
    pairs, rows = overlaps(data.tables["timeline"]), data.tables["timeline"]
    if not pairs:
        return []
    names = {name for first, second, _ in pairs for name in (first, second)}
    values = {"num": len(names), "num_launches": len(rows), "num_hosts": len({host for *_, host in pairs})}
    words = dict(zip(("first", "second", "host"), pairs[0], strict=True))
    source, ok = of_rows("timeline", rows[rows["launch"].isin(names)]), data.ok
    cells = tuple(ok.loc[ok["launch"].isin(names), "cell"].unique())
    return [Finding("overlapping_launches", values, (source,), cells, "warnings", words)]


def overlaps(timeline: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Return (launch, later launch, host) of launches that overlap by more than the clock tolerance.

    Each launch is compared only with the latest-ending earlier launch on its host, so three concurrent launches yield
    two pairs.
    """
    latest: dict[str, tuple[float, str]] = {}  # of a host: end and name of the launch that ended last
    found = []
    for row in plain_rows(timeline.sort_values("start_s", kind="stable"), tuple(TIMELINE)):
        start, end = utc_seconds(row["start_utc"]), utc_seconds(row["end_utc"])
        if start is None or end is None or not row["hosts"]:
            continue
        for host in row["hosts"].split(", "):
            last_end, name = latest.get(host, (-math.inf, ""))
            if start + CLOCK_TOLERANCE_S < min(last_end, end):
                found.append((name, row["launch"], host))
            latest[host] = max((last_end, name), (end, row["launch"]))
    return found


TABLES = {
    "timeline": TableSpec.of(TIMELINE, timeline_table, "launches", "jobs"),
    "allocations": TableSpec.of(ALLOCATIONS, allocations_table, "launches", "jobs"),
}
TOPIC = Topic(*("timeline", "Timeline", TABLES, section, findings), is_of_sweeps=True, is_judge=True, kinds=KINDS)
