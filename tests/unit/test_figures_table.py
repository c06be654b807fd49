"""The table of `make bench`: what is met, what was measured before, and what is refused."""

import subprocess
import sys

import pytest

from regatta.core.files import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import common
import run_all
from common import Figure

DOCUMENT = f"# Title\n\n{run_all.BEGIN}old\n{run_all.END}\nThe rest.\n"


@pytest.mark.parametrize(
    ("value", "goal", "is_minimum", "is_met"),
    [(3.0, 3.0, False, True), (3.1, 3.0, False, False), (0.85, 0.85, True, True), (0.8, 0.85, True, False)],
)
def test_a_goal_is_an_upper_or_lower_bound(value, goal, is_minimum, is_met):
    assert Figure("x", value, "s", goal, is_minimum).is_met is is_met


def test_what_was_not_measured_is_neither_met_nor_missed():
    figure = Figure("x", None, "s", 1.0)
    assert figure.is_met is None
    assert run_all.rows_of([figure], {})["x"][2:5] == ["not measured", "", "unknown"]


def test_the_next_run_shows_what_this_one_wrote_as_before():
    first = run_all.rows_of([Figure("start, 24 cells", 12.34, "s", 10), Figure("share", 0.9, "", 0.85, True)], {})
    written = run_all.with_table(DOCUMENT, run_all.table(first))
    assert written.startswith("# Title")
    assert written.endswith("The rest.\n")
    assert "old" not in written
    assert run_all.previous_rows(written) == first
    assert [row[2] for row in first.values()] == ["12.3 s", "0.900"]
    again = run_all.rows_of([Figure("start, 24 cells", 9.0, "s", 10)], first)
    assert again["start, 24 cells"][2:5] == ["9.00 s", "12.3 s", "yes"]


@pytest.mark.parametrize(("programs", "kept"), [(["planning.py"], ["start", "share"]), ([], ["share"])])
def test_rows_of_programs_that_were_not_run_stay(tmp_path, monkeypatch, programs, kept):
    document = tmp_path / "figures.md"
    before = run_all.rows_of([Figure("start", 12.0, "s", 10), Figure("share", 0.9, "", 0.85, True)], {})
    document.write_text(run_all.with_table(DOCUMENT, run_all.table(before)))
    monkeypatch.setattr(run_all, "DOCUMENT", document)
    monkeypatch.setattr(run_all.os, "getloadavg", lambda: (0, 0, 0))
    monkeypatch.setattr(run_all, "machine_cpu_seconds", lambda: 0.0)
    monkeypatch.setattr(run_all, "run_programs", lambda names: ([Figure("share", 0.8, "", 0.85, True)], []))
    monkeypatch.setattr(sys, "argv", ["run_all.py", "--write", *programs])
    with pytest.raises(SystemExit):
        run_all.main()
    written = run_all.previous_rows(document.read_text())
    assert list(written) == kept
    assert written["share"][2:5] == ["0.800", "0.900", "no"]


def test_a_document_without_the_marks_is_not_changed():
    with pytest.raises(SystemExit, match="lacks the lines"):
        run_all.with_table("# Title\n", "table")


def test_figures_of_programs_are_collected(tmp_path, monkeypatch):
    monkeypatch.setenv(common.COLLECTED, str(tmp_path / "figures.jsonl"))
    common.report(Figure("a", 1.0, "s", 2.0))
    common.report(Figure("b", None, "MB", 2.0))
    assert (tmp_path / "figures.jsonl").read_text().count("\n") == 2


def test_a_busy_machine_writes_nothing(monkeypatch, capsys):
    monkeypatch.setattr(run_all.os, "getloadavg", lambda: (0.51 * run_all.os.cpu_count(), 0, 0))
    monkeypatch.setattr(run_all, "run_programs", lambda names: pytest.fail("measured"))
    monkeypatch.setattr(sys, "argv", ["run_all.py", "--write"])
    with pytest.raises(SystemExit, match=r"0\.51 per core"):
        run_all.main()


def test_a_program_that_does_not_exist_is_named():
    line = [sys.executable, str(ROOT / "benchmarks/run_all.py"), "plan.py"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 2
    assert "'plan.py'. Available:" in done.stderr
