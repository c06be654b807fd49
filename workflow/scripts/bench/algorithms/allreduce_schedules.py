"""Communication schedules of three all-reduce algorithms. Pure functions: they need no torch.

A schedule is one rank's list of rounds. In a round a rank sends pieces of its buffer as they were at its start, and
receives pieces at the same position of the buffer. All ranks have the same number of rounds, some perhaps empty, and a
piece is sent and received in the same round: so a schedule cannot deadlock, even on NCCL.

In all three each element is summed on one rank and then copied, so results are bitwise equal on all ranks.

With n ranks a rank sends 2 (n-1)/n of its buffer in all three; they differ in rounds and messages:
                    rounds       messages sent
  ring              2 (n-1)      2 (n-1)         Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002
  butterfly         2            2 (n-1)         direct sends of chunks, all messages of a round at once
  halving_doubling  2 log2(n)    2 log2(n)       Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521
If n is not a power of two, halving_doubling needs more: docs/benchmarks/allreduce-algorithms.md.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """Elements from `begin` up to `end` of the buffer, sent to or received from rank `peer`. Never empty."""

    peer: int
    begin: int
    end: int


@dataclass(frozen=True)
class Round:
    """Messages that one rank sends and receives at once. adds: whether received data is added or replaces the buffer's.

    Several pieces at one position are added in the order of ranks, including this rank's.
    """

    sends: tuple[Piece, ...]
    receives: tuple[Piece, ...]
    adds: bool


def make_round(sends: list[tuple[int, int, int]], receives: list[tuple[int, int, int]], adds: bool) -> Round:
    """Return a round of (peer, begin, end), without empty pieces: sender and receiver omit the same ones."""
    kept = [tuple(Piece(*piece) for piece in pieces if piece[1] < piece[2]) for pieces in (sends, receives)]
    return Round(kept[0], kept[1], adds)


def chunk_bounds(num_elements: int, num_chunks: int) -> list[int]:
    """Return num_chunks + 1 bounds of chunks that differ by one element at most; some are empty in a short buffer."""
    return [chunk * num_elements // num_chunks for chunk in range(num_chunks + 1)]


def ring(rank: int, num_ranks: int, num_elements: int) -> list[Round]:
    """Return rounds in which each chunk goes around the ring twice: summed, then copied. A rank has two neighbors."""
    bounds = chunk_bounds(num_elements, num_ranks)
    after, before = (rank + 1) % num_ranks, (rank - 1) % num_ranks

    def step(sent: int, adds: bool) -> Round:
        sent, received = sent % num_ranks, (sent - 1) % num_ranks
        return make_round(
            [(after, bounds[sent], bounds[sent + 1])], [(before, bounds[received], bounds[received + 1])], adds
        )

    steps = range(num_ranks - 1)
    return [step(rank - i, True) for i in steps] + [step(rank + 1 - i, False) for i in steps]


def butterfly(rank: int, num_ranks: int, num_elements: int) -> list[Round]:
    """Return two rounds: each rank receives its chunk from all others and sums it, then sends the sum to all others.

    Peers begin with the next rank, so that not all ranks send to the same one first.
    """
    bounds = chunk_bounds(num_elements, num_ranks)
    peers = [(rank + i) % num_ranks for i in range(1, num_ranks)]
    of_rank = [(peer, bounds[rank], bounds[rank + 1]) for peer in peers]
    of_peers = [(peer, bounds[peer], bounds[peer + 1]) for peer in peers]
    return [make_round(of_peers, of_rank, True), make_round(of_rank, of_peers, False)] if peers else []


def halving_doubling(rank: int, num_ranks: int, num_elements: int) -> list[Round]:
    """Return rounds that swap halves with ever nearer peers until each rank has one chunk's sum; then back, copying.

    `num_core` is the largest power of two up to num_ranks. A rank beyond it first sends its whole buffer to a rank of
    the core, and finally receives the result from it.
    """
    num_core = 1 << (num_ranks.bit_length() - 1)
    peer = rank - num_core if rank >= num_core else rank + num_core
    outward, inward = ([(peer, 0, num_elements)], []) if peer < num_ranks else ([], [])
    fold, unfold = make_round(inward, outward, True), make_round(outward, inward, False)
    if rank >= num_core:
        fold, unfold = make_round(outward, inward, True), make_round(inward, outward, False)
        middle = [make_round([], [], False)] * (2 * (num_core.bit_length() - 1))
    else:
        middle = halve_and_double(rank, num_core, num_elements)
    return middle if num_core == num_ranks else [fold, *middle, unfold]


def halve_and_double(rank: int, num_ranks: int, num_elements: int) -> list[Round]:
    """Return the rounds for a power of two of ranks. A rank ends the halving with the chunk of its number."""
    bounds = chunk_bounds(num_elements, num_ranks)
    halving, doubling = [], []
    begin, end = 0, num_ranks
    distance = num_ranks // 2
    while distance:
        middle = begin + distance
        lower, upper = (bounds[begin], bounds[middle]), (bounds[middle], bounds[end])
        peer = rank ^ distance
        kept, given = (upper, lower) if rank & distance else (lower, upper)
        halving.append(make_round([(peer, *given)], [(peer, *kept)], True))
        doubling.append(make_round([(peer, *kept)], [(peer, *given)], False))
        begin, end = (middle, end) if rank & distance else (begin, middle)
        distance //= 2
    return halving + doubling[::-1]


SCHEDULES = {"ring": ring, "butterfly": butterfly, "halving_doubling": halving_doubling}
