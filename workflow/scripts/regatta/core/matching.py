"""Match patterns against the lines of an output, in a stream. A program, because a process can be bounded.

Patterns of users may backtrack without end, and outputs may have gigabytes or lines without end. The program uses the
standard library alone, so that it starts in milliseconds. Its argument is the file descriptor of the output. It reads
patterns as JSON on standard input, since arguments are limited to 128 KiB, and prints a JSON line for each match:
[name, line, value, unit, whole], last [null, null, problem, null, ""].
"""

import json
import re
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

MOST_CHARACTERS = 10_000  # of a line; what follows is not matched
MOST_MATCHES = 1_000_000  # of all patterns together
DIGITS = "0123456789."
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")  # ANSI: colors, titles, links
# What follows a number that a group cuts: more digits, an exponent or a suffix such as k, of which no word begins; or
# behind a suffix a unit, to which it belongs.
REST = re.compile(
    r"(?<=[\d.])(?:[kKMGT]i?(?!\w)|\.?\d[\d.]*|,\d{3}(?!\d)[\d,.]*|[eE][-+]?\d+)"
    r"|(?<=\d[kKMGT])i?\w+|(?<=\d[KMGT]i)\w+"
)
# What is before a number whose beginning a group cuts: digits, perhaps with a point or an exponent, or a minus sign.
BEFORE = re.compile(r"(?:(?<![\w.])[-+]?[\d.,]*\d(?:\.|[eE][-+]?)?|(?:^|(?<=[\s=:(\[]))-)$")


class SlowPatternError(Exception):
    """Raised by cpu_limit."""


def lines_of_stream(stream: BinaryIO) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line. A carriage return, as of progress bars, divides a line into several texts.

    Raises ValueError for binary content.
    """
    number, rest, is_too_long = 1, b"", False
    while piece := stream.readline(MOST_CHARACTERS):
        if b"\0" in piece:
            text = f"line {number} contains a null byte, so this is binary output. Write the results to a text file"
            raise ValueError(text)
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


def value_and_unit(match: re.Match) -> tuple[str | None, str | None, str]:
    """Return the groups named `value` and `unit`, and the whole number if the value is only a part of it.

    Without a group `value`, it is the first group, or the whole match. What a pattern matches before or behind it is no
    part of the number.
    """
    group = "value" if "value" in match.re.groupindex else min(1, match.re.groups)
    text, (begin, end) = match[group], match.span(group)
    rest = REST.match(match.string, end) if match.end() == end else None
    before = BEFORE.search(match.string[:begin]) if match.start() == begin and text and text[0] in DIGITS else None
    whole = f"{before[0] if before else ''}{text}{rest[0] if rest else ''}"
    return text, match.groupdict().get("unit"), whole if before or rest else ""


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise SlowPatternError after this CPU time, also within a match. A slow disk is no slow pattern."""

    def stop(_signal: int, _frame: object) -> None:
        raise SlowPatternError(f"stopped after {seconds:.0f} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def find_matches(
    lines: Iterable[tuple[int, str]], finders: dict[str, Callable], once: Collection[str] = ()
) -> Iterator[tuple[str, int, re.Match]]:
    """Yield name, line and match of all patterns. finders: by name, from a text to its matches.

    once: names of patterns of which the first match is enough. Raises SlowPatternError with line and pattern.
    """
    number, name, finders = 0, "", dict(finders)
    try:
        for number, text in lines:
            for name, find in [*finders.items()]:
                for match in find(text):
                    yield name, number, match
                    if name in once:
                        del finders[name]
                        break
    except SlowPatternError as slow:
        remedy = "begin with a literal word, and avoid nested repetition such as (a+)+"
        raise SlowPatternError(f"line {number}: {slow} in the pattern of {name}. Simplify it: {remedy}") from None


def search_stream(stream: BinaryIO, patterns: dict[str, str], once: list[str], seconds: float, emit: Callable) -> None:
    """Pass each match to emit, last the problem that ended the search, or None."""
    finders, problem = {name: re.compile(pattern).finditer for name, pattern in patterns.items()}, None
    try:
        with cpu_limit(seconds):
            for num, (name, number, match) in enumerate(find_matches(lines_of_stream(stream), finders, once), 1):
                if num > MOST_MATCHES:
                    raise ValueError(f"line {number}: more than {MOST_MATCHES:,} matches. Narrow the pattern of {name}")
                emit((name, number, *value_and_unit(match)))
    except (SlowPatternError, ValueError) as error:
        problem = str(error)
    emit((None, None, problem, None, ""))


if __name__ == "__main__":
    options = json.load(sys.stdin)
    with open(int(sys.argv[1]), "rb") as output:
        search_stream(output, **options, emit=lambda found: sys.stdout.write(json.dumps(found) + "\n"))
