"""Run the program that a campaign file names in on_finish, at the end of a run."""

import os
import subprocess
import sys
from pathlib import Path

from regatta.core.text import one_line

LIMIT_S = 60  # a hanging program must not block the end of a run


def run_on_finish(words: list[str], name: str, status: int, results: Path) -> None:
    """Run a program without a shell, with the outcome in REGATTA_* variables. A failure is printed and ignored."""
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
        problem = f"exited with status {done.returncode}" if done.returncode else ""
    except subprocess.TimeoutExpired:
        problem = f"was killed after {LIMIT_S} s"
    except KeyboardInterrupt:
        problem = "was interrupted"
    except OSError as error:
        problem = f"could not be started: {error.strerror}"
    if problem:
        print(f"on_finish: {one_line(words[0])} {problem}", file=sys.stderr, flush=True)
