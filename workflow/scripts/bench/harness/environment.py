"""The environment of the ranks: hosts, versions, loaded libraries, relevant variables.

Recorded because it explains nearly every unexpected difference in a comparison.
"""

import ctypes
import os
import platform
import re
from importlib import metadata
from pathlib import Path

import torch

from harness import libraries, process
from harness.process import Place

# Only these are recorded: the environment also contains tokens.
VARIABLE_PREFIXES = (
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "NCCL_",
    "RCCL_",
    "MIOPEN_",
    "HSA_",
    "GLOO_",
    "FI_",
    "UCX_",
    "TORCH_",
    "PYTORCH_",
    "REGATTA_",
)
# NVIDIA's libraries use no TF32 at all if it is 0 (docs.nvidia.com, cuBLAS, "NVIDIA_TF32_OVERRIDE").
TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"
VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",  # set by Slurm for tasks with AMD GPUs, never by Regatta
    "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUBLAS_WORKSPACE_CONFIG",
    TF32_OVERRIDE,
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_CPU_BIND",
    "SINGULARITY_CONTAINER",
    "SINGULARITY_BIND",
    "APPTAINER_CONTAINER",
    "APPTAINER_BIND",
)

NCCL_LIBRARIES = ("libnccl.so.2", "librccl.so.1")


def describe(places: list[Place], device: torch.device, threads_per_rank: int) -> dict:
    """Return the `environment` of a launch file's first line (docs/contracts.md). Called on rank 0."""
    is_cuda = device.type == "cuda"
    return {
        "hosts": hosts(places),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": version_of("torchvision"),
        "cuda": torch.version.cuda if is_cuda else None,
        "nccl": nccl_version() if is_cuda else None,
        "cudnn": cudnn_version() if is_cuda else None,
        "driver": driver_version() if is_cuda else None,
        "gpus": [{"rank": place.rank, "host": place.host, **place.gpu} for place in places if place.gpu],
        "kernel": platform.release(),
        "threads_per_rank": threads_per_rank,
        "libraries": libraries.loaded_libraries(),
        "variables": allowed_variables(dict(os.environ)),
        "settings": math_settings(),
        "import_s": max((place.import_s for place in places if place.import_s is not None), default=None),
        "seconds_to_ready": process.seconds_since_start(),
    }


def hosts(places: list[Place]) -> list[dict]:
    """Return one entry per host, in the order of their lowest rank."""
    by_host: dict[str, list[Place]] = {}
    for place in places:
        by_host.setdefault(place.host, []).append(place)
    return [
        {
            "host": host,
            "ranks": [place.rank for place in on_host],
            "devices": [place.device or "none" for place in on_host],
            "num_cores": len(set().union(*(place.cores for place in on_host))),
            "cpu_model": on_host[0].cpu_model,
            "memory_bytes": on_host[0].memory_bytes,
        }
        for host, on_host in by_host.items()
    ]


def version_of(package: str) -> str | None:
    """Return an installed package's version without importing it, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def math_settings() -> dict[str, bool]:
    """Return whether fp32 products and convolutions may use TF32, and whether cuDNN autotunes its algorithms."""
    has_tf32 = os.environ.get(TF32_OVERRIDE) != "0"
    return {
        "allow_tf32_matmul": has_tf32 and torch.backends.cuda.matmul.allow_tf32,
        "allow_tf32_cudnn": has_tf32 and torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
    }


def cudnn_version() -> str | None:
    """Return the version of cuDNN, None if torch was built without it."""
    version = torch.backends.cudnn.version()
    return None if version is None else str(version)


def nccl_version() -> str | None:
    """Return the version of the NCCL or RCCL that this process has loaded, else of the build; None without.

    torch.cuda.nccl.version() is a constant of torch's build, also where a stack loads another library.
    """
    for name in NCCL_LIBRARIES:
        code = ctypes.c_int()
        try:
            status = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY).ncclGetVersion(ctypes.byref(code))
        except (OSError, AttributeError):  # not loaded, or linked into torch
            continue
        if status == 0:
            thousands, patch = divmod(code.value, 100)  # 23007 is 2.30.7, and 2804 is 2.8.4 (nccl.h, NCCL_VERSION)
            major, minor = divmod(thousands, 100 if code.value >= 10000 else 10)
            return f"{major}.{minor}.{patch}"
    try:
        version = torch.cuda.nccl.version()
    except AttributeError:  # torch/cuda/nccl.py reads torch._C._nccl_version
        return None
    return ".".join(str(part) for part in version) if isinstance(version, tuple) else str(version)


def driver_version() -> str | None:
    """Return the version of the NVIDIA kernel module."""
    try:
        found = re.search(r"\b\d+\.\d+(\.\d+)?\b", Path("/proc/driver/nvidia/version").read_text())
    except OSError:
        return None
    return found.group() if found else None


def describe_gpu(device: torch.device) -> dict:
    """Return name, UUID, memory and compute capability of a GPU."""
    properties = torch.cuda.get_device_properties(device)
    uuid = getattr(properties, "uuid", None)  # since torch 2.4
    return {
        "name": properties.name,
        "uuid": None if uuid is None else f"GPU-{uuid}",
        "memory_bytes": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
    }


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """Return the first `model name` of /proc/cpuinfo, or None: Arm processors have none there."""
    try:
        found = re.search(r"^model name\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    except OSError:
        return None
    return found[1].strip() if found else None


def allowed_variables(variables: dict[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(variables.items())
        if name.startswith(VARIABLE_PREFIXES) or name in VARIABLES
    }
