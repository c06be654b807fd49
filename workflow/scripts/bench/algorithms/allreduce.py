"""All-reduce (sum, in place) from point-to-point messages alone, to be compared with the library's own.

Three algorithms; who sends what to whom is in algorithms/allreduce_schedules.py, with their sources. They are written in
Python over batch_isend_irecv, so each message carries some microseconds of Python that the library's all-reduce does
not have: what they show is the price of an algorithm's rounds and bytes, not a faster library.

Buffers are not cut into segments that overlap the addition with the transfer. On gloo, 4 ranks on 2 cores, that was
tried: halves made no difference that could be measured, quarters cost 15 to 25 % (docs/benchmarks/
allreduce-algorithms.md).

Not yet run on a GPU. There, wait() makes the current stream wait and not the host, so run() returns before the sum is
done, as an asynchronous launch does; nothing in it synchronises. On NCCL the group must have its communicator before
the first run (init_process_group with device_id, or an earlier collective): halving_doubling has rounds in which only
some ranks take part, and torch allows those only then.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from algorithms.allreduce_schedules import SCHEDULES, Round

ALGORITHMS = tuple(SCHEDULES)

# What both gloo and NCCL carry, and what a sum makes sense for. Whole numbers wrap around, as in the library.
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64)


@dataclass
class Addition:
    """Adds `source` to `target` once the first `num_needed` messages of the round have come in."""

    num_needed: int
    target: torch.Tensor
    source: torch.Tensor


@dataclass
class Step:
    """One round, ready to run: receives first, so that peers find them posted, and in the order they are added."""

    operations: list[dist.P2POp]
    additions: list[Addition]


class AllReduce:
    """Sums one buffer over a group. Made once: it keeps views of the buffer, which must stay where it is.

    extra_bytes: what this rank allocated to receive into. Ranks may differ, by one element for each message of a round,
    and more where halving_doubling folds.
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
        """Sum the buffer over the ranks. All of them call it, as often as they like."""
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


def make(algorithm: str, buffer: torch.Tensor, group: dist.ProcessGroup | None = None) -> AllReduce:
    """Return an all-reduce of `buffer`, contiguous and of any shape, over `group` (None: all ranks).

    Raises ValueError for an unknown algorithm, for a buffer that it cannot take, and on a rank outside the group. The
    ranks of a group must pass equally long buffers of one dtype; that is not checked.
    """
    return AllReduce(algorithm, buffer, group)


def check_arguments(algorithm: str, buffer: torch.Tensor, rank: int, num_ranks: int) -> None:
    """Raise ValueError, in words, for what cannot be summed."""
    if algorithm not in SCHEDULES:
        raise ValueError(f"algorithm = {algorithm!r}: one of {', '.join(ALGORITHMS)} is expected.")
    if num_ranks < 1 or rank < 0:
        raise ValueError("this rank is not in the group: at least 1 rank is needed, and this one among them.")
    if buffer.dtype not in DTYPES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        raise ValueError(f"buffer of {str(buffer.dtype).removeprefix('torch.')}: one of {names} is expected.")
    if buffer.layout != torch.strided or not buffer.is_contiguous():
        raise ValueError(
            f"buffer of shape {tuple(buffer.shape)} is not contiguous, so its pieces cannot be sent as they lie in "
            "memory. Pass buffer.contiguous(), and copy the result back."
        )


def num_added_elements(one: Round) -> int:
    """Return how many elements of a round are received to be added, and so need a place beside the buffer."""
    return sum(piece.end - piece.begin for piece in one.receives) if one.adds else 0


def make_step(one: Round, flat: torch.Tensor, work: torch.Tensor, rank: int, group: dist.ProcessGroup) -> Step:
    """Return a round over `flat` with its messages and additions. What is not added is received in place."""
    receives = sorted(one.receives, key=lambda piece: piece.peer)
    sources = [flat[piece.begin : piece.end] for piece in receives]
    additions = []
    if one.adds and receives:
        own = sources
        sources = list(work[: num_added_elements(one)].split([part.numel() for part in own]))
        additions = rank_ordered(own, sources, sum(piece.peer < rank for piece in receives))
    operations = [
        dist.P2POp(dist.irecv, source, group=group, group_peer=piece.peer)
        for piece, source in zip(receives, sources, strict=True)
    ]
    operations += [
        dist.P2POp(dist.isend, flat[piece.begin : piece.end], group=group, group_peer=piece.peer) for piece in one.sends
    ]
    return Step(operations, additions)


def rank_ordered(own: list[torch.Tensor], received: list[torch.Tensor], num_lower: int) -> list[Addition]:
    """Return the additions that leave in own[0] the sum in the order of ranks, its own contribution in its turn.

    own: this rank's part, once for each of `received`, all the same place; received: by rank; num_lower: how many come
    from lower ranks. Those are summed where they were received, since own + a + b is not a + b + own in floating point.
    """
    additions = [Addition(i + 1, received[0], received[i]) for i in range(1, num_lower)]
    if num_lower:
        additions.append(Addition(num_lower, own[0], received[0]))
    return additions + [Addition(i + 1, own[0], received[i]) for i in range(num_lower, len(received))]
