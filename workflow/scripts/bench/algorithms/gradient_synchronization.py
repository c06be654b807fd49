"""Custom data-parallel gradient synchronization: the four strategies of the CS336 exercise, besides torch's DDP.

| strategy | calls per step | when |
|---|---|---|
| naive | one all-reduce for each parameter | after backward, one after another |
| flat | one all-reduce of all gradients (for each dtype) | after backward |
| overlap | one for each parameter | during backward, as soon as its gradient is ready |
| bucketed | one for each bucket of at most bucket_cap_mb MiB | during backward, when its last gradient is ready |

Source of the names: stanford-cs336/assignment2-systems, section 2 (2025). Its flat copies gradients to new memory and
back each step; here they stay in the buffer.

    sync = gradient_synchronization.make("bucketed", model, bucket_cap_mb=25)
    loss.backward()
    sync.finish()            # every .grad is now the mean over ranks
    optimizer.step()

Supported:
* Tied weights are one parameter. Parameters that are frozen or empty when `make` is called are ignored.
* A parameter without a gradient in a step, on some ranks or on all, counts as zeros there, and its .grad is the mean
  after finish(), also if zero. (An optimizer with weight decay or momentum then updates it, unlike with None.) Calls
  are made in one order on all ranks, so nothing hangs; but such a parameter delays the buckets after it.
* Gradients are dense, and all on one device. After finish() a .grad may be a view of a bucket, which the next backward
  overwrites: clone it to keep it. One backward pass per finish(); others belong under no_sync().
* Buffers, such as batch-norm statistics, are sent from rank 0 once, and are local afterwards.

On NCCL, copies into buckets and the wait are on the current stream. The all-reduces of overlap and bucketed are on
NCCL's stream; those of naive and flat are on the current one since torch 2.8, before on NCCL's (async_op=False:
pytorch/pytorch#150398).
"""

import contextlib
import difflib
import functools
import math
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

from algorithms.gradient_buckets import Bucket, group_parameters

STRATEGIES = ("naive", "flat", "overlap", "bucketed")
IS_OVERLAPPED = {"naive": False, "flat": False, "overlap": True, "bucketed": True}

MIB = 2**20


def make(strategy: str, model: nn.Module, bucket_cap_mb: float | None, group=None) -> "GradientSync":
    """Send rank 0's parameters and buffers to all ranks of `group`, and return the synchronization of gradients.

    bucket_cap_mb: MiB, for bucketed only. Raises ValueError for an unknown strategy, for a cap that is missing, not
    positive or without effect, and for a model with sparse gradients. All ranks must call it, with the same model.
    """
    if strategy not in STRATEGIES:
        nearest = difflib.get_close_matches(strategy, STRATEGIES, n=1, cutoff=0)[0]
        raise ValueError(f"strategy = {strategy!r}: expected one of {', '.join(STRATEGIES)}. Did you mean {nearest!r}?")
    if strategy == "bucketed":
        if bucket_cap_mb is None or not bucket_cap_mb > 0:
            raise ValueError(f"bucket_cap_mb = {bucket_cap_mb}: strategy bucketed needs a size above 0, in MiB.")
        cap_bytes = bucket_cap_mb * MIB
    else:
        if bucket_cap_mb is not None:
            raise ValueError(f"bucket_cap_mb = {bucket_cap_mb} has no effect with strategy {strategy}. Remove it.")
        cap_bytes = math.inf if strategy == "flat" else 0
    for name, module in model.named_modules():
        if getattr(module, "sparse", False):
            raise ValueError(f"{name} has sparse gradients, which cannot be reduced here. Build it with sparse=False.")
    send_from_rank_0(model, group)
    return GradientSync(model, cap_bytes, IS_OVERLAPPED[strategy], group)


class GradientSync:
    """Keeps the gradients of a model the same on all ranks; see the module's docstring.

    num_calls: collective calls per step. extra_bytes: bucket buffers. host_wait_ns: how long the host waited in the
    last finish(): in wait() if overlapped with backward, else in the whole reduction. On NCCL that is only the time to
    enqueue it. events: those of a traced step (stream_times.py).
    """

    def __init__(self, model: nn.Module, cap_bytes: float, is_overlapped: bool, group) -> None:
        self.group = group
        self.is_overlapped = is_overlapped
        # NCCL averages. Gloo cannot: there each rank divides first, so that the sum stays in range.
        is_nccl = dist.get_backend(group) == "nccl"
        self.operation = dist.ReduceOp.AVG if is_nccl else dist.ReduceOp.SUM
        divisor = 1 if is_nccl else dist.get_world_size(group)
        # parameters() names tied weights once.
        trained = [weights for weights in model.parameters() if weights.requires_grad and weights.numel()]
        self.buckets = [Bucket(members, divisor) for members in group_parameters(trained, cap_bytes)]
        self.num_calls = len(self.buckets)
        self.extra_bytes = sum(bucket.buffer.nbytes for bucket in self.buckets if bucket.buffer is not None)
        self.host_wait_ns = 0
        self.works: list[dist.Work] = []
        self.is_syncing = True
        self.is_zeroed = False
        self.events = None
        self.hooks = []
        if is_overlapped:
            for bucket in self.buckets:
                for position, weights in enumerate(bucket.parameters):
                    hook = functools.partial(self.gradient_ready, bucket, position)
                    self.hooks.append(weights.register_post_accumulate_grad_hook(hook))

    def gradient_ready(self, bucket: Bucket, position: int, weights: nn.Parameter) -> None:
        """Copy a complete gradient into its bucket. Called by autograd."""
        if not self.is_syncing:
            return
        if bucket.is_staged[position]:
            raise RuntimeError(
                f"A parameter of shape {tuple(weights.shape)} got a second gradient before finish(). "
                "Run all backward passes of a step but the last under no_sync()."
            )
        bucket.stage(position)
        self.launch_ready()

    def launch_ready(self) -> None:
        """Start the reduction of all buckets that are full, in their order, which is the same on all ranks."""
        while len(self.works) < self.num_calls and self.buckets[len(self.works)].num_missing == 0:
            self.works.append(self.all_reduce(self.buckets[len(self.works)], is_async=True))

    def mark(self, moment: str) -> None:
        if self.events is not None:
            self.events.mark(moment)

    def all_reduce(self, bucket: Bucket, is_async: bool) -> dist.Work | None:
        self.mark("first_call")
        return dist.all_reduce(bucket.payload(), op=self.operation, group=self.group, async_op=is_async)

    def finish(self) -> None:
        """Complete the reduction. Called by all ranks after backward. Does nothing under no_sync()."""
        self.host_wait_ns = 0
        if not self.is_syncing:
            return
        self.is_zeroed = False
        begin = time.perf_counter_ns()
        if self.is_overlapped:
            for bucket in self.buckets:
                bucket.stage_missing()
            self.launch_ready()
            self.mark("computed")
            begin = time.perf_counter_ns()
            self.wait()
        else:
            for bucket in self.buckets:
                bucket.stage_missing()
                self.all_reduce(bucket, is_async=False)
        self.host_wait_ns = time.perf_counter_ns() - begin
        self.mark("reduced")
        for bucket in self.buckets:
            bucket.expect_all()

    def wait(self) -> None:
        for work in self.works:
            work.wait()
        self.works.clear()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let gradients accumulate on each rank. The first backward outside, with finish(), reduces all of it."""
        before, self.is_syncing = self.is_syncing, False
        try:
            yield
        finally:
            self.is_syncing, self.is_zeroed = before, False

    def reduce_alone(self) -> None:
        """Communicate as a step does, without computation: the same calls on the same memory. Gradients are lost.

        Overlapped strategies start all calls, then wait. The first of several calls in a row zeroes the memory, because
        other sums would double with each call and overflow after about a hundred. It is not a sample.
        """
        if not self.is_zeroed:
            for bucket in self.buckets:
                bucket.payload().zero_()
            self.is_zeroed = True
        for bucket in self.buckets:
            work = self.all_reduce(bucket, is_async=self.is_overlapped)
            if work is not None:
                self.works.append(work)
        self.wait()

    def close(self) -> None:
        """Remove all hooks. Gradients that are views of buckets stay until they are set to None."""
        for hook in self.hooks:
            hook.remove()
        self.hooks.clear()


def send_from_rank_0(model: nn.Module, group) -> None:
    """Send all ranks the parameters and buffers of the group's rank 0, bit for bit, of any dtype."""
    source = 0 if group is None else dist.get_global_rank(group, 0)
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.numel():
            data = tensor.detach()
            dense = data.contiguous()
            dist.broadcast(dense.view(-1).view(torch.uint8), src=source, group=group)
            if dense.data_ptr() != data.data_ptr():
                data.copy_(dense)
