"""Match patterns against the lines of an output, in a stream. A program, because a process can be bounded.

Patterns of users may backtrack without end, and outputs may have gigabytes or lines without end. The program uses the
standard library alone, so that it starts in milliseconds. It reads the output on standard input and patterns as JSON in
its argument, and prints a JSON line for each match: [name, line, value, unit], last [null, number of lines, problem].
"""

import json
import re
import signal
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO

MOST_CHARACTERS = 10_000  # of a line; what follows is not matched
MOST_MATCHES = 1_000_000  # of all patterns together
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")  # ANSI: colors, titles, links


class SlowPatternError(Exception):
    """Raised by the timer of the process, which also interrupts a match."""


def lines_of_stream(stream: BinaryIO) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line. A carriage return, as of progress bars, divides a line into several texts.

    Raises ValueError for binary content.
    """
    number, rest, is_too_long = 1, b"", False
    while piece := stream.readline(MOST_CHARACTERS):
        if b"\0" in piece:
            raise ValueError(f"line {number} contains a null byte, so this is binary output")
        is_end = piece.endswith(b"\n")
        *texts, rest = (rest + piece.rstrip(b"\r\n") if is_end else rest + piece).split(b"\r")
        if is_end or len(rest) >= MOST_CHARACTERS:
            texts, rest = [*texts, rest[:MOST_CHARACTERS]], b""
        for text in texts[1:] if is_too_long else texts:
            yield number, _text(text)
        is_too_long = not is_end and not rest and (is_too_long or len(texts[-1]) >= MOST_CHARACTERS)
        number += is_end
    if rest:
        yield number, _text(rest)


def _text(line: bytes) -> str:
    return ESCAPES.sub("", line.decode("utf-8", "replace")).rstrip()


def value_and_unit(match: re.Match) -> tuple[str | None, str | None]:
    """Return the groups named `value` and `unit`; without a group `value` the first group, or the whole match."""
    named = match.groupdict()
    return named.get("value", match[1] if match.re.groups else match[0]), named.get("unit")


def search_stream(stream: BinaryIO, patterns: dict[str, str], once: list[str], seconds: float, emit: Callable) -> None:
    """Pass each match to emit, last the number of lines and the problem that ended the search, or None.

    once: names of patterns of which the first match is enough.
    """
    compiled = {name: re.compile(pattern) for name, pattern in patterns.items()}
    number, name, num_matches, problem = 0, "", 0, None
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)  # CPU time: a slow disk is no slow pattern
    try:
        for number, text in lines_of_stream(stream):
            for name, pattern in [*compiled.items()]:
                for match in pattern.finditer(text):
                    emit((name, number, *value_and_unit(match)))
                    num_matches += 1
                    if name in once:
                        del compiled[name]
                        break
            if num_matches > MOST_MATCHES:
                problem = f"line {number}: more than {MOST_MATCHES:,} matches. Narrow the pattern of {name}"
                break
    except SlowPatternError:
        problem = f"line {number}: stopped after {seconds:.0f} s in the pattern of {name}. Simplify it: no nested"
        problem += " repetition such as (a+)+, and a literal word at its start"
    except ValueError as error:
        problem = f"{error}. Write the results to a text file"
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    emit((None, number, problem, None))


def _stop(_signal: int, _frame: object) -> None:
    raise SlowPatternError


if __name__ == "__main__":
    signal.signal(signal.SIGVTALRM, _stop)
    options = json.loads(sys.argv[1])
    search_stream(sys.stdin.buffer, **options, emit=lambda found: sys.stdout.write(json.dumps(found) + "\n"))
