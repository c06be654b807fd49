"""CPU load of other programs on this machine: before a local run, and during a cell that times out.

The ranks record the same beside each cell (bench/harness/host_load.py), but not for a cell that killed them.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psutil

from regatta.launchers.base import descendants

FIRST_CHECK_SECONDS, SECOND_CHECK_SECONDS = 0.1, 0.4  # the second only if the first found a busy machine
LEAST_BUSY_CORES, LEAST_BUSY_RATIO = 0.5, 0.1  # the larger of the two: less does not keep ranks from their cores
NOT_READ = "not read by the supervisor"
NOT_READ_HERE = "interrupt_ns throttled_ns num_throttled cpu_pressure_ns memory_pressure_ns io_pressure_ns".split()


@dataclass(frozen=True)
class CpuTimes:
    """Seconds by the clock, and of CPU time: of the cores, CPU steal, and of some processes."""

    at_s: float
    busy_s: float
    steal_s: float
    of_processes_s: float


@dataclass(frozen=True)
class OtherLoad:
    """CPU load of other programs on this machine between two readings."""

    before: CpuTimes
    after: CpuTimes
    num_cores: int

    @property
    def cores(self) -> float:
        """Return how many cores they kept busy."""
        elapsed_s = self.after.at_s - self.before.at_s
        busy_s = self.after.busy_s - self.before.busy_s
        return max(0.0, busy_s - self.ranks_s) / elapsed_s if elapsed_s > 0 else 0.0

    @property
    def ranks_s(self) -> float:
        """Return the CPU time of the excluded processes. One that ended meanwhile cannot lower it."""
        return max(0.0, self.after.of_processes_s - self.before.of_processes_s)

    @property
    def is_busy(self) -> bool:
        return self.cores > max(LEAST_BUSY_CORES, LEAST_BUSY_RATIO * self.num_cores)

    @property
    def text(self) -> str:
        return f"other processes used {min(100.0, 100 * self.cores / self.num_cores):.0f} % of the CPU time"


def read_times(processes: Iterable[psutil.Process], clock: Callable[[], float] = time.monotonic) -> CpuTimes:
    """Read the counters of this machine, and of these processes with their ended children."""
    every, of_processes_s = psutil.cpu_times(percpu=True), 0.0
    cores = [every[core] for core in usable_cores() if core < len(every)]
    for process in processes:
        with contextlib.suppress(psutil.Error):
            of_processes_s += sum(process.cpu_times()[:4])
    busy_s = sum(core.user + core.nice + core.system for core in cores)
    return CpuTimes(clock(), busy_s, sum(getattr(core, "steal", 0.0) for core in cores), of_processes_s)


def usable_cores() -> list[int]:
    """Return the cores that this process may use, as may the ranks that it starts."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class LaunchLoad:
    """Follow the CPU load of other programs on this machine while a launch runs on it."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process = process
        self.begin()

    def begin(self) -> None:
        """Start a new interval: that of a cell."""
        self.before = self._read()

    def so_far(self) -> OtherLoad:
        return OtherLoad(self.before, self._read(), len(usable_cores()))

    def _read(self) -> CpuTimes:
        found = descendants(self.process)
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(self.process.pid))
        return read_times(found)


def record_field(load: OtherLoad) -> dict:
    """Return `host_load` of a record (docs/contracts.md)."""
    busy_s, steal_s = load.after.busy_s - load.before.busy_s, load.after.steal_s - load.before.steal_s
    seconds = {"elapsed_ns": load.after.at_s - load.before.at_s, "ranks_cpu_ns": load.ranks_s}
    seconds |= {"busy_ns": busy_s, "steal_ns": steal_s}
    entry = {"rank": 0, "num_cores": load.num_cores} | {name: max(0, round(1e9 * s)) for name, s in seconds.items()}
    entry |= {**dict.fromkeys(NOT_READ_HERE), "load_average": round(os.getloadavg()[0], 3)}
    return {"hosts": [entry | {"unknown": dict.fromkeys(NOT_READ_HERE, NOT_READ)}], "gpus": []}


def busy_text(sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic) -> str | None:
    """Return a warning if other programs keep this machine busy, after at most half a second; None if it is idle."""
    current = psutil.Process()
    for seconds in (FIRST_CHECK_SECONDS, SECOND_CHECK_SECONDS):
        before = read_times([current], clock)
        sleep(seconds)
        load = OtherLoad(before, read_times([current], clock), len(usable_cores()))
        if not load.is_busy:
            return None
    return (
        f"This machine is busy: {load.text}. Measurements will be slower and less precise, and cells may time out."
        " Stop other programs, or measure at another time."
    )
