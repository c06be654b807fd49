"""What the history of cells says in the terminal: the campaigns with what changed, then a row for each cell."""

from collections.abc import Iterator

from regatta.analysis.cell_labels import cell_labels
from regatta.analysis.comparison_text import aligned, environment_text
from regatta.analysis.history_of_cells import History, by_change
from regatta.numbers import NOT_PLANNED, UNKNOWN, duration, is_unknown, percent, plural, ratio_text

CHANGED = "*"  # beside the number of a campaign whose environment differs from that of the one before


def history_text(history: History, margin: float, shows_all: bool = False) -> str:
    """Return the whole text. margin: cells that never left it are counted; shows_all: no row is folded."""
    lines = []
    for place, campaign in enumerate(history.campaigns):
        lines.append(f"{heading(history, place)}  {(campaign.first_time_utc or UNKNOWN)[:10]}  {campaign.folder}")
        lines += [f"     note: {note}" for note in campaign.notes]
        lines += [f"     {environment_text(change)}" for change in history.changes[place]]
    order = by_change(history)
    moved = order if shows_all else [cell for cell in order if _leaves(history, cell, margin)]
    lines += ["", f"Median time, and its ratio to the first. {CHANGED}: the environment changed before."]
    heads = ("cell", *(heading(history, place).strip() for place in range(len(history.campaigns))))
    lines += aligned([heads, *_rows(history, moved)], num_left=1) if moved else ["No cell left the margin."]
    if len(order) > len(moved):
        more = plural(len(order) - len(moved), "cell")
        lines += [
            "",
            f"Not shown, never more than {percent(margin)} % from their first time: {more}. --all shows them.",
        ]
    if history.num_once:
        lines += ["", f"Measured in one campaign only: {plural(history.num_once, 'cell')}."]
    return "\n".join(lines) + "\n"


def heading(history: History, place: int) -> str:
    """Return the number of a campaign, counted from 1, marked where its environment changed."""
    return f"{place + 1}{CHANGED if history.has_changed(place) else ''}".ljust(2)


def labels_of(history: History) -> dict[str, str]:
    """Return the name of each cell."""
    cells = history.table.drop_duplicates("cell")
    return dict(zip(cells["cell"], cell_labels(cells), strict=True))


def _leaves(history: History, cell: str, margin: float) -> bool:
    ratios = history.table.loc[history.table["cell"] == cell, "ratio_to_first"].astype(float)
    return bool(((ratios > 1 + margin) | (ratios < 1 / (1 + margin))).any())


def _rows(history: History, cells: list[str]) -> Iterator[tuple[str, ...]]:
    labels = labels_of(history)
    for cell in cells:
        own = history.table[history.table["cell"] == cell].set_index("place")
        texts = [
            _time(own.loc[place]) if place in own.index else NOT_PLANNED for place in range(len(history.campaigns))
        ]
        yield labels[cell], *texts


def _time(row) -> str:
    if is_unknown(row["time_s"]):
        return UNKNOWN
    return f"{duration(float(row['time_s']))} ({ratio_text(float(row['ratio_to_first']))})"
