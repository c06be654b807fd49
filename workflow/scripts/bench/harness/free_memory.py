"""Check whether a message or a model fits into memory before it is allocated, with the same result on all ranks.

On a CPU an allocation that is too large does not fail: the kernel kills a process, possibly a different one.
"""

import os
import re
import zlib
from pathlib import Path

import torch

from harness import peers

MEMINFO = Path("/proc/meminfo")
NUMA_NODES = Path("/sys/devices/system/node")
USABLE_RATIO = 0.9  # the rest is for the backend and the checks


def require_memory(what: str, num_bytes: int, ranks: peers.Ranks, remedy: str) -> None:
    """Raise ValueError on all ranks if on one of them `num_bytes` do not fit. what, remedy: begin and end the message.

    Unknown memory is sufficient. Limits of containers and jobs are not checked.
    """
    free = free_bytes(ranks)
    usable = -1 if free is None else int(free * USABLE_RATIO)
    by_rank = [row[0] for row in peers.gather_rows([usable], ranks)]
    least = min((room for room in by_rank if room >= 0), default=None)
    if least is not None and num_bytes > least:
        place = "of its GPU's free memory" if ranks.device.type == "cuda" else "as its share of its host's free memory"
        found = f"rank {by_rank.index(least)} has {gib(least)} GiB {place}"
        raise ValueError(f"{what} needs {gib(num_bytes)} GiB on each rank, but {found}. {remedy}")


def free_bytes(ranks: peers.Ranks) -> int | None:
    """Return the bytes available to this rank: on its GPU, else its share of the host; None if unknown.

    Called on all ranks.
    """
    on_host = zlib.crc32(os.uname().nodename.encode())
    num_on_host = [row[0] for row in peers.gather_rows([on_host], ranks)].count(on_host)
    if ranks.device.type == "cuda":
        return torch.cuda.mem_get_info(ranks.device)[0]
    available = available_bytes()
    return None if available is None else available // num_on_host


def gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.3g}"


def total_bytes() -> int | None:
    """Return the memory of the NUMA nodes that have cores; of all, if sysfs lists no such node. None if unknown.

    On a superchip such as GH200 the GPU's memory is a NUMA node without cores, included in the kernel's sums. (Memory
    on an expansion card is such a node as well: it is excluded.)
    """
    total = kilobytes(MEMINFO, "MemTotal")
    return None if total is None else 1024 * (total - of_nodes_without_cores("MemTotal"))


def available_bytes() -> int | None:
    """Return the kernel's estimate of available memory, minus free memory on nodes without cores; None if unknown."""
    available = kilobytes(MEMINFO, "MemAvailable")
    return None if available is None else 1024 * max(0, available - of_nodes_without_cores("MemFree"))


def of_nodes_without_cores(name: str) -> int:
    """Return the sum of a field in the meminfo of nodes without cores, in kB; 0 if no node has cores."""
    nodes = sorted(NUMA_NODES.glob("node[0-9]*"))
    without = [node for node in nodes if not (node / "cpulist").read_text().strip()]
    return sum(kilobytes(node / "meminfo", name) or 0 for node in without) if len(without) < len(nodes) else 0


def kilobytes(path: Path, name: str) -> int | None:
    """Return the value of the line `name: 123 kB`, with or without `Node 0` before it; None without file or line."""
    try:
        found = re.search(rf"^(?:Node \d+ )?{name}: *(\d+) kB$", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None
