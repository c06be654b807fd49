"""A rank and its peers: rendezvous, device, process group, and the collectives that are not measured themselves.

Works without numpy: numbers are sent as tensors, not as pickled objects (`all_gather_object` needs numpy).
"""

import errno
import ipaddress
import os
import re
import socket
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

from harness import torch_versions

# A rank that waits longer for its peers raises. It is torch's default for gloo; the supervisor's limit is shorter.
PEER_TIMEOUT = timedelta(minutes=30)
BACKLOG = 4096  # all ranks connect at once; the kernel lowers it to somaxconn


@dataclass
class Ranks:
    """This process among its peers. `local_rank` counts within a host.

    host_cores: those that the ranks of this host may use; empty if unknown.
    """

    rank: int
    world_size: int
    local_rank: int
    device: torch.device
    host_cores: list[int] = field(default_factory=list)

    def synchronize(self) -> None:
        """Wait until the device is idle. Does nothing on a CPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


TORCHRUN, SRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK"), ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")


def is_task_of_srun(environment: dict[str, str]) -> bool:
    """Return whether srun started this rank, and not torchrun in its task.

    In an image with PYTORCH_VERSION, Pyxis sets RANK and LOCAL_RANK of tasks, but not LOCAL_WORLD_SIZE; a hook of
    enroot also sets WORLD_SIZE (github.com/NVIDIA/pyxis, github.com/NVIDIA/enroot: 50-slurm-pytorch.sh).
    """
    is_same = environment.get("WORLD_SIZE") in (None, environment.get("SLURM_NTASKS"))
    return "SLURM_PROCID" in environment and is_same and "LOCAL_WORLD_SIZE" not in environment


def position_from_environment(environment: dict[str, str]) -> tuple[int, int, int]:
    """Return (rank, world size, local rank) from torchrun's variables or those of srun's tasks, else those of a single
    process.

    Raises ValueError if a launcher has set only some of its variables, or one to no number.
    """
    for names in (SRUN, TORCHRUN) if is_task_of_srun(environment) else (TORCHRUN, SRUN):
        found = {name: environment[name] for name in names if name in environment}
        # sbatch sets SLURM_NTASKS for its script too; only srun sets SLURM_PROCID for each task.
        if names[0] not in found:
            continue
        missing = [name for name in names if name not in found]
        if missing:
            raise ValueError(f"{names[0]} is set, but not {', '.join(missing)}. Start the ranks with torchrun or srun.")
        try:
            rank, world_size, local_rank = (int(found[name]) for name in names)
        except ValueError:
            raise ValueError(f"{found}: each of these variables must be an integer.") from None
        return rank, world_size, local_rank
    return 0, 1, 0


def connect_store(rank: int, world_size: int, timeout_seconds: float, name: str) -> dist.Store:
    """Return the store by which the ranks find each other. `name` separates its keys from torchrun's.

    torchrun's agent hosts a store and sets TORCHELASTIC_USE_AGENT_STORE=True; then every rank is a client
    (torch/distributed/rendezvous.py, _create_c10d_store). Otherwise rank 0 hosts it, on MASTER_ADDR or on the first
    node of its Slurm step. It does not wait for all ranks: the placement check does, and reports the missing ones.
    """
    address, port = meeting_point(dict(os.environ))
    if not address or not port:
        if world_size > 1:
            raise ValueError(
                f"{world_size} ranks, but MASTER_ADDR is {address!r} and MASTER_PORT is {port!r}. "
                "torchrun sets both; with srun, export MASTER_PORT, a free port of the step's first node."
            )
        return dist.PrefixStore(name, dist.HashStore())
    is_hosted_by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    is_master = rank == 0 and not is_hosted_by_agent
    store = dist.TCPStore(
        host_name=address,
        port=int(port),
        is_master=is_master,
        timeout=timedelta(seconds=timeout_seconds),
        wait_for_workers=False,
        **(listen_options(address, int(port)) if is_master else {}),
    )
    return dist.PrefixStore(name, store)


def meeting_point(environment: dict[str, str]) -> tuple[str | None, str | None]:
    """Return the store's address and port: the launcher's, or the first node of the Slurm step, where rank 0 runs.

    REGATTA_MASTER_ADDR is the MASTER_ADDR of the stack: its own name on another network, such as n1i.
    """
    address = environment.get("MASTER_ADDR")
    if is_task_of_srun(environment):  # even if an image or a wrapper sets MASTER_ADDR
        first = environment.get("REGATTA_MASTER_ADDR") or first_host(environment.get("SLURM_STEP_NODELIST", ""))
        address = first or address
    return address or None, environment.get("MASTER_PORT")


def first_host(nodelist: str) -> str:
    """Return the first name of a Slurm node list: gh001-ib of gh[001-004,007]-ib,login1."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodelist)[0]
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", first)


def listen_options(address: str, port: int) -> dict[str, object]:
    """Return TCPStore's arguments to listen on one address only; by default it listens on all interfaces."""
    inherited = os.environ.get("STORE_LISTEN_FD")  # set by start_ranks.py
    descriptor = int(inherited) if inherited else listen(address, port).detach()
    return {"master_listen_fd": descriptor, **torch_versions.store_options()}


def listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens on the interface of `address`, a host name.

    On all interfaces if other nodes could not reach it there: at some sites a node's name resolves to loopback on the
    node itself, or to an address of none of its interfaces.
    """
    family, _, _, _, resolved = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    is_loopback = ipaddress.ip_address(resolved[0].partition("%")[0]).is_loopback
    if not is_loopback or os.environ.get("SLURM_STEP_NUM_NODES", "1") == "1":
        try:
            return socket.create_server(resolved, family=family, backlog=BACKLOG)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                raise
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=BACKLOG)


def loopback_problem(host: str, interface: str | None) -> str | None:
    """Return why gloo on this host would listen on loopback, where other hosts cannot reach it, or None.

    interface: GLOO_SOCKET_IFNAME. Without it, gloo listens on the first address of the host's name that it can bind,
    else on loopback (torch, GlooDeviceFactory).
    """
    if interface:
        return None
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    address = next((resolved[0] for family, _, _, _, resolved in found if _can_bind(family, resolved)), None)
    if address and not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return None
    named = f"{host} resolves its hostname to {address}" if address else f"no interface of {host} has its address"
    interfaces = ", ".join(name for _, name in socket.if_nameindex() if name != "lo") or "none"
    remedy = "Set network_interface in the cluster file, or correct /etc/hosts"
    return f"{named}, so gloo would listen on loopback only. {remedy} (interfaces: {interfaces})."


def _can_bind(family: int, address: tuple) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def choose_device(device_type: str, local_rank: int) -> torch.device:
    """Return this rank's device, and make it the current one.

    If each task sees one GPU only (srun --gpus-per-task=1), that is device 0 for all of them.
    Raises ValueError if there is no GPU for this rank.
    """
    if device_type == "cpu":
        return torch.device("cpu")
    if device_type != "cuda":
        raise ValueError(f"device {device_type!r}: expected cpu or cuda.")
    num_visible = torch.cuda.device_count()
    if num_visible == 0:
        names, option = ("CUDA_VISIBLE_DEVICES",), "--nv"
        if torch.version.hip:
            names, option = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), "--rocm; set gpu_vendor: amd"
        shown = ", ".join(f"{name}={os.environ.get(name)!r}" for name in names)
        raise ValueError(
            f"device cuda, but this rank sees no GPU (torch {torch.__version__}, {shown}). "
            f"Request GPUs for the job; in a container, pass them through (singularity: {option})."
        )
    if num_visible > 1 and local_rank >= num_visible:
        raise ValueError(
            f"local rank {local_rank} has no GPU: {num_visible} are visible. "
            "Start at most as many ranks on a host as it has GPUs."
        )
    device = torch.device("cuda", 0 if num_visible == 1 else local_rank)
    torch.cuda.set_device(device)
    return device


def begin_group(ranks: Ranks, backend: str, store: dist.Store, name: str) -> None:
    """Make a process group of all ranks that shares nothing with an earlier one: `name` must be new.

    With NCCL, `device_id` makes the communicator now instead of in the first collective, so that its time counts as
    setup (docs.pytorch.org, init_process_group).
    """
    dist.init_process_group(
        backend,
        store=dist.PrefixStore(name, store),
        rank=ranks.rank,
        world_size=ranks.world_size,
        timeout=PEER_TIMEOUT,
        device_id=ranks.device if backend == "nccl" else None,
    )


def end_group() -> None:
    """End this process's group, if it has one."""
    if dist.is_initialized():
        with torch_versions.ending_gloo():
            dist.destroy_process_group()


def barrier(ranks: Ranks) -> None:
    """Wait for all ranks. They leave it within a short time, not at the same instant."""
    if dist.get_backend() == "nccl":
        dist.barrier(device_ids=[ranks.device.index])
    else:
        dist.barrier()


def group_device(ranks: Ranks) -> torch.device:
    """Return the device of tensors for collectives: NCCL needs the GPU, other backends take the CPU."""
    return ranks.device if dist.get_backend() == "nccl" else torch.device("cpu")


def number_from_rank_0(value: int, ranks: Ranks) -> int:
    """Return rank 0's `value` on every rank; the others' is ignored."""
    shared = torch.tensor([value], dtype=torch.int64, device=group_device(ranks))
    dist.broadcast(shared, src=0)
    return int(shared.item())


def largest_over_ranks(values: list[int], ranks: Ranks) -> list[int]:
    """Return for each position the largest value of any rank. All ranks pass equally many."""
    shared = torch.tensor(values, dtype=torch.int64, device=group_device(ranks))
    dist.all_reduce(shared, op=dist.ReduceOp.MAX)
    return shared.tolist()


def gather_rows(values: list[int], ranks: Ranks) -> list[list[int]]:
    """Return all ranks' values as [rank][position], on every rank. All ranks pass equally many."""
    row = torch.tensor(values, dtype=torch.int64, device=group_device(ranks))
    rows = torch.empty(ranks.world_size * len(values), dtype=torch.int64, device=group_device(ranks))
    dist.all_gather_into_tensor(rows, row)
    return rows.view(ranks.world_size, len(values)).tolist()


def true_on_all_ranks(checks: dict[str, bool], ranks: Ranks) -> dict[str, bool]:
    """Return the checks, True only if true on every rank. All ranks pass the same keys."""
    names = sorted(checks)
    failed = largest_over_ranks([int(not checks[name]) for name in names], ranks) if names else []
    return {name: not has_failed for name, has_failed in zip(names, failed, strict=True)}
