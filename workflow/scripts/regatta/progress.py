"""One line on the terminal that says how far a batch is. Nothing is written where there is no terminal."""

import shutil
import sys
import time
from typing import TextIO


class Progress:
    """Progress of one batch. total: measurements still to make; counts: measurements made, by status."""

    def __init__(self, batch: str, num_launches: int, total: int, stream: TextIO = sys.stderr, clock=time.monotonic):
        self.batch, self.num_launches, self.total = batch, num_launches, total
        self.stream, self.clock, self.begin = stream, clock, clock()
        self.counts: dict[str, int] = {}
        self.is_terminal = stream.isatty()

    def recorded(self, status: str) -> None:
        self.counts[status] = self.counts.get(status, 0) + 1

    def show(self, launch_number: int, cell: str | None) -> None:
        """Redraw the line. cell: the one that is being measured, None between cells."""
        if self.is_terminal:
            width = shutil.get_terminal_size().columns - 1
            self.stream.write("\r\x1b[K" + self.line(launch_number, cell)[:width])
            self.stream.flush()

    def close(self) -> None:
        if self.is_terminal:
            self.stream.write("\r\x1b[K")
            self.stream.flush()

    def line(self, launch_number: int, cell: str | None) -> str:
        done = sum(self.counts.values())
        statuses = ", ".join(f"{count} {status}" for status, count in sorted(self.counts.items()))
        return (
            f"{self.batch}  launch {launch_number}/{self.num_launches}  {done}/{self.total} measured"
            f"{f' ({statuses})' if statuses else ''}  {self.time_left()}  {cell or 'starting'}"
        )

    def time_left(self) -> str:
        """Return the time left at the mean pace so far, launches' starts included."""
        done = sum(self.counts.values())
        if not done:
            return "? left"
        seconds = (self.clock() - self.begin) / done * max(0, self.total - done)
        return f"{int(seconds // 60)}m{int(seconds % 60):02d}s left"
