"""Campaigns of a results folder with cells in common: key figures, and the median of their times over campaigns."""

import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from regatta.campaign.expansion import canonical_json
from regatta.compare.campaigns import CampaignResults, difference_text, read_campaign
from regatta.compare.since_previous import SincePrevious, since_previous
from regatta.core.errors import UserError
from regatta.core.text import UNKNOWN, one_line, signed_percent
from regatta.kit.columns import Column, Row, table_rows
from regatta.model.frozen import FrozenCell, names_by_id
from regatta.store.launch_files import read_file
from regatta.tables.bandwidth import BUSBW
from regatta.tables.cells import cells_table, rows_of
from regatta.tables.counterparts import match_key
from regatta.tables.facts import NOT_KNOWN, Difference, differences_by_stack
from regatta.tables.metrics import THROUGHPUT
from regatta.tables.pairs import MARGIN

# Reading a campaign's measurements takes tens of milliseconds, so the index does not follow hundreds.
MOST_CAMPAIGNS, MOST_SERIES = 12, 12
LEAST_AXIS = 0.01  # change at the end of an axis: smaller ones are noise
WITHIN = 42  # percent of a chart from its middle to the end of the axis: dots have a size
MOST_CHANGES, MOST_TEXT = 4, 200  # environment changes in one row, and characters of each

Keys = dict[str, dict]  # what a cell measures, with its version -> the cell


@dataclass(frozen=True)
class Point:
    """What a campaign has of a key figure. value: the number as text. text: with its interval and launches."""

    number: float
    value: str
    text: str


@dataclass(frozen=True)
class Followed:
    """A key figure of one cell over campaigns. cell: its name. points: by the place of the campaign."""

    title: str
    cell: str
    points: dict[int, Point]


@dataclass(frozen=True)
class RatioAxis:
    """A logarithmic axis of ratios, with 1 in its middle. end: log of its highest ratio. margin: log."""

    end: float
    margin: float

    @classmethod
    def of(cls, ratios: Iterable[float], margin: float) -> "RatioAxis":
        """Return an axis that spans some ratios, and at least twice the margin."""
        log = math.log1p(margin)
        return cls(max(2 * log, math.log1p(LEAST_AXIS), *(abs(math.log(ratio)) for ratio in ratios)), log)

    def percent(self, ratio: float, half: float = 50) -> float:
        """Return the place of a ratio. half: of the axis."""
        return round(50 + half * math.log(ratio) / self.end, 1)


def changes_of(campaigns: list[CampaignResults]) -> list[list[str] | None]:
    """Return how the environment of each campaign differs from the one before; None if unknown."""
    return [None, *itertools.starmap(_environment_changes, itertools.pairwise(campaigns))]


def _environment_changes(*pair: CampaignResults) -> list[str] | None:
    """Return how the second environment differs from the first; None if unknown or no stack is in both."""
    changes = differences_by_stack(*(campaign.facts for campaign in pair))
    if changes is None or all(change.name.startswith(NOT_KNOWN) for change in changes):
        return changes and []
    texts = [one_line(_change_text(change), MOST_TEXT) for change in changes]
    more = len(texts) - MOST_CHANGES
    return texts[:MOST_CHANGES] + ([f"and {more} more"] if more > 0 else [])


def _change_text(change: Difference) -> str:
    """Return `torch 2.10.0 → 2.11.0`."""
    if change.name.startswith(NOT_KNOWN):
        return difference_text(change, "before", "since")
    return f"{change.name} {change.reference} \N{RIGHTWARDS ARROW} {change.other}"


# Key figures of the campaigns of a results folder.


@dataclass(frozen=True)
class Trend:
    """Campaigns with cells in common, oldest first. followed: their key figures.

    changes: how the environment of each differs from the one before, as texts; None if unknown. since: how each
    compares with an earlier one; None without one. num_older: campaigns that are left out.
    """

    folders: list[Path]
    names: list[str]
    changes: list[list[str] | None]
    followed: list[Followed]
    since: list[SincePrevious | None]
    num_older: int

    @cached_property
    def levels(self) -> list[dict[int, float]]:
        """Return for each campaign the median times of those that it compares with, by place; the first has 1."""
        found: list[dict[int, float]] = []
        for place, since in enumerate(self.since):
            earlier = found[since.base] if since else {}
            found.append(earlier | {place: earlier[since.base] * since.time_ratio if since else 1.0})
        return found

    @cached_property
    def axis(self) -> RatioAxis:
        return RatioAxis.of((ratio for of in self.levels for ratio in of.values()), MARGIN)

    def height(self, ratio: float) -> float:
        """Return the place of a ratio in a chart, in percent from its top; 1 is in the middle."""
        return self.axis.percent(ratio, -WITHIN)

    def dots(self, place: int) -> list[tuple[float, float, str, str]]:
        """Return the place of each campaign up to one in percent, its height, its verdict, and a text."""
        found = []
        for at, ratio in self.levels[place].items():
            x, since = round(3 + 94 * at / max(len(self.since) - 1, 1), 1), self.since[at]
            text = f"{self.names[at]}: {signed_percent(ratio)} %"
            found.append((x, self.height(ratio), since.verdict if since else "base", text))
        return found

    @property
    def is_worse(self) -> bool:
        """Return whether the latest campaign has slower cells."""
        return "slower" in (self.since[-1].directions if self.since[-1] else ())

    @property
    def last_change(self) -> int | None:
        """Return the place of the last campaign with slower or faster cells; None if no campaign has any."""
        return max((place for place, of in enumerate(self.since) if of and of.directions), default=None)


@dataclass(frozen=True)
class Trends:
    """trends: newest first. num_more: groups of campaigns that are left out. problems: what could not be read."""

    trends: list[Trend] = field(default_factory=list)
    num_more: int = 0
    problems: dict[Path, str] = field(default_factory=dict)


def read_keys(frozen: Path) -> Keys | None:
    """Return the cells of a frozen campaign; None if it is damaged, empty if it is imported and thus not dated.

    The file is not validated, which would take seconds for hundreds of campaigns.
    """
    try:
        campaign = json.loads(read_file(frozen).decode())
        return {} if "imported" in campaign else keys_of(map(FrozenCell.from_json, campaign["cells"]))
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None


def keys_of(cells: Iterable[FrozenCell]) -> Keys:
    """Return the cells by what compare.py matches, and by version: those of another one are other cells."""
    return {match_key(cell) + canonical_json(cell.version): cell for cell in cells}


def connected(keys: dict[Path, Keys]) -> list[list[Path]]:
    """Return the groups of two or more campaigns that have cells in common, directly or through others.

    keys: newest campaign first, as the groups and their members.
    """
    groups: list[tuple[set[str], list[Path]]] = []
    for folder, cells in keys.items():
        near, far = [], []
        for group in groups:
            (far if group[0].isdisjoint(cells) else near).append(group)
        members = [member for _, of_group in near for member in of_group]
        groups = [*far, (set(cells).union(*(of_group for of_group, _ in near)), [*members, folder])]
    places = {folder: place for place, folder in enumerate(keys)}
    found = [sorted(members, key=places.get) for _, members in groups if len(members) > 1]
    return sorted(found, key=lambda members: places[members[0]])


def read_trends(keys: dict[Path, Keys | None]) -> Trends:
    """Return the trends of campaigns with cells in common. keys: newest campaign first; None if damaged."""
    groups, found, problems = connected({folder: cells for folder, cells in keys.items() if cells}), [], {}
    for group in groups[:MOST_SERIES] + [[folder] for folder, cells in keys.items() if cells is None]:
        campaigns = []
        for folder in group[:MOST_CAMPAIGNS]:
            try:
                campaigns.append(read_campaign(folder))
            except (OSError, UserError) as error:
                problems[folder] = str(error)
        campaigns = [campaign for campaign in campaigns if campaign.first_time_utc]
        campaigns.sort(key=lambda campaign: campaign.first_time_utc)
        if names := measured_twice(campaigns):  # else cells in common, but none measured twice
            found.append(_trend_of(campaigns, names, max(len(group) - MOST_CAMPAIGNS, 0)))
    return Trends(found, max(len(groups) - MOST_SERIES, 0), problems)


def _trend_of(campaigns: list[CampaignResults], names: dict[str, str], num_older: int) -> Trend:
    keys = [keys_of(campaign.campaign.cells) for campaign in campaigns]
    return Trend(
        [campaign.folder for campaign in campaigns],
        [one_line(campaign.folder.name, MOST_TEXT) for campaign in campaigns],
        changes_of(campaigns),
        list(_key_figures(campaigns, names, keys)),
        since_previous(campaigns),
        num_older,
    )


FIGURES = {"train_step": THROUGHPUT, "collective": BUSBW}  # not ratios within a campaign, whose two sides may slow down


def measured_twice(campaigns: list[CampaignResults]) -> dict[str, str]:
    """Return the names of the cells with ok launches in two or more campaigns, by what they measure."""
    counts, cells = Counter(), {}
    for campaign in campaigns:
        ok = set(campaign.measurements.loc[campaign.measurements["status"] == "ok", "cell"])
        measured = {key: cell for key, cell in keys_of(campaign.campaign.cells).items() if cell.id in ok}
        counts.update(measured.keys())
        cells |= measured
    cells = {key: cell for key, cell in cells.items() if counts[key] > 1}
    names = names_by_id(cells.values())
    return {key: one_line(names[cell.id].full, MOST_TEXT) for key, cell in cells.items()}


def _text(column: Column, row: Row) -> str:
    text = " ".join(text for text in (column.cell(row), column.ends(row)) if text != UNKNOWN)
    return f"{text}, n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{row.num_launches}"


def _key_figures(campaigns: list[CampaignResults], names: dict[str, str], keys: list[Keys]) -> Iterator[Followed]:
    """Yield each key figure that two or more campaigns have for the same cell. names: by what it measures."""
    cells = {key: cell for of_campaign in keys for key, cell in of_campaign.items() if key in names}  # the latest
    tables = [cells_table(campaign.campaign, campaign.measurements, FIGURES.values()) for campaign in campaigns]
    for benchmark, column in FIGURES.items():
        found: dict[str, dict[int, Point]] = defaultdict(dict)
        for place, (table, of_campaign) in enumerate(zip(tables, keys, strict=True)):
            key_of = {cell.id: key for key, cell in of_campaign.items() if key in names}
            for row in table_rows(rows_of(table, benchmark).dropna(subset=column.name)):
                if row.cell in key_of:
                    point = Point(getattr(row, column.name), column.cell(row), _text(column, row))
                    found[key_of[row.cell]][place] = point
        # The highest cell of the latest campaign would seem to rise, by selection alone.
        ranks = {
            (max(points), cells[key].world_size, len(points), min(point.number for point in points.values()), key): key
            for key, points in found.items()
            if len(points) > 1
        }
        if ranks:
            key = ranks[max(ranks)]
            yield Followed(column.heading(cells[key].device), names[key], found[key])
