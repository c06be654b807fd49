"""Where the ranks really are, proven before anything is timed.

A launcher that starts fewer ranks than asked, all of them on one host, or two on one GPU, otherwise gives a fast and
wrong number. The proof goes through the store alone, so it needs no backend that works.
"""

import json
import os
import re
import socket
import time
from collections import Counter
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist

from harness import environment, failures, free_memory, peers, process
from harness.process import Place

POLL_SECONDS = 0.02
WHOLE_NUMBER = re.compile("[1-9][0-9]*")

# How long rank 0 stays for peers that still have to read from its store, at the very end.
FAREWELL_SECONDS = 30.0


@dataclass
class Verdict:
    """What rank 0 made of all places, for one rank. `problems` is empty where the ranks are as they were asked for."""

    problems: list[str]
    threads_per_rank: int


@dataclass
class Proof:
    """What a rank knows once the placement is proven. `places` is filled on rank 0 alone."""

    ranks: peers.Ranks
    store: dist.Store
    place: Place
    places: list[Place]
    verdict: Verdict


def prove(request: dict, progress: failures.Progress) -> Proof:
    """Take this rank's place, tell it, and hear what rank 0 makes of all. request: of a launch or of a preflight."""
    timeout_seconds = request["start_timeout_seconds"]
    rank, world_size, local_rank = peers.position_from_environment(dict(os.environ))
    store = peers.connect_store(rank, world_size, 2 * timeout_seconds, name=request["launch"])
    progress.phase = "placement"
    place, device = take_place(rank, local_rank, request["device"])
    places = exchange(place, world_size, store, timeout_seconds)
    if rank == 0:
        problems = find_problems(places, world_size, request["nodes"], request["gpus_per_node"], timeout_seconds)
        announce(problems, places, world_size, store)
    verdict = hear(rank, store)
    torch.set_num_threads(verdict.threads_per_rank)
    return Proof(peers.Ranks(rank, world_size, local_rank, device), store, place, places, verdict)


def host_name() -> str:
    """Return the name that tells hosts apart."""
    return socket.gethostname()


def take_place(rank: int, local_rank: int, device_type: str) -> tuple[Place, torch.device]:
    """Choose this rank's device and describe it. A rank without a device says so instead of raising.

    On an error the device returned is the CPU, which nothing will use.
    """
    device, problem = torch.device("cpu"), None
    try:
        device = peers.choose_device(device_type, local_rank)
    except (ValueError, RuntimeError) as error:
        problem = str(error).splitlines()[0]
    gpu = environment.describe_gpu(device) if device.type == "cuda" else None
    place = Place(
        rank=rank,
        local_rank=local_rank,
        host=host_name(),
        device=None if problem else device_identity(device, gpu),
        problem=problem,
        cores=process.usable_cores(),
        cpu_model=environment.cpu_model(),
        memory_bytes=free_memory.total_bytes(),
        gpu=gpu,
    )
    return place, device


def device_identity(device: torch.device, gpu: dict | None) -> str:
    """Return `cpu`, or a GPU's UUID, which also tells devices apart that each task sees as its number 0."""
    if gpu is None:
        return device.type
    return gpu["uuid"] or f"cuda:{device.index}"


def exchange(place: Place, world_size: int, store: dist.Store, timeout_seconds: float) -> list[Place]:
    """Tell rank 0 this rank's place. Returns on rank 0 the places of all ranks that came in time, elsewhere nothing."""
    store.set(f"place/{place.rank}", json.dumps(asdict(place)))
    if place.rank != 0:
        return []
    keys = [f"place/{rank}" for rank in range(world_size)]
    present = wait_for_keys(store, keys, timeout_seconds)
    return [Place(**json.loads(store.get(key))) for key in present]


def wait_for_keys(store: dist.Store, keys: list[str], timeout_seconds: float) -> list[str]:
    """Return the keys that are in the store once all are, or once the time is over."""
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if store.check(keys):
            return keys
        time.sleep(POLL_SECONDS)
    return [key for key in keys if store.check([key])]


def find_problems(
    places: list[Place], world_size: int, nodes: int, gpus_per_node: int, timeout_seconds: float
) -> list[str]:
    """Return in words all that differs from `nodes` hosts with `gpus_per_node` ranks each; [] if nothing does.

    world_size: as the launcher told the ranks. places: of those that answered.
    """
    problems = []
    if world_size != nodes * gpus_per_node:
        problems.append(
            f"world size {world_size} found, {nodes * gpus_per_node} expected ({nodes} nodes x {gpus_per_node} ranks)"
        )
    missing = sorted(set(range(world_size)) - {place.rank for place in places})
    if missing:
        named = ", ".join(str(rank) for rank in missing[:8]) + (", ..." if len(missing) > 8 else "")
        problems.append(
            f"{len(places)} of {world_size} ranks answered within {timeout_seconds:g} s; missing: rank {named}"
        )
    ranks_by_host = Counter(place.host for place in places)
    if len(ranks_by_host) != nodes:
        problems.append(f"{len(ranks_by_host)} hosts found, {nodes} expected ({', '.join(sorted(ranks_by_host)[:8])})")
    for host, num_ranks in sorted(ranks_by_host.items()):
        if num_ranks != gpus_per_node:
            problems.append(f"{num_ranks} ranks found on host {host}, {gpus_per_node} expected")
    return problems + device_problems(places)


def device_problems(places: list[Place]) -> list[str]:
    """Return in words which ranks have no device, or share one. Ranks on CPUs share their host's cores and may."""
    problems = [f"rank {place.rank} on host {place.host}: {place.problem}" for place in places if place.problem]
    owners: dict[tuple[str, str], int] = {}
    for place in places:
        if place.device in (None, "cpu"):
            continue
        first = owners.setdefault((place.host, place.device), place.rank)
        if first != place.rank:
            problems.append(f"ranks {first} and {place.rank} on host {place.host} share device {place.device}")
    return problems


def announce(problems: list[str], places: list[Place], world_size: int, store: dist.Store) -> None:
    """Tell every rank, on rank 0, what was found and how many threads it may use; also a rank that comes too late."""
    cores_by_host: dict[str, list[list[int]]] = {}
    for place in places:
        cores_by_host.setdefault(place.host, []).append(place.cores)
    fixed = os.environ.get("REGATTA_THREADS_PER_RANK")
    if fixed and not WHOLE_NUMBER.fullmatch(fixed):
        # Said to all ranks: were it raised here, the others would wait for a verdict until the store's time is over.
        problems = [*problems, f"REGATTA_THREADS_PER_RANK = {fixed!r}: one whole number above 0 is needed"]
        fixed = None
    for place in places:
        neighbours = cores_by_host[place.host]
        threads = int(fixed) if fixed else process.threads_per_rank(place.cores, neighbours)
        verdict = Verdict(problems, threads)
        store.set(f"verdict/{place.rank}", json.dumps(asdict(verdict)))
    for rank in sorted(set(range(world_size)) - {place.rank for place in places}):
        store.set(f"verdict/{rank}", json.dumps(asdict(Verdict(problems, threads_per_rank=1))))


def hear(rank: int, store: dist.Store) -> Verdict:
    """Wait for rank 0's verdict. Raises torch.distributed.DistStoreError if it does not come in time."""
    return Verdict(**json.loads(store.get(f"verdict/{rank}")))


def say_farewell(place: Place, places: list[Place], store: dist.Store) -> None:
    """Keep rank 0, which may host the store, alive until the others need it no more."""
    store.set(f"farewell/{place.rank}", "1")
    if place.rank == 0:
        wait_for_keys(store, [f"farewell/{other.rank}" for other in places], FAREWELL_SECONDS)
