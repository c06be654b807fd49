"""Tests import Regatta's library as the thin scripts do: `from regatta import ...`, with workflow/scripts on the path.

`make test` runs two streams side by side: the tests on the Slurm cluster, which mostly wait, and all others.
"""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS.parent / "workflow" / "scripts"))


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in its own hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_on_cluster = TESTS / "cluster" in item.path.parents
        item.add_marker(pytest.mark.xdist_group("cluster" if is_on_cluster else "others"))
