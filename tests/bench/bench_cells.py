"""Cells that the tests measure, and the folder of the rank-side programs."""

import os
import re
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "bench"

SHORT_SAMPLING = {
    "target_precision": 0.2,
    "min_seconds": 0.005,
    "max_seconds": 0.02,
    "min_samples": 6,
    "max_samples": 500,
    "max_warmup_seconds": 0.02,
    "windows_ratio": 0.3,
}


def clean_environment() -> dict[str, str]:
    """The environment without what would make a single process believe that it is one of many."""
    ours = re.compile("^(RANK|WORLD_SIZE|LOCAL_|MASTER_|SLURM_|TORCHELASTIC_|OMP_NUM_THREADS|REGATTA_)")
    return {name: value for name, value in os.environ.items() if not ours.match(name)}


def version_of(benchmark: str) -> int:
    """Return the version of a benchmark, 1 of those that are made for a test."""
    program = BENCH / f"{benchmark}.py"
    return int(re.search(r"^VERSION = (\d+)$", program.read_text(), re.MULTILINE)[1]) if program.exists() else 1


def make_cell(benchmark: str, parameters: dict, **changes: object) -> dict:
    spec = {
        "benchmark": benchmark,
        "version": version_of(benchmark),
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


def collective_cell(
    operation: str, message_bytes: int | None = None, dtype: str | None = None, algorithm: str | None = None
) -> dict:
    """Return a cell of a collective. Where a parameter has an effect, None is its default."""
    if message_bytes is not None:
        dtype = dtype or "fp32"
    if operation == "all_reduce":
        algorithm = algorithm or "torch"
    parameters = {"operation": operation, "message_bytes": message_bytes, "dtype": dtype, "algorithm": algorithm}
    words = [str(value) for value in parameters.values() if value is not None]
    return make_cell("collective", parameters) | {"id": "-".join(["collective", *words])}


def all_reduce_cell(message_bytes: int = 4096) -> dict:
    return collective_cell("all_reduce", message_bytes) | {"id": f"collective-{message_bytes}"}


def train_step_parameters(model: str, strategy: str, **changes: object) -> dict:
    """Return the parameters of a small train_step cell; those without effect on it are None, as a campaign has them."""
    is_lm, is_ddp = model.startswith("lm_"), strategy == "ddp"
    return {
        "model": model,
        "image_size": None if is_lm else 32,
        "context_length": 16 if is_lm else None,
        "batch_size": 2,
        "dtype": "fp32",
        "strategy": strategy,
        "bucket_cap_mb": 25 if strategy in ("ddp", "bucketed") else None,
        "gradient_as_bucket_view": False if is_ddp else None,
        "static_graph": False if is_ddp else None,
        "compression": "none" if is_ddp else None,
        "optimizer": "sgd",
        "compile": False,
        "channels_last": None if is_lm else False,
    } | changes


def train_step_cell(model: str = "mobilenet_v3_small", strategy: str = "ddp", **changes: object) -> dict:
    cell = make_cell("train_step", train_step_parameters(model, strategy, **changes))
    return cell | {"id": "-".join([cell["id"], strategy, *map(str, changes.values())])}
