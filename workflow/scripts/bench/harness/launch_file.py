"""The launch file and its records (docs/contracts.md): rank 0 appends one JSON object per line.

Each line is on the disk before the next step begins.
"""

import errno
import json
import os
import sys
import time
from pathlib import Path

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
    }


def utc_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def open_launch_file(path: Path) -> int:
    """Open a file for appending only, and return the descriptor."""
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError as error:
        give_up(path, error)


def append_line(descriptor: int, path: Path, line: dict) -> None:
    """Append one line in a single write and force it to the disk.

    A disk that is full or over quota leaves a torn line, which every reader skips, and the launch ends.
    """
    text = (json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n").encode()
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
