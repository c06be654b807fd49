"""The strategies of train_step for gradient synchronization, with one interface.

none: one rank, no DDP. ddp: torch's DistributedDataParallel. fsdp: torch's fully_shard (FSDP2), each block of the
model sharded over all ranks. naive, flat, overlap, bucketed: algorithms/gradient_synchronization.py.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from algorithms import gradient_synchronization
from algorithms.stream_times import DdpStreams, SyncStreams
from harness import torch_versions
from harness.peers import Ranks

STRATEGIES = ("none", "ddp", *gradient_synchronization.STRATEGIES, "fsdp")
WITH_BUCKETS = ("ddp", "bucketed")


@dataclass
class Strategy:
    """A model under its strategy.

    forward: called with a batch. finish: completes gradient synchronization after backward. no_sync: a context for a
    step without synchronization, None if impossible. reduce_alone: the synchronization of one step alone, None if
    impossible. host_wait_ns: how long the host waited in the last step, None if unknown. algorithm_bytes:
    synchronization buffers, read after the steps; None if unknown. streams: traces the synchronization on the GPU's
    streams; None with gloo.
    """

    forward: nn.Module
    finish: Callable[[], None] = lambda: None
    no_sync: Callable[[], AbstractContextManager] | None = None
    reduce_alone: Callable[[], None] | None = None
    host_wait_ns: Callable[[], int] | None = None
    algorithm_bytes: Callable[[], int | None] = lambda: None
    num_calls: int | None = None
    streams: SyncStreams | DdpStreams | None = None


def apply_strategy(model: nn.Module, wanted, ranks: Ranks) -> Strategy:
    """Return the model, which is on its device already, under `wanted.strategy` (train_step.Parameters)."""
    if wanted.strategy == "none":
        return Strategy(model)
    if wanted.strategy == "ddp":
        return torch_ddp(model, wanted, ranks)
    if wanted.strategy == "fsdp":
        if wanted.channels_last:  # torch 2.12: "FSDP does not support non-contiguous parameters yet"
            raise ValueError("channels_last = True: fully_shard does not support this memory format. Remove it.")
        return fully_sharded(model, ranks)
    sync = gradient_synchronization.make(wanted.strategy, model, wanted.bucket_cap_mb)
    return Strategy(
        model,
        finish=sync.finish,
        no_sync=sync.no_sync,
        reduce_alone=sync.reduce_alone,
        host_wait_ns=lambda: sync.host_wait_ns,
        algorithm_bytes=lambda: sync.extra_bytes,
        num_calls=sync.num_calls,
        streams=SyncStreams(sync) if dist.get_backend() == "nccl" else None,
    )


def wrap_in_ddp(
    model: nn.Module, ranks: Ranks, bucket_cap_mb: float, **options: bool
) -> nn.parallel.DistributedDataParallel:
    """Return a model wrapped in torch's DDP.

    broadcast_buffers=False as in PyTorch's DDP benchmark: batch-norm statistics stay local, and their broadcast is not
    in the step.
    """
    device_ids = [ranks.device.index] if ranks.device.type == "cuda" else None
    return nn.parallel.DistributedDataParallel(
        model, device_ids=device_ids, broadcast_buffers=False, bucket_cap_mb=bucket_cap_mb, **options
    )


def torch_ddp(model: nn.Module, wanted, ranks: Ranks) -> Strategy:
    """Return a model under torch's DDP, with its hook for compression."""
    ddp = wrap_in_ddp(
        model,
        ranks,
        wanted.bucket_cap_mb,
        gradient_as_bucket_view=bool(wanted.gradient_as_bucket_view),
        static_graph=bool(wanted.static_graph),
    )
    if wanted.compression == "bf16":
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        ddp.register_comm_hook(None, default_hooks.bf16_compress_hook)
    reduce_alone = DdpBuckets(ddp, ranks, torch.bfloat16 if wanted.compression == "bf16" else torch.float32).reduce
    # A static graph does not support no_sync (torch/nn/parallel/distributed.py, no_sync).
    return Strategy(
        ddp,
        no_sync=None if wanted.static_graph else ddp.no_sync,
        reduce_alone=reduce_alone,
        algorithm_bytes=lambda: 0 if wanted.gradient_as_bucket_view else sum(bucket_bytes(ddp)),
        streams=DdpStreams(ddp) if dist.get_backend() == "nccl" else None,
    )


def bucket_bytes(ddp: nn.parallel.DistributedDataParallel) -> list[int]:
    """Return the sizes of DDP's buckets from its logging data, from the second step on as rebuilt."""
    logged = ddp._get_ddp_logging_data()
    return [int(size) for size in str(logged.get("rebuilt_bucket_sizes") or logged["bucket_sizes"]).split(",")]


class DdpBuckets:
    """The all-reduces of a step of torch's DDP alone, on buffers as large as its buckets.

    The first call allocates the buffers, in total as large as the gradients.
    """

    def __init__(self, ddp: nn.parallel.DistributedDataParallel, ranks: Ranks, dtype: torch.dtype) -> None:
        self.ddp, self.ranks, self.dtype = ddp, ranks, dtype
        self.buffers: list[torch.Tensor] = []

    def reduce(self) -> None:
        if not self.buffers:
            numbers = [size // torch.float32.itemsize for size in bucket_bytes(self.ddp)]
            self.buffers = [torch.zeros(number, dtype=self.dtype, device=self.ranks.device) for number in numbers]
        for work in [dist.all_reduce(buffer, async_op=True) for buffer in self.buffers]:
            work.wait()


def fully_sharded(model: nn.Module, ranks: Ranks) -> Strategy:
    """Return a model with each block, and the rest of the model, sharded.

    No step without synchronization is possible: without reduce-scatter (set_requires_gradient_sync) parameters are
    still gathered, their shards get no gradient, so that the optimizer does nothing, and unreduced gradients are added
    to the next step's. Nor can the synchronization run alone.
    """
    from torch.distributed.device_mesh import init_device_mesh

    fully_shard = torch_versions.fully_shard(ranks.device.type)
    mesh = init_device_mesh(ranks.device.type, (ranks.world_size,))
    for block in getattr(model, "blocks", []):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return Strategy(model)
