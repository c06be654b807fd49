"""Merge the nodes that Regatta avoids into the cluster file's --exclude, because sbatch keeps only the last one."""

import re
from collections.abc import Iterable
from pathlib import Path

from regatta.slurm.hosts import expand

EXCLUDE = re.compile(r"(?:--exclude=|-x)(.+)", re.DOTALL)
REQUIRE = re.compile(r"(?:--nodelist=|--nodefile=|-w|-F)(.+)", re.DOTALL)
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
    """Return the nodes that an option names: a host list, or the path of a file of host lists if it contains a slash.

    Raises ValueError if the text is not a host list, and OSError if the file cannot be read.
    """
    return expand(",".join(_lines(Path(text))) if "/" in text else text)


def _lines(path: Path) -> list[str]:
    if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
        raise OSError(f"{path}: not a file of node names")
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in (line.partition("#")[0].strip() for line in lines) if line]
