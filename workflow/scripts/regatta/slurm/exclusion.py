"""Add the nodes that Regatta avoids to what the cluster file excludes: of two --exclude sbatch keeps the last."""

import itertools
import math
import re
from collections.abc import Iterable
from pathlib import Path

EXCLUDE = re.compile(r"(?:--exclude=|-x)(.+)", re.DOTALL)
REQUIRE = re.compile(r"(?:--nodelist=|--nodefile=|-w|-F)(.+)", re.DOTALL)
MAX_NODES = 2**16  # of a Slurm cluster (MAX_SLURM_NODES)
MAX_FILE_BYTES = 2**20


def with_avoided(options: list[str], avoid: Iterable[str], num_nodes: int, needed: int) -> list[str]:
    """Return sbatch's options with the nodes to avoid among those that they exclude, in one --exclude.

    They are returned as they are where that leaves fewer than `needed` of `num_nodes` nodes, and where only Slurm knows
    which nodes they name. A node that they require (--nodelist) is never excluded: such a job could not start.
    """
    given = [found[1].strip() for option in options if (found := EXCLUDE.fullmatch(option))]
    required = [found[1].strip() for option in options if (found := REQUIRE.fullmatch(option))]
    try:
        excluded = [name for text in given for name in node_names(text)]
        added = set(avoid) - {name for text in required for name in node_names(text)} - set(excluded)
    except (ValueError, OSError):
        return options
    if not added or num_nodes - len(added | set(excluded)) < needed:
        return options
    others = [option for option in options if not EXCLUDE.fullmatch(option)]
    texts = [",".join(node_names(text)) if "/" in text else text for text in given]
    return [*others, f"--exclude={','.join([*texts, *sorted(added)])}"]


def node_names(text: str) -> list[str]:
    """Return the nodes that a list of Slurm's names, such as n[01-03,7],login; with a slash in it, it names a file of them.

    Raises ValueError for what is no such list, OSError for a file that cannot be read.
    """
    if "/" in text:
        text = ",".join(_lines(Path(text)))
    names: list[str] = []
    for word in re.split(r"[,\s]+(?![^\[]*\])", text.strip(", \n\t")):
        parts = re.split(r"\[([^\[\]]*)\]", re.sub(r"\*\d+$", "", word))  # n1*4: four times, in a file
        if not word or any(re.search(r"[\[\],]", part) for part in parts[::2]):
            raise ValueError(f"{text} is no list of nodes")
        choices = [_numbers(part) if index % 2 else [part] for index, part in enumerate(parts)]
        if len(names) + math.prod(map(len, choices)) > MAX_NODES:
            raise ValueError(f"{text} names more nodes than a cluster has")
        names += map("".join, itertools.product(*choices))
    return names


def _numbers(text: str) -> list[str]:
    """Return the numbers of ranges such as 08-10,12, with leading zeros as they are given."""
    numbers: list[str] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part, re.ASCII)
        if found is None:
            raise ValueError(f"[{text}] is no list of numbers")
        low, high = int(found[1]), int(found[2] or found[1])
        if not 0 <= high - low < MAX_NODES:
            raise ValueError(f"[{text}] is no range of nodes")
        numbers += [str(number).zfill(len(found[1])) for number in range(low, high + 1)]
    return numbers


def _lines(path: Path) -> list[str]:
    if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
        raise OSError(f"{path}: no file of nodes")
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in (line.partition("#")[0].strip() for line in lines) if line]
