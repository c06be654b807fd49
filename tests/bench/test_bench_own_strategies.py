"""Custom gradient synchronization gives the gradients of one process on the global batch, as torch's does."""

import functools
import json
import math
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torch
from own_strategies_contenders import OWN, contenders, families

from algorithms import gradient_buckets, gradient_synchronization

pytestmark = pytest.mark.torch

PROGRAM = Path(__file__).with_name("own_strategies_ranks.py")
WORLD_SIZES = (1, 3)  # of two ranks a wrong divisor or order can go unseen


def cases(num_ranks: int, device: str) -> list[str]:
    return [
        *(f"{name}-{contender}" for name in families(num_ranks, device) for contender in contenders(name)),
        *(f"behaviour-{contender}" for contender in OWN),
        "broadcast",
        "subgroup",
    ]


@pytest.fixture(scope="module")
def outcomes(run_ranks, tmp_path_factory):
    """A function that runs all cases in one set of ranks, once, and returns for each rank what became of each case."""

    @functools.cache
    def run(num_ranks: int, device: str, backend: str) -> list[dict[str, str]]:
        folder = tmp_path_factory.mktemp("outcomes")
        done = run_ranks(num_ranks, PROGRAM, device, backend, folder)
        assert done.returncode == 0, done.stderr
        return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(num_ranks)]

    return run


def require_ok(rows: list[dict[str, str]], case: str) -> None:
    for rank, row in enumerate(rows):
        assert row[case] == "ok", f"rank {rank}: {row[case]}"


@pytest.mark.parametrize(
    ("num_ranks", "case"), [(num_ranks, case) for num_ranks in WORLD_SIZES for case in cases(num_ranks, "cpu")]
)
def test_ranks_train_as_one_process_does_on_the_joined_batch(outcomes, num_ranks, case):
    require_ok(outcomes(num_ranks, "cpu", "gloo"), case)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_same_on_gpus_with_nccl(outcomes):
    """On all GPUs but at most 4, and with one GPU too: averages and streams are then NCCL's. Not yet run on a GPU."""
    num_ranks = min(torch.cuda.device_count(), 4)
    rows = outcomes(num_ranks, "cuda", "nccl")
    for case in cases(num_ranks, "cuda"):
        require_ok(rows, case)


def weights(*sizes: int, dtype=torch.float32) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(size, dtype=dtype)) for size in sizes]


def sizes_of(groups) -> list[list[int]]:
    return [[member.numel() for member in group] for group in groups]


@pytest.mark.parametrize(
    ("cap_bytes", "expected"),
    [
        (0, [[5], [4], [3], [2], [1]]),
        (math.inf, [[5, 4, 3, 2, 1]]),
        (4 * 9, [[5, 4], [3, 2, 1]]),
        (4 * 9 - 1, [[5], [4, 3], [2, 1]]),
        (4 * 4, [[5], [4], [3], [2, 1]]),
    ],
)
def test_buckets_are_filled_from_the_last_parameter_up_to_their_cap(cap_bytes, expected):
    """The last line: a parameter above the cap has a bucket of its own."""
    assert sizes_of(gradient_buckets.group_parameters(weights(1, 2, 3, 4, 5), cap_bytes)) == expected


def test_a_bucket_holds_one_dtype_and_buckets_are_in_the_order_in_which_they_get_full():
    singles, doubles = weights(1, 3, 5), weights(2, 4, dtype=torch.float64)
    mixed = [singles[0], doubles[0], singles[1], doubles[1], singles[2]]
    assert sizes_of(gradient_buckets.group_parameters(mixed, math.inf)) == [[4, 2], [5, 3, 1]]
    assert sizes_of(gradient_buckets.group_parameters(mixed, 0)) == [[5], [4], [3], [2], [1]]


def test_no_parameters_give_no_buckets(single_rank):
    assert gradient_buckets.group_parameters([], 100) == []
    sync = gradient_synchronization.make("bucketed", torch.nn.ReLU(), 25)
    sync.finish()
    sync.reduce_alone()
    assert (sync.num_calls, sync.extra_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("strategy", "cap", "num_calls", "extra_bytes"),
    [
        ("naive", None, 4, 0),
        ("flat", None, 1, 4 * 4089),
        ("overlap", None, 4, 0),
        # 2 KiB hold the last layer and the first one's bias; the first one's weights are larger, and alone.
        ("bucketed", 2 / 1024, 2, 4 * (9 + 72 + 8)),
    ],
)
def test_calls_and_bytes_by_hand(single_rank, strategy, cap, num_calls, extra_bytes):
    model = torch.nn.Sequential(torch.nn.Linear(500, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 9))
    model[1].requires_grad_(False)
    sync = gradient_synchronization.make(strategy, model, cap)
    assert (sync.num_calls, sync.extra_bytes) == (num_calls, extra_bytes)


@pytest.mark.parametrize("strategy", gradient_synchronization.STRATEGIES)
def test_without_zero_grad_gradients_go_on_growing(single_rank, strategy):
    model = torch.nn.Linear(2, 1, bias=False)
    sync = gradient_synchronization.make(strategy, model, 1 if strategy == "bucketed" else None)
    for step in (1, 2, 3):
        model(torch.ones(1, 2)).sum().backward()
        sync.finish()
        assert model.weight.grad.tolist() == [[step, step]]


REFUSED = [("buckets", 25), ("bucketed", None), ("bucketed", 0), ("bucketed", math.nan), ("flat", 25)]


@pytest.mark.parametrize(("strategy", "cap"), REFUSED)
def test_make_refuses_in_words(strategy, cap, wording):
    with wording.raises(ValueError):
        gradient_synchronization.make(strategy, torch.nn.Linear(1, 1), cap)


def test_sparse_gradients_are_refused_before_they_are_needed(wording):
    model = torch.nn.Sequential(torch.nn.Embedding(4, 4, sparse=True))
    with wording.raises(ValueError):
        gradient_synchronization.make("flat", model, None)
