"""The epochs of train_run: training steps with accumulation, the test set in shards, and their history.

The same seed on the same ranks gives bitwise equal losses on a CPU: every random draw of an epoch depends on seed,
epoch and rank alone, and torch's CPU operators used here are deterministic for a fixed number of threads.
"""

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

from algorithms import gradient_synchronization
from algorithms.strategies import bucket_bytes, wrap_in_ddp
from harness import peers
from harness.peers import Ranks
from workloads import cifar_batches, weights
from workloads.cifar import Images

# Values of the published run: mryab/efficient-dl-systems, week 3, ddp_cifar100.py.
LEARNING_RATE = 0.01
MOMENTUM = 0.5

BUCKET_CAP_MB = 25  # torch's default
TEST_BATCH = 256  # images; changes results only by rounding


@dataclass
class Trainer:
    """A model and how it is trained. stepped: the model as wrapped by the strategy.

    no_sync: makes a context in which backward keeps gradients local. finish: after the last backward of a step,
    averages gradients over ranks. extra_bytes: size of the buckets, read after the steps.
    """

    model: nn.Module
    stepped: nn.Module
    optimizer: torch.optim.Optimizer
    accumulation_steps: int
    no_sync: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext
    finish: Callable[[], None] = lambda: None
    extra_bytes: Callable[[], int | None] = lambda: None


@dataclass
class EpochPlan:
    """num_batches: batches of batch_size images, per rank and epoch."""

    seed: int
    batch_size: int
    num_batches: int

    @property
    def num_samples(self) -> int:
        return self.num_batches * self.batch_size


@dataclass
class History:
    """One entry for each epoch. Losses are means over images of all ranks, None if not finite.

    accuracy_by_rank: each rank's share of the test set alone.
    """

    train_loss: list[float | None] = field(default_factory=list)
    test_loss: list[float | None] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    accuracy_by_rank: list[list[float | None]] = field(default_factory=list)
    train_ns: list[int] = field(default_factory=list)
    test_ns: list[int] = field(default_factory=list)

    def values(self) -> dict[str, list]:
        names = ("train_loss", "test_loss", "accuracy", "accuracy_by_rank")
        return {name: list(getattr(self, name)) for name in names}

    def parts(self) -> dict[str, list[int]]:
        return {"train": list(self.train_ns), "test": list(self.test_ns)}


def make_trainer(model: nn.Module, strategy: str, accumulation_steps: int, ranks: Ranks) -> Trainer:
    """Return the model with its optimizer, wrapped by its strategy (none, ddp, own).

    Buffers stay local in all strategies: only a synchronized batch norm makes them equal.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    trainer = Trainer(model, model, optimizer, accumulation_steps)
    if strategy == "ddp":
        trainer.stepped = wrap_in_ddp(model, ranks, BUCKET_CAP_MB)
        trainer.no_sync = trainer.stepped.no_sync
        trainer.extra_bytes = lambda: sum(bucket_bytes(trainer.stepped))
    elif strategy == "own":
        sync = gradient_synchronization.make("flat", model, None)
        trainer.no_sync, trainer.finish, trainer.extra_bytes = sync.no_sync, sync.finish, lambda: sync.extra_bytes
    return trainer


def run_epoch(trainer: Trainer, plan: EpochPlan, train: Images, test: Images, history: History, ranks: Ranks) -> None:
    """Train for one epoch, test, and add both to the history."""
    begin = time.perf_counter_ns()
    epoch = len(history.train_ns)
    train_sums = train_epoch(trainer, plan, epoch, train, ranks)
    ranks.synchronize()
    middle = time.perf_counter_ns()
    test_sums = evaluate(trainer.model, test, ranks)
    add_epoch(gather_sums(torch.cat([train_sums, test_sums]), ranks), history)
    ranks.synchronize()
    history.test_ns.append(time.perf_counter_ns() - middle)
    history.train_ns.append(middle - begin)


def train_epoch(trainer: Trainer, plan: EpochPlan, epoch: int, train: Images, ranks: Ranks) -> torch.Tensor:
    """Train on this rank's images of the epoch; return [sum of their losses, their number], fp64, on the device."""
    trainer.stepped.train()
    torch.manual_seed(cifar_batches.seed_for(plan.seed, "dropout", epoch, ranks.rank))
    draws = cifar_batches.draw_epoch(
        plan.seed, epoch, ranks.rank, ranks.world_size, len(train.labels), plan.num_samples
    ).to(ranks.device)
    total = torch.zeros((), dtype=torch.float64, device=ranks.device)
    batches = cifar_batches.batches(train, draws, plan.batch_size)
    for number, (images, labels) in enumerate(batches, start=1):
        total += train_batch(trainer, images, labels, is_last=number % trainer.accumulation_steps == 0)
    return torch.stack([total * plan.batch_size, torch.full_like(total, plan.num_samples)])


def train_batch(trainer: Trainer, images: torch.Tensor, labels: torch.Tensor, is_last: bool) -> torch.Tensor:
    """Add one batch to the gradients; with the last of a step, reduce them and step. Return the batch's mean loss."""
    with contextlib.nullcontext() if is_last else trainer.no_sync():
        loss = nn.functional.cross_entropy(trainer.stepped(images), labels)
        # All batches have the same size, so the mean of their means is that of one large batch.
        (loss / trainer.accumulation_steps).backward()
    if is_last:
        trainer.finish()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad(set_to_none=True)
    return loss.detach()


@torch.no_grad()
def evaluate(model: nn.Module, test: Images, ranks: Ranks) -> torch.Tensor:
    """Return [sum of losses, number correct, number of images] of this rank's share of the test set, on the device.

    Rank r has every world_size-th image from the r-th on: shares differ by at most one image.
    """
    model.eval()
    total = torch.zeros(3, dtype=torch.float64, device=ranks.device)
    share = torch.arange(ranks.rank, len(test.labels), ranks.world_size, device=ranks.device)
    for chosen in share.split(TEST_BATCH):
        labels = test.labels[chosen]
        outputs = model(cifar_batches.normalize(test.pixels_NCHW[chosen]))
        total[0] += nn.functional.cross_entropy(outputs, labels, reduction="sum")
        total[1] += (outputs.argmax(dim=1) == labels).sum()
        total[2] += len(labels)
    return total


def gather_sums(sums: torch.Tensor, ranks: Ranks) -> list[list[float]]:
    """Return all ranks' sums as [rank][position]. A single rank needs no process group."""
    if ranks.world_size == 1:
        return [sums.tolist()]
    sums = sums.to(peers.group_device(ranks))
    rows = sums.new_empty(ranks.world_size, len(sums))
    dist.all_gather_into_tensor(rows.view(-1), sums)
    return rows.tolist()


def add_epoch(sums_by_rank: list[list[float]], history: History) -> None:
    """Add an epoch's losses and accuracies. Each rank's sums: train loss, images; test loss, correct, images."""
    train_loss, num_train, test_loss, num_correct, num_test = map(math.fsum, zip(*sums_by_rank, strict=True))
    history.train_loss.append(weights.finite(train_loss / num_train))
    history.test_loss.append(weights.finite(test_loss / num_test))
    history.accuracy.append(num_correct / num_test)
    history.accuracy_by_rank.append([correct / images if images else None for *_, correct, images in sums_by_rank])


def agreement(model: nn.Module, is_norm_synchronized: bool, ranks: Ranks) -> dict[str, bool]:
    """Return whether all ranks have the same weights and, if batch norm is synchronized, the same statistics."""
    if ranks.world_size == 1:
        return {}
    checks = {"weights_agree": weights.are_the_same(list(model.parameters()), ranks)}
    if is_norm_synchronized:
        checks["statistics_agree"] = weights.are_the_same(list(model.buffers()), ranks)
    return checks
