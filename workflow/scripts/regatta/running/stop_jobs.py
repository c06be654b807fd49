"""End the jobs of a local run when only Snakemake gets the signal: it would wait for their batches to end."""

import contextlib
import os
import threading

import psutil

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
