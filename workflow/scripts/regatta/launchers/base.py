"""What a launcher is to the rest of Regatta, and what launchers share: starting and ending processes, reading logs."""

import ctypes
import math
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import psutil

from regatta.core.errors import Problem

PR_SET_PDEATHSIG = 1  # linux/prctl.h
STOP_SECONDS = 5.0  # start_ranks.py ends its ranks within 3 s of SIGTERM; then the rest is killed


@dataclass(frozen=True)
class Geometry:
    """Where ranks are started: on which cluster, on how many nodes, how many on each, and what they compute on."""

    cluster: dict
    nodes: int
    gpus_per_node: int
    device: str


@dataclass(frozen=True)
class TaskEnd:
    """How one rank ended: `exit_code` as Python counts it, negative for a signal; None where the launcher's words are
    unknown, and where the scheduler ended the rank."""

    rank: int
    host: str | None
    exit_code: int | None
    text: str


@dataclass(frozen=True)
class LogReading:
    """What the launcher of a launch says in its log. node_problem: its line about a node that is gone.

    hosts: that it blames. exit_codes: of ranks that failed; rank_codes: by rank, where it names each rank. first_end:
    of the first rank that failed. left: a cause where ranks ended long before the others, which were then killed.
    """

    node_problem: str | None = None
    hosts: frozenset[str] = frozenset()
    exit_codes: frozenset[int | None] = frozenset()
    rank_codes: dict[int, int] = field(default_factory=dict)
    first_end: TaskEnd | None = None
    left: str | None = None


@dataclass(frozen=True)
class Launcher:
    """How ranks are started and jobs are asked for under one scheduler. What a scheduler lacks keeps its default.

    Cluster and stack files
    title: the scheduler's name, for people. submits: jobs wait in a queue and run on other machines. cluster_keys,
    stack_keys: keys of these files that mean something to this scheduler alone; stack_keys belong to a cell's id.
    cluster_problems(cluster), stack_problems(stack, node_folders): what is wrong with them.
    stack_options(cluster, stack): the stack's options with the cluster's. script_paths(stack): scripts that they name.

    Launches
    argv(geometry, stack, python, program, limit_seconds, hosts): the line that starts `program`; `python` holds the
    words up to the interpreter. by_hand(geometry, stack, prefix, program): variables and line for people.
    variables: prefixes of those that the scheduler reads or sets; kept_variables: of them, what ranks inherit.
    replaced_variables: what the ranks' environment must not inherit either. rank_variables(): set for each launch.
    dump_stacks(job, process) has ranks write their Python stacks; end_ranks(job, process) ends what is left of them.
    read_log(log): what the launcher says in the log. log_lines: a pattern of its own lines. host_words: a pattern of
    what is before a host in a cause.

    Jobs
    find_job(cluster): the job that this process runs in. Raises UserError where ranks need one. hosts(job), state(job):
    its nodes and RUNNING, PENDING, TIMEOUT, NODE_FAIL, ...; nothing where that is unknown. is_answering(): whether the
    scheduler does. lock(job, folder): held by one measurement at a time; raises Taken.
    foreign_steps(job): other measurements in the job; None if unknown. end_foreign: how to end them.

    Submission
    job_constants: Snakemake's resources of a job, as the job itself sees them. job_resources(cluster, nodes,
    gpus_per_node, device, minutes, attempt, avoid): those that a job is submitted with; site_resources(cluster): those
    that all jobs share. submit_variables(cluster): for the environment of the submission. job_words(cluster, nodes,
    gpus_per_node, device, minutes): what a job asks for, for people. submit_command: that these are options of.
    longest_planned_minutes(cluster). shape_problems(cluster, shapes): why jobs could never start.
    profile_problem(cluster, is_local, shapes): why this command line cannot run the campaign.
    keep_configuration() and take_over(campaign, folder): before the workflow is planned, and before it runs.
    """

    name: str
    title: str
    argv: Callable[..., list[str]]
    by_hand: Callable[[Geometry, dict, list[str], list[str]], tuple[list[str], list[str]]]
    dump_stacks: Callable[[str | None, subprocess.Popen], None]
    lock: Callable[[str | None, Path], TextIO]
    read_log: Callable[[str], LogReading]
    profile_problem: Callable[[dict, bool, list[tuple[int, int]]], str | None]

    submits: bool = False
    cluster_keys: tuple[str, ...] = ()
    stack_keys: tuple[str, ...] = ()
    cluster_problems: Callable[[dict], list[Problem]] = lambda cluster: []
    stack_problems: Callable[[dict, list[str]], list[Problem]] = lambda stack, node_folders: []
    stack_options: Callable[[dict, dict], dict[str, list[str]]] = lambda cluster, stack: {}
    script_paths: Callable[[dict], dict[str, Path]] = lambda stack: {}

    variables: tuple[str, ...] = ()
    kept_variables: tuple[str, ...] = ()
    replaced_variables: tuple[str, ...] = ()
    rank_variables: Callable[[], dict[str, str]] = dict
    end_ranks: Callable[[str | None, subprocess.Popen], None] = lambda job, process: None
    log_lines: str = r"(?!)"
    host_words: str = r"(?!)"

    find_job: Callable[[dict], str | None] = lambda cluster: None
    hosts: Callable[[str | None], list[str]] = lambda job: []
    state: Callable[[str | None], str | None] = lambda job: None
    is_answering: Callable[[], bool] = lambda: True
    foreign_steps: Callable[[str | None], list[str] | None] = lambda job: []
    end_foreign: str = ""

    job_constants: dict[str, int | str] = field(default_factory=dict)
    job_resources: Callable[..., dict[str, int | str]] = lambda *arguments: {}
    site_resources: Callable[[dict], dict[str, int | str]] = lambda cluster: {}
    submit_variables: Callable[[dict], dict[str, str]] = lambda cluster: {}
    job_words: Callable[..., str | None] = lambda *arguments: None
    submit_command: str = ""
    longest_planned_minutes: Callable[[dict], float] = lambda cluster: math.inf
    shape_problems: Callable[[dict, Sequence[tuple[int, int]]], list[str]] = lambda cluster, shapes: []
    keep_configuration: Callable[[], None] = lambda: None
    take_over: Callable[[str, Path], None] = lambda campaign, folder: None


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
            preexec_fn=_end_with_driver,
        )


def stop(process: subprocess.Popen) -> None:
    """End a launch: SIGTERM, and SIGKILL for whatever is left. Returns when all its processes are gone."""
    family = descendants(process)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for child in family:
        try:
            child.kill()
        except psutil.Error:
            continue
    psutil.wait_procs(family, timeout=STOP_SECONDS)


def descendants(process: subprocess.Popen) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        return []


def _end_with_driver() -> None:
    # Runs in the child between fork and exec. The driver has one thread, so this is safe.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
