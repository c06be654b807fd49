"""Find samples of an output that a pattern misses, and those that were printed several times.

A program's loop prints a number for each iteration. Fewer, more or other numbers than iterations would be a wrong
result without an error.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from regatta.core.matching import Match
from regatta.core.text import plural, quoted

# A number in any notation, NaN, or the asterisks that Fortran prints on overflow.
NUMBER = r"(?:[-+]?\.?\d|[-+]?(?:[nN][aA][nN]|[iI][nN][fF](?:inity)?)(?![A-Za-z])|\*\*)\S*"
TORN = r"[-+]?\.?\d[\d.,]*(?:[eE][-+]?\d*)?"
LEAST_RUNS = 3  # of lines that are all repeated as often
LEAST_VALUES = 5  # of numbers that are all repeated as often, in other lines
MOST_LISTED = 5  # lines


def wider_patterns(pattern: str) -> list[str]:
    """Return patterns for numbers at the place of a pattern's number, in other notation or torn; none without words.

    Their first group is the number with what follows.
    """
    begin, end = _value_group(pattern)
    before, behind = pattern[:begin], pattern[end:]
    if begin == end or not re.search(r"[A-Za-z]{2}", re.sub(r"\\.|\(\?\w*", "", before + behind)):
        return []
    flags = found[0] if (found := re.match(r"\(\?[aiLmsux]+\)", before)) else ""
    wider = [f"{flags}(?:{before[len(flags) :]})({NUMBER}){behind}"]
    if re.search(r"[A-Za-z]{2}", re.sub(r"\\.", "", before)) and behind:
        wider.append(f"{flags}(?:{before[len(flags) :]})({TORN}$|{TORN}(?=[^\\W\\d]).*?(?={before[len(flags) :]}))")
    return [each for each in wider if "|" not in _outside_of_groups(pattern) and _is_valid(each)]


def _value_group(pattern: str) -> tuple[int, int]:
    """Return begin and end of the group of a pattern's number, with its parentheses; equal without a group."""
    opened, first, named = [], None, None
    for place, word in _parentheses(pattern):
        if word == "(":
            is_named = pattern.startswith("(?P<value>", place)
            is_group = pattern.startswith("(?P<", place) or not pattern.startswith("(?", place)
            opened.append((place, is_named, is_group and first is None))
            first = place if is_group and first is None else first
        elif opened:
            begin, is_named, is_first = opened.pop()
            if is_named:
                named = (begin, place + 1)
            if is_first:
                first_span = (begin, place + 1)
    return named or (first_span if first is not None and not opened else (0, 0))


def _parentheses(pattern: str) -> Iterator[tuple[int, str]]:
    """Yield place and kind of each parenthesis that is neither escaped nor in a set of characters."""
    for found in re.finditer(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()]", pattern, re.DOTALL):
        if found[0] in "()":
            yield found.start(), found[0]


def _outside_of_groups(pattern: str) -> str:
    """Return the parts of a pattern that are in no parentheses."""
    depth, begin, parts = 0, 0, []
    for place, word in _parentheses(pattern):
        if depth == 0:
            parts.append(pattern[begin:place])
        depth += 1 if word == "(" else -1
        begin = place + 1
    return re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "", "".join([*parts, pattern[begin:]]))


def _is_valid(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def printing_ranks(matches: Sequence[Match]) -> dict[int, int]:
    """Return the first line of each rank that printed matches, if all ranks are known."""
    if any(match.rank is None for match in matches):
        matches = [match for match in matches if match.rank is not None and not match.is_tagged]
    found: dict[int, int] = {}
    for match in matches:
        found.setdefault(match.rank, match.line)
    return dict(sorted(found.items()))


def doubts(matches: Sequence[Match], is_complete: bool = False) -> Iterator[str]:
    """Yield why matches may not be one for each iteration.

    is_complete: there are as many as the user expects. Then only a number that was missed and another that was printed
    twice are a doubt.
    """
    missed = [match for match in matches if match.value is None and match.whole and not match.is_behind]
    if is_complete and not (missed and any(_again([match for match in matches if match.value is not None]))):
        return
    if missed:
        shown = ", ".join(f"{quoted(match.whole)} (line {match.line})" for match in missed[:MOST_LISTED])
        yield f"{plural(len(missed), 'number')} that the pattern does not match: {shown}"
    read = [match for match in matches if match not in missed] if missed else list(matches)
    by_text = [list(group) for _, group in itertools.groupby(read, key=lambda match: match.text)]
    crowded = [group for group in by_text if len(group) > 1]
    if 0 < len(crowded) <= len(by_text) / 10:
        lines = _lines(group[0] for group in crowded)
        yield f"{lines}: several numbers, but one in the others. Output of several ranks may be interleaved"
    yield from _repetitions(read)


def _repetitions(matches: list[Match]) -> Iterator[str]:
    """Yield which samples were printed several times: each as often, or a few of them."""
    by_line = [list(group) for _, group in itertools.groupby(matches, key=lambda match: (match.key, match.value))]
    by_value = [list(group) for _, group in itertools.groupby(matches, key=lambda match: match.value)]
    for runs, least in ((by_line, LEAST_RUNS), (by_value, LEAST_VALUES)):
        sizes = {len(run) for run in runs}
        if len(sizes) == 1 and len(runs) >= least and len(runs[0]) > 1 and runs[0][0].text != runs[0][1].text:
            yield f"each is printed {sizes.pop()} times ({_lines(runs[0])})"
            return
    if again := [*_again(matches)]:
        yield f"{_lines(again)}: already printed"
    else:
        yield from _interleaved(matches)


def _again(matches: Sequence[Match]) -> Iterator[Match]:
    """Yield the matches of lines that were printed before with the same number.

    None if lines do not differ in more than the number, such as its iteration.
    """
    if len({match.key for match in matches}) > len(matches) / 2:
        found: dict[tuple, int] = {}
        for match in matches:
            if found.setdefault((match.key, match.value), match.text) != match.text:
                yield match


def _interleaved(matches: list[Match]) -> Iterator[str]:
    """Yield the problem if nearby lines repeat with different numbers, as if several ranks had printed them."""
    places: dict[int, list[int]] = {}
    for place, match in enumerate(matches if all(match.rank is None for match in matches) else ()):
        places.setdefault(match.peer, []).append(place)
    sizes, some = {len(of) for of in places.values()}, next(iter(places.values()), [])
    most = min(2 * len(some), len(places))
    is_close = all(of[-1] - of[0] < most for of in places.values())
    if len(places) >= LEAST_RUNS and len(sizes) == 1 and len(some) > 1 and is_close:
        lines = _lines(matches[place] for place in some)
        yield f"each line is printed {len(some)} times with different numbers ({lines}), as if by {len(some)} ranks"


def _lines(matches: Iterable[Match]) -> str:
    numbers = list(dict.fromkeys(match.line for match in matches))
    more = f" and {len(numbers) - MOST_LISTED} more" if len(numbers) > MOST_LISTED else ""
    return f"line{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers[:MOST_LISTED]))}{more}"
