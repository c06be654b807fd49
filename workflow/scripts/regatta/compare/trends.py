"""Key figures over the campaigns of a results folder: one cell is followed through each, with environment changes."""

import contextlib
import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from regatta.campaign.matrix import canonical_json
from regatta.compare.campaigns import History, history_of_cells, largest_changes, match_key, read_campaign, stack_sides
from regatta.compare.output import difference_text
from regatta.core.errors import UserError
from regatta.core.text import bracket, duration, is_unknown, one_line, percent, ratio_text, three
from regatta.report.panels import full_names
from regatta.store.csv_files import interval_columns, read_csv
from regatta.store.launch_files import read_file
from regatta.topics.communication import COLLECTIVES
from regatta.topics.scaling.tables import SCALING

# Reading a campaign's measurements takes tens of milliseconds, so the page does not follow hundreds.
MOST_CAMPAIGNS, MOST_SERIES = 12, 12
MOST_CHANGES, MOST_TEXT = 4, 200  # environment changes in one row, and characters of each

Keys = dict[str, str]  # what a cell measures, with its version and cluster -> id of the cell


@dataclass(frozen=True)
class Value:
    """A number of one campaign. bar_percent: its length relative to the largest of the column."""

    number: float
    text: str
    bar_percent: float = 0.0


@dataclass(frozen=True)
class Column:
    """One key figure. cell: name of the cell that it is measured on. values: one per campaign, None if unknown."""

    title: str
    cell: str
    values: list[Value | None]


@dataclass(frozen=True)
class Trend:
    """Campaigns with cells in common, oldest first. changes: for each, what differs from the one before, as text;
    None if their environments are unknown or they share no stack. num_older: campaigns that are left out."""

    folders: list[Path]
    dates: list[str]
    changes: list[list[str] | None]
    columns: list[Column]
    is_shared: list[bool]  # whether a campaign has a cell in common with the one before
    num_older: int


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
        return {} if "imported" in campaign else keys_of(campaign)
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None


def keys_of(campaign: dict) -> Keys:
    specs = {cell["id"]: cell["spec"] for cell in campaign["cells"]}
    machine = ("version", "cluster", "node_type")
    return {match_key(spec) + canonical_json([*map(spec.get, machine)]): cell for cell, spec in specs.items()}


def connected(keys: dict[Path, Keys]) -> list[list[Path]]:
    """Return the groups of two or more campaigns that have cells in common, directly or through others.

    keys: newest campaign first, as the groups and their members.
    """
    group_of: dict[Path, list[Path]] = {}
    first_with: dict[str, Path] = {}
    for folder, cells in keys.items():
        group_of[folder] = [folder]
        for key in cells:
            known, group = group_of[first_with.setdefault(key, folder)], group_of[folder]
            if known is not group:
                small, large = sorted((known, group), key=len)
                large += small
                group_of |= dict.fromkeys(small, large)
    order = {folder: place for place, folder in enumerate(keys)}
    groups = {id(group): sorted(group, key=order.get) for group in group_of.values() if len(group) > 1}
    return sorted(groups.values(), key=lambda group: order[group[0]])


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
        try:
            history = history_of_cells(campaigns)
        except UserError:  # cells in common, but none measured twice
            continue
        found.append(trend_of(history, max(len(group) - MOST_CAMPAIGNS, 0)))
    return Trends(found, max(len(groups) - MOST_SERIES, 0), problems)


def trend_of(history: History, num_older: int = 0) -> Trend:
    campaigns = history.campaigns
    keys = [keys_of(campaign.campaign) for campaign in campaigns]
    changes = [None, *(_changes(history, place) for place in range(1, len(campaigns)))]
    return Trend(
        [campaign.folder for campaign in campaigns],
        [campaign.first_time_utc[:10] for campaign in campaigns],
        changes,
        list(_columns(history, keys)),
        [False, *(not a.keys().isdisjoint(b) for a, b in itertools.pairwise(keys))],
        num_older,
    )


def _changes(history: History, place: int) -> list[str] | None:
    pair = history.campaigns[place - 1 : place + 1]
    if not all(campaign.headers for campaign in pair) or not any(stack_sides(*pair)):
        return None
    if not history.has_changed(place):
        return []
    texts = [one_line(difference_text(change, "before", "since"), MOST_TEXT) for change in history.changes[place]]
    more = len(texts) - MOST_CHANGES
    return texts[:MOST_CHANGES] + ([f"and {more} more"] if more > 0 else [])


def _efficiency(row) -> tuple[float, str]:
    ends = row.efficiency_low_ratio, row.efficiency_high_ratio
    return row.efficiency_ratio, _text(row.efficiency_ratio, *ends, row.efficiency_interval, row.num_launches, percent)


def _throughput(row) -> tuple[float, str]:
    rate, ends = row.throughput_samples_per_s, (row.throughput_low_samples_per_s, row.throughput_high_samples_per_s)
    return rate, _text(rate, *ends, row.interval, row.num_launches)


def _bus_bandwidth(row) -> tuple[float, str]:
    """Return the bus bandwidth of pipelined calls with the range or interval from its time.

    Tables of earlier versions also have these columns; there, busbw_gb_per_s is that of blocking calls.
    """
    rate, low_s, high_s = row.pipelined_busbw_gb_per_s, row.pipelined_low_s, row.pipelined_high_s
    ends = (None, None) if is_unknown(low_s) else (rate * row.pipelined_s / high_s, rate * row.pipelined_s / low_s)
    return rate, _text(rate, *ends, row.interval, row.num_launches)


def _time(row) -> tuple[float, str]:
    text = _text(row.time_s, row.time_low_s, row.time_high_s, row.interval, row.num_launches, duration)
    return row.time_s, f"{text}, ratio to first {ratio_text(row.ratio_to_first)}"


def _text(value, low, high, kind, num: int, show: Callable = three) -> str:
    ends = "" if is_unknown(low) or is_unknown(high) else f" {bracket(low, high, kind, show)}"
    return f"{show(value)}{ends}, n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{num}"


EFFICIENCY = (*interval_columns("efficiency", "ratio"), "efficiency_interval")
BUS_BANDWIDTH = ("pipelined_busbw_gb_per_s", *interval_columns("pipelined", "s"))
OF_ALL = ("cell", "world_size", "num_launches", "interval")
# Title, table, its schema, the columns read besides OF_ALL, and the number and text of a row.
FIGURES = (
    ("Scaling efficiency (%)", "scaling", SCALING, EFFICIENCY, _efficiency),
    ("Throughput (samples/s)", "scaling", SCALING, interval_columns("throughput", "samples_per_s"), _throughput),
    ("Bus bandwidth (GB/s)", "collectives", COLLECTIVES, BUS_BANDWIDTH, _bus_bandwidth),
)


def _columns(history: History, keys: list[Keys]) -> Iterator[Column]:
    """Yield each key figure that two or more campaigns have for the same cell, then the time that changed most."""
    cells = history.table.drop_duplicates("cell")
    names = {cell: one_line(name, MOST_TEXT) for cell, name in zip(cells["cell"], full_names(cells), strict=True)}
    name_of = {key: names[cell] for of_campaign in keys for key, cell in of_campaign.items() if cell in names}
    for title, table, schema, names_of_columns, value_of in FIGURES:
        columns = {name: schema[name] for name in (*OF_ALL, *names_of_columns)}
        found: dict[str, dict[int, tuple[int, float, str]]] = {}  # key -> place -> world size, number, text
        for place, campaign in enumerate(history.campaigns):
            key_of = {cell: key for key, cell in keys[place].items()}
            for row in _rows(campaign.folder / "tables" / f"{table}.csv", columns):
                key = key_of.get(row.cell)
                if key in name_of and not is_unknown(row.world_size) and (value := _known(value_of, row)):
                    found.setdefault(key, {})[place] = (row.world_size, *value)
        often = {key: values for key, values in found.items() if len(values) > 1}
        if often:
            key = max(often, key=lambda key: (*_priority(often[key]), key))
            yield _column(title, name_of[key], {place: value[1:] for place, value in often[key].items()}, len(keys))
    cell = largest_changes(history).index[0]
    rows = history.table[history.table["cell"] == cell]
    times = {row.place: _time(row) for row in rows.itertuples()}
    yield _column("Largest change in time", names[cell], times, len(keys))


def _rows(path: Path, columns: dict[str, str]) -> Iterator:
    """Yield the rows of a table; none if it is missing, a pipe or damaged."""
    with contextlib.suppress(UserError):
        if path.is_file():
            yield from read_csv(path, columns).itertuples()


def _known(value_of: Callable, row) -> tuple[float, str] | None:
    try:
        number, text = value_of(row)
        return (float(number), text) if not is_unknown(number) and math.isfinite(number) and number >= 0 else None
    except (TypeError, ValueError, ZeroDivisionError):  # unknown, or not a possible value
        return None


def _priority(values: dict[int, tuple[int, float, str]]) -> tuple[int, int, int, float]:
    """Return latest campaign, largest shape, number of campaigns and lowest number of a cell. values: by campaign.

    Cells with the highest number in the latest campaign would seem to rise, by selection alone.
    """
    return max(values), values[max(values)][0], len(values), min(number for _, number, _ in values.values())


def _column(title: str, cell: str, found: dict[int, tuple[float, str]], num: int) -> Column:
    largest = max(number for number, _ in found.values()) or 1.0
    values = {place: Value(number, text, 100 * number / largest) for place, (number, text) in found.items()}
    return Column(title, cell, [values.get(place) for place in range(num)])
