"""All cases of the synchronized batch norm on one set of ranks, each against one nn.BatchNorm1d in fp64.

Started by test_bench_sync_batchnorm.py as ranks; rank 0 writes {case: {what: difference or count}} as JSON.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from bench_cells import BENCH
from torch import nn

sys.path.insert(0, str(BENCH))

from algorithms import batchnorm
from harness import peers

COLLECTIVES = (
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
    "all_reduce_coalesced", "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "gather", "irecv",
    "isend", "recv", "reduce", "reduce_scatter", "scatter", "send", "reduce_scatter_tensor",
)  # fmt: skip


@dataclass
class Case:
    """rows: of each rank, in turn. first_half: the loss is the sum over the first half of the joined batch's rows."""

    rows: list[int]
    hidden: int
    offset: float = 0.0
    is_image: bool = False
    affine: bool = True
    momentum: float | None = 0.1
    num_batches: int = 1
    first_half: bool = False


CASES = {
    f"hidden {hidden} batch {batch}": Case([batch], hidden, num_batches=2, first_half=batch == 64)
    for hidden in (128, 256, 512, 1024)
    for batch in (32, 64)
}
CASES |= {
    "uneven": Case([3, 1, 7, 2], 16, num_batches=3),
    "an empty rank": Case([4, 0, 5, 1], 16),
    "offset": Case([32], 128, offset=1e4),
    "uneven offset": Case([3, 29, 7, 2], 16, offset=-1e4),
    "image": Case([2, 3, 1, 4], 8, is_image=True, num_batches=2),
    "without affine": Case([8], 16, affine=False),
    "momentum none": Case([5, 2, 2, 9], 16, momentum=None, num_batches=3),
}


def values_of_rank(case: Case, rank: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return input and output gradient of a rank; the fourth rank's mean is far from the first's."""
    generator = torch.Generator().manual_seed(1000 * batch + rank)
    size = (case.rows[rank % len(case.rows)], case.hidden, *([3, 5] if case.is_image else []))
    x = torch.randn(size, generator=generator) * (1 + rank) + 2 * rank + case.offset
    return x, torch.randn(size, generator=generator)


def joined(case: Case, batch: int) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Return input and output gradient of all ranks together in fp64, and where each rank's rows end."""
    of_ranks = [values_of_rank(case, rank, batch) for rank in range(dist.get_world_size())]
    x, dy = (torch.cat(tensors).double() for tensors in zip(*of_ranks, strict=True))
    if case.first_half:
        dy = (torch.arange(len(dy)) < len(dy) // 2).double().view(-1, *[1] * (dy.dim() - 1)).expand_as(dy).clone()
    return x, dy, torch.tensor([len(rows) for rows, _ in of_ranks]).cumsum(0).tolist()


def make_layer(kind, case: Case) -> nn.Module:
    layer = kind(case.hidden, momentum=case.momentum, affine=case.affine)
    if case.affine:
        with torch.no_grad():
            layer.weight.copy_(torch.linspace(-1, 2, case.hidden))
            layer.bias.copy_(torch.linspace(1, -1, case.hidden))
    return layer


def count_collectives(counts: dict) -> None:
    """Count each call of a collective in counts["now"]."""
    for name in COLLECTIVES:
        function = getattr(dist, name)

        def counting(*arguments, function=function, **options):
            counts["now"] += 1
            return function(*arguments, **options)

        setattr(dist, name, counting)


def sum_over_ranks(tensor: torch.Tensor) -> torch.Tensor:
    total = tensor.detach().cpu().double().clone()
    dist.all_reduce(total)
    return total


def run(case: Case, device: torch.device, counts: dict) -> dict[str, float]:
    """Return this rank's largest differences and its number of collectives in the last batch, and in eval mode."""
    reference = make_layer(nn.BatchNorm2d if case.is_image else nn.BatchNorm1d, case).double()
    layer = make_layer(batchnorm.SyncBatchNorm, case).to(device)
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    for batch in range(case.num_batches):
        whole_x, whole_dy, ends = joined(case, batch)
        own = slice(ends[rank] - case.rows[rank % len(case.rows)], ends[rank])
        x, dy = whole_x[own].float().to(device).requires_grad_(), whole_dy[own].float().to(device)
        whole_x.requires_grad_()
        reference.zero_grad()
        layer.zero_grad()
        expected = reference(whole_x)
        expected.backward(whole_dy)
        counts["now"] = 0
        output = layer(x)
        forward, counts["now"] = counts["now"], 0
        output.backward(dy)
        backward = counts["now"]
    pairs = {"output": (output, expected[own]), "input gradient": (x.grad, whole_x.grad[own])}
    pairs |= {name: (getattr(layer, name), getattr(reference, name)) for name in ("running_mean", "running_var")}
    if case.affine:
        for name in ("weight", "bias"):
            right = getattr(reference, name).grad / num_ranks
            pairs[f"{name} gradient"] = (sum_over_ranks(getattr(layer, name).grad) / num_ranks, right)
    counts["now"] = 0
    pairs["eval output"] = (layer.eval()(x), reference.eval()(whole_x)[own])
    found = {what: largest_difference(*pair) for what, pair in pairs.items()}
    return found | {"forward": forward, "backward": backward, "eval": counts["now"]}


def largest_difference(own: torch.Tensor, right: torch.Tensor) -> float:
    difference = (own.detach().cpu().double() - right.detach()).abs()
    return difference.max().item() if difference.numel() else 0.0


def worst_over_ranks(found: dict[str, float]) -> dict[str, float]:
    worst = torch.tensor(list(found.values()), dtype=torch.float64).nan_to_num(nan=1e300)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return dict(zip(found, worst.tolist(), strict=True))


def main(device_type: str, path: str) -> None:
    device = torch.device(device_type)
    rank, num_ranks, _ = peers.position_from_environment(dict(os.environ))
    torch.set_num_threads(1)
    store = peers.connect_store(rank, num_ranks, 60, "cases")
    dist.init_process_group("gloo", store=store, rank=rank, world_size=num_ranks)
    counts = {"now": 0}
    count_collectives(counts)
    outcome = {name: worst_over_ranks(run(case, device, counts)) for name, case in CASES.items()}
    if dist.get_rank() == 0:
        Path(path).write_text(json.dumps(outcome))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
