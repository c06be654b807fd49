"""Trace gradient synchronization on the GPU with CUDA events: total and exposed communication of a step.

Two values of a step, in nanoseconds on one rank:
* communication_stream: from the start of the first call until the result of the last one can be used, gaps included.
* exposed_stream: the part of that after the last gradient was computed, for which the step waited on the device.

Custom strategies record three events on the current stream (the calls are queued behind it, and it waits for them).
torch's DistributedDataParallel records events and reports them as logging data, in every iteration only while a step is
traced, by the sample rate of that data (torch/nn/parallel/distributed.py; the events are in
torch/csrc/distributed/c10d/reducer_cuda.cpp). No hook is registered, which would change the measurement. Traced steps
are separate from timed ones.

The two differ slightly. The copy of gradients into the first bucket is before the first event of both. DDP's last event
is after it has copied the buckets back to the gradients (not with gradient_as_bucket_view); gradients of custom
strategies are the buckets. So DDP's values include a copy of all gradients within the device.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from algorithms.gradient_synchronization import GradientSync
from harness.timing import Ablation

NAMES = ("communication_stream", "exposed_stream")
UNKNOWN = -1  # instead of nanoseconds: a part with it on any rank is omitted from the record
DDP_SAMPLE_RATE = 100  # torch's default, kDDPRuntimeLoggingSampleRate in reducer.hpp
NS_PER_MS = 1e6


def timed_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


@dataclass
class StepEvents:
    """Events of one step by their names, each recorded on the current stream when it is first marked."""

    new_event: Callable[[], torch.cuda.Event] = timed_event
    events: dict[str, torch.cuda.Event] = field(default_factory=dict)

    def mark(self, name: str) -> None:
        if name not in self.events:
            self.events[name] = self.new_event()
            self.events[name].record()

    def nanoseconds(self) -> tuple[int, int]:
        """Return (communication, exposed). The device must have reached all events.

        If nothing was marked as `computed`, all calls came after backward, and all communication is exposed.
        """
        if not {"first_call", "reduced"} <= self.events.keys():
            return UNKNOWN, UNKNOWN
        begin, end = self.events["first_call"], self.events["reduced"]
        computed = self.events.get("computed", begin)
        return round(begin.elapsed_time(end) * NS_PER_MS), round(computed.elapsed_time(end) * NS_PER_MS)


class SyncStreams:
    """Traces steps of a custom strategy."""

    def __init__(self, sync: GradientSync, new_event: Callable[[], torch.cuda.Event] = timed_event) -> None:
        self.sync, self.new_event = sync, new_event
        self.events = StepEvents()

    def run(self, step: Callable[[], None]) -> None:
        self.sync.events = self.events = StepEvents(self.new_event)
        try:
            step()
        finally:
            self.sync.events = None

    def read(self) -> tuple[int, int]:
        return self.events.nanoseconds()


class DdpStreams:
    """Traces steps of torch's DistributedDataParallel. (On a CPU its timer reads the host's clock.)"""

    def __init__(self, ddp: nn.parallel.DistributedDataParallel) -> None:
        self.ddp = ddp

    def run(self, step: Callable[[], None]) -> None:
        self.ddp._set_ddp_runtime_logging_sample_rate(1)
        step()

    def read(self) -> tuple[int, int]:
        """Return (communication, exposed) of the last step, and reset torch's sample rate."""
        self.ddp.logger.set_runtime_stats_and_log()  # otherwise they are computed at the start of the next forward pass
        self.ddp._set_ddp_runtime_logging_sample_rate(DDP_SAMPLE_RATE)
        logged = self.ddp._get_ddp_logging_data()
        # 0 means unknown for the communication, and none for the overlap.
        communication = logged.get("backward_comm_time", 0)
        if communication <= 0:
            return UNKNOWN, UNKNOWN
        return communication, max(0, communication - logged.get("backward_compute_comm_overlap_time", 0))


def traced_step(step: Callable[[], None], streams: SyncStreams | DdpStreams) -> Ablation:
    """Return the whole step with the two values, to alternate with the other ablations."""
    found: dict[str, list[int]] = {name: [] for name in NAMES}

    def note() -> None:
        for name, nanoseconds in zip(NAMES, streams.read(), strict=True):
            found[name].append(nanoseconds)

    return Ablation(lambda: streams.run(step), after=note, parts=lambda: found)
