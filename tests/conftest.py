"""Tests import Regatta's library as the thin scripts do: `from regatta import ...`, with workflow/scripts on the path.

`make test` runs four files at a time. Those in tests/cluster mostly wait, each on a separate cluster; the others
compute. The two kinds start alternately, so that waiting and computing overlap; long files first, tests/unit last.
"""

import os
import signal
import sys
from itertools import zip_longest
from pathlib import Path

import pytest

# `make test ARGS=...` hands its variables down, also to a make that a test starts.
for name in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "CONFIG", "PROFILE", "VENV"):
    os.environ.pop(name, None)

# A process started by nohup ignores SIGHUP, one in the background of a script SIGINT, and so would those that tests start
# and stop. Programs do not inherit a handler.
for number, handler in ((signal.SIGHUP, lambda *_: None), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow" / "scripts"))

CLUSTER_LONGEST_FIRST = [
    "stacks",
    "salloc_shapes",
    "job_drills",
    "stack_jobs",
    "drills",
    "batch_drills",
    "node_drills",
    "preemption_drills",
    "controller_drills",
    "salloc_and_gate",
    "start_drills",
    "held_back",
    "cluster",
    "accounting",
    "cluster_lifecycle",
]
LONGEST_FIRST = {"workflow": 0, "bench": 1, "browser": 2, "unit": 3}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    ranks = {f"test_{name}": rank for rank, name in enumerate(CLUSTER_LONGEST_FIRST)}
    waiting = sorted(
        (path for path in files if path.parent.name == "cluster"), key=lambda path: ranks.get(path.stem, 0)
    )
    computing = sorted(
        (path for path in files if path not in waiting), key=lambda path: LONGEST_FIRST[path.parent.name]
    )
    turns = [path for pair in zip_longest(waiting, computing) for path in pair if path is not None]
    items[:] = [item for path in turns for item in files[path]]
