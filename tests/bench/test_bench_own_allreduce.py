"""The custom all-reduce algorithms on real ranks. All cases share one start of 8 ranks: own_allreduce_cases.py."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from algorithms import allreduce
from algorithms.allreduce import ALGORITHMS

pytestmark = pytest.mark.torch

PROGRAM = Path(__file__).with_name("own_allreduce_cases.py")
NUM_RANKS = 8


def find(run_ranks, num_ranks: int, device: str, folder: Path) -> list[dict]:
    """Return what each rank found; see own_allreduce_cases.py."""
    done = run_ranks(num_ranks, PROGRAM, device, folder)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(num_ranks)]


@pytest.fixture(scope="module")
def found(run_ranks, tmp_path_factory) -> list[dict]:
    return find(run_ranks, NUM_RANKS, "cpu", tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sums_are_right_and_alike_on_all_ranks_for_all_lengths_and_dtypes(found, algorithm):
    for rank, one in enumerate(found):
        assert [problem for problem in one["problems"] if problem.startswith(algorithm)] == [], rank
        # In each group that the rank is in, two lengths of five dtypes, and of fp32 at least six.
        assert one["num_cases"][algorithm] >= (NUM_RANKS - rank) * 16


def test_a_rank_outside_the_group_is_refused(found):
    assert [one["problems"] for one in found] == [[]] * NUM_RANKS


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 8])
def test_known_sums(found, algorithm, num_ranks):
    """Rank r gives r + 1, ten times that, and 7: 1 + ... + n = n (n + 1) / 2."""
    total = {1: 1, 2: 3, 3: 6, 4: 10, 8: 36}[num_ranks]
    for one in found[:num_ranks]:
        assert one["values"][f"tens {num_ranks} {algorithm}"] == [total, 10 * total, 7 * num_ranks]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_ranks_of_a_group_count_from_0(found, algorithm):
    assert [one["values"].get(f"scattered {algorithm}") for one in found] == [None, [1 + 3 + 5 + 7]] * 4


@pytest.mark.parametrize(
    ("algorithm", "values"),
    [
        # Chunk c begins at rank c and goes up: (256+1)+1, (1+1)+256, (1+256)+1.
        ("ring", [256, 258, 256]),
        ("butterfly", [256, 256, 256]),
        # Rank 2 folds its 1 into rank 0's 256, and rank 1's comes last.
        ("halving_doubling", [256, 256, 256]),
    ],
)
def test_order_of_summing_in_bfloat16(found, algorithm, values):
    """Ranks give 256, 1 and 1. bfloat16 has 8 bits: 256 + 1 is 256 again, but 1 + 1 + 256 is 258."""
    for one in found[:3]:
        assert one["values"][f"rounding 3 {algorithm}"] == values


@pytest.mark.parametrize("num_ranks", range(1, NUM_RANKS + 1))
@pytest.mark.parametrize("algorithm", ["ring", "butterfly"])
def test_ring_and_butterfly_send_twice_n_minus_1_messages_of_an_nth(found, algorithm, num_ranks):
    """A buffer of n times 100 bytes; the butterfly receives n - 1 pieces to add, the ring one at a time."""
    num_messages = 2 * (num_ranks - 1)
    extra_bytes = min(1, num_ranks - 1) * 100 if algorithm == "ring" else (num_ranks - 1) * 100
    for one in found[:num_ranks]:
        assert one["messages"][f"ones {num_ranks} {algorithm}"] == [num_messages, num_messages * 100]
        assert one["extra_bytes"][f"ones {num_ranks} {algorithm}"] == extra_bytes


@pytest.mark.parametrize(("num_ranks", "num_messages"), [(2, 2), (4, 4), (8, 6)])
def test_halving_and_doubling_sends_as_many_bytes_and_needs_half_a_buffer(found, num_ranks, num_messages):
    for one in found[:num_ranks]:
        assert one["messages"][f"ones {num_ranks} halving_doubling"] == [num_messages, 2 * (num_ranks - 1) * 100]
        assert one["extra_bytes"][f"ones {num_ranks} halving_doubling"] == num_ranks * 100 // 2


def test_halving_and_doubling_of_three_folds_rank_2_into_rank_0(found):
    name = "ones 3 halving_doubling"
    assert [one["messages"][name][0] for one in found[:3]] == [3, 2, 1]
    assert [one["extra_bytes"][name] for one in found[:3]] == [300, 38 * 4, 0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_rank_keeps_its_values_and_needs_no_memory(single_rank, algorithm):
    buffer = torch.arange(5.0)
    all_reduce = allreduce.AllReduce(algorithm, buffer)
    all_reduce.run()
    assert torch.equal(buffer, torch.arange(5.0))
    assert all_reduce.extra_bytes == 0


REFUSED = {
    "an unknown algorithm": ("tree", torch.zeros(4)),
    "bool": ("ring", torch.zeros(4, dtype=torch.bool)),
    "complex": ("ring", torch.zeros(4, dtype=torch.complex64)),
    "transposed": ("ring", torch.zeros(4, 5).t()),
    "every other element": ("ring", torch.zeros(8)[::2]),
    "sparse": ("ring", torch.zeros(4).to_sparse()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_in_words(single_rank, name, wording):
    with wording.raises(ValueError):
        allreduce.AllReduce(*REFUSED[name])


def test_a_buffer_that_requires_gradients_and_has_a_shape_is_summed_in_place(single_rank):
    buffer = torch.ones(2, 3, requires_grad=True)
    allreduce.AllReduce("ring", buffer).run()
    assert buffer.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_an_addition_waits_for_its_own_message_only():
    """Rank 2 of 4 gets three pieces: 0 and 1 are summed where they came in, then its own is added, then rank 3's."""
    own, zero, one, three = torch.tensor([4.0]), torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([8.0])
    additions = allreduce.rank_ordered([own] * 3, [zero, one, three], num_lower=2)
    assert [addition.num_needed for addition in additions] == [2, 2, 3]
    assert [(addition.target is zero, addition.source is one) for addition in additions[:1]] == [(True, True)]
    assert [addition.source is source for addition, source in zip(additions[1:], (zero, three), strict=True)] == [
        True
    ] * 2
    for addition in additions:
        addition.target.add_(addition.source)
    assert own.item() == 15


@pytest.mark.gpu
def test_sums_are_right_on_gpus(run_ranks, tmp_path):
    """Not yet run: no machine with two GPUs was at hand."""
    num_ranks = torch.cuda.device_count()
    if num_ranks < 2:
        pytest.skip("fewer than two GPUs")
    for one in find(run_ranks, min(num_ranks, NUM_RANKS), "cuda", tmp_path):
        assert one["problems"] == []
        assert set(one["num_cases"]) == set(ALGORITHMS)
