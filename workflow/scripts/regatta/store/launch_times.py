"""When launches and jobs ran, and what their time was spent on: the rows of launches.csv and jobs.csv.

All launches in the store count, including those whose records are superseded: they took time too. Imported launches
have no times. Definitions: docs/metrics.md, Timeline.
"""

import contextlib
import json
from pathlib import Path

from regatta.core.text import utc_seconds, utc_text
from regatta.store.jobs import END_NOT_RECORDED, noted_jobs
from regatta.store.launch_files import duration, read_file
from regatta.store.records import one_line


def launch_row(header: dict, launch: str, lines: list[dict], batches: Path) -> dict | None:
    """Return the row of a launch, or None if it was imported. lines: the valid ones after the first (Summary.lines)."""
    if "imported" in header:
        return None
    records = [line for line in lines if line["kind"] == "record"]
    batch = one_line(header.get("batch"))
    ends = [line["kind"] for line in lines if line["kind"] in ("complete", "stopped")]
    return {
        "batch": batch,
        "launch": launch,
        "stack": one_line(header["stack"]),
        **{name: _positive_integer(header.get(name)) for name in ("nodes", "gpus_per_node")},
        "hosts": hosts_of(header),
        "start_utc": _start_utc(header, batches / batch / "launches" / f"{launch}.json"),
        "end_utc": max((line["time_utc"] for line in lines), default=None),
        "end": ends[0] if ends else None,
        "cells_s": sum(record["elapsed_ns"] or 0 for record in records) / 1e9,
        "warmup_s": sum(record["warmup_ns"] for record in records) / 1e9,
        "measuring_s": sum(record["measuring_ns"] for record in records) / 1e9,
        "num_ok": sum(record["status"] == "ok" for record in records),
        "num_failed": sum(record["status"] != "ok" for record in records),
    }


def _positive_integer(value: object) -> int | None:
    return value if type(value) is int and 0 < value < 10**9 else None


def phase_ns(phase: dict | None) -> int:
    """Return the time of the warm-up or sampling of a record; 0 without one."""
    return (phase or {}).get("elapsed_ns") or 0


def measuring_ns(record: dict) -> int:
    """Return the time of sampling and pipelined windows; those of a user's script are the same steps."""
    return phase_ns(record["sampling"]) + (0 if "script" in record["spec"] else _windows_ns(record))


def _windows_ns(record: dict) -> int:
    """Return the time of the pipelined windows, each on its slowest rank; 0 if there are none, or damaged ones."""
    with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
        return int(sum(max(window) for window in zip(*record["windows"]["elapsed_ns"], strict=True)))
    return 0


def hosts_of(header: dict) -> str | None:
    """Return the hosts of a launch in the order of their ranks, or None if its first line does not contain them."""
    hosts = (header.get("environment") or {}).get("hosts")
    names = [host["host"] for host in hosts or [] if isinstance(host, dict) and isinstance(host.get("host"), str)]
    return ", ".join(one_line(name, 100) for name in names) or None


def _start_utc(header: dict, request: Path) -> str | None:
    """Return when the supervisor requested a launch, else when its rank 0 started, else None.

    If no rank started, the supervisor writes the first line when the launch ends.
    """
    with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError):
        requested_utc = json.loads(read_file(request)).get("time_utc")
        if utc_seconds(requested_utc) is not None:
            return min(requested_utc, header["time_utc"])
    environment, first_line = header.get("environment"), utc_seconds(header["time_utc"])
    if not environment or first_line is None:
        return None
    started = first_line - (duration(environment.get("seconds_to_ready")) or 0)
    return utc_text(started)


def job_rows(batch: Path, shape: dict) -> list[dict]:
    """Return a row for each job that worked on a batch, in the order of its jobs.jsonl.

    shape: nodes and GPUs per node. A time that was not recorded is None. If a job could not record its end, the next
    job does, with the time at which it started. elapsed_s: the job's duration by its monotonic clock.
    """
    rows: list[dict] = []
    for entry in noted_jobs(batch):
        time_utc = entry["time_utc"] if utc_seconds(entry["time_utc"]) is not None else None
        job = None if entry["job"] is None else one_line(entry["job"], 100)
        if entry["kind"] == "started":
            rows.append({"batch": batch.name, "job": job, **shape, "start_utc": time_utc})
            continue
        if not rows or "end" in rows[-1]:  # its start was not recorded
            rows.append({"batch": batch.name, "job": job, **shape})
        is_known = not entry["cause"].startswith(END_NOT_RECORDED)
        rows[-1] |= {"end": one_line(entry["kind"], 100), "end_utc": time_utc if is_known else None}
        rows[-1] |= {"elapsed_s": entry.get("elapsed_s") if is_known else None}
    return rows
