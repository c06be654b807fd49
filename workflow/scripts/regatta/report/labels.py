"""Labels of lines and rows in a figure: without what all have in common, in two lines if long, and where they stand."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise

from regatta.core.names import SEPARATOR

PARTS = re.compile(rf"\n|, |{re.escape(SEPARATOR)}")
NEGATIONS = ("no", "without")  # the word after them alone would say the opposite


def split_common(labels: Sequence[str]) -> tuple[str, list[str]]:
    """Return the parts that all labels have, and of each label the other ones; none of these is empty.

    Words that begin the first of the other parts of all labels are common too: of ddp bucket 1 MiB and ddp bucket
    25 MiB, ddp is.
    """
    parts = [PARTS.split(label) for label in labels]
    common = [part for part in parts[0] if all(part in of for of in parts)] if len(parts) > 1 else []
    others = [[part for part in of if part not in common] for of in parts]
    if not all(others):
        common, others = [], parts
    if len(parts) > 1 and (begin := _common_words([of[0] for of in others])):
        common.append(begin)
        others = [[of[0].removeprefix(f"{begin} "), *of[1:]] for of in others]
    return SEPARATOR.join(common), [SEPARATOR.join(of) for of in others]


def _common_words(texts: Sequence[str]) -> str:
    """Return the words that all texts begin with, if more follow in each."""
    words = [text.split(" ") for text in texts]
    num = 0
    while all(len(of) > num + 1 for of in words) and len({of[num] for of in words}) == 1:
        num += 1
    while num and (words[0][num - 1] in NEGATIONS or any(of[num][:1].isdigit() for of in words)):
        num -= 1  # 25 MiB alone does not say of what
    return " ".join(words[0][:num])


def wrapped(text: str, most: int) -> str:
    """Return a text in two lines if it has more than `most` characters, preferably between two parts."""
    if len(text) <= most:
        return text
    ends = [(SEPARATOR, match.start()) for match in re.finditer(re.escape(SEPARATOR), text)]
    ends = ends or [(" ", match.start()) for match in re.finditer(" ", text)]
    halves = [(text[:place], text[place + len(end) :]) for end, place in ends] or [(text, "")]
    return "\n".join(filter(None, min(halves, key=lambda of: max(map(len, of)))))


def shortened(text: str, most: int) -> str:
    """Return a text whose lines have at most `most` characters."""
    lines = text.split("\n")
    return "\n".join(line if len(line) <= most else f"{line[: most - 1]}\N{HORIZONTAL ELLIPSIS}" for line in lines)


def apart(wanted: Sequence[float], heights: Sequence[float], highest: float) -> list[float]:
    """Return places in ascending order for labels of these heights that do not overlap, near those wanted (ascending).

    All are at most `highest`.
    """
    gaps = [(one + other) / 2 for one, other in pairwise(heights)]
    places, lowest = [], -math.inf
    for place, gap in zip(wanted, [*gaps, 0], strict=True) if wanted else ():
        places.append(max(place, lowest))
        lowest = places[-1] + gap
    for index in reversed(range(len(places))):
        places[index] = min(places[index], highest - sum(gaps[index:]))
    return places
