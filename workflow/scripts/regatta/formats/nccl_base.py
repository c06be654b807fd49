"""What text and JSON of nccl-tests share: programs, ranks, and the cell of a row with its checks."""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from regatta.core.errors import UserError
from regatta.core.text import plural
from regatta.formats.base import Options, Reading, collective_parameters, refusal, stated_shape
from regatta.formats.rounding import common, middle, printed_interval, ratio, scaled
from regatta.formats.text_tables import AGAIN
from regatta.tables.bandwidth import BUS_FACTOR

FIGURES = ("time", "algbw", "busbw")
# Program without `_perf` -> operation, and whether Regatta's benchmark does it in place.
PROGRAMS = {
    "all_reduce": ("all_reduce", True),
    "all_gather": ("all_gather", False),
    "reduce_scatter": ("reduce_scatter", False),
    "alltoall": ("all_to_all", False),
    "broadcast": ("broadcast", True),
    "reduce": ("reduce", True),
    "sendrecv": ("send_recv_ring", False),
    "gather": ("gather", False),
    "scatter": ("scatter", False),
}
PROGRAM = re.compile(rf"\b({'|'.join([*PROGRAMS, 'alltoallv', 'hypercube'])})_perf(?:_mpi)?\b")
DTYPES = {"float": "fp32", "bfloat16": "bf16", "half": "fp16", "double": "fp64"}
PLACEMENTS = {"out_of_place": "", "in_place": AGAIN}  # and how the names of their columns end
PARTS = ("all_gather", "reduce_scatter")  # algbw was once of the part that a rank does not have: algbw = busbw
SUMS = ("none", "sum")  # redop of the operations of Regatta's benchmark
UNCHECKED = (None, "nan", "N/A", "n/a", -1)  # number of wrong results of a run that did not check them
MOST_GPUS = 4096  # limit per process; a larger number means a damaged file


class UncountedRunError(UserError):
    """A run that crashed before its cell was known."""


@dataclass(frozen=True)
class Device:
    """The GPU of a rank. name: None if the file does not list it."""

    rank: int
    group: int
    host: str
    name: str | None


@dataclass(frozen=True)
class NcclRun:
    """Facts on all rows of a file. is_blocking: calls were waited for one by one (-z)."""

    name: str
    operation: str
    is_in_place: bool
    nodes: int
    gpus_per_node: int
    is_blocking: bool
    num_iterations: int | None
    num_warmup: int | None

    def placement(self, sides: Collection[str]) -> str:
        """Return the placement whose time counts: that of Regatta's benchmark, or the only one."""
        wanted = "in_place" if self.is_in_place else "out_of_place"
        return wanted if wanted in sides else next(iter(sides))


def other_placement(run: NcclRun, readings: Iterable[Reading]) -> str:
    """Return the placement of the times, for what they mean, if it is not the one that is usual for the operation."""
    found = {reading.printed.get("placement", "") for reading in readings} - {run.placement(PLACEMENTS), ""}
    return "".join(f"; {placement.replace('_', ' ')}" for placement in found)


def find_program(text: str, name: str, options: Options, line: int | None) -> tuple[str, bool]:
    """Return (operation, whether in place) of the program that the text names, else of --operation."""
    found = sorted({match[1] for match in PROGRAM.finditer(text)})
    requested = [program for program, (operation, _) in PROGRAMS.items() if operation == options.operation]
    [program, *others] = found or requested or [""]
    if program in PROGRAMS and not others:
        if requested not in ([], [program]):
            contradiction = f"the file is from {program}_perf, but --operation is {options.operation}"
            raise refusal(name, line, contradiction, "the same operation, or no --operation")
        return PROGRAMS[program]
    known = ", ".join(f"{program}_perf" for program in PROGRAMS)
    want = f"one of {known}. Old versions do not print it: add --operation"
    raise refusal(name, line, f"found the programs {', '.join(found)}" if found else "no program name", want)


def device_of_each_rank(
    devices: list[Device], threads: int, gpus: int, name: str, line: int | None, has_all: bool
) -> list[Device]:
    """Return a device for each rank: a process has one for each GPU of each of its threads.

    has_all: every device is listed, as in the text. JSON up to version 3 lists only the first one of each process.
    """
    per_process, ranks = threads * gpus, sorted(device.rank for device in devices)
    is_first_alone = not has_all and ranks == list(range(0, len(ranks) * per_process, per_process or 1))
    if not 1 <= per_process <= MOST_GPUS or not (is_first_alone or len(ranks) % per_process == 0):
        listed = f"{plural(len(ranks), 'device')} listed, with {threads} x {gpus} = {per_process} GPUs per process"
        want = "threads x GPUs of each process" if has_all else "the first GPU of each process"
        raise refusal(name, line, listed, want)
    if not is_first_alone:
        return devices
    return [
        replace(device, rank=device.rank + index, name=device.name if index == 0 else None)
        for device in devices
        for index in range(per_process)
    ]


def shape_of_devices(devices: list[Device], name: str, options: Options, line: int | None) -> tuple[int, int]:
    """Return (nodes, GPUs per node), from the hosts that the file lists."""
    if not devices:
        return stated_shape(options, name, line)
    if len({device.group for device in devices}) > 1:
        raise refusal(name, line, "ranks are split into groups (NCCL_TESTS_SPLIT)", "one group of all ranks")
    ranks = sorted(device.rank for device in devices)
    if ranks != list(range(len(ranks))):
        raise refusal(name, line, f"ranks {ranks[0]} to {ranks[-1]} with gaps or duplicates", "each rank once")
    by_host = Counter(device.host for device in devices)
    per_host, *others = sorted(set(by_host.values()))
    if others:
        raise refusal(name, line, f"hosts with {[per_host, *others]} ranks", "the same number of ranks on each host")
    for option, listed in (("gpus-per-node", per_host), ("nodes", len(by_host))):
        if (requested := getattr(options, option.replace("-", "_"))) not in (None, listed):
            found = f"{plural(len(by_host), 'host')} with {per_host} ranks each, but --{option} is {requested}"
            raise refusal(name, line, found, f"{listed}, or no --{option}")
    return len(by_host), per_host


def version_of(code: int) -> str | None:
    """Return the version of NCCL_VERSION_CODE: 22803 is 2.28.3, as nccl.h counts from 2.9 on."""
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}" if code >= 20900 else None


def environment_of(devices: list[Device], nccl: str | None) -> dict:
    hosts: dict[str, list[int]] = {}
    for device in sorted(devices, key=lambda device: device.rank):
        hosts.setdefault(device.host, []).append(device.rank)
    gpus = [{"rank": device.rank, "host": device.host, "name": device.name} for device in devices if device.name]
    return {"nccl": nccl, "hosts": [{"host": host, "ranks": ranks} for host, ranks in hosts.items()], "gpus": gpus}


def parameters_of_row(run: NcclRun, size: int, row: dict) -> dict:
    """Return the parameters of a cell. Another reduction than the sum, or root than 0, is another operation."""
    redop, root, operation = row.get("redop"), int(row.get("root") or 0), run.operation
    operation += f"_{redop}" if isinstance(redop, str) and redop not in SUMS else ""
    operation += f"_root{root}" if root > 0 else ""
    return collective_parameters(operation, size, DTYPES.get(row["type"], row["type"]))


def reading_of(run: NcclRun, line: int | None, row: dict, times_s: dict | None = None, **calls) -> Reading:
    """Return one row. row: size, type, redop, and of each placement time (µs), algbw, busbw (GB/s) and wrong.

    times_s, calls: what -I reports about single calls, as fields of a reading.
    """
    sides = [placement for placement, again in PLACEMENTS.items() if f"time{again}" in row]
    placement, size, num_wrong = run.placement(sides), int(row["size"]), 0
    printed = {"placement": placement}
    for side in sides:
        figures = [row[name + PLACEMENTS[side]] for name in FIGURES]
        _check_figures(run, size, figures, line)
        time_us, algbw, busbw = map(float, figures)
        wrong = row.get(f"wrong{PLACEMENTS[side]}", 0)
        wrong = None if wrong in UNCHECKED else float(wrong)
        num_wrong += wrong or 0
        printed |= {f"{side}_time_us": time_us, f"{side}_algbw_gb_per_s": algbw}
        printed |= {f"{side}_busbw_gb_per_s": busbw, f"{side}_num_wrong": wrong}
    mean_us = printed[f"{placement}_time_us"]
    failure = f"{num_wrong:g} wrong values in the result (nccl-tests, #wrong)" if num_wrong else None
    failure = failure if mean_us else failure or "the printed time is 0"
    return Reading(
        line,
        "collective",
        parameters_of_row(run, size, row),
        *(run.nodes, run.gpus_per_node),
        {("mean_s" if run.is_blocking else "window_step_s"): mean_us / 1e6} | (times_s or {}) if mean_us else {},
        printed,
        num_warmup=run.num_warmup,
        failure=failure,
        **{"num_iterations": run.num_iterations} | calls,
    )


def _check_figures(run: NcclRun, size: int, figures: list[str | float], line: int | None) -> None:
    """Refuse a row with contradictory time and bandwidths: a shifted column, or ranks that are not listed."""
    factor = BUS_FACTOR.get(run.operation)
    if factor is None or not size:  # a row of 0 bytes has nothing to check
        return
    time, algbw, busbw = map(printed_interval, figures)
    num_ranks = run.nodes * run.gpus_per_node
    factor, rate = factor(num_ranks), ratio(size / 1000, time)
    if run.operation in PARTS and common(scaled(rate, factor), algbw, busbw):  # before nccl-tests 2.9
        return
    if not (known := common(rate, algbw)):
        found = f"{size} bytes in {figures[0]} us with algbw {figures[1]} GB/s"
        raise refusal(run.name, line, found, f"algbw {middle(rate):.4g}, bytes / time")
    if not common(scaled(known, factor), busbw):
        found = f"algbw {figures[1]} and busbw {figures[2]} GB/s with {num_ranks} ranks"
        raise refusal(run.name, line, found, f"busbw {middle(scaled(known, factor)):.4g} of {run.operation}")


def refuse_repeats(readings: Iterable[Reading], name: str) -> None:
    """Raise UserError for a cell that a run measured again, as with -N: its rows are no launches."""
    found = set()
    for reading in readings:
        cell = tuple(reading.parameters.items())
        if cell in found:
            again = f"{reading.parameters['operation']} of {reading.parameters['message_bytes']} bytes again"
            want = (
                "each size once per run. Cycles (-N) share processes, so they are not separate launches: run with -N 1"
            )
            raise refusal(name, reading.line, again, want)
        found.add(cell)
