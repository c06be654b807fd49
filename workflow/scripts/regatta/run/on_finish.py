"""The command that a campaign runs when it ends: on_finish of the campaign file."""

import os
import subprocess
import sys
from pathlib import Path

LIMIT_S = 60  # a command that waits must not keep the run from ending


def run_on_finish(words: list[str], name: str, status: int, results: Path) -> None:
    """Run a command without a shell, with the outcome in REGATTA_* variables. Its failure is printed, nothing more."""
    if not words:
        return
    report = results / "report.html"
    outcome = {
        "REGATTA_CAMPAIGN": name,
        "REGATTA_STATUS": str(status),
        "REGATTA_REPORT": str(report.resolve()) if report.exists() else "",
    }
    try:
        done = subprocess.run(words, env=os.environ | outcome, stdin=subprocess.DEVNULL, timeout=LIMIT_S)
        problem = f"ended with exit status {done.returncode}" if done.returncode else ""
    except subprocess.TimeoutExpired:
        problem = f"was stopped after {LIMIT_S} s"
    except OSError as error:
        problem = f"could not be started: {error.strerror}"
    if problem:
        print(f"on_finish: {words[0]} {problem}", file=sys.stderr, flush=True)
