"""Results of a bad night on a cluster: a campaign with each class of failure, with real messages."""

import json
from pathlib import Path

from synthetic import CLUSTER, cluster_campaign, write_results

SKIPPED = "message_bytes x ranks does not fit in 94.99 GiB"
HELD_BACK = "stack bound failed the preflight: NCCL uses Socket; required_network is AWS Libfabric"
# (status, phase, cause) of one repeat of one cell each; words of run/causes.py and of the ranks' programs.
CAUSES = (
    ("failed", "launch", "the launch ended with exit code 127; last line of the log: srun: error: n7: task 12: Exited with exit code 127"),
    ("failed", "init", "rank 5 on n2: DistStoreError: Timed out after 601 seconds waiting for clients. 31/32 clients joined."),
    ("failed", "setup", "rank 0 on n1: ValueError: torchvision has no classifier resnet51. Did you mean resnet50?"),
    ("failed", "check", "rank 3 on n1: the loss of step 2 is nan"),
    ("failed", "warmup", "rank 9 on n3: DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3356, unhandled system error"),
    ("failed", "measure", "rank 17 on n5 was killed by SIGSEGV"),
    ("timeout", "measure", "no record within 600 s (cell_seconds); stack traces are in the log"),
    ("timeout", "launch", "no cell started within 120 s (launch_start_seconds); stack traces are in the log"),
    ("out_of_memory", "setup", "rank 2 on n1: OutOfMemoryError: CUDA out of memory. Tried to allocate 12.50 GiB. GPU 2 has a total of 94.99 GiB."),
    ("out_of_memory", None, "rank 1 on n1 was killed by the kernel: out of memory"),
    ("placement", "placement", "expected 4 ranks on each of 8 nodes; n3 has 8 and n4 has none"),
    ("node_failure", None, "Slurm ended the job: a node failed (n6)"),
    ("skipped", None, "not started: the first 3 cells of stack bound failed with the same error: rank 0 on n1: NCCL error"),
    ("failed", "image", "n3: pyxis: [ERROR] No such file or directory: /images/pytorch.sqsh"),
)  # fmt: skip
LOG = """NCCL version 2.27.5+cuda13.0
n5:41873:41990 [1] NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out
[rank17]: *** Process received signal ***
[rank17]: Signal: Segmentation fault (11)
srun: error: n5: task 17: Segmentation fault (core dumped)
"""


def write_failing(folder: Path) -> Path:
    """Write the results folder: each of CAUSES, cells that were never reached, a batch that was stopped. Returns it."""
    campaign = cluster_campaign(repeats=2)
    campaign["skipped"] = [campaign["cells"].pop() | {"reason": SKIPPED}]
    slots = [(cell["id"], 0) for cell in campaign["cells"] if cell["spec"]["nodes"] == 8]
    faults = dict(zip(slots, CAUSES, strict=False))
    more = [(cell["id"], repeat) for cell in campaign["cells"][8:12] for repeat in (0, 1)]
    faults |= {slot: (*CAUSES[5][:2], CAUSES[5][2].replace("17", str(n))) for n, slot in enumerate(more)}
    unreached = [(cell["id"], 1) for cell in campaign["cells"][-3:]]
    faults |= dict.fromkeys(unreached, "not_measured")
    write_results(folder, campaign, CLUSTER, faults)
    broken = campaign["cells"][8]["id"]
    for path in (folder / "launches").glob("*.jsonl"):
        if broken in path.read_text(encoding="utf-8"):
            log = folder / "batches" / path.stem.rsplit("-", 2)[0] / "logs" / f"{path.stem}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(LOG, encoding="utf-8")
    batch = folder / "batches" / "n08g04-0123456789ab"
    batch.mkdir(parents=True)
    stopped = {"kind": "stopped", "job": "4711", "hosts": ["n6"], "cause": "SIGTERM: Slurm's time limit"}
    (batch / "jobs.jsonl").write_text(json.dumps(stopped | {"time_utc": "2026-11-21T05:00:00Z"}) + "\n")
    launches = [{"repeat": repeat, "stack": "bound", "cells": [cell]} for cell, repeat in unreached]
    (batch / "batch.json").write_text(json.dumps({"schema": 1, "launches": launches}), encoding="utf-8")
    return folder
