"""Count the GPUs of this machine, for `gpus_per_node: detect`. Variables that hide GPUs from a process are ignored."""

import contextlib
import re
from pathlib import Path

# A node of the KFD topology with SIMD units is a GPU; a CPU has 0 (Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c).
HAS_SIMD = re.compile(rb"^simd_count\s+0*[1-9]\d*\s*$", re.MULTILINE)


def detected_gpus(vendor: str | None, nvidia_gpus: Path, kfd_nodes: Path) -> dict:
    """Return number and vendor of this machine's GPUs, as cluster keys. vendor: None for any, NVIDIA first."""
    count = len(list(nvidia_gpus.iterdir())) if nvidia_gpus.is_dir() and vendor != "amd" else 0
    if count == 0 and vendor != "nvidia":
        for path in kfd_nodes.glob("*/properties"):
            with contextlib.suppress(OSError):  # a GPU outside of this job's cgroup
                count += bool(HAS_SIMD.search(path.read_bytes()))
        vendor = vendor or ("amd" if count else None)
    return {"gpus_per_node": count, "gpu_vendor": vendor}
