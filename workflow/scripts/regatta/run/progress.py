"""Progress and outcome of a run: what each launch has recorded, which stacks fail, and the exit status."""

import csv
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from regatta.core.errors import INCOMPLETE, NOTHING_MEASURED, UNEXPECTED_ERROR
from regatta.core.text import one_line, plural, status_text
from regatta.run.causes import without_host
from regatta.run.preflight import failed_stacks, latest_preflight
from regatta.store.history import ALWAYS_RETRIED, read_history
from regatta.store.launch_files import Tail, read_json


class Watch(Tail):
    """Follow a launch through its launch file. Call `update` often; times are of `clock`, in seconds.

    limits: seconds of each cell. start_seconds: limit until the first cell starts, and for each pause between cells.
    recorded: the status of each cell with a record. since: when the last line was read.
    """

    def __init__(self, path: Path, limits: dict[str, float], start_seconds: float, clock=time.monotonic):
        super().__init__(path)
        self.limits, self.start_seconds, self.clock = limits, start_seconds, clock
        self.recorded: dict[str, str] = {}
        self.since = clock()

    def update(self) -> list[dict]:
        """Read the appended lines and return them; a line without its end waits for the next call."""
        lines = [line for _, line in self.read()]
        self.recorded |= {line["cell"]: line["status"] for line in lines if line["kind"] == "record"}
        self.since = self.clock() if lines else self.since
        return lines

    def deadline(self) -> float:
        """Return the time by which the next line is due."""
        return self.since + (self.start_seconds if self.current is None else self.limits[self.current])


ALIKE = 3  # cells of a stack that fail alike before any is ok: then the remaining ones are not started
OF_THE_CELL = ("ok", "out_of_memory", "node_failure", "skipped", "invalid")  # no evidence against the stack
# Phases in which no code of a user runs, except the import of a benchmark's file.
BEFORE_USER_CODE = ("launch", "placement", "init")


@dataclass
class StackWatch:
    """The stacks of a batch according to its records so far: which work, and which fail in the same way."""

    works: set[str] = field(default_factory=set)
    failures: dict[str, dict[tuple, dict[str, str]]] = field(default_factory=dict)  # stack -> signature -> cell: cause

    def note(self, stack: str, cell: str, status: str, cause: str | None, phase=None, is_user_code=False) -> None:
        """Take a record. cell: the one that counts, since cells of one run of a program fail together.

        is_user_code: of a script, a program or a user's benchmark. Errors of these depend on the parameters, such as
        impossible combinations, so they are no evidence against the stack.
        """
        is_of_code = is_user_code and status == "failed" and phase not in BEFORE_USER_CODE
        if status == "ok":
            self.works.add(stack)
        elif status not in OF_THE_CELL and not is_of_code:
            alike = self.failures.setdefault(stack, {}).setdefault(signature(status, cause), {})
            alike[cell] = cause or status

    def given_up(self, stack: str) -> str | None:
        """Return why no further cell of a stack is started, or None."""
        if stack in self.works:
            return None
        for alike in self.failures.get(stack, {}).values():
            if len(alike) >= ALIKE:
                cause = list(alike.values())[-1]
                return f"not started: the first {len(alike)} cells of stack {stack} failed with the same error: {cause}"
        return None


def signature(status: str, cause: str | None) -> tuple:
    """Return status and cause without numbers, paths and ranks, which differ between cells that fail alike.

    The phase does not count: records of a restarted supervisor have none.
    """
    words = re.sub(r"\d+", "#", cause or "")
    return status, re.sub(r"\S*/\S*", "/", words)


def counts_text(counts: Counter[str]) -> str:
    """Return counts by status: 2 failed, 118 ok."""
    return ", ".join(f"{count} {status_text(status)}" for status, count in sorted(counts.items()))


def outcome_text(results: Path) -> str:
    """Return counts by status, the report's answer with the next steps, and the most common cause of failures.

    Empty without measurements.csv.
    """
    rows = _measurement_rows(results)
    if rows is None:
        return ""
    counts = counts_text(Counter(row["status"] for row in rows)) or "none"
    lines = [f"{results.name}: {plural(len(rows), 'measurement')} planned: {counts}", *answer_lines(results)]
    failed = [row for row in rows if row["status"] not in ("ok", "not_measured")]
    causes = Counter(without_host(row["cause"]) for row in failed)
    if causes:
        cause, count = causes.most_common(1)[0]
        lines.append(f"  {count} of {causes.total()} failures: {cause}")
    for preflight in latest_preflight(results):
        for stack, cause in failed_stacks(Path(preflight)).items():
            excluded = f"  stack {stack} failed the preflight and is excluded from this run: {cause.rstrip('.')}"
            lines.append(f"{excluded}. Run the same command again once it is fixed")
    return "\n".join(lines)


def answer_lines(results: Path) -> list[str]:
    """Return the lines of answer.json, indented; none if it is missing, damaged, or older than the measurements."""
    path = results / "answer.json"
    try:
        if path.stat().st_mtime_ns < (results / "measurements.csv").stat().st_mtime_ns:
            return []
        lines = read_json(path)["lines"]
        return [f"  {one_line('; '.join(filter(None, (line['lead'], line['text']))))}" for line in lines]
    except (OSError, KeyError, TypeError):
        return []


def run_status(
    results: Path, planned: Collection[tuple[str, int]], batches: Iterable[str], failed_step: str | None
) -> tuple[int, str]:
    """Return the exit status of a run that has ended (README, Exit status), and why it is not 0.

    planned: cell and repeat of all measurements of the campaign. batches: those that this run was to finish.
    failed_step: what went wrong other than measuring, None if nothing did.
    """
    slots = read_history(results).slots
    statuses = [slots[slot].status if slot in slots else "not_measured" for slot in planned]
    num_missing = sum(status in ("not_measured", *ALWAYS_RETRIED) for status in statuses)
    unfinished = [batch for batch in batches if not (results / "batches" / batch / "manifest.json").exists()]
    if num_missing:
        counts = f"{num_missing} of {plural(len(planned), 'measurement')} have no record"
    elif unfinished:  # a retry: its measurements have earlier records
        counts = f"{plural(len(unfinished), 'batch', 'batches')} did not finish"
    else:
        counts = f"all of {plural(len(planned), 'measurement')} have a record"
    if failed_step:
        return UNEXPECTED_ERROR, f"{failed_step}; {counts}"
    if not planned:
        return NOTHING_MEASURED, "nothing to measure: every cell of the campaign is skipped"
    if "ok" not in statuses:
        return NOTHING_MEASURED, f"nothing was measured: {counts}, and none is ok"
    if num_missing or unfinished:
        return INCOMPLETE, counts
    if failed_table := _table_problem(results, planned):
        return UNEXPECTED_ERROR, failed_table
    return 0, ""


def _table_problem(results: Path, planned: Collection[tuple[str, int]]) -> str | None:
    """Return what is wrong if measurements.csv, which may have been edited, differs from the planned measurements."""
    rows = _measurement_rows(results)
    if rows is None or {(row["cell"], row["repeat"]) for row in rows} == {(cell, str(n)) for cell, n in planned}:
        return None
    return (
        f"{results / 'measurements.csv'} has {len(rows)} of {plural(len(planned), 'planned measurement')}. Rebuild it"
        f" from the store: make report CONFIG={results}"
    )


def _measurement_rows(results: Path) -> list[dict] | None:
    """Return the rows of measurements.csv, without those of skipped cells; None if there is no such file."""
    try:
        with (results / "measurements.csv").open(newline="", encoding="utf-8") as file:
            return [row for row in csv.DictReader(file) if row["repeat"]]
    except FileNotFoundError:
        return None
