"""Expand Slurm's host lists, such as n[01-03,7],login."""

import itertools
import math
import re

MAX_NODES = 2**16  # of a Slurm cluster (MAX_SLURM_NODES)


def expand(text: str) -> list[str]:
    """Return the hosts of a list. Raises ValueError if the text is not a host list."""
    names: list[str] = []
    for word in re.split(r"[,\s]+(?![^\[]*\])", text.strip(", \n\t")):
        parts = re.split(r"\[([^\[\]]*)\]", re.sub(r"\*\d+$", "", word))  # n1*4: four times, in a file
        if not word or any(re.search(r"[\[\],]", part) for part in parts[::2]):
            raise ValueError(f"{text} is not a host list")
        choices = [_numbers(part) if index % 2 else [part] for index, part in enumerate(parts)]
        if len(names) + math.prod(map(len, choices)) > MAX_NODES:
            raise ValueError(f"{text} names more nodes than a cluster can have")
        names += map("".join, itertools.product(*choices))
    return names


def _numbers(text: str) -> list[str]:
    """Return the numbers of ranges such as 08-10,12, with leading zeros as they are given."""
    numbers: list[str] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part, re.ASCII)
        if found is None:
            raise ValueError(f"[{text}] is not a list of numbers")
        low, high = int(found[1]), int(found[2] or found[1])
        if not 0 <= high - low < MAX_NODES:
            raise ValueError(f"[{text}] is not a range of nodes")
        numbers += [str(number).zfill(len(found[1])) for number in range(low, high + 1)]
    return numbers
