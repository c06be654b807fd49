"""The strategies that own_strategies_ranks.py tests: custom ones, torch's DistributedDataParallel and fully_shard."""

import torch
import torch.distributed as dist
from own_strategies_models import FAMILIES, Family

from algorithms import gradient_synchronization, strategies
from harness import peers

# Caps in MiB: below any weight, so that each is a bucket; some buckets of several weights; one bucket.
CONTENDERS = {
    "naive": ("naive", None),
    "flat": ("flat", None),
    "overlap": ("overlap", None),
    "bucketed_0.0001": ("bucketed", 1e-4),
    "bucketed_0.05": ("bucketed", 0.05),
    "bucketed_1000": ("bucketed", 1000),
    "ddp": ("ddp", 25),
    "fsdp": ("fsdp", None),
}
# Seen with torch 2.12: fully_shard refuses a mix of dtypes, and weights that are not contiguous (channels last); and where
# ranks use different weights it mixes up their gradients. With many small weights it takes seconds: no shufflenet here.
SHARDED = ("plain", "resnext", "lm_tiny", "transformer", "tied", "frozen")
# The number of ranks matters for sums, for ranks that use different weights, and for buckets that ranks fill in another
# order. How weights lie in memory, or which are frozen, is the same for any number.
ANY_NUMBER_OF_RANKS = ("plain", "transformer", "unused", "branches", "mixed_dtypes")
OWN = [name for name, (strategy, _) in CONTENDERS.items() if strategy in gradient_synchronization.STRATEGIES]


class DistributedDataParallel:
    """torch's own, behind the interface of own_strategies, so that both are tested by the same lines."""

    def __init__(self, model, bucket_cap_mb: float, has_unused: bool) -> None:
        self.wrapped = torch.nn.parallel.DistributedDataParallel(
            model, bucket_cap_mb=bucket_cap_mb, find_unused_parameters=has_unused
        )
        self.no_sync = self.wrapped.no_sync

    def finish(self) -> None:
        pass

    def close(self) -> None:
        pass


class FullySharded:
    """fully_shard as train_step uses it, behind the same interface."""

    def __init__(self, model, rank: int, world_size: int, device) -> None:
        self.strategy = strategies.fully_sharded(model, peers.Ranks(rank, world_size, rank, device))
        self.no_sync = self.strategy.no_sync

    def finish(self) -> None:
        pass

    def close(self) -> None:
        pass


def families(num_ranks: int, device_type: str) -> list[str]:
    """Return the families that are trained: all of them on two ranks or on GPUs, elsewhere those of ANY_NUMBER_OF_RANKS."""
    return list(FAMILIES if num_ranks == 2 or device_type == "cuda" else ANY_NUMBER_OF_RANKS)


def contenders(family: str) -> list[str]:
    """Return the contenders that train a family, by their names."""
    left_out = set() if family in SHARDED else {"fsdp"}
    if FAMILIES[family].is_large:
        left_out |= {"bucketed_0.0001", "bucketed_1000"}
    return [name for name in CONTENDERS if name not in left_out]


def make_sync(contender: str, model, family: Family, device):
    strategy, cap = CONTENDERS[contender]
    if strategy == "fsdp":
        return FullySharded(model, dist.get_rank(), dist.get_world_size(), device)
    if strategy == "ddp":
        return DistributedDataParallel(model, cap, family.has_unused)
    return gradient_synchronization.make(strategy, model, cap)
