"""Fixtures of the tests that run on a real Slurm cluster, made of namespaces of this machine."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker("cluster")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))  # the first one waits for debootstrap and the image


def skip(reason: str) -> None:
    message = f"cluster tests skipped: {reason}"
    if os.environ.get("REGATTA_REQUIRE_CLUSTER") == "1":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def usable() -> None:
    """Skip where no cluster can be made; fail instead if REGATTA_REQUIRE_CLUSTER=1."""
    from slurm import why_unusable

    if reason := why_unusable():
        skip(reason)


@pytest.fixture(scope="session")
def cluster(usable) -> Iterator:
    """Return the cluster: a login node, n1 and n2, without accounting. It stays up afterwards if it was up before."""
    from slurm import UNAVAILABLE, Cluster

    cluster = Cluster()
    was_up = cluster.is_up()
    brought_up = cluster.up(check=False)
    if brought_up.returncode == UNAVAILABLE:
        skip(brought_up.stderr.strip().splitlines()[-1])
    assert brought_up.returncode == 0, brought_up.stderr
    yield cluster
    if not was_up:
        cluster.control("down")


@pytest.fixture(scope="session")
def cpu_image(cluster) -> str:
    """Return the path, on the nodes, of an image with Python and torch; built once, and kept with the cluster's caches."""
    cluster.control("image")
    return "/images/cpu.sif"


@pytest.fixture
def site(cluster, request) -> Iterator:
    """Return a copy of what runs on the cluster's shared file system; the queue is empty before and after."""
    from drills import make_site
    from slurm import wait_until

    yield make_site(cluster, request.node.name.removeprefix("test_")[:40].rstrip("["))
    cluster.run(["scancel", "--me"])
    wait_until(lambda: not cluster.squeue(), 60, "an empty queue")
