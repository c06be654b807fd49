"""How much memory this host has, and how much of it is free: without what is a GPU's own."""

import re
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
NUMA_NODES = Path("/sys/devices/system/node")


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
