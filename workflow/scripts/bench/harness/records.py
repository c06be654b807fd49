"""The launch file and its records (docs/contracts.md): rank 0 appends one JSON object a line.

Each line is on the disk before the next step begins.
"""

import json
import os
import sys
import time
from pathlib import Path

EXIT_CANNOT_WRITE = 74  # EX_IOERR of sysexits.h; the supervisor knows it

# What a cell that was not measured leaves open.
MEASURED_FIELDS = (
    "elapsed_ns",
    "setup_ns",
    "warmup",
    "sampling",
    "samples_ns",
    "slowest_rank_samples_ns",
    "rank_quantiles_ns",
    "windows",
    "parts_ns",
    "checks",
    "values",
    "memory",
    "other_ranks",
)


def build_record(
    cell: dict, repeat: int | None, status: str, phase: str | None, cause: str | None, measured: dict
) -> dict:
    """Return the record. `cell` is a cell of the launch request; `measured` holds what is known of MEASURED_FIELDS."""
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
    """Open for appending only, and return the descriptor; what is there already is never touched."""
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError as error:
        give_up(path, error)


def append_line(descriptor: int, path: Path, line: dict) -> None:
    """Append one line in a single write and force it to the disk.

    A disk that takes only part of it (full, or over quota) leaves a torn line, which every reader skips; the launch
    ends, because what cannot be kept is not worth measuring.
    """
    text = (json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n").encode()
    try:
        num_written = os.write(descriptor, text)
        if num_written != len(text):
            # The next write names the reason: a partial write itself carries none.
            os.write(descriptor, text[num_written:])
        flush(descriptor)
    except OSError as error:
        give_up(path, error)


def flush(descriptor: int) -> None:
    """fsync, where the file is one that can be synced; /dev/stdout and pipes cannot (EINVAL)."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (22, 30, 95):  # EINVAL, EROFS, EOPNOTSUPP: see fsync(2)
            raise


def give_up(path: Path, error: OSError) -> None:
    """Say it in one line and end the process at once. The supervisor reads the line in the log."""
    message = f"regatta: cannot write the launch file {path}: [Errno {error.errno}] {error.strerror}."
    print(f"{message} Free space or raise the quota, then run again.", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(EXIT_CANNOT_WRITE)
