"""Counters of a GPU, read from a stub of NVIDIA's library: values, errors, missing functions, crashes and hangs."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from bench_cells import BENCH

from harness import host_load, nvml

STUB = Path(__file__).with_name("nvml_stub.c")
FIRST = [1990, 41, 699500, 0x1, 100, 200, 400, 6, 7]


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A function that makes a stub of the library the one that is found, with macros of the compiler."""
    if not (compiler := shutil.which("gcc")):
        pytest.skip("no gcc: the stub of NVIDIA's library cannot be compiled")

    def build(mode: str = "normal", *macros: str) -> None:
        line = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", *macros]
        subprocess.run([*line, "-o", str(tmp_path / nvml.LIBRARY), str(STUB)], check=True)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
        monkeypatch.setenv("NVML_STUB", mode)

    return build


def test_counters_are_read_in_their_order(library):
    library()
    reader = nvml.Reader("GPU-1")
    assert reader.read() == FIRST
    assert reader.read() == [1980, 42, 699500, 0x4, 200, 400, 800, 7, 7]


def test_functions_of_an_old_driver_give_the_same(library):
    library("normal", "-DOLD")
    assert nvml.Reader("GPU-1").read() == FIRST


def test_each_function_may_be_missing(library):
    library("normal", "-DBARE")
    reader = nvml.Reader("GPU-1")
    assert reader.read() == [1990, *[nvml.NO_SYMBOL] * 8]
    assert reader.read()[0] == 1980


@pytest.mark.parametrize(("mode", "code"), [("errors", 3), ("lost", 15)])
def test_an_error_code_is_the_reason(library, mode, code):
    library(mode)
    assert nvml.Reader("GPU-1").read() == [nvml.NVML - code] * 9
    assert nvml.reason(nvml.NVML - code) == f"NVML error {code}: {nvml.ERRORS[code]}"


def test_one_counter_without_support_leaves_the_others(library):
    library("no ecc")
    assert nvml.Reader("GPU-1").read() == [*FIRST[:8], nvml.NOT_SUPPORTED]


def test_the_library_s_value_for_unknown_is_unknown(library):
    library("unavailable")
    assert nvml.Reader("GPU-1").read() == [nvml.NOT_SUPPORTED, *FIRST[1:]]


def test_a_gpu_that_is_not_found_and_an_unknown_uuid_are_reasons(library):
    library()
    assert nvml.Reader("GPU-2").read() == [nvml.NVML - 6] * 9
    assert nvml.Reader(None).read() == [nvml.NO_UUID] * 9


def test_without_the_library_all_is_unknown(tmp_path, monkeypatch):
    (tmp_path / nvml.LIBRARY).write_text("no library")  # also where this machine has one
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert nvml.Reader("GPU-1").read() == [nvml.NO_LIBRARY] * 9


@pytest.mark.parametrize(("mode", "first"), [("crash", nvml.ENDED), ("crash later", FIRST[0])])
def test_a_crash_of_the_library_costs_only_its_values(library, mode, first):
    library(mode)
    reader = nvml.Reader("GPU-1")
    assert reader.read()[0] == first
    assert reader.read() == [nvml.ENDED] * 9


@pytest.mark.parametrize("mode", ["hang", "hang later"])
def test_a_library_that_hangs_delays_once_and_is_not_asked_again(library, monkeypatch, mode):
    library(mode)
    reader = nvml.Reader("GPU-1")
    if mode == "hang later":
        assert reader.read() == FIRST
    monkeypatch.setattr(nvml, "ANSWER_SECONDS", 0.3)
    begin = time.monotonic()
    assert reader.read() == [nvml.NO_ANSWER] * 9
    assert 0.2 < time.monotonic() - begin < 2
    begin = time.monotonic()
    assert [reader.read() for _ in range(100)] == [[nvml.NO_ANSWER] * 9] * 100
    assert time.monotonic() - begin < 0.1
    reader.process.wait(10)  # it was killed


def test_the_reading_process_ends_when_the_rank_is_killed(library):
    library()
    program = f"import sys; sys.path.insert(0, {str(BENCH)!r}); from harness import nvml; r = nvml.Reader('GPU-1');"
    program += "r.read(); print(r.process.pid, flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([nvml.sys.executable, "-c", program], **pipes) as rank:
        pid = int(rank.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        rank.kill()
        rank.wait()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_rank_with_a_gpu_records_what_changed_and_what_followed_work(library, monkeypatch):
    """Readings: before the cell, after warm-up, samples and windows, after the cell."""
    library()
    monkeypatch.setattr(nvml, "reader", nvml.Reader)
    monitor = host_load.Monitor(True, [], "GPU-1")
    for _ in range(3):
        monitor.read_gpu()
    [gpu] = host_load.record_field([monitor.row()])["gpus"]
    assert gpu == {
        "rank": 0,
        "sm_clock_min_mhz": 1960,
        "sm_clock_max_mhz": 1980,
        "temperature_c": 44,
        "power_limit_w": 699.5,
        "throttle_reasons": ["gpu_idle", "sw_power_cap", "hw_thermal_slowdown", "0x1000"],
        "power_throttled_ns": 400,
        "thermal_throttled_ns": 800,
        "board_limit_throttled_ns": 1600,
        "corrected_ecc_errors": 4,
        "uncorrected_ecc_errors": 0,
        "unknown": {},
    }


def test_a_rank_with_an_unreadable_gpu_records_null_with_the_reason(monkeypatch):
    monkeypatch.setattr(nvml, "reader", nvml.Reader)
    [gpu] = host_load.record_field([host_load.Monitor(True, [], "").row()])["gpus"]
    names = [*host_load.GPU_ROW[:3], "power_limit_w", *host_load.GPU_ROW[4:]]
    unknown = dict.fromkeys(names, nvml.REASONS[nvml.NO_UUID])
    assert gpu == {"rank": 0, **dict.fromkeys(names), "unknown": unknown}
