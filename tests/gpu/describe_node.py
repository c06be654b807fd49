"""Print what a GPU node has: interpreter, torch, GPUs, compilers, limits. Every fact is optional; null means unknown.

The JSON file is written after each group of facts: the import of torch may take longer than the time that is left.
"""

import argparse
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "bench"))

NVIDIA_SMI = (
    "name,driver_version,memory.total,pstate,clocks.sm,clocks.max.sm,power.limit,temperature.gpu,mig.mode.current"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write it to this file")
    options = parser.parse_args()
    facts = {}
    for gather in (machine_facts, nvidia_smi_facts, torch_facts, gpu_facts):
        try:
            facts |= gather()
        except Exception as error:  # broad: one unknown fact must not hide the others
            facts.setdefault("errors", []).append(f"{gather.__name__}: {type(error).__name__}: {error}")
        if options.json:
            options.json.write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts, indent=1))


def machine_facts() -> dict:
    include = Path(sysconfig.get_paths()["include"], "Python.h")
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "is_root": os.geteuid() == 0,
        "num_cores": len(os.sched_getaffinity(0)),
        "compiler": shutil.which("cc") or shutil.which("gcc"),  # torch.compile needs one, and Python.h
        "python_h": include.exists(),
        "modules": {name: importlib.util.find_spec(name) is not None for name in ("pytest", "numpy", "triton", "yaml")},
        "proc_driver_version": Path("/proc/driver/nvidia/version").exists(),
        "clear_refs": os.access("/proc/self/clear_refs", os.W_OK),
    }


def nvidia_smi_facts() -> dict:
    return {
        "nvidia_smi": output("nvidia-smi", f"--query-gpu={NVIDIA_SMI}", "--format=csv"),
        "topology": output("nvidia-smi", "topo", "-m"),
    }


def output(*line: str) -> str | None:
    try:
        return subprocess.run(line, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def torch_facts() -> dict:
    import torch
    import torchvision

    return {
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "cuda": torch.version.cuda,
        "num_gpus": torch.cuda.device_count(),
        "architectures": torch.cuda.get_arch_list(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
    }


def gpu_facts() -> dict:
    import torch

    from harness import environment

    if not torch.cuda.is_available():
        return {"gpu": None}
    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info(0)
    return {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "num_multiprocessors": properties.multi_processor_count,
        "uuid": str(getattr(properties, "uuid", None)),
        "memory_bytes": properties.total_memory,
        "mem_get_info": [free, total],
        "has_bf16": torch.cuda.is_bf16_supported(),
        "nccl": environment.nccl_version(),
        "cudnn": torch.backends.cudnn.version(),
    }


if __name__ == "__main__":
    main()
