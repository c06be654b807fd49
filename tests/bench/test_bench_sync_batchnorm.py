"""Batch norm over all ranks: against one process in fp64, the number of its collectives, and its benchmark."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from bench_cells import BENCH

import sync_batchnorm
from algorithms import batchnorm
from harness.peers import Ranks

pytestmark = pytest.mark.torch

HERE = Path(__file__).parent
SIZES = [f"hidden {hidden} batch {batch}" for hidden in (128, 256, 512, 1024) for batch in (32, 64)]
OTHERS = ["uneven", "an empty rank", "image", "without affine", "momentum none"]
NUM_RANKS = (1, 4)


def measure_cases(run_ranks, num_ranks: int, device: str, folder: Path) -> dict:
    """Run all cases on `num_ranks` ranks, and return the largest differences over ranks by case and name."""
    path = folder / f"{num_ranks}-{device}.json"
    done = run_ranks(num_ranks, HERE / "sync_batchnorm_cases.py", device, path)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def outcomes(run_ranks, tmp_path_factory) -> dict[int, dict]:
    folder = tmp_path_factory.mktemp("cases")
    return {num_ranks: measure_cases(run_ranks, num_ranks, "cpu", folder) for num_ranks in NUM_RANKS}


def differences(found: dict[str, float]) -> dict[str, float]:
    return {what: value for what, value in found.items() if what not in ("forward", "backward", "eval")}


@pytest.mark.parametrize("case", [*SIZES, *OTHERS])
@pytest.mark.parametrize("num_ranks", NUM_RANKS)
def test_outputs_gradients_and_statistics_are_those_of_one_process_on_the_joined_batch(outcomes, num_ranks, case):
    for what, difference in differences(outcomes[num_ranks][case]).items():
        assert difference < 1e-4, what


@pytest.mark.parametrize("case", ["offset", "uneven offset"])
@pytest.mark.parametrize("num_ranks", NUM_RANKS)
def test_a_mean_ten_thousand_times_the_spread_leaves_the_variance_right(outcomes, num_ranks, case):
    """In fp32, 1e4 is known to 5e-4 and its square, 1e8, to 4: a variance from sums of squares would be noise.

    The gradient of the weight sums the mean's error over all rows. Evaluation is torch's own function.
    """
    found = outcomes[num_ranks][case]
    assert found["running_var"] < 1e-3
    assert found["weight gradient"] < 3e-2
    for what in ("output", "input gradient", "bias gradient", "running_mean"):
        assert found[what] < 3e-3, what


@pytest.mark.parametrize("case", [*SIZES, *OTHERS, "offset"])
def test_there_is_one_collective_forward_and_one_backward_and_none_in_evaluation(outcomes, case):
    found = outcomes[4][case]
    assert (found["forward"], found["backward"], found["eval"]) == (1, 1, 0)


def test_a_rank_alone_communicates_nothing(outcomes):
    for found in outcomes[1].values():
        assert (found["forward"], found["backward"], found["eval"]) == (0, 0, 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cases_hold_on_a_gpu(run_ranks, tmp_path):
    found = measure_cases(run_ranks, 2, "cuda", tmp_path)
    for case in (*SIZES, *OTHERS):
        assert max(differences(found[case]).values()) < 1e-4, case
        assert (found[case]["forward"], found[case]["backward"]) == (1, 1)


def test_gradients_are_those_of_finite_differences():
    layer = batchnorm.SyncBatchNorm(3).double()
    x = torch.randn(5, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    assert torch.autograd.gradcheck(layer, (x,))
    weights = (x, layer.weight, layer.bias)
    assert torch.autograd.gradcheck(lambda *_: layer(x), weights)


def test_input_in_bf16_is_normalised_in_fp32():
    layer = batchnorm.SyncBatchNorm(4)
    x = (torch.randn(64, 4, generator=torch.Generator().manual_seed(1)) + 8).bfloat16().requires_grad_()
    output = layer(x)
    output.sum().backward()
    assert output.dtype == x.grad.dtype == torch.bfloat16
    assert layer.running_mean.dtype == torch.float32
    assert torch.allclose(layer.running_mean, 0.1 * x.detach().float().mean(0), atol=1e-5)


def test_weights_go_from_torch_s_batch_norm_and_back():
    theirs = torch.nn.BatchNorm1d(3)
    theirs(torch.randn(8, 3))
    ours = batchnorm.SyncBatchNorm(3)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(4, 3)
    assert torch.equal(ours.eval()(x), theirs.eval()(x))


def test_a_model_is_converted_with_its_parameters_and_statistics():
    norm = torch.nn.BatchNorm2d(3, eps=1e-3, momentum=0.2)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1), torch.nn.Sequential(norm)).eval()
    batchnorm.convert(model)
    ours = model[1][0]
    assert isinstance(ours, batchnorm.SyncBatchNorm)
    assert (ours.eps, ours.momentum, ours.training) == (1e-3, 0.2, False)
    assert ours.weight is norm.weight
    assert ours.running_var is norm.running_var


def test_module_refuses_what_torch_refuses_in_words(wording):
    with wording.raises(ValueError):
        batchnorm.SyncBatchNorm(3)(torch.randn(1, 3))
    with wording.raises(ValueError):
        batchnorm.SyncBatchNorm(3)(torch.randn(2, 4))
    with pytest.raises(ValueError, match="track_running_stats=False"):
        batchnorm.convert(torch.nn.Sequential(torch.nn.BatchNorm1d(3, track_running_stats=False)))


CELL = {"implementation": "own", "batch_size": 32, "hidden": 128, "dtype": "fp32"}


def make_ranks(rank: int = 0, world_size: int = 1) -> Ranks:
    return Ranks(rank, world_size, rank, torch.device("cpu"))


REFUSED = [{"implementation": "apex"}, {"implementation": "torch"}, {"dtype": "bf16"}, {"hidden": 0}, {"batch_size": 1}]


@pytest.mark.parametrize("changes", REFUSED, ids=str)
def test_benchmark_refuses_in_words(changes, wording):
    with wording.raises(ValueError):
        sync_batchnorm.build(CELL | changes, make_ranks())


def test_bytes_kept_for_backward_are_exact():
    """Input, and per feature weight, mean and inverse deviation, and one count; gradients of weight, bias and input."""
    layer = sync_batchnorm.make_layer(sync_batchnorm.Parameters(**CELL))
    tensors = sync_batchnorm.Tensors(layer, torch.randn(32, 128, requires_grad=True), torch.randn(32, 128))
    assert sync_batchnorm.forward_and_backward_counting(tensors) == 4 * (32 * 128 + 3 * 128 + 1)
    assert sync_batchnorm.layer_bytes(tensors) == {
        "parameter_bytes": 4 * 2 * 128,
        "gradient_bytes": 4 * (2 * 128 + 32 * 128),
    }


def test_each_iteration_leaves_a_forward_and_a_backward_time():
    workload = sync_batchnorm.build(CELL, make_ranks())
    for _ in range(3):
        workload.before_iteration()
        workload.iterate()
    parts = workload.parts()
    assert sorted(parts) == ["backward", "forward"]
    assert all(len(durations) == 3 and min(durations) > 0 for durations in parts.values())


def test_durations_that_are_kept_are_bounded_and_the_latest(monkeypatch):
    monkeypatch.setattr(sync_batchnorm, "MAX_DURATIONS", 4)
    passes = sync_batchnorm.Passes()
    for duration in range(23):
        passes.forward_ns.append(duration)
        passes.backward_ns.append(2 * duration)
    assert passes.lists() == {"forward": [19, 20, 21, 22], "backward": [38, 40, 42, 44]}


SHORT = ["--min-seconds", "0.005", "--max-seconds", "0.02", "--min-samples", "6", "--max-warmup-seconds", "0.02"]


def test_benchmark_by_hand_writes_errors_and_bytes(run_ranks, tmp_path):
    path = tmp_path / "record.jsonl"
    done = run_ranks(2, BENCH / "sync_batchnorm.py", "--batch-size", "8", "--hidden", "16", *SHORT, "--json", path)
    assert done.returncode == 0, done.stderr
    record = json.loads(path.read_text())
    assert record["status"] == "ok"
    assert record["spec"]["parameters"] == CELL | {"batch_size": 8, "hidden": 16}
    assert record["checks"] == {"input_gradient_is_right": True, "output_is_right": True}
    assert 0 < record["values"]["largest_output_error"] < 1e-5
    assert 0 < record["values"]["largest_input_gradient_error"] < 1e-5
    assert record["memory"]["saved_bytes"] == 4 * (8 * 16 + 3 * 16 + 1)
    for forward, backward, whole in zip(*record["parts_ns"].values(), record["samples_ns"], strict=True):
        assert len(forward) == len(backward) == len(whole)
        assert all(0 < f + b < w for f, b, w in zip(forward, backward, whole, strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("implementation", sync_batchnorm.IMPLEMENTATIONS)
def test_benchmark_runs_on_a_gpu(run_ranks, implementation):
    options = ["--device", "cuda", "--implementation", implementation, *SHORT]
    done = run_ranks(torch.cuda.device_count(), BENCH / "sync_batchnorm.py", *options)
    assert done.returncode == 0, done.stderr
