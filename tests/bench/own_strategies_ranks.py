"""The ranks of test_bench_own_strategies: train each family with each strategy, and compare with one process.

  start_ranks.py --nproc-per-node=2 tests/bench/own_strategies_ranks.py DEVICE BACKEND FOLDER

Each rank writes FOLDER/RANK.json: for each case "ok", or what was wrong. All cases share one set of ranks.
"""

import contextlib
import functools
import json
import os
import sys
import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bench_cells import BENCH

sys.path.insert(0, str(BENCH))

import torch
import torch.distributed as dist
from own_strategies_contenders import OWN, contenders, families, make_sync
from own_strategies_models import FAMILIES, Family

from algorithms import gradient_synchronization
from harness import peers

# Each step: (micro-batches, zero_grad's set_to_none). The last lets autograd add into views of buckets.
STEPS = ((1, True), (2, True), (2, False))
SAMPLES_PER_RANK = 4
LEARNING_RATE, MOMENTUM = 0.05, 0.9
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


@dataclass
class Expected:
    """What a single process gets on the joined batch: [step][parameter], zeros where nothing was used."""

    gradients: list[list[torch.Tensor]]
    weights: list[torch.Tensor]


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)


def micro_batches(family: Family, rank: int, step: int, device) -> list:
    """Return a rank's samples of a step, cut into micro-batches of equal size."""
    batch = family.batch(SAMPLES_PER_RANK, torch.Generator().manual_seed(1000 * step + rank)).to(device)
    return batch.chunk(STEPS[step][0])


def train_alone(family: Family, world_size: int, device) -> Expected:
    """Train on what all ranks together see: their samples joined where the model is the same for all."""
    model = family.build().to(device)
    optimizer, expected = sgd(model), Expected([], [])
    for step in range(len(STEPS)):
        optimizer.zero_grad(set_to_none=True)
        pieces = [micro_batches(family, rank, step, device) for rank in range(world_size)]
        if family.differs_by_rank:
            losses = [family.loss(model, piece, rank) for rank, row in enumerate(pieces) for piece in row]
            (sum(losses) / world_size).backward()
        else:
            joined = torch.cat([piece for row in pieces for piece in row])
            (family.loss(model, joined, 0) * len(pieces[0])).backward()
        expected.gradients.append([gradient_of(weights).clone() for weights in model.parameters()])
        optimizer.step()
    expected.weights = [weights.detach() for weights in model.parameters()]
    return expected


def gradient_of(weights: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(weights) if weights.grad is None else weights.grad


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return all of a tensor of which this rank may hold a part."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def check_training(family: Family, contender: str, expected: Expected, rank: int, device) -> None:
    # Another seed on each rank but the first: the weights must come from rank 0. fully_shard sends none.
    is_sent = contender != "fsdp"
    model = family.build(seed=7 * rank if is_sent else 0).to(device)
    sync = make_sync(contender, model, family, device)
    trained = getattr(sync, "wrapped", model)
    optimizer = sgd(model)
    tolerance = max(TOLERANCE[weights.dtype] for weights in model.parameters())
    for step, (_, set_to_none) in enumerate(STEPS):
        optimizer.zero_grad(set_to_none=set_to_none)
        *first, last = micro_batches(family, rank, step, device)
        for piece in first:
            with (
                sync.no_sync() if sync.no_sync else contextlib.nullcontext()
            ):  # fully_shard adds up what it has reduced
                family.loss(trained, piece, rank).backward()
        family.loss(trained, last, rank).backward()
        sync.finish()
        for (name, weights), right in zip(model.named_parameters(), expected.gradients[step], strict=True):
            require_close(whole(gradient_of(weights)), right, tolerance, f"step {step}, gradient of {name}")
        optimizer.step()
    for (name, weights), right in zip(model.named_parameters(), expected.weights, strict=True):
        require_close(whole(weights), right, tolerance, f"weights of {name}")
    require_same_on_all_ranks([whole(weights) for weights in model.parameters()], "weights")
    sync.close()


def require_close(found: torch.Tensor, right: torch.Tensor, tolerance: float, what: str) -> None:
    """`tolerance` is relative to the largest element: where all are zero, nothing else will do."""
    largest = right.abs().max().item() if right.numel() else 0.0
    torch.testing.assert_close(found, right, rtol=0, atol=tolerance * largest, msg=lambda text: f"{what}: {text}")


def require_same_on_all_ranks(tensors, what: str) -> None:
    """Compare bit for bit, all tensors in one exchange."""
    bits = torch.cat([tensor.detach().contiguous().view(-1).view(torch.int32) for tensor in tensors])
    highest, lowest = bits.clone(), bits.clone()
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
    assert torch.equal(highest, lowest), f"{what} differ between ranks"


@contextlib.contextmanager
def counted_calls():
    """Give a list to which each all-reduce of own_strategies adds its bytes."""
    real, calls = dist.all_reduce, []

    def all_reduce(tensor, *arguments, **options):
        calls.append(tensor.nbytes)
        return real(tensor, *arguments, **options)

    dist.all_reduce = all_reduce
    try:
        yield calls
    finally:
        dist.all_reduce = real


def check_behaviour(contender: str, rank: int, device) -> None:
    """Counts, no_sync, reduce_alone, a forgotten finish() and close(), on a small model in float32."""
    family = FAMILIES["plain"]
    model = family.build().to(device)
    sync = make_sync(contender, model, family, device)
    batch = micro_batches(family, rank, 0, device)[0]

    def step() -> None:
        model.zero_grad()
        family.loss(model, batch, rank).backward()
        sync.finish()

    with counted_calls() as calls:
        with sync.no_sync():
            step()
        assert calls == []
        assert sync.host_wait_ns == 0
        step()
    assert len(calls) == sync.num_calls
    gradient_bytes = sum(weights.nbytes for weights in model.parameters())
    assert sum(calls) == gradient_bytes
    assert 0 <= sync.extra_bytes <= gradient_bytes
    assert sync.host_wait_ns > 0
    check_reduce_alone(sync, model, step, calls)
    check_errors_and_close(sync, model, family, batch, rank)


def check_reduce_alone(sync, model, step, calls_of_step: list[int]) -> None:
    with sync.no_sync():
        step()
    model.zero_grad()
    with counted_calls() as calls:
        sync.reduce_alone()
    assert calls == calls_of_step
    step()
    for _ in range(140):
        sync.reduce_alone()
    assert all(torch.isfinite(bucket.payload()).all() for bucket in sync.buckets)
    step()
    gradients = [weights.grad for weights in model.parameters()]
    require_same_on_all_ranks(gradients, "gradients after reduce_alone()")
    assert all(gradient.count_nonzero() for gradient in gradients)


def check_errors_and_close(sync, model, family: Family, batch, rank: int) -> None:
    if sync.is_overlapped:
        family.loss(model, batch, rank).backward()
        message = ""
        try:
            family.loss(model, batch, rank).backward()
        except RuntimeError as error:
            message = str(error)
        assert "before finish()" in message, message
        sync.finish()
    sync.close()
    with counted_calls() as calls:
        family.loss(model, batch, rank).backward()
    assert calls == []
    assert not any(weights._post_accumulate_grad_hooks for weights in model.parameters())


def check_broadcast(rank: int, device) -> None:
    """Parameters and buffers of any dtype and layout are rank 0's, bit for bit."""
    model = torch.nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last)
    model.register_buffer("count", torch.tensor(5 + rank))
    model.register_buffer("mask", torch.arange(6) % (2 + rank) == 0)
    model.register_buffer("halves", torch.full((3,), 0.5 + rank, dtype=torch.bfloat16))
    model.register_buffer("empty", torch.empty(0))
    torch.manual_seed(rank)
    torch.nn.init.normal_(model.weight)
    model.to(device)
    gradient_synchronization.make("naive", model, None).close()
    assert model.count.item() == 5
    assert model.mask.tolist() == [True, False] * 3
    assert model.halves.tolist() == [0.5] * 3
    torch.manual_seed(0)
    right = torch.nn.init.normal_(torch.empty(4, 4, 3, 3).to(memory_format=torch.channels_last))
    assert torch.equal(model.weight.cpu(), right)
    assert model.weight.is_contiguous(memory_format=torch.channels_last)


def check_subgroup(rank: int, world_size: int, device) -> None:
    """Two groups of half the ranks: the second averages over its own, from its own first rank."""
    half = max(world_size // 2, 1)
    groups = [dist.new_group(list(range(first, first + half))) for first in range(0, world_size, half)]
    own = rank // half
    model = torch.nn.Linear(2, 1, bias=False).to(device)
    torch.nn.init.constant_(model.weight, float(rank))
    sync = gradient_synchronization.make("overlap", model, None, groups[own])
    assert model.weight.tolist() == [[float(own * half)] * 2]
    model(torch.full((1, 2), float(rank), device=device)).sum().backward()
    sync.finish()
    members = range(own * half, own * half + half)
    assert model.weight.grad.tolist() == [[sum(members) / half] * 2]
    sync.close()


def run_cases(rank: int, world_size: int, device) -> dict[str, str]:
    results = {}
    for name in families(world_size, device.type):
        family = FAMILIES[name]
        expected = train_alone(family, world_size, device)
        for contender in contenders(name):
            check = functools.partial(check_training, family, contender, expected, rank, device)
            results[f"{name}-{contender}"] = outcome(check)
    for contender in OWN:
        results[f"behaviour-{contender}"] = outcome(functools.partial(check_behaviour, contender, rank, device))
    results["broadcast"] = outcome(functools.partial(check_broadcast, rank, device))
    results["subgroup"] = outcome(functools.partial(check_subgroup, rank, world_size, device))
    return results


def outcome(check) -> str:
    """Run one case. A rank that fails alone leaves its peers waiting; the group's timeout ends that."""
    try:
        check()
    except Exception:
        return traceback.format_exc(limit=-4)
    return "ok"


def main(device_type: str, backend: str, folder: str) -> None:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device(device_type)
    torch.set_num_threads(1)
    if device_type == "cuda":
        torch.backends.cudnn.allow_tf32 = False  # its error is 20 times the tolerance
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    store = peers.connect_store(rank, world_size, 60, "cases")
    timeout = timedelta(seconds=60)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=timeout)
    results = run_cases(rank, world_size, device)
    (Path(folder) / f"{rank}.json").write_text(json.dumps(results))
    dist.barrier()  # rank 0 hosts the store, from which another rank may still be making a group
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
