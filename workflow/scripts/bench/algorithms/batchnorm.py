"""Batch normalization over the global batch of all ranks, with one collective forward and one backward.

Forward: each rank sends mean, sum of squared deviations and count in one all-gather, 2C + 1 numbers. They are combined
by Chan's formula (Chan, Golub, LeVeque 1979, Stanford STAN-CS-79-773), for batches of different size on each rank. An
all-reduce of sums and sums of squares would be shorter, but loses all digits of the variance if the mean is large
compared with the deviation. Backward: one all-reduce of the sums of dy and dy * x_hat, 2C numbers.

Unlike torch.nn.SyncBatchNorm (torch/nn/modules/_functions.py) it also runs on a CPU, and never waits for the device.
Shape letters: N batch, C channels or features, * any further dimensions.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.function import once_differentiable


class SyncBatchNorm(nn.Module):
    """nn.BatchNorm1d, 2d or 3d over all ranks of a group, for input (N, C) or (N, C, *). N may differ by rank.

    Same parameters, buffers and eval mode as nn.BatchNorm1d; momentum None averages all batches alike. Gradients of
    weight and bias are local, as in any layer: data parallelism reduces them. group: None is all ranks; without a
    process group the module is local.
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, group=None
    ):
        super().__init__()
        self.num_features, self.eps, self.momentum, self.group = num_features, eps, momentum, group
        self.weight = nn.Parameter(torch.ones(num_features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(num_features)) if affine else None
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))
        self.register_buffer("num_batches_tracked", torch.tensor(0, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dim() < 2 or x.shape[1] != self.num_features:
            raise ValueError(f"input of shape {tuple(x.shape)}: (N, {self.num_features}) or more dimensions expected.")
        if not self.training:
            return nn.functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        mean, variance, count = joined_statistics(x.detach(), self.group)
        self.track(mean, variance, count)
        inverse_std = torch.rsqrt(variance + self.eps)
        return _Normalize.apply(x, self.weight, self.bias, mean, inverse_std, count, self.group)

    @torch.no_grad()
    def track(self, mean: torch.Tensor, variance: torch.Tensor, count: torch.Tensor) -> None:
        """Move the running statistics towards this batch's; as in torch, the running variance is the unbiased one."""
        self.num_batches_tracked += 1
        share = self.momentum
        if share is None:
            share = self.num_batches_tracked.to(self.running_mean.dtype).reciprocal()
        unbiased = variance * (count / (count - 1).clamp(min=1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.weight is not None}"


class _Normalize(torch.autograd.Function):
    """Normalize by global statistics; backward includes that these depend on every rank's input."""

    @staticmethod
    def forward(context, x, weight, bias, mean, inverse_std, count, group):
        context.save_for_backward(x, weight, mean, inverse_std, count)
        context.group = group
        # Subtract first: x * scale + shift would lose digits where the mean is large.
        output = x - per_channel(mean, x)
        output *= per_channel(inverse_std if weight is None else inverse_std * weight, x)
        if bias is not None:
            output += per_channel(bias, x)
        return output.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(context, dy):
        x, weight, mean, inverse_std, count = context.saved_tensors
        x_hat = (x - per_channel(mean, x)).mul_(per_channel(inverse_std, x))
        dy = dy.to(x_hat.dtype)
        others = all_but_channels(x)
        sums = torch.cat([dy.sum(others), (dy * x_hat).sum(others)])  # (2C,)
        d_bias, d_weight = sums.chunk(2)
        d_x = None
        if context.needs_input_grad[0]:
            mean_dy, mean_dy_x_hat = (summed_over_ranks(sums, context.group) / count).chunk(2)
            scale = inverse_std if weight is None else inverse_std * weight
            d_x = dy - per_channel(mean_dy, x)
            d_x -= x_hat.mul_(per_channel(mean_dy_x_hat, x))
            d_x = d_x.mul_(per_channel(scale, x)).to(x.dtype)
        has_weight, has_bias = context.needs_input_grad[1:3]
        return d_x, d_weight if has_weight else None, d_bias if has_bias else None, None, None, None, None


def joined_statistics(x: torch.Tensor, group=None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (mean (C,), biased variance (C,), count (1,)) over the batches of all ranks; the same bits on each rank.

    In fp32 at least. A count is exact up to 2**24 values per channel and rank. A rank's batch may be empty.
    Raises ValueError for a single rank with fewer than 2 values per channel, as torch does.
    """
    num_ranks, num_channels = group_size(group), x.shape[1]
    num_values = x.numel() // num_channels
    if num_ranks == 1 and num_values < 2:
        raise ValueError(f"batch norm in training mode needs at least 2 values per channel, not {num_values}.")
    row = torch.zeros(2 * num_channels + 1, dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
    if num_values:
        variance, mean = torch.var_mean(x.to(row.dtype), dim=all_but_channels(x), correction=0)
        torch.cat([mean, variance * num_values, row.new_full((1,), num_values)], out=row)
    rows = row[None]
    if num_ranks > 1:
        rows = row.new_empty(num_ranks, row.numel())
        dist.all_gather_into_tensor(rows.view(-1), row, group=group)
    means, squares, counts = rows.split([num_channels, num_channels, 1], dim=1)  # (ranks, C), (ranks, C), (ranks, 1)
    count = counts.sum(dim=0)
    mean = (means * (counts / count)).sum(dim=0)
    variance = (squares + counts * (means - mean).square()).sum(dim=0) / count
    return mean, variance, count


def summed_over_ranks(values: torch.Tensor, group=None) -> torch.Tensor:
    """Return the sum over ranks, in new memory; for a single rank `values`."""
    if group_size(group) == 1:
        return values
    total = values.clone()
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=group)
    return total


def group_size(group=None) -> int:
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def all_but_channels(x: torch.Tensor) -> list[int]:
    return [dimension for dimension in range(x.dim()) if dimension != 1]


def per_channel(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return values (C,) in a shape that broadcasts over x (N, C, *)."""
    return values.view(1, -1, *[1] * (x.dim() - 2))


def convert(model: nn.Module, group=None) -> nn.Module:
    """Replace each torch batch norm in a model by this one, with the same parameters and buffers; return the model.

    Raises ValueError for a batch norm without running statistics, which this module always has.
    """
    for name, layer in model.named_children():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            setattr(model, name, replacement(layer, group))
        else:
            convert(layer, group)
    return model


def replacement(layer: nn.Module, group=None) -> SyncBatchNorm:
    if not layer.track_running_stats:
        raise ValueError(f"{layer}: track_running_stats=False is not supported. Set it to True.")
    new = SyncBatchNorm(layer.num_features, layer.eps, layer.momentum, layer.affine, group)
    new.weight, new.bias = layer.weight, layer.bias
    new.running_mean, new.running_var = layer.running_mean, layer.running_var
    new.num_batches_tracked = layer.num_batches_tracked
    return new.train(layer.training)
