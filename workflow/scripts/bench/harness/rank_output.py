"""Copy what ranks print to standard output, each line with its rank, as `srun --label` does. Standard library only."""

import contextlib
import fcntl
import os
import selectors
import signal

PIPE_BYTES = 1 << 20  # so that ranks seldom wait for this program
MOST_REST_BYTES = 1 << 24  # a longer line is divided


class RankOutput:
    """A pipe for each rank. Lines of different ranks never mix, and the end of a rank ends its last line.

    error: why the output could not be written, such as a full disk; it is still read, so that no rank waits.
    """

    def __init__(self, num_ranks: int):
        self.width = len(str(num_ranks - 1))
        self.rests: dict[int, bytes] = {}
        self.pipes: dict[int, int] = {}
        self.error: OSError | None = None
        self.selector = selectors.DefaultSelector()
        self.signals, written = os.pipe()
        for end in (self.signals, written):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # without a handler, no byte is written
        signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        self.selector.register(self.signals, selectors.EVENT_READ, None)

    @contextlib.contextmanager
    def pipe(self, rank: int):
        """Within the context, return the file descriptor that a rank inherits as its output."""
        self.pipes[rank], written = os.pipe()
        os.set_blocking(self.pipes[rank], False)
        with contextlib.suppress(OSError, AttributeError):  # beyond the user's limit, or before Python 3.10
            fcntl.fcntl(written, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.selector.register(self.pipes[rank], selectors.EVENT_READ, rank)
        try:
            yield written
        finally:
            os.close(written)

    def copy(self) -> None:
        """Wait for output or a signal, and copy the output."""
        for key, _ in self.selector.select():
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.signals, 4096)
            else:
                self._read(key.data)

    def finish(self, rank: int) -> None:
        """Copy the rest of a rank that has ended: what its pipe can hold. What it has left running may still print."""
        num_left = PIPE_BYTES
        while num_left > 0 and (num_bytes := self._read(rank)):
            num_left -= num_bytes
        self._end_line(rank)

    def _read(self, rank: int) -> int:
        """Copy what a rank has printed, and return the number of bytes, 0 if there is nothing now."""
        if rank not in self.pipes:
            return 0
        try:
            data = os.read(self.pipes[rank], PIPE_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            self.selector.unregister(self.pipes[rank])
            os.close(self.pipes.pop(rank))
            self._end_line(rank)
            return 0
        lines, end, rest = (self.rests.pop(rank, b"") + data).rpartition(b"\n")
        if end:
            self._write(rank, lines)
        self.rests[rank] = rest
        if len(rest) >= MOST_REST_BYTES:
            self._end_line(rank)
        return len(data)

    def _end_line(self, rank: int) -> None:
        if rest := self.rests.pop(rank, b""):
            self._write(rank, rest)

    def _write(self, rank: int, lines: bytes) -> None:
        label = b"%*d: " % (self.width, rank)
        text = label + lines.replace(b"\n", b"\n" + label) + b"\n"
        try:
            while text:
                text = text[os.write(1, text) :]
        except OSError as error:
            self.error = error
