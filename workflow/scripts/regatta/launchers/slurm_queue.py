"""Queries to Slurm: the current job, its nodes and state, the steps to end, and the jobs of a campaign.

Ranks are started by srun (slurm.py).
"""

import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from regatta.core.errors import UserError
from regatta.launchers.base import free_port

MAX_NODES = 2**16  # Slurm's limit (MAX_SLURM_NODES)


def expand(text: str) -> list[str]:
    """Return the hosts of a host list such as n[01-03,7],login. Raises ValueError if the text is not a host list."""
    names: list[str] = []
    for word in re.split(r"[,\s]+(?![^\[]*\])", text.strip(", \n\t")):
        parts = re.split(r"\[([^\[\]]*)\]", re.sub(r"\*\d+$", "", word))  # n1*4: four times, in a file
        if not word or any(re.search(r"[\[\],]", part) for part in parts[::2]):
            raise ValueError(f"{text} is not a host list")
        choices = [_numbers(part) if index % 2 else [part] for index, part in enumerate(parts)]
        if len(names) + math.prod(map(len, choices)) > MAX_NODES:
            raise ValueError(f"{text} names more nodes than a cluster can have")
        names += map("".join, itertools.product(*choices))
    return names


def _numbers(text: str) -> list[str]:
    """Return the numbers of ranges such as 08-10,12, with their leading zeros."""
    numbers: list[str] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part, re.ASCII)
        if found is None:
            raise ValueError(f"[{text}] is not a list of numbers")
        low, high = int(found[1]), int(found[2] or found[1])
        if not 0 <= high - low < MAX_NODES:
            raise ValueError(f"[{text}] is not a range of nodes")
        numbers += [str(number).zfill(len(found[1])) for number in range(low, high + 1)]
    return numbers


COMMAND_SECONDS = 60  # enough for a busy controller; one that is down must not hold a batch indefinitely
SUBMIT_SECONDS = 600  # sbatch itself retries for minutes
STEP_END_SECONDS = 60.0
STATES_SECONDS = 10  # a view of the run waits for the answer
STATE_SECONDS = 5  # most of the time between SIGTERM and SIGKILL (KillWait, 30 s by default) is for writing
SECONDS_WITHOUT_ANSWER = 600
POLL_SECONDS = 0.5
STEP_NAME = "regatta"  # name of rank steps, which other Regatta processes in the same job recognize
WAIT_SECONDS = 5.0
# Of the plugins Pyxis, uenv and Container Engine, which would start any rank in the image that the shell selects.
OF_CONTAINERS = ("PYXIS_", "ENROOT_", "EDF_", "SBATCH_UENV", "SLURM_UENV", "UENV_MOUNT_LIST", "UENV_VIEW")
OF_CONTAINERS += ("_SLURM_SPANK_OPTION_",)  # plugin options of salloc
OPTIONS_OF_COMMANDS = ("SQUEUE_", "SINFO_", "SCANCEL_", "SCONTROL_", "SACCT_")
OF_SITE = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")  # not of a job
OF_CLUSTER: dict[str, str] = {}  # variables of Slurm's commands for the cluster that a cluster file names
CLUSTER_HEADING = re.compile(r"^CLUSTER: .*\n?", re.MULTILINE)  # printed by some versions if SLURM_CLUSTERS is set
MAX_JOBS_NAMED = 10
LIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "STOPPED")


@dataclass(frozen=True)
class Job:
    """A job of this user in the queue. batch: the id of a batch or of a preflight; None for anything else."""

    id: str
    state: str
    batch: str | None


def job_id() -> str | None:
    """Return the id of the Slurm job that this process runs in, or None outside of one."""
    return os.environ.get("SLURM_JOB_ID") or None


def use_cluster(cluster: dict) -> None:
    """Make Slurm's commands use the cluster that `clusters` in a cluster file names, instead of this machine's."""
    OF_CLUSTER.clear()
    if cluster.get("clusters"):
        OF_CLUSTER["SLURM_CLUSTERS"] = cluster["clusters"]


def environment() -> dict[str, str]:
    """Return the environment of Slurm's commands: this process's, without the user's filters, formats and images."""
    dropped = (*OPTIONS_OF_COMMANDS, *OF_CONTAINERS)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | OF_CLUSTER


def hosts_of_job(job: str) -> list[str]:
    """Return the names of a job's nodes in Slurm's order: rank 0 is on the first. Empty if Slurm does not answer."""
    nodes = ask(["squeue", "--noheader", f"--jobs={job}", "--format=%N"])
    return ask(["scontrol", "show", "hostnames", nodes]).split() if nodes else []


def does_not_fit(shapes: list[tuple[int, int]], cpus_per_rank: int, excluded: Collection[str] = ()) -> str | None:
    """Return why launches of these shapes (nodes, ranks per node) cannot all start in this process's job, or None.

    Limits that the job's variables do not contain are not checked (sbatch(1), output environment variables).
    """
    num_nodes = int(os.environ.get("SLURM_JOB_NUM_NODES") or max(nodes for nodes, _ in shapes))
    hosts = expand(text) if (text := os.environ.get("SLURM_JOB_NODELIST")) else []
    unused = [host for host in hosts if host in excluded]
    groups = re.findall(r"(\d+)(?:\(x\d+\))?", os.environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    num_cpus = min(map(int, groups), default=None)  # smallest node: "8(x2),4"
    for nodes, ranks_per_node in sorted(shapes, reverse=True):
        if nodes > num_nodes - len(unused):
            without = f", without {', '.join(unused)} (exclude_nodes)" if unused else ""
            return f"shape {nodes}x{ranks_per_node} needs {nodes} nodes; this allocation has {num_nodes}{without}"
        if num_cpus is not None and ranks_per_node * cpus_per_rank > num_cpus:
            needed = f"{ranks_per_node} x {cpus_per_rank} cores on a node"
            return f"shape {nodes}x{ranks_per_node} needs {needed}; this allocation has {num_cpus}"
    return None


def meeting_point(meeting: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the port of the ranks' store: random, and free on this node. Regatta's ranks take the address from their
    step. meeting: values of the templates of a launch, for programs that take it from MASTER_ADDR."""
    address = {"MASTER_ADDR": meeting["first_host"]} if meeting else {}
    return address | {"MASTER_PORT": meeting["port"] if meeting else str(free_port())}


def job_state(job: str) -> str | None:
    """Return a job's state, such as RUNNING, or why it ends: NODE_FAIL, TIMEOUT, CANCELLED, PREEMPTED; None if unknown.

    A job that is ending is COMPLETING, and only the JSON form contains the final state. During its grace
    period, Slurm reports a preempted job as RUNNING.
    """
    states = _states_in_json(ask(["scontrol", "--json", "show", "job", job], STATE_SECONDS))
    if not states:
        text = ask(["scontrol", "--oneliner", "show", "job", job], STATE_SECONDS)
        states = ["TIMEOUT"] if "Reason=TimeLimit" in text else re.findall(r"\bJobState=(\S+)", text)
        states = ["PREEMPTED"] if states == ["RUNNING"] and re.search(r"\bPreemptTime=\d", text) else states
    return next((state for state in states if state != "COMPLETING"), states[0] if states else None)


def _states_in_json(text: str) -> list[str]:
    try:
        job = json.loads(text)["jobs"][0]
        states = job["job_state"]  # a list since Slurm 23.11, a string before
        preempted_s, started_s = (
            found["number"] if isinstance(found := job.get(key) or 0, dict) else found
            for key in ("preempt_time", "start_time")
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return []
    states = [states] if isinstance(states, str) else list(states)
    return ["PREEMPTED"] if states == ["RUNNING"] and preempted_s > started_s else states


def is_answering() -> bool:
    """Return whether slurmctld answers."""
    return answer(["scontrol", "ping"]) is not None


def signal_steps(job: str, name: str, hosts: Collection[str] = ()) -> None:
    """Send a signal to the ranks of a job's running steps, or of those on `hosts`."""
    if steps := running_steps(job, hosts):
        ask(["scancel", f"--signal={name}", *steps])


def end_steps(job: str, hosts: Collection[str] = ()) -> None:
    """End all steps of a job, or those on `hosts`, and wait until they are gone: a killed srun leaves its ranks."""
    deadline = time.monotonic() + STEP_END_SECONDS
    name = "TERM"
    while (steps := running_steps(job, hosts)) != [] and time.monotonic() < deadline:
        if steps:
            ask(["scancel", f"--signal={name}", *steps])
            name = "KILL"
        time.sleep(POLL_SECONDS)


def running_steps(job: str, hosts: Collection[str] = ()) -> list[str] | None:
    """Return the steps of a job in which ranks of Regatta run, None if squeue does not answer.

    hosts: only the steps that use none but these. In an allocation of the user there may be other steps.
    """
    text = answer(["squeue", "--noheader", "--steps", f"--jobs={job}", "--format=%i|%N|%j"])
    if text is None:
        return None
    current = f"{job}.{os.environ.get('SLURM_STEP_ID')}"  # if Regatta runs in a step: a shell that srun started
    steps = [line.split("|", 2) for line in text.splitlines() if line.count("|") >= 2]
    return [
        step
        for step, nodes, name in steps
        if name == STEP_NAME and step != current and re.fullmatch(r"\d+\.\d+", step)
        if not hosts or {*expand(nodes)} <= {*hosts}
    ]


def live_jobs(campaign: str, folder: Path) -> list[Job] | None:
    """Return the jobs of a campaign in the queue, also those of an earlier Snakemake; None if squeue does not answer.

    They are recognized by the executor's comment (or by name, if the user sets a comment), and by the folder in which
    they were submitted.
    """
    jobs = _jobs_of_user(campaign, folder)
    return None if jobs is None else [job for job in jobs if job.batch]


def states(campaign: str, folder: Path) -> dict[str, str] | None:
    """Return the states of this user's live jobs by id, and by batch for the jobs of a campaign; None if unknown."""
    jobs = _jobs_of_user(campaign, folder, STATES_SECONDS)
    return None if jobs is None else {key: job.state for job in jobs for key in (job.id, job.batch) if key}


def states_and_reasons() -> dict[str, tuple[str, str]] | None:
    """Return state and reason of this user's jobs by id, also of those that ended within Slurm's MinJobAge."""
    text = answer(["squeue", "--noheader", "--user", str(os.getuid()), "--states=all", "--format=%i|%T|%r"])
    lines = [line.split("|") for line in (text or "").splitlines() if line.count("|") == 2]
    return None if text is None else {job: (state, reason) for job, state, reason in lines}


def _jobs_of_user(campaign: str, folder: Path, seconds: float = COMMAND_SECONDS) -> list[Job] | None:
    text = answer(["squeue", "--noheader", "--user", str(os.getuid()), "--format=%i|%T|%j|%Z|%k"], seconds)
    if text is None:
        return None
    found = []
    for line in text.splitlines():
        job, state, name, rest = (line.split("|", 3) + [""] * 3)[:4]
        is_here, batch = rest.startswith(f"{folder}|"), r"n\d+g\d+-[0-9a-f]{12}|preflight-[0-9a-f]{12}"
        identity = re.compile(rf"rule_(?:measure|preflight)_wildcards_{re.escape(campaign)}_({batch})")
        match = identity.fullmatch(name) or identity.fullmatch(rest.removeprefix(f"{folder}|"))
        if state in LIVE:
            found.append(Job(job, state, match[1] if match and is_here else None))
    return found


def wait_for_live_jobs(campaign: str, folder: Path) -> None:
    """Wait until no job of an earlier run of this campaign remains, so that nothing is measured twice."""
    if shutil.which("squeue") is None:
        raise UserError(
            "squeue is not installed here, so no job can be submitted. Run this command on a login node of the cluster,"
            " or specify a cluster file with scheduler: none."
        )
    is_waiting = False
    deadline = time.monotonic() + SECONDS_WITHOUT_ANSWER
    while (jobs := live_jobs(campaign, folder)) != []:
        if jobs is None and time.monotonic() > deadline:
            raise UserError(
                "squeue does not respond, so jobs of an earlier run are unknown. Run squeue to find the cause, then run"
                " the same command again."
            )
        if jobs is not None and not is_waiting:
            shown = jobs[:MAX_JOBS_NAMED]
            where = f"--clusters={name} " if (name := OF_CLUSTER.get("SLURM_CLUSTERS")) else ""
            listed = ", ".join(f"{job.id} ({job.batch}, {job.state})" for job in shown)
            more = f" and {len(jobs) - len(shown)} more" if len(jobs) > len(shown) else ""
            print(
                f"results/{campaign}: jobs of an earlier run are still in the queue: {listed}{more}. Waiting for them;"
                f" to cancel them: scancel {where}{' '.join(job.id for job in shown)}",
                file=sys.stderr,
                flush=True,
            )
            is_waiting = True
        time.sleep(WAIT_SECONDS)


def ask(line: list[str], seconds: float = COMMAND_SECONDS) -> str:
    """Return the output of one of Slurm's commands; empty if it failed or is not installed."""
    return answer(line, seconds) or ""


def answer(line: list[str], seconds: float = COMMAND_SECONDS) -> str | None:
    """Return the output of one of Slurm's commands; None if it failed, timed out or is not installed."""
    done = _run(line, seconds)
    return CLUSTER_HEADING.sub("", done.stdout).strip() if done and done.returncode == 0 else None


def output(line: list[str], seconds: float = COMMAND_SECONDS) -> str:
    """Return all that a command prints, on stderr too; empty if it timed out or is not installed."""
    done = _run(line, seconds)
    return f"{done.stdout}\n{done.stderr}" if done else ""


def submit(line: list[str], script: str) -> subprocess.CompletedProcess:
    """Run sbatch with a script. Within an allocation, the new job must not take over the variables of this one."""
    kept = {name: value for name, value in environment().items() if name in OF_SITE or not name.startswith("SLURM_")}
    options = {"env": kept, "input": script, "timeout": SUBMIT_SECONDS, "encoding": "utf-8", "errors": "replace"}
    try:  # in a separate session: Ctrl-C must not end it, since it may have submitted the job
        done = subprocess.run(line, capture_output=True, start_new_session=True, **options)
    except OSError as error:
        return subprocess.CompletedProcess(line, 1, "", f"{line[0]}: {error.strerror}")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(line, 1, "", f"{line[0]}: no answer within {SUBMIT_SECONDS:g} s")
    if done.returncode < 0 and not done.stderr.strip():
        done.stderr = f"{line[0]}: ended by signal {-done.returncode}"
    elif done.returncode > 0 and not (done.stderr + done.stdout).strip():
        done.stderr = f"{line[0]}: exit status {done.returncode}, without a message"
    return done


def _run(line: list[str], seconds: float) -> subprocess.CompletedProcess | None:
    try:
        return subprocess.run(
            line,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
