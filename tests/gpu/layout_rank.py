"""A rank of layouts.py: run_launch.py or preflight.py with several ranks on one GPU, or on emulated nodes.

  start_ranks.py --nproc-per-node=2 layout_rank.py run_launch --request FILE

The shipped programs refuse ranks that share a GPU. Here each rank's device is named with its rank, and its host is an
emulated node of LAYOUT_NODES. Every record has a note. The benchmark `hang` is one rank that never joins a collective.
"""

import importlib
import os
import sys
import time
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "bench"))

RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
NODES = int(os.environ["LAYOUT_NODES"])
NODE = RANK * NODES // WORLD_SIZE


def build_hang(parameters: dict, ranks):
    import torch.distributed as dist
    from torch import ones

    from harness import peers
    from harness.timing import Workload

    numbers = ones(1024, device=peers.group_device(ranks))

    def iterate() -> None:
        if ranks.rank == 1:
            time.sleep(600)
        dist.all_reduce(numbers)

    return Workload(iterate=iterate, check=lambda: {"hang_ended": False})


def main() -> None:
    if NODES > 1:  # alone: with NCCL_MULTI_RANK_GPU_ENABLE it has no purpose
        os.environ["NCCL_HOSTID"] = f"node{NODE}"
    from harness import launch_file, placement

    program = importlib.import_module(sys.argv.pop(1))
    if NODES > 1:
        placement.host_name = lambda: f"node{NODE}"
    identity = placement.device_identity
    placement.device_identity = lambda device, gpu: identity(device, gpu) + (f", rank {RANK}" if gpu else "")
    sys.modules["hang"] = types.SimpleNamespace(VERSION=1, build=build_hang)
    program.build_record = lambda *fields: launch_file.build_record(*fields) | {"note": os.environ["LAYOUT_NOTE"]}
    program.main()


if __name__ == "__main__":
    main()
