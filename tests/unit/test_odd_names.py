"""Unexpected names and files in a results folder: no traceback, no hang, and a note in the report."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from formats_files import FILES, run_import
from synthetic import LAPTOP, laptop_campaign, write_results
from typed import collect

import warm_start
from regatta.run.preflight import latest_preflight
from regatta.store.frozen_files import read_frozen
from regatta.store.history import read_history
from regatta.store.launch_files import read_launch_file, read_one_line

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"
NO_UTF8 = os.fsdecode(b"x\xe9y")


def start(script, *arguments, cwd=None):
    return warm_start.script(script, *arguments, cwd=cwd, text=False)


@pytest.fixture
def laptop(tmp_path):
    write_results(tmp_path / "laptop", laptop_campaign(), LAPTOP)
    return tmp_path / "laptop"


def put_oddities(folder):
    """Put into a folder what looks like a launch file by its name. Returns the names and what is wrong with each."""
    os.mkfifo(folder / "a-pipe.jsonl")
    (folder / "b-folder.jsonl").mkdir()
    (folder / "c-dangling.jsonl").symlink_to("nowhere")
    (folder / "d-device.jsonl").symlink_to("/dev/zero")
    (folder / "e-loop.jsonl").symlink_to("e-loop.jsonl")
    shutil.copy(next(folder.glob("n*.jsonl")), folder / f"f-{NO_UTF8}.jsonl")
    return [
        "a-pipe.jsonl: cannot be read (Is a pipe or device); skipped",
        "b-folder.jsonl: cannot be read (Is a directory); skipped",
        "c-dangling.jsonl: cannot be read (No such file or directory); skipped",
        "d-device.jsonl: cannot be read (Is a pipe or device); skipped",
        "e-loop.jsonl: cannot be read (Too many levels of symbolic links); skipped",
        "f-x\N{REPLACEMENT CHARACTER}y.jsonl: its name is not UTF-8; skipped",
    ]


def test_what_is_no_file_among_the_launch_files_is_set_aside_and_told(laptop):
    campaign = read_frozen(next(laptop.glob("campaign.*.json")))
    before, _ = collect(campaign, laptop / "launches")
    told = put_oddities(laptop / "launches")
    after, problems = collect(campaign, laptop / "launches")
    assert problems["corrupt"] == told
    assert all(after[name].equals(before[name]) for name in before)
    assert read_history(laptop).slots
    for path in (laptop / "launches").glob("[a-e]-*"):
        assert read_one_line(path, 1) is None
        assert read_launch_file(path).header is None


def test_pipes_and_dangling_links_in_place_of_other_files_are_passed_over(laptop):
    campaign = read_frozen(next(laptop.glob("campaign.*.json")))
    before, _ = collect(campaign, laptop / "launches")
    for batch, make in (("a", os.mkfifo), ("b", os.mkdir), ("c", lambda path: os.symlink("nowhere", path))):
        (laptop / "batches" / batch).mkdir(parents=True)
        for name in ("batch.json", "manifest.json", "jobs.jsonl"):
            make(laptop / "batches" / batch / name)
    (laptop / "preflight").mkdir()
    (laptop / "preflight" / "preflight-0.json").symlink_to("nowhere")
    after, _ = collect(campaign, laptop / "launches")
    assert all(after[name].equals(before[name]) for name in before)
    told = [problem.split(":")[0][-15:] for problem in read_history(laptop).problems]
    assert told == ["a/manifest.json", "b/manifest.json"]
    assert latest_preflight(laptop) == []


@pytest.mark.slow
def test_a_report_is_built_in_a_folder_of_odd_names_and_files(laptop, tmp_path):
    told = put_oddities(laptop / "launches")
    name = f"-dash-{NO_UTF8}"
    laptop = laptop.rename(tmp_path / name)
    done = start("rebuild_report.py", f"./{name}", cwd=tmp_path)
    assert done.returncode == 0
    assert [line.partition(b": ")[2].decode() for line in done.stderr.splitlines()] == told
    assert json.loads((laptop / "problems.json").read_text(encoding="utf-8"))["corrupt"] == told
    assert "a-pipe.jsonl" in (laptop / "report.html").read_text(encoding="utf-8")
    done = start("compare.py", f"./{name}", f"./{name}", "--html", f"./-{NO_UTF8}.html", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / f"-{NO_UTF8}.html").exists()
    done = start("export_results.py", f"./{name}", "--format", "csv", "--out", f"./-{NO_UTF8}.csv", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_file_of_an_odd_name_is_imported_and_compared(tmp_path):
    for name in ("-times.csv", f"{NO_UTF8}.csv"):
        shutil.copy(FILES / "times.csv", tmp_path / name)
        done = start("import_results.py", f"./{name}", "--campaign", "c", "--results", "r", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, b"")
        done = start("compare.py", f"./{name}", f"./{name}", "--csv", "out.csv", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, b"")
    assert "x\N{REPLACEMENT CHARACTER}y.csv" in (tmp_path / "out.csv").read_text(encoding="utf-8")
    done = start("import_results.py", f"./{NO_UTF8}.txt", "--campaign", "c", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith(b".txt: cannot be read (No such file or directory). Nothing was imported.\n")


def test_a_pipe_among_imported_launch_files_is_told_and_not_waited_for(tmp_path):
    from regatta.core.errors import UserError

    run_import(tmp_path / "c", "times.csv")
    os.mkfifo(tmp_path / "c" / "launches" / "x.jsonl")
    with pytest.raises(UserError, match=r"launches/x\.jsonl: "):
        run_import(tmp_path / "c", "times.csv")


def test_a_python_without_the_libraries_is_told_to_use_the_environment(tmp_path):
    words = [sys.executable, "-S", str(SCRIPTS / "import_results.py"), "--help"]  # -S: no site-packages
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "Activate the environment" in done.stderr
    assert "Traceback" not in done.stderr
