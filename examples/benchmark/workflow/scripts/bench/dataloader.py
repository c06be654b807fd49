"""Data loading: how fast torch.utils.data.DataLoader delivers batches while all ranks of a node load at once.

Measured: one epoch of num_batches batches on each rank, from the creation of its iterator to its last batch. Workers
outlive epochs, and no batch is prefetched before the clock starts: the time to fill the pipeline is included, and
recorded separately (first_batch). Throughput is world_size x batch_size x num_batches / time of the slowest rank.
Samples are synthetic: each is a new tensor of sample_bytes bytes.
Not included: storage, decoding, augmentation, copies to a GPU, a training step.

  torchrun --nproc-per-node=2 workflow/scripts/bench/dataloader.py --num-workers 2 --batch-size 32 --sample-bytes 150528

It prints a table; with --json FILE it appends one record.
"""

import time
from collections import deque
from dataclasses import asdict, dataclass, field

import torch
from torch.utils.data import DataLoader, Dataset

from harness.peers import Ranks
from harness.timing import Workload

# Counts up whenever the same parameters no longer measure the same thing. The driver reads it from the source text.
VERSION = 1

MAX_EPOCHS = 10_000  # of which the time to the first batch is kept
NUM_VALUES = 251  # of a byte; prime, so that neighboring batches differ


@dataclass
class Parameters:
    """batch_size: samples of a batch on each rank. num_batches: of an epoch on each rank."""

    num_workers: int
    batch_size: int
    sample_bytes: int
    num_batches: int


class Samples(Dataset):
    """Sample i has sample_bytes bytes of value i modulo NUM_VALUES."""

    def __init__(self, length: int, sample_bytes: int) -> None:
        self.length, self.sample_bytes = length, sample_bytes

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.sample_bytes,), index % NUM_VALUES, dtype=torch.uint8)


@dataclass
class Epoch:
    """The last epoch: number and last of its batches. first_batch_ns: of each epoch, warm-up included."""

    num_batches: int = 0
    last: torch.Tensor | None = None  # (batch_size, sample_bytes)
    first_batch_ns: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_EPOCHS))


def build(parameters: dict, ranks: Ranks) -> Workload:
    """Create the loader. Raises ValueError for parameters that cannot be measured."""
    wanted = Parameters(**parameters)
    check_parameters(wanted)
    samples = Samples(wanted.batch_size * wanted.num_batches, wanted.sample_bytes)
    loader = DataLoader(
        samples,
        batch_size=wanted.batch_size,
        num_workers=wanted.num_workers,
        persistent_workers=wanted.num_workers > 0,
    )
    epoch, clock = Epoch(), time.perf_counter_ns

    def load_epoch() -> None:
        begin = clock()
        epoch.num_batches = 0
        for batch in loader:
            if epoch.num_batches == 0:
                epoch.first_batch_ns.append(clock() - begin)
            epoch.num_batches += 1
            epoch.last = batch

    def check() -> dict[str, bool]:
        """Check the number of batches and the last batch of the last epoch, which was timed."""
        first = (wanted.num_batches - 1) * wanted.batch_size
        is_complete = epoch.num_batches == wanted.num_batches
        return {"every_sample_is_right": is_complete and holds(epoch.last, first, wanted)}

    def check_before() -> dict[str, bool]:
        """Check every byte of every batch of one epoch, untimed."""
        found = [holds(batch, index * wanted.batch_size, wanted) for index, batch in enumerate(loader)]
        return {"every_sample_is_right": found == [True] * wanted.num_batches}

    return Workload(
        iterate=load_epoch,
        check=check,
        check_before=check_before,
        values=lambda: {"epoch_bytes": wanted.batch_size * wanted.num_batches * wanted.sample_bytes},
        parts=lambda: {"first_batch": list(epoch.first_batch_ns)},
    )


def check_parameters(wanted: Parameters) -> None:
    """Raise ValueError for what cannot be measured."""
    for name, value in asdict(wanted).items():
        least = 0 if name == "num_workers" else 1
        if value < least:
            raise ValueError(f"{name} = {value}: at least {least} is needed.")


def holds(batch: torch.Tensor | None, first: int, wanted: Parameters) -> bool:
    """Return whether a batch has the samples from `first` on, in order and complete."""
    if batch is None or batch.shape != (wanted.batch_size, wanted.sample_bytes):
        return False
    expected = (torch.arange(first, first + wanted.batch_size) % NUM_VALUES).to(torch.uint8)
    return bool((batch == expected[:, None]).all())


def add_arguments(group) -> None:
    """Add this benchmark's parameters to a command line (an argparse group)."""
    for name, default, meaning in (
        ("num-workers", 2, "processes that load, on each rank; 0: the rank itself"),
        ("batch-size", 32, "samples of a batch on each rank"),
        ("sample-bytes", 150_528, "bytes of a sample"),
        ("num-batches", 16, "batches of an epoch on each rank"),
    ):
        group.add_argument(
            f"--{name}", type=int, default=default, metavar="N", help=f"{meaning} (default: %(default)s)"
        )


def parameters_from(arguments) -> dict:
    """Return the cell's parameters from a parsed command line."""
    return {name: getattr(arguments, name) for name in Parameters.__dataclass_fields__}


if __name__ == "__main__":
    import sys

    from harness import by_hand

    by_hand.main("dataloader", sys.modules[__name__])
