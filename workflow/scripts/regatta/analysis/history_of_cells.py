"""The same cell in several campaigns, over time: its median in each, and what changed in the environment in between."""

import itertools
from dataclasses import dataclass

import numpy as np
import pandas as pd

from regatta.analysis.campaigns_compared import CampaignResults, match_key, stack_sides
from regatta.analysis.collect import cell_row
from regatta.analysis.comparison import Times, times_by_cell
from regatta.analysis.environment_differences import NOT_KNOWN, Difference, by_stack
from regatta.analysis.tables import CELL, REAL, TEXT, WHOLE, make_table
from regatta.campaign.matrix import canonical_json
from regatta.errors import UserError
from regatta.statistics import over_launches

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
