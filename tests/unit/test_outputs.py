"""Output paths of the scripts: links, pipes and devices that must not be replaced, and readers that close early."""

import errno
import functools
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from comparison_results import cell_of, write_folder
from formats_files import FILES, write_analysed
from synthetic import LAPTOP, laptop_campaign, write_results

import warm_start
from regatta.core.errors import describe_os_error
from regatta.store.launch_files import write_json, write_text

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"
NULL = os.makedev(1, 3)


def start(script, *arguments, **more):
    return warm_start.script(script, *arguments, **more)


@pytest.fixture(scope="module")
def laptop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "laptop"
    write_results(folder, laptop_campaign(), LAPTOP)
    return write_analysed(folder)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two results folders of which the second is slower."""
    folder = tmp_path_factory.mktemp("pair")
    return [
        write_folder(folder / name, [(cell_of(), [seconds, seconds * 1.01, seconds * 1.02])])
        for name, seconds in (("before", 1.0), ("after", 2.0))
    ]


# --- Links, pipes, devices


def test_of_a_link_the_file_behind_it_is_replaced_and_the_link_stays(tmp_path):
    target, link = tmp_path / "real" / "page.html", tmp_path / "page.html"
    target.parent.mkdir()
    target.write_text("old")
    kept = target.parent / "same.html"
    os.link(target, kept)
    link.symlink_to("real/page.html")
    write_text(link, "new")
    assert link.is_symlink()
    assert (target.read_text(), kept.read_text()) == ("new", "old")  # another inode: it was replaced, not overwritten
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["page.html", "page.html", "real", "same.html"]


def test_behind_a_dangling_link_the_file_is_made(tmp_path):
    (tmp_path / "link").symlink_to("file")
    write_json(tmp_path / "link", {"a": 1})
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "file").read_text()) == {"a": 1}


def test_a_device_is_written_to_and_stays_a_device(tmp_path):
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, NULL)
        device.write_text("")
    except PermissionError:
        pytest.skip("only root may make a device")
    (tmp_path / "link").symlink_to(device)
    for path in (device, tmp_path / "link"):
        write_text(path, "gone")
    assert stat.S_ISCHR(device.stat().st_mode)
    assert device.stat().st_rdev == NULL
    assert (tmp_path / "link").is_symlink()


def test_a_pipe_gets_the_text_and_stays_a_pipe(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_text(pipe, "to the reader")
    reader.join(60)
    assert read == ["to the reader"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_device_that_is_full_is_named_in_the_error():
    with pytest.raises(OSError, match="No space left") as error:
        write_text(Path("/dev/full"), "x")
    assert error.value.filename == "/dev/full"


def test_a_folder_in_place_of_the_file_is_named_and_left_alone(tmp_path):
    (tmp_path / "page.html").mkdir()
    with pytest.raises(IsADirectoryError) as error:
        write_text(tmp_path / "page.html", "x")
    assert error.value.filename == str(tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == [tmp_path / "page.html"]


# --- Standard output


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_an_export_to_standard_output_is_nothing_but_the_export(laptop, tmp_path, kind):
    more = ("--where", "bucket_cap_mb=25", "--where", "stack=host")
    words = (laptop, "--format", "pytorch-json", "--out", "/dev/stdout", *more)
    if kind == "pipe":
        text = start("export_results.py", *words).stdout
    else:
        with (tmp_path / "out.json").open("w") as out:
            start("export_results.py", *words, stdout=out)
        text = (tmp_path / "out.json").read_text()
    assert len(json.loads(text)["benchmark_results"]) == 2


def test_a_table_on_standard_output_stands_whole_in_front_of_the_text(pair, tmp_path):
    with (tmp_path / "out.txt").open("w") as out:
        done = start("compare.py", *pair, "--csv", "/dev/stdout", stdout=out)
    assert done.returncode == 1, done.stderr
    text = (tmp_path / "out.txt").read_text()
    table, _, words = text.partition("base: ")
    assert table.startswith("cell,reference,axis,")
    assert table.count("\n") == 2
    assert words.rstrip().endswith("slower")


def without_a_reader():
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w")


@pytest.mark.parametrize("what", ["compare", "export", "plan", "import"])
def test_a_reader_that_leaves_ends_a_script_without_a_word(pair, laptop, tmp_path, what):
    campaign = SCRIPTS.parents[1] / "config" / "config.yaml"
    script, *words = {
        "compare": ("compare.py", *pair, "--html", tmp_path / "page.html"),
        "export": ("export_results.py", laptop, "--format", "csv", "--out", "/dev/stdout"),
        "plan": ("plan.py", "--campaign", campaign, "--results", tmp_path),
        "import": ("import_results.py", FILES / "times.csv", "--campaign", "c", "--results", tmp_path),
    }[what]
    with without_a_reader() as out:
        done = start(script, *words, stdout=out, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (141, "")
    if what == "compare":
        assert (tmp_path / "page.html").exists(), "what was asked for beside the text is written"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_behind_standard_output_is_one_message(pair):
    with open("/dev/full", "w") as out:
        done = start("compare.py", *pair, stdout=out)
    message = "standard output or the results folder: no space left on the disk. Free some space and run the same command again.\n"
    assert (done.returncode, done.stderr) == (2, message)


# --- A full disk


def of_at_most(num_bytes):
    return functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (num_bytes, num_bytes))


@pytest.mark.parametrize("num_bytes", [0, 100, 3000])
def test_an_import_that_the_disk_cannot_hold_is_one_message_and_leaves_nothing(tmp_path, num_bytes):
    words = (FILES / "ddp-2x4-gh200.txt", "--campaign", "c", "--results", tmp_path)
    done = start("import_results.py", *words, prepare=of_at_most(num_bytes))
    assert (done.returncode, done.stdout) == (2, "")
    assert describe_os_error(OSError(errno.ENOSPC, "")).partition(": ")[2] in done.stderr
    assert done.stderr.startswith(str(tmp_path))
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"] == []
    assert start("import_results.py", *words).returncode == 0


@pytest.mark.parametrize("option", ["--html", "--csv"])
def test_a_comparison_that_the_disk_cannot_hold_is_one_message_and_no_regression(pair, tmp_path, option):
    words = (*pair, option, tmp_path / "out")
    done = start("compare.py", *words, prepare=of_at_most(100))
    message = f"{tmp_path}/out: no space left on the disk. Free some space and run the same command again.\n"
    assert (done.returncode, done.stderr) == (2, message)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_a_script_without_a_traceback():
    program = "import signal; from regatta.core.errors import run_script; run_script(lambda: signal.raise_signal(2))"
    environment = {"PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")
