"""More than two campaigns: each compared with the first, the base, and what changed in the environment in between."""

import itertools
import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from regatta.compare.campaigns import CampaignResults, CampaignsCompared, compare_campaigns
from regatta.compare.comparison_output import aligned, campaign_text, distinct_names, names_and_lists, statements
from regatta.compare.pair_list import change_text
from regatta.compare.trends import change_marks, environment_changes, x_of_campaign
from regatta.core.text import UNKNOWN, duration, is_unknown, with_minus_signs
from regatta.kit.columns import Row, table_rows
from regatta.model.frozen import names_by_id
from regatta.tables.pairs import judged_rows

# Changes at the end of the axis. It is linear up to 0.5, beyond logarithmic: of 3, the ends are +300 and -75 %.
LINEAR_ENDS, LOG_ENDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5), (1.0, 3.0, 4.0, 9.0, 19.0, 99.0, 999.0)


@dataclass(frozen=True)
class SeveralCampaigns:
    """Campaigns in the given order, the base first. compared: of each other one with the base.

    changes: how the environment of each differs from the one before, as texts; None if unknown.
    """

    campaigns: list[CampaignResults]
    compared: list[CampaignsCompared]
    changes: list[list[str] | None]

    @cached_property
    def names(self) -> list[str]:
        return distinct_names(*self.campaigns)

    @cached_property
    def cells(self) -> list["CellHistory"]:
        """Return the cells of the base that were compared with any other campaign, the largest change first."""
        found: dict[str, dict[int, Row]] = {}
        for place, of in enumerate(self.compared, start=1):
            for row in table_rows(judged_rows(of.comparisons)):
                found.setdefault(row.reference, {})[place] = row
        by_id = self.campaigns[0].campaign.by_id
        names = names_by_id([cell for cell in by_id.values() if cell.id in found])
        cells = [CellHistory(names[cell].full, found[cell]) for cell in by_id if cell in found]
        return sorted(cells, key=lambda cell: -cell.largest)

    @cached_property
    def margin(self) -> float:
        return max(row.margin_ratio for cell in self.cells for row in cell.rows.values())

    @cached_property
    def end(self) -> float:
        """Return the change at the upper end of the charts' common axis, which has all intervals and the margin."""
        rows = [row for cell in self.cells for row in cell.rows.values()]
        values = [(row.time_ratio, row.time_low_ratio, row.time_high_ratio) for row in rows]
        ratios = [1 + self.margin, *(value for of in values for value in of if not is_unknown(value))]
        size, log_size = max(abs(ratio - 1) for ratio in ratios), max(abs(math.log(ratio)) for ratio in ratios)
        found = next((end for end in LINEAR_ENDS if size <= end), None)
        return found or next((end for end in LOG_ENDS if log_size <= math.log1p(end)), LOG_ENDS[-1])

    @property
    def is_linear(self) -> bool:
        return self.end <= LINEAR_ENDS[-1]

    @property
    def end_texts(self) -> list[str]:
        """Return the labels of the axis from top to bottom, in percent."""
        low = self.end if self.is_linear else 1 - 1 / (1 + self.end)
        return [f"+{100 * self.end:.3g} %", "0", with_minus_signs(f"-{100 * low:.3g} %")]

    def height(self, ratio: float) -> float:
        """Return the place of a ratio in a chart, in percent from its top; one beyond the axis is at its end."""
        part = (ratio - 1) / self.end if self.is_linear else math.log(ratio) / math.log1p(self.end)
        return round(50 * (1 - min(max(part, -1.0), 1.0)), 1)

    @property
    def marks(self) -> list[float]:
        return change_marks(self.changes)

    def first_in(self, verdict: str) -> list[tuple[str, int]]:
        """Return in which campaign cells have a verdict for the first time, as (name, number of cells)."""
        firsts = (
            min((at for at, row in cell.rows.items() if row.verdict == verdict), default=0) for cell in self.cells
        )
        counts = Counter(firsts)
        return [(name, counts[place]) for place, name in enumerate(self.names) if place and counts[place]]


@dataclass(frozen=True)
class CellHistory:
    """One cell of the base. rows: how it compares with the base, by the place of the campaign."""

    name: str
    rows: dict[int, Row]

    @property
    def largest(self) -> float:
        """Return the largest change, up or down, as a logarithm."""
        return max(abs(math.log(row.time_ratio)) for row in self.rows.values())

    @property
    def is_beyond_margin(self) -> bool:
        """Return whether a ratio or a verdict is beyond the margin in any campaign."""
        rows = self.rows.values()
        is_beyond = (abs(math.log(row.time_ratio)) > math.log1p(row.margin_ratio) for row in rows)
        return any(is_beyond) or any(row.verdict in ("faster", "slower") for row in rows)

    @property
    def base_id(self) -> str:
        return next(iter(self.rows.values())).reference

    @property
    def base_time(self) -> str:
        return duration(next(iter(self.rows.values())).reference_time_s)

    def dots(self, history: SeveralCampaigns) -> list[tuple[float, float, list[float], str, str]]:
        """Return of each campaign the place of its ratio to the base and of its ends, its verdict, and a text."""
        num = len(history.campaigns)
        found = [(x_of_campaign(0, num), 50.0, [], "base", f"{history.names[0]}: base")]
        for place, row in self.rows.items():
            known = [] if is_unknown(row.time_low_ratio) else [row.time_high_ratio, row.time_low_ratio]
            text = f"{history.names[place]}: {change_text(row)} %, {row.verdict}"
            places = x_of_campaign(place, num), history.height(row.time_ratio), list(map(history.height, known))
            found.append((*places, row.verdict, text))
        return found


def compare_several(campaigns: list[CampaignResults], margin: float) -> SeveralCampaigns:
    """Return how campaigns compare with the first one. Raises UserError if one has no cell in common with it."""
    compared = [compare_campaigns(campaigns[0], other, margin) for other in campaigns[1:]]
    changes = [None, *(environment_changes(*pair) for pair in itertools.pairwise(campaigns))]
    return SeveralCampaigns(campaigns, compared, changes)


HOW_TO_READ = "Change in time against base in %: positive is slower. [ ]: 95 % confidence interval; ( ): range."


def several_text(history: SeveralCampaigns, shows_all: bool = False) -> str:
    """Return the text on more than two campaigns. shows_all: also cells within the margin in each."""
    names = history.names
    lines = [f"{name}: {campaign_text(of)}" for name, of in zip(["base", *names[1:]], history.campaigns, strict=True)]
    for name, of in zip(names[1:], history.compared, strict=True):
        found = [
            lead + (f". {text}" if text else "") for anchor, _, lead, text in statements(of) if anchor != "environment"
        ]
        lines += ["", f"{name} (test) vs. base", *(f"  {line}" for line in found)]
        lines += [f"  {title}" for title in names_and_lists(of)[1]]
    for name, before, changes in zip(names[1:], names, history.changes[1:], strict=False):
        text = UNKNOWN if changes is None else "; ".join(changes) or "no change recorded"
        lines += [f"Environment of {name} since {before}: {text}"]
    shown = [cell for cell in history.cells if shows_all or cell.is_beyond_margin]
    if shown:
        rows = [(cell.name, cell.base_time, *changes_of(cell, history)) for cell in shown]
        lines += ["", HOW_TO_READ, "", *aligned([("cell", "base", *names[1:]), *rows])]
    if num := len(history.cells) - len(shown):
        lines += ["", f"Not shown: {num} of {len(history.cells)} cells, within the margin. --all shows them."]
    return "\n".join(lines) + "\n"


def changes_of(cell: CellHistory, history: SeveralCampaigns) -> list[str]:
    """Return the change in each campaign but the base; n/a where it was not compared."""
    places = range(1, len(history.campaigns))
    return [change_text(cell.rows[place]) if place in cell.rows else UNKNOWN for place in places]
