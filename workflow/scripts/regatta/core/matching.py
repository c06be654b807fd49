"""Match patterns against the lines of an output, in a stream. A program, because a process can be bounded.

Patterns of users may backtrack without end, and outputs may have gigabytes or lines without end. The program uses the
standard library alone, so that it starts in milliseconds. Its argument is the file descriptor of the output. It reads
patterns as JSON on standard input, since arguments are limited to 128 KiB, and prints a JSON line for each match, with
the fields of Match; last one whose `value` is the problem that ended the search, or null. Before that, it prints lines
that a pattern would match if they had another unit; their names begin with "similar ".
"""

import json
import re
import signal
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from types import MappingProxyType
from typing import BinaryIO, NamedTuple

MOST_CHARACTERS = 10_000  # of a text; what a longer one has behind them is only searched for matches, not read
MOST_OF_KEY = 500  # characters on either side of a number
OVERLAP = 200  # characters before the cut, which are searched again with what follows
MOST_MATCHES = 1_000_000  # of all patterns together
DIGITS = "0123456789."
# ANSI: colors, titles, links, sets of characters.
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-Z\\^-~])")
# What follows a number that a group cuts: more digits, an exponent or a suffix such as k, of which no word begins; or
# behind a suffix a unit, to which it belongs.
REST = re.compile(
    r"(?<=[\d.])(?:[kKMGT]i?(?!\w)|\.?\d[\d.]*|,\d{3}(?!\d)[\d,.]*|(?:[eE][-+\u2212]?|[dD][-+])\d+"
    r"| ?[x\u00d7*\u00b7] ?10(?:\^|\*\*|[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207b])\S*)"
    r"|(?<=\d[kKMGT])i?\w+|(?<=\d[KMGT]i)\w+"
)
# What is before a number whose beginning a group cuts: digits, perhaps with a point or an exponent, or a minus sign.
BEFORE = re.compile(r"(?:(?<![\w.])[-+]?[\d.,]*\d(?:\.|[eE][-+\u2212]?|[dD][-+])?|(?:^|(?<=[\s=:(\[]))[-\u2212])$")
# Digits with signs between them, on either side of a group, and what they must be together to be one number or time:
# a decimal comma, groups, 1:02:03, 2m5.25s. Two numbers in a list are the same as a decimal comma.
SIGNS = "['\u2019_\u00a0\u2009\u202f]"
RUN_BEHIND = re.compile(
    rf"(?:[,.:]|{SIGNS})?\d(?:[\d.,:]|{SIGNS}(?=\d))*|[dhm] ?\d[\d.,]*(?:[hms] ?[\d.,]*)*", re.ASCII
)
RUN_BEFORE = re.compile(rf"(?<![\w.,:])(?:\d(?:[\d.,:]|{SIGNS})*|(?:\d+[dhm] ?)+)$", re.ASCII)
ONE_NUMBER = re.compile(
    rf"\d+,\d+|\d{{1,3}}(?:[.,]\d{{3}})+(?:[.,]\d+)?|\d{{1,3}}(?:{SIGNS}\d{{3}})+(?:[.,]\d+)?"
    r"|\d+(?::[0-5]\d){1,2}(?:[.,]\d+)?|(?:\d+[dhm] ?)+\d[\d.,]*[hms]?",
    re.ASCII,
)
UNIT = r"[A-Za-z\u00b5\u03bc%][\w\u00b5%]*(?:/[\w\u00b5%]+)*"
BEHIND = re.compile(rf" ?[(\[]?({UNIT})")
NUMBER_AND_UNIT = re.compile(rf"(?<![\d.,])\d[\d.,]*(?:[eE][-+]?\d+)? ?[(\[]?({UNIT})")
NUMBER_AND_WORD = re.compile(rf"[-+]?[\d.,]*\d(?:[eE][-+]?\d+)?(?: ?[(\[]?{UNIT})?")
WORD = re.compile(r"[^\W\d_]+")
MOST_SIMILAR, MOST_SHAPES = 1000, 20_000
NO_DIGITS = dict.fromkeys(map(ord, "0123456789.,"))

# First line of a log in which each line of a rank begins with its number.
LABELLED = b"regatta: each line of a rank begins with its number"
BY_SRUN = LABELLED + b" (srun --label)"
LABEL = re.compile(rb" *(\d{1,7}):(?: |$)")
SRUN_BYTES = 1024  # SLURM_IO_MAX_MSG_LEN: srun --label divides longer lines, and labels each part
MOST_LINE_BYTES = 1 << 25
# The rank with which a line begins that a starter such as mpirun or torchrun prints: [1,3]<stdout>: or [rank3]:.
TAG = re.compile(
    r"\[\d+,(\d{1,7})\]<std(?:out|err)>|\[default(\d{1,7})\]:|\W{0,2}(?:MPI |global )?rank ?[:=#]?(\d{1,7})\b"
    r"|.{0,100}\[(?:MPI |global )?rank ?[:=#]?(\d{1,7})\]",
    re.I,
)
# What differs between the lines that several ranks print in the same iteration: their names and times of day.
OF_RANK = re.compile(
    r"^\W?\d{1,7}[\]>):] |\b(?:rank|process|proc|worker|task|gpu|cuda|device|node|host)[ :=#_-]?\d+\b"
    r"|\b\d{4}-\d\d-\d\d[T ]|\b\d\d:\d\d:\d\d(?:[.,]\d+)?",
    re.I,
)
ZEROS = str.maketrans("123456789", "000000000")


class Match(NamedTuple):
    """A match of a pattern. whole: the whole number if the value is a part of it, else an empty text.

    rank: that printed the line, None if unknown; is_tagged: as the line itself says. text: number of the text, as a
    carriage return divides a line. key: of that text without the number. Without a value and with `whole`: a number at
    the place of the pattern's that it does not match; is_behind: one behind the characters of a text that are read.
    peer: key without the words of ranks and times of day, which differ between the lines of several ranks.
    behind: the word behind the number, which may be its unit.
    """

    name: str | None
    line: int | None
    value: str | None
    unit: str | None = None
    whole: str = ""
    rank: int | None = None
    is_tagged: bool = False
    text: int = 0
    key: int = 0
    peer: int = 0
    is_behind: bool = False
    behind: str = ""


class SlowPatternError(Exception):
    """Raised by cpu_limit."""


def lines_of_stream(stream: BinaryIO) -> Iterator[tuple[int, str, int | None, int]]:
    """Yield number, text and rank of each line, and 0. A carriage return, as of progress bars, divides a line into
    several texts. The rank is None if the stream has no labels; labels are no part of the text.

    Of a text of more than MOST_CHARACTERS, the other parts follow, each with the number of its characters that the part
    before has as well. Raises ValueError for binary content.
    """
    first = stream.readline(MOST_CHARACTERS)
    if first.startswith(LABELLED):
        for number, rank, line in labelled_lines(stream, is_divided=first.startswith(BY_SRUN)):
            _check_text(number, line)
            for text in line.split(b"\r"):
                yield from ((number, content, rank, num_known) for content, num_known in _parts(text))
        return
    number, rest, is_begun, piece = 1, b"", False, first
    while piece:
        _check_text(number, piece)
        is_end = piece.endswith(b"\n")
        *texts, rest = (rest + piece.rstrip(b"\r\n") if is_end else rest + piece).split(b"\r")
        if is_end:
            texts, rest = [*texts, rest], b""
        for text in texts:
            yield from ((number, content, None, num_known) for content, num_known in _parts(text, is_begun))
            is_begun = False
        if len(rest) >= MOST_CHARACTERS:
            yield from ((number, content, None, num_known) for content, num_known in _parts(rest, is_begun))
            is_begun, rest = True, rest[-OVERLAP:]
        number += is_end
        piece = stream.readline(MOST_CHARACTERS)
    if rest:
        yield from ((number, content, None, num_known) for content, num_known in _parts(rest, is_begun))


def _parts(text: bytes, is_begun: bool = False) -> Iterator[tuple[str, int]]:
    """Yield the parts of a text of which each can be matched, with the number of characters that were in one before.

    is_begun: the first OVERLAP bytes were.
    """
    for begin in range(0, max(len(text) - OVERLAP, 1), MOST_CHARACTERS - OVERLAP):
        part = text[begin : begin + MOST_CHARACTERS]
        yield _text(part), len(_text(part[:OVERLAP])) if begin or is_begun else 0


def labelled_lines(stream: BinaryIO, is_divided: bool) -> Iterator[tuple[int, int | None, bytes]]:
    """Yield number, rank and content of each line after the first.

    is_divided: long lines are divided into parts of SRUN_BYTES, which are joined here.
    """
    begun: dict[int, tuple[int, bytes]] = {}
    for number in count(2):
        if not (line := stream.readline(MOST_LINE_BYTES)):
            break
        found = LABEL.match(line.rstrip(b"\r\n"))
        rank, content = (int(found[1]), line[found.end() :]) if found else (None, line)
        content = content.removesuffix(b"\n")
        first, before = begun.pop(rank, (number, b""))
        if is_divided and found and len(content) == SRUN_BYTES and len(before) < MOST_LINE_BYTES:
            begun[rank] = first, before + content
        else:
            yield first, rank, (before + content).rstrip(b"\r")
    yield from ((first, rank, content) for rank, (first, content) in begun.items())


def _check_text(number: int, content: bytes) -> None:
    if b"\0" in content:
        text = f"line {number} contains a null byte, so this is binary output. Write the results to a text file"
        raise ValueError(text)


def _text(line: bytes) -> str:
    return ESCAPES.sub("", line.decode("utf-8", "replace")).rstrip()


def value_and_unit(match: re.Match) -> tuple[str | None, str | None, str, str]:
    """Return the groups named `value` and `unit`, the whole number if the value is a part of it, and what is behind it.

    Without a group `value`, it is the first group, or the whole match. What a pattern matches before or behind it is no
    part of the number. Behind a number is the word that may be its unit.
    """
    group, line = _value_group(match.re), match.string
    text, (begin, end) = match[group], match.span(group)
    behind, unit = BEHIND.match(line, end) if text else None, match.groupdict().get("unit")
    return text, unit, _whole_number(match, text, begin, end), behind[0].strip() if behind else ""


def _value_group(pattern: re.Pattern) -> int | str:
    return "value" if "value" in pattern.groupindex else min(1, pattern.groups)


def _whole_number(match: re.Match, text: str | None, begin: int, end: int) -> str:
    """Return the number of which a value is a part; empty if it is all of it."""
    line, is_number = match.string, bool(text) and text[0] in DIGITS
    rest = REST.match(line, end) if match.end() == end else None
    near = line[max(begin - MOST_OF_KEY, 0) : begin]
    before = BEFORE.search(near) if match.start() == begin and is_number else None
    if is_number:
        behind = RUN_BEHIND.match(line, end) if match.end() == end else None
        ahead = RUN_BEFORE.search(near) if match.start() == begin else None
        whole = f"{ahead[0] if ahead else ''}{text}{behind[0] if behind else ''}".rstrip(".,:")
        if len(whole) > len(text) and ONE_NUMBER.fullmatch(whole):
            return whole
    return f"{before[0] if before else ''}{text}{rest[0] if rest else ''}" if before or rest else ""


class SimilarLines:
    """The lines that a pattern does not match, but would with the unit of a line that it does match.

    Lines are similar if they have the same words before the number.
    """

    def __init__(self, pattern: re.Pattern) -> None:
        self.pattern = pattern
        self.units: dict[tuple, str] = {}  # of matched lines, by the words before the number
        self.others: dict[tuple, tuple[int, str, int, int]] = {}  # line, text and place of the unit
        self.matched: set[str] = set()  # texts before the numbers of matched lines, without digits
        self.shapes: set[str] = set()  # of other lines

    def note_match(self, match: re.Match) -> None:
        begin, end = match.span(_value_group(self.pattern))
        shape = match.string[:begin].translate(NO_DIGITS)
        if len(self.matched) < MOST_SIMILAR and shape not in self.matched:
            self.matched.add(shape)
            if found := BEHIND.match(match.string, end):
                self.units.setdefault(_words_before(match.string, begin), found[1])

    def note_other(self, number: int, text: str) -> None:
        shape = text.translate(NO_DIGITS)
        if len(self.shapes) >= MOST_SHAPES or len(shape) == len(text) or shape in self.shapes:
            return
        self.shapes.add(shape)
        for found in NUMBER_AND_UNIT.finditer(text):
            if len(self.others) < MOST_SIMILAR:
                key = (_words_before(text, found.start()), found[1])
                self.others.setdefault(key, (number, text, *found.span(1)))

    def found(self) -> Iterator[tuple[int, str, str]]:
        """Yield line, unit and the unit of the matched line."""
        for (words, unit), (number, text, begin, end) in self.others.items():
            other = self.units.get(words)
            if other and other != unit and self.pattern.search(f"{text[:begin]}{other}{text[end:]}"):
                yield number, unit, other


def _words_before(text: str, end: int) -> tuple[str, ...]:
    """Return the words before a place, without those behind numbers, which may be units."""
    return tuple(WORD.findall(NUMBER_AND_WORD.sub(" ", text[:end])))


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
    lines: Iterable[tuple[int, str]],
    finders: dict[str, Callable],
    once: Collection[str] = (),
    similar: Mapping[str, SimilarLines] = MappingProxyType({}),
) -> Iterator[tuple[str, int, re.Match]]:
    """Yield name, line and match of all patterns. finders: by name, from a text to its matches.

    once: names of patterns of which the first match is enough. similar: by name, notes the lines without a match.
    Raises SlowPatternError with line and pattern.
    """
    number, name, finders = 0, "", dict(finders)
    try:
        for number, text in lines:
            for name, find in [*finders.items()]:
                has_match = False
                for match in find(text):
                    has_match = True
                    yield name, number, match
                    if name in once:
                        del finders[name]
                        break
                if name in similar and not has_match:
                    similar[name].note_other(number, text)
    except SlowPatternError as slow:
        remedy = "begin with a literal word, and avoid nested repetition such as (a+)+"
        raise SlowPatternError(f"line {number}: {slow} in the pattern of {name}. Simplify it: {remedy}") from None


def search_stream(
    stream: BinaryIO,
    patterns: dict[str, str],
    once: list[str],
    near: dict[str, list[str]],
    seconds: float,
    emit: Callable,
) -> None:
    """Pass each match to emit, last the problem that ended the search, or None.

    near: for a name, wider patterns; their matches that overlap none of the pattern's are passed as well.
    """
    compiled = {name: re.compile(pattern) for name, pattern in patterns.items()}
    similar = {name: SimilarLines(pattern) for name, pattern in compiled.items() if name not in once}
    finders, place, problem = {name: pattern.finditer for name, pattern in compiled.items()}, (0, None, 0), None
    finders |= {f"{NEAR}{name}": _near_finder(finders[name], wider) for name, wider in near.items()}

    def texts() -> Iterator[tuple[int, str]]:
        nonlocal place
        for text, (number, content, rank, num_known) in enumerate(lines_of_stream(stream), 1):
            place = (text, rank, num_known)
            yield number, content

    try:
        with cpu_limit(seconds):
            for num, (name, number, match) in enumerate(find_matches(texts(), finders, once, similar), 1):
                if num > MOST_MATCHES:
                    raise ValueError(f"line {number}: more than {MOST_MATCHES:,} matches. Narrow the pattern of {name}")
                if place[2] and match.end() <= place[2]:
                    continue
                if name in similar:
                    similar[name].note_match(match)
                emit(_match(name, number, match, *place))
            for name in similar:
                for number, unit, other in similar[name].found():
                    emit(Match(f"{SIMILAR}{name}", number, None, unit, behind=other))
    except (SlowPatternError, ValueError) as error:
        problem = str(error)
    emit(Match(None, None, problem))


NEAR, SIMILAR = "near ", "similar "  # before the name of a pattern


def _near_finder(find: Callable, patterns: list[str]) -> Callable:
    """Return a function from a text to the matches of wider patterns that overlap no match of the pattern itself."""
    wider = [re.compile(pattern).finditer for pattern in patterns]

    def found(text: str) -> Iterator[re.Match]:
        if near := [match for finder in wider for match in finder(text)]:
            spans = [match.span() for match in find(text)]
            for match in near:
                if not any(begin < match.end() and match.start() < end for begin, end in spans):
                    yield match
                    return  # one of a text names it

    return found


def _match(name: str, number: int, match: re.Match, text: int, rank: int | None, num_known: int) -> Match:
    is_tagged = rank is None and (tag := TAG.match(match.string)) is not None
    rank = int(next(filter(None, tag.groups()))) if is_tagged else rank
    if name.startswith(NEAR):
        return Match(name.removeprefix(NEAR), number, None, None, match[1] or match[0], rank, is_tagged, text)
    value, unit, whole, behind = value_and_unit(match)
    if num_known and name.startswith("read."):
        return Match(name, number, None, None, value or match[0], rank, is_tagged, text, is_behind=True)
    begin, end = match.span(_value_group(match.re))
    others = f"{match.string[max(begin - MOST_OF_KEY, 0) : begin]}\0{match.string[end : end + MOST_OF_KEY]}"
    key = peer = _checksum(others)
    if rank is None and _has_word_of_rank(others.translate(ZEROS)):
        peer = _checksum(OF_RANK.sub("", others))
    return Match(name, number, value, unit, whole, rank, is_tagged, text, key, peer, behind=behind)


def _checksum(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "replace"))


@lru_cache(maxsize=10_000)
def _has_word_of_rank(text: str) -> bool:
    """Return whether OF_RANK matches. text: with zeros for all digits, so that most are in the cache."""
    return OF_RANK.search(text) is not None


if __name__ == "__main__":
    options = json.load(sys.stdin)
    with open(int(sys.argv[1]), "rb") as output:
        search_stream(output, **options, emit=lambda found: sys.stdout.write(json.dumps(found) + "\n"))
