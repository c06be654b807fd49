"""One training step of a torchvision classifier: what data-parallel training costs on this machine.

Measured: zero_grad, forward, loss, backward (which with DistributedDataParallel reduces the gradients), optimizer step.
Why: its time on many ranks against one is the scaling efficiency, by which a machine and its settings are judged.
Not included: reading and decoding images, copying a batch to the device, evaluation, checkpoints. Every step sees the
same random batch. Times say nothing about accuracy.

  torchrun --nproc-per-node=2 workflow/scripts/bench/train_step.py --model resnet18 --strategy ddp
  srun --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 python workflow/scripts/bench/train_step.py \\
      --device cuda --backend nccl --model resnet50 --image-size 224 --batch-size 32 --strategy ddp

(srun: export MASTER_ADDR and MASTER_PORT first.) It prints a table; with --json FILE it appends one record.
Method and pitfalls: docs/benchmarks/train_step.md.
"""

import contextlib
import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from peers import Ranks
from timing import Workload
from torchvision_models import NUM_CLASSES, build_model, loss_function

# Counts up whenever the same parameters no longer measure the same thing. The driver reads it from the source text.
VERSION = 1

# As in pytorch/pytorch, benchmarks/distributed/ddp/benchmark.py.
LEARNING_RATE = 1e-3
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4

SEED = 20_240_501
DTYPES = ("fp32", "bf16")
STRATEGIES = ("none", "ddp")


@dataclass
class Parameters:
    """batch_size: samples per rank and step. bucket_cap_mb: MiB, None without ddp. bf16: autocast, weights in fp32."""

    model: str
    image_size: int
    batch_size: int
    dtype: str
    strategy: str
    bucket_cap_mb: float | None
    gradient_as_bucket_view: bool | None


def build(parameters: dict, ranks: Ranks) -> Workload:
    """Build model, optimizer and batch on the device. Raises ValueError for parameters that make no sense."""
    wanted = Parameters(**parameters)
    check_parameters(wanted, ranks)
    # The same weights on every rank; DistributedDataParallel sends rank 0's anyway.
    torch.manual_seed(SEED)
    model = build_model(wanted.model, wanted.image_size).to(ranks.device).train()
    stepped = wrap(model, wanted, ranks)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    # Another batch on every rank, so that an all-reduce that does nothing leaves ranks with different weights.
    generator = torch.Generator().manual_seed(SEED + 1 + ranks.rank)
    size = (wanted.batch_size, 3, wanted.image_size, wanted.image_size)
    images = torch.randn(size, generator=generator).to(ranks.device)
    labels = torch.randint(NUM_CLASSES, (wanted.batch_size,), generator=generator).to(ranks.device)
    loss_of = loss_function(wanted.model)
    precision = precision_context(wanted.dtype, ranks.device)
    losses = {}

    def iterate() -> None:
        optimizer.zero_grad(set_to_none=True)
        with precision():
            loss = loss_of(stepped(images), labels)
        loss.backward()
        optimizer.step()
        losses["last"] = loss.detach()
        losses.setdefault("first", losses["last"])

    def check() -> dict[str, bool]:
        checks = {"loss_is_finite": all(math.isfinite(loss.item()) for loss in losses.values())}
        if wanted.strategy == "ddp":
            checks["weights_agree"] = weights_agree(model, ranks)
        return checks

    return Workload(
        iterate=iterate,
        check=check,
        values=lambda: {"first_loss": finite(losses.get("first")), "last_loss": finite(losses.get("last"))},
        memory=lambda: model_bytes(model),
        has_windows=True,
    )


def check_parameters(wanted: Parameters, ranks: Ranks) -> None:
    """Raise ValueError, in words, for what cannot be measured or would have no effect."""
    for name in ("image_size", "batch_size"):
        if getattr(wanted, name) < 1:
            raise ValueError(f"{name} = {getattr(wanted, name)}: at least 1 is needed.")
    if wanted.dtype not in DTYPES:
        raise ValueError(f"dtype = {wanted.dtype!r}: one of {', '.join(DTYPES)} is expected.")
    if wanted.strategy not in STRATEGIES:
        raise ValueError(f"strategy = {wanted.strategy!r}: one of {', '.join(STRATEGIES)} is expected.")
    if wanted.strategy == "none":
        if ranks.world_size > 1:
            raise ValueError(f"strategy none trains on 1 rank, but there are {ranks.world_size}. Use ddp.")
        for name in ("bucket_cap_mb", "gradient_as_bucket_view"):
            if getattr(wanted, name) is not None:
                raise ValueError(f"{name} = {getattr(wanted, name)} has no effect with strategy none. Leave it out.")
    elif wanted.bucket_cap_mb is None or wanted.bucket_cap_mb <= 0:
        raise ValueError(f"bucket_cap_mb = {wanted.bucket_cap_mb}: strategy ddp needs a size above 0, in MiB.")


def wrap(model: nn.Module, wanted: Parameters, ranks: Ranks) -> nn.Module:
    """Return the model as its strategy trains it.

    broadcast_buffers=False as in PyTorch's DDP benchmark: batch-norm statistics stay each rank's own, and their
    broadcast is not in the step.
    """
    if wanted.strategy == "none":
        return model
    return nn.parallel.DistributedDataParallel(
        model,
        device_ids=[ranks.device.index] if ranks.device.type == "cuda" else None,
        broadcast_buffers=False,
        bucket_cap_mb=wanted.bucket_cap_mb,
        gradient_as_bucket_view=bool(wanted.gradient_as_bucket_view),
    )


def precision_context(dtype: str, device: torch.device):
    """Return a function that makes the context of the forward pass: autocast to bfloat16, or nothing for fp32."""
    if dtype == "bf16":
        return lambda: torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext


def weights_agree(model: nn.Module, ranks: Ranks) -> bool:
    """Say whether all ranks hold the same weights, bit for bit.

    They do if the all-reduce worked: it gives every rank the same gradients, and the optimizer does the same with them.
    Compared are per-parameter sums of the weights' bit patterns, which wrap around instead of rounding.
    """
    sums = [weights.detach().contiguous().view(torch.int32).sum(dtype=torch.int64) for weights in model.parameters()]
    own = torch.stack(sums)
    highest, lowest = own.clone(), own.clone()
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
    return torch.equal(highest, lowest)


def model_bytes(model: nn.Module) -> dict[str, int]:
    """Return bytes of all parameters, and of the gradients of those that are trained."""
    gradients = [weights.grad for weights in model.parameters() if weights.grad is not None]
    return {
        "parameter_bytes": sum(weights.nbytes for weights in model.parameters()),
        "gradient_bytes": sum(gradient.nbytes for gradient in gradients),
    }


def finite(loss: torch.Tensor | None) -> float | None:
    """Return the loss as a number, None for none and for what JSON cannot hold (inf, nan)."""
    value = math.nan if loss is None else loss.item()
    return value if math.isfinite(value) else None


def number(text: str) -> float:
    """Return a whole number as int, so that 25 is written as 25 and a cell by hand has the same spec. For argparse."""
    value = float(text)
    return int(value) if value.is_integer() else value


def add_arguments(group) -> None:
    """Add this benchmark's parameters to a command line (an argparse group)."""
    group.add_argument("--model", default="resnet18", help="a classifier of torchvision (default: %(default)s)")
    group.add_argument("--image-size", type=int, default=64, metavar="PIXELS", help="a side (default: %(default)s)")
    group.add_argument(
        "--batch-size", type=int, default=8, metavar="SAMPLES", help="per rank and step (default: %(default)s)"
    )
    group.add_argument("--dtype", choices=DTYPES, default="fp32", help="bf16: autocast (default: %(default)s)")
    group.add_argument(
        "--strategy", choices=STRATEGIES, default="none", help="ddp: DistributedDataParallel (default: none)"
    )
    group.add_argument(
        "--bucket-cap-mb", type=number, metavar="MIB", help="size of a gradient bucket (default with ddp: 25)"
    )
    group.add_argument(
        "--gradient-as-bucket-view", choices=("true", "false"), help="gradients are views of buckets (default: false)"
    )


def parameters_from(arguments) -> dict:
    """Return the cell's parameters from a parsed command line. What has no effect in the chosen strategy is None."""
    is_ddp = arguments.strategy == "ddp"
    bucket_cap_mb, view = arguments.bucket_cap_mb, arguments.gradient_as_bucket_view
    return {
        "model": arguments.model,
        "image_size": arguments.image_size,
        "batch_size": arguments.batch_size,
        "dtype": arguments.dtype,
        "strategy": arguments.strategy,
        "bucket_cap_mb": 25 if is_ddp and bucket_cap_mb is None else bucket_cap_mb,
        "gradient_as_bucket_view": view == "true" if is_ddp or view is not None else None,
    }


if __name__ == "__main__":
    import sys

    import by_hand

    by_hand.main("train_step", sys.modules[__name__])
