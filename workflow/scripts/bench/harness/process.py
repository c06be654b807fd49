"""This process and others: placement, signals, threads and memory; ranks of other launches. Standard library only."""

import contextlib
import ctypes
import faulthandler
import gc
import os
import re
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG = 1  # linux/prctl.h
NOT_RANKS = ("start_ranks.py", "run_batches.py")  # every other file at the top of bench/ is a program that ranks run


@dataclass
class Place:
    """A rank's description of itself. device: `cpu`, its GPU's identity, or None with the reason in `problem`.

    import_s: from the start of its process to the end of imports, None if unknown.
    """

    rank: int
    local_rank: int
    host: str
    device: str | None
    problem: str | None
    cores: list[int]
    cpu_model: str | None
    memory_bytes: int | None
    gpu: dict | None
    import_s: float | None = None


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies, so that no orphan keeps a GPU. Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def free_port() -> int:
    """Return a port of this machine on which nothing listens; it is not held."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def print_stacks_on_signal() -> None:
    """On SIGUSR1 write the stacks of all threads to stderr and continue, to show where a cell hangs."""
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)


def seconds_since_start() -> float | None:
    """Return how long ago the kernel started this process (proc(5), field 22 of stat), or None outside Linux."""
    try:
        fields_after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started_s = int(fields_after_name[19]) / os.sysconf("SC_CLK_TCK")
        return round(time.clock_gettime(time.CLOCK_BOOTTIME) - started_s, 3)
    except (OSError, AttributeError, ValueError, IndexError):
        return None


def usable_cores() -> list[int]:
    """Return the cores that this process may run on; all cores if not on Linux."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def threads_per_rank(own_cores: list[int], cores_of_ranks_on_host: list[list[int]]) -> int:
    """Return this rank's share of its cores, at least 1.

    start_ranks.py and torchrun give all ranks of a host the same cores, srun may bind each to separate ones: so the
    cores are divided by the number of ranks (this one included) that may run on any of them.
    """
    num_sharing = sum(not set(own_cores).isdisjoint(cores) for cores in cores_of_ranks_on_host)
    return max(1, len(set(own_cores)) // max(1, num_sharing))


def reset_peak_rss() -> bool:
    """Reset the peak of resident memory (proc(5), clear_refs, value 5). Return whether the kernel could."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_rss_bytes() -> int | None:
    """Return the peak of resident memory since the last reset, or None if unknown."""
    try:
        found = re.search(r"^VmHWM:\s*(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def release_memory() -> None:
    """Release free memory, so that it does not count for the next cell, and freeze the rest.

    Live objects are mostly modules. Once frozen, they are not searched again: a garbage collection takes a few
    milliseconds instead of 0.17 s, and does not disturb the samples.
    """
    trim_memory()
    gc.freeze()


def leave() -> NoReturn:
    """End this process at once: threads and exit handlers of a user's script may never return."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def trim_memory() -> None:
    """Collect garbage, and return free heap pages to the system (glibc only)."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def count_other_ranks(proc: Path = Path("/proc")) -> int | None:
    """Return how many ranks of other launches run on this host, or None if `proc` does not show them.

    Ranks of one launch have the same command line; if more than LOCAL_WORLD_SIZE have it, the rest are of another
    launch. Processes in another namespace, or hidden from this user (mount option hidepid), are not counted.
    """
    try:
        current = launch_of((proc / "self" / "cmdline").read_bytes())
        folders = [path for path in proc.iterdir() if path.name.isdigit()]
    except OSError:
        return None
    found = [launch for folder in folders if (launch := launch_of(command_line(folder))) is not None]
    num_alike = found.count(current)
    num_local = int(os.environ.get("LOCAL_WORLD_SIZE", num_alike))
    return len(found) - num_alike + max(0, num_alike - num_local)


def command_line(folder: Path) -> bytes:
    """Return the command line of a process of /proc, empty if it has ended."""
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:
        return b""


def launch_of(command_line: bytes) -> tuple[bytes, ...] | None:
    """Return the program of a rank and its arguments, None for any other process: srun, a runtime, start_ranks.py."""
    words = command_line.split(b"\0")[1:]  # the first is the interpreter
    while words and words[0].startswith(b"-"):
        words = words[1:]
    folder, _, name = (words[0] if words else b"").rpartition(b"/")
    is_program = name.endswith(b".py") and name.decode(errors="replace") not in NOT_RANKS
    is_rank = is_program and folder.rpartition(b"/")[2] == b"bench"
    return tuple(words) if is_rank else None
