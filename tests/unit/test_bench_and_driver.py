"""What bench/ writes, and what the driver reads or writes instead: the same fields, exit statuses and messages.

Neither imports the other, so nothing else compares them. Needs no torch.
"""

import importlib
import itertools
import json
import math
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import yaml

from regatta.core.statistics import median_interval
from regatta.launchers import LAUNCHERS
from regatta.model import launches
from regatta.run import batch, causes, progress, supervise
from regatta.store import history
from regatta.store.checksums import sealed_file
from regatta.store.launch_files import append_launch_line, read_launch_file

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "workflow" / "scripts" / "bench"
SPEC = dict.fromkeys("version device backend nodes gpus_per_node parameters sampling".split())
SPEC |= {"benchmark": "collective", "stack": {"name": "s"}}
CELL = {"id": "c", "spec": SPEC, "command": "torchrun ..."}
REQUEST = {
    "schema": 1, "campaign": "small", "batch": "b", "launch": "b-l000-a00", "generation": 1, "repeat": 0, "stack": "s",
    "nodes": 1, "gpus_per_node": 1, "device": "cpu", "argv": [], "git": None, "cells": [CELL], "start_timeout_seconds": 1,
    "store_file": "x.jsonl", "error_dir": "errors",
}  # fmt: skip


@pytest.fixture
def bench(monkeypatch):
    """A function that imports a module of bench/, as a launch does."""
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module


@pytest.fixture
def schemas() -> dict:
    return yaml.safe_load((ROOT / "workflow" / "schemas" / "record.yaml").read_text(encoding="utf-8"))["$defs"]


def differences(of_bench: dict, of_driver: dict, schema: dict) -> dict[str, set[str]]:
    """Return the fields of a line that only one side writes, or that the schema does not allow or has in addition."""
    required, allowed = set(schema["required"]), set(schema["properties"])
    found = {
        "only bench/ writes": of_bench.keys() - of_driver.keys(),
        "only the driver writes": of_driver.keys() - of_bench.keys(),
        "required and not written": required - of_bench.keys(),
        "not in the schema": of_bench.keys() - allowed,
    }
    return {text: fields for text, fields in found.items() if fields}


def test_a_record_has_the_same_fields_from_a_rank_and_from_the_driver(bench, schemas):
    of_rank = bench("harness.launch_file").build_record(CELL, 0, "failed", None, "x", {})
    of_driver = launches.LaunchRequest.from_json(REQUEST).record_line("c", causes.Cause("failed", None, "x"), None)
    assert differences(of_rank, of_driver, schemas["record"]) == {}
    assert [name for name in of_rank if of_rank[name] is None] == [
        name for name in of_driver if of_driver[name] is None
    ]


def test_the_first_line_has_the_same_fields_from_a_rank_and_from_the_driver(bench, schemas, monkeypatch, tmp_path):
    run_launch = bench("run_launch")
    environment = types.SimpleNamespace(describe=lambda *arguments: None)  # the real one needs torch
    monkeypatch.setitem(sys.modules, "harness.environment", environment)
    monkeypatch.setattr(importlib.import_module("harness"), "environment", environment, raising=False)
    of_rank = run_launch.first_line(REQUEST, [], types.SimpleNamespace(rank=0, device=None), 1)
    (tmp_path / "results" / "launches").mkdir(parents=True)
    path = tmp_path / "results" / "launches" / f"{REQUEST['launch']}.jsonl"
    request = launches.LaunchRequest.from_json(REQUEST | {"store_file": str(path)})
    launch = batch.LaunchRun(None, 0, None, request, progress.Watch(path, {}, 0))
    launch.record([], causes.Cause("failed", None, "x"), None)
    of_driver = json.loads(path.read_text())
    assert [*of_driver][-2:] == ["line", "checksum"]  # a rank's writer adds them
    of_driver = {key: value for key, value in of_driver.items() if key not in ("line", "checksum")}
    assert differences(of_rank, of_driver, schemas["launch"]) == {}


@pytest.mark.parametrize("num", [39, 40, 41, 100, 997])
def test_ranks_and_driver_have_the_same_interval_of_the_median(bench, num):
    """With ties, trends, outliers and autocorrelation."""
    random = np.random.default_rng(num)
    for rho in (0, 0.3, 0.8, 1):
        noise = random.standard_normal(num).tolist()
        walk = list(itertools.accumulate(noise, lambda before, new, rho=rho: rho * before + new))
        for unit in (1, 10_000):  # the second leaves few distinct times
            samples = [unit * round(1_000_000 * math.exp(0.05 * value) / unit) for value in walk]
            of_rank = bench("harness.sampling").median_interval(samples, sorted(samples))
            assert median_interval(np.array(samples)) == of_rank


def test_ranks_and_driver_write_the_same_bytes(bench, tmp_path):
    lines = [
        {"kind": "launch", "launch": "l0", "note": "ä \u2028 \\"},
        {"kind": "start", "cell": "a"},
        {"kind": "complete"},
    ]
    writer = bench("harness.launch_file").Writer(tmp_path / "l0.jsonl")
    for line in lines:
        writer.append(line)
    assert writer.path.read_bytes() == sealed_file(lines, "l0")
    (tmp_path / "driver").mkdir()
    for line in lines[:2]:
        append_launch_line(tmp_path / "driver" / "l0.jsonl", line)
    assert writer.path.read_bytes().startswith((tmp_path / "driver" / "l0.jsonl").read_bytes())


def test_what_is_measured_again_is_the_same_with_and_without_the_driver(bench):
    frozen_batch, run_batches = bench("harness.frozen_batch"), bench("run_batches")
    assert frozen_batch.ALWAYS_RETRIED == history.ALWAYS_RETRIED
    assert set(frozen_batch.FROM_REQUEST) == set(launches.FROM_REQUEST)
    assert run_batches.MAX_FRUITLESS_LAUNCHES == supervise.MAX_FRUITLESS_LAUNCHES


def damages():
    """Return damaged versions of a file of two records, and how many of these count."""
    lines = [{"kind": "launch", "launch": "l0", "repeat": 0, "stack": "s", "time_utc": ""}]
    lines += [{"kind": "record", "cell": name, "status": "ok"} for name in "ab"]
    whole = sealed_file([*lines, {"kind": "complete"}], "l0")
    first, second, third, last = whole.splitlines(keepends=True)
    yield whole, 2
    yield whole.replace(b'"repeat":0', b'"repeat":1'), 0
    yield second + third + last, 0
    yield whole.replace(third, third.replace(b"checksum", b"checksun")), 1
    yield whole.replace(third, third.partition(b',"checksum"')[0] + b"}\n"), 1
    yield first + third + second + last, 2
    yield first + second + third.replace(b'"ok"', b'"oK"') + last, 1
    for text in (
        b'{"kind":"record"}',
        b'{"kind":"record","cell":[],"status":"ok"}',
        b"{}",
        b"[" * 100_000,
        b"\xff\x00",
    ):
        yield whole + text + b"\n", 2


@pytest.mark.parametrize(("content", "num"), list(damages()))
def test_damage_is_seen_alike_with_and_without_the_driver(bench, tmp_path, content, num):
    path = tmp_path / "l0.jsonl"
    path.write_bytes(content)
    of_driver = history.summarize(read_launch_file(path))
    assert len(of_driver.records if of_driver else ()) == num
    lines, _ = bench("harness.frozen_batch").read_lines(path)
    assert sum(line["kind"] == "record" and lines[0]["kind"] == "launch" for line in lines) == num


def test_the_driver_knows_a_rank_that_cannot_write_the_launch_file(bench):
    assert bench("harness.launch_file").EXIT_CANNOT_WRITE == causes.EXIT_STORE_UNWRITABLE
    code = "from harness import launch_file; launch_file.give_up('x.jsonl', OSError(28, 'No space left on device'))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(BENCH)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == causes.EXIT_STORE_UNWRITABLE
    log = f"{done.stderr}start_ranks: rank 0 exited with code {done.returncode}\n"
    found = causes.store_write_error(LAUNCHERS["none"], log)
    assert re.search(r"x\.jsonl: \[Errno 28\]", found)


def test_the_driver_reads_the_error_file_of_a_rank(bench, tmp_path):
    failures = bench("harness.failures")
    failures.write_error_file(tmp_path, 3, failures.Progress("c", "check"), MemoryError("x"))
    errors = causes.read_rank_errors(tmp_path)
    found = causes.find_cause(LAUNCHERS["none"], errors, "", 1, 0)
    assert (found.status, found.phase) == ("out_of_memory", "check")
    assert found.text == f"rank 3 on {errors[0]['host']}: MemoryError: x"
