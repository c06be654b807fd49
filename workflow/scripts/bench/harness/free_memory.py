"""Whether a message or a model fits into memory: asked before it is allocated, and answered alike on all ranks.

On a CPU what is too large does not fail: the kernel kills a process, and perhaps not the one that asked.
"""

import os
import re
import zlib
from pathlib import Path

import torch

from harness import peers

MEMINFO = Path("/proc/meminfo")
NUMA_NODES = Path("/sys/devices/system/node")
USABLE_RATIO = 0.9  # the rest is for what the backend and the checks take


def refuse_what_does_not_fit(what: str, num_bytes: int, ranks: peers.Ranks, remedy: str) -> None:
    """Raise ValueError on all ranks where on one of them `num_bytes` do not fit. what: begins the sentence. remedy: ends it.

    Unknown memory is enough. Containers and jobs may be limited to less than what a host has: that is not looked at.
    """
    free = free_bytes(ranks)
    usable = -1 if free is None else int(free * USABLE_RATIO)
    by_rank = [row[0] for row in peers.gather_rows([usable], ranks)]
    least = min((room for room in by_rank if room >= 0), default=None)
    if least is not None and num_bytes > least:
        place = "of its GPU's free memory" if ranks.device.type == "cuda" else "as its share of its host's free memory"
        raise ValueError(
            f"{what} needs {gib(num_bytes)} GiB on each rank, but rank {by_rank.index(least)} has {gib(least)} GiB {place}."
            f" {remedy}"
        )


def free_bytes(ranks: peers.Ranks) -> int | None:
    """Return the bytes that this rank may take: of its GPU, else its share of the host. None where nobody says.

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
    """Return the memory of the NUMA nodes that have cores; of all, where sysfs tells of no such node. None if unknown.

    On a superchip as GH200 the GPU's memory is a NUMA node too, without cores, and the kernel's sums hold it. (Memory on an
    expansion card is such a node as well: it is left out.)
    """
    total = kilobytes(MEMINFO, "MemTotal")
    return None if total is None else 1024 * (total - of_nodes_without_cores("MemTotal"))


def available_bytes() -> int | None:
    """Return what can be taken without swapping, as the kernel estimates it, less what is free on nodes without cores.

    None where nobody says. Containers and jobs may be limited to less than what a host has: that is not looked at.
    """
    available = kilobytes(MEMINFO, "MemAvailable")
    return None if available is None else 1024 * max(0, available - of_nodes_without_cores("MemFree"))


def of_nodes_without_cores(name: str) -> int:
    """Return the sum of a field of the nodes' meminfo, in kB; 0 where no node has cores: then they tell nothing."""
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
