"""How far an all-reduce is from the exact sum, and whether all ranks hold the same bits: for numbers that must be rounded.

Each rank adds fractions of 10007, which no binary format holds. All are above zero, so that nothing cancels and the relative
difference says how much was rounded, not how ill-conditioned the sum was.
"""

import torch
import torch.distributed as dist

import peers
from collective_patterns import pieces

DENOMINATOR = 10_007  # a prime
# The reference adds n numbers for each element that it looks at. These are spread evenly over the buffer.
MAX_REFERENCE_ELEMENTS = 1 << 18


def fractions(positions: torch.Tensor, rank: int, dtype: torch.dtype) -> torch.Tensor:
    """Return a rank's addends at these positions, in (0, 1], as `dtype` holds them. The same on every rank and device."""
    numerators = (positions * 7_919 + rank * 104_729) % DENOMINATOR + 1
    return (numerators.to(torch.float64) / DENOMINATOR).to(dtype)


def write_fractions(buffer: torch.Tensor, rank: int) -> None:
    for begin, end in pieces(buffer.numel()):
        positions = torch.arange(begin, end, device=buffer.device)
        buffer[begin:end] = fractions(positions, rank, buffer.dtype)


def largest_errors(buffer: torch.Tensor, ranks: peers.Ranks) -> dict[str, float | None]:
    """Return the largest absolute and relative difference from the sum in float64, over all ranks; None if not finite."""
    stride = -(-buffer.numel() // MAX_REFERENCE_ELEMENTS)
    positions = torch.arange(0, buffer.numel(), stride, device=buffer.device)
    exact = torch.zeros(len(positions), dtype=torch.float64, device=buffer.device)
    for rank in range(ranks.world_size):
        exact += fractions(positions, rank, buffer.dtype)
    difference = (buffer[positions].to(torch.float64) - exact).abs()
    found = torch.stack([difference.max(), (difference / exact).max()])
    found = torch.where(found.isfinite(), found, torch.inf).to(peers.exchange_device(ranks))
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    names = ("max_abs_error", "max_rel_error")
    return {name: value if value < torch.inf else None for name, value in zip(names, found.tolist(), strict=True)}


def is_same_on_all_ranks(buffer: torch.Tensor, ranks: peers.Ranks) -> bool:
    """Say whether this rank's buffer has the bits of rank 0's. Called on all ranks."""
    is_same = True
    for begin, end in pieces(buffer.numel()):
        own = buffer[begin:end].view(torch.uint8)
        of_rank_0 = own.to(peers.exchange_device(ranks), copy=True)
        dist.broadcast(of_rank_0, src=0)
        is_same = is_same and torch.equal(own, of_rank_0.to(own.device))
    return is_same
