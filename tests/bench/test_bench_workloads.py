"""The timed loop, training steps, and parameters that cannot be measured: one process, no group."""

import contextlib
import gc
import weakref

import pytest

pytest.importorskip("torch")

import torch
from bench_cells import train_step_parameters

import train_step
from harness import free_memory, timing
from harness.peers import Ranks
from workloads import transformer

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

    durations = timing.time_block(lambda: log.append("iterate"), lambda: log.append("prepare"), 2, ranks, clock)
    assert durations == [7, 11]
    assert log == ["prepare", "synchronize", "clock", "iterate", "synchronize", "clock"] * 2


STEP = train_step_parameters("resnet18", "none")
DDP = {"strategy": "ddp", "compression": "none"}


REFUSED = [
    ({"image_size": 0}, 1),
    ({"dtype": "fp16"}, 1),
    ({"strategy": "zero"}, 1),
    ({"model": "lm_tiny"}, 1),
    ({"model": "lm_huge", "image_size": None, "channels_last": None, "context_length": 8}, 1),
    ({"context_length": 8}, 1),
    ({"optimizer": "adam"}, 1),
    ({}, 2),
    ({"gradient_as_bucket_view": False}, 1),
    ({"strategy": "fsdp", "channels_last": True}, 2),
    (DDP, 1),
    (DDP | {"bucket_cap_mb": 0}, 1),
    (DDP | {"compression": "fp16"}, 2),
    ({"strategy": "flat", "compression": "bf16"}, 2),
]


@pytest.mark.parametrize(("changes", "world_size"), REFUSED, ids=str)
def test_training_refuses_in_words(changes, world_size, wording):
    with wording.raises(ValueError):
        train_step.build(STEP | changes, make_ranks(0, world_size))


@pytest.mark.parametrize("missing", ["CUDA", "NCCL"])
def test_compression_is_refused_in_words_where_torch_would_not_take_its_hook(monkeypatch, missing, wording):
    """torch's DDP asks for CUDA and NCCL in its build (torch/nn/parallel/distributed.py, _check_comm_hook), also on CPUs."""
    monkeypatch.setattr(torch.version, "cuda", None if missing == "CUDA" else "13.0")
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: missing != "NCCL")
    parameters = train_step_parameters("lm_tiny", "ddp", compression="bf16")
    with wording.raises(ValueError, torch=torch.__version__):
        train_step.build(parameters, make_ranks(0, 2))


def test_what_autograd_saves_counts_although_its_memory_was_freed_and_given_out_again():
    """As FSDP does with gathered weights: each freed after its product, so that the next may lie at the same address."""
    batch = torch.ones(1000, requires_grad=True)

    def forward() -> list[torch.Tensor]:
        products = []
        for _ in range(4):
            gathered = torch.ones(1000)
            products.append(batch * gathered)  # saves `gathered`
            gathered.untyped_storage().resize_(0)
        return products

    assert train_step.bytes_saved_by(forward, contextlib.nullcontext) == 4 * 4000


def test_counting_what_is_saved_leaves_nothing_behind():
    """An exponential saves its result, whose graph holds what was saved: a circle that Python does not see."""
    batch = torch.ones(1000, requires_grad=True)
    is_there = weakref.ref(batch)
    assert train_step.bytes_saved_by(batch.exp, contextlib.nullcontext) == 4000
    del batch
    gc.collect()
    assert is_there() is None


def test_a_storage_that_is_saved_twice_counts_once():
    batch, gathered = torch.ones(1000, requires_grad=True), torch.ones(1000)
    assert (
        train_step.bytes_saved_by(lambda: (batch * gathered, batch[:10] * gathered[:10]), contextlib.nullcontext)
        == 4000
    )


def test_training_steps_lower_the_loss():
    pytest.importorskip("torchvision")
    workload = train_step.build(STEP | {"model": "squeezenet1_1", "image_size": 32, "batch_size": 2}, make_ranks())
    values = workload.values()
    assert (values["first_loss"], values["last_loss"], values["num_parameters"]) == (None, None, 1_235_496)
    for _ in range(3):
        workload.iterate()
    values = workload.values()
    assert values["last_loss"] < values["first_loss"]
    assert workload.check() == {"loss_is_finite": True}
    memory = workload.memory()
    assert memory["gradient_bytes"] == memory["parameter_bytes"] == memory["optimizer_bytes"] == 4 * 1_235_496
    assert memory["saved_bytes"] > 2 * 3 * 32 * 32 * 4  # the batch at least
    assert workload.ablations == {}


@pytest.mark.parametrize(("model", "image_size"), [("inception_v3", 299), ("googlenet", 32)])
def test_models_with_auxiliary_outputs_are_trained(monkeypatch, model, image_size):
    pytest.importorskip("torchvision")
    monkeypatch.setattr(torch.nn.init, "trunc_normal_", torch.nn.init.normal_)  # takes seconds, and changes no shape
    workload = train_step.build(STEP | {"model": model, "image_size": image_size, "batch_size": 2}, make_ranks())
    workload.iterate()
    assert workload.check() == {"loss_is_finite": True}


@pytest.mark.parametrize(
    ("changes", "needed_gib"),
    # lm_small: 128.6 million weights of 4 bytes, 0.479 GiB; with their gradients and the optimizer's state 3 or 4 times that.
    # Sharded over two ranks it is whole only until it is sharded.
    [
        ({"strategy": "naive"}, "1.44"),
        ({"strategy": "naive", "optimizer": "adamw"}, "1.92"),
        ({"strategy": "fsdp", "optimizer": "adamw"}, "0.958"),
    ],
)
def test_a_language_model_that_does_not_fit_is_refused_before_it_is_built(
    monkeypatch, tmp_path, changes, needed_gib, wording
):
    """Each of two ranks on this host has half of its free memory."""
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    2000000 kB\n")
    monkeypatch.setattr(free_memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(free_memory.peers, "gather_rows", lambda values, ranks: [list(values)] * 2)
    monkeypatch.setattr(transformer, "Transformer", None)
    parameters = train_step_parameters("lm_small", **changes)
    with wording.raises(ValueError, needed_gib=needed_gib):
        train_step.build(parameters, make_ranks(0, 2))
