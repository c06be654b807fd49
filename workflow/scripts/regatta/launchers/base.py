"""The interface of a launcher, and what launchers share: starting and ending processes."""

import contextlib
import ctypes
import math
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import psutil

from regatta.core.errors import Problem

PR_SET_PDEATHSIG, PR_GET_PDEATHSIG = 1, 2  # linux/prctl.h
REPEAT_SECONDS = 1.0  # between signals to a job that has not ended
STOP_SECONDS = 5.0  # start_ranks.py ends its ranks within 3 s of SIGTERM; then the rest is killed


@dataclass(frozen=True)
class Geometry:
    """The place where ranks start: cluster, number of nodes, ranks per node, and device."""

    cluster: dict
    nodes: int
    gpus_per_node: int
    device: str


@dataclass(frozen=True)
class TaskEnd:
    """The end of one rank.

    exit_code: negative for a signal, as in Python; None if the launcher's message is unknown or the scheduler ended
    the rank.
    """

    rank: int
    host: str | None
    exit_code: int | None
    text: str


@dataclass(frozen=True)
class LogReading:
    """The launcher's messages in the log of a launch. node_problem: its line about a lost node.

    hosts: those that it blames. exit_codes: those of failed ranks; rank_codes: by rank, if it names each rank.
    first_end: the first rank that failed. left: a cause if ranks ended long before the others, which were then killed.
    """

    node_problem: str | None = None
    hosts: frozenset[str] = frozenset()
    exit_codes: frozenset[int | None] = frozenset()
    rank_codes: dict[int, int] = field(default_factory=dict)
    first_end: TaskEnd | None = None
    left: str | None = None


Job = str | None  # the id of a job; None outside of one


@dataclass(frozen=True)
class Launcher:
    """The ways to start ranks and request jobs under one scheduler. Fields that it does not need keep defaults."""

    name: str
    title: str  # display name
    argv: Callable[..., list[str]]  # arguments: geometry, stack, python, program, limit_seconds, hosts
    # Returns variables and command line. Arguments: geometry, stack, prefix, program, hosts.
    by_hand: Callable[..., tuple[list[str], list[str]]]
    # Have ranks write their Python stacks to the log. Arguments: job, process, hosts of the launch (empty: all).
    dump_stacks: Callable[[Job, subprocess.Popen, Sequence[str]], None]
    lock: Callable[[Job, Path], TextIO]  # held by one measurement at a time; raises Taken
    read_log: Callable[[str], LogReading]
    profile_problem: Callable[[dict, bool, list[tuple[int, int]]], str | None]  # arguments: cluster, is_local, shapes

    # Cluster and stack files
    submits: bool = False  # jobs wait in a queue and run on other machines
    cluster_keys: tuple[str, ...] = ()  # scheduler-specific keys
    stack_keys: tuple[str, ...] = ()  # likewise; they belong to a cell's id
    cluster_problems: Callable[[dict], list[Problem]] = lambda cluster: []
    stack_problems: Callable[[dict, list[str]], list[Problem]] = lambda stack, node_folders: []
    stack_options: Callable[[dict, dict], dict[str, list[str]]] = lambda cluster, stack: {}  # includes the cluster's
    script_paths: Callable[[dict], dict[str, Path]] = lambda stack: {}  # scripts that the options name
    # Names of all nodes for a sweep, each with the reason why it cannot be used, or None. None: there is one machine.
    nodes: Callable[[dict], dict[str, str | None]] | None = None
    most_nodes: Callable[[dict], int] = lambda cluster: cluster["num_nodes"]  # of one job
    node_names: Callable[[str], list[str]] = lambda text: [text]  # of a host list; raises ValueError

    # Launches
    # Words before a program that runs once on each node. Arguments: geometry, limit_seconds, hosts.
    once_per_node: Callable[[Geometry, float, Sequence[str]], list[str]] = lambda *arguments: []
    variables: tuple[str, ...] = ()  # prefixes of the scheduler's variables, which ranks do not inherit
    kept_variables: tuple[str, ...] = ()  # except these
    replaced_variables: tuple[str, ...] = ()  # never inherited
    rank_variables: Callable[[], dict[str, str]] = dict  # set for each launch
    end_ranks: Callable[[Job, subprocess.Popen, Sequence[str]], None] = lambda job, process, hosts: None
    log_lines: str = r"(?!)"  # pattern of the launcher's lines
    host_words: str = r"(?!)"  # pattern of the words before a host in a cause

    # The job that this process runs in
    find_job: Callable[[dict], Job] = lambda cluster: None  # raises UserError if ranks need one
    hosts: Callable[[Job], list[str]] = lambda job: []
    excluded_nodes: Callable[[dict], list[str]] = lambda cluster: []  # that the cluster file excludes
    state: Callable[[Job], str | None] = lambda job: None  # RUNNING, PENDING, TIMEOUT, NODE_FAIL, ... or unknown
    # States by job id, and by batch for jobs of a campaign; None if unknown. Arguments: campaign, Snakemake's folder.
    queue: Callable[[str, Path], dict[str, str] | None] = lambda campaign, folder: {}
    is_answering: Callable[[], bool] = lambda: True
    foreign_steps: Callable[[Job], list[str] | None] = lambda job: []  # other measurements; None if unknown
    end_foreign: str = ""  # command that ends them

    # Submission by Snakemake
    # Arguments: cluster, nodes, gpus_per_node, device, planned minutes, blamed nodes, nodes to avoid, attempt.
    job_options: Callable[..., list[str]] = lambda *arguments: []
    walltime_minutes: Callable[[dict, float, int], int] = lambda cluster, minutes, attempt: 0  # time limit of a job
    on_hosts: Callable[[dict, Sequence[str]], dict] = lambda cluster, hosts: cluster  # so that jobs get these nodes
    submit_command: str = ""  # that takes these options
    longest_planned_minutes: Callable[[dict], float] = lambda cluster: math.inf
    longest_job_minutes: Callable[[dict], float] = lambda cluster: math.inf
    # Arguments: cluster, shapes, stacks by name.
    site_problems: Callable[[dict, Sequence[tuple[int, int]], dict], list[str]] = lambda cluster, shapes, stacks: []
    wait_for_jobs: Callable[[str, Path], None] = lambda campaign, folder: None  # of an earlier run of the campaign


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
            preexec_fn=_end_with(os.getpid()),
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


def _end_with(driver: int) -> Callable[[], None]:
    """Return what a new launch runs between fork and exec, which is safe because the driver has one thread."""

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
