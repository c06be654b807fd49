"""The exit status of Snakemake and run_campaign.py, and its message (docs/troubleshooting.md, Exit status)."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
from campaigns import (
    QUICK_REPORT,
    ROOT,
    SCRIPTS,
    fake_campaign,
    record_lines,
    slots,
    snakemake,
    snakemake_line,
    write_campaign,
)

import warm_start
from warm_start import was_idle

pytestmark = pytest.mark.slow

REPORT = "Report: results/small/report.html"
FAILED = {"n01g": "raise"}  # in every cell


def test_recorded_failures_of_cells_are_0_and_so_is_a_run_with_nothing_to_do(tmp_path, wording):
    path = write_campaign(tmp_path, fake_campaign({"65536": "raise"}, repeats=1))
    for _ in range(2):
        done = snakemake(tmp_path, path)
        assert done.returncode == 0, done.stderr
        wording.lines(done.stderr, " failed, ")
        assert "exit status" not in done.stderr


def test_nothing_ok_is_4_each_time_and_the_terminal_says_so(tmp_path):
    path = write_campaign(tmp_path, fake_campaign(FAILED, repeats=1))
    first, again = snakemake(tmp_path, path), snakemake(tmp_path, path)
    assert (first.returncode, again.returncode) == (4, 4)
    assert was_idle(again)
    for done in (first, again):
        assert re.search(r"\b7\b.*: [1-7] failed", done.stderr)
        ended = "nothing was measured: all of 7 measurements have a record, and none is ok"
        assert f"exit status 4: {ended}. {REPORT}" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_campaign_of_skipped_cells_alone_is_4_and_fails_the_gate(tmp_path, wording):
    path = write_campaign(tmp_path, fake_campaign(backend=["nccl"]))  # without a GPU
    for _ in range(2):
        done = snakemake(tmp_path, path)
        assert done.returncode == 4
        wording.lines(done.stderr, "exit status 4:")
    assert snakemake(tmp_path, path, "gate").returncode == 1
    assert snakemake(tmp_path, path, "plan").returncode == 0
    assert snakemake(tmp_path, path, "-n").returncode == 0


@pytest.mark.system
def test_a_batch_that_cannot_finish_is_3_with_the_report_and_run_campaign_passes_it_on(tmp_path, wording):
    path = write_campaign(tmp_path, fake_campaign({"65536": "no_space"}, repeats=1))
    line = [sys.executable, str(SCRIPTS / "run_campaign.py"), str(path), *snakemake_line(path)[3:-2]]
    done = warm_start.run(line, cwd=tmp_path, env=os.environ | QUICK_REPORT)
    assert done.returncode == 3
    num_left = 7 - len(record_lines(tmp_path / "results" / "small"))
    assert 0 < num_left < 7
    wording.lines(done.stderr, "exit status 3:", num_left=f"{num_left} of 7")
    assert "Partial report: results/small/report.html" in done.stderr
    assert done.stdout.endswith(f"{REPORT}\n")
    assert "Complete log" not in done.stderr
    assert "Snakemake's log: " in done.stderr


def test_a_stack_that_is_held_during_the_run_is_3(tmp_path, wording):
    campaign = fake_campaign(repeats=1, shapes=[{"nodes": [1], "gpus_per_node": [1]}])
    campaign["stacks"]["good"] = {"kind": "host", "python": campaign["stacks"]["host"]["python"]}
    path = write_campaign(tmp_path, campaign)
    assert snakemake(tmp_path, path, "--until", "freeze").returncode == 0
    [batch] = (tmp_path / "results" / "small" / "batches").glob("*/batch.json")
    frozen = json.loads(batch.read_text())
    (tmp_path / "wrapper.sh").write_text("edited")
    frozen["stacks"]["host"] |= {"wrapper": str(tmp_path / "wrapper.sh"), "wrapper_sha256": "0" * 64}
    batch.write_text(json.dumps(frozen))
    done = snakemake(tmp_path, path)
    assert done.returncode == 3
    wording.lines(done.stderr, " not measured, ")
    wording.lines(done.stderr, "exit status 3:")


@pytest.mark.system
def test_where_the_preflight_holds_every_stack_it_is_4_each_time(tmp_path, wording):
    image = tmp_path / "image.sif"
    image.write_bytes(b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\x0001\x0002\0" + bytes(range(1, 17)))
    runtime = tmp_path / "bin" / "apptainer"
    runtime.parent.mkdir()
    runtime.write_text("#!/bin/sh\necho this image does not work >&2\nexit 3\n")
    runtime.chmod(0o755)
    path = write_campaign(tmp_path, fake_campaign(stacks={"image": {"kind": "contained", "image": str(image)}}))
    environment = QUICK_REPORT | {"PATH": f"{runtime.parent}:{os.environ['PATH']}"}
    for _ in range(2):
        done = snakemake(tmp_path, path, env=environment)
        assert done.returncode == 4
        wording.lines(done.stderr, "excluded from this run")
        ended = "nothing was measured: 14 of 14 measurements have no record, and none is ok"
        assert f"exit status 4: {ended}. {REPORT}" in done.stderr


def test_part_of_the_workflow_ends_as_snakemake_does(tmp_path):
    path = write_campaign(tmp_path, fake_campaign(repeats=1))
    assert snakemake(tmp_path, path, "freeze").returncode == 0
    assert snakemake(tmp_path, path, "--until", "freeze").returncode == 0
    assert slots(tmp_path / "results" / "small") == []


@pytest.mark.system
def test_a_step_that_breaks_is_1(tmp_path):
    path = write_campaign(tmp_path, fake_campaign(repeats=1))
    breaks = "import os, sys\nif any(word.endswith('analyse.py') for word in sys.orig_argv):\n    os._exit(1)\n"
    (tmp_path / "sitecustomize.py").write_text(breaks)
    done = snakemake(tmp_path, path, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1, done.stderr
    ended = "rule analyse failed; all of 7 measurements have a record. Report: results/small/report.html"
    assert f"exit status 1: {ended}" in done.stderr.splitlines()


def test_what_cannot_be_written_is_2(tmp_path):
    path = write_campaign(tmp_path, fake_campaign())
    (tmp_path / "results" / "small" / ".lock").mkdir(parents=True)
    done = snakemake(tmp_path, path)
    assert (done.returncode, done.stderr.count("results/small/.lock: ")) == (2, 1)
    (tmp_path / "results" / "small" / ".lock").rmdir()
    (tmp_path / "results" / "small" / "plan.json").mkdir()
    done = snakemake(tmp_path, path, "plan")
    assert (done.returncode, done.stderr.count("plan.json: ")) == (2, 1)


def test_the_command_of_on_finish_receives_the_status_of_each_run(tmp_path):
    note = 'echo "$REGATTA_CAMPAIGN $REGATTA_STATUS" >> "$0"'
    command = ["/bin/sh", "-c", note, str(tmp_path / "ended")]
    good, bad = fake_campaign(repeats=1, on_finish=command), fake_campaign(FAILED, repeats=1, on_finish=command)
    snakemake(tmp_path, write_campaign(tmp_path, bad))
    for arguments in ((), (), ("-n",), ("plan",)):  # the second run has nothing to do
        snakemake(tmp_path, write_campaign(tmp_path, good | {"name": "other"}), *arguments)
    assert (tmp_path / "ended").read_text().split("\n") == ["small 4", "other 0", "other 0", ""]


@pytest.mark.system
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    ("command", "redirection"),
    [
        ("run_campaign.py", "| true"),
        ("run_campaign.py", "2>&1 | true"),
        ("run_campaign.py", ">/dev/full 2>&1"),
        ("run_campaign.py", "<&- >&- 2>&-"),
        ("snakemake", "| true"),
        ("snakemake", ">&- 2>&-"),
        ("snakemake", "2>&1 | head -n 3"),  # without a reader before it has read the rules, Snakemake ends
    ],
)
def test_a_run_whose_output_is_lost_measures_all_and_ends_with_its_status(tmp_path, command, redirection):
    """Also one that is incomplete, and so ends with a report of what there is."""
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")  # started in Regatta's folder
    status = tmp_path / "status"
    for name, faults, expected in (("incomplete", {"65536": "no_space"}, 3), ("complete", {}, 0)):
        path = write_campaign(tmp_path, fake_campaign(faults, repeats=1, name=name), f"{name}.yaml")
        line = snakemake_line(path)
        line = line if command == "snakemake" else [sys.executable, str(SCRIPTS / command), str(path), *line[3:]]
        text = f"{{ {shlex.join(line)}; echo $? >{shlex.quote(str(status))}; }} {redirection}"
        subprocess.run(["bash", "-c", text], cwd=tmp_path, env=os.environ | QUICK_REPORT, timeout=200)
        assert int(status.read_text()) == expected
        results = tmp_path / "results" / name
        num_left = 7 - len(set(slots(results)))
        assert (num_left == 0) == (expected == 0)
        assert (results / "measurements.csv").read_text().count("not_measured") == num_left
        assert (results / "report.html").exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    ("folder", "mode", "expected"),
    [
        ("results", 0o000, {"plan": 2, "-n": 2, "all": 2}),
        ("results/small", 0o000, {"plan": 2, "-n": 2, "all": 2}),
        ("results/small", 0o500, {"plan": 2, "-n": 0, "all": 0}),  # nothing is left to write
        ("results/small/logs", 0o500, {"plan": 2, "-n": 0, "all": 2}),
        ("results/small/tables", 0o500, {"plan": 0, "-n": 0, "all": 2}),
    ],
)
def test_a_folder_that_may_not_be_read_or_written_is_one_message(finished, tmp_path, folder, mode, expected):
    path, _ = finished
    driver = [sys.executable, str(SCRIPTS / "run_campaign.py"), str(path)]
    (tmp_path / folder).chmod(mode)
    try:
        for target, status in expected.items():
            for line in (snakemake_line(path, target), [*driver, target, *snakemake_line(path)[3:]]):
                done = warm_start.run(line, cwd=tmp_path, prepare=warm_start.heed_permissions)
                assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr
                lines = [line for line in done.stderr.splitlines() if "Permission denied" in line]
                assert len(lines) == (status == 2), done.stderr
                assert all(line.startswith(folder) for line in lines)
    finally:
        (tmp_path / folder).chmod(0o755)


def test_a_file_in_place_of_the_results_folder_is_one_message(tmp_path, wording):
    path = write_campaign(tmp_path, fake_campaign())
    (tmp_path / "results").touch()
    for target in ("plan", "-n", "all"):
        done = snakemake(tmp_path, path, target)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
        wording.lines(done.stderr, "results: is not")
