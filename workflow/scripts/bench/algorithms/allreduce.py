"""All-reduce (sum, in place) from point-to-point messages alone, for comparison with the library's.

Three algorithms; their schedules and sources are in algorithms/allreduce_schedules.py. They are written in Python over
batch_isend_irecv, so each message costs some microseconds of Python that the library's all-reduce avoids: they
show the cost of an algorithm's rounds and bytes, and are not a faster library.

Buffers are not split into segments that overlap addition with transfer. On gloo, 4 ranks on 2 cores, halves made no
measurable difference, and quarters cost 15 to 25 % (docs/benchmarks/allreduce-algorithms.md).

Not yet run on a GPU. There, wait() blocks the current stream and not the host, so run() returns before the sum is done.
On NCCL the group needs its communicator before the first run (init_process_group with device_id, or an earlier
collective): torch requires that for the rounds of halving_doubling in which only some ranks take part.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from algorithms.allreduce_schedules import SCHEDULES, Round

ALGORITHMS = tuple(SCHEDULES)

# Supported by both gloo and NCCL. Integers wrap around, as in the library.
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64)


@dataclass
class Addition:
    """Adds `source` to `target` once the first `num_needed` messages of the round have arrived."""

    num_needed: int
    target: torch.Tensor
    source: torch.Tensor


@dataclass
class Step:
    """One round, ready to run: receives first, so that they are posted early, and in the order they are added."""

    operations: list[dist.P2POp]
    additions: list[Addition]


class AllReduce:
    """Sums a contiguous buffer of any shape over `group` (None: all ranks). Keeps views: the memory must not move.

    Raises ValueError for an unknown algorithm, an unsupported buffer, and on a rank outside the group. The ranks must
    pass equally long buffers of one dtype, which is not checked. extra_bytes: this rank's receive buffers. Ranks may
    differ, by one element for each message of a round, and by more if halving_doubling folds.
    """

    def __init__(self, algorithm: str, buffer: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
        group = dist.group.WORLD if group is None else group
        rank, num_ranks = dist.get_rank(group), dist.get_world_size(group)
        check_arguments(algorithm, buffer, rank, num_ranks)
        flat = buffer.detach().view(-1)
        rounds = SCHEDULES[algorithm](rank, num_ranks, flat.numel())
        num_elements = max((num_added_elements(one) for one in rounds), default=0)
        work = torch.empty(num_elements, dtype=flat.dtype, device=flat.device)
        self.extra_bytes = work.nbytes
        self.steps = [make_step(one, flat, work, rank, group) for one in rounds if one.sends or one.receives]

    def run(self) -> None:
        """Sum the buffer over the ranks. Called on all of them."""
        for step in self.steps:
            works = dist.batch_isend_irecv(step.operations)
            num_waited = 0
            for addition in step.additions:
                # gloo gives a work object for each message, NCCL one for all of them.
                while num_waited < min(addition.num_needed, len(works)):
                    works[num_waited].wait()
                    num_waited += 1
                addition.target.add_(addition.source)
            for work in works[num_waited:]:
                work.wait()


def check_arguments(algorithm: str, buffer: torch.Tensor, rank: int, num_ranks: int) -> None:
    """Raise ValueError for arguments that cannot be summed."""
    if algorithm not in SCHEDULES:
        raise ValueError(f"algorithm = {algorithm!r}: expected one of {', '.join(ALGORITHMS)}.")
    if num_ranks < 1 or rank < 0:
        raise ValueError("this rank is not in the group.")
    if buffer.dtype not in DTYPES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        raise ValueError(f"buffer of {str(buffer.dtype).removeprefix('torch.')}: expected one of {names}.")
    if buffer.layout != torch.strided or not buffer.is_contiguous():
        remedy = "Pass buffer.contiguous(), and copy the result back."
        raise ValueError(f"buffer of shape {tuple(buffer.shape)} is not contiguous. {remedy}")


def num_added_elements(one: Round) -> int:
    """Return how many elements of a round are received to be added, and so need separate memory."""
    return sum(piece.end - piece.begin for piece in one.receives) if one.adds else 0


def make_step(one: Round, flat: torch.Tensor, work: torch.Tensor, rank: int, group: dist.ProcessGroup) -> Step:
    """Return a round over `flat` with its messages and additions. Data that is not added is received in place."""
    receives = sorted(one.receives, key=lambda piece: piece.peer)
    sources = [flat[piece.begin : piece.end] for piece in receives]
    additions = []
    if one.adds and receives:
        targets = sources
        sources = list(work[: num_added_elements(one)].split([part.numel() for part in targets]))
        additions = rank_ordered(targets, sources, sum(piece.peer < rank for piece in receives))
    messages = [(dist.irecv, source, piece.peer) for piece, source in zip(receives, sources, strict=True)]
    messages += [(dist.isend, flat[piece.begin : piece.end], piece.peer) for piece in one.sends]
    # By global rank: torch before 2.6 has no group_peer.
    operations = [
        dist.P2POp(send_or_receive, part, dist.get_global_rank(group, peer), group)
        for send_or_receive, part, peer in messages
    ]
    return Step(operations, additions)


def rank_ordered(target: list[torch.Tensor], received: list[torch.Tensor], num_lower: int) -> list[Addition]:
    """Return the additions that leave in target[0] the sum in the order of ranks, including this rank's contribution.

    target: this rank's part, once for each of `received`, all the same memory; received: by rank; num_lower: how many
    are from lower ranks. These are summed first: target + a + b is not a + b + target in floating point.
    """
    additions = [Addition(i + 1, received[0], received[i]) for i in range(1, num_lower)]
    if num_lower:
        additions.append(Addition(num_lower, target[0], received[0]))
    return additions + [Addition(i + 1, target[0], received[i]) for i in range(num_lower, len(received))]
