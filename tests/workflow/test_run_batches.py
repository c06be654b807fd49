"""Launches of a frozen campaign without Regatta's driver: bench/run_batches.py, with fake ranks."""

import csv
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from campaigns import ROOT, fake_campaign, frozen_batches, lines, processes_naming, record_lines, script, slots

from regatta.launchers import LAUNCHERS, Allocation, launch_environment

BENCH = ROOT / "workflow" / "scripts" / "bench"
NUM_MEASUREMENTS = 14  # 7 cells, 2 repeats


def command(folder: Path) -> list[str]:
    return [*f"{sys.executable} -E -s -S".split(), f"{BENCH}/run_batches.py", f"{folder}/results/small"]


def run_batches(folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run(command(folder), cwd=folder, capture_output=True, text=True, timeout=120)


def freeze(folder: Path, *arguments, **changes) -> Path:
    """Freeze the campaign of fake_campaign; return its results folder."""
    frozen_batches(folder, fake_campaign(*arguments, **changes))
    return folder / "results" / "small"


def content_of(results: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in results.rglob("*") if path.is_file() and path.name != "lock"}


def wait_for_start(running: subprocess.Popen, results: Path) -> None:
    """Wait until a cell is being measured."""
    deadline = time.monotonic() + 60
    while not any(line["kind"] == "start" for line in lines(results)):
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def rows(results: Path) -> list[dict]:
    with (results / "measurements.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["repeat"]]


def test_every_cell_is_recorded_and_the_driver_collects_and_plans_nothing_more(tmp_path):
    results = freeze(tmp_path)
    done = run_batches(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(slots(results)) == len(set(slots(results))) == NUM_MEASUREMENTS
    script(tmp_path, "rebuild_report.py", "results/small")
    assert Counter(row["status"] for row in rows(results)) == {"ok": NUM_MEASUREMENTS}
    script(tmp_path, "plan.py", "--campaign", "campaign.yaml")
    totals = json.loads((results / "plan.json").read_text())["totals"]
    assert (totals["todo"], totals["launches"]) == (0, 0)
    before = content_of(results)
    assert run_batches(tmp_path).returncode == 0  # a second run measures nothing again
    assert content_of(results) == before


@pytest.mark.parametrize(
    ("fault", "status", "cause"),
    [
        ("raise", "failed", "rank 0 on fake: ValueError: the fake cell raised"),
        ("oom", "out_of_memory", "rank 0 on fake: RuntimeError: can't allocate memory"),
        (
            "killed",
            "failed",
            "the launch exited with code 1; last line of the log: start_ranks: rank 0 exited with code -9",
        ),
        (
            "torn",
            "failed",
            "the launch exited with code 1; last line of the log: start_ranks: rank 0 exited with code -9",
        ),
    ],
)
def test_a_cell_that_kills_its_ranks_is_recorded_and_the_rest_is_measured(tmp_path, fault, status, cause):
    results = freeze(tmp_path, {"ddp-25": fault})
    assert run_batches(tmp_path).returncode == 0
    failed = [record for record in record_lines(results) if record["status"] != "ok"]
    assert {(record["status"], record["cause"], record["writer"]) for record in failed} == {(status, cause, "driver")}
    assert len(failed) == 4  # two shapes, two repeats
    script(tmp_path, "rebuild_report.py", "results/small")
    assert Counter(row["status"] for row in rows(results)) == {"ok": NUM_MEASUREMENTS - 4, status: 4}
    assert (results / "report.html").exists()


def test_a_hung_cell_is_recorded_as_timeout_and_its_ranks_are_gone(tmp_path):
    limits = {"cell_seconds": 1, "launch_start_seconds": 30}
    results = freeze(tmp_path, {"ddp-25-n01g02": "hang"}, repeats=1, limits=limits)
    assert run_batches(tmp_path).returncode == 0
    [failed] = [record for record in record_lines(results) if record["status"] != "ok"]
    assert (failed["status"], failed["phase"]) == ("timeout", None)
    assert 1e9 < failed["elapsed_ns"] < 20e9
    assert processes_naming(str(results)) == []


def test_a_launch_that_does_not_start_leaves_no_record_and_the_next_ones_are_tried(tmp_path):
    results = freeze(tmp_path, env={"FAKE_LAUNCH": "no_start"}, repeats=1)
    done = run_batches(tmp_path)
    assert done.returncode == 3
    assert record_lines(results) == []
    assert len(list(results.glob("batches/*/launches/*.json"))) == 4  # two launches, two attempts each
    script(tmp_path, "rebuild_report.py", "results/small")
    assert {row["status"] for row in rows(results)} == {"not_measured"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_stopped_ends_its_ranks_and_the_same_command_goes_on(tmp_path, number):
    hang = tmp_path / "hang"
    results = freeze(tmp_path, env={"FAKE_HANG_FILE": str(hang)}, repeats=1)
    hang.touch()
    running = subprocess.Popen(command(tmp_path), cwd=tmp_path)
    wait_for_start(running, results)
    running.send_signal(number)
    assert running.wait(30) == 3
    assert processes_naming(str(results)) == []
    assert [line["kind"] for line in lines(results)][-1:] == ["stopped"]
    hang.unlink()
    assert run_batches(tmp_path).returncode == 0
    assert len(slots(results)) == len(set(slots(results))) == NUM_MEASUREMENTS // 2


def test_ranks_of_a_run_that_is_killed_end_with_it(tmp_path):
    hang = tmp_path / "hang"
    results = freeze(tmp_path, env={"FAKE_HANG_FILE": str(hang)}, repeats=1)
    hang.touch()
    running = subprocess.Popen(command(tmp_path), cwd=tmp_path)
    wait_for_start(running, results)
    running.kill()
    running.wait()
    deadline = time.monotonic() + 10
    while processes_naming(str(results)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_naming(str(results)) == []


def test_two_runs_do_not_measure_at_once(tmp_path):
    hang = tmp_path / "hang"
    results = freeze(tmp_path, env={"FAKE_HANG_FILE": str(hang)}, repeats=1)
    hang.touch()
    running = subprocess.Popen(command(tmp_path), cwd=tmp_path)
    wait_for_start(running, results)
    before = lines(results)
    second = run_batches(tmp_path)
    assert (second.returncode, lines(results)) == (2, before)
    running.terminate()
    running.wait()


@pytest.fixture(scope="module")
def frozen(tmp_path_factory) -> Path:
    """A folder with a frozen campaign; tests use a copy."""
    return freeze(tmp_path_factory.mktemp("frozen")).parents[1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda results, batch: (results / "plan.json").unlink(),
        lambda results, batch: (results / "plan.json").write_text("{"),
        lambda results, batch: batch.unlink(),
        lambda results, batch: batch.write_text(batch.read_text()[:300]),
        lambda results, batch: edit(batch, cluster={"scheduler": "slurm", "name": "big"}),
        lambda results, batch: edit(batch, nodes=2),
        lambda results, batch: edit(batch, schema=2),
        lambda results, batch: edit(batch, stacks={"host": {"image": "x.sif", "python": None}}),
        lambda results, batch: edit(batch, stacks={"host": {"prologue": [{"module": "cuda"}], "python": None}}),
        lambda results, batch: edit(batch, stacks={"host": {"python": "/no/such/python3"}}),
        lambda results, batch: edit(batch, stacks={"host": {"python": sys.executable, "scripts": {"python": "00"}}}),
    ],
)
def test_what_only_the_driver_can_run_is_an_error_of_the_user_and_starts_nothing(tmp_path, frozen, damage):
    results = shutil.copytree(frozen, tmp_path, dirs_exist_ok=True) / "results" / "small"
    damage(results, next(results.glob("batches/*/batch.json")))
    done = run_batches(tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert not (results / "launches").exists()


def edit(batch: Path, **changes) -> None:
    batch.write_text(json.dumps(json.loads(batch.read_text()) | changes))


def test_a_full_disk_ends_the_run_with_one_line(tmp_path):
    freeze(tmp_path, {"ddp-25": "no_space"}, repeats=1)
    done = run_batches(tmp_path)
    assert done.returncode == 2
    assert os.strerror(errno.ENOSPC) in done.stderr
    assert "Traceback" not in done.stderr


def test_requests_and_variables_are_those_of_the_driver(tmp_path, monkeypatch):
    """They are part of what a cell measures: a cell measured either way has one id."""
    monkeypatch.syspath_prepend(str(BENCH))
    from harness import frozen_batch
    from regatta.model.frozen import FrozenBatch
    from regatta.run.batch import BatchRun

    results = freeze(tmp_path)
    folder = sorted(results.glob("batches/*"))[1]
    content = json.loads((folder / "batch.json").read_text())
    cells = content["launches"][0]["cells"]
    git = {"commit": "c", "is_dirty": False}
    (mine, _), theirs = (
        frozen_batch.Batch(folder, content).write_request(0, cells, git),
        BatchRun(folder, FrozenBatch.from_json(content), git).launches[0].write_request(cells).to_json(),
    )
    assert theirs.pop("launch") == mine.pop("launch").replace("-a00", "-a01")
    for key in ("store_file", "error_dir", "argv"):
        assert str(theirs.pop(key)) == str(mine.pop(key)).replace("-a00", "-a01"), key
    mine.pop("time_utc"), theirs.pop("time_utc")
    assert mine == theirs

    for name in ("SLURM_PROCID", "SLURM_JOB_ID", "REGATTA_X", "APPTAINER_BIND", "OMP_NUM_THREADS", "MASTER_ADDR",
                 "NCCL_SOCKET_IFNAME", "NCCL_DEBUG", "CUDA_VISIBLE_DEVICES"):  # fmt: skip
        monkeypatch.setenv(name, "7")
    stack = content["stacks"]["host"] | {
        "env": {"OMP_NUM_THREADS": "2", "MASTER_PORT": "1", "MASTER_ADDR": "{first_host}"}
    }
    found, expected = (
        frozen_batch.rank_environment(stack),
        launch_environment(LAUNCHERS["none"], stack, meeting=Allocation().meeting(stack, (), is_program=False)),
    )
    without_python = {name: value for name, value in found.items() if not name.startswith("PYTHON")}
    assert without_python == {name: value for name, value in expected.items() if not name.startswith("PYTHON")}
    assert found["PYTHONNOUSERSITE"] == "1"
