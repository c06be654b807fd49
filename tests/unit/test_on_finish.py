"""The command at the end of a run: what it receives, and that nothing of it ends the run."""

import os
import sys

import pytest

from regatta.run import on_finish
from regatta.run.on_finish import run_on_finish

SHOW = "import os, sys; print(*sys.argv[1:], *(os.environ[f'REGATTA_{n}'] for n in ('CAMPAIGN', 'STATUS', 'REPORT')), sep='|')"


@pytest.mark.parametrize("has_report", [True, False])
def test_the_command_receives_campaign_status_and_report_without_a_shell(tmp_path, capfd, has_report):
    if has_report:
        (tmp_path / "report.html").touch()
    run_on_finish([sys.executable, "-c", SHOW, "$HOME;x", "a b"], "night", 3, tmp_path)
    report = str(tmp_path / "report.html") if has_report else ""
    assert capfd.readouterr().out == f"$HOME;x|a b|night|3|{report}\n"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["/nonexistent/program"], "could not be started"),
        (
            [sys.executable, "-c", "import os, signal; os.kill(os.getppid(), signal.SIGINT); signal.pause()"],
            "was interrupted",
        ),
        ([sys.executable, "-c", "raise SystemExit(7)"], "exited with status 7"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "was killed after 0.5 s"),
    ],
)
def test_a_command_that_fails_is_named_and_ends_nothing(tmp_path, capfd, monkeypatch, words, part):
    monkeypatch.setattr(on_finish, "LIMIT_S", 0.5)
    run_on_finish(words, "night", 0, tmp_path)
    assert f"on_finish: {words[0]} {part}" in capfd.readouterr().err


def test_control_characters_of_a_command_do_not_reach_the_terminal(tmp_path, capfd):
    run_on_finish(["/no/\x1b]0;x\a\nprogram"], "night", 0, tmp_path)
    printed = capfd.readouterr().err
    assert printed.count("\n") == 1
    assert not {"\x1b", "\a"} & {*printed}


def test_no_command_does_nothing(tmp_path, capfd):
    before = dict(os.environ)
    run_on_finish([], "night", 0, tmp_path)
    assert (capfd.readouterr(), dict(os.environ)) == (("", ""), before)
