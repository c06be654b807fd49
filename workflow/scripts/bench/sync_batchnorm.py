"""One batch normalization over all ranks, forward and backward: the cost of synchronizing its statistics.

Measured: forward and backward pass of a layer on input (batch_size, hidden) of each rank, until the device is idle;
each pass is also timed separately. own: algorithms/batchnorm.py. torch: torch.nn.SyncBatchNorm, which needs a GPU.
Why: each such layer synchronizes all ranks twice per step, for a message so small that only latency counts.
Not included: the layers around it, the reduction of its parameters' gradients, overlap, a loss.

  torchrun --nproc-per-node=2 workflow/scripts/bench/sync_batchnorm.py --implementation own --hidden 512
  srun --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 python workflow/scripts/bench/sync_batchnorm.py \\
      --device cuda --backend nccl --implementation torch --batch-size 64 --hidden 1024

(srun: export MASTER_ADDR and MASTER_PORT first.) It prints a table; with --json FILE it appends one record.
Method and pitfalls: docs/benchmarks/sync_batchnorm.md.
"""

import time
from collections import deque
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

from algorithms import batchnorm
from harness import peers
from harness.peers import Ranks
from harness.timing import Workload

# Increase when the same parameters no longer measure the same. The driver reads it from the source text.
VERSION = 2

IMPLEMENTATIONS = ("own", "torch")
DTYPES = {"fp32": torch.float32}
SEED = 20_240_501

# Largest absolute difference from one process in fp64 that passes. Values are about 1; the assignment with the
# published table requires 1e-3 (mryab/efficient-dl-systems, week 3).
TOLERANCE = 1e-4
MAX_DURATIONS = 10_000  # kept of each pass; a record has the last 1,000 (harness/measure.py)


@dataclass
class Parameters:
    """batch_size: rows of the input on each rank. hidden: features of a row."""

    implementation: str
    batch_size: int
    hidden: int
    dtype: str


@dataclass
class Passes:
    """This rank's durations of the last forward and backward passes, warm-up included, in nanoseconds."""

    forward_ns: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_DURATIONS))
    backward_ns: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_DURATIONS))

    def lists(self) -> dict[str, list[int]]:
        return {"forward": list(self.forward_ns), "backward": list(self.backward_ns)}


@dataclass
class Tensors:
    """The tensors of one rank's iteration. output: the last forward pass's, None before it."""

    layer: nn.Module
    x: torch.Tensor  # (batch_size, hidden)
    dy: torch.Tensor  # (batch_size, hidden)
    output: torch.Tensor | None = None


def build(parameters: dict, ranks: Ranks) -> Workload:
    """Make layer, input and output gradient. Raises ValueError for parameters that cannot be measured."""
    wanted = Parameters(**parameters)
    check_parameters(wanted, ranks)
    x, dy = values_of_rank(ranks.rank, wanted)
    layer = make_layer(wanted).to(ranks.device).train()
    tensors = Tensors(layer, x.to(ranks.device).requires_grad_(), dy.to(ranks.device))
    expected = expected_of_rank(wanted, ranks)
    passes, errors, saved_bytes = Passes(), {}, []
    clock, synchronize = time.perf_counter_ns, ranks.synchronize

    def prepare() -> None:
        tensors.output = tensors.x.grad = None
        layer.zero_grad(set_to_none=True)

    def iterate() -> None:
        begin = clock()
        tensors.output = layer(tensors.x)
        synchronize()
        middle = clock()
        tensors.output.backward(tensors.dy)
        synchronize()
        passes.backward_ns.append(clock() - middle)
        passes.forward_ns.append(middle - begin)

    def check() -> dict[str, bool]:
        errors.update(largest_errors(tensors, expected, ranks))
        return {
            "output_is_right": errors["largest_output_error"] <= TOLERANCE,
            "input_gradient_is_right": errors["largest_input_gradient_error"] <= TOLERANCE,
        }

    def check_before() -> dict[str, bool]:
        prepare()
        saved_bytes.append(forward_and_backward_counting(tensors))
        return check()

    return Workload(
        iterate=iterate,
        check=check,
        values=lambda: dict(errors),
        memory=lambda: layer_bytes(tensors) | {"saved_bytes": saved_bytes[-1] if saved_bytes else None},
        before_iteration=prepare,
        check_before=check_before,
        parts=passes.lists,
    )


def check_parameters(wanted: Parameters, ranks: Ranks) -> None:
    """Raise ValueError for parameters that cannot be measured."""
    for name, allowed in (("implementation", IMPLEMENTATIONS), ("dtype", tuple(DTYPES))):
        if getattr(wanted, name) not in allowed:
            raise ValueError(f"{name} = {getattr(wanted, name)!r}: expected one of {', '.join(allowed)}.")
    for name in ("batch_size", "hidden"):
        if getattr(wanted, name) < 1:
            raise ValueError(f"{name} = {getattr(wanted, name)}: must be at least 1.")
    if wanted.batch_size * ranks.world_size < 2:
        raise ValueError("batch_size = 1 on 1 rank: a variance needs at least 2 rows over all ranks.")
    if wanted.implementation == "torch" and ranks.device.type == "cpu":
        raise ValueError(
            "implementation torch: torch.nn.SyncBatchNorm runs on GPUs only. Set implementation own or device cuda."
        )


def values_of_rank(rank: int, wanted: Parameters) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a rank's input and output gradient, (batch_size, hidden) each, on the CPU. Every rank can make any rank's.

    Means and deviations differ by rank: without synchronization of both, the result is wrong.
    """
    generator = torch.Generator().manual_seed(SEED + 1 + rank)
    size = (wanted.batch_size, wanted.hidden)
    x = torch.randn(size, generator=generator) * (1 + rank % 3) + rank % 5
    return x.to(DTYPES[wanted.dtype]), torch.randn(size, generator=generator).to(DTYPES[wanted.dtype])


def make_layer(wanted: Parameters) -> nn.Module:
    """Return the layer with weights 0.5 to 1.5 and biases -0.5 to 0.5, the same on every rank."""
    kind = batchnorm.SyncBatchNorm if wanted.implementation == "own" else nn.SyncBatchNorm
    layer = kind(wanted.hidden)
    set_affine(layer)
    return layer


@torch.no_grad()
def set_affine(layer: nn.Module) -> None:
    generator = torch.Generator().manual_seed(SEED)
    for values, lowest in ((layer.weight, 0.5), (layer.bias, -0.5)):
        values.copy_(lowest + torch.rand(values.shape, generator=generator))


def expected_of_rank(wanted: Parameters, ranks: Ranks) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this rank's rows of output and input gradient of one nn.BatchNorm1d on the global batch, in fp64, CPU."""
    of_ranks = [values_of_rank(rank, wanted) for rank in range(ranks.world_size)]
    x, dy = (torch.cat(tensors).double() for tensors in zip(*of_ranks, strict=True))
    layer = nn.BatchNorm1d(wanted.hidden)
    set_affine(layer)
    layer.double()
    output = layer(x.requires_grad_())
    output.backward(dy)
    rows = slice(ranks.rank * wanted.batch_size, (ranks.rank + 1) * wanted.batch_size)
    return output.detach()[rows].clone(), x.grad[rows].clone()


def largest_errors(tensors: Tensors, expected: tuple[torch.Tensor, torch.Tensor], ranks: Ranks) -> dict[str, float]:
    """Return the largest absolute differences from the expected values, over all ranks; NaN is the largest number."""
    found = (tensors.output.detach(), tensors.x.grad)
    errors = [(value.cpu().double() - right).abs().max() for value, right in zip(found, expected, strict=True)]
    shared = torch.stack(errors).nan_to_num(nan=torch.finfo(torch.float64).max).to(peers.group_device(ranks))
    dist.all_reduce(shared, op=dist.ReduceOp.MAX)
    return dict(zip(("largest_output_error", "largest_input_gradient_error"), shared.tolist(), strict=True))


def forward_and_backward_counting(tensors: Tensors) -> int:
    """Run one iteration untimed, and return the bytes that autograd keeps between its two passes, input included."""
    kept = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr(), tensor.nbytes] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        tensors.output = tensors.layer(tensors.x)
    tensors.output.backward(tensors.dy)
    return sum(kept.values())


def layer_bytes(tensors: Tensors) -> dict[str, int]:
    """Return bytes of weight and bias, and of all gradients that backward leaves: theirs and the input's."""
    weights = list(tensors.layer.parameters())
    gradients = [tensor.grad for tensor in (*weights, tensors.x) if tensor.grad is not None]
    return {
        "parameter_bytes": sum(weight.nbytes for weight in weights),
        "gradient_bytes": sum(gradient.nbytes for gradient in gradients),
    }


def add_arguments(group) -> None:
    """Add this benchmark's parameters to a command line (an argparse group)."""
    group.add_argument(
        "--implementation",
        choices=IMPLEMENTATIONS,
        default="own",
        help="own: Regatta's; torch: needs a GPU (default: %(default)s)",
    )
    group.add_argument(
        "--batch-size", type=int, default=32, metavar="ROWS", help="rows per rank (default: %(default)s)"
    )
    group.add_argument("--hidden", type=int, default=128, metavar="FEATURES", help="row length (default: %(default)s)")
    group.add_argument("--dtype", choices=tuple(DTYPES), default="fp32", help="(default: %(default)s)")


def parameters_from(arguments) -> dict:
    """Return the cell's parameters from a parsed command line."""
    return {name: getattr(arguments, name) for name in ("implementation", "batch_size", "hidden", "dtype")}


if __name__ == "__main__":
    import sys

    from harness import by_hand

    by_hand.main("sync_batchnorm", sys.modules[__name__])
