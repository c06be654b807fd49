"""Key figures over the campaigns of a results folder: one cell is followed through each, with environment changes."""

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from regatta.campaign.expansion import canonical_json
from regatta.compare.campaigns import CampaignResults, match_key, read_campaign
from regatta.compare.comparison_output import difference_text
from regatta.core.errors import UserError
from regatta.core.text import UNKNOWN, one_line, ratio_text
from regatta.kit.columns import EACH, Column, Row, table_rows
from regatta.model.frozen import FrozenCell, names_by_id
from regatta.store.launch_files import read_file
from regatta.tables.bandwidth import BUSBW
from regatta.tables.baselines import BASELINE, EFFICIENCY, EFFICIENCY_KIND
from regatta.tables.cells import CellValues, cells_table, rows_of
from regatta.tables.facts import NOT_KNOWN, differences_by_stack
from regatta.tables.metrics import THROUGHPUT
from regatta.tables.primary_times import primary_columns

# Reading a campaign's measurements takes tens of milliseconds, so the page does not follow hundreds.
MOST_CAMPAIGNS, MOST_SERIES = 12, 12
LEAST_AXIS = 0.01  # change at the end of the axis of key figures: smaller ones are noise
MOST_MOVED = 3  # cells whose time changed most
MOST_CHANGES, MOST_TEXT = 4, 200  # environment changes in one row, and characters of each

Keys = dict[str, dict]  # what a cell measures, with its version -> the cell
TimesOfCells = dict[str, dict[int, Row]]  # rows with the columns of TIME: by key, then by the place of the campaign


@dataclass(frozen=True)
class KeyFigure:
    """One key figure. cell: name of its cell. found: number and text by the place of the campaign."""

    title: str
    cell: str
    found: dict[int, tuple[float, str]]

    @cached_property
    def ratios(self) -> dict[int, float]:
        """Return the ratio of each number to the first one, by the place of the campaign; none if one is 0."""
        first = self.found[min(self.found)][0]
        numbers = {place: self.found[place][0] for place in sorted(self.found)}
        return {place: number / first for place, number in numbers.items()} if all(numbers.values()) else {}

    @property
    def changes(self) -> list[float | None]:
        """Return the ratios of the last number to the first and to the one before."""
        ratios = list(self.ratios.values())
        return [ratios[-1], ratios[-1] / ratios[-2]] if ratios else [None, None]


@dataclass(frozen=True)
class Trend:
    """Campaigns with cells in common, oldest first. changes: for each, what differs from the one before, as text;
    None if their environments are unknown or they share no stack. num_older: campaigns that are left out."""

    folders: list[Path]
    dates: list[str]
    changes: list[list[str] | None]
    columns: list[KeyFigure]
    is_shared: list[bool]  # whether a campaign has a cell in common with the one before
    num_older: int

    @cached_property
    def end(self) -> float:
        """Return the end of the common axis of key figures: log of the largest ratio, at least LEAST_AXIS."""
        ratios = [ratio for column in self.columns for ratio in column.ratios.values()]
        return max(math.log1p(LEAST_AXIS), *(abs(math.log(ratio)) for ratio in ratios))

    def x(self, place: int) -> float:
        return x_of_campaign(place, len(self.folders))

    def dots(self, column: KeyFigure) -> list[tuple[float, float]]:
        """Return the places of the ratios of a key figure in percent of its box; 1 is in the middle."""
        ratios = column.ratios.items()
        return [(self.x(place), round(50 - 42 * math.log(ratio) / self.end, 1)) for place, ratio in ratios]

    @property
    def marks(self) -> list[float]:
        return change_marks(self.changes)

    @property
    def last_change(self) -> int | None:
        """Return the place of the last campaign whose environment changed; None if no change is known."""
        return max((place for place, changes in enumerate(self.changes) if changes), default=None)


def x_of_campaign(campaign: int, num: int) -> float:
    """Return the place of a campaign in its box, in percent."""
    return round(3 + 94 * campaign / max(num - 1, 1), 1)


def change_marks(changes: list[list[str] | None]) -> list[float]:
    """Return the places of the campaigns whose environment changed."""
    return [x_of_campaign(place, len(changes)) for place, texts in enumerate(changes) if texts]


@dataclass(frozen=True)
class Trends:
    """trends: newest first. num_more: groups of campaigns that are left out. problems: what could not be read."""

    trends: list[Trend] = field(default_factory=list)
    num_more: int = 0
    problems: list[str] = field(default_factory=list)


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


def read_trends(keys: dict[Path, Keys]) -> Trends:
    """Return the trends of campaigns with cells in common. keys: newest campaign first."""
    groups, found, problems = connected(keys), [], []
    for group in groups[:MOST_SERIES]:
        campaigns = []
        for folder in group[:MOST_CAMPAIGNS]:
            try:
                campaigns.append(read_campaign(folder))
            except (OSError, UserError) as error:
                problems.append(str(error))
        campaigns = [campaign for campaign in campaigns if campaign.first_time_utc]
        times = times_of_cells(campaigns := sorted(campaigns, key=lambda campaign: campaign.first_time_utc))
        if times:  # else cells in common, but none measured twice
            found.append(trend_of(campaigns, times, max(len(group) - MOST_CAMPAIGNS, 0)))
    return Trends(found, max(len(groups) - MOST_SERIES, 0), problems)


TIME = Column("time_s", "time", shown_as=EACH, interval="interval")


def times_of_cells(campaigns: list[CampaignResults]) -> TimesOfCells:
    """Return the times of the cells that were measured in two or more campaigns."""
    found: TimesOfCells = defaultdict(dict)
    columns = primary_columns(*(campaign.measurements for campaign in campaigns))
    for place, campaign in enumerate(campaigns):
        values = CellValues(campaign.campaign, campaign.measurements)
        times = values.mean(values.primary_times_in(columns))
        ends = dict(zip(TIME.names, times.ends, strict=True))
        rows = table_rows(pd.DataFrame(ends | {"num_launches": times.num, "interval": times.kinds}))
        for key, cell in keys_of(campaign.campaign.cells).items():
            if (row := rows[values.places[cell.id]]).num_launches:
                found[key][place] = row
    return {key: times for key, times in found.items() if len(times) > 1}


def ratios_to_first(times: dict[int, Row]) -> dict[int, float]:
    first = next(iter(times.values())).time_s
    return {place: row.time_s / first for place, row in times.items()}


def most_moved(times: TimesOfCells) -> list[str]:
    """Return the keys by their largest ratio to the first time, up or down, in descending order."""
    sizes = {key: max(max(r, 1 / r) for r in ratios_to_first(of).values()) for key, of in times.items()}
    return sorted(times, key=sizes.get, reverse=True)


def trend_of(campaigns: list[CampaignResults], times: TimesOfCells, num_older: int = 0) -> Trend:
    """Return the trend of campaigns, oldest first. times: of `times_of_cells`."""
    keys = [keys_of(campaign.campaign.cells) for campaign in campaigns]
    return Trend(
        [campaign.folder for campaign in campaigns],
        [campaign.first_time_utc[:10] for campaign in campaigns],
        [None, *(environment_changes(*pair) for pair in itertools.pairwise(campaigns))],
        list(_key_figures(campaigns, times, keys)),
        [False, *(not a.keys().isdisjoint(b) for a, b in itertools.pairwise(keys))],
        num_older,
    )


def environment_changes(*pair: CampaignResults) -> list[str] | None:
    """Return how the environment of a campaign differs from the one before; None if unknown or no stack is in both."""
    changes = differences_by_stack(*(campaign.facts for campaign in pair))
    if changes is None or not all(campaign.has_launch_files for campaign in pair):
        return None
    if all(change.name.startswith(NOT_KNOWN) for change in changes):
        return []
    texts = [one_line(difference_text(change, "before", "since"), MOST_TEXT) for change in changes]
    more = len(texts) - MOST_CHANGES
    return texts[:MOST_CHANGES] + ([f"and {more} more"] if more > 0 else [])


def _text(column: Column, row) -> str:
    text = " ".join(text for text in (column.cell(row), column.ends(row)) if text != UNKNOWN)
    return f"{text}, n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{row.num_launches}"


NEEDED = (EFFICIENCY, EFFICIENCY_KIND, BASELINE, THROUGHPUT, BUSBW)
FIGURES = (("train_step", replace(EFFICIENCY, applies=None)), ("train_step", THROUGHPUT), ("collective", BUSBW))


def _key_figures(campaigns: list[CampaignResults], times: TimesOfCells, keys: list[Keys]) -> Iterator[KeyFigure]:
    """Yield each key figure that two or more campaigns have for the same cell, then the times that changed most."""
    cells = {key: cell for of_campaign in keys for key, cell in of_campaign.items() if key in times}  # the latest
    names = names_by_id(cells.values())
    name_of = {key: one_line(names[cell.id].full, MOST_TEXT) for key, cell in cells.items()}
    tables = [cells_table(campaign.campaign, campaign.measurements, NEEDED) for campaign in campaigns]
    for benchmark, column in FIGURES:
        found: dict[str, dict[int, tuple[float, str]]] = defaultdict(dict)  # key -> place -> number, text
        for place, (table, of_campaign) in enumerate(zip(tables, keys, strict=True)):
            key_of = {cell.id: key for key, cell in of_campaign.items() if key in times}
            for row in table_rows(rows_of(table, benchmark).dropna(subset=column.name)):
                if row.cell in key_of:
                    found[key_of[row.cell]][place] = getattr(row, column.name), _text(column, row)
        # The highest cell of the latest campaign would seem to rise, by selection alone.
        ranks = {
            key: (
                *(max(values), cells[key].world_size, len(values)),
                *(min(number for number, _ in values.values()), key),
            )
            for key, values in found.items()
            if len(values) > 1
        }
        if ranks:
            key = max(ranks, key=ranks.get)
            yield KeyFigure(column.heading(cells[key].device), name_of[key], found[key])
    for key in most_moved(times)[:MOST_MOVED]:
        values = {}
        for place, ratio in ratios_to_first(times[key]).items():
            row = times[key][place]
            values[place] = row.time_s, f"{_text(TIME, row)}, ratio to first {ratio_text(ratio)}"
        yield KeyFigure("Change in time", name_of[key], values)
