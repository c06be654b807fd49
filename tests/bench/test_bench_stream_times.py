"""Events around gradient synchronization: when they are recorded, and derived times. One test needs a GPU."""

import itertools

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from algorithms import gradient_synchronization, stream_times

pytestmark = pytest.mark.torch


class FakeEvent:
    """Takes the time from a list when it is recorded, as a stream would when it comes to it."""

    def __init__(self, clock) -> None:
        self.clock = clock

    def record(self) -> None:
        self.ms = next(self.clock)

    def elapsed_time(self, later: "FakeEvent") -> float:
        return later.ms - self.ms


@pytest.fixture
def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))


@pytest.fixture
def log(monkeypatch) -> list[str]:
    """What own_strategies calls, and what is marked, in their order."""
    calls = []
    all_reduce, mark = dist.all_reduce, stream_times.StepEvents.mark

    def logged_all_reduce(*arguments, **options):
        calls.append("all_reduce")
        return all_reduce(*arguments, **options)

    def logged_mark(events, name):
        calls.append(name)
        mark(events, name)

    monkeypatch.setattr(dist, "all_reduce", logged_all_reduce)
    monkeypatch.setattr(stream_times.StepEvents, "mark", logged_mark)
    monkeypatch.setattr(
        gradient_synchronization.GradientSync, "wait", lambda sync: (calls.append("wait"), sync.works.clear())
    )
    return calls


def train(model: torch.nn.Module, sync: gradient_synchronization.GradientSync) -> None:
    model.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    sync.finish()


def test_overlapped_calls_are_marked_before_the_first_and_around_the_wait(single_rank, model, log):
    sync = gradient_synchronization.make("bucketed", model, 80 / 2**20)  # 80 bytes: a layer
    streams = stream_times.SyncStreams(sync, lambda: FakeEvent(iter([10.0])))
    streams.run(lambda: train(model, sync))
    assert log == ["first_call", "all_reduce", "first_call", "all_reduce", "computed", "wait", "reduced"]


@pytest.mark.parametrize(("strategy", "num_calls"), [("flat", 1), ("naive", 4)])
def test_calls_after_backward_are_marked_before_the_first_and_after_the_last(
    single_rank, model, log, strategy, num_calls
):
    sync = gradient_synchronization.make(strategy, model, None)
    streams = stream_times.SyncStreams(sync, lambda: FakeEvent(iter([10.0])))
    streams.run(lambda: train(model, sync))
    assert log == ["first_call", "all_reduce"] * num_calls + ["reduced"]


def test_exposed_is_what_of_the_exchange_lies_after_the_last_gradient(single_rank, model):
    """Milliseconds of the events: the first call at 2, the last gradient at 7.5, the last result at 9.25."""
    clock = iter([2.0, 7.5, 9.25])
    sync = gradient_synchronization.make("overlap", model, None)
    streams = stream_times.SyncStreams(sync, lambda: FakeEvent(clock))
    streams.run(lambda: train(model, sync))
    assert streams.read() == (7_250_000, 1_750_000)


def test_all_of_an_exchange_after_backward_is_exposed(single_rank, model):
    clock = iter([2.0, 9.25])
    sync = gradient_synchronization.make("flat", model, None)
    streams = stream_times.SyncStreams(sync, lambda: FakeEvent(clock))
    streams.run(lambda: train(model, sync))
    assert streams.read() == (7_250_000, 7_250_000)


def test_each_step_is_traced_anew_and_others_are_not(single_rank, model, log):
    clock = itertools.count(1.0)
    sync = gradient_synchronization.make("flat", model, None)
    streams = stream_times.SyncStreams(sync, lambda: FakeEvent(clock))
    streams.run(lambda: train(model, sync))
    log.clear()
    train(model, sync)
    assert log == ["all_reduce"]
    streams.run(lambda: train(model, sync))
    assert (streams.read(), next(clock)) == ((1_000_000, 1_000_000), 5.0)


def test_a_step_without_exchange_is_unknown_and_not_zero(single_rank, model):
    sync = gradient_synchronization.make("flat", model, None)
    streams = stream_times.SyncStreams(sync, lambda: FakeEvent(itertools.count(1.0)))
    with sync.no_sync():
        streams.run(lambda: train(model, sync))
    assert streams.read() == (stream_times.UNKNOWN, stream_times.UNKNOWN)


def test_torch_s_ddp_tells_each_traced_step_and_samples_as_before_in_between(single_rank):
    """On a CPU its timer is the host's clock; the calls are those that are made on a GPU."""
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(8)])
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.03)
    streams = stream_times.DdpStreams(ddp)

    def step() -> None:
        ddp(torch.ones(2, 64)).sum().backward()

    for _ in range(12):  # torch collects the first ten anyway
        step()
    found = []
    for _ in range(3):
        streams.run(step)
        found.append(streams.read())
        said = ddp._get_ddp_logging_data()["iteration"]
        step()
        step()
        assert ddp._get_ddp_logging_data()["iteration"] == said
    assert len(set(found)) == 3
    for communication, exposed in found:
        assert 0 <= exposed < communication


def test_what_ddp_does_not_tell_is_unknown(single_rank, model):
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    streams = stream_times.DdpStreams(ddp)
    streams.run(lambda: None)
    assert streams.read() == (stream_times.UNKNOWN, stream_times.UNKNOWN)


def test_the_parts_of_a_traced_step_have_one_entry_for_each(single_rank, model):
    clock = itertools.count(1.0)
    sync = gradient_synchronization.make("flat", model, None)
    streams = stream_times.SyncStreams(sync, lambda: FakeEvent(clock))
    ablation = stream_times.traced_step(lambda: train(model, sync), streams)
    for _ in range(2):
        ablation.run()
        ablation.after()
    assert ablation.parts() == {"communication_stream": [1_000_000] * 2, "exposed_stream": [1_000_000] * 2}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_events_of_a_gpu_are_in_milliseconds_of_the_stream():
    """A kernel that sleeps lies between the marks. Not yet run on a GPU."""
    events = stream_times.StepEvents()
    events.mark("first_call")
    torch.cuda._sleep(50_000_000)
    events.mark("computed")
    torch.cuda._sleep(50_000_000)
    events.mark("reduced")
    torch.cuda.synchronize()
    communication, exposed = events.nanoseconds()
    assert 1_000_000 < exposed < communication < 1_000_000_000
