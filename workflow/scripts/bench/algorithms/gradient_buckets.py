"""Buckets: gradients that one collective call reduces together, and their memory."""

import math
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Bucket:
    """Gradients of one dtype that are reduced by one call.

    parameters: ordered as backward is expected to finish their gradients.
    divisor: applied to each rank's gradients before the sum; 1 if the backend averages.
    buffer: flat memory of all gradients. None for a bucket of one parameter: its .grad is reduced, without a copy.
    views: the part of the buffer of each parameter, in its shape and strides; after a reduction it is the .grad.
    """

    parameters: list[nn.Parameter]
    divisor: int
    buffer: torch.Tensor | None = None
    views: list[torch.Tensor] = field(default_factory=list)
    is_staged: list[bool] = field(default_factory=list)
    num_missing: int = 0

    def __post_init__(self) -> None:
        if len(self.parameters) > 1:
            sizes = [parameter.numel() for parameter in self.parameters]
            first = self.parameters[0]
            self.buffer = torch.zeros(sum(sizes), dtype=first.dtype, device=first.device)
            pieces = self.buffer.split(sizes)
            self.views = [shaped_like(part, piece) for part, piece in zip(self.parameters, pieces, strict=True)]
        self.expect_all()

    def expect_all(self) -> None:
        """Begin a step: no gradient is in the bucket."""
        self.num_missing = len(self.parameters)
        self.is_staged = [False] * self.num_missing

    def stage(self, position: int) -> None:
        """Divide a gradient and copy it into the bucket. A parameter without gradient counts as zeros.

        Division and copy are one pass over memory. Without zero_grad, or with set_to_none=False, autograd has added
        into the view, and there is nothing to copy.
        """
        parameter = self.parameters[position]
        gradient = parameter.grad
        if self.buffer is None:
            if gradient is None:
                parameter.grad = torch.zeros_like(parameter)
            elif self.divisor > 1:
                gradient.div_(self.divisor)
        else:
            view = self.views[position]
            if gradient is None:
                view.zero_()
            elif self.divisor > 1:
                torch.div(gradient, self.divisor, out=view)
            elif gradient is not view:
                view.copy_(gradient)
            parameter.grad = view
        self.is_staged[position] = True
        self.num_missing -= 1

    def stage_missing(self) -> None:
        for position, is_staged in enumerate(self.is_staged):
            if not is_staged:
                self.stage(position)

    def payload(self) -> torch.Tensor:
        """Return the tensor that is reduced, in place."""
        if self.buffer is not None:
            return self.buffer
        if self.parameters[0].grad is None:
            self.parameters[0].grad = torch.zeros_like(self.parameters[0])
        return self.parameters[0].grad


def shaped_like(parameter: nn.Parameter, piece: torch.Tensor) -> torch.Tensor:
    """Return a piece of flat memory in the shape and, if these are dense, the strides of a parameter.

    With equal strides (as for channels-last weights) the optimizer keeps its fused path over many tensors.
    """
    strides = torch.empty_like(parameter, device="meta").stride()
    return piece.as_strided(parameter.shape, strides, piece.storage_offset())


def group_parameters(parameters: list[nn.Parameter], cap_bytes: float) -> list[list[nn.Parameter]]:
    """Return parameters grouped into buckets, first the one whose last gradient is expected first.

    Backward finishes gradients in about the reverse order of registration. A bucket contains one dtype and at most
    cap_bytes, unless one parameter alone is larger: 0 gives one bucket per parameter, infinity one per dtype.
    (DistributedDataParallel ends a bucket when it has reached its cap, so its buckets are larger; and after the first
    step it orders parameters as they became ready.)
    """
    open_groups: dict[torch.dtype, int] = {}
    groups, group_bytes, last_index = [], [], []
    for index, parameter in enumerate(reversed(parameters)):
        group = open_groups.get(parameter.dtype)
        if group is None or group_bytes[group] + parameter.nbytes > cap_bytes:
            group = open_groups[parameter.dtype] = len(groups)
            groups.append([])
            group_bytes.append(0)
            last_index.append(math.inf)
        groups[group].append(parameter)
        group_bytes[group] += parameter.nbytes
        last_index[group] = index
    order = sorted(range(len(groups)), key=last_index.__getitem__)
    return [groups[group] for group in order]
