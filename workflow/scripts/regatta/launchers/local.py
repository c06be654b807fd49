"""No scheduler: start_ranks.py starts the ranks on this machine, one measurement at a time."""

import contextlib
import pwd
import re
import signal
import sys

import psutil

from regatta.core.files import SCRIPTS, hold, hold_machine, holder_of_machine
from regatta.launchers.base import Checks, Launcher, LogReading, Queue, Ranks, descendants, label_option

START_RANKS = SCRIPTS / "bench" / "start_ranks.py"
# Logs of earlier versions contain "ended with exit code".
FAILED_RANK = re.compile(r"start_ranks: rank (\d+) (?:exited with|ended with exit) code (-?\d+)")


class LocalRanks(Ranks):
    # start_ranks.py sets them to loopback, unless the stack sets them.
    replaced_variables = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    log_lines = "start_ranks: "

    def argv(self, geometry, stack, python, program, limit_seconds=None, starter=str(START_RANKS)):
        line = [*(python or [sys.executable]), starter, f"--nproc-per-node={geometry.num_local_ranks}"]
        return [*line, *([] if python else [*label_option(geometry), "--no-python"]), *program]

    def by_hand(self, geometry, stack, prefix, program):
        """Return a line with torchrun if the stack names no Python, else with start_ranks.py."""
        if not prefix and stack["python"] is None:
            return [], ["torchrun", "--standalone", f"--nproc-per-node={geometry.gpus_per_node}", *program]
        starter = str(START_RANKS.relative_to(SCRIPTS.parents[1]))
        return [], self.argv(geometry, stack, [*prefix, stack["python"] or "python3"], program, starter=starter)

    def dump_stacks(self, job, process, hosts=()):
        """Send SIGUSR1 to the ranks, for which bench/ registers a handler."""
        for child in descendants(process):
            with contextlib.suppress(psutil.Error):
                if any(part.endswith("run_launch.py") for part in child.cmdline()):
                    child.send_signal(signal.SIGUSR1)

    def read_log(self, log):
        """Return the exit codes of ranks that failed, as start_ranks.py prints them: negative for a signal."""
        codes = {int(rank): int(code) for rank, code in FAILED_RANK.findall(log)}
        return LogReading(exit_codes=frozenset(codes.values()), rank_codes=codes)


class LocalQueue(Queue):
    def lock(self, job, folder):
        """Lock this machine, for all users and results folders; where that is not possible, the results folder."""
        return hold_machine() if sys.platform == "linux" else hold(folder / ".machine.lock", "")

    def holder(self):
        pid, user = holder_of_machine() or (0, None)
        with contextlib.suppress(KeyError):
            user = pwd.getpwuid(user).pw_name
        return f" by {user} (process {pid})" if pid else ""


class LocalChecks(Checks):
    def profile_problem(self, cluster, is_local, shapes):
        if is_local:
            return None
        return (
            f"cluster '{cluster['name']}' has scheduler none: it has no jobs to submit. Use --profile profiles/local."
        )


LAUNCHER = Launcher("none", "this machine", LocalRanks(), LocalQueue(), LocalChecks())
