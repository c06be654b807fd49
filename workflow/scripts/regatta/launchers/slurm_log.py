"""What srun says of how its tasks ended (Slurm 26.05; `srun: error: n2: task 3: Exited with exit code 1`)."""

import re
import signal
from dataclasses import dataclass, replace

from regatta.launchers.slurm_queue import expand

TASKS_ENDED = re.compile(r"^srun: error: (\S+): tasks? ([\d,-]+): (.+)$", re.MULTILINE)
# Only lines of Slurm's own: a rank may say such words of a name server or a peer. And none about its controller.
NO_NODE = re.compile(
    r"^(?:srun: |slurmstepd\S*: |\[\d{4}-\d\d-\d\dT[\d:.]+\] (?:slurmstepd\S*: |error: ))(?!.*Unable to contact slurm controller).*"
    r"(Node failure|NODE FAILURE|Unable to confirm allocation|Communication connection failure|"
    r"Unable to contact slurmd|Zero Bytes were transmitted|Socket timed out on send/recv|"
    r"Required node not available|Nodes? .* not responding|Unable to resolve).*$",
    re.MULTILINE,
)
# Of such lines, the nodes that they are about. (STEP 7.0 ON n1 only says who speaks.)
NAMED_NODES = re.compile(r'(?:[Nn]ode failure on|on nodes?|Nodes?|resolve(?: hostname)?) "?([\w.,\[\]-]+)')
# Before a task's end: it is Slurm that ended the step. (DUE TO TASK FAILURE follows the end of another task.)
ENDED_BY_SLURM = re.compile(
    r"^srun: First task exited (?P<wait>\w+) ago|"
    r"error: \*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT \S+ (?P<why>DUE (?!TO TASK FAILURE).+?) \*\*\*",
    re.MULTILINE,
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


@dataclass(frozen=True)
class TaskEnd:
    """How one task ended: `exit_code` as Python counts it, negative for a signal; None where srun's word is unknown,
    and where Slurm ended the task itself."""

    rank: int
    host: str
    exit_code: int | None
    text: str


def first_task_end(log: str) -> TaskEnd | None:
    """Return the first task that ended badly: srun then ends the others (--kill-on-bad-exit), so those say nothing."""
    found = TASKS_ENDED.search(log)
    if found is None:
        return None
    end = _task_end(found)
    by_slurm = ENDED_BY_SLURM.search(log, 0, found.start())
    if by_slurm is None:
        return end
    wait, why = by_slurm["wait"], by_slurm["why"]
    text = f"still ran {wait} after another rank had ended, and was killed" if wait else f"cancelled by Slurm {why}"
    return replace(end, exit_code=None, text=text)


def tasks_that_left(log: str) -> str | None:
    """Return the tasks that ended well before the others, where srun ended those for it (--wait), such as `0-1,3`."""
    found = re.search(r"^srun: StepId=\S+ tasks? ([\d,-]+): exited$", log, re.MULTILINE)
    return found[1] if found and "srun: First task exited" in log else None


def exit_codes(log: str) -> set[int | None]:
    return {_task_end(found).exit_code for found in TASKS_ENDED.finditer(log)}


def node_problem(log: str) -> str | None:
    """Return srun's line about a node that is gone or cannot be reached, or None."""
    found = NO_NODE.search(log)
    return " ".join(found[0].split()) if found else None


def blamed_hosts(log: str) -> set[str]:
    """Return the nodes that srun names where a launch ended: those that are gone; else those on which tasks ended by
    themselves, with an exit code or first of all. Empty where it names none, or where Slurm ended the tasks."""
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
    for words, number in SIGNAL_WORDS.items():
        if text.startswith(words):
            return -number
    found = re.match(r"Exited with exit code (\d+)", text)
    if found is None:
        return None
    code = int(found[1])
    # A shell, and some images' first process, say a signal so.
    return 128 - code if code - 128 in SIGNAL_WORDS.values() else code
