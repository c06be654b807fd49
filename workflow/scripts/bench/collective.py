"""One all-reduce of a buffer: what the communication of gradients costs on this machine, without a model around it.

Measured: a single blocking all-reduce (sum, in place) of `message_bytes` on every rank, until the buffer can be used.
Why: its time over message sizes shows latency and bandwidth of the path that the ranks really take.
Not included: overlap with computing, several operations in flight, the reset of the buffer before each one. The first
all-reduce of a process group, which makes connections, falls into set-up and warm-up.

  torchrun --nproc-per-node=2 workflow/scripts/bench/collective.py --message-bytes 1048576
  srun --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 python workflow/scripts/bench/collective.py \\
      --device cuda --backend nccl --message-bytes 268435456

(srun: export MASTER_ADDR and MASTER_PORT first.) It prints a table; with --json FILE it appends one record.
Method and pitfalls: docs/benchmarks/collective.md.
"""

import argparse
import re
from dataclasses import dataclass

import torch
import torch.distributed as dist

from peers import Ranks
from timing import Workload

# Counts up whenever the same parameters no longer measure the same thing. The driver reads it from the source text.
VERSION = 1

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
OPERATIONS = ("all_reduce",)
UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9}

# Values are 1 to 127: bfloat16 holds whole numbers exactly up to 256. A prime, so that the pattern does not fit the
# chunks into which a message is cut, and a chunk in the wrong place is seen.
NUM_VALUES = 127

# Expected values are made in pieces of this many elements, so that checking takes little memory of its own.
CHECK_ELEMENTS = 1 << 22


@dataclass
class Parameters:
    """message_bytes: size of the buffer on each rank."""

    operation: str
    message_bytes: int
    dtype: str


def build(parameters: dict, ranks: Ranks) -> Workload:
    """Allocate the buffer and its contents. Raises ValueError for parameters that cannot be measured.

    Each element is given by one rank and is zero on all others, so the sum is exact in every dtype and for any number
    of ranks. The buffer is set anew before each iteration, outside the timer: sums of sums would overflow.
    """
    wanted = Parameters(**parameters)
    check_parameters(wanted, ranks)
    dtype = DTYPES[wanted.dtype]
    num_elements = wanted.message_bytes // dtype.itemsize
    contribution = own_contribution(num_elements, dtype, ranks)
    buffer = torch.empty_like(contribution)

    def prepare() -> None:
        buffer.copy_(contribution)

    def iterate() -> None:
        dist.all_reduce(buffer, op=dist.ReduceOp.SUM)

    def check() -> dict[str, bool]:
        return {"result_is_exact": is_exact(buffer)}

    def check_before() -> dict[str, bool]:
        prepare()
        iterate()
        return check()

    return Workload(
        iterate=iterate,
        check=check,
        values=lambda: {"num_elements": num_elements},
        before_iteration=prepare,
        check_before=check_before,
    )


def check_parameters(wanted: Parameters, ranks: Ranks) -> None:
    """Raise ValueError, in words, for what cannot be measured."""
    if wanted.operation not in OPERATIONS:
        raise ValueError(f"operation = {wanted.operation!r}: one of {', '.join(OPERATIONS)} is expected.")
    if wanted.dtype not in DTYPES:
        raise ValueError(f"dtype = {wanted.dtype!r}: one of {', '.join(DTYPES)} is expected.")
    element_bytes = DTYPES[wanted.dtype].itemsize
    if wanted.message_bytes < element_bytes or wanted.message_bytes % element_bytes:
        raise ValueError(
            f"message_bytes = {wanted.message_bytes} is not a positive multiple of {element_bytes}, "
            f"the size of an element of {wanted.dtype}."
        )
    if ranks.world_size < 2:
        raise ValueError(
            f"operation {wanted.operation} needs 2 ranks or more; there is 1, which has nobody to talk to."
        )


def expected_values(begin: int, end: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return the sum over ranks of the elements from `begin` up to `end`."""
    return (torch.arange(begin, end, device=device) % NUM_VALUES + 1).to(dtype)


def own_contribution(num_elements: int, dtype: torch.dtype, ranks: Ranks) -> torch.Tensor:
    """Return this rank's addend: the expected value in every world_size-th element, starting at its rank; else zero."""
    contribution = torch.zeros(num_elements, dtype=dtype, device=ranks.device)
    for begin in range(0, num_elements, CHECK_ELEMENTS):
        end = min(begin + CHECK_ELEMENTS, num_elements)
        is_own = torch.arange(begin, end, device=ranks.device) % ranks.world_size == ranks.rank
        contribution[begin:end] = expected_values(begin, end, dtype, ranks.device) * is_own
    return contribution


def is_exact(buffer: torch.Tensor) -> bool:
    """Say whether every element of the buffer is what the all-reduce should have left there."""
    for begin in range(0, buffer.numel(), CHECK_ELEMENTS):
        end = min(begin + CHECK_ELEMENTS, buffer.numel())
        if not torch.equal(buffer[begin:end], expected_values(begin, end, buffer.dtype, buffer.device)):
            return False
    return True


def byte_count(text: str) -> int:
    """Return a number of bytes from `65536`, `64KiB` or `1MB`. For argparse."""
    found = re.fullmatch(r"(\d+) ?([A-Za-z]*)", text)
    if not found or found[2] not in UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes, such as 65536 or 64KiB")
    return int(found[1]) * UNITS[found[2]]


def add_arguments(group) -> None:
    """Add this benchmark's parameters to a command line (an argparse group)."""
    group.add_argument("--operation", choices=OPERATIONS, default="all_reduce", help="(default: %(default)s)")
    group.add_argument(
        "--message-bytes",
        type=byte_count,
        default=1 << 20,
        metavar="BYTES",
        help="on each rank, a number or a size such as 64KiB (default: %(default)s)",
    )
    group.add_argument("--dtype", choices=tuple(DTYPES), default="fp32", help="element type (default: %(default)s)")


def parameters_from(arguments) -> dict:
    """Return the cell's parameters from a parsed command line."""
    return {
        "operation": arguments.operation,
        "message_bytes": arguments.message_bytes,
        "dtype": arguments.dtype,
    }


if __name__ == "__main__":
    import sys

    import by_hand

    by_hand.main("collective", sys.modules[__name__])
