"""Verify rank placement before anything is timed.

A launcher that starts too few ranks, all of them on one host, or two on one GPU, would give a fast and wrong number.
The check uses only the store, so it needs no working backend.
"""

import json
import os
import re
import socket
import time
from collections import Counter
from dataclasses import asdict, dataclass, field

import torch
import torch.distributed as dist

from harness import environment, failures, free_memory, peers, process
from harness.process import Place

POLL_SECONDS = 0.02
WHOLE_NUMBER = re.compile("[1-9][0-9]*")
SHUTDOWN_SECONDS = 30.0  # grace period for rank shutdown: peers still read from rank 0's store


@dataclass
class Verdict:
    """Rank 0's verdict on all places, for one rank. `problems` is empty if the ranks are placed as requested.

    host_cores: those that the ranks of its host may use; empty if the rank is late.
    """

    problems: list[str]
    threads_per_rank: int
    host_cores: list[int] = field(default_factory=list)


@dataclass
class Placement:
    """The verified placement, on one rank. `places` is filled on rank 0 only."""

    ranks: peers.Ranks
    store: dist.Store
    place: Place
    places: list[Place]
    verdict: Verdict


def verify(request: dict, progress: failures.Progress) -> Placement:
    """Describe this rank's place, send it, and receive rank 0's verdict. request: a launch's or a preflight's."""
    import_s, timeout_seconds = process.seconds_since_start(), request["start_timeout_seconds"]
    rank, world_size, local_rank = peers.position_from_environment(dict(os.environ))
    store = peers.connect_store(rank, world_size, 2 * timeout_seconds, name=request["launch"])
    progress.phase = "placement"
    place, device = take_place(rank, local_rank, request["device"])
    place.import_s = import_s
    places = gather_places(place, world_size, store, timeout_seconds)
    if rank == 0:
        problems = find_problems(places, world_size, request["nodes"], request["gpus_per_node"], timeout_seconds)
        send_verdicts(problems, places, world_size, store)
    verdict = receive_verdict(rank, store)
    torch.set_num_threads(verdict.threads_per_rank)
    ranks = peers.Ranks(rank, world_size, local_rank, device, verdict.host_cores)
    return Placement(ranks, store, place, places, verdict)


def host_name() -> str:
    """Return the name that identifies a host."""
    return socket.gethostname()


def take_place(rank: int, local_rank: int, device_type: str) -> tuple[Place, torch.device]:
    """Choose this rank's device and describe the rank. Without a device, `problem` says why.

    In that case the device returned is the CPU, which nothing will use.
    """
    device, problem, gpu = torch.device("cpu"), None, None
    try:
        device = peers.choose_device(device_type, local_rank)
        gpu = environment.describe_gpu(device) if device.type == "cuda" else None
    except (ValueError, RuntimeError) as error:
        device, problem = torch.device("cpu"), str(error).splitlines()[0]
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
    """Return `cpu`, or a GPU's UUID: its index may be 0 in every task."""
    return device.type if gpu is None else gpu["uuid"] or f"cuda:{device.index}"


def gather_places(place: Place, world_size: int, store: dist.Store, timeout_seconds: float) -> list[Place]:
    """Send rank 0 this rank's place. Returns on rank 0 the places that arrived in time, elsewhere nothing."""
    store.set(f"place/{place.rank}", json.dumps(asdict(place)))
    if place.rank != 0:
        return []
    keys = [f"place/{rank}" for rank in range(world_size)]
    present = wait_for_keys(store, keys, timeout_seconds)
    return [Place(**json.loads(store.get(key))) for key in present]


def wait_for_keys(store: dist.Store, keys: list[str], timeout_seconds: float) -> list[str]:
    """Return the keys that are in the store when all are, or after the timeout."""
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if store.check(keys):
            return keys
        time.sleep(POLL_SECONDS)
    return [key for key in keys if store.check([key])]


def find_problems(
    places: list[Place], world_size: int, nodes: int, gpus_per_node: int, timeout_seconds: float
) -> list[str]:
    """Return all differences from `nodes` hosts with `gpus_per_node` ranks each.

    world_size: from the launcher's variables. places: one per rank that answered.
    """
    problems, expected = [], nodes * gpus_per_node
    if world_size != expected:
        problems.append(f"world size: {world_size} found, {expected} expected ({nodes} x {gpus_per_node} ranks)")
    missing = sorted(set(range(world_size)) - {place.rank for place in places})
    if missing:
        named = ", ".join(str(rank) for rank in missing[:8]) + (", ..." if len(missing) > 8 else "")
        answered = f"{len(places)} of {world_size} ranks answered within {timeout_seconds:g} s"
        problems.append(f"{answered}; missing: rank {named}")
    ranks_by_host = Counter(place.host for place in places)
    if len(ranks_by_host) != nodes:
        problems.append(f"hosts: {len(ranks_by_host)} found, {nodes} expected ({', '.join(sorted(ranks_by_host)[:8])})")
    for host, num_ranks in sorted(ranks_by_host.items()):
        if num_ranks != gpus_per_node:
            problems.append(f"ranks on host {host}: {num_ranks} found, {gpus_per_node} expected")
    return problems + device_problems(places)


def device_problems(places: list[Place]) -> list[str]:
    """Return which ranks have no device, or share one. Ranks on CPUs may share their host's cores."""
    problems = [f"rank {place.rank} on host {place.host}: {place.problem}" for place in places if place.problem]
    owners: dict[tuple[str, str], int] = {}
    for place in places:
        if place.device in (None, "cpu"):
            continue
        first = owners.setdefault((place.host, place.device), place.rank)
        if first != place.rank:
            problems.append(f"ranks {first} and {place.rank} on host {place.host} share device {place.device}")
    return problems


def send_verdicts(problems: list[str], places: list[Place], world_size: int, store: dist.Store) -> None:
    """Send every rank, from rank 0, the problems and its number of threads; also to ranks that are late."""
    cores_by_host: dict[str, list[list[int]]] = {}
    for place in places:
        cores_by_host.setdefault(place.host, []).append(place.cores)
    fixed = os.environ.get("REGATTA_THREADS_PER_RANK")
    if fixed and not WHOLE_NUMBER.fullmatch(fixed):
        # Sent to all ranks: if it were raised here, the others would wait for a verdict until the store's timeout.
        problems = [*problems, f"REGATTA_THREADS_PER_RANK = {fixed!r}: must be an integer above 0"]
        fixed = None
    threads = dict.fromkeys(range(world_size), 1)
    for place in places:
        share = process.threads_per_rank(place.cores, cores_by_host[place.host])
        threads[place.rank] = int(fixed) if fixed else share
    on_host = {host: sorted(set().union(*cores)) for host, cores in cores_by_host.items()}
    cores_of = {place.rank: on_host[place.host] for place in places}
    for rank, num_threads in threads.items():
        store.set(f"verdict/{rank}", json.dumps(asdict(Verdict(problems, num_threads, cores_of.get(rank, [])))))


def receive_verdict(rank: int, store: dist.Store) -> Verdict:
    """Wait for rank 0's verdict. Raises torch.distributed.DistStoreError after the timeout."""
    return Verdict(**json.loads(store.get(f"verdict/{rank}")))


def await_shutdown(place: Place, places: list[Place], store: dist.Store) -> None:
    """Keep rank 0, which may host the store, alive until the others no longer need it."""
    store.set(f"done/{place.rank}", "1")
    if place.rank == 0:
        wait_for_keys(store, [f"done/{other.rank}" for other in places], SHUTDOWN_SECONDS)
