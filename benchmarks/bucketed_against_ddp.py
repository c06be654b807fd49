"""Step time with custom gradient synchronization, relative to torch's DistributedDataParallel: 2 ranks, gloo, CPU.

All strategies run in one set of ranks, each with a separate copy of the model, and alternate: a block of steps each,
round after round, every second round in reverse order. A block's time is the median of its steps, each that of its
slowest rank. A round gives the ratio of each strategy's block to that of `ddp`; a launch gives the median over its
rounds; printed are the median and the range over launches. The goal is 1.05 for `bucketed`.
`ddp` appears twice: its deviation from 1 is the noise. A launch takes about a minute on an idle machine with 2 cores.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from common import ROOT, launch_ranks, spread

GOAL = 1.05
LAUNCHES = 2  # for `make bench`; a range needs more: --launches 5
ROUNDS = 8
BLOCK = 2
# Threads: one per rank, so that two ranks share two cores.
MODELS = {"resnet18": {"batch_size": 8, "image_size": 64}, "transformer tiny": {"batch_size": 4, "context_length": 64}}
# For each size of bucket in MiB; the last three ways know no such size.
WAYS = {25: ("ddp", "ddp twin", "ddp views", "bucketed", "naive", "flat", "overlap")}
WAYS[1] = WAYS[25][:4]


def main(num_launches: int) -> None:
    launches = [launch_ranks(__file__, 2) for _ in range(num_launches)]
    print(
        f"{'model':<17} {'MiB':>3}  {'way':<10} {'calls':>5} {'step ms':>8}  "
        f"ratio to ddp [range of {num_launches} launches]"
    )
    is_reached = True
    for case in launches[0]:
        for way in launches[0][case]:
            rows = [launch[case][way] for launch in launches]
            ratios = [row["ratio"] for row in rows]
            step_ms = statistics.median(row["step_s"] for row in rows) * 1e3
            calls = rows[0]["num_calls"] or ""
            print(
                f"{case.rpartition(' ')[0]:<17} {case.rpartition(' ')[2]:>3}  "
                f"{way:<10} {calls:>5} {step_ms:>8.2f}  {spread(ratios)}"
            )
            is_reached &= way != "bucketed" or statistics.median(ratios) <= GOAL
    print(f"goal, bucketed at most {GOAL} of ddp in each case: {'reached' if is_reached else 'missed'}")


def run_rank(output: Path) -> None:
    """One of the ranks: measure all cases; rank 0 writes {case: {way: figures}}."""
    sys.path.insert(0, str(ROOT / "workflow" / "scripts" / "bench"))
    import torch.distributed as dist

    dist.init_process_group("gloo")
    cases = {f"{name} {cap}": measure_case(name, cap) for name in MODELS for cap in WAYS}
    if dist.get_rank() == 0:
        output.write_text(json.dumps(cases))
    dist.destroy_process_group()


def measure_case(name: str, cap_mb: float) -> dict:
    ways, steps, calls = WAYS[cap_mb], {}, {}
    for way in ways:
        steps[way], calls[way] = make_step(name, cap_mb, way)
        # DistributedDataParallel rebuilds its buckets after the first step.
        time_block(steps[way])
    blocks = {way: [] for way in ways}
    for number in range(ROUNDS):
        for way in ways if number % 2 == 0 else reversed(ways):
            blocks[way].append(time_block(steps[way]))
    return {
        way: {
            "step_s": statistics.median(blocks[way]),
            "ratio": statistics.median(a / b for a, b in zip(blocks[way], blocks["ddp"], strict=True)),
            "num_calls": calls[way],
        }
        for way in ways
    }


def time_block(step: Callable[[], None]) -> float:
    """Return the median over the block of the slowest rank's seconds."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    durations = torch.empty(BLOCK, dtype=torch.float64)
    for position in range(BLOCK):
        begin = time.perf_counter()
        step()
        durations[position] = time.perf_counter() - begin
    dist.all_reduce(durations, op=dist.ReduceOp.MAX)
    return durations.median().item()


def make_step(name: str, cap_mb: float, way: str) -> tuple[Callable[[], None], int | None]:
    """Return one training step, and its collective calls where they are known."""
    import torch

    from algorithms import gradient_synchronization

    torch.manual_seed(0)
    model, inputs, labels = make_model(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()
    sync, trained = None, model
    if way.startswith("ddp"):
        options = {"broadcast_buffers": False, "gradient_as_bucket_view": way == "ddp views"}
        trained = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=cap_mb, **options)
    else:
        sync = gradient_synchronization.make(way, model, cap_mb if way == "bucketed" else None)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        criterion(trained(inputs).flatten(0, -2), labels).backward()
        if sync is not None:
            sync.finish()
        optimizer.step()

    return step, None if sync is None else sync.num_calls


def make_model(name: str):
    """Return a model, a batch of random inputs, and labels for all its predictions."""
    import torch

    from workloads import models, transformer

    size = MODELS[name]
    if name.startswith("transformer"):
        model = transformer.Transformer(transformer.dimensions_of(name.split()[1], size["context_length"]))
        shape = (size["batch_size"], size["context_length"])
        tokens, labels = torch.randint(model.dimensions.vocab_size, (2, *shape))
        return model, tokens, labels.flatten()
    model = models.build_model(name, size["image_size"])
    images = torch.randn(size["batch_size"], 3, size["image_size"], size["image_size"])
    return model, images, torch.randint(models.NUM_CLASSES, (size["batch_size"],))


if __name__ == "__main__":
    if "RANK" in os.environ:
        run_rank(Path(sys.argv[1]))
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--launches", type=int, default=LAUNCHES, metavar="COUNT", help="(default: %(default)s)")
        main(parser.parse_args().launches)
