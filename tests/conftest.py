"""Tests import Regatta's library as the thin scripts do: `from regatta import ...`, with workflow/scripts on the path.

`make test` runs four streams side by side: three of tests on Slurm clusters, which mostly wait, and all others.
"""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
STREAMS = {  # of the files in tests/cluster that make a cluster of their own
    "test_accounting": "own clusters",
    "test_cluster_lifecycle": "own clusters",
    "test_stacks": "own clusters",
    "test_job_drills": "jobs",
}
sys.path.insert(0, str(TESTS.parent / "workflow" / "scripts"))


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in its own hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        stream = "others"
        if TESTS / "cluster" in item.path.parents:
            stream = STREAMS.get(item.path.stem, "cluster")
        item.add_marker(pytest.mark.xdist_group(stream))
