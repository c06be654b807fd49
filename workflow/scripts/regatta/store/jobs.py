"""The jobs that worked on a batch, and how each ended before the batch was finished: its jobs.jsonl."""

import contextlib
import time
from pathlib import Path

from regatta.store.launch_files import append_line, duration, read_json_lines, utc_now

ENDED_EARLY = ("no_start", "node_failure", "stopped")  # ends of a job before its batch was finished
END_NOT_RECORDED = "end not recorded"  # begins the cause that the next job notes for a job that was killed
_started_s: dict[Path, float] = {}  # by batch, when this process noted the start of its job (uptime_s)

NO_SPACE_LEFT = "no space left on"  # part of the cause if the disk is full


def note_job(
    folder: Path, kind: str, job: str | None, hosts: list[str], cause: str, num_records: int | None = None
) -> None:
    """Note that a job has `started` on a batch, has `finished` it, or ended early: `no_start`, `node_failure`, or
    `stopped` for any other reason. hosts: the nodes that the next job should avoid. num_records: those that it made.

    An end has the seconds since the start, which are correct even if the clock was stepped meanwhile."""
    line = {"kind": kind, "job": job, "hosts": hosts, "cause": cause, "time_utc": utc_now()}
    line |= {} if num_records is None else {"num_records": num_records}
    if kind == "started":
        _started_s[folder.resolve()] = uptime_s()
    elif (started_s := _started_s.get(folder.resolve())) is not None:
        line["elapsed_s"] = round(uptime_s() - started_s, 3)
    append_line(folder / "jobs.jsonl", line)


def uptime_s() -> float:
    """Return seconds by a clock that cannot be set and, on Linux, goes on while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def jobs_of_batch(folder: Path) -> list[dict]:
    """Return the notes of earlier jobs of a batch that did not finish it, oldest first."""
    return [entry for entry in noted_jobs(folder) if entry["kind"] in ENDED_EARLY]


def jobs_without_start(folder: Path) -> list[dict]:
    """Return the earlier jobs of a batch in which no rank started."""
    return [entry for entry in noted_jobs(folder) if entry["kind"] == "no_start"]


def hosts_to_avoid(folder: Path) -> list[str]:
    """Return the nodes of jobs in which launches of a batch could not start, or a node failed."""
    return sorted({host for entry in jobs_of_batch(folder) if entry["kind"] != "stopped" for host in entry["hosts"]})


def open_job(folder: Path) -> dict | None:
    """Return the last job that has begun to measure a batch, if its end was not recorded."""
    jobs = noted_jobs(folder)
    return jobs[-1] if jobs and jobs[-1]["kind"] == "started" else None


def last_noted_utc(folder: Path) -> str:
    """Return when a job last recorded an event of a batch; an empty text if none did."""
    return max((entry["time_utc"] for entry in noted_jobs(folder)), default="")


def noted_jobs(folder: Path) -> list[dict]:
    """Return the readable events of a batch's jobs, oldest first: their starts and ends."""
    found = []
    for entry in read_json_lines(folder / "jobs.jsonl"):
        with contextlib.suppress(AttributeError, KeyError, TypeError):
            hosts = [host for host in entry["hosts"] if isinstance(host, str)]
            job, time_utc = (entry[key] if isinstance(entry.get(key), str) else None for key in ("job", "time_utc"))
            job_event = {"kind": entry["kind"], "cause": str(entry["cause"]), "hosts": hosts}
            known = {"num_records": entry["num_records"]} if isinstance(entry.get("num_records"), int) else {}
            known |= {} if (elapsed_s := duration(entry.get("elapsed_s"))) is None else {"elapsed_s": elapsed_s}
            found.append(job_event | {"job": job, "time_utc": time_utc or ""} | known)
    return found
