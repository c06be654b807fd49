"""The jobs that worked on a batch, and how each ended before the batch was finished: its jobs.jsonl."""

import contextlib
import shutil
import time
from pathlib import Path

from regatta.model.frozen import fields_to_json
from regatta.model.launches import ENDED_EARLY, JobEvent, utc_now
from regatta.store.launch_files import append_line, read_json_lines

NO_SPACE_LEFT = "no space left on"  # part of the cause if the disk is full
MIN_FREE_BYTES = 4 * 2**20  # several of the largest records
_started_s: dict[Path, float] = {}  # by batch, when this process noted the start of its job (uptime_s)


def note_job(
    folder: Path, kind: str, job: str | None, hosts: list[str], cause: str, num_records: int | None = None
) -> None:
    """Note that a job has `started` on a batch, has `finished` it, or ended early: `no_start`, `node_failure`, or
    `stopped` for any other reason. hosts: the nodes that the next job should avoid. num_records: those that it made.

    An end has the seconds since the start, which are correct even if the clock was stepped meanwhile."""
    elapsed_s, started_s = None, _started_s.get(folder.resolve())
    if kind == "started":
        _started_s[folder.resolve()] = uptime_s()
    elif started_s is not None:
        elapsed_s = round(uptime_s() - started_s, 3)
    event = JobEvent(kind, job, hosts, cause, utc_now(), num_records, elapsed_s)
    append_line(folder / "jobs.jsonl", fields_to_json(event))


def is_full(folder: Path) -> bool:
    """Return whether the disk of a folder has no space for a job's records; False if it is not there."""
    with contextlib.suppress(OSError):
        return shutil.disk_usage(folder).free < MIN_FREE_BYTES
    return False


def uptime_s() -> float:
    """Return seconds by a clock that cannot be set and, on Linux, goes on while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def noted_jobs(folder: Path) -> list[JobEvent]:
    """Return the readable events of a batch's jobs, oldest first: their starts and ends."""
    found = []
    for line in read_json_lines(folder / "jobs.jsonl"):
        with contextlib.suppress(AttributeError, KeyError, TypeError):
            found.append(JobEvent.from_json(line))
    return found


def jobs_of_batch(folder: Path) -> list[JobEvent]:
    """Return the ends of earlier jobs of a batch that did not finish it, oldest first."""
    return [event for event in noted_jobs(folder) if event.kind in ENDED_EARLY]


def jobs_without_start(folder: Path) -> list[JobEvent]:
    """Return the earlier jobs of a batch in which no rank started."""
    return [event for event in noted_jobs(folder) if event.kind == "no_start"]


def hosts_to_avoid(folder: Path) -> list[str]:
    """Return the nodes of jobs in which launches of a batch could not start, or a node failed."""
    return sorted({host for event in jobs_of_batch(folder) if event.kind != "stopped" for host in event.hosts})


def open_job(events: list[JobEvent]) -> JobEvent | None:
    """Return the last job that has begun to measure a batch, if its end was not recorded."""
    return events[-1] if events and events[-1].kind == "started" else None
