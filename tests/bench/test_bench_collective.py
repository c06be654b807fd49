"""Benchmark `collective` in one process, without a group: patterns, sizes, memory, rejected parameters."""

import itertools

import pytest

pytest.importorskip("torch")

import torch

import collective
from collective import Parameters
from harness import free_memory, timing
from harness.peers import Ranks
from workloads import collective_operations, collective_patterns
from workloads.collective_operations import OPERATIONS

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


def make_ranks(rank: int = 0, world_size: int = 2) -> Ranks:
    return Ranks(rank, world_size, rank, CPU)


def written(num_elements: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return collective_patterns.write_pattern(torch.empty(num_elements, dtype=dtype), seed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("world_size", [2, 3, 8])
@pytest.mark.parametrize("seed", [0, 5, 200])
def test_addends_of_all_ranks_add_up_exactly_and_none_is_the_sum(dtype, world_size, seed):
    total = torch.zeros(1000, dtype=dtype)
    for rank in range(world_size):
        addend = collective_patterns.write_addend(torch.empty_like(total), seed, make_ranks(rank, world_size))
        assert not collective_patterns.is_pattern(addend, seed)
        total += addend
    assert collective_patterns.is_pattern(total, seed)
    assert (total.min(), total.max()) == (1, 127)


def test_one_element_for_each_rank_never_comes_from_that_rank_itself():
    for rank in range(4):
        addend = collective_patterns.write_addend(torch.empty(1), rank, make_ranks(rank, 4))
        assert addend.item() == 0


def test_check_finds_a_wrong_element_a_shifted_chunk_a_sum_of_sums_and_another_source():
    right = written(1024, 3)
    assert collective_patterns.is_pattern(right, 3)
    one_off = right.clone()
    one_off[1023] += 1
    for wrong in (one_off, torch.cat([right[512:], right[:512]]), 2 * right, written(1024, 4), right * 0):
        assert not collective_patterns.is_pattern(wrong, 3)


def test_no_two_pairs_of_many_ranks_have_the_same_chunk():
    lines = {tuple(collective_patterns.pattern(seed, 0, 2, CPU).tolist()) for seed in range(126 * 126)}
    assert len(lines) == 126 * 126
    first = [collective_patterns.pattern(seed, 0, 1, CPU).item() for seed in range(127)]
    assert len(set(first)) == 127  # one element suffices for up to 127 neighbours


def test_patterns_of_several_pieces_are_those_of_one(monkeypatch):
    whole = written(250, 7)
    monkeypatch.setattr(collective_patterns, "PIECE_ELEMENTS", 100)
    assert torch.equal(written(250, 7), whole)
    assert collective_patterns.is_pattern(whole, 7)
    whole[249] = 0
    assert not collective_patterns.is_pattern(whole, 7)


@pytest.mark.parametrize(
    ("num_ranks", "pairs"), [(2, [1, 0]), (3, [1, 0, None]), (4, [2, 3, 0, 1]), (5, [2, 3, 0, 1, None])]
)
def test_pairs_are_the_two_halves_and_the_last_of_an_odd_number_idles(num_ranks, pairs):
    assert [collective_operations.pair_peer(rank, num_ranks) for rank in range(num_ranks)] == pairs


def make_parameters(operation: str, message_bytes: int | None = 4096, **changes: object) -> dict:
    parameters = {"operation": operation, "message_bytes": message_bytes, "dtype": "fp32"}
    return parameters | {"algorithm": "torch" if operation == "all_reduce" else None} | changes


@pytest.mark.parametrize(
    ("operation", "num_bytes"),
    [
        ("all_reduce", 1200 + 8 * 1200),
        ("all_gather", 300 + 8 * 1200),
        ("reduce_scatter", 1200 + 8 * 300),
        ("all_to_all", 1200 + 8 * 1200),
        ("broadcast", 8 * 1200),
        ("reduce", 1200 + 8 * 1200),
    ],
)
def test_memory_is_what_the_buffers_take(operation, num_bytes):
    wanted = Parameters(**make_parameters(operation, 1200))
    assert collective.buffer_bytes(wanted, 8, 4) == num_bytes
    message = collective.message_of(wanted, make_ranks(1, 4))
    make_call = OPERATIONS[operation](message)
    result_bytes = make_call().result.nbytes
    assert num_bytes - 8 * result_bytes in (0, 300, 1200)
    own = Parameters(**make_parameters("all_reduce", 1200, algorithm="ring"))
    assert collective.buffer_bytes(own, 1, 4) == 3 * 1200


@pytest.mark.parametrize(
    ("size", "backend", "algorithm", "num"),
    [
        (8, "gloo", "torch", 8),
        (8 << 20, "gloo", "torch", 8),
        (16 << 20, "gloo", "torch", 4),
        (1 << 30, "gloo", "torch", 2),
        (8, "nccl", "torch", 1),
        (8, "gloo", "ring", 1),
    ],
)
def test_calls_under_way_are_bounded_by_their_memory(size, backend, algorithm, num):
    wanted = Parameters(**make_parameters("all_reduce", size, algorithm=algorithm))
    assert collective.count_in_flight(wanted, backend) == num


REFUSED = {
    "a part of an element": (make_parameters("all_reduce", 6), 2),
    "no element": (make_parameters("all_reduce", 0), 2),
    "a part of an element of bf16": (make_parameters("broadcast", 3, dtype="bf16"), 2),
    "unequal parts": (make_parameters("all_gather", 20), 3),
    "an unknown operation": (make_parameters("gather"), 2),
    "an unknown dtype": (make_parameters("broadcast", dtype="fp8"), 2),
    "an unknown algorithm": (make_parameters("all_reduce", algorithm="bcube"), 2),
    "an algorithm without effect": (make_parameters("broadcast", algorithm="ring"), 2),
    "a barrier with a size": (make_parameters("barrier", 8), 2),
    "barrier on 1 rank": (make_parameters("barrier", None, dtype=None), 1),
}
REFUSED |= {f"{name} on 1 rank": (make_parameters(name), 1) for name in OPERATIONS if name != "barrier"}


@pytest.mark.parametrize("name", REFUSED)
def test_collective_refuses_in_words(name, wording):
    parameters, world_size = REFUSED[name]
    with wording.raises(ValueError):
        collective.build(parameters, make_ranks(0, world_size))


@pytest.fixture
def alone(monkeypatch):
    """Exchanges of a single rank, without a group."""
    monkeypatch.setattr(free_memory.peers, "gather_rows", lambda values, ranks: [list(values)])


def test_unknown_free_memory_refuses_nothing(alone, monkeypatch, tmp_path):
    monkeypatch.setattr(free_memory, "MEMINFO", tmp_path / "absent")
    free_memory.require_memory("x", 1 << 60, make_ranks(), "Take less.")
    (tmp_path / "absent").write_text("MemFree: 1 kB\n")
    assert free_memory.free_bytes(make_ranks()) is None


def test_what_just_fits_is_not_refused(alone, monkeypatch, tmp_path, wording):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    1000 kB\n")
    monkeypatch.setattr(free_memory, "MEMINFO", tmp_path / "meminfo")
    free_memory.require_memory("x", 921_600, make_ranks(), "Take less.")
    with wording.raises(ValueError):
        free_memory.require_memory("x", 921_601, make_ranks(), "Take less.")


def test_fractions_are_rounded_alike_and_never_zero():
    positions = torch.arange(0, 100_000, 7)
    for rank, dtype in itertools.product((0, 5), (torch.float32, torch.bfloat16)):
        addends = collective_patterns.fractions(positions, rank, dtype)
        assert 0 < addends.min() < 0.01
        assert 0.99 < addends.max() <= 1
        assert not torch.equal(addends, collective_patterns.fractions(positions, rank + 1, dtype))


def test_windows_of_a_workload_run_its_own_way_after_their_preparation(monkeypatch):
    log = []
    monkeypatch.setattr(timing.peers, "number_from_rank_0", lambda value, ranks: value)
    monkeypatch.setattr(timing.peers, "barrier", lambda ranks: log.append("barrier"))
    monkeypatch.setattr(timing.sampling, "plan_windows", lambda median, elapsed, ratio: (2, 7))
    workload = timing.Workload(
        iterate=lambda: log.append("iterate"),
        check=dict,
        before_windows=lambda: log.append("before"),
        run_window=lambda steps: log.append(steps),
    )
    steps, durations = timing.time_windows(workload, make_ranks(), timing.Blocks(ordered=[1]), 0.3)
    assert (steps, len(durations)) == (7, 2)
    assert log == ["before", "barrier", 7, "barrier", 7]
