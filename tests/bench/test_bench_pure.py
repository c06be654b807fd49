"""Failures, launch file, threads, table: the parts that need no torch."""

import argparse
import errno
import hashlib
import json
import os

import pytest

from harness import failures, launch_file, process
from harness.by_hand_table import duration, render


class OutOfMemoryError(RuntimeError):
    """Bears the name of torch's own."""


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "out_of_memory"),
        (MemoryError(), "out_of_memory"),
        (RuntimeError("CUDA error: out of memory"), "out_of_memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "out_of_memory"),
        (RuntimeError("NCCL error: Cuda failure 2 'out of memory'"), "out_of_memory"),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory"),
            "out_of_memory",
        ),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out_of_memory"),
        (OSError(errno.ENOENT, "No such file"), "failed"),
        (RuntimeError("Connection closed by peer"), "failed"),
        (ValueError("not enough memory of the past"), "failed"),
    ],
)
def test_exceptions_are_out_of_memory_or_failed(error, status):
    assert failures.classify(error) == status


def test_cause_is_one_line_and_not_too_long():
    assert failures.cause_of(ValueError("first\nsecond")) == "ValueError: first"
    assert failures.cause_of(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert len(failures.cause_of(ValueError("x" * 2000))) == failures.MAX_CAUSE_CHARACTERS


def test_error_file_names_rank_cell_phase_and_cause(tmp_path, wording):
    try:
        raise ValueError("batch_size = 0")
    except ValueError as error:
        path = failures.write_error_file(tmp_path / "new", 3, failures.Progress("cell", "setup"), error)
    report = json.loads(path.read_text())
    assert path.name == "rank-3.json"
    assert set(report) == {"rank", "host", "cell", "phase", "status", "cause", "traceback", "time_ns"}
    assert (report["rank"], report["cell"], report["phase"]) == (3, "cell", "setup")
    wording((report["status"], report["cause"]))
    assert "Traceback" in report["traceback"]
    assert [child.name for child in path.parent.iterdir()] == ["rank-3.json"]


def sealed(name, number, text):
    """Return a line as docs/contracts.md specifies it. text: its JSON without the last two keys."""
    body = text[:-1] + f',"line":{number}'
    checksum = hashlib.sha256(f"{name}\n{body}".encode()).hexdigest()[:16]
    return body + f',"checksum":"{checksum}"}}\n'


def test_each_line_is_one_write(tmp_path, monkeypatch):
    path = tmp_path / "l0.jsonl"
    written = []
    monkeypatch.setattr(os, "write", lambda descriptor, text: written.append(text) or len(text))
    launch_file.Writer(path).append({"kind": "start", "cell": "a"})
    assert written == [sealed("l0", 1, '{"kind":"start","cell":"a"}').encode()]


def test_the_last_line_has_a_digest_of_all_lines_before_it(tmp_path):
    writer = launch_file.Writer(tmp_path / "l0.jsonl")
    writer.append({"kind": "launch"})
    writer.append({"kind": "complete"})
    first = sealed("l0", 1, '{"kind":"launch"}')
    digest = hashlib.sha256(first.encode()).hexdigest()
    last = sealed("l0", 2, f'{{"kind":"complete","digest":"{digest}"}}')
    assert writer.path.read_text() == first + last


def test_a_damaged_line_is_recognized(tmp_path):
    text = sealed("l0", 1, '{"kind":"record","samples_ns":[[1234]]}').encode().rstrip()
    path = tmp_path / "l0.jsonl"
    assert not launch_file.is_damaged(path, text)
    assert launch_file.is_damaged(path, text.replace(b"1234", b"1235"))
    assert launch_file.is_damaged(tmp_path / "l1.jsonl", text)
    assert launch_file.is_damaged(path, b'{"kind":"record","samples_ns":[[1234]]}')
    assert launch_file.is_damaged(path, text.replace(b"checksum", b"chacksum"))


FIRST = sealed("launch", 1, '{"kind":"launch"}')


@pytest.mark.parametrize(("before", "number"), [(FIRST, 2), (FIRST + '{"kind":"sta', 3)])
def test_lines_are_appended_to_what_is_there(tmp_path, before, number):
    """A request that is run again by hand, perhaps after a kill in the middle of a line."""
    path = tmp_path / "launch.jsonl"
    path.write_text(before)
    launch_file.Writer(path).append({"kind": "start", "cell": "a"})
    end = "" if before.endswith("\n") else "\n"
    assert path.read_text() == before + end + sealed("launch", number, '{"kind":"start","cell":"a"}')


def test_a_file_of_an_earlier_version_gets_no_checksums(tmp_path):
    path = tmp_path / "launch.jsonl"
    path.write_text('{"kind":"launch"}\n')
    launch_file.Writer(path).append({"kind": "start", "cell": "a"})
    assert path.read_text() == '{"kind":"launch"}\n{"kind":"start","cell":"a"}\n'


def test_a_number_that_json_cannot_hold_is_refused(tmp_path):
    writer = launch_file.Writer(tmp_path / "launch.jsonl")
    with pytest.raises(ValueError, match="Out of range"):
        writer.append({"kind": "record", "loss": float("nan")})
    assert writer.path.read_text() == ""


@pytest.mark.parametrize(
    ("own", "on_host", "threads"),
    [
        ([0, 1], [[0, 1], [0, 1]], 1),  # torchrun: shared by two
        ([0, 1], [[0, 1]], 2),
        ([0, 1], [[0, 1], [2, 3]], 2),  # srun --cpu-bind: each its own
        ([0], [[0]] * 4, 1),  # never 0
        (list(range(15)), [list(range(15))] * 4, 3),
    ],
)
def test_threads_are_this_ranks_share_of_its_cores(own, on_host, threads):
    assert process.threads_per_rank(own, on_host) == threads


def test_peak_rss_can_be_counted_anew():
    if not process.reset_peak_rss():
        pytest.skip("the kernel does not let us")
    block = bytearray(64 << 20)
    with_block = process.peak_rss_bytes()
    del block
    process.release_memory()
    process.reset_peak_rss()
    assert process.peak_rss_bytes() < with_block - (32 << 20)


def test_start_of_process_is_in_the_past():
    assert process.seconds_since_start() > 0


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [(950, "950 ns"), (1234, "1.234 us"), (98_765, "98.77 us"), (123_456_789, "123.5 ms"), (2.5e9, "2.500 s")],
)
def test_durations_have_four_digits(nanoseconds, text):
    assert duration(nanoseconds) == text


def make_record(num_samples: int) -> dict:
    parameters = {"operation": "all_reduce", "message_bytes": 8_000_000, "dtype": "fp32"}
    spec = {"benchmark": "collective", "version": 1, "device": "cpu", "backend": "gloo", "parameters": parameters}
    measured = {
        "warmup": {"num_iterations": 10, "elapsed_ns": 10**8, "first_iteration_ns": 2 * 10**7, "stop": "steady"},
        "sampling": {"num_iterations": num_samples, "elapsed_ns": 10**9, "stop": "precision", "half_width_ratio": 0.01},
        "samples_ns": [[3_000_000] * num_samples, [4_000_000] * num_samples, [1_000_000] * num_samples],
        "checks": {"result_is_exact": True},
        "values": {},
        "memory": {
            "parameter_bytes": None,
            "gradient_bytes": None,
            "peak_rss_bytes": [1 << 20, 3 << 20, 2 << 20],
            "peak_allocated_bytes": None,
            "peak_reserved_bytes": None,
        },
    }
    cell = {"id": None, "spec": spec, "command": "torchrun ..."}
    return launch_file.build_record(cell, None, "ok", None, None, measured)


class Host:
    host = "n1"


def test_table_counts_the_slowest_rank_and_the_bus(wording):
    text = render(make_record(30), [Host()] * 3, 1)
    assert "median           4.000 ms" in text
    assert "algbw            2 GB/s" in text  # 8 MB in 4 ms
    wording.lines(text, "busbw")  # 2 (3 - 1) / 3
    wording.lines(text, "3.0 MiB (maximum")


def test_table_shows_a_percentile_only_where_the_sample_carries_it():
    assert "p90" not in render(make_record(28), [Host()] * 3, 1)
    with_p90 = render(make_record(29), [Host()] * 3, 1)
    assert "p90" in with_p90
    assert "p95" not in with_p90
    assert "p99" in render(make_record(299), [Host()] * 3, 1)


def test_unmeasured_record_is_null_and_not_zero():
    record = launch_file.build_record({"id": "a", "spec": {}, "command": "x"}, 0, "placement", "placement", "why", {})
    assert all(record[name] is None for name in launch_file.MEASURED_FIELDS)


def test_sizes_by_hand_are_written_as_in_a_campaign():
    collective = pytest.importorskip("collective")
    assert [collective.byte_count(text) for text in ("65536", "64KiB", "64 KiB", "1MB")] == [65536, 65536, 65536, 10**6]
    for text in ("", "4kb", "-4", "1.5MiB"):
        with pytest.raises(argparse.ArgumentTypeError):
            collective.byte_count(text)
