"""Memory in the record of a cell, and the state that one cell leaves behind for the next."""

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from bench_cells import SHORT_SAMPLING

from harness import measure, process, sampling, timing
from harness.failures import Progress
from harness.peers import Ranks
from workloads import weights

pytestmark = pytest.mark.torch

LARGE_BYTES = 2**26  # more than what malloc ever keeps for itself (M_MMAP_THRESHOLD, 32 MiB)
RANKS = Ranks(0, 1, 0, torch.device("cpu"))


def take_much() -> None:
    torch.ones(LARGE_BYTES // 4)  # freed at once; so large a piece is given back to the system


def measure_taking_much(phase: str) -> dict:
    """Measure a cell that takes much memory for a moment in one phase; return the record's memory."""

    def act(own: str):
        return take_much if own == phase else lambda: None

    def check_in(own: str):
        return lambda: {"is_right": act(own)() is None and phase != "wrong from the start"}

    def build(parameters: dict, ranks: Ranks) -> timing.Workload:
        act("setup")()
        return timing.Workload(
            iterate=act("iteration"),
            check=check_in("check"),
            check_before=check_in("check before"),
            has_windows=True,
            ablations={"no_sync": timing.Ablation(act("ablation"))},
        )

    spec = {"backend": "gloo", "parameters": {}, "sampling": SHORT_SAMPLING}
    outcome = measure.measure_cell(SimpleNamespace(build=build), spec, RANKS, dist.HashStore(), "cell", Progress())
    return outcome.fields["memory"]


@pytest.mark.skipif(not process.reset_peak_rss(), reason="the kernel does not count the peak anew")
@pytest.mark.parametrize("phase", ["setup", "check before", "iteration", "check", "ablation"])
def test_the_peak_of_memory_is_that_of_steps_and_of_nothing_before_or_after_them(phase, monkeypatch):
    monkeypatch.setattr(sampling, "plan_rounds", lambda *_: 3)
    take_much()
    process.release_memory()
    assert process.reset_peak_rss()
    before = process.peak_rss_bytes()
    [peak] = measure_taking_much(phase)["peak_rss_bytes"]
    assert (peak - before > LARGE_BYTES * 0.9) == (phase == "iteration")


def test_where_nothing_was_timed_there_is_no_peak():
    memory = measure_taking_much("wrong from the start")
    peaks = ("peak_rss_bytes", "peak_allocated_bytes", "peak_reserved_bytes", "device_used_bytes")
    assert {name: memory[name] for name in peaks} == dict.fromkeys(peaks)


def test_each_cell_is_compiled_as_if_it_were_the_first_of_its_launch():
    """Of one process torch would compile the second shape for all shapes, and the third not at all."""
    graphs = []

    def compiler(graph, inputs):
        graphs.append(inputs[0].shape)
        return graph.forward

    def double(batch: torch.Tensor) -> torch.Tensor:
        return batch * 2

    for batch_size in (8, 16, 32):
        torch.compile(double, backend=compiler)(torch.ones(batch_size, 4))
        measure.release_memory(RANKS)
    assert graphs == [(8, 4), (16, 4), (32, 4)]


def test_a_number_that_is_not_finite_is_null_in_the_record():
    assert weights.finite(torch.tensor(float("nan"))) is None
    assert weights.finite(torch.tensor(float("inf"))) is None
    assert weights.finite(torch.tensor(0.5)) == 0.5
    assert weights.finite(float("-inf")) is None
    assert weights.finite(None) is None


def test_bytes_of_a_model_are_those_of_its_weights_of_the_trained_and_of_the_optimizer():
    model = torch.nn.Sequential(torch.nn.Linear(3, 5, bias=False), torch.nn.Linear(5, 2, bias=False))
    model[0].weight.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    sizes = weights.model_bytes(model, optimizer)
    assert sizes == {"parameter_bytes": 4 * 25, "gradient_bytes": 4 * 10, "optimizer_bytes": 4 * 10}


@pytest.mark.parametrize("is_other", [False, True])
def test_ranks_that_differ_in_one_bit_do_not_agree(monkeypatch, is_other):
    """The other rank of two has the same tensors, but perhaps for the last bit of one."""
    tensors = [torch.tensor([[1.0, -2.0]]), torch.tensor([3.0])]
    other = [tensor.clone() for tensor in tensors]
    other[1].view(torch.int32).add_(int(is_other))
    others_sums = torch.stack([tensor.reshape(-1).view(torch.int32).sum() for tensor in other])

    def all_reduce(shared: torch.Tensor, op) -> None:
        join = torch.maximum if op == dist.ReduceOp.MAX else torch.minimum
        shared.copy_(join(shared, others_sums))

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    monkeypatch.setattr(weights.peers, "group_device", lambda ranks: torch.device("cpu"))
    assert weights.are_the_same(tensors, RANKS) is not is_other
