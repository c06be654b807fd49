"""run_launch with faulty collectives: each cell has a different fault of FAULTS. Started like run_launch.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "bench"))

import torch
import torch.distributed as dist

import collective
import run_launch
from harness import peers


def stale_result() -> None:
    real, calls = dist.all_gather_into_tensor, []

    def gather(result, own, async_op=False):
        calls.extend([1] * own.is_floating_point())
        return real(result, own, async_op=async_op) if len(calls) < 2 else None

    dist.all_gather_into_tensor = gather


def swapped_chunks() -> None:
    real = dist.all_to_all_single

    def swap(result, own, async_op=False):
        real(result, own)
        result.copy_(torch.cat(result.split(len(result) // 2)[::-1]))

    dist.all_to_all_single = swap


def rank_that_rounds_differently() -> None:
    real = dist.all_reduce

    def reduce(tensor, **options):
        work = real(tensor, **options)
        if tensor.dtype == torch.float32 and dist.get_rank() == 1 and (tensor != tensor.round()).any():
            tensor.mul_(1 + 2**-20)
        return work

    dist.all_reduce = reduce


def barrier_that_waits_for_nobody() -> None:
    peers.barrier = lambda ranks: None


def lost_pipelined_calls() -> None:
    real = dist.broadcast
    dist.broadcast = lambda tensor, src, async_op=False: None if async_op else real(tensor, src=src)


# Fault, and the cell that must show it: operation and bytes.
FAULTS = (
    (stale_result, ("all_gather", 4096)),
    (swapped_chunks, ("all_to_all", 8)),
    (rank_that_rounds_differently, ("all_reduce", 4096)),
    (barrier_that_waits_for_nobody, ("barrier",)),
    (lost_pipelined_calls, ("broadcast", 4096)),
)


def main() -> None:
    real = {(module, name): getattr(module, name) for module, name in PATCHED}
    build, faults = collective.build, iter(FAULTS)

    def build_with_fault(parameters: dict, ranks):
        for (module, name), function in real.items():
            setattr(module, name, function)
        next(faults)[0]()
        return build(parameters, ranks)

    collective.build = build_with_fault
    run_launch.main()


PATCHED = [(dist, "all_gather_into_tensor"), (dist, "all_to_all_single"), (dist, "all_reduce"), (dist, "broadcast")]
PATCHED += [(peers, "barrier")]

if __name__ == "__main__":
    main()
