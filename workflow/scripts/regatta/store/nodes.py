"""Record nodes that failed jobs, for all batches and runs until a user clears them: results/<campaign>/nodes.jsonl."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from regatta.core.text import one_line, plural
from regatta.store.launch_files import append_line, read_json_lines, utc_now

FILE = "nodes.jsonl"
TEXTS = ("source", "cause", "time_utc")


def blame_nodes(results: Path, hosts: Iterable[str], source: str, job: str | None, cause: str) -> None:
    """Record that nodes failed a job. source: the batch or preflight."""
    for host in sorted(hosts):
        line = {"kind": "blamed", "host": host, "source": source, "job": job, "cause": cause, "time_utc": utc_now()}
        append_line(results / FILE, line)


def clear_nodes(results: Path, hosts: Iterable[str]) -> None:
    for host in hosts:
        append_line(results / FILE, {"kind": "cleared", "host": host, "time_utc": utc_now()})


def blamed_nodes(results: Path) -> dict[str, list[dict]]:
    """Return the evidence against each node since it was last cleared, oldest first."""
    found: dict[str, list[dict]] = {}
    for entry in read_json_lines(results / FILE):
        with contextlib.suppress(AttributeError, KeyError, TypeError):
            if not isinstance(host := entry["host"], str):
                continue
            if entry["kind"] == "cleared":
                found.pop(host, None)
            elif entry["kind"] == "blamed":
                job = one_line(entry["job"]) if isinstance(entry["job"], str) else None
                found.setdefault(host, []).append({"job": job} | {name: one_line(entry[name]) for name in TEXTS})
    return found


def blame_text(host: str, evidence: list[dict]) -> str:
    """Return why a node is avoided: `n2 failed 2 jobs, last on 2026-11-21 (n02g02-..., job 17): ...`."""
    last = evidence[-1]
    job = f", job {last['job']}" if last["job"] else ""
    when = f"last on {last['time_utc'][:10]} ({last['source']}{job})"
    return f"{one_line(host)} failed {plural(len(evidence), 'job')}, {when}: {last['cause']}"
