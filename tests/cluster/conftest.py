"""Fixtures of the tests on a real Slurm cluster, which runs in namespaces of this machine."""

import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator
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


def make_cache(with_image: bool = False, with_accounting: bool = False) -> None:
    """Make the root file system that all clusters begin with, and the image, if they are not there yet: one test at a
    time, in the default state folder, whose cluster is left as it was."""
    from slurm import STATE, SUITE, UNAVAILABLE, Cluster

    wanted = ["root/.complete", "root/usr/include/slurm/spank.h"]  # an older cache has no libslurm-dev
    wanted += ["root/.accounting"] if with_accounting else []
    wanted += ["images/cpu.sif.complete", "images/cpu.sqsh"] if with_image else []
    with STATE.with_name(f"{STATE.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        root = STATE / wanted[0]
        if all((STATE / marker).exists() for marker in wanted) and root.read_text().split()[0] == SUITE:
            return
        shared = Cluster(STATE)
        was_up = shared.is_up()
        if was_up and with_accounting:
            return  # the test's own cluster installs it
        brought_up = shared.up(*(["--accounting"] if with_accounting else []), check=False)
        if brought_up.returncode == UNAVAILABLE:
            skip(brought_up.stderr.strip().splitlines()[-1])
        assert brought_up.returncode == 0, brought_up.stderr
        if with_image:
            shared.control("image")
        if not was_up:
            shared.control("down")


@pytest.fixture(scope="session")
def cache(usable) -> Callable[..., None]:
    """Return make_cache, for tests that make a cluster themselves."""
    return make_cache


@pytest.fixture(scope="module")
def cluster(cache, request) -> Iterator:
    """Return a cluster for one file of tests: a login node, n1 and n2, or as many nodes as the file's NUM_NODES, without
    accounting. It is purged afterwards."""
    from slurm import STATE, Cluster

    cache()
    cluster = Cluster(STATE.with_name(f"{STATE.name}-{request.path.stem.removeprefix('test_')}"))
    cluster.control("purge")
    cluster.copy_root()
    cluster.up("--nodes", getattr(request.module, "NUM_NODES", 2))
    yield cluster
    cluster.control("purge")


@pytest.fixture(scope="module")
def cpu_image(cluster) -> str:
    """Return the path, on the nodes, of an image with Python and torch; built once, and kept with the caches."""
    from slurm import STATE

    make_cache(with_image=True)
    for part in ("cpu.sif", "cpu.sif.complete", "cpu.sqsh"):
        target = cluster.state / "images" / part
        try:
            os.link(STATE / "images" / part, target)  # nodes can only read it
        except OSError:
            shutil.copy2(STATE / "images" / part, target)
    return "/images/cpu.sif"


@pytest.fixture(scope="module")
def cpu_squashfs(cpu_image) -> str:
    """Return the path of the same image as a SquashFS file, for srun --container-image."""
    return "/images/cpu.sqsh"


@pytest.fixture
def site(cluster, request) -> Iterator:
    """Return a copy of what runs on the cluster's shared file system. The queue is empty before and after, and all
    nodes serve."""
    from drills import make_site
    from slurm import wait_until

    wait_until(cluster.is_serving, 90, "all nodes serve")
    site = make_site(cluster, request.node.name.removeprefix("test_")[:40].rstrip("["))
    yield site
    site.end()
    wait_until(lambda: not cluster.squeue(), 60, "an empty queue")
