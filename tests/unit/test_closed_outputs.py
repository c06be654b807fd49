"""Every command with an output that is closed, no longer read, or full: a documented exit status, and no traceback."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"
ALL = sorted(path.name for path in SCRIPTS.glob("*.py"))
HELP, USAGE = ["--help"], ["--no-such-option"]
CLOSED_PIPE = 128 + signal.SIGPIPE
FULL = "/dev/full"

pytestmark = pytest.mark.skipif(not os.path.exists(FULL), reason="this system has no /dev/full")


def broken_pipe() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def run(script: str, words: list[str], kind: str, streams: tuple[int, ...]) -> tuple[int, str]:
    """Return the exit status of a script whose `streams` (1: output, 2: errors) are broken, and what the other has."""
    reading, writing = os.pipe()
    broken = None if kind == "closed" else broken_pipe() if kind == "pipe" else os.open(FULL, os.O_WRONLY)
    used = {number: broken if number in streams else writing for number in (1, 2)}

    def close() -> None:
        for number in streams:
            os.close(number)

    pipes = {"stdout": used[1], "stderr": used[2], "preexec_fn": close if kind == "closed" else None}
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    line = [sys.executable, SCRIPTS / script, *words]
    process = subprocess.Popen(line, stdin=subprocess.DEVNULL, env=environment, **pipes)
    for number in {broken, writing} - {None}:
        os.close(number)
    with open(reading) as other:
        text = other.read()
    return process.wait(60), text


@pytest.mark.parametrize("script", ALL)
def test_each_script_ends_with_a_documented_status(script):
    status, text = run(script, HELP, "full", (1,))
    assert (status, text.count("\n"), "no space left" in text) == (2, 1, True), text
    assert run(script, USAGE, "closed", (1, 2))[0] == 2


@pytest.mark.parametrize("script", ["collect.py", "compare.py", "run_campaign.py"])
def test_each_way_to_lose_an_output_has_its_status(script):
    assert run(script, HELP, "pipe", (1,)) == (CLOSED_PIPE, "")
    assert run(script, HELP, "closed", (1, 2))[0] == 0
    assert run(script, USAGE, "pipe", (2,)) == (2, "")
    assert run(script, USAGE, "full", (1, 2))[0] == 2
    status, text = run(script, USAGE, "closed", (1,))
    assert (status, text != "", "Traceback" in text) == (2, True, False), text
