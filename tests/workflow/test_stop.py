"""A local run stops at once on any signal, sent to any of its processes, and resumes later."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

import campaigns
import pytest
from campaigns import (
    ROOT,
    SCRIPTS,
    fake_campaign,
    record_lines,
    slots,
    snakemake,
    snakemake_line,
    wait_until,
    write_campaign,
)

pytestmark = pytest.mark.slow

NUM_RECORDS = 14
STOP_SECONDS = 120  # under 10 s on an idle machine; without a stop, the hung cell lasts 600 s
END_SECONDS = 200  # the steps that follow on a stop take 3 s of an idle machine


@pytest.fixture
def campaign(tmp_path):
    """A campaign whose cells hang while the file `hang` is there: without a stop, its batch lasts ten minutes."""
    env = {"FAKE_HANG_FILE": str(tmp_path / "hang"), "FAKE_CELL_SECONDS": "0.1"}
    limits = {"cell_seconds": 600, "launch_start_seconds": 30}
    yield write_campaign(tmp_path, fake_campaign(env=env, limits=limits))
    (tmp_path / "hang").unlink(missing_ok=True)  # so that what did not stop ends too


def start(folder, line, **options):
    """Start a run, and return it as soon as it hangs in a cell."""
    environment = os.environ | campaigns.QUICK_REPORT
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            line, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, **options
        )
    return wait_for_hang(process, folder)


def start_in_fork(folder, campaign):
    """Start Snakemake in a fork of a process that has imported it, and return it as soon as it hangs in a cell."""
    return wait_for_hang(campaigns.start_snakemake(folder, campaign), folder)


def wait_for_hang(process, folder):
    results = folder / "results" / "small"
    wait_until(lambda: len(record_lines(results)) >= 2, "two records")
    (folder / "hang").touch()
    time.sleep(0.5)
    return process


def assert_it_stops(process, folder):
    """A stopped run leaves no process, and keeps and reports what it measured. Returns what it measured."""
    results = folder / "results" / "small"
    wait_until(lambda: not measuring(folder), "end of supervisor and ranks", STOP_SECONDS)
    status = process.wait(END_SECONDS)
    assert campaigns.processes_naming(str(folder)) == []
    output = (folder / "output").read_text()
    assert output.count("Stopping the ranks") == 1
    assert "Traceback" not in output
    kept = slots(results)
    assert 2 <= len(kept) < NUM_RECORDS
    assert (results / "measurements.csv").read_text().count("not_measured") == NUM_RECORDS - len(kept)
    assert (results / "report.html").exists()
    (folder / "hang").unlink()
    time.sleep(0.5)
    assert slots(results) == kept
    assert f"exit status 3: {NUM_RECORDS - len(kept)} " in output
    assert status == (-signal.SIGTERM if process.args[0] == "make" else 3)
    return kept


def measuring(folder):
    return [pid for name in ("measure.py", "fake_launch.py") for pid in naming_both(name, str(folder))]


def naming_both(name, folder):
    """Return the processes that run a script in a folder: the supervisor has the folder as its working directory alone."""
    found = []
    for pid in campaigns.processes_naming(name):
        try:
            if os.readlink(f"/proc/{pid}/cwd") == folder:
                found.append(pid)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_snakemake_alone_stops_the_batch(campaign, tmp_path, number):
    process = start_in_fork(tmp_path, campaign)
    process.send_signal(number)
    assert_it_stops(process, tmp_path)


def test_sigterm_to_snakemake_alone_stops_the_batch_and_it_resumes(campaign, tmp_path):
    results = tmp_path / "results" / "small"
    process = start_in_fork(tmp_path, campaign)
    process.terminate()
    kept = assert_it_stops(process, tmp_path)
    done = snakemake(tmp_path, campaign, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "waiting: another batch" not in done.stderr
    assert len(slots(results)) == len(set(slots(results))) == NUM_RECORDS
    assert set(kept) <= set(slots(results))
    assert "not_measured" not in (results / "measurements.csv").read_text()


@pytest.mark.system
def test_ranks_that_ignore_sigterm_are_killed_in_time(campaign, tmp_path):
    stubborn = tmp_path / "stubborn"
    stubborn.write_text(f'#!/bin/sh\ntrap "" TERM\nexec {sys.executable} {campaigns.FAKE} "$@"\n')
    stubborn.chmod(0o755)
    campaign.write_text(campaign.read_text().replace(str(campaigns.FAKE), str(stubborn)))
    process = start_in_fork(tmp_path, campaign)
    process.terminate()
    assert_it_stops(process, tmp_path)


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_run_campaign_stops_the_batch(campaign, tmp_path, number):
    line = [sys.executable, str(SCRIPTS / "run_campaign.py"), str(campaign), *snakemake_line(campaign)[3:]]
    process = start(tmp_path, line)
    process.send_signal(number)
    assert_it_stops(process, tmp_path)


def make_line(folder, campaign):
    """Return the line that runs a campaign by make, in a folder with links to the checkout."""
    for name in ("Makefile", "Snakefile", "profiles", "requirements", "workflow", "config"):
        (folder / name).symlink_to(ROOT / name)
    python = folder / "environment" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return [shutil.which("make"), "campaign", f"CONFIG={campaign}", "VENV=environment"]


@pytest.mark.system
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_sigterm_to_make_stops_the_batch(campaign, tmp_path):
    process = start(tmp_path, ["make", *make_line(tmp_path, campaign)[1:]])
    process.terminate()
    assert_it_stops(process, tmp_path)


@pytest.mark.system
@pytest.mark.parametrize("command", ["snakemake", "run_campaign", "make"])
def test_a_closed_terminal_stops_the_batch_and_the_report_is_built(campaign, tmp_path, command):
    """The kernel sends SIGHUP to the first process of the terminal, and what others write there fails from then on."""
    if command == "make" and shutil.which("make") is None:
        pytest.skip("make is not installed")
    terminal, inside = os.openpty()
    setup = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    lines = {
        "snakemake": lambda: snakemake_line(campaign),
        "run_campaign": lambda: [
            *(sys.executable, str(SCRIPTS / "run_campaign.py"), str(campaign)),
            *snakemake_line(campaign)[3:],
        ],
        "make": lambda: make_line(tmp_path, campaign),
    }
    line = [sys.executable, "-c", setup, *lines[command]()]
    results = tmp_path / "results" / "small"
    pipes = {"stdin": inside, "stdout": inside, "stderr": inside}
    environment = os.environ | campaigns.QUICK_REPORT
    process = subprocess.Popen(line, cwd=tmp_path, env=environment, start_new_session=True, **pipes)
    os.close(inside)
    os.set_blocking(terminal, False)

    def read():
        with contextlib.suppress(BlockingIOError):
            os.read(terminal, 1 << 16)
        return len(record_lines(results)) >= 2

    wait_until(read, "two records")
    (tmp_path / "hang").touch()
    time.sleep(2)  # run_campaign.py has seen that it is in the foreground
    read()
    os.close(terminal)
    wait_until(lambda: not measuring(tmp_path), "end of supervisor and ranks", STOP_SECONDS)
    assert process.wait(END_SECONDS) == (-signal.SIGHUP if command == "make" else 3)
    assert campaigns.processes_naming(str(tmp_path)) == []
    kept = slots(results)
    assert (results / "measurements.csv").read_text().count("not_measured") == NUM_RECORDS - len(kept)
    assert (results / "report.html").exists()
    [stopped] = [line["signal"] for line in campaigns.lines(results) if line["kind"] == "stopped"]
    assert stopped in ("SIGHUP", "SIGTERM")  # the terminal's, or Snakemake's


@pytest.mark.system
def test_a_run_under_nohup_goes_on_when_its_terminal_closes(campaign, tmp_path):
    process = start(tmp_path, ["nohup", *snakemake_line(campaign)], start_new_session=True)
    os.killpg(process.pid, signal.SIGHUP)
    time.sleep(1)
    assert measuring(tmp_path)
    (tmp_path / "hang").unlink()
    assert process.wait(END_SECONDS) == 0
    assert len(slots(tmp_path / "results" / "small")) == NUM_RECORDS
