"""What `make watch` shows: the live view, the lines without a terminal, and errors of users."""

import io
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from synthetic_run import IDS, NOW, A, B, Folder, launches, record

from regatta.run.run_files import RunFiles
from regatta.run.run_state import run_state

SCRIPT = Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "watch.py"


def drawn(state, width=120, height=40) -> str:
    from rich.console import Console

    from regatta.run.live_view import view

    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(view(state, height))
    return console.file.getvalue()


def watch(*arguments, cwd, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, **options
    )


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "results" / "laptop")


@pytest.fixture
def complete(folder):
    folder.batch(A, launches(0, 1, 2))
    records = [[(cell, "ok", 4.0) for cell in IDS] for _ in range(3)]
    folder.manifest(A, *((f"{A}-l00{n}-a00", n, found) for n, found in enumerate(records)))
    return folder


def test_the_view_shows_batches_failures_and_the_last_records(folder, wording):
    pytest.importorskip("rich")
    folder.plan(A, B)
    folder.batch(A, launches(0, 1))
    folder.batch(B, launches(2))
    folder.lock(".lock", ago=1010)
    folder.job(A, "started", 1000, job="4711")
    folder.launch(f"{A}-l000-a00", 0, (IDS[0], "ok", 50.0, 100), (IDS[1], "timeout", 60.0, 40))
    folder.append(f"{A}-l000-a00", {"kind": "start", "cell": IDS[2]})
    lines = drawn(run_state(RunFiles(folder.path), {A: "RUNNING"}, NOW)).splitlines()
    text = "\n".join(lines)
    wording(lines[0])
    wording.lines(text, " running, ")
    wording.lines(text, " per hour")
    [running] = [line.split("  ") for line in lines if line.startswith(A)]
    wording([part.strip() for part in running if part.strip()])
    last = [line.split() for line in lines if line.startswith("07:5")]
    assert [line[:4] for line in last] == [["07:59:20", "timed", "out", "60.0"], ["07:58:20", "ok", "50.0", "s"]]
    [failure] = [line.split() for line in lines if "cause of timeout" in line]
    assert failure == ["1", "timed", "out", "cause", "of", "timeout"]


def test_the_view_fits_the_terminal(folder, wording):
    pytest.importorskip("rich")
    for n in range(30):
        folder.batch(f"n01g02-{n:012x}", [(n % 3, IDS)])
    folder.launch(f"{A}-l000-a00", 0)
    folder.append(f"{A}-l000-a00", *(record(cell, "failed", cause=f"cause {'abcd'[n]}") for n, cell in enumerate(IDS)))
    queue = {f"n01g02-{n:012x}": "RUNNING" for n in range(30)}
    lines = drawn(run_state(RunFiles(folder.path), queue, NOW), width=80, height=40).splitlines()
    assert len(lines) < 40
    assert max(map(len, lines)) <= 80
    wording.lines(lines, " more batches")


def test_hostile_texts_are_neither_markup_nor_control_characters(folder):
    pytest.importorskip("rich")
    folder.launch(f"{A}-l000-a00", 0)
    hostile = "[red]x[/red] [link=http://x]y[/link] [/] \x1b[31m \x07" + "z" * 10_000
    folder.append(f"{A}-l000-a00", record(IDS[0], "failed", cause=hostile))
    text = drawn(run_state(RunFiles(folder.path), {}, NOW), width=200)
    assert "[red]x[/red] [link=http://x]y[/link] [/]" in text
    assert "\x1b[31m" not in text
    assert "\x07" not in text


def test_without_a_terminal_one_line_is_printed_until_all_is_measured(complete, tmp_path):
    done = watch("results/laptop", cwd=tmp_path)
    line = "laptop: 12 of 12 measurements (12 ok), 0 batches running, 0 queued, complete\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, line, "")


def test_each_change_is_a_line_and_ctrl_c_ends_it_quietly(folder, tmp_path):
    folder.batch(A, launches(0, 1, 2))
    before = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")}
    line = [sys.executable, SCRIPT, "results/laptop", "--every", "0.1"]
    with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        first = running.stdout.readline()
        time.sleep(0.5)  # several refreshes without a change
        assert {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")} == before
        folder.launch(f"{A}-l000-a00", 0, (IDS[0], "ok", 5.0, 50))
        second = running.stdout.readline()
        running.send_signal(signal.SIGINT)
        rest, errors = running.communicate(timeout=20)
    assert [line.split()[1] for line in (first, second)] == ["0", "1"]
    assert (running.returncode, rest.strip(), errors) == (0, "", "")


def test_once_prints_the_view_and_ends(folder, tmp_path, wording):
    pytest.importorskip("rich")
    done = watch("results/laptop", "--once", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    wording.lines(done.stdout, "laptop")


def test_on_a_terminal_the_view_is_redrawn_until_all_is_measured(folder, complete, tmp_path, wording):
    pytest.importorskip("rich")
    status, text = on_terminal("results/laptop", tmp_path)
    assert status == 0
    assert "12 of 12" in text
    wording(text[text.rindex("laptop") :])


def test_ctrl_c_on_a_terminal_leaves_it_in_order(folder, tmp_path):
    pytest.importorskip("rich")
    status, text = on_terminal("results/laptop", tmp_path, stop_at="measurements")
    assert status == 0
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l") >= 0  # the cursor is shown again
    assert "Traceback" not in text


def on_terminal(argument, cwd, stop_at=None) -> tuple[int, str]:
    """Run watch.py on a terminal; interrupt it when it has printed `stop_at`. Returns its status and its output."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    with subprocess.Popen(
        [sys.executable, SCRIPT, argument], cwd=cwd, stdout=theirs, stderr=theirs, env=environment
    ) as running:
        os.close(theirs)
        text, deadline = "", time.monotonic() + 60
        while time.monotonic() < deadline and select.select([ours], [], [], 60)[0]:
            try:
                text += os.read(ours, 4096).decode(errors="replace")
            except OSError:  # closed by the other side
                break
            if stop_at and stop_at in text:
                running.send_signal(signal.SIGINT)
                stop_at = None
    os.close(ours)
    return running.returncode, text


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("results/none", "results/none: does not exist. Run the campaign first, or specify results/<name>."),
        ("results", "results: is not a results folder. Run the campaign first, or specify results/<name>."),
        ("none.yaml", "none.yaml: "),
        ("bad.yaml", "bad.yaml:2: not valid YAML"),
    ],
)
def test_another_path_is_an_error_of_the_user(folder, tmp_path, argument, message):
    (tmp_path / "bad.yaml").write_text("name: [\n")
    done = watch(argument, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("value", ["0", "-1", "nan", "x"])
def test_an_interval_is_a_positive_number(folder, tmp_path, value):
    done = watch("results/laptop", f"--every={value}", cwd=tmp_path)
    assert (done.returncode, "argument --every" in done.stderr) == (2, True)
