"""No scheduler: start_ranks.py starts the ranks on this machine, one measurement at a time."""

import contextlib
import re
import signal
import subprocess
from collections.abc import Sequence

import psutil

from regatta.core.files import SCRIPTS, hold
from regatta.launchers.base import Geometry, Launcher, LogReading, descendants

START_RANKS = SCRIPTS / "bench" / "start_ranks.py"
# Logs of earlier versions contain "ended with exit code".
FAILED_RANK = re.compile(r"start_ranks: rank (\d+) (?:exited with|ended with exit) code (-?\d+)")


def argv(
    geometry: Geometry,
    _stack: dict,
    python: list[str],
    program: list[str],
    _limit_seconds: float | None = None,
    _hosts: object = (),
    starter: str = str(START_RANKS),
) -> list[str]:
    return [*python, starter, f"--nproc-per-node={geometry.gpus_per_node}", *program]


def by_hand(
    geometry: Geometry, stack: dict, prefix: list[str], program: list[str], _hosts: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Return a line with torchrun if the stack names no Python, else with start_ranks.py, from the project's folder."""
    if not prefix and stack["python"] is None:
        return [], ["torchrun", "--standalone", f"--nproc-per-node={geometry.gpus_per_node}", *program]
    starter = str(START_RANKS.relative_to(SCRIPTS.parents[1]))
    return [], argv(geometry, stack, [*prefix, stack["python"] or "python3"], program, starter=starter)


def dump_stacks(_job: str | None, process: subprocess.Popen, _hosts: Sequence[str] = ()) -> None:
    """Have every rank write its Python stacks to the log (bench/ registers SIGUSR1 for that)."""
    for child in descendants(process):
        with contextlib.suppress(psutil.Error):
            if any(part.endswith("run_launch.py") for part in child.cmdline()):
                child.send_signal(signal.SIGUSR1)


def read_log(log: str) -> LogReading:
    """Return the exit codes of ranks that failed, as start_ranks.py prints them: negative for a signal."""
    codes = {int(rank): int(code) for rank, code in FAILED_RANK.findall(log)}
    return LogReading(exit_codes=frozenset(codes.values()), rank_codes=codes)


def profile_problem(cluster: dict, is_local: bool, _shapes: object) -> str | None:
    if is_local:
        return None
    return f"cluster '{cluster['name']}' has scheduler none: it has no jobs to submit. Use --profile profiles/local."


LAUNCHER = Launcher(
    name="none",
    title="this machine",
    argv=argv,
    by_hand=by_hand,
    # start_ranks.py sets them to loopback, unless the stack sets them.
    replaced_variables=("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
    dump_stacks=dump_stacks,
    lock=lambda job, folder: hold(folder / ".machine.lock", ""),
    read_log=read_log,
    log_lines="start_ranks: ",
    profile_problem=profile_problem,
)
