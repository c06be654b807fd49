"""Print lines before and while the jobs of a run are active: a busy machine, the run's state at intervals, and the
stacks that failed the preflight."""

import os
import sys
import threading
import time
from pathlib import Path

from regatta.core.errors import UserError
from regatta.core.text import one_line
from regatta.launchers import launcher_of
from regatta.run.host_load import busy_text
from regatta.run.preflight import failed_stacks
from regatta.run.run_files import UNREADABLE
from regatta.run.run_state import RunWatcher

PROGRESS_SECONDS = 30.0
PREFLIGHT_SECONDS = 2.0
MAX_CAUSE = 400


def warn_if_busy(cluster: dict, is_measuring: bool) -> None:
    """Print a warning before a run that measures on this machine, if other programs keep it busy."""
    if is_measuring and not launcher_of(cluster).submits and (text := busy_text()):
        print(text, file=sys.stderr, flush=True)


def print_progress(results: Path, stop: threading.Event, closing: threading.Event, has_jobs: bool = False) -> None:
    """Print lines until the run stops or closes: the state only if it has changed. Nothing that fails ends the run.

    has_jobs: the preflight runs in a job, whose output is not on the terminal.
    """
    watcher, known = None, _preflights(results)
    due_s = time.monotonic() + PROGRESS_SECONDS
    while not closing.wait(min(PROGRESS_SECONDS, PREFLIGHT_SECONDS)) and not stop.is_set():
        lines = []
        if has_jobs and (new := _preflights(results) - known):
            known |= new
            lines = [line for path in sorted(new) for line in preflight_lines(path)]
        if time.monotonic() >= due_s:
            due_s = time.monotonic() + PROGRESS_SECONDS
            try:
                watcher = watcher or RunWatcher(results)
                lines += filter(None, watcher.next_line(time.time())[1:])
            except (UserError, *UNREADABLE):  # not frozen yet, or a file was edited: try again
                pass
        if closing.is_set():
            return
        try:  # not print: at the interpreter's exit this thread must not hold the lock of the stream
            os.write(sys.stderr.fileno(), "".join(f"{line}\n" for line in lines).encode(errors="replace"))
        except (OSError, ValueError):  # the reader is gone
            return


def preflight_lines(path: Path) -> list[str]:
    """Return a line for each stack that failed a preflight."""
    return [
        f"stack {stack} failed the preflight and is excluded: {one_line(cause, MAX_CAUSE)}"
        for stack, cause in failed_stacks(path).items()
    ]


def _preflights(results: Path) -> set[Path]:
    return set(results.glob("preflight/preflight-*.json"))
