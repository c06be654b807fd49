"""Follow a launch through its launch file while the ranks write it: which cell runs, which are recorded, what is late."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from regatta.store.launch_files import parse_line


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
