"""The operations of benchmark `collective`: buffers, the call, and the expected results.

S is `message_bytes`, n the number of ranks; sizes are those of nccl-tests (src/*.cu, column "size"): the larger of a
rank's input and output.

  all_reduce       in place; S on every rank
  all_gather       each rank sends S/n, and receives the S of all
  reduce_scatter   each rank sends S, and receives the sum of one n-th, S/n
  all_to_all       each rank sends S, one n-th to each rank, and receives S
  broadcast        in place, from rank 0; S on every rank
  reduce           in place, to rank 0; S on every rank
  send_recv_ring   each rank sends S to the next and receives S from the previous, at once (nccl-tests, sendrecv_perf)
  send_recv_pair   two ranks send S to each other, at once. Pairs are those of osu_mbw_mr and osu_multi_lat: rank i of
                   the first half with i + n/2, so that on two nodes all pairs use the network. Odd n: the last idles
  barrier          no message
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from harness import peers
from workloads.collective_patterns import INVALID, is_pattern, write_addend, write_pattern

ROOT = 0
CUT_INTO_CHUNKS = ("all_gather", "reduce_scatter", "all_to_all")  # their S is the sum over ranks
BARRIER_DELAY_S = 0.05


@dataclass
class Message:
    """num_elements: of S bytes; num_chunk_elements: of S/n bytes if the operation works on chunks, else of S."""

    num_elements: int
    num_chunk_elements: int
    dtype: torch.dtype
    ranks: peers.Ranks

    def empty(self, num_elements: int) -> torch.Tensor:
        return torch.empty(num_elements, dtype=self.dtype, device=self.ranks.device)

    def chunks(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """Return a buffer of S bytes as one view for each rank."""
        return list(buffer.split(self.num_chunk_elements))


@dataclass
class Call:
    """One operation with separate result buffers.

    start: starts the operation and returns the works to wait for; with False it waits itself.
    reset: restores the contents from before it. is_exact: whether its result is correct on this rank. Both untimed.
    clear: writes contents with which it can be repeated indefinitely. is_clear: whether the result is correct then.
    """

    start: Callable[[bool], list]
    reset: Callable[[], object]
    is_exact: Callable[[], bool]
    clear: Callable[[], object]
    is_clear: Callable[[], bool]
    result: torch.Tensor | None = None


def works(work: dist.Work | None) -> list[dist.Work]:
    return [] if work is None else [work]


def repeatable(start: Callable, result: torch.Tensor, is_exact: Callable[[], bool]) -> Call:
    """Return a call that keeps its inputs: only its result is invalidated, so that a missing write is detected."""

    def reset() -> None:
        result.fill_(INVALID)

    return Call(start, reset, is_exact, reset, is_exact, result)


def summing(start: Callable, result: torch.Tensor, addend: torch.Tensor, is_exact: Callable[[], bool]) -> Call:
    """Return a call that adds in place. Repeated it multiplies by n until all is infinite, except for zeros."""
    return Call(start, lambda: result.copy_(addend), is_exact, result.zero_, lambda: not result.any(), result)


def all_reduce(message: Message) -> Callable[[], Call]:
    addend = write_addend(message.empty(message.num_elements), 0, message.ranks)

    def make_call() -> Call:
        buffer = torch.empty_like(addend)

        def start(is_async: bool) -> list:
            return works(dist.all_reduce(buffer, async_op=is_async))

        return summing(start, buffer, addend, lambda: is_pattern(buffer, 0))

    return make_call


def reduce(message: Message) -> Callable[[], Call]:
    addend = write_addend(message.empty(message.num_elements), 0, message.ranks)

    def make_call() -> Call:
        buffer = torch.empty_like(addend)

        def start(is_async: bool) -> list:
            return works(dist.reduce(buffer, ROOT, async_op=is_async))

        return summing(start, buffer, addend, lambda: message.ranks.rank != ROOT or is_pattern(buffer, 0))

    return make_call


def broadcast(message: Message) -> Callable[[], Call]:
    def make_call() -> Call:
        buffer = message.empty(message.num_elements)

        def reset() -> None:
            if message.ranks.rank == ROOT:
                write_pattern(buffer, 0)
            else:
                buffer.fill_(INVALID)

        def touch() -> None:
            """Reset only what the previous call has changed: on the root nothing, and writing it again is slow."""
            if message.ranks.rank != ROOT:
                buffer.fill_(INVALID)

        def is_exact() -> bool:
            return is_pattern(buffer, 0)

        def start(is_async: bool) -> list:
            return works(dist.broadcast(buffer, ROOT, async_op=is_async))

        reset()
        return Call(start, touch, is_exact, touch, is_exact, buffer)

    return make_call


def all_gather(message: Message) -> Callable[[], Call]:
    data = write_pattern(message.empty(message.num_chunk_elements), message.ranks.rank)

    def make_call() -> Call:
        result = message.empty(message.num_elements)
        return repeatable(
            lambda is_async: works(dist.all_gather_into_tensor(result, data, async_op=is_async)),
            result,
            lambda: all(is_pattern(chunk, source) for source, chunk in enumerate(message.chunks(result))),
        )

    return make_call


def reduce_scatter(message: Message) -> Callable[[], Call]:
    addends = message.empty(message.num_elements)
    for destination, chunk in enumerate(message.chunks(addends)):
        write_addend(chunk, destination, message.ranks)

    def make_call() -> Call:
        result = message.empty(message.num_chunk_elements)
        return repeatable(
            lambda is_async: works(dist.reduce_scatter_tensor(result, addends, async_op=is_async)),
            result,
            lambda: is_pattern(result, message.ranks.rank),
        )

    return make_call


def all_to_all(message: Message) -> Callable[[], Call]:
    rank, num_ranks = message.ranks.rank, message.ranks.world_size
    data = message.empty(message.num_elements)
    for destination, chunk in enumerate(message.chunks(data)):
        write_pattern(chunk, rank * num_ranks + destination)

    def make_call() -> Call:
        result = message.empty(message.num_elements)
        return repeatable(
            lambda is_async: works(dist.all_to_all_single(result, data, async_op=is_async)),
            result,
            lambda: all(
                is_pattern(chunk, source * num_ranks + rank) for source, chunk in enumerate(message.chunks(result))
            ),
        )

    return make_call


def send_recv(message: Message, destination: int | None, source: int | None) -> Callable[[], Call]:
    """Return calls with one message to `destination` and one from `source` at once; None: this rank idles."""
    data = write_pattern(message.empty(message.num_elements), message.ranks.rank)

    def make_call() -> Call:
        result = torch.empty_like(data)
        if source is None:
            return repeatable(lambda is_async: [], result, lambda: True)
        both = [dist.P2POp(dist.isend, data, destination), dist.P2POp(dist.irecv, result, source)]

        def start(is_async: bool) -> list:
            begun = dist.batch_isend_irecv(both)
            if is_async:
                return begun
            for work in begun:
                work.wait()
            return []

        return repeatable(start, result, lambda: is_pattern(result, source))

    return make_call


def send_recv_ring(message: Message) -> Callable[[], Call]:
    rank, num_ranks = message.ranks.rank, message.ranks.world_size
    return send_recv(message, (rank + 1) % num_ranks, (rank - 1) % num_ranks)


def send_recv_pair(message: Message) -> Callable[[], Call]:
    peer = pair_peer(message.ranks.rank, message.ranks.world_size)
    return send_recv(message, peer, peer)


def pair_peer(rank: int, num_ranks: int) -> int | None:
    """Return the other one of a rank's pair; None for the last rank of an odd number."""
    half = num_ranks // 2
    if rank < half:
        return rank + half
    return rank - half if rank < 2 * half else None


def barrier(message: Message) -> Callable[[], Call]:
    def start(is_async: bool) -> list:
        if is_async:
            return works(dist.barrier(async_op=True))
        peers.barrier(message.ranks)
        return []

    return lambda: Call(start, lambda: None, lambda: barrier_holds(message.ranks), lambda: None, lambda: True)


def barrier_holds(ranks: peers.Ranks) -> bool:
    """Return whether a barrier waits for a late rank: first rank 0, then the last rank, is 50 ms late.

    The clock is read before a collective that no rank leaves before all have entered it. So a correct barrier takes
    each rank at least 50 ms by that clock.
    """
    has_held = True
    for late in (0, ranks.world_size - 1):
        begin = time.perf_counter()
        peers.largest_over_ranks([0], ranks)
        if ranks.rank == late:
            time.sleep(BARRIER_DELAY_S)
        peers.barrier(ranks)
        ranks.synchronize()
        has_held = has_held and time.perf_counter() - begin >= BARRIER_DELAY_S
    return has_held


OPERATIONS: dict[str, Callable[[Message], Callable[[], Call]]] = {
    "all_reduce": all_reduce,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
    "broadcast": broadcast,
    "reduce": reduce,
    "send_recv_pair": send_recv_pair,
    "send_recv_ring": send_recv_ring,
    "barrier": barrier,
}
