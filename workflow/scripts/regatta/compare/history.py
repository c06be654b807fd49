"""The same cells in several campaigns: the median in each, and changes of the environment in between."""

import itertools
from dataclasses import dataclass

import pandas as pd

from regatta.campaign.matrix import canonical_json
from regatta.compare.campaigns import CampaignResults, match_key, stack_sides, times_of
from regatta.core.errors import UserError
from regatta.core.statistics import over_launches
from regatta.store.collect import cell_row
from regatta.store.tables import CELL, REAL, TEXT, WHOLE, make_table
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
    **dict.fromkeys(("time_s", "time_low_s", "time_high_s", "ratio_to_first"), REAL),
}


@dataclass(frozen=True)
class History:
    """Cells over campaigns.

    campaigns: in the order of their first records, or as given where one is undated. table: HISTORY, where `place`
    counts campaigns from 0 and `cell` is the id in the latest. changes: for each campaign what differs from the one
    before.
    times: (cell, place) -> of each launch. num_once: number of cells in one campaign only.
    """

    campaigns: list[CampaignResults]
    table: pd.DataFrame
    changes: list[list[Difference]]
    times: dict[tuple[str, int], list[float]]
    num_once: int

    def has_changed(self, place: int) -> bool:
        """Return whether the environment differs from that of the campaign before, as far as both are known."""
        return any(not change.name.startswith(NOT_KNOWN) for change in self.changes[place])


def history_of_cells(campaigns: list[CampaignResults]) -> History:
    """Return the history of the cells that have ok launches in two campaigns or more.

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
        folders = ", ".join(str(campaign.folder) for campaign in campaigns)
        raise UserError(f"{folders}: no cell was measured in two of them. Name campaigns that measure the same.")
    rows, values = [], {}
    for entries in often:
        last = entries[-1][1]
        for place, _, times in entries:
            values[last["id"], place] = times_of(times)
        rows += [cell_row(last) | row for row in _rows(entries, campaigns)]
    sides = [dict(stack_sides(*pair)) for pair in itertools.pairwise(campaigns)]
    changes = [[], *(by_stack(pairs) for pairs in sides)]
    return History(campaigns, make_table(rows, HISTORY), changes, values, len(found) - len(often))


def largest_changes(history: History) -> pd.Series:
    """Return the largest ratio of each cell to its first time, up or down, in descending order."""
    ratio = history.table["ratio_to_first"].astype(float)
    size = ratio.where(ratio >= 1, 1 / ratio).groupby(history.table["cell"], sort=False).max()
    return size.sort_values(ascending=False, kind="stable")


def _rows(entries: list[tuple[int, dict, Times]], campaigns: list[CampaignResults]) -> list[dict]:
    first = None
    rows = []
    for place, cell, times in entries:
        spread = over_launches(times_of(times))
        first = first or spread.median
        measurements = campaigns[place].measurements
        ok = measurements[(measurements["cell"] == cell["id"]) & (measurements["status"] == "ok")]
        rows.append(
            {
                "place": place,
                "folder": str(campaigns[place].folder),
                "date_utc": min(ok["time_utc"].dropna(), default=None) if campaigns[place].first_time_utc else None,
                "num_launches": spread.num,
                "interval": spread.kind,
                "time_s": spread.median,
                "time_low_s": spread.low,
                "time_high_s": spread.high,
                "ratio_to_first": spread.median / first,
            }
        )
    return rows
