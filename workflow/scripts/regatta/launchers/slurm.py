"""Slurm: ranks are started by srun, in a job of Snakemake's executor or in an allocation of the user."""

import math
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TextIO

from regatta.core.errors import UserError
from regatta.core.files import Taken, hold_number
from regatta.core.matching import BY_SRUN
from regatta.launchers import slurm_queue as queue
from regatta.launchers import slurm_resources as resources
from regatta.launchers.base import Checks, Geometry, Launcher, LogReading, Queue, Ranks, TaskEnd, label_option
from regatta.launchers.slurm_options import RUN_BY_SRUN, cluster_problems, script_option, srun_problems
from regatta.launchers.slurm_queue import STEP_NAME, expand

# Once one rank has ended, the others have this long to shut down; then srun ends them.
SECONDS_AFTER_FIRST_EXIT = 60
PORT_BY_HAND = "MASTER_PORT=29500"
TEMPLATES = {
    **dict.fromkeys(("SLURMD_NODENAME", "SLURM_LAUNCH_NODE_IPADDR"), "first_host"),
    **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), "world_size"),
    **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES"), "nodes"),
    **dict.fromkeys(("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_GPUS_ON_NODE"), "gpus_per_node"),
    "SLURM_GPUS_PER_NODE": "gpus_per_node",
}


# Launches.


def nodes_of_step(geometry: Geometry) -> list[str]:
    """Return the options for the nodes of a step: pinned to its hosts, or any of the job that is not excluded."""
    if geometry.hosts:
        return [f"--nodelist={','.join(geometry.hosts)}"]
    excluded = geometry.cluster.get("exclude_nodes")  # absent in earlier batches
    return [f"--exclude={','.join(excluded)}"] if excluded else []


# Jobs.


# srun's messages (Slurm 24.11 and 26.05), such as `srun: error: n2: task 3: Exited with exit code 1`.

TASKS_ENDED = re.compile(r"^srun: error: (\S+): tasks? ([\d,-]+): (.+)$", re.MULTILINE)
# Only Slurm's lines, because a rank may print such words about a name server or a peer. None about Slurm's controller.
NO_NODE = re.compile(
    r"^(?:srun: |slurmstepd\S*: |\[\d{4}-\d\d-\d\dT[\d:.]+\] (?:slurmstepd\S*: |error: ))"
    r"(?!.*Unable to contact slurm controller).*"
    r"(Node failure|NODE FAILURE|Unable to confirm allocation|Communication connection failure|"
    r"Unable to contact slurmd|Zero Bytes were transmitted|Socket timed out on send/recv|"
    r"Required node not available|Nodes? .* not responding|Unable to resolve).*$",
    re.MULTILINE,
)
# The nodes that such lines are about. (STEP 7.0 ON n1 names only the node that prints.)
NAMED_NODES = re.compile(r'(?:[Nn]ode failure on|on nodes?|Nodes?|resolve(?: hostname)?) "?([\w.,\[\]-]+)')
# These lines before a task's end mean that Slurm ended the step. (DUE TO TASK FAILURE follows another task's end.)
# Slurm 24.11 gives no reason for a signal or a task's failure.
ENDED_BY_SLURM = re.compile(
    r"^srun: First task exited (?P<wait>\w+) ago|"
    r"error: \*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT \S+(?P<why> DUE (?!TO TASK FAILURE).+?|) \*\*\*",
    re.MULTILINE,
)
# Plugins that start ranks in an image: Pyxis, on which CSCS's Container Engine is based, and uenv.
IMAGE_ERROR = re.compile(
    r"^(?:\d+: )?(?:\[\S+\] (?:slurmstepd\S*: )?|(?:srun|slurmstepd\S*): )error: "
    r"(pyxis: .+|error mounting the requested uenv.*|(?:invalid (?:squashfs|UENV_)|the mount p|no uenv matches).*)$",
    re.MULTILINE,
)
NO_PLUGIN = re.compile(r"^srun: unrecognized option '(--(?:no-)?(?:container-|environment|uenv|view)[\w-]*)", re.M)
# srun's lines after a task has ended; earlier ones are the reason if no task started.
LOG_LINES = (
    r"srun: (got SIGCONT|forcing job termination|Terminating|Force Terminated|First task exited|StepId|Job step abort)"
    r'|Try "srun --help"'
    r"|(slurmstepd\S*: |\[.*\] )error: \*\*\*|srun: error: \S+: tasks? "
)
# strsignal(3) of the signals that end a rank, as srun prints them
SIGNAL_WORDS = {
    "Killed": signal.SIGKILL,
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Illegal instruction": signal.SIGILL,
    "Floating point exception": signal.SIGFPE,
    "Terminated": signal.SIGTERM,
    "Out Of Memory": signal.SIGKILL,
}


def first_task_end(log: str) -> TaskEnd | None:
    """Return the first task that failed. srun then kills the others (--kill-on-bad-exit): their failures follow."""
    if (found := TASKS_ENDED.search(log)) is None:
        return None
    end = _task_end(found)
    if (by_slurm := ENDED_BY_SLURM.search(log, 0, found.start())) is None:
        return end
    wait, why = by_slurm["wait"], by_slurm["why"]
    text = f"killed: still running {wait} after another rank had ended" if wait else f"canceled by Slurm{why}"
    return replace(end, exit_code=None, text=text)


def tasks_that_left(log: str) -> str | None:
    """Return the tasks that ended without an error if srun then killed the others (--wait), such as `0-1,3`."""
    found = re.search(r"^srun: StepId=\S+ tasks? ([\d,-]+): exited$", log, re.MULTILINE)
    return found[1] if found and "srun: First task exited" in log else None


def node_problem(log: str) -> str | None:
    """Return srun's line about a node that is lost or cannot be reached, or None."""
    found = NO_NODE.search(log)
    return " ".join(found[0].split()) if found else None


def image_problem(log: str) -> str | None:
    """Return why ranks did not start in their image, or None."""
    if found := NO_PLUGIN.search(log):
        return f"srun: unrecognized option {found[1]}: no plugin in plugstack.conf provides it, or it is too old"
    lines = [" ".join(line.split()) for line in IMAGE_ERROR.findall(log)]
    return next((line for line in lines if "[ERROR]" in line), lines[0] if lines else None)


def blamed_hosts(log: str) -> set[str]:
    """Return the nodes that srun names: those that are lost; else those on which tasks failed, with an exit code or
    first of all. Empty if it names none, or if Slurm ended the tasks."""
    if problems := list(NO_NODE.finditer(log)):
        named = [names for found in problems for names in NAMED_NODES.findall(found[0])]
        return {host for names in named for host in _hosts(names)}
    first = first_task_end(log)
    if first is None or first.exit_code is None:
        return set()
    ends = [_task_end(found) for found in TASKS_ENDED.finditer(log)]
    return {first.host} | {end.host for end in ends if (end.exit_code or 0) > 0}


def _hosts(names: str) -> list[str]:
    try:
        return expand(names)
    except ValueError:  # a line that a rank printed
        return []


def _task_end(found: re.Match) -> TaskEnd:
    host, tasks, text = found.groups()
    return TaskEnd(int(re.split(r"[,-]", tasks)[0]), host, _exit_code(text), text)


def _exit_code(text: str) -> int | None:
    if number := next((number for words, number in SIGNAL_WORDS.items() if text.startswith(words)), None):
        return -number
    if (found := re.match(r"Exited with exit code (\d+)", text)) is None:
        return None
    code = int(found[1])
    # Shells, and the first process of some images, report a signal this way.
    return 128 - code if code - 128 in SIGNAL_WORDS.values() else code


def _srun(geometry: Geometry, tasks_per_node: int) -> list[str]:
    nodes = geometry.nodes
    return ["srun", f"--nodes={nodes}", f"--ntasks={nodes * tasks_per_node}", f"--ntasks-per-node={tasks_per_node}"]


class SlurmRanks(Ranks):
    """Steps of srun."""

    variables = ("SLURM_", "SRUN_", "SBATCH_", *queue.OF_CONTAINERS)  # srun and its plugins take options from these
    kept_variables = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CONF", "SLURM_CLUSTER_NAME")
    templates = MappingProxyType(TEMPLATES)
    stack_keys = ("srun",)
    first_log_line = BY_SRUN
    log_lines = LOG_LINES
    host_words = r"\bsrun: error: "
    first_host_by_hand = '"$(scontrol show hostnames | head -n 1)"'
    meeting_point = staticmethod(queue.meeting_point)

    def argv(
        self, geometry: Geometry, stack: dict, python: list[str], program: list[str], limit_seconds: float | None = None
    ) -> list[str]:
        """Return srun with one task per rank. All options are explicit: ranks do not inherit SLURM_*."""
        line = _srun(geometry, geometry.num_local_ranks)
        if resources.requests_gpus(geometry):  # otherwise, a step inherits the job's resources
            line += resources.gpu_options(geometry)
        line += [*nodes_of_step(geometry), f"--job-name={STEP_NAME}", "--kill-on-bad-exit=1"]
        line += [f"--wait={SECONDS_AFTER_FIRST_EXIT}", "--export=ALL"]
        line += [] if limit_seconds is None else [f"--time={math.ceil(limit_seconds / 60)}"]
        line += [] if python else label_option(geometry)
        options = resources.with_cores(geometry, stack["srun"])
        if geometry.starts:  # of its ranks, as steps of mpirun, the cores are the same, and none is srun's
            line += ["--overlap", *([] if any(option.startswith("--mpi") for option in options) else ["--mpi=none"])]
        return [*line, *options, *python, *program]

    def by_hand(
        self, geometry: Geometry, stack: dict, prefix: list[str], program: list[str]
    ) -> tuple[list[str], list[str]]:
        return [PORT_BY_HAND], self.argv(geometry, stack, [*prefix, stack["python"] or "python3"], program)

    def once_per_node(self, geometry: Geometry, limit_seconds: float) -> list[str]:
        """Return srun with one task on each node. A task that fails does not end the others, which report as well."""
        line = [*_srun(geometry, 1), f"--job-name={STEP_NAME}", *nodes_of_step(geometry)]
        return [*line, "--kill-on-bad-exit=0", "--export=ALL", f"--time={math.ceil(limit_seconds / 60)}"]

    def stack_options(self, cluster: dict, stack: dict) -> dict[str, list[str]]:
        return {"srun": [*cluster["srun"], *resources.cores_option(cluster["cpus_per_rank"]), *stack["srun"]]}

    def script_paths(self, stack: dict) -> dict[str, Path]:
        """Return the scripts that options of srun name. Of several, srun takes the last."""
        options = [script_option(option) for option in stack["srun"]]
        return {name: Path(value) for name, value in options if "/" in value or (name in RUN_BY_SRUN and value)}

    def dump_stacks(self, job: str | None, process: subprocess.Popen, hosts: Sequence[str] = ()) -> None:
        queue.signal_steps(job, "USR1", hosts)

    def end(self, job: str | None, process: subprocess.Popen, hosts: Sequence[str] = ()) -> None:
        if process.returncode != 0:
            queue.end_steps(job, hosts)

    def read_log(self, log: str) -> LogReading:
        left = tasks_that_left(log)
        text = f"rank {left} ended without an error while others were running; srun then killed the others (--wait)"
        return LogReading(
            node_problem=node_problem(log),
            hosts=frozenset(blamed_hosts(log)),
            exit_codes=frozenset(_task_end(found).exit_code for found in TASKS_ENDED.finditer(log)),
            first_end=first_task_end(log),
            left=text if left else None,
            image=image_problem(log),
        )


class SlurmQueue(Queue):
    """Functions of slurm_queue.py and slurm_resources.py, and the lock of a job."""

    end_foreign = "scancel"
    use_cluster = staticmethod(queue.use_cluster)
    hosts = staticmethod(queue.hosts_of_job)
    state = staticmethod(queue.job_state)
    states = staticmethod(queue.states)
    foreign_steps = staticmethod(queue.running_steps)
    is_answering = staticmethod(queue.is_answering)
    wait_for_jobs = staticmethod(queue.wait_for_live_jobs)
    nodes = staticmethod(resources.read_nodes)
    node_names = staticmethod(expand)
    excluded_nodes = staticmethod(resources.excluded_nodes)

    def find_job(self, cluster: dict) -> str:
        job = queue.job_id()
        if job is None:
            remedy = "Use --profile profiles/slurm, or profiles/local in an allocation (salloc) of the batch's shape."
            raise UserError(f"cluster '{cluster['name']}' has scheduler slurm, but this is not a Slurm job. {remedy}")
        return job

    def state_after_signal(self, job: str, cluster: dict) -> str | None:
        state = queue.job_state(job)
        if state != "RUNNING":
            return state
        left = queue.ask(["squeue", "--noheader", f"--jobs={job}", "--format=%L"], queue.STATE_SECONDS)
        return "TIMEOUT" if resources.minutes_of(left) * 60 <= resources.most_seconds_left(cluster) else state

    def lock(self, job: str, folder: Path) -> TextIO:
        """Lock a job for this user across results folders; beside the results if the home directory cannot be locked.

        One file for all jobs, with a byte for each: a file per job would be left behind.
        """
        cluster = re.sub(r"\W", "_", os.environ.get("SLURM_CLUSTER_NAME", ""))
        try:
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
            return hold_number(cache / "regatta" / f"jobs-{cluster}.lock", int(job), "")
        except Taken:
            raise
        except (OSError, UserError, RuntimeError):  # RuntimeError: a user without a home directory
            return hold_number(folder / f".jobs-{os.getuid()}.lock", int(job), "")


class SlurmChecks(Checks):
    stack_problems = staticmethod(srun_problems)
    cluster_problems = staticmethod(cluster_problems)
    site_problems = staticmethod(resources.site_problems)
    cluster_keys = tuple(
        "cpus_per_rank memory_mb_per_node gpu_request gpu_type gres partition account qos constraint "
        "reservation clusters exclude_nodes exclusive sbatch srun max_walltime_minutes node_types max_jobs "
        "network_interface".split()
    )

    def profile_problem(self, cluster: dict, is_local: bool, shapes: list[tuple[int, int]]) -> str | None:
        """Return why jobs cannot be submitted, or why launches do not fit into the user's allocation."""
        if not is_local:
            return None
        if queue.job_id() is None:
            remedy = "Use --profile profiles/slurm, or profiles/local within an allocation."
            return f"cluster '{cluster['name']}' has scheduler slurm. {remedy}"
        excluded = resources.excluded_nodes(cluster)
        problem = queue.does_not_fit(shapes, cluster["cpus_per_rank"] or 1, excluded) if shapes else None
        remedy = "Request a larger allocation, or use --profile profiles/slurm, which submits each shape."
        return f"{problem}. {remedy}" if problem else None


LAUNCHER = Launcher(
    "slurm", "Slurm", SlurmRanks(), SlurmQueue(), SlurmChecks(), jobs=resources.SlurmJobs(), submits=True
)
