"""The timed loop, the pattern that a collective reduces, and parameters that cannot be measured: one process, no group."""

import pytest

pytest.importorskip("torch")

import torch

import collective
import timing
import train_step
from peers import Ranks

pytestmark = pytest.mark.torch


def make_ranks(rank: int = 0, world_size: int = 1) -> Ranks:
    return Ranks(rank, world_size, rank, torch.device("cpu"))


class LoggingRanks(Ranks):
    """Writes down when the device is waited for."""

    def synchronize(self) -> None:
        self.log.append("synchronize")


def test_nothing_but_the_iteration_lies_between_the_two_clock_reads():
    ranks = LoggingRanks(0, 1, 0, torch.device("cpu"))
    ranks.log = log = []
    times = iter([100, 107, 200, 211])

    def clock() -> int:
        log.append("clock")
        return next(times)

    workload = timing.Workload(
        iterate=lambda: log.append("iterate"), check=dict, before_iteration=lambda: log.append("prepare")
    )
    assert timing.time_block(workload, 2, ranks, clock) == [7, 11]
    assert log == ["prepare", "synchronize", "clock", "iterate", "synchronize", "clock"] * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_contributions_of_all_ranks_add_up_exactly(dtype, world_size):
    everyone = [make_ranks(rank, world_size) for rank in range(world_size)]
    contributions = [collective.own_contribution(1000, dtype, ranks) for ranks in everyone]
    total = torch.zeros(1000, dtype=dtype)
    for contribution in contributions:
        assert not collective.is_exact(contribution)
        total += contribution
    assert collective.is_exact(total)
    assert total.max() == 127


def test_check_finds_a_wrong_element_a_swapped_chunk_and_a_sum_of_sums():
    right = collective.expected_values(0, 1024, torch.float32, torch.device("cpu"))
    assert collective.is_exact(right)
    one_off = right.clone()
    one_off[1023] += 1
    assert not collective.is_exact(one_off)
    assert not collective.is_exact(torch.cat([right[512:], right[:512]]))
    assert not collective.is_exact(2 * right)


def test_check_covers_buffers_of_several_pieces(monkeypatch):
    monkeypatch.setattr(collective, "CHECK_ELEMENTS", 100)
    right = collective.expected_values(0, 250, torch.float32, torch.device("cpu"))
    assert collective.is_exact(right)
    right[249] = 0
    assert not collective.is_exact(right)
    assert collective.own_contribution(250, torch.float32, make_ranks(1, 2))[249] == 249 % 127 + 1


@pytest.mark.parametrize(
    ("changes", "world_size", "message"),
    [
        ({"message_bytes": 6}, 2, "message_bytes = 6 is not a positive multiple of 4, the size of an element of fp32."),
        ({"message_bytes": 0}, 2, "message_bytes = 0 is not a positive multiple of 4"),
        ({"message_bytes": 3, "dtype": "bf16"}, 2, "multiple of 2, the size of an element of bf16."),
        ({"operation": "gather"}, 2, "operation = 'gather': one of all_reduce is expected."),
        ({"dtype": "fp8"}, 2, "dtype = 'fp8': one of fp32, bf16 is expected."),
        ({}, 1, "needs 2 ranks or more; there is 1"),
    ],
)
def test_collective_refuses_in_words(changes, world_size, message):
    parameters = {"operation": "all_reduce", "message_bytes": 4096, "dtype": "fp32"} | changes
    with pytest.raises(ValueError, match=message):
        collective.build(parameters, make_ranks(0, world_size))


STEP = {
    "model": "resnet18",
    "image_size": 64,
    "batch_size": 8,
    "dtype": "fp32",
    "strategy": "none",
    "bucket_cap_mb": None,
    "gradient_as_bucket_view": None,
}


@pytest.mark.parametrize(
    ("changes", "world_size", "message"),
    [
        ({"image_size": 0}, 1, "image_size = 0: at least 1 is needed."),
        ({"dtype": "fp16"}, 1, "dtype = 'fp16': one of fp32, bf16 is expected."),
        ({"strategy": "fsdp"}, 1, "strategy = 'fsdp': one of none, ddp is expected."),
        ({}, 2, "strategy none trains on 1 rank, but there are 2. Use ddp."),
        ({"gradient_as_bucket_view": False}, 1, "gradient_as_bucket_view = False has no effect with strategy none."),
        ({"strategy": "ddp"}, 1, "bucket_cap_mb = None: strategy ddp needs a size above 0, in MiB."),
        ({"strategy": "ddp", "bucket_cap_mb": 0}, 1, "bucket_cap_mb = 0: strategy ddp needs a size above 0, in MiB."),
    ],
)
def test_training_refuses_in_words(changes, world_size, message):
    with pytest.raises(ValueError, match=message):
        train_step.build(STEP | changes, make_ranks(0, world_size))


def test_training_steps_lower_the_loss():
    pytest.importorskip("torchvision")
    workload = train_step.build(STEP | {"model": "squeezenet1_1", "image_size": 32, "batch_size": 2}, make_ranks())
    assert workload.values() == {"first_loss": None, "last_loss": None}
    for _ in range(3):
        workload.iterate()
    values = workload.values()
    assert values["last_loss"] < values["first_loss"]
    assert workload.check() == {"loss_is_finite": True}
    memory = workload.memory()
    assert memory["gradient_bytes"] == memory["parameter_bytes"] > 4_000_000


def test_a_loss_that_is_not_finite_is_null_in_the_record():
    assert train_step.finite(torch.tensor(float("nan"))) is None
    assert train_step.finite(torch.tensor(float("inf"))) is None
    assert train_step.finite(torch.tensor(0.5)) == 0.5
