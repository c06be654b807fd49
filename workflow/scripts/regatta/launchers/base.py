"""The interface of a launcher, and what launchers share: starting and ending processes."""

import contextlib
import ctypes
import errno
import math
import os
import random
import signal
import socket
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import psutil

from regatta.core.errors import Problem
from regatta.core.matching import LABELLED

PR_SET_PDEATHSIG, PR_GET_PDEATHSIG = 1, 2  # linux/prctl.h
REPEAT_SECONDS = 1.0  # between signals to a job that has not ended
LOOPBACK = "127.0.0.1"
CONNECTION_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")  # that the kernel gives to connections
PORTS, MOST_PORTS_TRIED = range(10_000, 2**16), 100
STOP_SECONDS = 5.0  # start_ranks.py ends its ranks within 3 s of SIGTERM; then the rest is killed


@dataclass(frozen=True)
class Geometry:
    """The place where ranks start: cluster, number of nodes, GPUs per node, and device.

    ranks_per_node: None for one per GPU, and on cpu for `gpus_per_node`. hosts: the nodes, if the job has more.
    starts: nodes and ranks per node that the program starts itself; None if its processes are the ranks.
    """

    cluster: dict
    nodes: int
    gpus_per_node: int
    device: str
    ranks_per_node: int | None = None
    hosts: Sequence[str] = ()
    starts: tuple[int, int] | None = None

    @property
    def num_local_ranks(self) -> int:
        return self.ranks_per_node or self.gpus_per_node

    @property
    def num_ranks(self) -> int:
        return self.nodes * self.num_local_ranks


def label_option(geometry: Geometry) -> list[str]:
    """Return the option of srun and start_ranks.py that labels lines: those of several ranks of a user's program."""
    return ["--label"] if geometry.num_ranks > 1 else []


@dataclass(frozen=True)
class TaskEnd:
    """The end of one rank.

    exit_code: negative for a signal, as in Python; None if it is unknown, or if the scheduler ended the rank.
    """

    rank: int
    host: str | None
    exit_code: int | None
    text: str


@dataclass(frozen=True)
class LogReading:
    """The launcher's messages in the log of a launch. node_problem: its line about a lost node.

    hosts: those that it blames. exit_codes: those of failed ranks; rank_codes: by rank, if it names each rank.
    first_end: the first failed rank. left: a cause if ranks ended long before the others. image: one if none started.
    """

    node_problem: str | None = None
    hosts: frozenset[str] = frozenset()
    exit_codes: frozenset[int | None] = frozenset()
    rank_codes: dict[int, int] = field(default_factory=dict)
    first_end: TaskEnd | None = None
    left: str | None = None
    image: str | None = None


JobId = str | None  # the id of a job; None outside of one


class Ranks(ABC):
    """How ranks are started and ended, and what the launcher writes to their log."""

    variables: tuple[str, ...] = ()  # prefixes of the scheduler's variables, which ranks do not inherit
    kept_variables: tuple[str, ...] = ()  # except these
    templates: Mapping[str, str] = MappingProxyType({})  # those that have the value of a variable of this launcher
    replaced_variables: tuple[str, ...] = ()  # never inherited
    stack_keys: tuple[str, ...] = ()  # scheduler-specific keys of a stack, in cell ids; the first: also of runtimes
    first_log_line = LABELLED  # of a log whose lines begin with their ranks
    log_lines = r"(?!)"  # pattern of the launcher's lines
    host_words = r"(?!)"  # pattern of the words before a host in a cause
    first_host_by_hand = LOOPBACK  # the first node of a launch, in a line for a shell

    @abstractmethod
    def argv(
        self, geometry: Geometry, stack: dict, python: list[str], program: list[str], limit_seconds: float | None = None
    ) -> list[str]:
        """Return the command line that starts a program on all ranks. python: empty for a program that is not Python's.

        limit_seconds: limit of a job's step, if the supervisor dies.
        """

    @abstractmethod
    def by_hand(
        self, geometry: Geometry, stack: dict, prefix: list[str], program: list[str]
    ) -> tuple[list[str], list[str]]:
        """Return variables and the command line with which a user repeats one cell."""

    @abstractmethod
    def dump_stacks(self, job: JobId, process: subprocess.Popen, hosts: Sequence[str] = ()) -> None:
        """Have every rank write its Python stacks to the log. hosts: those of the launch; empty: all."""

    @abstractmethod
    def read_log(self, log: str) -> LogReading:
        """Return what the launcher's messages say."""

    def stack_options(self, cluster: dict, stack: dict) -> dict[str, list[str]]:
        """Return the values of the stack's keys, with those of the cluster."""
        return {}

    def script_paths(self, stack: dict) -> dict[str, Path]:
        """Return the scripts that these options name."""
        return {}

    def once_per_node(self, geometry: Geometry, limit_seconds: float) -> list[str]:
        """Return the words before a program that runs once on each node."""
        return []

    def meeting_point(self, meeting: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables by which the ranks of a new launch find each other. meeting: values of its templates."""
        return {"MASTER_PORT": meeting["port"]} if meeting else {}

    def end(self, job: JobId, process: subprocess.Popen, hosts: Sequence[str] = ()) -> None:
        """End ranks that outlived the process that started them."""
        return


class Queue(ABC):
    """What the scheduler says: about the job that this process runs in, the jobs of a campaign, and the nodes."""

    end_foreign = ""  # command that ends foreign steps

    @abstractmethod
    def lock(self, job: JobId, folder: Path) -> AbstractContextManager:
        """Lock the place of measurement, for one measurement at a time. Raises Taken."""

    def holder(self) -> str:
        """Return who holds the lock, such as ` by alice (process 123)`; empty if unknown."""
        return ""

    def use_cluster(self, cluster: dict) -> None:
        """Make the scheduler's commands use the cluster that a cluster file names."""
        return

    def find_job(self, cluster: dict) -> JobId:
        """Return the job that this process runs in. Raises UserError if ranks need one."""
        return None

    def hosts(self, job: JobId) -> list[str]:
        """Return the job's nodes."""
        return []

    def state(self, job: JobId) -> str | None:
        """Return the job's state, RUNNING, PENDING, TIMEOUT, NODE_FAIL and so on; None if unknown."""
        return None

    def state_after_signal(self, job: JobId, cluster: dict) -> str | None:
        """Return the job's state after a signal to this process, which may precede the time limit."""
        return self.state(job)

    def foreign_steps(self, job: JobId) -> list[str] | None:
        """Return the job's other measurements; None if unknown."""
        return []

    def is_answering(self) -> bool:
        return True

    def states(self, campaign: str, folder: Path) -> dict[str, str] | None:
        """Return the states of jobs by id, and by batch for jobs of the campaign; None if unknown."""
        return {}

    def wait_for_jobs(self, campaign: str, folder: Path) -> None:
        """Wait for jobs of an earlier run of the campaign."""
        return

    def nodes(self, cluster: dict) -> dict[str, str | None]:
        """Return all nodes for a sweep, each with the reason why it cannot be used, or None."""
        return {}

    def node_names(self, text: str) -> list[str]:
        """Return the names in a host list. Raises ValueError."""
        return [text]

    def excluded_nodes(self, cluster: dict) -> list[str]:
        """Return the nodes that the cluster file excludes."""
        return []


class Jobs:
    """What a job requests."""

    submit_command = ""  # that takes the options
    # Resources of Snakemake: for keys of a cluster file; and patterns of those that follow from keys, with these.
    resource_keys: Mapping[str, str] = MappingProxyType({})
    refused_resources: Mapping[str, str] = MappingProxyType({})
    resources_in_job: Mapping[str, str] = MappingProxyType({})
    resource_names: tuple[str, ...] = ()  # of `resources`

    def options(
        self,
        geometry: Geometry,
        planned_minutes: float,
        avoid: Sequence[Iterable[str]] = (),
        attempt: int = 1,
        runtime_minutes: int | None = None,
    ) -> list[str]:
        """Return the options for one attempt. avoid: groups of nodes, the most important first. runtime_minutes: the
        time limit, if the command line has one."""
        return []

    def resources(self, geometry: Geometry, options: list[str]) -> dict[str, object]:
        """Return a job's options as resources of other executors of Snakemake."""
        return {}

    def walltime_minutes(self, cluster: dict, planned_minutes: float, attempt: int) -> int:
        """Return a job's time limit."""
        return 0

    def longest_planned_minutes(self, cluster: dict) -> float:
        """Return how long a batch may be planned."""
        return math.inf

    def longest_minutes(self, cluster: dict) -> float:
        """Return the longest time limit of a job."""
        return math.inf

    def most_nodes(self, cluster: dict) -> int:
        """Return the most nodes of one job."""
        return cluster["num_nodes"]


class Checks(ABC):
    """What is wrong with the files of a site, before anything is submitted."""

    cluster_keys: tuple[str, ...] = ()  # scheduler-specific keys of a cluster file

    @abstractmethod
    def profile_problem(self, cluster: dict, is_local: bool, shapes: list[tuple[int, int]]) -> str | None:
        """Return why a profile cannot run this cluster's jobs."""

    def cluster_problems(self, cluster: dict) -> list[Problem]:
        return []

    def stack_problems(self, stack: dict, cluster: dict) -> list[Problem]:
        return []

    def site_problems(self, cluster: dict, shapes: Sequence[tuple[int, int]], stacks: dict[str, dict]) -> list[str]:
        """Return which jobs could never start, and which stacks."""
        return []


@dataclass(frozen=True)
class Launcher:
    """One scheduler. submits: jobs wait in a queue and run on other machines."""

    name: str
    title: str  # display name
    ranks: Ranks
    queue: Queue
    checks: Checks
    jobs: Jobs = field(default_factory=Jobs)
    submits: bool = False


def free_port() -> int:
    """Return a port of this machine that nothing has bound; it is not held.

    It is outside of the ports that the kernel gives to connections, if there are others: they are taken at any time.
    """
    with contextlib.suppress(OSError, ValueError):
        low, high = map(int, CONNECTION_PORTS.read_text().split())
        ports = [port for port in PORTS if not low <= port <= high]
        for port in random.sample(ports, min(len(ports), MOST_PORTS_TRIED)):
            if _is_free(port):
                return port
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def _is_free(port: int) -> bool:
    """Return whether a server could bind a port on all addresses, without options of its socket."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(family) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
    return True


def start(argv: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen:
    """Start a launch in a separate session, output to `log`. If the driver is killed, the kernel ends the launch."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with(os.getpid()),
        )


def stop(process: subprocess.Popen) -> None:
    """End a launch: SIGTERM, then SIGKILL. Returns when all its processes are gone."""
    family = descendants(process)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for child in family:
        with contextlib.suppress(psutil.Error):
            child.kill()
    psutil.wait_procs(family, timeout=STOP_SECONDS)


def descendants(process: subprocess.Popen) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        return []


def end_with(driver: int) -> Callable[[], None]:
    """Return what a new process runs between fork and exec, which is safe because the driver has one thread."""

    def end_with_driver() -> None:
        end_with_parent(signal.SIGTERM)
        if os.getppid() != driver:  # it died before
            os._exit(1)

    return end_with_driver


def end_with_parent(number: int) -> None:
    """Have the kernel send a signal to this process when its parent dies, 0 for none. Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def outlive_run_campaign() -> None:
    """Undo the signal that run_campaign.py has the kernel send at its end, but not one that another parent has set."""
    number = ctypes.c_int()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(number), 0, 0, 0)
        if number.value == signal.SIGTERM:
            end_with_parent(0)


def end_jobs(stop: threading.Event, closing: threading.Event) -> None:
    """Wait for `stop`, then send SIGTERM to the jobs of this process, also to those started meanwhile, until `closing`.

    As with Ctrl-C, only this process group receives it. A launch has a separate one, and its supervisor ends it.
    """
    stop.wait()
    known: set[psutil.Process] = set()
    while not closing.is_set():
        for job in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                family = [job] if job in known else [job, *job.children(recursive=True)]
                known.add(job)
                for process in family:
                    with contextlib.suppress(psutil.Error, ProcessLookupError):
                        if os.getpgid(process.pid) == os.getpgrp():
                            process.terminate()
        closing.wait(REPEAT_SECONDS)
