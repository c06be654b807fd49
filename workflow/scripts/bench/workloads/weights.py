"""Compare the weights of ranks, and count their bytes."""

import math

import torch
import torch.distributed as dist
from torch import nn

from harness import peers
from harness.peers import Ranks


def are_the_same(tensors: list[torch.Tensor], ranks: Ranks) -> bool:
    """Return whether all ranks have the same tensors, bit for bit, of at least 32 bits per value.

    Compared are sums of each tensor's bit patterns, which wrap around instead of rounding.
    """
    patterns = [tensor.detach().reshape(-1).view(torch.int32) for tensor in tensors]
    sums = torch.stack([pattern.sum(dtype=torch.int64) for pattern in patterns]).to(peers.group_device(ranks))
    highest, lowest = sums.clone(), sums.clone()
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
    return torch.equal(highest, lowest)


def model_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, int]:
    """Return bytes on this rank of all parameters, of gradients (also those freed by zero_grad), and of the optimizer's
    state."""
    parameters = list(model.parameters())
    state = [value for entry in optimizer.state.values() for value in entry.values() if torch.is_tensor(value)]
    return {
        "parameter_bytes": sum(local(weights).nbytes for weights in parameters),
        "gradient_bytes": sum(local(weights).nbytes for weights in parameters if weights.requires_grad),
        "optimizer_bytes": sum(local(value).nbytes for value in state),
    }


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor that may be sharded."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def finite(value: torch.Tensor | float | None) -> float | None:
    """Return a number, None for None and for values that JSON does not support (inf, nan)."""
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else None
