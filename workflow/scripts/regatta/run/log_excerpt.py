"""The lines of a launch's log that explain a failure: a rank's traceback, not what its launcher prints after it."""

import re

from regatta.launchers import LAUNCHERS
from regatta.run.causes import PYTORCH_LOG
from regatta.store.records import one_line

MAX_LINES, MAX_CHARACTERS = 30, 200
RANK = re.compile(r"\[rank\d+\]: ?")  # with which torch begins each line of an exception
BEGIN = "Traceback (most recent call last):"
CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
SUMMARY = "ChildFailedError"  # with which torchrun ends, after its ranks
OF_LAUNCHER = re.compile("|".join((PYTORCH_LOG, *(launcher.log_lines for launcher in LAUNCHERS.values()))))


def log_excerpt(log: str, cause: str) -> list[str]:
    """Return the traceback that ends with the error of the cause, else the last one, else the last lines of the ranks.

    Lines of the launcher are returned only if there are no others.
    """
    lines = log.splitlines()
    if any(SUMMARY in line for line in lines):
        lines = _without_summary(lines)
    found = tracebacks(lines)
    of_cause = [block for block in found if error_of(block) and error_of(block) in cause]
    of_ranks = [line for line in lines if line.strip() and not OF_LAUNCHER.match(line)]
    chosen = of_cause[0] if of_cause else found[-1] if found else of_ranks or [line for line in lines if line.strip()]
    return [_clean(line) for line in chosen[-MAX_LINES:]]


def tracebacks(lines: list[str]) -> list[list[str]]:
    """Return the tracebacks of Python in a log, each to its error. Those that are chained are one.

    Ranks write at the same time: their lines are separated by the prefix that torch gives them.
    """
    found: list[list[str]] = []
    unfinished: dict[str, list[str]] = {}  # by prefix
    finished: dict[str, list[str]] = {}  # may be continued by a chained one
    for line in lines:
        prefix = match[0].strip() if (match := RANK.match(line)) else ""
        body = RANK.sub("", line, count=1) if prefix else line
        if body.startswith(BEGIN):
            block = finished.get(prefix)
            if block is None or not block[-1].removeprefix(prefix).lstrip().startswith(CHAINED):
                block = []
                found.append(block)
            block.append(line)
            unfinished[prefix] = block
        elif prefix in unfinished and body.strip():
            unfinished[prefix].append(line)
            if not body[0].isspace():
                finished[prefix] = unfinished.pop(prefix)
        elif prefix in finished and body.startswith(CHAINED):
            finished[prefix].append(line)
    return found


def error_of(block: list[str]) -> str:
    """Return the error that ends a traceback as causes begin with it: `RuntimeError: ...`, without its module."""
    text = " ".join(RANK.sub("", block[-1], count=1).split())
    return re.sub(r"^(\w+\.)+", "", text)[:MAX_CHARACTERS]


def _without_summary(lines: list[str]) -> list[str]:
    """Return the lines before torchrun's traceback, which ends with its summary."""
    end = next(number for number, line in enumerate(lines) if SUMMARY in line)
    begins = [number for number, line in enumerate(lines[:end]) if line.startswith(BEGIN)]
    return lines[: begins[-1] if begins else end]


def _clean(line: str) -> str:
    """Return a line with its prefix and indentation, without control characters."""
    prefix = match[0].strip() + " " if (match := RANK.match(line)) else ""
    body = RANK.sub("", line, count=1).expandtabs(4)
    indentation = min(len(body) - len(body.lstrip(" ")), MAX_CHARACTERS // 2)
    return prefix + " " * indentation + one_line(body, MAX_CHARACTERS)
