"""The same cell in several campaigns, over time: its median in each, and what changed in the environment in between."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from regatta.campaign.matrix import canonical_json
from regatta.compare.campaigns import CampaignResults, match_key, stack_sides
from regatta.compare.text import aligned, environment_text
from regatta.core.errors import UserError
from regatta.core.statistics import over_launches
from regatta.core.text import (
    NOT_PLANNED,
    UNKNOWN,
    bracket,
    duration,
    is_unknown,
    percent,
    plural,
    ratio_text,
    spread_head,
)
from regatta.report.panels import Figure, Table, full_names
from regatta.report.plotting import Axis, Panel, Point, Series, draw
from regatta.store.collect import cell_row
from regatta.store.tables import CELL, REAL, TEXT, WHOLE, make_table, to_csv
from regatta.topics.comparison.environment import NOT_KNOWN, Difference, by_stack
from regatta.topics.comparison.tables import Times, times_by_cell

HISTORY = {
    "cell": TEXT,
    **CELL,
    "place": WHOLE,
    "folder": TEXT,
    "date_utc": TEXT,
    "num_launches": WHOLE,
    "interval": TEXT,
    "time_s": REAL,
    "time_low_s": REAL,
    "time_high_s": REAL,
    "ratio_to_first": REAL,
}


@dataclass(frozen=True)
class History:
    """campaigns: in the order of their first records, or as given where one is undated. table: HISTORY, `place` counts campaigns from 0, `cell` is the
    id in the latest. changes: for each campaign what differs from the one before. times: (cell, place) -> of each launch."""

    campaigns: list[CampaignResults]
    table: pd.DataFrame
    changes: list[list[Difference]]
    times: dict[tuple[str, int], list[float]]
    num_once: int

    def has_changed(self, place: int) -> bool:
        """Whether the environment of a campaign differs from that of the one before, as far as both are known."""
        return any(not change.name.startswith(NOT_KNOWN) for change in self.changes[place])


def history_of_cells(campaigns: list[CampaignResults]) -> History:
    """Return the history of the cells that have ok launches in two campaigns or more; `num_once` counts the others.

    Raises UserError where there is no such cell. Cells of two versions of a benchmark are two cells.
    """
    if all(campaign.first_time_utc for campaign in campaigns):
        campaigns = sorted(campaigns, key=lambda campaign: campaign.first_time_utc)
    found: dict[str, list[tuple[int, dict, Times]]] = {}
    for place, campaign in enumerate(campaigns):
        times = times_by_cell(campaign.measurements)
        for cell in campaign.campaign["cells"]:
            if cell["id"] in times:
                key = match_key(cell["spec"]) + canonical_json(cell["spec"]["version"])
                found.setdefault(key, []).append((place, cell, times[cell["id"]]))
    often = [entries for entries in found.values() if len(entries) > 1]
    if not often:
        told = ", ".join(str(campaign.folder) for campaign in campaigns)
        raise UserError(f"{told}: no cell was measured in two of them. Name campaigns that measure the same.")
    rows, values = [], {}
    for entries in often:
        last = entries[-1][1]
        for place, _, times in entries:
            values[last["id"], place] = [times[repeat][1] for repeat in sorted(times)]
        rows += [cell_row(last) | row for row in _rows(entries, campaigns)]
    sides = [dict(stack_sides(*pair)) for pair in itertools.pairwise(campaigns)]
    changes = [[], *(by_stack(pairs) for pairs in sides)]
    return History(campaigns, make_table(rows, HISTORY), changes, values, len(found) - len(often))


def by_change(history: History) -> list[str]:
    """Return the cells, the one whose time was furthest from its first one ahead."""
    ratio = history.table["ratio_to_first"].astype(float)
    size = np.abs(np.log(ratio)).groupby(history.table["cell"], sort=False).max()
    return list(size.sort_values(ascending=False, kind="stable").index)


def _rows(entries: list[tuple[int, dict, Times]], campaigns: list[CampaignResults]) -> list[dict]:
    first = None
    rows = []
    for place, cell, times in entries:
        spread = over_launches([times[repeat][1] for repeat in sorted(times)])
        first = spread.median if first is None else first
        measurements = campaigns[place].measurements
        own = measurements[(measurements["cell"] == cell["id"]) & (measurements["status"] == "ok")]
        rows.append(
            {
                "place": place,
                "folder": str(campaigns[place].folder),
                "date_utc": min(own["time_utc"].dropna(), default=None) if campaigns[place].first_time_utc else None,
                "num_launches": spread.num,
                "interval": spread.kind,
                "time_s": spread.median,
                "time_low_s": spread.low,
                "time_high_s": spread.high,
                "ratio_to_first": spread.median / first,
            }
        )
    return rows


# What the history of cells says in the terminal: the campaigns with what changed, then a row for each cell.

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
    lines += aligned([heads, *_history_rows(history, moved)], num_left=1) if moved else ["No cell left the margin."]
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
    return dict(zip(cells["cell"], full_names(cells), strict=True))


def _leaves(history: History, cell: str, margin: float) -> bool:
    ratios = history.table.loc[history.table["cell"] == cell, "ratio_to_first"].astype(float)
    return bool(((ratios > 1 + margin) | (ratios < 1 / (1 + margin))).any())


def _history_rows(history: History, cells: list[str]) -> Iterator[tuple[str, ...]]:
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


# Cells over time: a line for each, its time as a ratio of the first, a place on the axis for each campaign.

MOST_LINES, MOST_PANELS = 4, 3  # so that long names find room; all cells are in the table


def history_figures(history: History) -> list[Figure]:
    """Return the cells that changed most, MOST_LINES to a figure. A campaign whose environment changed is marked."""
    order = by_change(history)
    chosen = [order[begin : begin + MOST_LINES] for begin in range(0, len(order), MOST_LINES)][:MOST_PANELS]
    return [_figure(history, cells, index) for index, cells in enumerate(chosen)]


def history_table(history: History, cells: list[str] | None = None) -> Table:
    """Return the numbers of some cells or of all, the one that changed most first."""
    labels, rows = labels_of(history), []
    for cell in cells or by_change(history):
        for row in history.table[history.table["cell"] == cell].itertuples():
            date = UNKNOWN if is_unknown(row.date_utc) else row.date_utc[:10]
            spread = bracket(row.time_low_s, row.time_high_s, row.interval, duration)
            rows.append(
                (labels[cell], row.folder, date, duration(row.time_s), spread, str(row.num_launches), ratio_text(row.ratio_to_first))
            )  # fmt: skip
    spread = spread_head(history.table["interval"])
    heads = ("cell", "campaign", "date", "time", spread, "n", "ratio to the first")
    return Table("Median times over campaigns", heads, tuple(rows))


def _figure(history: History, cells: list[str], index: int) -> Figure:
    labels = labels_of(history)
    own = history.table[history.table["cell"].isin(cells)]
    places = range(len(history.campaigns))
    ticks = tuple((place, _tick(history, place)) for place in places)
    x = Axis("", low=-0.3, high=len(places) - 0.7, ticks=ticks)
    series = tuple(Series(labels[cell], _points(history, cell)) for cell in cells)
    panel = Panel(x, Axis("time / time in the first campaign"), series)
    last = own[own["cell"] == cells[0]].iloc[-1]
    alt = (
        f"{labels[cells[0]]} takes {ratio_text(last['ratio_to_first'])} times as long in {last['folder']} as at first."
    )
    changed = [str(place + 1) for place in places if history.has_changed(place)]
    caption = "Each point is one launch, the line joins the medians; below 1 is faster than at first."
    caption += f" {CHANGED}: the environment changed before campaign {', '.join(changed)}." if changed else ""
    title = (
        f"Cells that changed most ({index + 1})"
        if len(history.table["cell"].unique()) > MOST_LINES
        else "Cells over time"
    )
    return Figure(f"history-{index + 1}", title, draw(panel), alt, caption, history_table(history, cells), to_csv(own))


def _tick(history: History, place: int) -> str:
    date = (history.campaigns[place].first_time_utc or "")[2:10]
    return f"{date}\n{place + 1}{f' {CHANGED}' if history.has_changed(place) else ''}"


def _points(history: History, cell: str) -> tuple[Point, ...]:
    own = history.table[history.table["cell"] == cell]
    first = float(own["time_s"].iloc[0])
    return tuple(
        Point(int(row.place), tuple(v / first for v in history.times[cell, int(row.place)]), float(row.ratio_to_first))
        for row in own.itertuples()
    )
