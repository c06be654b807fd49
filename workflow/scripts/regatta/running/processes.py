"""Start the processes of a launch and end them, all of them, whatever happens to the driver."""

import ctypes
import os
import signal
import subprocess
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
