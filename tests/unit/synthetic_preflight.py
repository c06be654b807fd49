"""Synthetic results of a preflight: two hosts of four GPUs, a stack of each kind."""

import json
from pathlib import Path

NCCL_LOGS = Path(__file__).resolve().parents[1] / "golden" / "nccl"
LIBRARIES = {
    "libnccl.so.2": ("/usr/lib/libnccl.so.2", "image"),
    "libnccl-net.so": ("/opt/plugin/lib/libnccl-net.so", "image"),
    "libfabric.so.1.22.0": ("/host/lib/libfabric.so.1.22.0", "host"),
    "libcxi.so.1.5.0": ("/host/lib/libcxi.so.1.5.0", "host"),
}


def nccl_log(name: str) -> str:
    return (NCCL_LOGS / f"{name}.log").read_text()


def make_stack(name: str = "bind", kind: str = "bind-mounted", **changes: object) -> dict:
    stack = {"name": name, "kind": kind, "required_network": None, "required_host_libraries": [], "binds": []}
    stack |= {
        "runtime": "apptainer",
        "wrapper": None,
        "image": None if kind == "host" else "/images/torch.sif",
        "image_id": None,
    }
    return stack | changes


def make_rank(rank: int, libraries: dict = LIBRARIES, **changes: object) -> dict:
    """Return what one of eight ranks tells. libraries: name -> (path, origin)."""
    return {
        "rank": rank,
        "host": f"n{rank // 4 + 1}",
        "device": f"GPU-{rank}",
        "torch": "2.12.1+cu130",
        "driver": "570.86.15",
        "libraries": [{"name": name, "path": path, "origin": origin} for name, (path, origin) in libraries.items()],
    } | changes


def make_seen(**changes: object) -> dict:
    ranks = [make_rank(rank) for rank in range(8)]
    gpus = [{"rank": rank["rank"], "host": rank["host"], "name": "NVIDIA H200"} for rank in ranks]
    return {
        "schema": 1,
        "stack": "bind",
        "launch": "bind-00",
        "time_utc": "2026-11-21T03:04:05Z",
        "placement_problems": [],
        "environment": {"gpus": gpus, "hosts": [], "torch": "2.12.1+cu130"},
        "backends": [{"backend": "nccl", "ok": True, "cause": None, "elapsed_ns": 2_000_000_000}],
        "ranks": ranks,
    } | changes


def looked_at(stack: dict, seen: dict | None, nccl_text: str = "", cause: str | None = None) -> dict:
    """Return a stack of a preflight's result, judged as the driver does it."""
    from regatta.run.preflight_verdict import judge

    return {
        "stack": stack["name"],
        **{key: stack[key] for key in ("kind", "image", "image_id")},
        "verdict": judge(stack, seen, nccl_text, cause),
        "seen": seen,
        "log": f"results/x/preflight/preflight-0a1b2c3d4e5f/{stack['name']}-00.log",
        "argv": ["srun"],
    }


def make_preflight(*stacks: dict) -> dict:
    shape = {"nodes": 2, "gpus_per_node": 4, "device": "cuda", "backends": ["nccl"]}
    return {"schema": 1, "campaign": "x", **shape, "stacks": list(stacks) or three_stacks()}


def three_stacks() -> list[dict]:
    """Return one stack that is as it should be, one that fell back to sockets, and one that never came up."""
    fabric = {"required_network": "AWS Libfabric", "required_host_libraries": ["libfabric", "libcxi"]}
    alone = {"libnccl.so.2": LIBRARIES["libnccl.so.2"], "libfabric.so.1": ("/usr/lib/libfabric.so.1", "image")}
    contained = make_seen(ranks=[make_rank(rank, alone) for rank in range(8)])
    return [
        looked_at(make_stack("bind", image_id="3f2a1c0d-0000", **fabric), make_seen(), nccl_log("2.29-libfabric")),
        looked_at(make_stack("contained", "contained", **fabric), contained, nccl_log("2.20-old-libfabric")),
        looked_at(make_stack("host", "host"), None, cause="ModuleNotFoundError: No module named 'torch'"),
    ]


def write_preflight(folder: Path, preflight: dict | None = None) -> Path:
    """Write a result into a results folder and return its path."""
    path = folder / "preflight" / "preflight-0a1b2c3d4e5f.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(preflight or make_preflight()))
    return path
