"""Results of 164 cells on two stacks with failures, for the size of the report."""

import json
import math
from pathlib import Path

from campaign_files import stack
from synthetic import CLUSTER, cells_s, cluster_campaign, write_results
from synthetic_timeline import START, write_job

from regatta.core.text import utc_seconds
from regatta.launchers import command_by_hand

IMAGE = {"image": "/shared/images/pytorch.sif", "image_id": "1", "env": {"OMP_NUM_THREADS": "1"}}
KINDS = {
    "contained": IMAGE | {"kind": "contained"},
    "bound": IMAGE | {"kind": "bind-mounted", "binds": ["/opt/lib:/host"]},
}
PAUSE_S = 15  # between two launches, and of a job before its first and after its last


def write_stacks(folder: Path) -> Path:
    """Write a results folder: ResNet-101 fails on one stack at the largest shape, and one launch times out."""
    campaign = cluster_campaign(repeats=6)
    cluster = campaign["cluster"] | {"gpu_request": "gpus-per-node"}
    for cell in campaign["cells"]:
        own = stack(cluster=cluster) | KINDS[cell["spec"]["stack"]["name"]]
        cell["command"] = command_by_hand(cell["spec"], own, cluster)
    failing = [cell["id"] for cell in campaign["cells"] if _fails(cell["spec"])]
    cause = "rank {} on node003: RuntimeError: NCCL error: unhandled system error"
    faults = {
        (cell, repeat): ("failed", "measure", cause.format(12 + repeat % 4)) for cell in failing for repeat in range(6)
    }
    faults[(campaign["cells"][40]["id"], 1)] = ("timeout", "measure", "no record after 60 s")
    write_results(folder, campaign, CLUSTER, faults, pause_s=PAUSE_S)
    times: dict[str, list[float]] = {}
    for path in (folder / "launches").glob("*.jsonl"):
        header, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        start_s = utc_seconds(header["time_utc"]) - START
        times.setdefault(header["batch"], []).extend((start_s, start_s + math.ceil(cells_s(lines))))
    for number, (batch, of_batch) in enumerate(sorted(times.items(), key=lambda item: min(item[1]))):
        write_job(folder, batch, str(4711 + number), min(of_batch) - PAUSE_S, max(of_batch) + PAUSE_S)
    return folder


def _fails(spec: dict) -> bool:
    return (spec["parameters"].get("model"), spec["stack"]["name"], spec["nodes"]) == ("resnet101", "bound", 8)
