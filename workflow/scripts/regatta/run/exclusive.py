"""One measurement at a time: on a machine without a scheduler, and within a Slurm job, whoever started them."""

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from regatta.core.errors import UserError
from regatta.core.files import Taken, hold, hold_number
from regatta.launchers import slurm_queue as queue
from regatta.run.start import Launcher

POLL_SECONDS = 0.05
STEP_POLL_SECONDS = 2.0
SECONDS_WITHOUT_ANSWER = 60


@contextlib.contextmanager
def exclusive_use(
    launcher: Launcher, folder: Path, name: str, check: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Wait until nothing else is measured on this machine or in this job, and keep it so while the context lasts.

    folder: of all results. name: of what waits, for people. check is called while waiting, and raises to give up.
    """
    job = launcher.job
    where = f"in Slurm job {job}" if job else "on this machine"
    message = f"{name}: waiting: another batch is being measured {where}"
    with _lock(job, folder, message, check):
        if job:
            _wait_for_steps(job, name, check)
        yield


@contextlib.contextmanager
def _lock(job: str | None, folder: Path, message: str, check: Callable[[], None]) -> Iterator[None]:
    lock, is_waiting = None, False
    while lock is None:
        try:
            lock = _lock_job(job, folder) if job else hold(folder / ".machine.lock", "")
        except Taken:
            if not is_waiting:
                print(message, file=sys.stderr, flush=True)
            is_waiting = True
            check()
            time.sleep(POLL_SECONDS)
    with lock:
        yield


def _lock_job(job: str, folder: Path) -> TextIO:
    """Lock a job for this user across results folders. If the home folder cannot be locked, lock beside the results.

    One file for all jobs, and a number in it for each: a file per job would be left behind.
    """
    cluster = re.sub(r"\W", "_", os.environ.get("SLURM_CLUSTER_NAME", ""))
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return hold_number(cache / "regatta" / f"jobs-{cluster}.lock", int(job), "")
    except Taken:
        raise
    except (OSError, UserError, RuntimeError):  # RuntimeError: a user without a home folder
        return hold_number(folder / f".jobs-{os.getuid()}.lock", int(job), "")


def _wait_for_steps(job: str, name: str, check: Callable[[], None]) -> None:
    """Wait for steps of Regatta without a lock, such as those of a supervisor that was killed.

    Where squeue does not answer, go on after SECONDS_WITHOUT_ANSWER.
    """
    is_waiting = False
    deadline = time.monotonic() + SECONDS_WITHOUT_ANSWER
    while (steps := queue.running_steps(job)) != []:
        if steps is None and time.monotonic() > deadline:
            return
        if steps and not is_waiting:
            print(
                f"{name}: waiting: Slurm job {job} has running steps of Regatta ({', '.join(steps)}). If they are not"
                f" wanted: scancel {' '.join(steps)}",
                file=sys.stderr,
                flush=True,
            )
            is_waiting = True
        check()
        time.sleep(STEP_POLL_SECONDS)
