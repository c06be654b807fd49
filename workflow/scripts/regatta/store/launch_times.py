"""When launches and jobs ran, and what their time was spent on: the rows of launches.csv and jobs.csv.

All launches in the store count, including those whose records are superseded: they took time too. Imported launches
have no times. Definitions: docs/metrics.md, Timeline.
"""

import contextlib
from pathlib import Path

from regatta.core.text import one_line, utc_seconds, utc_text
from regatta.model.launches import JobEvent, LaunchHeader, duration
from regatta.store.launch_files import read_json


def launch_row(header: LaunchHeader, launch: str, lines: list[dict], batches: Path) -> dict | None:
    """Return the row of a launch, or None if it was imported. lines: the valid ones after the first (Summary.lines)."""
    if header.imported is not None:
        return None
    records = [line for line in lines if line["kind"] == "record"]
    latest = {record["cell"]: record["status"] for record in records}.values()  # an output may be read several times
    records = [record for record in records if not record["is_read_again"]]
    ends = [line["kind"] for line in lines if line["kind"] in ("complete", "stopped")]
    return {
        "batch": header.batch,
        "launch": launch,
        "stack": one_line(header.stack),
        "nodes": header.nodes,
        "gpus_per_node": header.gpus_per_node,
        "hosts": hosts_text(header),
        "start_utc": _start_utc(header, batches / header.batch / "launches" / f"{launch}.json"),
        "end_utc": max((line["time_utc"] for line in lines), default=None),
        "end": ends[0] if ends else None,
        "import_s": duration(header.environment.get("import_s")),
        "cells_s": sum(record["elapsed_ns"] or 0 for record in records) / 1e9,
        "warmup_s": sum(record["warmup_ns"] for record in records) / 1e9,
        "measuring_s": sum(record["measuring_ns"] for record in records) / 1e9,
        "num_ok": sum(status == "ok" for status in latest),
        "num_failed": sum(status != "ok" for status in latest),
    }


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


def hosts_text(header: LaunchHeader) -> str | None:
    """Return the hosts of a launch in the order of their ranks, or None if its first line does not contain them."""
    return ", ".join(one_line(name, 100) for name, _ in header.hosts) or None


def _start_utc(header: LaunchHeader, request: Path) -> str | None:
    """Return when the supervisor requested a launch, else when its rank 0 started, else None.

    If no rank started, the supervisor writes the first line when the launch ends.
    """
    with contextlib.suppress(AttributeError):
        requested_utc = read_json(request).get("time_utc")
        if utc_seconds(requested_utc) is not None:
            return min(requested_utc, header.time_utc)
    first_line = utc_seconds(header.time_utc)
    if not header.environment or first_line is None:
        return None
    return utc_text(first_line - (duration(header.environment.get("seconds_to_ready")) or 0))


def job_rows(batch: str, events: list[JobEvent], shape: dict) -> list[dict]:
    """Return a row for each job that worked on a batch, in the order of its events.

    shape: nodes and GPUs per node. A time that was not recorded is None. If a job could not record its end, the next
    job does, with the time at which it started. elapsed_s: the job's duration by its monotonic clock.
    """
    rows: list[dict] = []
    for event in events:
        time_utc = event.time_utc if utc_seconds(event.time_utc) is not None else None
        job = None if event.job is None else one_line(event.job, 100)
        if event.kind == "started":
            rows.append({"batch": batch, "job": job, **shape, "start_utc": time_utc})
            continue
        if not rows or "end" in rows[-1]:  # its start was not recorded
            rows.append({"batch": batch, "job": job, **shape})
        known = (None, None) if event.is_by_next_job else (time_utc, event.elapsed_s)
        rows[-1] |= {"end": one_line(event.kind, 100), "end_utc": known[0], "elapsed_s": known[1]}
    return rows
