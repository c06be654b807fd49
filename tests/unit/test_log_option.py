"""--log of the scripts that the rules call: a copy of the output, which still appears on the terminal in full."""

import subprocess
import sys
from pathlib import Path

import pytest

from regatta.core.errors import script_parser

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"
OF_RULES = ["plan", "freeze", "preflight", "measure", "collect", "analyse", "report", "gate"]


@pytest.fixture(autouse=True)
def streams(monkeypatch):
    """Give the process its streams back after the test."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))


def use(path: Path) -> None:
    parser = script_parser("", has_log=True)
    parser.parse_args(["--log", str(path)])


def test_both_streams_are_copied_and_still_reach_the_terminal(tmp_path, capsys):
    path = tmp_path / "logs" / "x.log"
    use(path)
    print("output")
    print("error", file=sys.stderr)
    assert path.read_text() == "output\nerror\n"
    assert capsys.readouterr() == ("output\n", "error\n")


def test_a_log_holds_the_latest_run_only(tmp_path):
    (tmp_path / "x.log").write_text("first\n")
    use(tmp_path / "x.log")
    print("second")
    assert (tmp_path / "x.log").read_text() == "second\n"


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path, capsys):
    (tmp_path / "file").touch()
    use(tmp_path / "file" / "x.log")
    print("goes on")
    out, err = capsys.readouterr()
    assert out == "goes on\n"
    assert err.startswith(f"{tmp_path}/file/x.log: ")


def test_a_full_disk_stops_nothing(capsys):
    use(Path("/dev/full"))
    print("goes on")
    assert capsys.readouterr().out == "goes on\n"


def test_a_closed_standard_output_stops_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    use(tmp_path / "x.log")
    print("only logged", flush=True)
    assert (tmp_path / "x.log").read_text() == "only logged\n"


def test_an_error_that_ends_a_script_is_logged(tmp_path):
    log, missing = tmp_path / "x.log", tmp_path / "missing.yaml"
    line = [sys.executable, str(SCRIPTS / "plan.py"), "--log", str(log), "--campaign", str(missing)]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert str(missing) in done.stderr
    assert log.read_text() == done.stderr


@pytest.mark.parametrize("name", OF_RULES)
def test_each_script_of_a_rule_has_the_option(name):
    assert "has_log=True" in (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
