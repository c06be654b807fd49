"""Fixtures of the tests that run on a real Slurm cluster, made of namespaces of this machine."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
WITH_OWN_CLUSTER = ("test_job_drills", "test_stacks")
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


@pytest.fixture(scope="module")
def cluster(usable, request) -> Iterator:
    """Return a cluster: a login node, n1 and n2, without accounting.

    The files in WITH_OWN_CLUSTER have one of their own, so that they can run beside the others; it is purged afterwards.
    Its root file system and image begin as copies of the shared one's, if there is one. The shared one stays up if it was.
    """
    from slurm import STATE, UNAVAILABLE, Cluster

    stem = request.path.stem
    is_own = stem in WITH_OWN_CLUSTER
    cluster = Cluster(STATE.with_name(f"{STATE.name}-{stem.removeprefix('test_')}") if is_own else STATE)
    was_up = not is_own and cluster.is_up()
    if is_own:
        cluster.control("purge")
        cluster.state.mkdir(parents=True)
        for part, marker in (("root", "root/.complete"), ("images", "images/cpu.sif.complete")):
            if (STATE / marker).exists():
                subprocess.run(["cp", "--archive", "--one-file-system", STATE / part, cluster.state], check=True)
    brought_up = cluster.up(check=False)
    if brought_up.returncode == UNAVAILABLE:
        skip(brought_up.stderr.strip().splitlines()[-1])
    assert brought_up.returncode == 0, brought_up.stderr
    yield cluster
    if not was_up:
        cluster.control("purge" if is_own else "down")


@pytest.fixture(scope="module")
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
