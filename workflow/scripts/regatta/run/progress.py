"""Follow a launch through its launch file: which cell runs, which are recorded, what is late, which stacks fail."""

import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from regatta.store.launch_files import parse_line

# One line on the terminal that says how far a batch is. Nothing is written where there is no terminal.


class Progress:
    """Progress of one batch. total: measurements still to make; counts: measurements made, by status.

    expected_seconds: what one measurement is expected to take, used for the time left until there is a pace.
    """

    def __init__(
        self,
        shape: str,
        num_launches: int,
        total: int,
        expected_seconds: float,
        stream: TextIO = sys.stderr,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.shape, self.num_launches, self.total = shape, num_launches, total
        self.stream, self.clock = stream, clock
        self.begin = self.last_record = clock()
        self.pace_seconds = expected_seconds  # per measurement, starts of launches included
        self.counts: dict[str, int] = {}
        self.is_terminal = stream.isatty()

    def recorded(self, status: str) -> None:
        self.counts[status] = self.counts.get(status, 0) + 1
        self.last_record = self.clock()
        self.pace_seconds = (self.last_record - self.begin) / sum(self.counts.values())

    def show(self, launch_number: int, cell: str | None) -> None:
        """Redraw the line. cell: the one that is being measured, None between cells."""
        if self.is_terminal:
            width = shutil.get_terminal_size().columns - 1
            self._draw(self.line(launch_number, cell)[:width])

    def close(self) -> None:
        if self.is_terminal:
            self._draw("")

    def _draw(self, text: str) -> None:
        try:
            self.stream.write("\r\x1b[K" + text)
            self.stream.flush()
        except OSError:  # the terminal was closed
            self.is_terminal = False

    def line(self, launch_number: int, cell: str | None) -> str:
        done = sum(self.counts.values())
        statuses = ", ".join(f"{count} {status}" for status, count in sorted(self.counts.items()))
        return (
            f"{self.shape}: {done}/{self.total} measured{f' ({statuses})' if statuses else ''}, {self.time_left()},"
            f" launch {launch_number}/{self.num_launches}: {cell or 'starting'}"
        )

    def time_left(self) -> str:
        """Return the time left in this batch at the pace of its last record. It never rises within a cell."""
        num_left = max(0, self.total - sum(self.counts.values()))
        seconds = max(0.0, self.pace_seconds * num_left - (self.clock() - self.last_record))
        return f"{int(seconds // 60)}m{int(seconds % 60):02d}s left"


@dataclass
class Watch:
    """What is known of a launch so far. Call `update` often; times are of `clock`, in seconds."""

    path: Path
    limits: dict[str, float]  # cell id -> seconds
    start_seconds: float  # for the first cell to start, and for each silence between cells
    clock: Callable[[], float] = time.monotonic
    recorded: dict[str, str] = field(default_factory=dict)  # cell id -> status
    current: str | None = None
    is_complete: bool = False
    has_header: bool = False
    since: float = 0.0
    _offset: int = 0
    _rest: bytes = b""

    def __post_init__(self):
        self.since = self.clock()

    def update(self) -> list[dict]:
        """Read what was appended. Returns the new lines; a line without its end waits for the next call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(text)
        *whole, self._rest = (self._rest + text).split(b"\n")
        lines = []
        for part in whole:
            try:
                line = parse_line(part)
            except ValueError:
                continue  # reported by every reader of the store
            self._take(line)
            lines.append(line)
        return lines

    def deadline(self) -> float:
        """Return the time by which the next line must be there."""
        return self.since + (self.start_seconds if self.current is None else self.limits[self.current])

    def _take(self, line: dict) -> None:
        if line["kind"] == "launch":
            self.has_header = True
        elif line["kind"] == "start":
            self.current = line["cell"]
        elif line["kind"] == "record":
            self.recorded[line["cell"]] = line["status"]
            self.current = None
        elif line["kind"] == "complete":
            self.is_complete = True
        self.since = self.clock()


# Which stacks are given up: one whose cells fail alike before any is ok.

ALIKE = 3  # cells of a stack that fail alike before any is ok; then the rest of the stack is not started
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
                cause = list(alike.values())[-1]
                return f"not started: the first {len(alike)} cells of stack {stack} failed alike: {cause}"
        return None


def _signature(record: dict) -> tuple:
    """Failures are alike if their words are: numbers, paths and ranks differ between cells. (Not the phase: what is
    known from before a restart does not have it.)"""
    words = re.sub(r"\d+", "#", record["cause"] or "")
    return record["status"], re.sub(r"\S*/\S*", "/", words)
