"""The benchmark on one process, without a campaign: python -m pytest test_my_step.py"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

BENCH = Path("workflow/scripts/bench")
sys.path[:0] = [str(Path(__file__).parent), str(BENCH)]


def test_an_iteration_is_right():
    import my_step

    from harness.peers import Ranks

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    workload = my_step.build({"size": 8}, Ranks(0, 1, 0, torch.device("cpu"), 1))
    workload.iterate()
    assert workload.check() == {"sum_is_exact": True}
    assert workload.values() == {"work_flop": 1024, "largest_error": 0}
    assert workload.values().keys() == my_step.RESULTS.keys()
    dist.destroy_process_group()
