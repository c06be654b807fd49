"""Stopping the cluster leaves nothing behind, in any state. Runs on a separate cluster beside the others."""

import contextlib
import ctypes
import hashlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from slurm import PROGRAM, STATE, SUITE, UNAVAILABLE, Cluster, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own(usable):
    """Return a cluster that is down, with a state folder of its own; it is purged afterwards.

    What it leaves behind becomes a child of this process, not of init, and is so known to be its own.
    """
    adopt_orphans(True)
    own = Cluster(STATE.with_name(STATE.name + "-lifecycle"))
    own.control("purge")
    yield own
    own.control("purge")
    assert not own.state.exists()
    adopt_orphans(False)


def adopt_orphans(yes: bool) -> None:
    """Take, or take no longer, the descendants whose parents end (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    assert ctypes.CDLL(None).prctl(36, int(yes), 0, 0, 0) == 0


@pytest.fixture
def made(own, cache) -> Cluster:
    """Return the same with a root file system."""
    if not (own.state / "root" / ".complete").exists():
        cache()
        own.copy_root()
    own.control("down")  # what a failed test left
    return own


def descendants(root: int) -> set[int]:
    """Return the processes that a process started, those that these started, and so on; also those on nodes."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:  # ended meanwhile
            continue
        if state not in "ZX":  # ended, and not yet asked about by the process that adopted it
            children.setdefault(int(parent), []).append(int(process.name))
    found, left = set(), [root]
    while left:
        new = children.get(left.pop(), [])
        found.update(new)
        left.extend(new)
    return found


def namespaces(own: Cluster) -> set[str]:
    """Return the process and network namespaces of this cluster, as the kernel numbers them.

    Those of its processes and their descendants: other clusters and a browser of this worker come and go meanwhile.
    """
    tag = f"rgt-{hashlib.sha256(str(own.state).encode()).hexdigest()[:6]}"  # tests/cluster/cluster
    roots = [pid for pid in descendants(os.getpid()) if tag in command_line(pid) or str(own.state) in command_line(pid)]
    found = set()
    for pid in {*roots, *(pid for root in roots for pid in descendants(root))}:
        with contextlib.suppress(OSError):  # ended meanwhile
            found.update(os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("pid", "net"))
    return found - {os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "net")}


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def mentions(text: str) -> list[str]:
    """Return the command lines that contain a text, of the processes that this one started."""
    return [line for line in map(command_line, descendants(os.getpid())) if text in line]


def leftovers(own: Cluster) -> dict[str, object]:
    """Return what this cluster has on the host. Mounts and namespaces of anything else may come and go meanwhile."""
    mounts = [line.split()[:2] for line in Path("/proc/mounts").read_text().splitlines()]
    links = subprocess.run(["ip", "-oneline", "link"], capture_output=True, text=True, check=True).stdout
    names = [line.split()[1].rstrip(":").partition("@")[0] for line in links.splitlines()]
    return {
        "mounts": [(source, target) for source, target in mounts if Path(target).is_relative_to(own.state)],
        "links": sorted(name for name in names if re.fullmatch(r"login|switch|n\d+", name)),
        "namespaces": namespaces(own),
    }


def start_up(own: Cluster, *options: str) -> subprocess.Popen:
    return subprocess.Popen(
        [PROGRAM, "up", "--env", own.environment, *options],
        env=os.environ | {"REGATTA_TEST_CLUSTER": str(own.state)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def assert_nothing_is_left(own: Cluster, before: dict[str, object], timeout: float = 30) -> None:
    # The kernel takes a moment to end the last processes of a namespace, on a busy machine seconds.
    wait_until(lambda: namespaces(own) <= before["namespaces"], timeout, "its namespaces have ended")
    after = leftovers(own)
    after.pop("namespaces")
    assert after == {key: before[key] for key in after}
    assert after["mounts"] == []
    assert mentions(str(own.state)) == []


def test_half_an_installation_ends_with_the_program_and_is_not_taken_for_a_whole_one(own):
    before = leftovers(own)
    process = start_up(own)
    log = own.state / "debootstrap.log"
    wait_until(lambda: log.exists() and log.stat().st_size, 60, "debootstrap runs")
    process.kill()
    process.wait()
    wait_until(lambda: mentions(str(own.state)) == [], 30, "debootstrap has ended")
    own.control("down")
    assert_nothing_is_left(own, before)
    assert not (own.state / "root" / ".complete").exists()


def test_a_cluster_that_is_up_is_seen_by_what_looks_for_leftovers(made):
    before = leftovers(made)
    made.up()
    assert len(namespaces(made) - before["namespaces"]) >= 8  # of the machine and at least three nodes
    with pytest.raises(AssertionError):
        assert_nothing_is_left(made, before, timeout=1)
    made.control("down")
    assert_nothing_is_left(made, before)


def test_down_leaves_nothing_and_twice_is_no_error(made):
    before = leftovers(made)
    made.up("--nodes", 3)
    assert made.run(["srun", "--nodes=3", "hostname"]).stdout.count("n") == 3
    assert [target for _, target in leftovers(made)["mounts"]] == [str(made.state / "small")]
    made.control("down")
    assert_nothing_is_left(made, before)
    made.control("down")
    assert not made.is_up()


def test_down_while_jobs_run_ends_them(made):
    before = leftovers(made)
    made.up()
    with made.popen(["srun", "--nodes=2", "sleep", "4322"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        wait_until(lambda: "RUNNING" in made.squeue().values(), 60)
        made.control("down")
    assert mentions("sleep 4322") == []
    assert_nothing_is_left(made, before)


def test_up_again_is_quick_and_changes_nothing_and_brings_back_what_died(made):
    made.up()
    [slurmctld] = made.run(["pgrep", "-x", "slurmctld"]).stdout.split()
    made.up()
    made.kill_node("n2")
    made.up()
    assert made.node_state("n2") == "idle"
    assert made.run(["pgrep", "-x", "slurmctld"]).stdout.split() == [slurmctld]
    made.up("--nodes", 1)
    assert made.run(["sinfo", "--noheader", "--partition", "main", "--format", "%D"]).stdout.strip() == "1"
    made.control("down")


def test_another_suite_ends_the_cluster_and_makes_the_root_file_system_again(made, monkeypatch):
    before = leftovers(made)
    made.up()
    assert (made.state / "root" / ".complete").read_text().split()[0] == SUITE
    monkeypatch.setenv("REGATTA_TEST_CLUSTER_SUITE", "no-such-suite")
    assert made.up(check=False).returncode == UNAVAILABLE  # debootstrap refuses it
    assert not (made.state / "root" / ".complete").exists()
    assert_nothing_is_left(made, before)


def test_down_and_up_work_after_a_crash_of_the_controller_and_of_a_node(made):
    before = leftovers(made)
    made.up()
    made.run(["pkill", "-KILL", "slurmctld"], as_root=True)
    made.kill_node("n1")
    made.up()  # sees that there is no controller, and starts anew
    assert made.run(["srun", "--nodes=2", "hostname"]).stdout.count("n") == 2
    made.run(["pkill", "-KILL", "slurmctld"], as_root=True)
    made.kill_node("n1")
    made.kill_node("login")
    made.control("down")
    assert_nothing_is_left(made, before)


@pytest.mark.parametrize("delay_s", [0.1, 0.2, 0.3, 0.4, 0.6])
def test_down_works_after_up_was_killed_at_any_point(made, delay_s):
    before = leftovers(made)
    process = start_up(made)
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    process.wait()
    made.control("down")
    assert_nothing_is_left(made, before)
