"""Complete training runs: they learn, they are reproducible, strategies agree, and records describe them correctly."""

import json
import shlex
from pathlib import Path
from unittest import mock

import pytest

pytest.importorskip("torch")

import torch
from bench_cells import BENCH
from train_run_cases import CELL

import train_run
from algorithms import batchnorm
from harness.peers import Ranks
from workloads import cifar, cifar_cnn, train_loop

pytestmark = pytest.mark.torch

LOSSES = ("train_loss", "test_loss", "accuracy", "accuracy_by_rank")
ALONE = CELL | {"strategy": "none", "norm": "batch"}


@pytest.fixture(scope="module")
def outcome(run_ranks, tmp_path_factory) -> dict:
    """All trainings of train_run_cases.py, on two ranks."""
    path = tmp_path_factory.mktemp("trainings") / "outcome.json"
    done = run_ranks(2, Path(__file__).with_name("train_run_cases.py"), path)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())


def make_ranks(rank: int = 0, world_size: int = 1) -> Ranks:
    return Ranks(rank, world_size, rank, torch.device("cpu"))


def test_the_same_seed_gives_the_same_losses_to_the_last_digit(outcome):
    for name in LOSSES:
        assert outcome["own"][name] == outcome["own again"][name]
        assert name == "accuracy" or outcome["own"][name] != outcome["another seed"][name]


@pytest.mark.parametrize(("own", "ddp"), [("own", "ddp"), ("own accumulated", "ddp accumulated")])
def test_own_gradient_averaging_learns_what_ddp_learns(outcome, own, ddp):
    for name in ("train_loss", "test_loss"):
        assert outcome[own][name] == pytest.approx(outcome[ddp][name], abs=1e-4)


def test_an_epoch_has_whole_steps_only_and_as_many_on_each_rank(outcome):
    """130 images are 4 steps of 2 x 16, or 2 steps of 2 x 16 x 2; the last 2 are left out."""
    found = outcome["own"]
    assert (found["data"], found["steps_per_epoch"], found["train_samples_per_epoch"]) == ("synthetic", 4, 128)
    found = outcome["own accumulated"]
    assert (found["steps_per_epoch"], found["train_samples_per_epoch"]) == (2, 128)
    assert found["data_bytes"] == (130 + 101) * (3072 + 8)


def test_accuracy_is_over_the_whole_test_set_and_each_rank_s_over_its_share(outcome):
    for name in ("own", "plain norm", "ddp"):
        found = outcome[name]
        assert found["test_samples"] == 101
        for accuracy, by_rank in zip(found["accuracy"], found["accuracy_by_rank"], strict=True):
            num_right = accuracy * 101
            assert num_right == pytest.approx(round(num_right))
            assert by_rank[0] * 51 + by_rank[1] * 50 == pytest.approx(num_right)


def test_ranks_end_with_the_same_weights_and_synchronised_norms_with_the_same_statistics(outcome):
    both = {"loss_is_finite": True, "weights_agree": True, "statistics_agree": True}
    assert outcome["own"]["checks"] == outcome["ddp"]["checks"] == both
    assert outcome["plain norm"]["checks"] == {"loss_is_finite": True, "weights_agree": True}


def test_there_is_an_entry_for_each_epoch(outcome):
    for name in LOSSES:
        assert len(outcome["own"][name]) == 2
    assert outcome["own"]["num_parts"] == {"train": 2, "test": 2}


def test_gradients_are_reduced_once_a_step_however_many_batches_it_has(outcome):
    """Of the own strategy; with a plain batch norm there is no other all-reduce."""
    assert outcome["plain norm"]["all_reduces_per_step"] == 1
    # Each of the two batch norms has one in each backward pass; the forward pass has an all-gather.
    assert outcome["own"]["all_reduces_per_step"] == 1 + 2
    assert outcome["own accumulated"]["all_reduces_per_step"] == 1 + 2 * 2


@pytest.mark.parametrize("strategy", ["own", "ddp"])
def test_accumulated_batches_of_all_ranks_give_the_step_of_one_large_batch(outcome, strategy):
    found = outcome[f"accumulation {strategy}"]
    assert found["difference"] < 1e-14
    assert found["step"] > 1e-5


def test_bytes_are_those_of_the_network(outcome):
    for name in ("own", "ddp"):
        memory = outcome[name]["memory"]
        assert memory["parameter_bytes"] == memory["gradient_bytes"] == memory["optimizer_bytes"] == 4 * 825_988
        assert memory["algorithm_bytes"] == 4 * 825_988  # the buckets of both


def test_torch_ddp_is_that_of_train_step(monkeypatch):
    monkeypatch.setattr(torch.nn.parallel, "DistributedDataParallel", mock.MagicMock())
    model = torch.nn.Linear(2, 2)
    train_loop.make_trainer(model, "ddp", 1, make_ranks(world_size=2))
    torch.nn.parallel.DistributedDataParallel.assert_called_once_with(
        model, device_ids=None, broadcast_buffers=False, bucket_cap_mb=25
    )


def test_the_small_set_is_learnt(monkeypatch):
    """10 of its 100 classes: guessing is right in 10 % of cases."""
    monkeypatch.setattr(cifar, "NUM_SYNTHETIC", {"train": 600, "test": 100})
    train, test, _ = cifar.load(None, 1)
    train, test = (
        cifar.Images(images.pixels_NCHW[images.labels < 10], images.labels[images.labels < 10])
        for images in (train, test)
    )
    torch.manual_seed(1)
    trainer = train_loop.make_trainer(cifar_cnn.build_model("cifar_cnn", "batch"), "none", 1, make_ranks())
    history = train_loop.History()
    for _ in range(12):
        plan = train_loop.EpochPlan(seed=1, batch_size=4, num_batches=15)
        train_loop.run_epoch(trainer, plan, train, test, history, make_ranks())
    assert history.train_loss[-1] < history.train_loss[0] - 1
    assert history.accuracy[-1] > 0.5
    assert history.accuracy_by_rank[-1] == [history.accuracy[-1]]


def test_a_training_that_diverged_is_null_and_fails_its_check(monkeypatch):
    monkeypatch.setattr(cifar, "NUM_SYNTHETIC", {"train": 100, "test": 100})
    monkeypatch.setattr(train_loop, "LEARNING_RATE", float("inf"))
    workload = train_run.build(ALONE, make_ranks())
    workload.iterate()
    assert workload.values()["test_loss"] == [None]
    assert workload.check() == {"loss_is_finite": False}
    json.dumps(workload.values(), allow_nan=False)


def test_published_network_is_built_with_the_norm_that_is_asked_for():
    model = cifar_cnn.build_model("cifar_cnn", "own_sync")
    assert sum(isinstance(layer, batchnorm.SyncBatchNorm) for layer in model.modules()) == 2
    model = cifar_cnn.build_model("cifar_cnn", "batch")
    assert sum(isinstance(layer, torch.nn.BatchNorm2d) for layer in model.modules()) == 2
    assert sum(weights.numel() for weights in model.parameters()) == 825_988


def test_torchvision_s_network_has_a_hundred_classes():
    pytest.importorskip("torchvision")
    model = cifar_cnn.build_model("resnet18", "own_sync")
    assert model.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 100)
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in model.modules())


@pytest.mark.parametrize(
    ("changes", "world_size", "message"),
    [
        ({"model": "resnet50"}, 1, "model = 'resnet50': expected one of cifar_cnn, resnet18."),
        ({"data": "mnist"}, 1, "data = 'mnist': expected one of synthetic, cifar100."),
        ({"norm": "layer"}, 1, "norm = 'layer': expected one of batch, own_sync, torch_sync."),
        ({"strategy": "fsdp"}, 1, "strategy = 'fsdp': expected one of none, ddp, own."),
        ({"epochs": 0}, 1, "epochs = 0: must be at least 1."),
        ({"accumulation_steps": 0}, 1, "accumulation_steps = 0: must be at least 1."),
        ({"seed": -1}, 1, r"seed = -1: expected an integer from 0 to 2\*\*63 - 1."),
        ({"data_folder": "/data"}, 1, "data_folder = '/data' has no effect with data synthetic. Remove it."),
        ({"data": "cifar100"}, 1, "data cifar100 needs data_folder, where CIFAR-100 was unpacked."),
        ({"data": "cifar100", "data_folder": "/absent"}, 1, "data_folder = '/absent' is not a folder"),
        ({}, 2, "strategy none trains on 1 rank, but there are 2. Use ddp or own."),
        ({"norm": "torch_sync"}, 1, "torch.nn.SyncBatchNorm runs on GPUs only. Set norm own_sync or device cuda."),
        ({"batch_size": 1001, "accumulation_steps": 2}, 1, "one step takes 2002 images .* but there are 2000."),
    ],
)
def test_training_refuses_in_words(changes, world_size, message):
    with pytest.raises(ValueError, match=message):
        train_run.build(ALONE | changes, make_ranks(0, world_size))


def test_exactly_the_epochs_are_timed_and_each_in_two_parts(outcome):
    record = outcome["measured"]
    assert (record["status"], record["cause"]) == ("ok", None)
    assert record["warmup"] is None
    assert (record["sampling"]["num_iterations"], record["sampling"]["stop"]) == (2, "fixed")
    assert [len(of_rank) for of_rank in record["samples_ns"]] == [2, 2]
    for rank, samples in enumerate(record["samples_ns"]):
        for epoch, sample in enumerate(samples):
            parts = [record["parts_ns"][name][rank][epoch] for name in ("train", "test")]
            assert min(parts) > 0
            assert sum(parts) < sample
    assert record["values"]["train_loss"] == outcome["own"]["train_loss"]


# train_run.py with fewer images.
SMALL_SET = """\
import runpy, sys
sys.path.insert(0, {bench!r})
from workloads import cifar
cifar.NUM_SYNTHETIC = {{"train": 100, "test": 100}}
sys.argv[0] = {bench!r} + "/train_run.py"
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_training_by_hand_writes_what_was_learnt(run_ranks, tmp_path):
    program, path = tmp_path / "program.py", tmp_path / "record.jsonl"
    program.write_text(SMALL_SET.format(bench=str(BENCH)))
    options = ["--strategy", "own", "--norm", "own_sync", "--epochs", "1", "--batch-size", "25"]
    done = run_ranks(2, program, *options, "--json", path)
    assert done.returncode == 0, done.stderr
    record = json.loads(path.read_text())
    assert record["status"] == "ok"
    changes = {"strategy": "own", "norm": "own_sync", "epochs": 1, "batch_size": 25}
    assert record["spec"]["parameters"] == ALONE | changes
    python, starter, *rest = shlex.split(record["command"])
    assert (python, starter, rest[0]) == ("python", str(BENCH / "start_ranks.py"), "--nproc-per-node=2")
    assert rest[1:] == [str(BENCH / "train_run.py"), *options, "--json", str(path)]
    assert len(record["values"]["accuracy"]) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("norm", cifar_cnn.NORMS)
def test_training_runs_on_a_gpu(run_ranks, norm):
    options = ["--device", "cuda", "--strategy", "ddp", "--norm", norm, "--epochs", "2"]
    done = run_ranks(torch.cuda.device_count(), BENCH / "train_run.py", *options)
    assert done.returncode == 0, done.stderr
