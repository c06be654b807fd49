"""The custom all-reduce algorithms relative to torch's all_reduce: 4 ranks on this machine, gloo, fp32 buffers.

In each launch the algorithms alternate, round after round, so that other load on the machine affects all equally.
Before each call the buffer is reset and the ranks meet at a barrier; a call's time is that of the slowest rank.
Printed for each size: median over launches of the launch's median, the range over launches, and the same of the ratio
to torch's within a launch. The goal: the best custom algorithm takes at most 1.25 times as long as torch's at 16 MiB.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

from common import ROOT, launch_ranks, spread

NUM_RANKS = 4
NUM_LAUNCHES = 5
NUM_WARMUP = 3
ROUNDS_BY_BYTES = {64 * 2**10: 40, 2**20: 30, 16 * 2**20: 20}
GOAL_BYTES, GOAL_RATIO = 16 * 2**20, 1.25


def main() -> None:
    launches = [launch_ranks(__file__, NUM_RANKS, "--ranks-write") for _ in range(NUM_LAUNCHES)]
    print(f"{NUM_RANKS} ranks on {os.cpu_count()} cores, gloo, {NUM_LAUNCHES} launches; median [range] over launches")
    print(f"{'KiB':>6} {'algorithm':<18} {'ms':>27} {'ratio to torch':>22}")
    for message_bytes in ROUNDS_BY_BYTES:
        rows = [one[str(message_bytes)] for one in launches]
        for name in rows[0]:
            times = [row[name] * 1e3 for row in rows]
            ratios = [row[name] / row["torch"] for row in rows]
            print(f"{message_bytes // 1024:>6} {name:<18} {spread(times):>27} {spread(ratios):>22}")
    at_goal = [one[str(GOAL_BYTES)] for one in launches]
    own = [name for name in at_goal[0] if name != "torch"]
    best = min(own, key=lambda name: statistics.median(row[name] / row["torch"] for row in at_goal))
    ratio = statistics.median(row[best] / row["torch"] for row in at_goal)
    print(f"best at 16 MiB: {best}, {ratio:.3f} of torch's time (goal: at most {GOAL_RATIO})")


def run_rank(path: Path) -> None:
    """Time all algorithms at all sizes. Rank 0 writes the medians."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    medians = {size: time_algorithms(size, num_rounds) for size, num_rounds in ROUNDS_BY_BYTES.items()}
    if dist.get_rank() == 0:
        path.write_text(json.dumps(medians))
    dist.destroy_process_group()


def time_algorithms(message_bytes: int, num_rounds: int) -> dict[str, float]:
    """Return the median seconds of each algorithm, slowest rank, over rounds in which each has its turn."""
    import torch
    import torch.distributed as dist

    from algorithms import allreduce

    # Sums of small integers are exact in any order, so that one result can be held against the others.
    values = (torch.arange(message_bytes // 4) % 127 + dist.get_rank()).to(torch.float32)
    expected, buffer = values.clone(), values.clone()
    dist.all_reduce(expected)
    calls = {"torch": lambda: dist.all_reduce(buffer)}
    calls |= {name: allreduce.AllReduce(name, buffer).run for name in allreduce.ALGORITHMS}
    times = {name: [] for name in calls}
    order = list(calls)
    for _ in range(NUM_WARMUP + num_rounds):
        for name in order:
            buffer.copy_(values)
            times[name].append(time_call(calls[name]))
            if not torch.equal(buffer, expected):
                sys.exit(f"{name}: wrong sum of {message_bytes} bytes")
        order = [*order[1:], order[0]]
    return {name: statistics.median(seconds[NUM_WARMUP:]) for name, seconds in times.items()}


def time_call(call) -> float:
    """Return how long the slowest rank took, in seconds."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    begin = time.perf_counter()
    call()
    slowest = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ranks-write"]:
        sys.path.insert(0, str(ROOT / "workflow" / "scripts" / "bench"))
        run_rank(Path(sys.argv[2]))
    else:
        main()
