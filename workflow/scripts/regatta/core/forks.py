"""Processes that compute beside this one. They are forked, so its data need not be sent."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

MOST_PROCESSES = 8  # login nodes are shared
NUM_PROCESSES = min(len(os.sched_getaffinity(0)), MOST_PROCESSES)
_data: list[object] = []  # of this process, if it is one of a pool


def pool_with(data: object, num_processes: int) -> ProcessPoolExecutor:
    """Return a pool for calls of `with_data`. Its processes have the data as it is at the first call."""
    return ProcessPoolExecutor(num_processes, multiprocessing.get_context("fork"), _begin, (data,))


def with_data(function: Callable, *arguments: object) -> object:
    """Call a function with arguments and the data of the pool."""
    return function(*arguments, _data[0])


def _begin(data: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the main process, which ends these
    _data[:] = [data]
