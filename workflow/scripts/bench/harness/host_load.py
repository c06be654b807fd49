"""What else used the hosts and GPUs of a cell: the record's `host_load` (docs/contracts.md). Standard library only.

Two readings of counters, before and after the cell, outside everything that is timed. Each rank reads its CPU time,
the first rank of each host the counters of the host, and each rank with a GPU those of the GPU (nvml.py). A row
of whole numbers is gathered from all ranks; a value below 0 is the reason why it is unknown.
"""

import os
import resource
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from harness import nvml

PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
NOT_FIRST, ABSENT, DENIED, UNEXPECTED, DECREASED = -1, -2, -3, -4, -5
REASONS = {
    ABSENT: "not available on this system",
    DENIED: "permission denied",
    UNEXPECTED: "unexpected content",
    DECREASED: "the counter decreased",
}
TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
# The counters of a host, as differences over the cell, in the order of a row.
DIFFERENCES = (
    "elapsed_ns",
    "busy_ns",
    "interrupt_ns",
    "steal_ns",
    "throttled_ns",
    "num_throttled",
    "cpu_pressure_ns",
    "memory_pressure_ns",
    "io_pressure_ns",
)
HEAD = ("host", "num_cores", "ranks_cpu_ns", *DIFFERENCES, "load_milli")  # of a row; those of the GPU follow
GPU_DIFFERENCES = tuple(name for name in nvml.COUNTERS if name.endswith(("_ns", "_errors")))
GPU_ROW = ("sm_clock_min_mhz", "sm_clock_max_mhz", "temperature_c", "power_limit_mw", "throttle_reasons")
GPU_ROW += GPU_DIFFERENCES


class Monitor:
    """The readings of one rank over one cell, from the creation of this object to `row`.

    cores: those that the ranks of this host may use; empty means all. uuid: of this rank's GPU, None if it does not
    have one; unknown is "".
    """

    def __init__(self, is_first: bool, cores: list[int], uuid: str | None, proc: Path = PROC, cgroup: Path = CGROUP):
        self.is_first, self.cores, self.folders = is_first, cores, (proc, cgroup)
        self.gpu = None if uuid is None else nvml.reader(uuid or None)
        self.gpu_readings: list[dict[str, int]] = []
        self.read_gpu()
        self.before = self._read()

    def read_gpu(self) -> None:
        """Read the GPU's counters. Called right after work, when the clock is not yet that of an idle GPU."""
        if self.gpu is not None:
            self.gpu_readings.append(dict(zip(nvml.COUNTERS, self.gpu.read(), strict=True)))

    def row(self) -> list[int]:
        """Read again, and return what has changed: HEAD, and GPU_ROW on a rank with a GPU. Equally long on all."""
        after = self._read()
        self.read_gpu()
        row = [zlib.crc32(os.uname().nodename.encode()), after["num_cores"]]
        row += [difference(self.before[name], after[name]) for name in ("ranks_cpu_ns", *DIFFERENCES)]
        return [*row, after["load_milli"], *(gpu_row(self.gpu_readings) if self.gpu_readings else ())]

    def _read(self) -> dict[str, int]:
        cpu_ns = known(lambda: cpu_ns_of_tree(self.folders[0]))
        if not self.is_first:
            return dict.fromkeys(HEAD, NOT_FIRST) | {"ranks_cpu_ns": cpu_ns}
        return read_host(*self.folders, self.cores) | {"ranks_cpu_ns": cpu_ns}


def known(read: Callable[[], int]) -> int:
    """Return what a function reads, or the reason below 0 why it cannot."""
    try:
        return read()
    except PermissionError:
        return DENIED
    except OSError:  # also a kernel with pressure turned off
        return ABSENT
    except (ValueError, IndexError, KeyError, StopIteration):
        return UNEXPECTED


def difference(before: int, after: int) -> int:
    """Return after - before, or the reason below 0 why it is unknown."""
    if before < 0 or after < 0:
        return min(before, after)
    return after - before if after >= before else DECREASED


def read_host(proc: Path, cgroup: Path, cores: list[int]) -> dict[str, int]:
    """Return the counters of this host."""
    found: dict[str, int] = {"elapsed_ns": time.monotonic_ns()}
    try:
        found |= core_times(proc, cores)
    except (OSError, ValueError, IndexError) as error:
        code = ABSENT if isinstance(error, OSError) else UNEXPECTED
        found |= dict.fromkeys(("num_cores", "busy_ns", "interrupt_ns", "steal_ns"), code)
    found["throttled_ns"] = known(lambda: throttled(proc, cgroup, {"throttled_usec": 1000, "throttled_time": 1}))
    found["num_throttled"] = known(lambda: throttled(proc, cgroup, {"nr_throttled": 1}))
    for kind in ("cpu", "memory", "io"):
        found[f"{kind}_pressure_ns"] = known(lambda kind=kind: pressure_ns(proc / "pressure" / kind))
    found["load_milli"] = known(lambda: round(1000 * float((proc / "loadavg").read_text().split()[0])))
    return found


def core_times(proc: Path, cores: list[int]) -> dict[str, int]:
    """Return the number of cores, and how long they were busy and in interrupts, and CPU steal.

    Of all cores if /proc/stat does not list each of `cores`, as in a container that numbers them differently.
    """
    lines = [line.split() for line in (proc / "stat").read_text().splitlines() if line.startswith("cpu")]
    by_core = {int(words[0][3:]): list(map(int, words[1:9])) for words in lines if words[0] != "cpu"}
    chosen = [by_core[core] for core in cores] if cores and by_core.keys() >= set(cores) else [*by_core.values()]
    if not chosen:
        raise ValueError("/proc/stat lists no cores")
    user, nice, system, _idle, _iowait, interrupt, soft_interrupt, steal = map(sum, zip(*chosen, strict=True))
    ticks = {"busy_ns": user + nice + system, "interrupt_ns": interrupt + soft_interrupt, "steal_ns": steal}
    return {"num_cores": len(chosen)} | {name: number * TICK_NS for name, number in ticks.items()}


def cpu_ns_of_tree(proc: Path) -> int:
    """Return the CPU time of this process and its descendants, dead or alive."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = round(1e9 * sum(one.ru_utime + one.ru_stime for one in used))
    waiting = children(proc / "self")
    while waiting:
        folder = proc / waiting.pop()
        try:
            times = (
                (folder / "stat").read_text().rpartition(")")[2].split()[11:15]
            )  # its own, and of children that ended
            waiting += children(folder)
        except OSError:
            continue  # it has just ended
        total += sum(map(int, times)) * TICK_NS
    return total


def children(folder: Path) -> list[str]:
    """Return the process ids of the children of a process of /proc."""
    found = []
    for task in (folder / "task").iterdir():
        try:
            found += (task / "children").read_text().split()
        except FileNotFoundError:
            if task.exists():  # the kernel does not list children
                raise
    return found


def throttled(proc: Path, cgroup: Path, keys: dict[str, int]) -> int:
    """Return the sum of a number in cpu.stat of this process's cgroup and all above it, each times its factor."""
    found = []
    for path in dict.fromkeys(cpu_stat_paths(proc, cgroup)):
        if path.is_file():
            numbers = dict(line.split() for line in path.read_text().splitlines())
            found += [int(numbers[key]) * factor for key, factor in keys.items() if key in numbers]
    if not found:
        raise FileNotFoundError("no cgroup counts throttling")
    return sum(found)


def cpu_stat_paths(proc: Path, cgroup: Path) -> Iterator[Path]:
    """Yield where cpu.stat may be: below the mount of cgroup v2, or of the controller cpu of v1."""
    for line in (proc / "self" / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mounts = (cgroup / controllers, cgroup / "cpu") if controllers else (cgroup, cgroup / "unified")
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for mount in mounts:
            yield from (mount.joinpath(*parts[:depth], "cpu.stat") for depth in range(len(parts), -1, -1))


def pressure_ns(path: Path) -> int:
    """Return for how long some task has waited (docs.kernel.org/accounting/psi.html): `some ... total=<usec>`."""
    line = next(line for line in path.read_text().splitlines() if line.startswith("some "))
    return 1000 * int(line.rpartition("total=")[2])


def gpu_row(readings: list[dict[str, int]]) -> list[int]:
    """Return the values of GPU_ROW. Clock, temperature and reasons are of the readings that follow work, if any."""
    first, last, later = readings[0], readings[-1], readings[1:-1] or readings[1:]

    def over(name: str, choose: Callable[[list[int]], int]) -> int:
        values = [reading[name] for reading in later]
        return min(values) if min(values) < 0 else choose(values)

    bits = 0
    for reading in later:
        bits |= max(reading["throttle_reasons"], 0)
    return [
        over("sm_clock_mhz", min),
        over("sm_clock_mhz", max),
        over("temperature_c", max),
        last["power_limit_mw"],
        over("throttle_reasons", lambda _: bits),
        *(difference(first[name], last[name]) for name in GPU_DIFFERENCES),
    ]


def record_field(rows: list[list[int]]) -> dict:
    """Return the record's `host_load` of the rows of all ranks."""
    by_rank = [dict(zip(HEAD, row, strict=False)) for row in rows]
    hosts = [
        host_entry(rank, row, [other["ranks_cpu_ns"] for other in by_rank if other["host"] == row["host"]])
        for rank, row in enumerate(by_rank)
        if row["elapsed_ns"] != NOT_FIRST
    ]
    gpus = [gpu_entry(rank, row[len(HEAD) :]) for rank, row in enumerate(rows) if len(row) > len(HEAD)]
    return {"hosts": hosts, "gpus": gpus}


def host_entry(rank: int, row: dict[str, int], cpu_ns: list[int]) -> dict:
    """Return the entry of a host. cpu_ns: CPU time of each of its ranks."""
    ranks_cpu_ns = min(cpu_ns) if min(cpu_ns) < 0 else sum(cpu_ns)
    values = {"num_cores": row["num_cores"], "ranks_cpu_ns": ranks_cpu_ns}
    values |= {name: row[name] for name in DIFFERENCES}
    values["load_average"] = row["load_milli"] if row["load_milli"] < 0 else row["load_milli"] / 1000
    return {"rank": rank, **with_reasons(values)}


def gpu_entry(rank: int, row: list[int]) -> dict:
    """Return the entry of a rank's GPU."""
    values = dict(zip(GPU_ROW, row, strict=True))
    entry = with_reasons({("power_limit_w" if name == "power_limit_mw" else name): n for name, n in values.items()})
    if entry["power_limit_w"] is not None:
        entry["power_limit_w"] /= 1000
    if entry["throttle_reasons"] is not None:
        entry["throttle_reasons"] = nvml.throttle_names(entry["throttle_reasons"])
    return {"rank": rank, **entry}


def with_reasons(values: dict[str, int]) -> dict:
    """Return values, null where they are below 0, and `unknown`: the reason for each of these."""
    unknown = {name: REASONS.get(code) or nvml.reason(code) for name, code in values.items() if code < 0}
    return {name: None if value < 0 else value for name, value in values.items()} | {"unknown": unknown}
