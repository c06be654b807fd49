"""Short training runs on two ranks, one after another. Started by test_bench_train_run.py as ranks.

Rank 0 writes {case: {name: what was found}} as JSON.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from bench_cells import BENCH, SHORT_SAMPLING
from torch import nn

sys.path.insert(0, str(BENCH))

import train_run
from harness import measure, peers
from harness.failures import Progress
from workloads import cifar, train_loop

# 101 test images: the two shares of the test set differ by one image.
SMALL_SYNTHETIC = {"train": 130, "test": 101}

CELL = {
    "model": "cifar_cnn",
    "data": "synthetic",
    "data_folder": None,
    "epochs": 2,
    "batch_size": 16,
    "accumulation_steps": 1,
    "strategy": "own",
    "norm": "own_sync",
    "seed": 1,
}
TRAININGS = {
    "own": {},
    "own again": {},
    "another seed": {"seed": 2},
    "ddp": {"strategy": "ddp"},
    "plain norm": {"norm": "batch"},
    "own accumulated": {"accumulation_steps": 2},
    "ddp accumulated": {"accumulation_steps": 2, "strategy": "ddp"},
}


def train(changes: dict, ranks: peers.Ranks, num_calls: dict) -> dict:
    """Train as a launch does; return the record's values, checks, parts, and the all-reduces per step."""
    workload = train_run.build(CELL | changes, ranks)
    num_calls["all_reduce"] = 0
    for _ in range(workload.num_iterations):
        workload.iterate()
    calls = num_calls["all_reduce"]
    values = workload.values()
    return {
        **values,
        "all_reduces_per_step": calls / (values["steps_per_epoch"] * workload.num_iterations),
        "checks": peers.true_on_all_ranks(workload.check(), ranks),
        "num_parts": {name: len(durations) for name, durations in workload.parts().items()},
        "memory": workload.memory(),
    }


def small_model() -> nn.Module:
    """A model without batch norm and dropout, for which accumulation changes nothing but rounding."""
    torch.manual_seed(5)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 8), nn.Tanh(), nn.Linear(8, 100)).double()


def accumulate(strategy: str, ranks: peers.Ranks) -> dict[str, float]:
    """Train for a step of four accumulated batches on each rank, and in one process on all images at once.

    Returns the largest difference of a weight; and of a weight to its first value, which shows that there was a step.
    """
    generator = torch.Generator().manual_seed(6)
    images = torch.randn(2, 4, 3, 3, 32, 32, dtype=torch.float64, generator=generator)  # (rank, batch, N, C, H, W)
    labels = torch.randint(100, (2, 4, 3), generator=generator)
    trainer = train_loop.make_trainer(small_model(), strategy, 4, ranks)
    for number in range(4):
        train_loop.train_batch(trainer, images[ranks.rank, number], labels[ranks.rank, number], is_last=number == 3)
    whole = train_loop.make_trainer(small_model(), "none", 1, ranks)
    train_loop.train_batch(whole, images.flatten(0, 2), labels.flatten(), is_last=True)
    return {
        "difference": largest_difference(trainer.model, whole.model),
        "step": largest_difference(trainer.model, small_model()),
    }


def largest_difference(left: nn.Module, right: nn.Module) -> float:
    pairs = zip(left.parameters(), right.parameters(), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


def count_all_reduces(num_calls: dict) -> None:
    all_reduce = dist.all_reduce

    def counting(*arguments, **options):
        num_calls["all_reduce"] += 1
        return all_reduce(*arguments, **options)

    dist.all_reduce = counting


def measure_one(ranks: peers.Ranks, store: dist.Store) -> dict:
    """Return what a record has of a training, measured as in a launch."""
    spec = {"backend": "gloo", "parameters": CELL, "sampling": SHORT_SAMPLING}
    outcome = measure.measure_cell(train_run, spec, ranks, store, "measured", Progress())
    return {"status": outcome.status, "cause": outcome.cause, **outcome.fields}


def main(path: str) -> None:
    torch.set_num_threads(1)
    cifar.NUM_SYNTHETIC = SMALL_SYNTHETIC
    rank, world_size, _ = peers.position_from_environment(dict(os.environ))
    ranks = peers.Ranks(rank, world_size, rank, torch.device("cpu"))
    store = peers.connect_store(rank, world_size, 60, "cases")
    measured = measure_one(ranks, store)
    peers.begin_group(ranks, "gloo", store, "others")
    num_calls = {"all_reduce": 0}
    count_all_reduces(num_calls)
    outcome = {name: train(changes, ranks, num_calls) for name, changes in TRAININGS.items()}
    outcome |= {f"accumulation {strategy}": accumulate(strategy, ranks) for strategy in ("own", "ddp")}
    outcome["measured"] = measured
    if ranks.rank == 0:
        Path(path).write_text(json.dumps(outcome))
    peers.end_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
