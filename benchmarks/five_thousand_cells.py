"""A synthetic campaign of 4,964 cells on up to 32 ranks and two stacks (tests/unit/synthetic.py)."""

import sys

from common import ROOT

sys.path[:0] = [str(ROOT / "tests" / "unit"), str(ROOT / "tests" / "browser"), str(ROOT / "workflow" / "scripts")]

from synthetic import Machine, collective_cell, make_campaign, train_cell  # noqa: E402

SHAPES = ((1, 1), (1, 2), (1, 4), (2, 4), (4, 4), (8, 4))
MODELS = {f"model_{number:02d}": 0.01 * (number + 1) for number in range(12)}
BUCKETS = (1, 2, 4, 8, 16, 25, 32, 64, 128, 256)
PAUSE_S = 15  # between two launches
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv_ring")
MACHINE = Machine(MODELS, dict.fromkeys(MODELS, 100e6), 0.975, 9e-6, 95e9, 0.004, {"bound": 1.021})


def campaign() -> dict:
    cells = []
    for stack in ("contained", "bound"):
        more = {"stack": stack, "device": "cuda", "backend": "nccl", "cluster": "gh200"}
        for model in MODELS:
            cells.append(train_cell(model, 1, 1, "none", **more))
            cells += [train_cell(model, *shape, "ddp", bucket, **more) for shape in SHAPES for bucket in BUCKETS]
        for operation in OPERATIONS:
            for dtype in ("fp32", "bf16"):
                for shape in SHAPES[1:]:
                    cells += [collective_cell(8 * 2**i, *shape, operation, dtype=dtype, **more) for i in range(25)]
    cluster = {"schema": 1, "name": "gh200", "scheduler": "slurm", "num_nodes": 64, "gpus_per_node": 4}
    text = "Twelve models and seven collectives on up to 32 GPUs, with libraries of the image and of the host."
    return make_campaign(cells, name="five-thousand", description=text, cluster=cluster, device="cuda", repeats=5)
