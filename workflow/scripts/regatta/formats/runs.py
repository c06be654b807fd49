"""Find lines by patterns, split a log of several runs, and join what was read of each."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

from regatta.core.text import plural
from regatta.formats.base import ImportedFile, refusal

LineMatches = list[tuple[int, re.Match]]  # lines that match a pattern: number from 1, and match


def find_lines(lines: list[str], patterns: dict[str, str]) -> dict[str, LineMatches]:
    """Return the lines that each pattern matches as a whole, with any blanks around it."""
    compiled = {name: re.compile(rf"\s*(?:{pattern})\s*").fullmatch for name, pattern in patterns.items()}
    filled = [(number, line) for number, line in enumerate(lines, start=1) if line]
    return {
        name: [(number, match) for number, line in filled if (match := match_line(line))]
        for name, match_line in compiled.items()
    }


def parts_of(lines: list[str], starts: list[int]) -> Iterator[list[str]]:
    """Yield the lines of each run, with blank lines for those before it, so that line numbers stay. starts: from 0.

    The first run has the lines before the first start, too.
    """
    bounds = [0, *starts[1:], len(lines)]
    for first, end in itertools.pairwise(bounds):
        yield [""] * first + lines[first:end] + ([""] if end < len(lines) else [])  # its last line is not truncated


def join_runs(runs: list[ImportedFile], name: str) -> ImportedFile:
    """Return the content of a file. Readings of different runs are never in one launch."""
    if len(runs) == 1:
        return runs[0]
    for run in runs:
        if run.device != runs[0].device:
            found = f"runs on {runs[0].device} and on {run.device}"
            raise refusal(name, run.readings[0].line, found, "one device per file")
    statistics = dict.fromkeys(run.statistic for run in runs)
    readings = tuple(
        replace(
            reading,
            run=number,
            backend=reading.backend or run.backend,
            environment=run.environment,
            statistic=run.statistic if len(statistics) > 1 else None,
        )
        for number, run in enumerate(runs)
        for reading in run.readings
    )
    notes = dict.fromkeys(note for run in runs for note in run.notes)
    notes = (f"{plural(len(runs), 'run')} in one file, each imported as separate launches", *notes)
    return replace(runs[0], statistic="; or ".join(statistics), readings=readings, notes=notes)
