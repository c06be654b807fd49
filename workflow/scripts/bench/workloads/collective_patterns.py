"""Contents of buffers that reveal a wrong result of a collective: integers, exact in every dtype.

A pattern has a seed, for the rank or the pair of ranks that an element comes from. It is a straight line modulo a
prime: position -> (slope * position + offset) mod 127 + 1. The lines of two seeds agree in at most one element of 127;
a message split at the wrong position is shifted along its line, and differs everywhere unless the shift is a multiple
of 127. Seeds repeat after 127 * 126, so all chunks of up to 126 ranks differ, even if each is one element.
"""

import torch
import torch.distributed as dist

from harness import peers
from harness.peers import Ranks

# Values are 1 to 127: bfloat16 represents integers exactly up to 256. A prime, so that the pattern does not align with
# the chunks of a message.
NUM_VALUES = 127
PIECE_ELEMENTS = 1 << 20  # size of a piece to write or check: temporary 8-byte numbers take about 32 MiB
INVALID = -1  # content of a result buffer before the operation; no pattern contains it


def pieces(num_elements: int) -> list[tuple[int, int]]:
    """Return (begin, end) of the pieces of a buffer."""
    return [(begin, min(begin + PIECE_ELEMENTS, num_elements)) for begin in range(0, num_elements, PIECE_ELEMENTS)]


def pattern(seed: int, begin: int, end: int, device: torch.device) -> torch.Tensor:
    """Return elements `begin` up to `end` of a pattern, int64."""
    slope, offset = 1 + seed // NUM_VALUES % (NUM_VALUES - 1), seed % NUM_VALUES
    return (torch.arange(begin, end, device=device) * slope + offset) % NUM_VALUES + 1


def write_pattern(buffer: torch.Tensor, seed: int) -> torch.Tensor:
    """Fill a buffer with a pattern, and return it."""
    for begin, end in pieces(buffer.numel()):
        buffer[begin:end] = pattern(seed, begin, end, buffer.device).to(buffer.dtype)
    return buffer


def write_addend(buffer: torch.Tensor, seed: int, ranks: Ranks) -> torch.Tensor:
    """Fill a buffer with this rank's part of a sum that is the pattern, and return it.

    Each element comes from one rank, and is zero on all others: so the sum is exact in every dtype, in any order, and
    for any number of ranks. The first element comes from rank 1 + seed, so that of chunks with one element each, none
    comes from its destination rank.
    """
    for begin, end in pieces(buffer.numel()):
        positions = torch.arange(begin, end, device=buffer.device)
        is_own = (positions + seed + 1) % ranks.world_size == ranks.rank
        buffer[begin:end] = (pattern(seed, begin, end, buffer.device) * is_own).to(buffer.dtype)
    return buffer


def is_pattern(buffer: torch.Tensor, seed: int) -> bool:
    """Return whether a buffer contains exactly a pattern."""
    return all(
        torch.equal(buffer[begin:end], pattern(seed, begin, end, buffer.device).to(buffer.dtype))
        for begin, end in pieces(buffer.numel())
    )


DENOMINATOR = 10_007  # a prime
# The reference adds n numbers for each element that it checks. These are evenly spaced in the buffer.
MAX_REFERENCE_ELEMENTS = 1 << 18


def fractions(positions: torch.Tensor, rank: int, dtype: torch.dtype) -> torch.Tensor:
    """Return a rank's addends at these positions, in (0, 1], in `dtype`. The same on every rank and device."""
    numerators = (positions * 7_919 + rank * 104_729) % DENOMINATOR + 1
    return (numerators.to(torch.float64) / DENOMINATOR).to(dtype)


def write_fractions(buffer: torch.Tensor, rank: int) -> None:
    for begin, end in pieces(buffer.numel()):
        positions = torch.arange(begin, end, device=buffer.device)
        buffer[begin:end] = fractions(positions, rank, buffer.dtype)


def largest_errors(buffer: torch.Tensor, ranks: Ranks) -> dict[str, float | None]:
    """Return the largest absolute and relative error relative to a float64 sum, over all ranks; None if not finite."""
    stride = -(-buffer.numel() // MAX_REFERENCE_ELEMENTS)
    positions = torch.arange(0, buffer.numel(), stride, device=buffer.device)
    exact = torch.zeros(len(positions), dtype=torch.float64, device=buffer.device)
    for rank in range(ranks.world_size):
        exact += fractions(positions, rank, buffer.dtype)
    difference = (buffer[positions].to(torch.float64) - exact).abs()
    found = torch.stack([difference.max(), (difference / exact).max()])
    found = torch.where(found.isfinite(), found, torch.inf).to(peers.group_device(ranks))
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    names = ("max_abs_error", "max_rel_error")
    return {name: value if value < torch.inf else None for name, value in zip(names, found.tolist(), strict=True)}


def is_same_on_all_ranks(buffer: torch.Tensor, ranks: Ranks) -> bool:
    """Return whether this rank's buffer has the bits of rank 0's. Called on all ranks."""
    is_same = True
    for begin, end in pieces(buffer.numel()):
        piece = buffer[begin:end].view(torch.uint8)
        of_rank_0 = piece.to(peers.group_device(ranks), copy=True)
        dist.broadcast(of_rank_0, src=0)
        is_same = is_same and torch.equal(piece, of_rank_0.to(piece.device))
    return is_same
