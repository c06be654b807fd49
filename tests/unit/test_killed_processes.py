"""Processes that compute beside a script, killed as the kernel does when memory runs out: one message, and no loss."""

import os
import signal

import pytest
from formats_files import FILES
from synthetic import LAPTOP, collective_cell, make_campaign, write_results

import warm_start
from regatta.core.errors import ProcessKilled
from regatta.core.forks import pool_with, with_data

CELLS = [collective_cell(size, 1, 2) for size in (4096, 65536)]


def kill(data):
    os.kill(os.getpid(), signal.SIGKILL)


def kill_reading():
    from regatta.store import summaries

    summaries.MIN_PARALLEL_BYTES, summaries.NUM_PROCESSES = 0, 2
    summaries.summary_text = kill_with_path


def kill_with_path(path, data):
    kill(data)


def test_the_previous_report_stays_if_a_process_is_killed(tmp_path, wording):
    folder = write_results(tmp_path / "laptop", make_campaign(CELLS), LAPTOP)
    warm_start.script("rebuild_report.py", folder, check=True)
    kept = ("report.html", "answer.json", "measurements.csv", "problems.json")
    before = {name: (folder / name).read_bytes() for name in kept}
    done = warm_start.script("rebuild_report.py", folder, prepare=kill_reading)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in ("memory", "mem_mb", "make report"))
    assert {name: (folder / name).read_bytes() for name in kept} == before
    wording.lines(done.stderr, "memory")


def test_a_comparison_whose_import_is_killed_does_not_report_a_slower_cell(tmp_path):
    """Status 1 of compare.py means that a cell is slower."""
    table = FILES / "nccl-13-columns.txt"
    done = warm_start.script("compare.py", table, table, prepare=kill_reading)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert "memory" in done.stderr


def test_errors_of_a_process_that_lives_are_passed_on():
    with pytest.raises(ZeroDivisionError), pool_with(0, 1, "divides") as pool:
        pool.submit(with_data, (1).__truediv__).result()
    with pytest.raises(ProcessKilled, match="divides"), pool_with(0, 1, "divides") as pool:
        pool.submit(with_data, kill).result()
