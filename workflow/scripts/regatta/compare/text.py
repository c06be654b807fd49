"""What a comparison of two campaigns says in the terminal: what differs around them, then the cells, largest effect first."""

from collections.abc import Iterator

import pandas as pd

from regatta.compare.campaigns import CampaignResults, CampaignsCompared
from regatta.core.text import UNKNOWN, duration, percent, plural
from regatta.report.panels import full_names
from regatta.topics.comparison.environment import NOT_KNOWN, Difference
from regatta.topics.comparison.tables import is_noise
from regatta.topics.comparison.words import (
    HOW_TO_READ,
    direction,
    direction_text,
    judged_rows,
    launches_text,
    spread_text,
    summary,
    verdict_text,
)

SHOWN = 10  # cells of a list
HEADS = ("cell", "base", "test", "test/base", "n", "verdict")


def comparison_text(found: CampaignsCompared, shows_all: bool = False) -> str:
    """Return the whole text. shows_all: no row folded, no list cut."""
    lines = [*_side("base", found.base), *_side("test", found.test), ""]
    lines += _environment(found)
    lines += ["", f"{summary(found.comparisons)} (margin {percent(found.margin)} %)."]
    shift = direction_text(direction(judged_rows(found.comparisons)))
    lines += [f"Overall, {shift}."] if shift else []
    is_within = is_noise(found.comparisons)
    shown = found.comparisons if shows_all else found.comparisons[~is_within]
    if len(shown):
        lines += [HOW_TO_READ, "", *aligned([HEADS, *_rows(shown, found.comparisons)])]
    if is_within.any() and not shows_all:
        lines += ["", _folded(found.comparisons[is_within])]
    lists = {"only in base": found.only_base, "only in test": found.only_test}
    lists |= {f"not compared, {reason}": cells for reason, cells in found.not_compared.items()}
    for title, cells in lists.items():
        lines += _list(title, cells, shows_all)
    return "\n".join(lines) + "\n"


def aligned(rows: list[tuple[str, ...]], num_left: int = 2) -> list[str]:
    """Return rows as lines: the first column, or the first and the last, to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = (0, len(widths) - 1)[:num_left]
    return [
        "  ".join(
            value.ljust(width) if index in left else value.rjust(width)
            for index, (value, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _side(name: str, side: CampaignResults) -> Iterator[str]:
    ok = side.measurements[side.measurements["status"] == "ok"]
    num = f"{plural(ok['cell'].nunique(), 'cell')} in {plural(ok['launch'].nunique(), 'launch', 'launches')}"
    yield f"{name}: {side.folder} ({num}, first record {side.first_time_utc or UNKNOWN})"
    yield from (f"  note: {note}" for note in side.notes)


def environment_text(difference: Difference) -> str:
    if difference.name.startswith(NOT_KNOWN):
        return f"{difference.name} before: {difference.reference}; after: {difference.other}"
    return f"{difference.name}: {difference.reference} -> {difference.other}"


def _environment(found: CampaignsCompared) -> Iterator[str]:
    if not (found.base.headers and found.test.headers):
        yield "The environments are not known: there are no launch files."
    elif not found.environment:
        yield "No difference between the environments was recorded."
    else:
        yield "What differs besides the numbers:"
        for difference in found.environment:
            yield f"  {environment_text(difference)}"


def _rows(rows: pd.DataFrame, of: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    labels = pd.Series(full_names(of), index=of.index)
    for label, row in zip(labels[rows.index], rows.itertuples(), strict=True):
        times = duration(row.reference_time_s), duration(row.time_s)
        yield label, *times, spread_text(row), launches_text(row), verdict_text(row)


def _folded(rows: pd.DataFrame) -> str:
    words = ", ".join(f"{num} {word}" for word, num in rows["verdict"].value_counts().sort_index().items())
    return f"Not shown, within the margin: {plural(len(rows), 'row')} ({words}). --all shows them."


def _list(title: str, cells: pd.DataFrame, shows_all: bool) -> Iterator[str]:
    if not len(cells):
        return
    labels = full_names(cells)
    most = len(labels) if shows_all else SHOWN
    yield ""
    yield f"{title}: {plural(len(labels), 'cell')}"
    yield from (f"  {label}" for label in labels[:most])
    if len(labels) > most:
        yield f"  ... and {len(labels) - most} more"
