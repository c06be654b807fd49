"""Cells to measure in tests, and where the rank's programs are."""

import os
import re
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "bench"

SHORT_SAMPLING = {
    "target_precision": 0.2,
    "min_seconds": 0.02,
    "max_seconds": 0.1,
    "min_samples": 6,
    "max_samples": 500,
    "max_warmup_seconds": 0.1,
}


def clean_environment() -> dict[str, str]:
    """The environment without what would make a single process believe that it is one of many."""
    ours = re.compile("^(RANK|WORLD_SIZE|LOCAL_|MASTER_|SLURM_|TORCHELASTIC_|OMP_NUM_THREADS|REGATTA_)")
    return {name: value for name, value in os.environ.items() if not ours.match(name)}


def make_cell(benchmark: str, parameters: dict, **changes: object) -> dict:
    spec = {
        "benchmark": benchmark,
        "version": 1,
        "cluster": "local",
        "device": "cpu",
        "backend": "gloo",
        "nodes": 1,
        "gpus_per_node": 2,
        "stack": {"name": "host", "kind": "host", "env": {}, "python": None},
        "parameters": parameters,
        "sampling": SHORT_SAMPLING,
    }
    word = str(next(iter(parameters.values()), "cell"))
    return {"id": f"{benchmark}-{word}", "spec": spec | changes, "command": "torchrun ..."}


def all_reduce_cell(message_bytes: int = 4096) -> dict:
    cell = make_cell("collective", {"operation": "all_reduce", "message_bytes": message_bytes, "dtype": "fp32"})
    return cell | {"id": f"collective-{message_bytes}"}


def train_step_cell(model: str = "mobilenet_v3_small") -> dict:
    parameters = {"model": model, "image_size": 32, "batch_size": 2, "dtype": "fp32", "strategy": "ddp"}
    return make_cell("train_step", parameters | {"bucket_cap_mb": 25, "gradient_as_bucket_view": False})
