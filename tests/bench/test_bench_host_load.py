"""Counters of a host over a cell, from a stubbed /proc and /sys/fs/cgroup, with values computed by hand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench_cells import BENCH

from harness import host_load
from harness.host_load import ABSENT, DECREASED, NOT_FIRST, REASONS, UNEXPECTED, Monitor, record_field

TICK = host_load.TICK_NS
MS = 10**6


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_host(folder: Path, factor: int = 1, num_cores: int = 4) -> tuple[Path, Path]:
    """Write files whose counters are multiples of `factor`; returns proc and cgroup."""
    proc, cgroup = folder / "proc", folder / "cgroup"
    # user nice system idle iowait irq softirq steal guest guest_nice
    cores = [f"cpu{n} {factor * 10 * (n + 1)} {factor} {factor * 2} 99 5 {factor * 3} {factor * 4} {factor * 6} 0 0"
             for n in range(num_cores)]  # fmt: skip
    write(proc / "stat", "\n".join(["cpu  1 1 1 1 1 1 1 1 0 0", *cores, "intr 1 2 3", "ctxt 4"]))
    write(proc / "loadavg", f"{factor}.25 0.50 0.75 1/100 1234\n")
    for place, kind in enumerate(("cpu", "memory", "io"), 1):
        some = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={factor * 1000 * place}"
        write(proc / "pressure" / kind, f"{some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=77\n")
    write(proc / "self" / "task" / "1" / "children", "")
    write(proc / "self" / "cgroup", "4:memory:/x\n3:cpu,cpuacct:/jobs/one\n0::/slice/job\n")
    write(cgroup / "slice" / "job" / "cpu.stat", f"usage_usec 5\nnr_throttled {factor}\nthrottled_usec {factor * 20}\n")
    write(cgroup / "slice" / "cpu.stat", f"nr_periods 5\nnr_throttled {factor * 2}\nthrottled_usec {factor * 30}\n")
    write(cgroup / "cpu.stat", "usage_usec 5\n")  # the root has no limit
    return proc, cgroup


def changed(folder: Path, cores: list[int], change=lambda proc, cgroup: None) -> dict:
    """Return the entry of a host whose counters double. change: of the files, between the readings."""
    proc, cgroup = write_host(folder)
    monitor = Monitor(True, cores, None, proc, cgroup)
    write_host(folder, 2)
    change(proc, cgroup)
    [entry] = record_field([monitor.row()])["hosts"]
    return entry


def test_differences_over_a_cell(tmp_path):
    entry = changed(tmp_path, [])
    assert entry.pop("ranks_cpu_ns") >= 0
    assert 0 < entry.pop("elapsed_ns") < 10**10
    assert entry == {
        "rank": 0,
        "num_cores": 4,
        "busy_ns": (10 + 20 + 30 + 40 + 4 * 1 + 4 * 2) * TICK,
        "interrupt_ns": 4 * (3 + 4) * TICK,
        "steal_ns": 4 * 6 * TICK,
        "throttled_ns": (20 + 30) * 1000,
        "num_throttled": 1 + 2,
        "cpu_pressure_ns": 1000 * 1000,
        "memory_pressure_ns": 2000 * 1000,
        "io_pressure_ns": 3000 * 1000,
        "load_average": 2.25,
        "unknown": {},
    }


@pytest.mark.parametrize(("cores", "num", "ticks"), [([1, 2], 2, 20 + 30 + 2 * 3), ([7], 4, 112), ([0, 7], 4, 112)])
def test_only_cores_that_the_ranks_may_use_count_or_all_if_the_system_does_not_list_them(tmp_path, cores, num, ticks):
    entry = changed(tmp_path, cores)
    assert (entry["num_cores"], entry["busy_ns"]) == (num, ticks * TICK)


def test_throttling_of_cgroups_of_version_1(tmp_path):
    def move(proc, cgroup):
        for path in cgroup.rglob("cpu.stat"):
            path.unlink()
        write(cgroup / "cpu" / "jobs" / "cpu.stat", "nr_periods 3\nnr_throttled 9\nthrottled_time 123\n")

    proc, cgroup = write_host(tmp_path)
    move(proc, cgroup)
    read = host_load.read_host(proc, cgroup, [])
    assert (read["throttled_ns"], read["num_throttled"]) == (123, 9)


@pytest.mark.parametrize(
    ("path", "text", "names", "code"),
    [
        ("proc/pressure/cpu", None, {"cpu_pressure_ns"}, ABSENT),
        ("proc/pressure/io", "full avg10=0.00 total=1\n", {"io_pressure_ns"}, UNEXPECTED),
        ("proc/pressure/memory", "some avg10=0.00 total=\n", {"memory_pressure_ns"}, UNEXPECTED),
        ("proc/loadavg", "", {"load_average"}, UNEXPECTED),
        ("proc/stat", None, {"num_cores", "busy_ns", "interrupt_ns", "steal_ns"}, ABSENT),
        ("proc/stat", "cpu  0 0 0 0 0 0 0 0 0 0\n", {"num_cores", "busy_ns", "interrupt_ns", "steal_ns"}, UNEXPECTED),
        ("proc/stat", "cpu0 1 2 3\n", {"num_cores", "busy_ns", "interrupt_ns", "steal_ns"}, UNEXPECTED),
        ("proc/self/cgroup", None, {"throttled_ns", "num_throttled"}, ABSENT),
        ("proc/self/cgroup", "junk\n", {"throttled_ns", "num_throttled"}, UNEXPECTED),
        ("proc/self/task/1/children", None, {"ranks_cpu_ns"}, ABSENT),
        ("cgroup/slice/cpu.stat", "nr_throttled 0\nthrottled_usec 0\n", {"throttled_ns", "num_throttled"}, DECREASED),
    ],
)
def test_what_cannot_be_read_is_null_with_its_reason_and_nothing_else_is(tmp_path, path, text, names, code):
    def damage(proc, cgroup):
        if text is None:
            (tmp_path / path).unlink()
        else:
            (tmp_path / path).write_text(text)
        if code == DECREASED:
            (cgroup / "slice" / "job" / "cpu.stat").write_text("nr_throttled 2\nthrottled_usec 40\n")

    entry = changed(tmp_path, [], damage)
    assert {name for name, value in entry.items() if value is None} == names
    assert entry["unknown"] == dict.fromkeys(names, REASONS[code])


def test_an_empty_system_gives_only_reasons(tmp_path):
    [entry] = record_field([Monitor(True, [0], None, tmp_path / "proc", tmp_path / "cgroup").row()])["hosts"]
    known = {name for name, value in entry.items() if value is not None}
    assert known == {"rank", "elapsed_ns", "unknown"}
    assert len(entry["unknown"]) == len(entry) - 3


def test_processor_time_of_ranks_is_summed_by_host_and_only_first_ranks_have_an_entry():
    names = host_load.HEAD

    def row(host: int, cpu_ns: int, is_first: bool) -> list[int]:
        values = dict.fromkeys(names, 5 if is_first else NOT_FIRST) | {"host": host, "ranks_cpu_ns": cpu_ns}
        return [values[name] for name in names]

    rows = [row(11, 100, True), row(22, 7, True), row(11, 30, False), row(22, ABSENT, False)]
    first, second = record_field(rows)["hosts"]
    assert (first["rank"], first["ranks_cpu_ns"], first["load_average"]) == (0, 130, 0.005)
    assert (second["rank"], second["ranks_cpu_ns"]) == (1, None)
    assert second["unknown"] == {"ranks_cpu_ns": REASONS[ABSENT]}


def test_time_of_children_counts_alive_and_ended():
    burn = "import time; t = time.process_time()\nwhile time.process_time() - t < 0.2: pass\nprint(flush=True); input()"
    before = host_load.cpu_ns_of_tree(host_load.PROC)
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    child = subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    alive = host_load.cpu_ns_of_tree(host_load.PROC) - before
    child.communicate(b"\n")
    ended = host_load.cpu_ns_of_tree(host_load.PROC) - before
    assert alive >= 190 * MS
    assert ended >= 190 * MS


def test_other_processes_are_what_is_left():
    """A process that spins beside another one is in the other's busy_ns and not in its ranks_cpu_ns."""
    measure = f"""
import json, os, sys, time
sys.path.insert(0, {str(BENCH)!r})
from harness.host_load import Monitor, record_field
monitor = Monitor(True, sorted(os.sched_getaffinity(0)), None)
time.sleep(0.5)
print(json.dumps(record_field([monitor.row()])))
"""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
        measured = subprocess.run([sys.executable, "-c", measure], check=True, capture_output=True, text=True)
        spinning.kill()
    [entry] = json.loads(measured.stdout)["hosts"]
    assert entry["ranks_cpu_ns"] < 200 * MS
    assert entry["busy_ns"] - entry["ranks_cpu_ns"] > 150 * MS  # half of it, where others want the cores too
