"""All cases of the custom all-reduce on one set of ranks: groups of 1, 2, ... of them, one after the other.

Started by test_bench_own_allreduce.py as ranks: DEVICE FOLDER. Each rank writes FOLDER/<rank>.json:
{"problems": [what went wrong, in words], "num_cases": {algorithm: cases that this rank took part in},
 "values": {case: the result, as numbers}, "messages": {case: [messages, bytes] that this rank sent},
 "extra_bytes": {case: bytes}}.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from bench_cells import BENCH

sys.path.insert(0, str(BENCH))

from algorithms import allreduce
from harness import peers


def lengths(num_ranks: int, dtype: torch.dtype) -> list[int]:
    """Numbers of elements: shorter than the group, no multiple of it, a prime, some thousands."""
    few = {num_ranks + 1, 1009}
    return sorted(few | {0, 1, 2, num_ranks - 1, num_ranks, 4096}) if dtype == torch.float32 else sorted(few)


def contributions(num_ranks: int, num_elements: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Return all ranks' buffers, the same on each rank. Values of many sizes, so that the order of a sum is seen."""
    random = torch.Generator().manual_seed(num_ranks * 10_000 + num_elements)
    values = torch.randn(num_ranks, num_elements, generator=random, dtype=torch.float64) * 100
    return list(values.to(dtype))


def largest_error_ratio(result: torch.Tensor, summands: list[torch.Tensor]) -> float:
    """Return the largest error against the sum in float64, as a part of what any order of summing may reach.

    That is (n - 1) u / (1 - (n - 1) u) times the sum of magnitudes, u half an eps (Higham 2002, section 4.2). Whole
    numbers must be exact.
    """
    wide = torch.stack(summands).to(torch.float64)
    error = (result.to(torch.float64) - wide.sum(0)).abs()
    if not result.is_floating_point():
        return float(error.max()) * 1e9 if len(error) else 0.0
    # Twice float64's own: the reference is rounded too.
    unit = torch.finfo(result.dtype).eps / 2 + torch.finfo(torch.float64).eps
    terms = max(len(summands) - 1, 1) * unit
    allowed = terms / (1 - terms) * wide.abs().sum(0) + torch.finfo(torch.float64).tiny
    return float((error / allowed).max()) if len(error) else 0.0


def is_alike_on_all_ranks(result: torch.Tensor, group: dist.ProcessGroup) -> bool:
    """Say whether all ranks of the group hold the same bits."""
    own = result.view(torch.uint8)
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyone, own, group=group)
    return all(torch.equal(own, other) for other in everyone)


def sum_in_order_of_ranks(summands: list[torch.Tensor]) -> torch.Tensor:
    total = summands[0].clone()
    for summand in summands[1:]:
        total += summand
    return total


def problems_of(algorithm: str, num_elements: int, dtype: torch.dtype, group: dist.ProcessGroup, device: str) -> list:
    """Sum the same buffer twice with one AllReduce, and return what is wrong with the results."""
    num_ranks = dist.get_world_size(group)
    summands = contributions(num_ranks, num_elements, dtype)
    own = summands[dist.get_rank(group)]
    buffer = own.to(device, copy=True)
    all_reduce = allreduce.AllReduce(algorithm, buffer, group)
    all_reduce.run()
    first = buffer.clone()
    buffer.copy_(own)
    all_reduce.run()
    problems = []
    if (ratio := largest_error_ratio(first.cpu(), summands)) > 1:
        problems.append(f"error is {ratio} times what is allowed")
    if not is_alike_on_all_ranks(first, group):
        problems.append("ranks differ")
    if not torch.equal(first, buffer):
        problems.append("the second run gives another result")
    if algorithm == "butterfly" and not torch.equal(first.cpu(), sum_in_order_of_ranks(summands)):
        problems.append("not summed in the order of ranks")
    return [f"{algorithm}, {num_ranks} ranks, {num_elements} x {dtype}: {problem}" for problem in problems]


def run_random_cases(found: dict, groups: dict[int, dist.ProcessGroup], device: str) -> None:
    for num_ranks, group in groups.items():
        for algorithm in allreduce.ALGORITHMS:
            for dtype in allreduce.DTYPES:
                for num_elements in lengths(num_ranks, dtype):
                    found["problems"] += problems_of(algorithm, num_elements, dtype, group, device)
                    found["num_cases"][algorithm] = found["num_cases"].get(algorithm, 0) + 1


def run_known_case(found: dict, name: str, algorithm: str, own: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Sum `own` in place, and note the result, what was sent, and the bytes of work buffers."""
    all_reduce = allreduce.AllReduce(algorithm, own, group)
    sent, batch = [], dist.batch_isend_irecv

    def counted(operations: list) -> list:
        sent.extend(one.tensor.nbytes for one in operations if one.op is dist.isend)
        return batch(operations)

    dist.batch_isend_irecv = counted
    all_reduce.run()
    dist.batch_isend_irecv = batch
    found["values"][f"{name} {algorithm}"] = own.tolist() if own.numel() < 10 else None
    found["messages"][f"{name} {algorithm}"] = [len(sent), sum(sent)]
    found["extra_bytes"][f"{name} {algorithm}"] = all_reduce.extra_bytes


def run_known_cases(found: dict, groups: dict[int, dist.ProcessGroup], device: str) -> None:
    """Cases whose results test_bench_own_allreduce.py knows from reckoning by hand."""
    for algorithm in allreduce.ALGORITHMS:
        for num_ranks, group in groups.items():
            rank = dist.get_rank(group)
            own = torch.tensor([rank + 1, 10 * (rank + 1), 7], device=device)
            run_known_case(found, f"tens {num_ranks}", algorithm, own, group)
            own = torch.ones(num_ranks, 25, device=device)
            run_known_case(found, f"ones {num_ranks}", algorithm, own, group)
        if 3 in groups:
            value = (256.0, 1.0, 1.0)[dist.get_rank(groups[3])]
            own = torch.full((3,), value, dtype=torch.bfloat16, device=device)
            run_known_case(found, "rounding 3", algorithm, own, groups[3])


def run_scattered_case(found: dict, group: dist.ProcessGroup, device: str) -> None:
    """A group whose ranks are not those of the whole: its ranks count from 0."""
    for algorithm in allreduce.ALGORITHMS:
        own = torch.tensor([dist.get_rank()], device=device)
        run_known_case(found, "scattered", algorithm, own, group)


def run_refused_case(found: dict, group: dist.ProcessGroup, device: str) -> None:
    """A rank outside a group must be told so."""
    try:
        allreduce.AllReduce("ring", torch.zeros(3, device=device), group)
        found["problems"].append("a rank outside the group was let in")
    except ValueError as error:
        if "not in the group" not in str(error):
            found["problems"].append(str(error))


def begin(device: str) -> None:
    torch.set_num_threads(1)
    rank, num_ranks, _ = peers.position_from_environment(dict(os.environ))
    store = peers.connect_store(rank, num_ranks, 60, "cases")
    dist.init_process_group("nccl" if device == "cuda" else "gloo", store=store, rank=rank, world_size=num_ranks)
    if device == "cuda":
        torch.cuda.set_device(dist.get_rank())


def main() -> None:
    device, folder = sys.argv[1], Path(sys.argv[2])
    begin(device)
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    everyone = list(range(num_ranks))
    groups = {size: dist.new_group(everyone[:size]) for size in range(1, num_ranks + 1)}
    scattered = dist.new_group(everyone[1::2])
    own_groups = {size: group for size, group in groups.items() if dist.get_rank(group) >= 0}
    found = {"problems": [], "num_cases": {}, "values": {}, "messages": {}, "extra_bytes": {}}
    for group in [*own_groups.values(), scattered]:
        if dist.get_rank(group) >= 0:  # NCCL makes a communicator in a group's first collective
            dist.all_reduce(torch.zeros(1, device=device), group=group)
    run_random_cases(found, own_groups, device)
    run_known_cases(found, own_groups, device)
    if dist.get_rank(scattered) >= 0:
        run_scattered_case(found, scattered, device)
    if rank > 0:
        run_refused_case(found, groups[1], device)
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
