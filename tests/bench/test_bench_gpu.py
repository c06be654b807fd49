"""What only a GPU can show: clocks against CUDA events, NCCL with one rank, streams, memory, the described environment.

One GPU is enough. Skipped without one; tests/gpu/run_tests.py runs them without pytest.
"""

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from bench_cells import train_step_parameters

import collective
import train_step
from algorithms import stream_times
from harness import environment, failures, measure, peers, timing
from harness.process import Place

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

SLEEP_CYCLES = 20_000_000  # about 10 ms
MIB = 2**20


@pytest.fixture
def ranks():
    """One rank on the first GPU, in a group of NCCL."""
    device = peers.choose_device("cuda", 0)
    alone = peers.Ranks(0, 1, 0, device)
    peers.begin_group(alone, "nccl", dist.HashStore(), "gpu-test")
    yield alone
    peers.end_group()


def milliseconds(work) -> float:
    """Return the time of some work on the current stream by CUDA events."""
    begin, end = stream_times.timed_event(), stream_times.timed_event()
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def test_the_clock_of_an_iteration_agrees_with_cuda_events(ranks):
    """Events within the timed iteration: the frequency of the GPU changes between iterations."""
    begin, end = stream_times.timed_event(), stream_times.timed_event()

    def sleep() -> None:
        begin.record()
        torch.cuda._sleep(SLEEP_CYCLES)
        end.record()

    ratios = []
    for _ in range(9):
        by_clock = timing.time_block(sleep, None, 1, ranks)[0] / 1e6
        ratios.append(by_clock / begin.elapsed_time(end))
    assert begin.elapsed_time(end) > 1
    assert 0.999 < sorted(ratios)[4] < 1.1


def test_exposed_communication_is_what_outlasts_the_computation():
    """Communication on a second stream takes three sleeps, beside it one of computation: two are exposed."""
    side = torch.cuda.Stream()
    for _ in range(2):  # the first loads kernels
        events = stream_times.StepEvents()
        torch.cuda.synchronize()
        events.mark("first_call")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(3 * SLEEP_CYCLES)
        torch.cuda._sleep(SLEEP_CYCLES)
        events.mark("computed")
        torch.cuda.current_stream().wait_stream(side)
        events.mark("reduced")
        torch.cuda.synchronize()
    communication, exposed = events.nanoseconds()
    assert 0.60 < exposed / communication < 0.72


@pytest.mark.parametrize("strategy", ["ddp", "naive", "flat", "overlap", "bucketed"])
def test_stream_values_of_a_step_are_parts_of_it(ranks, strategy):
    """With one rank nothing is sent, but every event is recorded, in order."""
    wanted = train_step.Parameters(**train_step_parameters("lm_tiny", strategy, bucket_cap_mb=bucket_cap(strategy)))
    task = train_step.build_task(wanted, ranks)
    applied = train_step.apply_strategy(task.model, wanted, ranks)

    def step() -> None:
        task.model.zero_grad()
        task.loss_of(applied.forward(task.inputs), task.targets).backward()
        applied.finish()

    for _ in range(3):
        step()
    ablation = train_step.ablations(applied, step)["traced_step"]
    for _ in range(3):
        whole = milliseconds(ablation.run) * 1e6
        ablation.after()
    found = {name: values[-1] for name, values in ablation.parts().items()}
    assert 0 <= found["exposed_stream"] <= found["communication_stream"] <= whole


def bucket_cap(strategy: str) -> float | None:
    return 0.5 if strategy in ("ddp", "bucketed") else None


@pytest.mark.parametrize(
    "operation", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"]
)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_an_operation_of_nccl_is_exact_on_one_rank(ranks, operation, dtype):
    algorithm = "torch" if operation == "all_reduce" else None
    wanted = collective.Parameters(operation, 4 * MIB, dtype, algorithm)
    measured = collective.Measured([collective.OPERATIONS[operation](collective.message_of(wanted, ranks))()])
    checks = collective.check_before(wanted, measured, ranks)
    timing.time_block(lambda: measured.calls[0].start(False), measured.calls[0].reset, 3, ranks)
    collective.clear_for_windows(measured)
    collective.run_window(measured, 10)
    ranks.synchronize()
    checks |= collective.check_after(wanted, measured)
    assert checks == dict.fromkeys(checks, True)


def test_small_collectives_and_a_barrier_work_with_nccl(ranks):
    assert peers.gather_rows([1, 2**40], ranks) == [[1, 2**40]]
    assert peers.largest_over_ranks([-1, 5], ranks) == [-1, 5]
    assert peers.number_from_rank_0(7, ranks) == 7
    assert peers.true_on_all_ranks({"a": True, "b": False}, ranks) == {"a": True, "b": False}
    peers.barrier(ranks)


def test_groups_of_nccl_and_gloo_follow_each_other():
    device = peers.choose_device("cuda", 0)
    store, alone = dist.HashStore(), peers.Ranks(0, 1, 0, device)
    for number, backend in enumerate(["nccl", "gloo", "nccl", "nccl"]):
        peers.begin_group(alone, backend, store, f"group/{number}")
        assert peers.gather_rows([number], alone) == [[number]]
        peers.end_group()


def test_peaks_of_memory_cover_what_was_allocated_since_the_reset(ranks):
    before = torch.empty(512 * MIB, dtype=torch.uint8, device=ranks.device)
    del before
    others = torch.cuda.memory_allocated(ranks.device) / MIB  # workspaces of cuBLAS, for example
    has_peak_rss = measure.reset_peaks(ranks)
    held = torch.empty(256 * MIB, dtype=torch.uint8, device=ranks.device)
    freed = torch.empty(64 * MIB, dtype=torch.uint8, device=ranks.device)
    del freed
    found = {name: values and values[0] / MIB for name, values in measure.peak_fields(ranks, has_peak_rss).items()}
    assert 320 <= found["peak_allocated_bytes"] - others < 330, (found, others)
    assert found["peak_allocated_bytes"] <= found["peak_reserved_bytes"] <= found["device_used_bytes"]
    del held
    measure.release_memory(ranks)
    assert torch.cuda.memory_reserved(ranks.device) / MIB - others < 256


def test_a_full_gpu_is_out_of_memory(ranks):
    free, _ = torch.cuda.mem_get_info(ranks.device)
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2 * free, dtype=torch.uint8, device=ranks.device)
    assert failures.classify(raised.value) == "out_of_memory"


def test_the_environment_of_a_gpu_is_described(ranks):
    gpu = environment.describe_gpu(ranks.device)
    place = Place(0, 0, "host", gpu["uuid"], None, [0], None, None, gpu)
    found = environment.describe([place], ranks.device, 1)
    assert [name for name in ("cuda", "nccl", "cudnn", "torch") if not found[name]] == []
    assert gpu["name"] == torch.cuda.get_device_name(0)
    assert gpu["uuid"].startswith("GPU-")
    assert gpu["memory_bytes"] > 2**30
    assert any("libcudart" in path or "libcuda" in path for path in found["libraries"])
    assert any("libnccl" in path for path in found["libraries"])
