"""The launch file and its records (docs/contracts.md): rank 0 appends one JSON object per line.

Each line is on the disk before the next step begins. It ends with its number and a checksum, and the last one has a
digest of all lines before it: so damage is found when the file is read (regatta/store/checksums.py).
"""

import contextlib
import errno
import hashlib
import json
import os
import sys
import time
from pathlib import Path

KEY = b',"checksum":"'
EXIT_CANNOT_WRITE = 74  # EX_IOERR of sysexits.h; the supervisor knows it

# Null in the record of a cell that was not timed, or not measured at all.
TIMED_FIELDS = (
    "warmup",
    "sampling",
    "samples_ns",
    "slowest_rank_samples_ns",
    "rank_quantiles_ns",
    "windows",
    "parts_ns",
)
MEASURED_FIELDS = ("elapsed_ns", "setup_ns", *TIMED_FIELDS, "checks", "values", "memory", "other_ranks", "host_load")


def build_record(
    cell: dict, repeat: int | None, status: str, phase: str | None, cause: str | None, measured: dict
) -> dict:
    """Return the record of a cell of the launch request. measured: those of MEASURED_FIELDS that are known."""
    return {
        "kind": "record",
        "cell": cell["id"],
        "spec": cell["spec"],
        "repeat": repeat,
        "command": cell["command"],
        "writer": "rank",
        "status": status,
        "phase": phase,
        "cause": cause,
        "time_utc": utc_now(),
        **{name: measured.get(name) for name in MEASURED_FIELDS},
        **({"modules": measured["modules"]} if "modules" in measured else {}),  # of a user's script
    }


def utc_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def open_launch_file(path: Path) -> int:
    """Open a file for appending only, and return the descriptor."""
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError as error:
        give_up(path, error)


class Writer:
    """Append the lines of one launch file, numbered and with checksums. `kind` complete ends the file with its digest.

    A file that exists, such as of a request that is run again by hand, is continued. One of an earlier version, without
    checksums, gets none.
    """

    def __init__(self, path: Path):
        self.path, self.descriptor = path, open_launch_file(path)
        content = b""
        if path.is_file():  # not a pipe
            with contextlib.suppress(OSError):
                content = path.read_bytes()
        self.gap = b"\n" if content and not content.endswith(b"\n") else b""  # ends the torn line of a killed launch
        self.is_old = bool(content.strip()) and KEY not in content
        self.digest, self.num_lines = hashlib.sha256(content + self.gap), (content + self.gap).count(b"\n")

    def append(self, line: dict) -> None:
        """Append one line."""
        digest = {"digest": self.digest.hexdigest()} if line["kind"] == "complete" else {}
        body = to_json({**line, **digest, "line": self.num_lines + 1})[:-1]
        text = to_json(line) + b"\n" if self.is_old else body + tail(self.path, body) + b"\n"
        append_text(self.descriptor, self.path, self.gap + text)
        self.digest.update(text)
        self.gap, self.num_lines = b"", self.num_lines + 1


def tail(path: Path, body: bytes) -> bytes:
    """Return the end of a line: its checksum. body: the bytes before, without the closing brace."""
    checksum = hashlib.sha256(os.fsencode(path.stem) + b"\n" + body).hexdigest()[:16]
    return KEY + f'{checksum}"}}'.encode()


def is_damaged(path: Path, text: bytes) -> bool:
    """Return whether the checksum of a line without its end, of a file that has checksums, is wrong or missing."""
    body = text.partition(KEY)[0]
    return body + tail(path, body) != text


def to_json(value: dict) -> bytes:
    """Return JSON without spaces. Raises ValueError for a number that is not finite."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def append_text(descriptor: int, path: Path, text: bytes) -> None:
    """Append a line in a single write and force it to the disk.

    A disk that is full or over quota leaves a torn line, which every reader skips, and the launch ends.
    """
    try:
        num_written = os.write(descriptor, text)
        if num_written != len(text):
            os.write(descriptor, text[num_written:])  # raises with the reason, which a partial write does not give
        flush(descriptor)
    except OSError as error:
        give_up(path, error)


def flush(descriptor: int) -> None:
    """Call fsync; /dev/stdout and pipes do not support it (EINVAL)."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EROFS, errno.EOPNOTSUPP):  # see fsync(2)
            raise


def give_up(path: Path, error: OSError) -> None:
    """Print one line, which the supervisor reads in the log, and exit at once."""
    message = f"regatta: cannot write the launch file {path}: [Errno {error.errno}] {error.strerror}."
    print(f"{message} Free space or raise the quota, then run again.", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(EXIT_CANNOT_WRITE)
