"""Measure a frozen campaign on this machine, without Regatta's driver: for nodes that have only Python and torch.

  timeout --preserve-status 30m python3 workflow/scripts/bench/run_batches.py results/NAME

NAME was frozen on the machine with Regatta's driver (workflow/scripts/freeze.py) and copied here. Afterwards the folder
is copied back, and the driver collects and reports it: docs/cluster.md, "Nodes without Regatta's driver".

Launches run one after the other, each cell with its deadline. A cell that hangs or kills its ranks is recorded with its
cause, and the launch resumes with the next one. Rerun the same command to resume. Standard library only. Exit status: 0
if every cell has a record, 3 if some have none, 2 for a user error.
"""

import argparse
import contextlib
import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from harness import frozen_batch, process
from harness.frozen_batch import Batch, Refused
from harness.launch_file import utc_now

USER_ERROR, INCOMPLETE = 2, 3
POLL_SECONDS = 0.1
STACK_DUMP_SECONDS = 0.5  # for hung ranks to write their stacks
STOP_SECONDS = 5.0  # start_ranks.py ends its ranks within 3 s
MAX_FRUITLESS_LAUNCHES = 2  # in a row, in which no cell starts


class Stopped(Exception):
    """A signal ended the run; the message names it."""


@dataclass
class Watch:
    """A launch as its file shows it. since: when its last line was seen, by the monotonic clock."""

    path: Path
    offset: int = 0
    current: str | None = None
    statuses: dict[str, str] = field(default_factory=dict)
    is_complete: bool = False
    since: float = field(default_factory=time.monotonic)

    def update(self) -> None:
        lines, self.offset = frozen_batch.read_lines(self.path, self.offset)
        for line in lines:
            if line["kind"] == "start":
                self.current = line["cell"]
            elif line["kind"] == "record":
                self.current, self.statuses[line["cell"]] = None, line["status"]
            self.is_complete |= line["kind"] == "complete"
            self.since = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder results/NAME of a frozen campaign")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, raise_stopped)
    try:
        results = options.results.resolve()
        batches = frozen_batch.read_campaign(results)
        locks = [lock_machine(), *(lock(b.folder / "lock") for b in batches)]
        reason = measure(batches)
        del locks
        code = report(results, batches, reason)
    except Refused as refused:
        print(f"run_batches.py: {refused}", file=sys.stderr)
        sys.exit(USER_ERROR)
    except OSError as error:
        print(f"run_batches.py: {error.filename}: {error.strerror}. Nothing recorded is lost.", file=sys.stderr)
        sys.exit(USER_ERROR)
    except Stopped:  # before or after the launches
        sys.exit(INCOMPLETE)
    sys.exit(code)


def raise_stopped(number: int, _frame: object) -> None:
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)  # one is enough; the launch is being ended
    raise Stopped(signal.Signals(number).name)


def lock_machine() -> socket.socket | None:
    """Return a lock of this machine, the same that the driver has, for all users. Raises Refused if it is held."""
    if sys.platform != "linux":
        return None
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        held.bind(("\0regatta-measures" + os.environ.get("REGATTA_MACHINE_LOCK", ""))[:100])
        held.listen(1)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise Refused("another campaign is being measured on this machine. Wait until it ends.") from None
    return held


def lock(path: Path):
    """Return a locked file, the same that the driver locks. Raises Refused if another process holds it."""
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Refused(f"{path}: another run is using this campaign. Wait until it ends.") from None
    except OSError:  # a file system without locks
        return file
    file.truncate(0)
    os.write(file.fileno(), f"{os.getpid()} on {os.uname().nodename}".encode())
    return file


def measure(batches: list[Batch]) -> str | None:
    """Run all launches. Return why the run ended early, or None."""
    git = frozen_batch.git_state()
    try:
        for batch in batches:
            for index in range(len(batch.content["launches"])):
                run_planned_launch(batch, index, git)
    except Stopped as reason:
        return str(reason)
    return None


def run_planned_launch(batch: Batch, index: int, git: dict) -> None:
    """Launch until every cell has a record, or no cell starts any more."""
    num_fruitless = 0
    while (cells := batch.remaining(index)) and num_fruitless < MAX_FRUITLESS_LAUNCHES:
        request, log = batch.write_request(index, cells, git)
        began = time.monotonic()
        watch, cause = run_launch(batch, request, log)
        counts = ", ".join(f"{num} {status}" for status, num in sorted(Counter(watch.statuses.values()).items()))
        done = f"{len(watch.statuses)} of {len(cells)} cells recorded ({counts or 'none'})"
        why = f"; ended early: {cause}" if cause else ""
        place = f"{index + 1} of {len(batch.content['launches'])} in the batch"
        seconds = time.monotonic() - began
        text = f"{utc_now()} {batch.folder.name}, launch {request['repeat'] + 1}, stack {request['stack']} ({place})"
        print(f"{text}: {done} in {seconds:.0f} s{why}", flush=True)
        num_fruitless = 0 if watch.statuses else num_fruitless + 1


def run_launch(batch: Batch, request: dict, log: Path) -> tuple[Watch, str | None]:
    """Run one launch to its end. Returns what it recorded, and why it ended early or None."""
    watch = Watch(Path(request["store_file"]))
    environment = frozen_batch.rank_environment(batch.content["stacks"][request["stack"]])
    with log.open("ab") as output:
        options = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT, "env": environment}
        launcher = subprocess.Popen(
            request["argv"], start_new_session=True, preexec_fn=process.die_with_parent, **options
        )
    try:
        late_s = follow(launcher, watch, batch.content)
    except Stopped as reason:
        stop(launcher)
        watch.update()
        if not watch.is_complete:
            frozen_batch.append_lines(request, [{"kind": "stopped", "signal": str(reason), "time_utc": utc_now()}])
        raise
    elapsed_ns = int((time.monotonic() - watch.since) * 1e9)
    if late_s:
        dump_stacks(launcher)
    stop(launcher)
    watch.update()
    if watch.is_complete:
        return watch, None
    if late_s:
        what = "no record" if watch.current else "no cell started"
        died = ("timeout", None if watch.current else "launch", f"{what} within {late_s:g} s; see the log")
    elif problem := frozen_batch.store_problem(log):
        raise Refused(problem)
    else:
        died = frozen_batch.cause_of_death(request, launcher.returncode, log)
    if watch.current:
        record = frozen_batch.record_of_death(request, watch.current, *died, elapsed_ns)
        frozen_batch.append_lines(request, [record])
        watch.update()
    return watch, died[2]


def follow(launcher: subprocess.Popen, watch: Watch, content: dict) -> float | None:
    """Follow a launch until it ends or its next line is late. Returns the limit that it passed, or None."""
    while launcher.poll() is None:
        time.sleep(POLL_SECONDS)
        watch.update()
        cell = content["cells"].get(watch.current)
        limit_s = cell["limit_seconds"] if cell else content["launch_start_seconds"]
        if time.monotonic() > watch.since + limit_s:
            return limit_s
    return None


def dump_stacks(launcher: subprocess.Popen) -> None:
    """Have the ranks write their stacks to the log (run_launch.py registers SIGUSR1 for that)."""
    for pid in children(launcher.pid):
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGUSR1)
    time.sleep(STACK_DUMP_SECONDS)


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def stop(launcher: subprocess.Popen) -> None:
    """End a launch. If its starter is killed, the kernel ends the ranks."""
    if launcher.poll() is None:
        launcher.terminate()
        try:
            launcher.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            launcher.kill()
            launcher.wait()


def report(results: Path, batches: list[Batch], reason: str | None) -> int:
    """Print how many measurements have no record, and return the exit code."""
    missing = [cell for b in batches for index in range(len(b.content["launches"])) for cell in b.remaining(index)]
    total = sum(len(launch["cells"]) for batch in batches for launch in batch.content["launches"])
    why = f" (stopped: {reason})" if reason else ""
    print(f"{results.name}: {total - len(missing)} of {total} measurements recorded{why}", flush=True)
    if missing:
        print("Run the same command again to measure the rest.", flush=True)
    return INCOMPLETE if missing else 0


if __name__ == "__main__":
    main()
