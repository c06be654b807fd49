"""What text and JSON of nccl-tests share: programs, devices, and one row made into a reading.

Source of the forms: NVIDIA/nccl-tests, src/common.cu and src/util.cu.
"""

import re
from dataclasses import dataclass, replace

from regatta.formats.base import Options, Reading, collective_parameters, refusal
from regatta.topics.communication import BUS_FACTOR

# Program without `_perf` -> operation, and whether Regatta's own benchmark does it in place.
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
PIPELINED = "the mean of calls begun back to back, averaged over ranks as nccl-tests does by default; not of one blocking call, and no spread"
BLOCKING = (
    "the mean of calls that were waited for one by one, averaged over ranks as nccl-tests does by default; no spread"
)
EVENTS = (
    "single calls between device events, the slowest process of each; begun back to back, not waited for one by one"
)


MOST_GPUS = 4096  # of one process; more are a damaged figure


@dataclass(frozen=True)
class Device:
    """The GPU of a rank. name: None where the file does not list it."""

    rank: int
    group: int
    host: str
    name: str | None


@dataclass(frozen=True)
class Run:
    """What holds for all rows of a file. is_blocking: calls were waited for one by one (-z)."""

    name: str
    operation: str
    is_in_place: bool
    nodes: int
    gpus_per_node: int
    is_blocking: bool
    num_iterations: int | None
    num_warmup: int | None

    @property
    def num_ranks(self) -> int:
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True)
class Side:
    """One placement of one row, as printed. num_wrong: None where the result was not checked."""

    time_us: float
    algbw: float
    busbw: float
    num_wrong: float | None
    time_slack: float = 0.0


def program_of(text: str, name: str, line: int | None) -> tuple[str, bool]:
    """Return (operation, whether in place) of the one program that the text names."""
    found = sorted({match[1] for match in PROGRAM.finditer(text)})
    if len(found) == 1 and found[0] in PROGRAMS:
        return PROGRAMS[found[0]]
    told = f"found the programs {', '.join(found)}" if found else "no program is named"
    known = ", ".join(f"{program}_perf" for program in PROGRAMS)
    raise refusal(
        name, line, told, f"one of {known}. Old versions do not print it: put it into a first line, '# all_reduce_perf'"
    )


def device_of_each_rank(
    devices: list[Device], threads: int, gpus: int, name: str, line: int | None, has_all: bool
) -> list[Device]:
    """Return a device for each rank: a process has one for each GPU of each of its threads.

    has_all: every device is listed, as in the text. JSON up to its version 3 lists the first one of each process.
    """
    per_process, ranks = threads * gpus, sorted(device.rank for device in devices)
    is_first_alone = not has_all and ranks == list(range(0, len(ranks) * per_process, per_process or 1))
    if not 1 <= per_process <= MOST_GPUS or not (is_first_alone or len(ranks) % per_process == 0):
        listed = f"{len(ranks)} devices are listed, with {threads} x {gpus} = {per_process} GPUs in each process"
        raise refusal(
            name, line, listed, "threads x GPUs of each process" if has_all else "the first GPU of each process"
        )
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
        raise refusal(name, line, "no device is listed", "'# Rank 0 Group 0 Pid ... on <host> device 0 [...] <name>'")
    if len({device.group for device in devices}) > 1:
        raise refusal(name, line, "ranks are split into groups (NCCL_TESTS_SPLIT)", "one group of all ranks")
    ranks = sorted(device.rank for device in devices)
    if ranks != list(range(len(ranks))):
        raise refusal(name, line, f"ranks {ranks[0]} to {ranks[-1]} with gaps or twice", "each rank once")
    by_host: dict[str, int] = {}
    for device in devices:
        by_host[device.host] = by_host.get(device.host, 0) + 1
    per_host = set(by_host.values())
    if len(per_host) > 1:
        raise refusal(name, line, f"hosts with {sorted(per_host)} ranks", "the same number on each host")
    shape = len(by_host), per_host.pop()
    if options.gpus_per_node not in (None, shape[1]):
        told = f"{shape[1]} ranks on each host, and --gpus-per-node {options.gpus_per_node}"
        raise refusal(name, line, told, "no other number than the file's; leave the option out")
    return shape


def environment_of(devices: list[Device], nccl: str | None) -> dict:
    hosts: dict[str, list[int]] = {}
    for device in sorted(devices, key=lambda device: device.rank):
        hosts.setdefault(device.host, []).append(device.rank)
    return {
        "nccl": nccl,
        "hosts": [{"host": host, "ranks": ranks} for host, ranks in hosts.items()],
        "gpus": [{"rank": device.rank, "host": device.host, "name": device.name} for device in devices if device.name],
    }


def check_side(run: Run, size: int, side: Side, line: int | None) -> None:
    """Refuse a row whose time and bandwidths contradict each other: a column is shifted, or ranks are missing above."""
    factor = BUS_FACTOR.get(run.operation)
    if factor is None:
        return
    algbw = size / side.time_us / 1000 if side.time_us else float("inf")
    if abs(algbw - side.algbw) > 0.006 + (0.01 + side.time_slack) * algbw:
        told = f"{size} bytes in {side.time_us:g} us with algbw {side.algbw:g} GB/s"
        raise refusal(run.name, line, told, f"algbw {algbw:.2f}, bytes / time")
    busbw = side.algbw * factor(run.num_ranks)
    if abs(busbw - side.busbw) > 0.02 + 0.01 * busbw:
        told = f"algbw {side.algbw:g} and busbw {side.busbw:g} GB/s with {run.num_ranks} ranks"
        raise refusal(run.name, line, told, f"busbw {busbw:.2f} of {run.operation}")


def placement_of(run: Run, sides: dict) -> str:
    """Return the placement whose time counts: that of Regatta's own benchmark, or the only one there is."""
    wanted = "in_place" if run.is_in_place else "out_of_place"
    return wanted if wanted in sides else next(iter(sides))


def reading_of(
    run: Run, line: int | None, size: int, dtype: str, redop: str | None, sides: dict[str, Side],
    times_s: dict[str, float] | None = None, **samples,
) -> Reading:  # fmt: skip
    """Return one row. sides: `out_of_place` and `in_place`. times_s, samples: what -I says of single calls."""
    for side in sides.values():
        check_side(run, size, side, line)
    placement = placement_of(run, sides)
    side, printed = sides[placement], {"placement": placement}
    for key, value in sides.items():
        printed |= {f"{key}_time_us": value.time_us, f"{key}_algbw_gb_per_s": value.algbw}
        printed |= {f"{key}_busbw_gb_per_s": value.busbw, f"{key}_num_wrong": value.num_wrong}
    num_wrong = sum(value.num_wrong or 0 for value in sides.values())
    operation = run.operation if redop in (None, "none", "sum") else f"{run.operation}_{redop}"
    time = {("mean_s" if run.is_blocking else "window_step_s"): side.time_us / 1e6}
    return Reading(
        line, "collective", collective_parameters(operation, size, DTYPES.get(dtype, dtype)), run.nodes, run.gpus_per_node,
        times_s=time | (times_s or {}), printed=printed, num_iterations=run.num_iterations, num_warmup=run.num_warmup,
        failure=f"{num_wrong:g} wrong values in its result (nccl-tests, #wrong)" if num_wrong else None, **samples,
    )  # fmt: skip
