"""Processes that compute beside this one. They are forked, so its data need not be sent."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from regatta.core.errors import ProcessKilled

MOST_PROCESSES = 8  # login nodes are shared
NUM_PROCESSES = min(len(os.sched_getaffinity(0)), MOST_PROCESSES)
_data: list[object] = []  # of this process, if it is one of a pool


@contextmanager
def pool_with(data: object, num_processes: int, work: str) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool for calls of `with_data`. Its processes have the data as it is at the first call.

    work: what they do, for the message. Raises ProcessKilled if one of them ends early.
    """
    pool = ProcessPoolExecutor(num_processes, multiprocessing.get_context("fork"), _begin, (data,))
    try:
        yield pool
    except BrokenProcessPool:
        raise ProcessKilled(
            f"A process that {work} was killed, most likely because memory ran out. Files that it would replace are"
            " unchanged, and all measurements are kept. Allow more memory (mem_mb or --mem of the job in which this"
            " runs), then run the same command again, or: make report CONFIG=results/<name>"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def with_data(function: Callable, *arguments: object) -> object:
    """Call a function with arguments and the data of the pool."""
    return function(*arguments, _data[0])


def _begin(data: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the main process, which ends these
    _data[:] = [data]
