"""Each command that page or terminal proposes runs as it is pasted in Regatta's folder."""

import html
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from campaigns import fake_campaign, record_lines, wait_until, write_campaign
from copied_tree import make_tree, rows_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the tree with this environment."""
    tree = make_tree(tmp_path_factory.mktemp("pasted"), "without an example")
    (tree / ".venv").symlink_to(sys.prefix)
    return tree


def paste(tree: Path, command: str) -> subprocess.CompletedProcess:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "MAKE"))}
    return subprocess.run(["sh", "-c", command], cwd=tree, env=environment, capture_output=True, text=True)


def commands_in(text: str) -> set[str]:
    return {found for found in re.findall("`([^`]+)`", text) if found.startswith(("make ", ".venv/", "python"))}


def proposed(results: Path, terminal: str) -> set[str]:
    """Return the commands of the terminal, of the page and of answer.json."""
    page = re.findall("<code>(.*?)</code>", (results / "report.html").read_text())
    steps = json.loads((results / "answer.json").read_text())["lines"][-1]["values"]["steps"]
    return commands_in(" ".join([terminal, *(f"`{html.unescape(code)}`" for code in page), *steps]))


def test_every_proposed_command_runs(tree):
    silent = {"benchmark": "program", "name": "silent", "command": ["true"]}
    silent["read"] = {"time": {"match": r"took (\d+) s", "unit": "s", "better": "smaller"}}
    campaign = fake_campaign({"all_reduce-65536": "raise"}, name="pasted")
    campaign["benchmarks"].append(silent)
    file = write_campaign(tree, campaign, "it's mine.yaml")
    run = f"make campaign {shlex.quote(f'CONFIG={file.name}')}"
    done = paste(tree, run)
    assert done.returncode == 0, done.stdout + done.stderr
    results = tree / "results" / "pasted"
    found = proposed(results, done.stdout + done.stderr)
    assert {shlex.split(command)[1] for command in found} == {"campaign", "try"}
    assert {tuple(shlex.split(command)[2:]) for command in found if "forcerun" in command} == {
        (f"CONFIG={file.name}", "ARGS=--forcerun measure")
    }
    before = len(record_lines(results))
    for command in sorted(found):
        done = paste(tree, command)
        # `make try` shows that nothing is read from the output, which is its answer.
        assert done.returncode == (2 if " try " in command else 0), command + done.stdout + done.stderr
        assert "No such file" not in done.stderr
        assert "unknown" not in done.stderr
    assert len(record_lines(results)) > before  # failures were retried


def test_a_campaign_file_may_have_any_name(tree):
    """Snakemake's log is UTF-8: a name that is not would end in a traceback of logging."""
    name = os.fsdecode(b"\xe9.yaml")
    write_campaign(tree, fake_campaign(name="any-name"), name)
    done = paste(tree, f"make plan CONFIG={shlex.quote(name)}")
    assert done.returncode == 0
    assert "Traceback" not in done.stdout + done.stderr
    assert r"Plan \xe9.yaml" in done.stdout + done.stderr


def test_after_a_stop_the_next_command_is_the_same_one(tree):
    file = write_campaign(tree, fake_campaign(name="stopped", env={"FAKE_CELL_SECONDS": "0.5"}), "stopped.yaml")
    command = f"make campaign CONFIG={file.name}"
    started = subprocess.Popen(
        ["sh", "-c", f"exec {command}"],
        cwd=tree,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    results = tree / "results" / "stopped"
    wait_until(lambda: record_lines(results))
    os.killpg(started.pid, signal.SIGINT)
    text, _ = started.communicate()
    [line] = [line for line in text.splitlines() if line.strip().startswith("Next: ")]
    assert commands_in(line) == {command}
    assert re.search(r"\(\d+ launch(es)?", line)
    assert not re.search("RuleException|CalledProcessError|Error in rule|Traceback", text)
    assert paste(tree, command).returncode == 0
    assert {row["status"] for row in rows_of(results / "measurements.csv") if row["repeat"]} == {"ok"}
