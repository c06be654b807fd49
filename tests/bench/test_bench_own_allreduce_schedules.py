"""The schedules of the custom all-reduce algorithms, simulated in one process without torch."""

import pytest

from algorithms import allreduce_schedules
from algorithms.allreduce_schedules import SCHEDULES, Piece, Round

RANK_COUNTS = [*range(1, 18), 31, 32, 33]


def all_schedules(algorithm: str, num_ranks: int, num_elements: int) -> list[list[Round]]:
    return [SCHEDULES[algorithm](rank, num_ranks, num_elements) for rank in range(num_ranks)]


def play(schedules: list[list[Round]], buffers: list[list]) -> None:
    """Carry out all ranks' rounds in step, on lists of summands. Every message must have a sender and a receiver."""
    for rounds in zip(*schedules, strict=True):
        sent = {
            (rank, piece.peer): (piece.begin, piece.end, buffers[rank][piece.begin : piece.end])
            for rank, one in enumerate(rounds)
            for piece in one.sends
        }
        assert len(sent) == sum(len(one.sends) for one in rounds), "two messages between the same ranks in a round"
        for rank, one in enumerate(rounds):
            for piece in one.receives:
                begin, end, values = sent.pop((piece.peer, rank))
                assert (begin, end) == (piece.begin, piece.end)
                for i, value in enumerate(values, start=begin):
                    buffers[rank][i] = buffers[rank][i] + value if one.adds else value
        assert not sent, "nobody receives this"


@pytest.mark.parametrize("algorithm", SCHEDULES)
def test_each_rank_ends_with_every_summand_once(algorithm):
    for num_ranks in RANK_COUNTS:
        for num_elements in sorted({0, 1, 2, max(num_ranks - 1, 0), num_ranks, num_ranks + 1, 37, 101}):
            buffers = [[(rank,)] * num_elements for rank in range(num_ranks)]
            play(all_schedules(algorithm, num_ranks, num_elements), buffers)
            for buffer in buffers:
                assert all(sorted(summands) == list(range(num_ranks)) for summands in buffer)
                assert buffer == buffers[0], "the order of summing must be the same on all ranks"


@pytest.mark.parametrize("algorithm", SCHEDULES)
def test_a_piece_that_is_sent_is_not_written_in_the_same_round(algorithm):
    for num_ranks in RANK_COUNTS:
        for rounds in all_schedules(algorithm, num_ranks, 101):
            for one in rounds:
                written = {i for piece in one.receives for i in range(piece.begin, piece.end)}
                assert not written & {i for piece in one.sends for i in range(piece.begin, piece.end)}


def sent_by(rounds: list[Round]) -> tuple[int, int]:
    """Return (messages, elements) that one rank sends."""
    pieces = [piece for one in rounds for piece in one.sends]
    return len(pieces), sum(piece.end - piece.begin for piece in pieces)


def test_halving_and_doubling_folds_the_ranks_beyond_a_power_of_two():
    """6 ranks: 4 and 5 give all to 0 and 1; four ranks exchange 2 + 1 + 1 + 2 of 4 quarters; 0 and 1 give all back."""
    num_sent = [sent_by(rounds) for rounds in all_schedules("halving_doubling", 6, 8)]
    assert num_sent == [(5, 12 + 8)] * 2 + [(4, 12)] * 2 + [(1, 8)] * 2


def test_a_ring_of_three_by_hand():
    """Rank 0 sends chunk 0, then the sum of chunk 2; it ends summing with chunk 1, and passes on sums 1 and 0."""
    assert allreduce_schedules.ring(0, 3, 6) == [
        Round((Piece(1, 0, 2),), (Piece(2, 4, 6),), True),
        Round((Piece(1, 4, 6),), (Piece(2, 2, 4),), True),
        Round((Piece(1, 2, 4),), (Piece(2, 0, 2),), False),
        Round((Piece(1, 0, 2),), (Piece(2, 4, 6),), False),
    ]


def test_halving_and_doubling_of_four_by_hand():
    """Rank 1 keeps the lower half, then of that the upper quarter; and backwards."""
    assert allreduce_schedules.halving_doubling(1, 4, 8) == [
        Round((Piece(3, 4, 8),), (Piece(3, 0, 4),), True),
        Round((Piece(0, 0, 2),), (Piece(0, 2, 4),), True),
        Round((Piece(0, 2, 4),), (Piece(0, 0, 2),), False),
        Round((Piece(3, 0, 4),), (Piece(3, 4, 8),), False),
    ]


def test_butterfly_begins_with_the_next_rank_so_that_not_all_send_to_the_same():
    first_round = [SCHEDULES["butterfly"](rank, 4, 4)[0] for rank in range(4)]
    assert [[piece.peer for piece in one.sends] for one in first_round] == [[1, 2, 3], [2, 3, 0], [3, 0, 1], [0, 1, 2]]


def test_chunks_of_a_short_buffer_are_empty_and_are_not_sent():
    assert allreduce_schedules.chunk_bounds(2, 4) == [0, 0, 1, 1, 2]
    assert sum(sent_by(SCHEDULES["ring"](rank, 4, 2))[0] for rank in range(4)) == 2 * 2 * 3


@pytest.mark.parametrize("algorithm", SCHEDULES)
def test_one_rank_or_an_empty_buffer_needs_no_message(algorithm):
    assert SCHEDULES[algorithm](0, 1, 100) == []
    for rounds in all_schedules(algorithm, 5, 0):
        assert sent_by(rounds) == (0, 0)
