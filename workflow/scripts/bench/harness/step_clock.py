"""Marks between the optimizer steps of a user's training script, and its end at the same step on every rank.

A step ends when the first optimizer that has stepped steps again (`register_optimizer_step_post_hook`, public since
torch 2.2). On a GPU a mark is an event of the current stream, so nothing waits for the device; on a CPU it is the
monotonic clock. With a fixed number of steps, ranks exchange nothing until the last one. Otherwise rank 0 decides, at
steps that all ranks know in advance, how many follow; the interval after such a step is not timed.
"""

import json
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from harness import sampling
from harness.failures import Progress
from harness.process import peak_rss_bytes

MIN_BLOCK_SHARE = 0.25  # of the steps so far: between two decisions
MIN_EVEN_RATIO = 0.9  # of the timed steps, see is_uneven
NUM_ROUNDS = 20  # of a step with and one without gradient synchronization; the first round is not counted


class EndOfMeasurement(BaseException):
    """Ends the script after its last timed step. Handlers of Exception do not catch it."""


@dataclass
class Times:
    """Nanoseconds between the marks of one rank. elapsed: of all timed steps, with the intervals that are not timed."""

    warmup: list[int]
    samples: list[int]
    elapsed: int


class StepClock:
    """The clock of one rank. steps: numbers of steps, `warmup` and `measure`; None if `plan` decides.

    ask: returns rank 0's answer to a question of all ranks, which on rank 0 is that of a function. on_end: called after
    the last step, before the script ends. on_fault: called with what makes the rank useless. switch: switches gradient
    synchronization, if steps without it follow the timed ones.
    """

    def __init__(
        self,
        steps: dict[str, int] | None,
        plan: sampling.SamplingPlan,
        ask: Callable[[str, Callable[[], dict]], dict],
        on_end: Callable[[], None],
        on_fault: Callable[[str], None],
        progress: Progress,
        switch: Callable[[bool], None] | None = None,
    ):
        self.steps, self.plan, self.ask, self.on_end, self.on_fault = steps, plan, ask, on_end, on_fault
        self.progress, self.switch = progress, switch
        self.num_timed: int | None = None  # steps up to the last timed one, once it is known
        self.pid = os.getpid()
        self.optimizer: weakref.ref | None = None
        self.size, self.sizes = 0, weakref.WeakKeyDictionary()  # parameters: of that optimizer, and of each
        self.larger: Counter[int] = Counter()  # steps of optimizers with more parameters, by the number of marks before
        self.marks: list[int | torch.cuda.Event] = []
        self.known: list[int] = []  # times between marks that were read
        self.untimed: set[int] = set()  # numbers of the steps that follow a decision
        self.num_warmup = steps["warmup"] if steps else None
        self.next_stop = steps["warmup"] + steps["measure"] if steps else 1
        self.warmup_stop: str | None = None
        self.sampling_stop = "fixed" if steps else None
        self.has_ended = False
        self.first_ns = self.warm_ns = 0  # clock of the host at the first step, and at the end of the warm-up
        self.place: dict = {}
        self.memory: list[int] = []
        # Disabled for a script that compiles its optimizer's step: the hook is no part of its graph.
        self.hook = register_optimizer_step_post_hook(torch.compiler.disable(self.on_step))

    def on_step(self, optimizer: torch.optim.Optimizer, _args: tuple, _kwargs: dict) -> None:
        """Mark the end of a step. Raises EndOfMeasurement after the last one."""
        if os.getpid() != self.pid:
            self.on_fault("a process that the script forked takes optimizer steps. Remove it: Regatta starts the ranks")
            return
        if self.has_ended:
            self.on_fault(
                "the script went on after the end of the measurement: it catches BaseException, for instance with a"
                " bare `except:`. Write `except Exception:`"
            )
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return  # a step that is recorded for a CUDA graph does not run
        if self.optimizer is None or self.optimizer() is None:
            self.optimizer = weakref.ref(optimizer)
            self.size = self.size_of(optimizer)
        if self.optimizer() is not optimizer:
            self.larger[len(self.marks)] += self.size_of(optimizer) > self.size
            return
        if not self.marks:
            self.note_place(optimizer)
        self.marks.append(self.mark())
        if len(self.marks) == self.next_stop:
            self.stop_or_go_on()
        if self.num_timed and not self.has_ended:  # the next step is without synchronization in every second case
            self.switch((len(self.marks) - self.num_timed) % 2 == 0)
        if len(self.marks) == self.num_warmup:
            self.warm_ns, self.progress.phase = time.monotonic_ns(), "measure"

    def size_of(self, optimizer: torch.optim.Optimizer) -> int:
        """Return how many parameters an optimizer has."""
        if optimizer not in self.sizes:
            self.sizes[optimizer] = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
        return self.sizes[optimizer]

    def is_uneven(self) -> bool:
        """Return whether the steps of larger optimizers do not follow the timed ones in turn.

        Then the clock is not the training step, but for instance that of an evaluation. A few steps may be skipped.
        """
        counts = Counter(self.larger[step] for step in range(self.num_warmup, self.num_timed))
        return counts.most_common(1)[0][1] < MIN_EVEN_RATIO * counts.total()

    def note_place(self, optimizer: torch.optim.Optimizer) -> None:
        """Note device and process group at the first step: those that the script trains with."""
        self.first_ns, self.progress.phase = time.monotonic_ns(), "warmup"
        devices = {p.device for group in optimizer.param_groups for p in group["params"]}
        on_gpu = sorted((device for device in devices if device.type == "cuda"), key=lambda device: device.index)
        self.device = on_gpu[0] if on_gpu else torch.device("cpu")
        has_group = dist.is_available() and dist.is_initialized()
        self.place = {
            "device": str(self.device),
            "group": [dist.get_rank(), dist.get_world_size(), dist.get_backend()] if has_group else None,
        }

    def mark(self) -> "int | torch.cuda.Event":
        if self.device.type != "cuda":
            return time.monotonic_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def stop_or_go_on(self) -> None:
        """End the script, or learn from rank 0 how many steps follow."""
        if self.steps is None and not self.num_timed:
            answer = self.ask(f"steps/{len(self.marks)}", self.decide)
            self.num_warmup, self.warmup_stop, self.sampling_stop = (
                answer[name] for name in ("num_warmup", "warmup_stop", "sampling_stop")
            )
            self.next_stop += answer["num_steps"]
            self.untimed.add(len(self.marks) + 1)
            if answer["num_steps"]:
                return
        self.read_times()  # waits for the device: the timed steps are over
        if not self.num_timed:
            self.num_timed, self.memory = len(self.marks), self.peaks()
            if self.switch:
                self.next_stop += 2 * (1 + NUM_ROUNDS)
                return
        self.has_ended = True
        self.on_end()
        raise EndOfMeasurement("Regatta has measured enough steps")

    def decide(self) -> dict:
        """Return rank 0's decision: how many steps follow, 0 to end, and when the warm-up was over."""
        self.read_times()
        now, num_steps = time.monotonic_ns(), 0
        if self.num_warmup is None:
            num_steps, self.warmup_stop = sampling.next_warmup_block(self.known, now - self.first_ns, self.plan)
            if not num_steps:
                self.num_warmup, self.warm_ns = len(self.marks), now
        if self.num_warmup is not None:
            num_steps = self.next_block(now)
        names = ("num_warmup", "warmup_stop", "sampling_stop")
        return {"num_steps": num_steps, **{name: getattr(self, name) for name in names}}

    def next_block(self, now: int) -> int:
        """Return how many steps follow. One of them is not timed."""
        samples = self.times().samples
        size, self.sampling_stop = sampling.next_sampling_block(
            samples, sorted(samples), now - self.warm_ns, self.plan, self.known[-1]
        )
        least = max(self.plan.min_samples - len(samples), int(MIN_BLOCK_SHARE * len(samples)))
        return 1 + max(size, least) if size else 0

    def read_times(self) -> None:
        """Read the times of all marks so far; waits until the device has passed the last one."""
        if self.device.type == "cuda":
            self.marks[-1].synchronize()
        for before, after in zip(self.marks[len(self.known) :], self.marks[len(self.known) + 1 :], strict=False):
            is_event = self.device.type == "cuda"
            self.known.append(round(before.elapsed_time(after) * 1e6) if is_event else after - before)

    def times(self) -> Times:
        """Return the times that were read. Interval number i ends with step i + 2."""
        first, last = self.num_warmup - 1, (self.num_timed or len(self.marks)) - 1
        timed = [ns for step, ns in enumerate(self.known[first:last], first + 2) if step not in self.untimed]
        return Times(self.known[:first], timed, sum(self.known[first:last]))

    def parts(self) -> dict[str, list[int]]:
        """Return the times of steps with and without gradient synchronization, in turns, if there are any."""
        rounds = self.known[self.num_timed + 1 :]  # without the first round
        return {"step": rounds[::2], "no_sync": rounds[1::2]} if rounds else {}

    def peaks(self) -> list[int]:
        """Return the peaks of this process so far, as measure.PEAKS; -1 if unknown."""
        peak_rss = peak_rss_bytes()
        peaks = [-1 if peak_rss is None else peak_rss, -1, -1, -1]
        if self.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self.device)
            allocated, reserved = torch.cuda.max_memory_allocated, torch.cuda.max_memory_reserved
            peaks[1:] = [allocated(self.device), reserved(self.device), total - free]
        return peaks

    def remove(self) -> None:
        self.hook.remove()


def ask_rank_0(store: dist.Store, rank: int, question: str, answer: Callable[[], dict]) -> dict:
    """Return rank 0's answer on every rank."""
    if rank == 0:
        found = answer()
        store.set(question, json.dumps(found))
        return found
    return json.loads(store.get(question))
