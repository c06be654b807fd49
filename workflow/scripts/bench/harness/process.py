"""This process: where it runs, how it dies, how many threads it uses, and how much memory it has taken."""

import ctypes
import faulthandler
import gc
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass
class Place:
    """What one rank says about itself. `device`: `cpu`, or its GPU's identity, or None with the reason in `problem`."""

    rank: int
    local_rank: int
    host: str
    device: str | None
    problem: str | None
    cores: list[int]
    cpu_model: str | None
    memory_bytes: int | None
    gpu: dict | None


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, so that no orphan keeps a GPU. Linux only."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    except (OSError, AttributeError):
        return


def print_stacks_on_signal() -> None:
    """On SIGUSR1 write the stacks of all threads to stderr and go on: so a hung cell says where it hangs."""
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
    """Return the cores that this process may run on. Elsewhere than on Linux: all cores."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def threads_per_rank(own_cores: list[int], cores_of_ranks_on_host: list[list[int]]) -> int:
    """Return this rank's share of its cores, at least 1.

    start_ranks.py and torchrun give all ranks of a host the same cores, srun may bind each to its own: so the cores are
    divided by the number of ranks (this one included) that may run on any of them.
    """
    own = set(own_cores)
    num_sharing = sum(1 for cores in cores_of_ranks_on_host if own.intersection(cores))
    return max(1, len(own) // max(1, num_sharing))


def reset_peak_rss() -> bool:
    """Let the kernel count the peak of resident memory anew (proc(5), clear_refs, value 5). False where it cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_rss_bytes() -> int | None:
    """Return the peak of resident memory since the last reset, or None where the kernel does not tell."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def release_memory() -> None:
    """Give back what is free, so that one cell's memory is not the next one's, and freeze the rest.

    What is alive now is modules, for the most part: frozen, it is not searched again. That takes a collection from about
    0.17 s to a few milliseconds, and keeps the automatic ones out of the samples.
    """
    give_back_what_is_free()
    gc.freeze()


def give_back_what_is_free() -> None:
    """Collect garbage, and give freed heap pages back to the system (glibc only)."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return
