"""What other programs take of this machine: the warning before a run, and the record of a cell that timed out."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from regatta.run import host_load
from regatta.run.causes import Cause
from regatta.run.host_load import CpuTimes, LaunchLoad, OtherLoad, busy_text, record_field
from regatta.run.supervise import _late
from regatta.store.records import host_load_columns, violation

TICKS = os.sysconf("SC_CLK_TCK")


class Machine:
    """A stubbed /proc: while the program sleeps, `busy` cores of `num_cores` are busy, `of_this` of it here."""

    def __init__(self, folder: Path, num_cores: int, busy: list[float], of_this: float = 0.0) -> None:
        self.folder, self.num_cores, self.busy, self.of_this = folder, num_cores, busy, of_this
        self.now_s, self.busy_s, self.slept = 0.0, 0.0, []
        (folder / str(os.getpid())).mkdir()
        self.stat = (Path("/proc") / str(os.getpid()) / "stat").read_text()
        self.write()

    def write(self) -> None:
        per_core = round(self.busy_s / self.num_cores * TICKS)
        lines = [f"cpu{core} {per_core} 0 0 0 0 0 0 0 0 0" for core in range(self.num_cores)]
        (self.folder / "stat").write_text("\n".join([f"cpu  {per_core} 0 0 0 0 0 0 0 0 0", *lines]) + "\n")
        head, _, rest = self.stat.rpartition(")")
        fields = rest.split()
        fields[11:15] = [str(round(self.now_s * self.of_this * TICKS)), "0", "0", "0"]
        (self.folder / str(os.getpid()) / "stat").write_text(f"{head}) {' '.join(fields)}\n")

    def sleep(self, seconds: float) -> None:
        self.busy_s += self.busy[len(self.slept)] * seconds
        self.slept.append(seconds)
        self.now_s += seconds
        self.write()

    def text(self, monkeypatch) -> str | None:
        monkeypatch.setattr(psutil, "PROCFS_PATH", str(self.folder))
        monkeypatch.setattr(host_load, "usable_cores", lambda: list(range(self.num_cores)))
        return busy_text(self.sleep, lambda: self.now_s)


@pytest.mark.parametrize(
    ("num_cores", "busy", "of_this", "share"),
    [
        (2, [2.0, 2.0], 0.0, "100 %"),
        (2, [1.4, 1.0], 0.0, "50 %"),
        (2, [0.4], 0.0, None),  # at most half a core
        (2, [1.4, 0.4], 0.0, None),  # for a moment only
        (2, [1.4], 1.0, None),  # this program's
        (16, [1.5], 0.0, None),  # at most a tenth of the cores
        (16, [4.0, 4.0], 0.0, "25 %"),
    ],
)
def test_a_busy_machine_is_warned_of_and_an_idle_one_delays_a_tenth_of_a_second(
    tmp_path, monkeypatch, num_cores, busy, of_this, share
):
    machine = Machine(tmp_path, num_cores, busy, of_this)
    text = machine.text(monkeypatch)
    assert (text is None) == (share is None)
    assert share is None or share in text
    assert machine.slept == [0.1, 0.4][: len(busy)]


def load_of(busy_s: float, ranks_s: float) -> OtherLoad:
    return OtherLoad(CpuTimes(100.0, 50.0, 1.0, 7.0), CpuTimes(160.0, 50.0 + busy_s, 4.0, 7.0 + ranks_s), 2)


def test_the_record_of_a_timeout_has_the_load():
    field = record_field(load_of(110, 20))
    [host] = field["hosts"]
    known = {name: value for name, value in host.items() if value is not None}
    del known["load_average"], known["unknown"]
    assert known == {
        "rank": 0,
        "num_cores": 2,
        "elapsed_ns": 60 * 10**9,
        "ranks_cpu_ns": 20 * 10**9,
        "busy_ns": 110 * 10**9,
        "steal_ns": 3 * 10**9,
    }
    assert host["unknown"].keys() == {name for name, value in host.items() if value is None}
    columns = host_load_columns({"host_load": field}, ["n1", "n1"])
    assert columns == {
        "other_processes_ratio": 0.75,
        "steal_ratio": 0.025,
        "throttled_ratio": None,
        "loaded_host": "n1",
    }


@pytest.mark.parametrize(("busy_s", "is_named"), [(110, True), (21, False)])
@pytest.mark.parametrize("current", ["a", None])
def test_the_cause_of_a_timeout_names_the_load_of_a_busy_machine(busy_s, is_named, current):
    watch = SimpleNamespace(current=current, limits={"a": 60.0}, start_seconds=60.0)
    cause = _late(watch, load_of(busy_s, 20), False)
    assert (cause.status, cause.phase) == ("timeout", None if current else "launch")
    assert ("75 %" in cause.text) == is_named
    assert cause.host_load["hosts"][0]["busy_ns"] == busy_s * 10**9


def test_without_counters_a_timeout_has_no_load():
    cause = _late(SimpleNamespace(current="a", limits={"a": 60.0}), None, False)
    assert (cause.host_load, "processes" in cause.text) == (None, False)


def test_time_of_a_launch_is_not_that_of_others():
    """The launch spins on one core through a child, as start_ranks.py does."""
    spin = "import time; t = time.monotonic()\nwhile time.monotonic() - t < 30: pass"
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])"
    process = subprocess.Popen([sys.executable, "-c", launcher], start_new_session=True)
    try:
        deadline = time.monotonic() + 20
        while not psutil.Process(process.pid).children():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        [child] = psutil.Process(process.pid).children()
        load, begun_s = LaunchLoad(process), child.cpu_times().user
        while child.cpu_times().user < begun_s + 0.3:  # by its own time: the machine may be busy
            assert time.monotonic() < deadline
            time.sleep(0.05)
        found = load.so_far()
        assert found.ranks_s >= 0.25
        assert found.cores <= (found.after.busy_s - found.before.busy_s - found.ranks_s) / 0.25 + 0.01
    finally:
        for child in psutil.Process(process.pid).children():
            child.kill()
        process.wait(10)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"busy_ns": 3, "ranks_cpu_ns": 1}, 0.1),
        ({"busy_ns": 1, "ranks_cpu_ns": 3}, 0.0),
        ({"busy_ns": 100, "ranks_cpu_ns": 1}, 1.0),
        ({"busy_ns": None, "ranks_cpu_ns": 1}, None),
        ({"busy_ns": 3}, None),
        ({"busy_ns": 3, "ranks_cpu_ns": 1, "elapsed_ns": 0}, None),
        ({"busy_ns": 3, "ranks_cpu_ns": 1, "num_cores": None}, None),
        ({"busy_ns": 0, "ranks_cpu_ns": 10**9, "elapsed_ns": 10**9}, None),  # the system does not count processes
    ],
)
def test_the_share_of_other_processes(entry, expected):
    entry = {"rank": 0, "num_cores": 2, "elapsed_ns": 10, "unknown": {}} | entry
    columns = host_load_columns({"host_load": {"hosts": [entry], "gpus": []}}, ["n1"])
    assert columns["other_processes_ratio"] == expected
    assert columns["loaded_host"] == (None if expected is None else "n1")


def test_of_several_hosts_the_one_with_the_most_is_named():
    hosts = [{"rank": rank, "num_cores": 2, "elapsed_ns": 10, "ranks_cpu_ns": 0, "busy_ns": busy, "unknown": {}}
             for rank, busy in ((0, 4), (2, 12), (4, None))]  # fmt: skip
    columns = host_load_columns({"host_load": {"hosts": hosts, "gpus": []}}, ["n1", "n1", "n2", "n2", "n3", "n3"])
    assert (columns["other_processes_ratio"], columns["loaded_host"]) == (0.6, "n2")


@pytest.mark.parametrize("record", [{}, {"host_load": None}, {"host_load": {"hosts": [], "gpus": []}}])
def test_records_without_counters_have_empty_columns(record):
    assert set(host_load_columns(record, ["n1"]).values()) == {None}


def test_the_schema_refuses_an_unknown_counter():
    record = {"kind": "record", "cell": "c", "spec": {}, "repeat": 0, "command": None, "writer": "rank"}
    record |= {"status": "ok", "phase": None, "cause": None, "time_utc": "2026-11-21T03:04:09Z"}
    record |= dict.fromkeys(("elapsed_ns", "setup_ns", "warmup", "sampling", "checks", "values", "memory"))
    assert violation(record) is None
    assert violation(record | {"host_load": None}) is None
    assert violation(record | {"host_load": record_field(load_of(1, 1))}) is None
    wrong = record_field(load_of(1, 1))
    wrong["hosts"][0]["bussy_ns"] = 1
    assert "bussy_ns" in violation(record | {"host_load": wrong})


def test_a_cause_with_a_load_equals_one_without():
    assert Cause("timeout", None, "x", host_load={}) == Cause("timeout", None, "x")
