"""What Regatta asks of Slurm itself: which job this is, its nodes and state, and the steps that must end.

Jobs are submitted by Snakemake's executor, and ranks started by srun (slurm.py).
"""

import itertools
import json
import math
import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from regatta.core.errors import UserError

# Expand Slurm's host lists, such as n[01-03,7],login.

MAX_NODES = 2**16  # of a Slurm cluster (MAX_SLURM_NODES)


def expand(text: str) -> list[str]:
    """Return the hosts of a list. Raises ValueError if the text is not a host list."""
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
    """Return the numbers of ranges such as 08-10,12, with leading zeros as they are given."""
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


COMMAND_SECONDS = 60  # a controller that is busy may take long; one that is away must not hold a batch for ever
STEP_END_SECONDS = 60.0
STATE_SECONDS = 5  # of the time between SIGTERM and SIGKILL (KillWait, 30 s by default) most is for writing
SECONDS_WITHOUT_ANSWER = 600
POLL_SECONDS = 0.5
STEP_NAME = "regatta"  # of steps in which ranks run, so that another Regatta in the same job knows of them
WAIT_SECONDS = 5.0
OPTIONS_OF_COMMANDS = ("SQUEUE_", "SINFO_", "SCANCEL_", "SCONTROL_", "SACCT_")
MAX_JOBS_NAMED = 10
LIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "STOPPED")


@dataclass(frozen=True)
class Job:
    """A job in the queue. `batch` is Regatta's, or `preflight`; `nodes` may be empty while it waits."""

    id: str
    state: str
    batch: str


def job_id() -> str | None:
    """Return the id of the Slurm job that this process runs in, or None outside of one."""
    return os.environ.get("SLURM_JOB_ID") or None


def environment() -> dict[str, str]:
    """Return the environment for Slurm's commands: this one's, with SLURM_CONF as the user had it (see launch.py)."""
    kept = os.environ.get("REGATTA_SLURM_CONF")
    own = {name: value for name, value in os.environ.items() if not name.startswith(OPTIONS_OF_COMMANDS)}
    return {**own, "SLURM_CONF": kept} if kept and "SLURM_CONF" not in own else own


def keep_configuration() -> None:
    """Keep the path of slurm.conf under a name that the Slurm executor leaves in a job's environment, and drop the
    user's filters and formats of Slurm's commands: SQUEUE_PARTITION would hide running jobs from the executor too."""
    for name in [name for name in os.environ if name.startswith(OPTIONS_OF_COMMANDS)]:
        del os.environ[name]
    if os.environ.get("SLURM_CONF"):
        os.environ["REGATTA_SLURM_CONF"] = os.environ["SLURM_CONF"]


def hosts_of_job(job: str) -> list[str]:
    """Return the names of a job's nodes, in Slurm's order: rank 0 is on the first. Empty if Slurm does not say."""
    nodes = ask(["squeue", "--noheader", f"--jobs={job}", "--format=%N"])
    return ask(["scontrol", "show", "hostnames", nodes]).split() if nodes else []


def does_not_fit(shapes: list[tuple[int, int]], cpus_per_rank: int) -> str | None:
    """Return why launches of these shapes (nodes, ranks per node) cannot all start in this process's job, or None.

    What the job does not say is not held against it (sbatch(1), output environment variables)."""
    num_nodes = int(os.environ.get("SLURM_JOB_NUM_NODES") or max(nodes for nodes, _ in shapes))
    groups = re.findall(r"(\d+)(?:\(x\d+\))?", os.environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    num_cpus = min(map(int, groups), default=None)  # of the smallest node: "8(x2),4"
    for nodes, ranks_per_node in sorted(shapes, reverse=True):
        if nodes > num_nodes:
            return f"shape {nodes}x{ranks_per_node} needs {nodes} nodes, and this allocation has {num_nodes}"
        if num_cpus is not None and ranks_per_node * cpus_per_rank > num_cpus:
            needed = f"{ranks_per_node} x {cpus_per_rank} cores on a node"
            return f"shape {nodes}x{ranks_per_node} needs {needed}, and this allocation has {num_cpus}"
    return None


def meeting_point() -> dict[str, str]:
    """Return the port where the ranks meet: random, and free on this node. The address they take from their step."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return {"MASTER_PORT": str(probe.getsockname()[1])}


def job_state(job: str) -> str | None:
    """Return a job's state, such as RUNNING, or why it ends: NODE_FAIL, TIMEOUT, CANCELLED, PREEMPTED; None if unknown.

    A job that is ending is COMPLETING, and only the JSON form names the state behind that."""
    states = _states_in_json(ask(["scontrol", "--json", "show", "job", job], STATE_SECONDS))
    if not states:
        text = ask(["scontrol", "--oneliner", "show", "job", job], STATE_SECONDS)
        states = re.findall(r"\bJobState=(\S+)", text)
        if "Reason=TimeLimit" in text:
            states = ["TIMEOUT"]
    said = [state for state in states if state != "COMPLETING"] or states
    return said[0] if said else None


def _states_in_json(text: str) -> list[str]:
    try:
        states = json.loads(text)["jobs"][0]["job_state"]  # a list since Slurm 23.11, a text before
    except (ValueError, KeyError, IndexError, TypeError):
        return []
    return [states] if isinstance(states, str) else list(states)


def is_answering() -> bool:
    """Return whether slurmctld answers."""
    return answer(["scontrol", "ping"]) is not None


def signal_steps(job: str, name: str) -> None:
    """Send a signal to the ranks of a job's running steps."""
    steps = running_steps(job)
    if steps:
        ask(["scancel", f"--signal={name}", *steps])


def end_steps(job: str) -> None:
    """End all steps of a job, and wait until they are gone: a killed srun leaves its ranks on the nodes."""
    deadline = time.monotonic() + STEP_END_SECONDS
    name = "TERM"
    while (steps := running_steps(job)) != [] and time.monotonic() < deadline:
        if steps:
            ask(["scancel", f"--signal={name}", *steps])
            name = "KILL"
        time.sleep(POLL_SECONDS)


def running_steps(job: str) -> list[str] | None:
    """Return the steps of a job in which ranks of Regatta run, None if squeue does not answer.

    Other steps are the user's own: in an allocation that the user holds there may be some.
    """
    text = answer(["squeue", "--noheader", "--steps", f"--jobs={job}", "--format=%i|%j"])
    if text is None:
        return None
    own = f"{job}.{os.environ.get('SLURM_STEP_ID')}"  # where Regatta itself runs in a step: a shell that srun started
    steps = [line.split("|", 1) for line in text.splitlines() if "|" in line]
    return [step for step, name in steps if name == STEP_NAME and step != own and re.fullmatch(r"\d+\.\d+", step)]


def live_jobs(campaign: str, folder: Path) -> list[Job] | None:
    """Return the jobs of a campaign that wait or run, whoever submitted them: also an earlier Snakemake that died. None
    if squeue does not answer.

    They are known by the comment that the executor gives them and by the folder in which they were submitted.
    """
    text = answer(["squeue", "--noheader", "--user", str(os.getuid()), "--format=%i|%T|%k|%Z"])
    if text is None:
        return None
    found = []
    for line in text.splitlines():
        job, state, comment, workdir = (line.split("|", 3) + [""] * 3)[:4]
        name = r"n\d+g\d+-[0-9a-f]{12}|preflight-[0-9a-f]{12}"
        match = re.fullmatch(rf"rule_(?:measure|preflight)_wildcards_{re.escape(campaign)}_({name})", comment)
        if match and Path(workdir) == folder and state in LIVE:
            found.append(Job(job, state, match[1]))
    return found


def wait_for_live_jobs(campaign: str, folder: Path) -> None:
    """Wait until no job of an earlier run of this campaign is left: what those measure must not be measured twice."""
    has_said = False
    deadline = time.monotonic() + SECONDS_WITHOUT_ANSWER
    while (jobs := live_jobs(campaign, folder)) != []:
        if jobs is None and time.monotonic() > deadline:
            raise UserError(
                "squeue does not answer, so that jobs of an earlier run cannot be told. Call it by hand to see why, and"
                " then run the same line again."
            )
        if jobs is not None and not has_said:
            listed = ", ".join(f"{job.id} ({job.batch}, {job.state})" for job in jobs[:MAX_JOBS_NAMED])
            more = f" and {len(jobs) - MAX_JOBS_NAMED} more" if len(jobs) > MAX_JOBS_NAMED else ""
            print(
                f"results/{campaign}: jobs of an earlier run are still in the queue: {listed}{more}. Waiting for them;"
                f" to do without: scancel {' '.join(job.id for job in jobs[:MAX_JOBS_NAMED])}",
                file=sys.stderr,
                flush=True,
            )
            has_said = True
        time.sleep(WAIT_SECONDS)


def ask(line: list[str], seconds: float = COMMAND_SECONDS) -> str:
    """Run one of Slurm's commands and return what it printed, or nothing if it failed or is not installed."""
    return answer(line, seconds) or ""


def answer(line: list[str], seconds: float = COMMAND_SECONDS) -> str | None:
    """Run one of Slurm's commands and return what it printed; None if it failed, took too long or is not installed."""
    try:
        done = subprocess.run(
            line, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace",
            timeout=seconds,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
