"""Report an exception: its class, its cause in one line, and a file that the supervisor reads.

A file, because a rank that fails can no longer communicate: its peers may wait inside a collective. Standard library
only, so that a torch that cannot be imported is reported too.
"""

import argparse
import errno
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from harness import libraries, process

# Messages of torch's CPU allocator and gloo when malloc or mmap fails (c10/core/impl/alloc_cpu.cpp,
# "DefaultCPUAllocator"), and of CUDA, cuBLAS and NCCL when the device is full.
OUT_OF_MEMORY_PHRASES = ("can't allocate memory", "not enough memory", "cannot allocate memory", "out of memory")
OUT_OF_MEMORY_PHRASES += ("_alloc_failed",)
MAX_CAUSE_CHARACTERS = 500


@dataclass
class Progress:
    """The cell and phase of this rank, for the report of a failure. `phase`: see docs/contracts.md, Record.

    error_dir: of its error file; None if it has none.
    """

    cell: str | None = None
    phase: str = "launch"
    error_dir: Path | None = None


def run_request(description: str, run: Callable[[dict, Progress], None]) -> None:
    """Run `run` on the request of the command line, --request FILE. An exception is reported and ends the process."""
    parser = argparse.ArgumentParser(description=f"{description} Started once per rank.")
    parser.add_argument("--request", type=Path, required=True, help="a JSON file (docs/contracts.md)")
    request = json.loads(parser.parse_args().request.read_text())
    process.die_with_parent()
    process.print_stacks_on_signal()
    progress = Progress(phase="image", error_dir=Path(request["error_dir"]))
    try:
        libraries.check_image(request.get("image_mount"))
        progress.phase = "launch"
        run(request, progress)
    except Exception as error:  # broad: the driver has to learn of every failure
        report_and_exit(progress, error)


def classify(error: BaseException) -> str:
    """Return the status of a cell that ended with this exception: out_of_memory or failed."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out_of_memory"
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return "out_of_memory"
    if isinstance(error, RuntimeError) and any(phrase in str(error).lower() for phrase in OUT_OF_MEMORY_PHRASES):
        return "out_of_memory"
    return "failed"


def cause_of(error: BaseException) -> str:
    """Return class and first line of the message, such as `ValueError: batch_size = 0. ...`."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return cause if len(cause) <= MAX_CAUSE_CHARACTERS else cause[: MAX_CAUSE_CHARACTERS - 3] + "..."


def write_error_file(error_dir: Path, rank: int, progress: Progress, error: BaseException) -> Path:
    """Write `rank-<rank>.json` atomically. The earliest `time_ns` is that of the rank at fault."""
    report = {
        "rank": rank,
        "host": socket.gethostname(),
        "cell": progress.cell,
        "phase": progress.phase,
        "status": classify(error),
        "cause": cause_of(error),
        "traceback": "".join(traceback.format_exception(error)),
        "time_ns": time.time_ns(),
    }
    error_dir.mkdir(parents=True, exist_ok=True)
    path = error_dir / f"rank-{rank}.json"
    draft = error_dir / f".rank-{rank}.json.{os.getpid()}"
    draft.write_text(json.dumps(report, indent=1) + "\n")
    draft.replace(path)
    return path


def report_and_exit(progress: Progress, error: Exception) -> NoReturn:
    """Write the error file, print the traceback and exit at once: a normal exit may wait for peers that are stuck."""
    report(progress, error)
    os._exit(1)


def report(progress: Progress, error: Exception) -> None:
    """Write the error file, and print the traceback."""
    rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
    try:
        if progress.error_dir is not None:
            write_error_file(progress.error_dir, rank, progress, error)
    except OSError as write_error:
        print(f"regatta: rank {rank} cannot write its error file: {write_error}", file=sys.stderr)
    place = f"cell {progress.cell}, phase" if progress.cell else "phase"
    print(f"regatta: rank {rank} failed in {place} {progress.phase}", file=sys.stderr)
    traceback.print_exception(error)
    sys.stderr.flush()
    sys.stdout.flush()
