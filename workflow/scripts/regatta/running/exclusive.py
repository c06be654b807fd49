"""One measurement at a time: on a machine without a scheduler, and within a Slurm job, whoever started them."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from regatta.locks import Taken, hold, hold_number
from regatta.running.launchers import Launcher
from regatta.slurm import queue

POLL_SECONDS = 0.05
STEP_POLL_SECONDS = 2.0


@contextlib.contextmanager
def exclusive_use(
    launcher: Launcher, folder: Path, name: str, check: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Wait until nothing else is measured on this machine or in this job, and keep it so while the context lasts.

    folder: of all results, where the locks are. name: of what waits, for people. check is called while waiting, and
    raises to give up.
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
            # One file for all jobs, and a number in it for each: a file per job would be left behind.
            lock = hold_number(folder / ".jobs.lock", int(job), "") if job else hold(folder / ".machine.lock", "")
        except Taken:
            if not is_waiting:
                print(message, file=sys.stderr, flush=True)
            is_waiting = True
            check()
            time.sleep(POLL_SECONDS)
    with lock:
        yield


def _wait_for_steps(job: str, name: str, check: Callable[[], None]) -> None:
    """Wait for Regatta's steps that the lock does not know: of another results folder, or of a supervisor that was killed."""
    is_waiting = False
    while steps := queue.measuring_steps(job):
        if not is_waiting:
            print(
                f"{name}: waiting: Slurm job {job} has running steps of Regatta ({', '.join(steps)}). If they are not"
                f" wanted: scancel {' '.join(steps)}",
                file=sys.stderr,
                flush=True,
            )
        is_waiting = True
        check()
        time.sleep(STEP_POLL_SECONDS)
