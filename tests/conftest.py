"""Tests import Regatta's library as the thin scripts do: `from regatta import ...`, with workflow/scripts on the path.

`make test` runs three streams side by side: the tests on the Slurm cluster, which mostly wait, those that make a cluster of
their own, and all others.
"""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
WITH_OWN_CLUSTER = ("test_accounting", "test_cluster_lifecycle", "test_stacks")
sys.path.insert(0, str(TESTS.parent / "workflow" / "scripts"))


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in its own hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        stream = "others"
        if TESTS / "cluster" in item.path.parents:
            stream = "own clusters" if item.path.stem in WITH_OWN_CLUSTER else "cluster"
        item.add_marker(pytest.mark.xdist_group(stream))
