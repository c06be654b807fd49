"""Parts of iterations and ablated iterations: what the timed loops add to the record."""

from types import SimpleNamespace

import pytest

from harness import sampling

MS = 1_000_000


@pytest.mark.parametrize(
    ("median_ms", "elapsed_s", "num_runs", "rounds"),
    [
        (10, 3, 3, 30),  # 30 % of 3 s, 30 ms a round
        (1000, 2, 3, 3),  # at least 3
        (0.01, 10, 2, 200),  # at most 200
    ],
)
def test_rounds_take_a_third_of_the_sampling_time(median_ms, elapsed_s, num_runs, rounds):
    assert sampling.plan_rounds(median_ms * MS, int(elapsed_s * 1e9), num_runs) == rounds


@pytest.fixture
def alone(monkeypatch):
    """One rank without a process group."""
    pytest.importorskip("torch")
    from harness import peers

    monkeypatch.setattr(peers, "number_from_rank_0", lambda value, ranks: value)
    monkeypatch.setattr(peers, "barrier", lambda ranks: None)
    monkeypatch.setattr(peers, "largest_over_ranks", lambda values, ranks: values)
    return SimpleNamespace(rank=0, world_size=1, synchronize=lambda: None)


def test_whole_and_ablated_iterations_take_turns_and_the_first_round_does_not_count(alone):
    from harness import timing

    calls = []
    workload = timing.Workload(
        iterate=lambda: calls.append("step"),
        check=dict,
        ablations={"no_sync": timing.Ablation(lambda: calls.append("no_sync"))},
    )
    samples = timing.Blocks(local=[MS], slowest=[MS], ordered=[1000 * MS], elapsed=MS)
    durations = timing.time_ablations(workload, alone, samples)
    assert {name: len(values) for name, values in durations.items()} == {"step": 3, "no_sync": 3}
    assert calls[:6] == ["step", "no_sync", "no_sync", "step", "step", "no_sync"]
    assert len(calls) == 2 * 4
    assert timing.time_ablations(timing.Workload(iterate=calls.clear, check=dict), alone, samples) == {}


def test_an_iteration_may_tell_parts_of_itself_and_is_read_when_the_device_is_idle(alone):
    from harness import timing

    told, calls = [], []
    alone.synchronize = lambda: calls.append("synchronize")

    def read() -> None:
        calls.append("read")
        told.append(len(told))

    traced = timing.Ablation(lambda: calls.append("traced"), after=read, parts=lambda: {"inside": told})
    workload = timing.Workload(iterate=lambda: None, check=dict, ablations={"traced_step": traced})
    samples = timing.Blocks(local=[MS], slowest=[MS], ordered=[1000 * MS], elapsed=MS)
    durations = timing.time_ablations(workload, alone, samples)
    assert durations["inside"] == [1, 2, 3]  # as for the times, the first round does not count
    assert len(durations["traced_step"]) == 3
    begin = calls.index("traced")
    assert calls[begin : begin + 3] == ["traced", "synchronize", "read"]


def test_a_part_that_one_rank_cannot_tell_is_left_out_of_the_record(alone, monkeypatch):
    from harness import measure, peers

    monkeypatch.setattr(peers, "gather_rows", lambda values, ranks: [[7] * len(values), values])
    assert measure.part_fields({"step": [5, 6], "exposed_stream": [3, -1]}, alone) == {"step": [[7, 7], [5, 6]]}
    assert measure.part_fields({"exposed_stream": [-1]}, alone) is None


def test_a_fixed_number_of_iterations_is_timed_without_warmup(alone):
    from harness import timing

    calls = []
    workload = timing.Workload(iterate=lambda: calls.append(1), check=dict, num_iterations=3)
    blocks = timing.take_fixed(workload, alone)
    assert (len(calls), len(blocks.local), blocks.stop) == (3, 3, "fixed")
