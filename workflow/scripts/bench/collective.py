"""One collective operation: the time of communication on this machine, without a model.

Measured: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, send_recv_pair, send_recv_ring or
barrier, in two ways. Blocking: a single call, until its result can be used (latency). Pipelined: many calls started one
after the other, with one wait at the end (throughput per call). all_reduce also by custom algorithms of sends and
receives.
Why: time over message sizes shows latency and bandwidth of the path that the ranks use.
Not included: overlap with computation, the reset of the buffers between calls. The first call of a process group, which
makes connections, is part of setup and warm-up.

  torchrun --nproc-per-node=2 workflow/scripts/bench/collective.py --message-bytes 1048576
  srun --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 python workflow/scripts/bench/collective.py \\
      --device cuda --backend nccl --operation all_gather --message-bytes 268435456

(srun: export MASTER_ADDR and MASTER_PORT first.) It prints a table; with --json FILE it appends one record.
Method and pitfalls: docs/benchmarks/collective.md.
"""

import argparse
import re
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from harness import peers
from harness.free_memory import require_memory
from harness.peers import Ranks
from harness.timing import Workload
from workloads import collective_patterns
from workloads.collective_operations import CUT_INTO_CHUNKS, OPERATIONS, Call, Message

# Increase when the same parameters no longer measure the same. The driver reads it from the source text.
VERSION = 3

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# `torch` is torch.distributed.all_reduce; the others are in algorithms/allreduce.py, imported on demand.
ALGORITHMS = ("torch", "ring", "butterfly", "halving_doubling")
UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9}

# Concurrent calls in a pipelined window if the host has to wait for them: as many as fit, at least two. gloo works on
# two at a time (ProcessGroupGloo::Options.threads), each with separate result buffers.
MAX_IN_FLIGHT = 8
MIN_IN_FLIGHT = 2
IN_FLIGHT_BYTES = 64 << 20


@dataclass
class Parameters:
    """message_bytes: S of collective_operations.py. A parameter without effect is None."""

    operation: str
    message_bytes: int | None
    dtype: str | None
    algorithm: str | None


@dataclass
class Measured:
    """State that the functions of one workload share. calls: the first is timed alone.

    num_used: how many of the calls the windows have made; a window of few calls does not use the others.
    """

    calls: list[Call]
    is_exact_after_samples: bool | None = None
    num_used: int = 0
    values: dict = field(default_factory=dict)
    algorithm_bytes: int | None = None


def build(parameters: dict, ranks: Ranks) -> Workload:
    """Allocate the buffers and their contents. Raises ValueError for parameters that cannot be measured."""
    wanted = Parameters(**parameters)
    check_parameters(wanted, ranks.world_size)
    message = message_of(wanted, ranks)
    num_in_flight = count_in_flight(wanted, dist.get_backend())
    if wanted.message_bytes is not None:
        what = f"{wanted.operation} with message_bytes = {wanted.message_bytes}"
        remedy = "Measure smaller messages, or use fewer ranks per host."
        require_memory(what, buffer_bytes(wanted, num_in_flight, ranks.world_size), ranks, remedy)
    make_call = OPERATIONS[wanted.operation](message)
    measured = Measured([make_call() for _ in range(num_in_flight)])
    if wanted.algorithm not in (None, "torch"):
        use_custom_algorithm(wanted.algorithm, measured, ranks)
    measured.values = describe(wanted, message, num_in_flight)
    call = measured.calls[0]
    return Workload(
        iterate=lambda: call.start(False),
        check=lambda: check_after(wanted, measured),
        values=lambda: measured.values,
        memory=lambda: {"algorithm_bytes": measured.algorithm_bytes},
        before_iteration=call.reset,
        check_before=lambda: check_before(wanted, measured, ranks),
        has_windows=True,
        before_windows=lambda: clear_for_windows(measured),
        run_window=lambda num_calls: run_window(measured, num_calls),
    )


def check_parameters(wanted: Parameters, num_ranks: int) -> None:
    """Raise ValueError for parameters that cannot be measured."""
    if wanted.operation not in OPERATIONS:
        raise ValueError(f"operation = {wanted.operation!r}: expected one of {', '.join(OPERATIONS)}.")
    if wanted.operation != "all_reduce" and wanted.algorithm is not None:
        raise ValueError(f"algorithm = {wanted.algorithm} has no effect with operation {wanted.operation}.")
    if wanted.operation == "all_reduce" and wanted.algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm = {wanted.algorithm!r}: expected one of {', '.join(ALGORITHMS)}.")
    if wanted.operation != "barrier":
        check_size(wanted, num_ranks)
    elif wanted.message_bytes is not None or wanted.dtype is not None:
        raise ValueError("message_bytes and dtype have no effect with operation barrier. Remove them.")
    if num_ranks < 2:
        raise ValueError(f"operation {wanted.operation} needs at least 2 ranks, but there is 1.")


def check_size(wanted: Parameters, num_ranks: int) -> None:
    if wanted.dtype not in DTYPES:
        raise ValueError(f"dtype = {wanted.dtype!r}: expected one of {', '.join(DTYPES)}.")
    element_bytes, num_chunks = DTYPES[wanted.dtype].itemsize, num_ranks if wanted.operation in CUT_INTO_CHUNKS else 1
    if wanted.message_bytes < 1 or wanted.message_bytes % (element_bytes * num_chunks):
        chunks = f"{num_chunks} x " if num_chunks > 1 else ""
        why = f", and {wanted.operation} splits it into one chunk per rank" if num_chunks > 1 else ""
        raise ValueError(
            f"message_bytes = {wanted.message_bytes} is not a positive multiple of {chunks}{element_bytes}, "
            f"the size of an element of {wanted.dtype}{why}."
        )


def message_of(wanted: Parameters, ranks: Ranks) -> Message:
    if wanted.message_bytes is None:
        return Message(0, 0, torch.float32, ranks)
    dtype = DTYPES[wanted.dtype]
    num_elements = wanted.message_bytes // dtype.itemsize
    num_chunks = ranks.world_size if wanted.operation in CUT_INTO_CHUNKS else 1
    return Message(num_elements, num_elements // num_chunks, dtype, ranks)


def count_in_flight(wanted: Parameters, backend: str) -> int:
    """Return the number of concurrent calls in a pipelined window.

    One if the device orders them (NCCL), and for the custom algorithms, whose calls wait for their messages.
    """
    if backend == "nccl" or wanted.algorithm not in (None, "torch"):
        return 1
    return max(MIN_IN_FLIGHT, min(MAX_IN_FLIGHT, IN_FLIGHT_BYTES // (wanted.message_bytes or 1)))


def buffer_bytes(wanted: Parameters, num_in_flight: int, num_ranks: int) -> int:
    """Return the bytes of all buffers on a rank; for a custom algorithm with one more, an upper bound."""
    size, chunk = wanted.message_bytes, wanted.message_bytes // num_ranks
    sent = {"all_gather": chunk, "broadcast": 0}.get(wanted.operation, size)
    received = chunk if wanted.operation == "reduce_scatter" else size
    return sent + num_in_flight * received + (0 if wanted.algorithm in (None, "torch") else size)


def use_custom_algorithm(algorithm: str, measured: Measured, ranks: Ranks) -> None:
    """Let the call run an algorithm of algorithms/allreduce.py on its buffer, instead of torch's all_reduce."""
    from algorithms import allreduce

    call = measured.calls[0]
    custom = allreduce.AllReduce(algorithm, call.result)
    (measured.algorithm_bytes,) = peers.largest_over_ranks([custom.extra_bytes], ranks)

    def start(is_async: bool) -> list:
        custom.run()
        return []

    call.start = start


def describe(wanted: Parameters, message: Message, num_in_flight: int) -> dict:
    """Return the sizes for the record: null if there is no message."""
    has_message = wanted.message_bytes is not None
    values = {
        "num_elements": message.num_elements if has_message else None,
        "num_elements_per_rank": message.num_chunk_elements if has_message else None,
        "num_in_flight": num_in_flight,
    }
    if wanted.operation == "send_recv_pair":
        num_ranks = message.ranks.world_size
        values["idle_rank"] = num_ranks - 1 if num_ranks % 2 else None
    return values


def check_before(wanted: Parameters, measured: Measured, ranks: Ranks) -> dict[str, bool]:
    """Make one call and check its result; of an all-reduce also the rounding error."""
    call = measured.calls[0]
    call.reset()
    call.start(False)
    checks = {result_check(wanted): call.is_exact()}
    if wanted.operation == "all_reduce":
        collective_patterns.write_fractions(call.result, ranks.rank)
        call.start(False)
        measured.values |= collective_patterns.largest_errors(call.result, ranks)
        checks["ranks_are_bitwise_equal"] = collective_patterns.is_same_on_all_ranks(call.result, ranks)
    return checks


def clear_for_windows(measured: Measured) -> None:
    """Check the result of the last sample, then fill all buffers with contents that survive repeated calls."""
    measured.is_exact_after_samples = measured.calls[0].is_exact()
    for call in measured.calls:
        call.clear()


def run_window(measured: Measured, num_calls: int) -> None:
    """Start calls one after the other, and wait for all. One buffer is never in two calls at once.

    Timed. On NCCL `start` only enqueues the work; the caller waits for the device.
    """
    calls = measured.calls
    measured.num_used = min(num_calls, len(calls))
    if len(calls) == 1:
        for _ in range(num_calls):
            calls[0].start(False)
        return
    begun = [[] for _ in calls]
    for number in range(num_calls):
        place = number % len(calls)
        for work in begun[place]:
            work.wait()
        begun[place] = calls[place].start(True)
    for pending in begun:
        for work in pending:
            work.wait()


def check_after(wanted: Parameters, measured: Measured) -> dict[str, bool]:
    """Check the results of the last sample, of the windows, and of one set of concurrent calls."""
    if measured.is_exact_after_samples is None or wanted.operation == "barrier":
        return {result_check(wanted): measured.calls[0].is_exact()}
    stayed_clear = [call.is_clear() for call in measured.calls[: measured.num_used]]
    for call in measured.calls:
        call.reset()
    run_window(measured, len(measured.calls))
    are_exact = [call.is_exact() for call in measured.calls]
    return {
        result_check(wanted): measured.is_exact_after_samples,
        "pipelined_result_is_exact": all(stayed_clear) and all(are_exact),
    }


def result_check(wanted: Parameters) -> str:
    return "barrier_holds" if wanted.operation == "barrier" else "result_is_exact"


def byte_count(text: str) -> int:
    """Return a number of bytes from `65536`, `64KiB` or `1MB`. For argparse."""
    found = re.fullmatch(r"(\d+) ?([A-Za-z]*)", text)
    if not found or found[2] not in UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes, such as 65536 or 64KiB")
    return int(found[1]) * UNITS[found[2]]


def add_arguments(group) -> None:
    """Add this benchmark's parameters to a command line (an argparse group)."""
    group.add_argument("--operation", choices=tuple(OPERATIONS), default="all_reduce", help="(default: %(default)s)")
    size = "message size, such as 64KiB; total over ranks for all_gather, reduce_scatter and all_to_all"
    group.add_argument("--message-bytes", type=byte_count, metavar="BYTES", help=f"{size} (default: 1MiB)")
    group.add_argument("--dtype", choices=tuple(DTYPES), help="element type (default: fp32)")
    group.add_argument("--algorithm", choices=ALGORITHMS, help="all-reduce algorithm (default: torch)")


def parameters_from(arguments) -> dict:
    """Return the cell's parameters from a parsed command line. Without a default, a parameter has no effect: null."""
    defaults = {} if arguments.operation == "barrier" else {"message_bytes": 1 << 20, "dtype": "fp32"}
    if arguments.operation == "all_reduce":
        defaults["algorithm"] = "torch"
    given = {name: getattr(arguments, name) for name in ("message_bytes", "dtype", "algorithm")}
    chosen = {name: defaults.get(name) if value is None else value for name, value in given.items()}
    return {"operation": arguments.operation, **chosen}


if __name__ == "__main__":
    import sys

    from harness import by_hand

    by_hand.main("collective", sys.modules[__name__])
