"""The results folder of an import: complete with its tables also after a kill, and within limits."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from formats_files import FILES, analysed, content_of, run_import, text_of, write_analysed

import warm_start
from regatta.compare.campaigns import read_campaign
from regatta.core.errors import UserError
from regatta.formats import importer
from regatta.store.csv_files import COLLECTED
from regatta.topics.catalog import TABLES

NCCL, OTHER = "nccl-13-columns.txt", "nccl-12-columns.txt"  # of different operations


def start(script, *words, **options):
    done = warm_start.script(script, *words, **options)
    assert "Traceback" not in done.stderr
    return done


# Tables.


def test_an_import_is_compared_listed_and_reported(tmp_path):
    for name in ("a", "b"):
        done = start("import_results.py", FILES / NCCL, "--campaign", name, "--results", "results", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    folder = tmp_path / "results" / "a"
    before = content_of(folder)
    done = start("compare.py", "results/a", "results/b", "--csv", "out.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.csv").read_text().count("\n") == 1 + 31
    assert start("index_results.py", cwd=tmp_path).returncode == 0
    assert ">a<" in (tmp_path / "results" / "index.html").read_text()
    done = start("export_figures.py", "--for", "paper", folder, cwd=tmp_path)
    assert (done.returncode, f"make report CONFIG={folder}" in done.stderr) == (2, True), done.stderr
    assert start("rebuild_report.py", folder).returncode == 0
    after = content_of(folder)
    assert {name: after[name] for name in before} == before
    assert {f"tables/{name}.csv" for name in TABLES} | {f"{name}.csv" for name in COLLECTED} <= after.keys()
    assert after["measurements.csv"].count(b"\n") == 1 + 31


def test_a_second_import_leaves_no_tables_of_the_first(tmp_path):
    run_import(tmp_path / "c", NCCL)
    write_analysed(tmp_path / "c")
    run_import(tmp_path / "c", OTHER)
    assert not [*(tmp_path / "c").glob("tables/*.csv"), *(tmp_path / "c").glob("measurements.csv")]
    results = read_campaign(tmp_path / "c")
    assert len(results.measurements) == len(analysed(tmp_path / "c")[0]["cells"]) == 31 + 7


# Killed.


def in_child(function, prepare=None):
    """Call a function in a fork, and return the signal that ended it, 0 if none did."""
    if (child := os.fork()) == 0:
        try:
            if prepare:
                prepare()
            function()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link")


def kill_at(folder, number, counts=None):
    """Kill this process at a change of the folder, counted from 0. Opening a file to write is one, too.

    counts: a file that gets a byte for each change.
    """
    num = -1

    def hook(event, words):
        nonlocal num
        is_change = event in CHANGES or (event == "open" and isinstance(words[1], str) and words[1][0] in "wx")
        if is_change and str(words[0]).startswith(str(folder)):
            num += 1
            if counts:
                os.write(counts.fileno(), b".")
            if num == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def moments(folder, do, counts):
    """Return the moments to kill `do`: at each of its changes."""
    with counts.open("wb", buffering=0) as file:
        assert in_child(do, lambda: kill_at(folder, None, file)) == 0
    num = counts.stat().st_size
    assert num > 10
    return range(num)


def test_a_killed_import_leaves_no_results_folder_or_a_complete_one(tmp_path):
    run_import(tmp_path / "whole" / "c", NCCL)
    whole, folder = content_of(tmp_path / "whole" / "c"), tmp_path / "results" / "c"

    def do():
        run_import(folder, NCCL)

    numbers = moments(folder.parent, do, tmp_path / "counts")
    shutil.rmtree(folder)
    for number in numbers:
        assert in_child(do, lambda: kill_at(folder.parent, number)) == signal.SIGKILL  # noqa: B023
        assert not folder.exists()
    do()
    assert content_of(folder) == whole
    assert sorted(os.listdir(folder.parent)) == [".c.import.lock", "c"]


def test_what_a_killed_import_leaves_is_gone_after_the_next_import(tmp_path):
    folder = tmp_path / "results" / "c"
    for number in (0, 6):
        assert in_child(lambda: run_import(folder, NCCL), lambda: kill_at(folder.parent, number)) == signal.SIGKILL  # noqa: B023
    run_import(folder, OTHER)
    run_import(tmp_path / "whole" / "c", OTHER)
    assert content_of(folder) == content_of(tmp_path / "whole" / "c")
    assert sorted(os.listdir(folder.parent)) == [".c.import.lock", "c"]


@pytest.mark.slow
def test_an_import_killed_in_an_existing_folder_leaves_it_readable_and_any_next_import_cleans_up(tmp_path):
    folder, third = tmp_path / "results" / "c", "nccl-threads.txt"
    wholes = []
    for files in ([NCCL], [NCCL, OTHER], [NCCL, third], [NCCL, OTHER, third]):
        target = tmp_path / "-".join(files) / "c"
        for file in files:
            run_import(target, file)
        wholes.append(content_of(target))
    num_cells = [len(analysed(tmp_path / name / "c")[0]["cells"]) for name in (NCCL, f"{NCCL}-{OTHER}")]

    def begin():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / NCCL / "c", folder)

    def do():
        run_import(folder, OTHER)

    begin()
    seen = set()
    for number in moments(folder, do, tmp_path / "counts"):
        begin()
        assert in_child(do, lambda: kill_at(folder, number)) == signal.SIGKILL  # noqa: B023
        results = read_campaign(folder)  # exactly one campaign
        assert len(results.campaign.cells) in num_cells
        run_import(folder, third)
        seen.add(wholes.index(content_of(folder)))
    assert seen == {2, 3}


# Limits.

HEAD, *ROWS = text_of("times.csv").splitlines(keepends=True)


# A new program inherits the peak of the process that starts it, here a small one instead of pytest's.
STARTER = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(status, usage.ru_utime + usage.ru_stime, 1024 * usage.ru_maxrss)
"""


def measured(*words, cwd):
    """Run import_results.py and return exit status, errors, seconds of CPU time and bytes of memory."""
    script = importer.__file__.partition("regatta")[0] + "import_results.py"
    command = [sys.executable, "-c", STARTER, sys.executable, script, *map(str, words)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    status, cpu_s, num_bytes = done.stdout.split()
    return int(status), done.stderr, float(cpu_s), int(num_bytes)


@pytest.mark.parametrize(
    ("content", "num_bytes", "limit"),
    [
        (text_of(NCCL), 10**9, "1,000,000,000 bytes; the limit is 32,000,000"),
        (text_of(NCCL) + "\n" * 300_000, None, "lines; the limit is 300,000"),
        ("\n" * 300_000, None, "the file is empty"),
        ("", 32_000_000, "large:1: a null byte"),
        (HEAD + ROWS[0] * 50_001, None, "more than 50,000 rows"),
        ("[" + "[]," * 10**7 + "[]]", None, "unknown JSON"),
    ],
)
def test_a_file_beyond_the_limits_is_one_message_within_seconds_and_a_gigabyte(tmp_path, content, num_bytes, limit):
    path = tmp_path / "large"
    path.write_text(content)
    if num_bytes:
        os.truncate(path, num_bytes)
    status, errors, cpu_s, memory_bytes = measured(path, "--campaign", "c", cwd=tmp_path)
    assert (status, errors.count("\n"), limit in errors) == (2, 1, True), errors
    assert cpu_s < 20  # 1 to 6 s on an idle machine
    assert memory_bytes < 10**9
    assert not (tmp_path / "results").exists()


def test_5001_launches_are_imported_within_seconds_and_half_a_gigabyte(tmp_path):
    path = tmp_path / "many.csv"
    path.write_text(HEAD + ROWS[0] * 5_001)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else tmp_path) as folder:
        words = (path, "--campaign", "c", "--results", folder)
        status, errors, cpu_s, memory_bytes = measured(*words, cwd=tmp_path)
        num_launches = len(list(Path(folder, "c", "launches").iterdir()))
    assert (status, errors, num_launches) == (0, "", 5_001)
    assert cpu_s < 20  # 2 s on an idle machine
    assert memory_bytes < 5 * 10**8


def test_two_files_have_one_limit_of_results(tmp_path, monkeypatch):
    monkeypatch.setattr(importer, "MOST_RESULTS", 31 + len(text_of("times.csv").splitlines()) - 2)
    outcome = run_import(tmp_path / "c", NCCL, "times.csv")
    assert (len(outcome.written), [*outcome.refused]) == (1, [str(FILES / "times.csv")])


def test_launch_files_are_written_several_at_a_time(tmp_path, monkeypatch):
    """Each waits for the disk: one at a time, 20,000 took a minute."""
    running, most, fsync = [], [], os.fsync

    def wait(file):
        running.append(file)
        time.sleep(0.01)
        most.append(len(running))
        running.pop()
        fsync(file)

    monkeypatch.setattr(os, "fsync", wait)
    (tmp_path / "many.csv").write_text(HEAD + ROWS[0] * 50)
    run_import(tmp_path / "c", tmp_path / "many.csv")
    assert max(most) > 4


def test_json_lines_and_log_lines_have_their_number_in_messages(tmp_path):
    path = tmp_path / "x"
    path.write_text('{"node": "a", "b/c": 1}\n\n{"node": }\n')
    with pytest.raises(UserError, match=r"x:3: .* column 10"):
        run_import(tmp_path / "c", path)
    path.write_text('a\nb\n:::MLLOG {"key": }\n')
    with pytest.raises(UserError, match=r"x:3: invalid JSON"):
        run_import(tmp_path / "c", path)
