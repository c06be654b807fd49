"""A user's training script, unchanged: the time between its optimizer steps.

Measured: the time from one step of the first optimizer that steps to the next, so all that a training loop does: data,
forward, backward, gradient synchronization, optimizer, logging. After its last timed step the script is ended.
Why: the code that is trained with is what its owner wants to know about.
Not included: what the script does before its first step (setup), and warm-up.

  torchrun --nproc-per-node=2 workflow/scripts/bench/script.py --script train.py --warmup 10 --measure 100 \\
      --argument=--batch-size=8
  srun --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 python workflow/scripts/bench/script.py \\
      --device cuda --script /shared/code/train.py --argument=--config --argument=small.yaml

(srun: export MASTER_ADDR and MASTER_PORT first.) It prints a table; with --json FILE it appends one record.
Method and pitfalls: docs/benchmarks/script.md.
"""

import json
import os
import runpy
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch.distributed as dist

from harness import environment, failures, host_load, measure, placement, sampling, script_files
from harness.ddp_settings import DdpSettings
from harness.failures import Progress
from harness.measure import MeasuredCell
from harness.peers import Ranks
from harness.script_process import standing_in
from harness.step_clock import EndOfMeasurement, StepClock, Times, ask_rank_0

# Increase when the same parameters no longer measure the same. The driver reads it from the source text.
VERSION = 1

GRACE_SECONDS = 30.0  # for the script to end, and for other ranks to reach the last step
MAX_WINDOWS = 5


class ScriptError(Exception):
    """What a script did instead of taking all steps."""


@dataclass
class Parameters:
    """script: name of the file. settings: values of the campaign's parameters. samples_per_step, tokens_per_step: of
    each rank; None if unknown."""

    script: str
    settings: str | None
    samples_per_step: int | None
    tokens_per_step: int | None


def measure_cell(spec: dict, ranks: Ranks, store: dist.Store, name: str, progress: Progress) -> MeasuredCell:
    """Run the script until it has taken its steps, and return what was measured. Raises ScriptError if it does not."""
    wanted, store = spec["script"], dist.PrefixStore(name, store)
    num_others = measure.count_on_host(ranks)
    load = host_load.Monitor(ranks.local_rank == 0, ranks.host_cores, measure.gpu_uuid(ranks))
    begin = time.monotonic_ns()
    progress.phase = "setup"
    script_files.check(wanted["files"])
    has_ended, rank_pid = threading.Event(), os.getpid()
    settings, is_exposed = wanted.get("ddp", {}), wanted.get("exposed", False)
    ddp = DdpSettings(settings, bool(settings or is_exposed), lambda cause: give_up(progress, cause, rank_pid))
    clock = StepClock(
        steps=wanted["steps"],
        plan=sampling.SamplingPlan(**spec["sampling"]),
        ask=lambda question, answer: ask_rank_0(store, ranks.rank, question, answer),
        on_end=lambda: end_in_time(progress, has_ended),
        on_fault=lambda cause: give_up(progress, cause, rank_pid),
        progress=progress,
        switch=ddp.switch_synchronization if is_exposed else None,
    )
    num_nodes = int(os.environ.get("SLURM_STEP_NUM_NODES", "1"))
    per_node = spec["gpus_per_node"] or int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world_size // num_nodes))
    with standing_in(wanted, ranks, per_node):
        run_script(wanted, clock)
    has_ended.set()
    clock.remove()
    ddp.remove()
    if ddp.is_needed and not ddp.modules:
        raise ScriptError("ddp and exposed have no effect: the script makes no DistributedDataParallel. Remove them")
    if clock.is_uneven():
        text = "the first optimizer that steps is the clock, but larger optimizers step unevenly between its steps"
        raise ScriptError(f"{text}. Let the optimizer of the training take the first step")
    times = clock.times()
    sent = {"place": clock.place, "host": socket.gethostname(), "samples": times.samples, "memory": clock.memory}
    sent |= {"gpu": environment.describe_gpu(clock.device)["uuid"] if clock.device.type == "cuda" else None}
    sent |= {"parts": clock.parts(), "load": load.row(), "other_ranks": num_others}
    rows = gather(sent, len(clock.marks), ranks, store)
    if ranks.rank != 0:
        return MeasuredCell("ok", None, None, {})
    fields = {"elapsed_ns": time.monotonic_ns() - begin, "setup_ns": clock.first_ns - begin}
    fields |= {"host_load": host_load.record_field([row["load"] for row in rows])}
    others = max(row["other_ranks"] for row in rows)
    fields["other_ranks"] = None if others < 0 else others
    if problems := placement_problems(spec, rows):
        return MeasuredCell("placement", "placement", "; ".join(problems), fields)
    by_kind = zip(*(row["memory"] for row in rows), strict=True)
    peaks = {kind: None if min(of) < 0 else list(of) for kind, of in zip(measure.PEAKS, by_kind, strict=True)}
    fields |= timed_fields([row["samples"] for row in rows], times, clock)
    parts = {name: [row["parts"][name] for row in rows] for name in rows[0]["parts"]}
    fields |= {"parts_ns": parts or None, "checks": {}, "values": {}, "memory": measure.NO_SIZES | peaks}
    fields["modules"] = script_files.loaded(Path(wanted["path"]).parent, wanted["files"])
    return MeasuredCell("ok", None, None, fields)


def run_script(wanted: dict, clock: StepClock) -> None:
    """Run the script as __main__ to its last timed step. Raises what it raises before, or ScriptError."""
    how = "returned"
    try:
        runpy.run_path(wanted["path"], run_name="__main__")
    except EndOfMeasurement:
        return
    except SystemExit as error:
        how = f"called sys.exit({'' if error.code is None else repr(error.code)})"
    except BaseException as error:
        if clock.has_ended:  # its cleanup failed: the steps were taken
            text = f"regatta: ignored after the last timed step: {failures.cause_of(error)}"
            print(text, file=sys.stderr, flush=True)
            return
        if isinstance(error, Exception):
            raise
        how = f"raised {type(error).__name__}"
    if clock.has_ended:
        clock.on_fault(f"the script caught the end of the measurement and {how}. Catch Exception, not BaseException")
    raise ScriptError(early_end(how, clock))


def early_end(how: str, clock: StepClock) -> str:
    """Return why a script that ended early was not measured."""
    num_steps = len(clock.marks)
    if num_steps == 0:
        return (
            f"the script {how} without a step of a torch.optim.Optimizer in this process. Steps of other optimizers,"
            " and those in processes that the script starts, are not seen: let the optimizer derive from that class,"
            " and train in the ranks that Regatta starts"
        )
    wanted = clock.next_stop if clock.steps else f"at least {clock.next_stop}"
    remedy = "Have it train longer, or lower steps" if clock.steps else "Have it train longer, or set steps"
    return f"the script {how} after {num_steps} optimizer steps; {wanted} are needed. {remedy}"


def end_in_time(progress: Progress, has_ended: threading.Event) -> None:
    """Begin the grace period of the script: if it has not ended then, this rank ends with an error."""

    def check() -> None:
        if not has_ended.is_set():
            text = f"the script did not end within {GRACE_SECONDS:g} s after its last timed step"
            give_up(progress, f"{text}: it catches BaseException, or its cleanup waits", os.getpid())

    timer = threading.Timer(GRACE_SECONDS, check)
    timer.daemon = True
    timer.start()


def give_up(progress: Progress, cause: str, rank_pid: int) -> NoReturn:
    """Report an error and end this rank at once, also from a process that it has forked."""
    failures.report(progress, ScriptError(cause))
    if os.getpid() != rank_pid:
        os.kill(rank_pid, signal.SIGTERM)
    os._exit(1)


def gather(sent: dict, num_steps: int, ranks: Ranks, store: dist.Store) -> list[dict]:
    """Return what all ranks send, on rank 0. Raises ScriptError if some do not reach the last step in time."""
    store.set(f"end/{ranks.rank}", json.dumps(sent))
    is_first = ranks.rank == 0
    keys = [f"end/{rank}" for rank in range(ranks.world_size)] if is_first else ["all"]
    seconds = GRACE_SECONDS + (10 if is_first else 20)  # one after the other, so that the best cause comes first
    present = placement.wait_for_keys(store, keys, seconds)
    if len(present) < len(keys):
        missing = ", ".join(key.removeprefix("end/") for key in keys if key not in present) if is_first else "0"
        text = f"rank {missing} did not end after step {num_steps} within {seconds:g} s, as rank {ranks.rank} did"
        raise ScriptError(f"{text}. All ranks must take the same number of optimizer steps")
    if not is_first:
        return []
    rows = [json.loads(store.get(key)) for key in keys]
    store.set("all", "1")
    return rows


def placement_problems(spec: dict, rows: list[dict]) -> list[str]:
    """Return how ranks and devices of the script differ from the cell's."""
    world_size, problems = len(rows), []
    found: dict[tuple, int] = {}
    for rank, row in enumerate(rows):
        group, device = row["place"]["group"], row["place"]["device"]
        if group is None and world_size > 1:
            problems.append(f"rank {rank}: no process group at the first step: the script trains {world_size} times")
        elif group is not None and group[:2] != [rank, world_size]:
            problems.append(f"rank {rank} of {world_size} is rank {group[0]} of {group[1]} in the script's group")
        if not device.startswith(spec["device"]):
            problems.append(f"rank {rank}: the optimizer's parameters are on {device}, not on {spec['device']}")
        first = found.setdefault((row["host"], row["gpu"] or device), rank)
        if first != rank and device != "cpu":
            problems.append(f"ranks {first} and {rank} on host {row['host']} share device {device}")
    return problems


def timed_fields(rows: list[list[int]], times: Times, clock: StepClock) -> dict:
    """Return the fields of a record with times: rows of samples by rank, windows of consecutive steps, warm-up."""
    slowest = [max(of_ranks) for of_ranks in zip(*rows, strict=True)]
    ratio = sampling.half_width_ratio(slowest, sorted(slowest))
    size = max(1, len(slowest) // MAX_WINDOWS)
    starts = range(0, len(slowest) - size + 1, size)
    fields = {
        "warmup": {
            "num_iterations": clock.num_warmup,
            "elapsed_ns": sum(times.warmup),
            "first_iteration_ns": times.warmup[0] if times.warmup else None,
            "stop": clock.warmup_stop,
        },
        "sampling": {
            "num_iterations": len(slowest),
            "elapsed_ns": times.elapsed,
            "stop": clock.sampling_stop,
            "half_width_ratio": None if ratio is None else round(ratio, 6),
        },
        "windows": {
            "steps_per_window": size,
            "elapsed_ns": [[sum(row[start : start + size]) for start in starts] for row in rows],
        },
    }
    if len(rows) * len(slowest) <= measure.MAX_SAMPLES_IN_RECORD:
        return fields | {"samples_ns": rows}
    of_ranks = [sampling.quantiles(sorted(row), measure.QUANTILE_PROBABILITIES) for row in rows]
    quantiles = {"probabilities": measure.QUANTILE_PROBABILITIES, "ranks": of_ranks}
    return fields | {"slowest_rank_samples_ns": slowest, "rank_quantiles_ns": quantiles}


def add_arguments(group) -> None:
    """Add this benchmark's parameters to a command line (an argparse group)."""
    group.add_argument("--script", type=Path, required=True, metavar="FILE", help="the training script")
    group.add_argument("--argument", action="append", default=[], metavar="WORD", help="of the script; repeat for more")
    group.add_argument("--warmup", type=int, metavar="STEPS", help="steps before the timed ones (with --measure)")
    group.add_argument("--measure", type=int, metavar="STEPS", help="timed steps (default: sampling decides)")
    group.add_argument("--ddp", type=json.loads, default={}, metavar="JSON", help="arguments of the script's DDP call")
    group.add_argument("--exposed", action="store_true", help="afterwards, also steps without synchronization")
    group.add_argument("--settings", metavar="TEXT", help="of the cell, for the record")
    group.add_argument("--samples-per-step", type=int, metavar="SAMPLES", help="per rank, for throughput")
    group.add_argument("--tokens-per-step", type=int, metavar="TOKENS", help="per rank, for throughput")


def parameters_from(arguments) -> dict:
    """Return the cell's parameters from a parsed command line."""
    given = {name: getattr(arguments, name) for name in Parameters.__dataclass_fields__}
    return given | {"script": arguments.script.name}


def script_from(arguments) -> dict:
    """Return the cell's `script` from a parsed command line. Raises ValueError for steps that cannot be taken."""
    steps = {"warmup": arguments.warmup, "measure": arguments.measure}
    if set(steps.values()) == {None}:
        steps = None
    elif None in steps.values() or min(steps.values()) < 1:
        raise ValueError(f"--warmup {arguments.warmup} --measure {arguments.measure}: give both, each at least 1.")
    path = str(arguments.script.absolute())
    script = {"path": path, "arguments": arguments.argument, "steps": steps, "files": {}}
    return script | {"ddp": arguments.ddp, "exposed": arguments.exposed}


if __name__ == "__main__":
    from harness import by_hand

    by_hand.main("script", sys.modules[__name__])
