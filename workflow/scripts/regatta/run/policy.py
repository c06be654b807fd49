"""When to stop burning hours: a stack whose cells fail alike is given up, a job whose nodes do not start is tried elsewhere."""

import contextlib
import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from regatta.core.errors import INCOMPLETE, NOTHING_MEASURED, UNEXPECTED_ERROR
from regatta.core.text import plural
from regatta.store.history import SAYS_NOTHING, read_history
from regatta.store.launch_files import append_line, read_file, utc_now

ALIKE = 3  # cells of a stack that fail alike before any is ok; then the rest of the stack is not started
MAX_JOBS_WITHOUT_START = 3  # jobs in which launches of a batch could not start; after that it is the cells that fail
ENDED_EARLY = ("no_start", "node_failure", "stopped")  # of a job: before its batch was finished
OF_THE_CELL = ("ok", "out_of_memory", "node_failure", "skipped", "invalid")  # no sign of a stack that does not work


@dataclass
class StackWatch:
    """What the records of a batch say about its stacks so far."""

    works: set[str] = field(default_factory=set)
    failures: dict[str, dict[tuple, dict[str, str]]] = field(default_factory=dict)  # stack -> signature -> cell: cause

    def note(self, stack: str, record: dict) -> None:
        if record["status"] == "ok":
            self.works.add(stack)
        elif record["status"] not in OF_THE_CELL:
            alike = self.failures.setdefault(stack, {}).setdefault(_signature(record), {})
            alike[record["cell"]] = record["cause"] or record["status"]

    def given_up(self, stack: str) -> str | None:
        """Return why no further cell of a stack is started, or None."""
        if stack in self.works:
            return None
        for alike in self.failures.get(stack, {}).values():
            if len(alike) >= ALIKE:
                return f"not started: the first {len(alike)} cells of stack {stack} failed alike: {list(alike.values())[-1]}"
        return None


def _signature(record: dict) -> tuple:
    """Failures are alike if their words are: numbers, paths and ranks differ between cells. (Not the phase: what is
    known from before a restart does not have it.)"""
    words = re.sub(r"\d+", "#", record["cause"] or "")
    return record["status"], re.sub(r"\S*/\S*", "/", words)


def jobs_of_batch(folder: Path) -> list[dict]:
    """Return what was noted of earlier jobs of a batch that did not finish it, oldest first: jobs.jsonl."""
    return [entry for entry in _noted(folder) if entry["kind"] in ENDED_EARLY]


def open_job(folder: Path) -> dict | None:
    """Return the last job that has begun to measure a batch, if there is no word of its end."""
    noted = _noted(folder)
    return noted[-1] if noted and noted[-1]["kind"] == "started" else None


def last_noted_utc(folder: Path) -> str:
    """Return when a job last noted something of a batch; an empty text where none has."""
    times = [entry.get("time_utc") for entry in _entries(folder) if isinstance(entry, dict)]
    return max((time for time in times if isinstance(time, str)), default="")


def _entries(folder: Path) -> Iterator[object]:
    try:
        lines = read_file(folder / "jobs.jsonl").decode(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            yield json.loads(line)


def _noted(folder: Path) -> list[dict]:
    found = []
    for entry in _entries(folder):
        try:
            hosts = [host for host in entry["hosts"] if isinstance(host, str)]
            kept = {"kind": entry["kind"], "cause": str(entry["cause"]), "hosts": hosts}
            job = entry.get("job")
            found.append(kept | {"job": job if isinstance(job, str) else None})
        except (KeyError, TypeError, AttributeError):
            continue
    return found


def note_job(folder: Path, kind: str, job: str | None, hosts: list[str], cause: str) -> None:
    """Note that a job has `started` on a batch, has `finished` it, or why it ended before: `no_start`, `node_failure`, or
    `stopped` by anything else. hosts: the nodes that the next job should avoid."""
    append_line(
        folder / "jobs.jsonl", {"kind": kind, "job": job, "hosts": hosts, "cause": cause, "time_utc": utc_now()}
    )


def jobs_without_start(folder: Path) -> list[dict]:
    """Return the earlier jobs of a batch in which no rank came up."""
    return [entry for entry in jobs_of_batch(folder) if entry["kind"] == "no_start"]


def hosts_to_avoid(folder: Path) -> list[str]:
    """Return the nodes of jobs in which launches of a batch could not start, or a node failed."""
    return sorted({host for entry in jobs_of_batch(folder) if entry["kind"] != "stopped" for host in entry["hosts"]})


# The exit status of a run (README, Exit status): whether each planned measurement has a record, and any is ok.


def run_status(
    results: Path, planned: Collection[tuple[str, int]], batches: Iterable[str], failed_step: str | None
) -> tuple[int, str]:
    """Return the exit status of a run that has ended, and why it is not 0.

    planned: cell and repeat of all measurements of the campaign. batches: those that this run was to finish.
    failed_step: what went wrong other than measuring, None where nothing did.
    """
    slots = read_history(results).slots
    statuses = [slots[slot].status if slot in slots else "not_measured" for slot in planned]
    num_missing = sum(status in ("not_measured", *SAYS_NOTHING) for status in statuses)
    unfinished = [batch for batch in batches if not (results / "batches" / batch / "manifest.json").exists()]
    if num_missing:
        counts = f"{num_missing} of {plural(len(planned), 'measurement')} have no record"
    elif unfinished:  # of a retry: its measurements have records from before
        counts = f"{plural(len(unfinished), 'batch', 'batches')} did not finish"
    else:
        counts = f"all of {plural(len(planned), 'measurement')} have a record"
    if failed_step:
        return UNEXPECTED_ERROR, f"{failed_step}; {counts}"
    if not planned:
        return NOTHING_MEASURED, "nothing to measure: every cell of the campaign is skipped"
    if "ok" not in statuses:
        return NOTHING_MEASURED, f"nothing was measured: {counts}, and none is ok"
    return (INCOMPLETE, counts) if num_missing or unfinished else (0, "")
