"""Bad files among good ones: the good ones are imported, and the others are listed with their reasons."""

import re

import pytest
from formats_files import FILES, content_of, run_script, text_of

from regatta.compare.campaigns import read_campaign

OSU, NCCL = "osu-allreduce.txt", "nccl-13-columns.txt"


def run(folder, *words):
    shape = ("--nodes", 2, "--gpus-per-node", 4)
    done = run_script("import_results.py", *words, *shape, "--campaign", "c", cwd=folder)
    assert "Traceback" not in done.stderr
    return done


def cells(folder) -> int:
    return len(read_campaign(folder / "results" / "c").measurements)


def test_a_hundred_good_files_come_in_beside_bad_ones(tmp_path, wording):
    """100 good files of 2 cells, each a launch; 40 unknown ones, 10 truncated ones and two others."""
    head = "\n".join(text_of(OSU).split("\n")[2:7])
    for number in range(100):
        (tmp_path / f"good-{number:03d}.txt").write_text(f"{head}\n# {number}\n")
    for number in range(40):
        (tmp_path / f"unknown-{number:02d}.txt").write_text("hello\n")
    for number in range(10):
        (tmp_path / f"cut-{number:02d}.txt").write_text(f"{head}\n16     6.84\n# {number}\n")
    (tmp_path / "binary.txt").write_bytes(b"\0")
    names = sorted(path.name for path in tmp_path.glob("*.txt"))
    done = run(tmp_path, *names, "none.txt")
    assert done.returncode == 3
    assert cells(tmp_path) == 2 * 100
    assert len(done.stdout.splitlines()) == 100 + 1  # and how to make the report
    wording(done.stderr)
    before = content_of(tmp_path / "results" / "c")
    again = run(tmp_path, *names)
    assert (again.returncode, again.stdout.count("already")) == (3, 100)
    assert content_of(tmp_path / "results" / "c") == before


def test_many_different_reasons_are_a_short_list(tmp_path):
    for number in range(100):
        (tmp_path / f"{number:03d}.txt").write_text(f"hello {number} {'x' * 5000}\n")
    (tmp_path / "good.txt").write_text(text_of(OSU))
    done = run(tmp_path, *sorted(path.name for path in tmp_path.glob("*.txt")))
    assert done.returncode == 3
    lines = done.stderr.splitlines()
    assert len(lines) == 22
    assert max(map(len, lines)) < 400
    assert [re.match(r"\d+", line)[0] for line in (lines[0], lines[19], lines[21])] == ["000", "019", "100"]


def test_without_a_good_file_nothing_is_written(tmp_path, wording):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("hello\n")
    done = run(tmp_path, "a.txt", "b.txt", "none.txt")
    assert (done.returncode, done.stdout) == (2, "")
    assert not (tmp_path / "results").exists()
    wording(done.stderr)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ("cpu.csv", text_of("times.csv").replace(",cuda,", ",cpu,")),
        ("blocking.txt", text_of("nccl-13-columns.txt").replace("# nThread", "# Blocking Enabled\n# nThread")),
        ("twice.txt", text_of(OSU) + text_of(OSU).replace("Allreduce", "Unknown")),
        ("stacks.json", text_of("exported-ddp.json")),
    ],
)
def test_a_file_that_contradicts_the_others_is_refused_alone(tmp_path, bad, text):
    """The first file's cells and repeats are as in an import without the bad one."""
    (tmp_path / bad).write_text(text)
    (tmp_path / "later.txt").write_text(text_of("nccl-12-columns.txt"))
    names = (FILES / NCCL, bad, "later.txt")
    words = ("import_results.py", "--campaign")
    done = run_script(*words, "c", *names, cwd=tmp_path)
    assert (done.returncode, bad in done.stderr, "later.txt" in done.stderr) == (3, True, False), done.stderr
    assert run_script(*words, "d", *names[::2], cwd=tmp_path).returncode == 0
    found, good = (read_campaign(tmp_path / "results" / name).measurements for name in "cd")
    assert (*found["cell"], *found["p50_s"]) == (*good["cell"], *good["p50_s"])


def test_incomplete_files_come_in_beside_those_that_cannot_be_read(tmp_path):
    (tmp_path / "cut.txt").write_text(text_of(NCCL).partition("# Out of bounds")[0])
    (tmp_path / "unknown.txt").write_text("hello\n")
    words = ("import_results.py", "cut.txt", "unknown.txt", FILES / "nccl-12-columns.txt", "--campaign")
    done = run_script(*words, "strict", cwd=tmp_path)
    assert (done.returncode, "cut.txt:" in done.stderr, "--incomplete" in done.stderr) == (3, True, True)
    assert "Nothing" not in done.stderr
    done = run_script(*words, "c", "--incomplete", cwd=tmp_path)
    assert (done.returncode, "cut.txt" in done.stderr, "unknown.txt" in done.stderr) == (3, False, True)
    assert cells(tmp_path) == 31 + 7
