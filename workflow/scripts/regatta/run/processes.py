"""Start the processes of a launch and end them, all of them, whatever happens to the driver."""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1  # linux/prctl.h
STOP_SECONDS = 5.0  # start_ranks.py ends its ranks within 3 s of SIGTERM; then the rest is killed


def start(argv: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen:
    """Start a launch in a session of its own, output to `log`. If the driver is killed, the kernel ends the launch."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_end_with_driver,
        )


def dump_stacks(process: subprocess.Popen) -> None:
    """Have every rank write its Python stacks to the log (bench/ registers SIGUSR1 for that)."""
    for child in _descendants(process):
        try:
            if any(part.endswith("run_launch.py") for part in child.cmdline()):
                child.send_signal(signal.SIGUSR1)
        except psutil.Error:
            continue


def stop(process: subprocess.Popen) -> None:
    """End a launch: SIGTERM, and SIGKILL for whatever is left. Returns when all its processes are gone."""
    family = _descendants(process)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for child in family:
        try:
            child.kill()
        except psutil.Error:
            continue
    psutil.wait_procs(family, timeout=STOP_SECONDS)


def _descendants(process: subprocess.Popen) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        return []


def _end_with_driver() -> None:
    # Runs in the child between fork and exec. The driver has one thread, so this is safe.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


# End the jobs of a local run when only Snakemake gets the signal: it would wait for their batches to end.

AGAIN_SECONDS = 1.0


def end_jobs(stop: threading.Event, closing: threading.Event) -> None:
    """Wait for `stop`, then send SIGTERM to the jobs of this process, also to those started meanwhile, until `closing`.

    Like Ctrl-C it reaches the processes of this process group. A launch has its own, and its supervisor ends it.
    """
    stop.wait()
    known: set[psutil.Process] = set()
    while not closing.is_set():
        for job in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                family = [job] if job in known else [job, *job.children(recursive=True)]
                known.add(job)
                for process in family:
                    _end(process)
        closing.wait(AGAIN_SECONDS)


def _end(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error, ProcessLookupError):
        if os.getpgid(process.pid) == os.getpgrp():
            process.terminate()
