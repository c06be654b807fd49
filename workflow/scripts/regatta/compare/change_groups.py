"""Groups of cells that change alike over campaigns, each of which is compared with the first one."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from regatta.compare.campaigns import CampaignsCompared
from regatta.core.names import SEPARATOR
from regatta.core.text import change_text, plural, signed_percent
from regatta.report.findings import percent_number
from regatta.report.panels import Figure
from regatta.tables.pairs import NEARLY_ALL, by_effect, patterns_of
from regatta.topics.comparison.comparison_figures import ratio_figure

MOST_GROUPS = 3
ALL = "all cells"
DIRECTIONS = {"slower": 1, "faster": -1}


@dataclass(frozen=True)
class Step:
    """What a group of cells has in one campaign: the median of its ratios with their range. word: the verdict."""

    place: int
    word: str
    ratio: float
    low: float
    high: float
    margin: float


@dataclass(frozen=True)
class ChangeGroup:
    """Cells that change alike. text: what they have in common. references: their ids in base. steps: by campaign."""

    text: str
    references: frozenset[str]
    steps: list[Step]

    @property
    def largest(self) -> float:
        """Return the largest change of the group, as a logarithm."""
        return max(abs(math.log(step.ratio)) for step in self.steps)

    def over(self, names: list[str]) -> str:
        """Return `v3 +11.9 %, v4 back to +0.1 %`: each campaign in which it changed; else `+1.9 to +2.1 %`.

        names: of the campaigns.
        """
        found, before = [], Step(0, "equivalent", 1.0, 1.0, 1.0, 0.0)
        for step in self.steps:
            is_moved = abs(math.log(step.ratio / before.ratio)) > math.log1p(step.margin)
            if is_moved or (step.word in DIRECTIONS) != (before.word in DIRECTIONS):
                back = "" if step.word in DIRECTIONS else "back to "
                found.append(f"{names[step.place]} {back}{signed_percent(step.ratio)} %")
                before = step
        last = self.steps[-1]
        if last.word in DIRECTIONS and before.place < last.place:
            found.append(f"still {signed_percent(last.ratio)} % in {names[last.place]}")
        low, high = (signed_percent(of(step.ratio for step in self.steps)) for of in (min, max))
        return ", ".join(found) or f"{low} to {high} %, within the margin"


def change_groups(compared: list[CampaignsCompared], judged: pd.DataFrame) -> list[ChangeGroup]:
    """Return the groups of cells that change alike in any campaign: the largest, as far as they hardly overlap.

    judged: pairs of all campaigns (regatta.compare.comparison_output.pairs_of).
    """
    cells: dict[str, set[str]] = {}
    words: dict[tuple[str, int], str] = {}
    for place, of in enumerate(compared, start=1):
        for word, text, references in _alike(judged[judged["place"] == place - 1], of):
            cells.setdefault(text, set()).update(references)
            words[text, place] = word
    found = [_group(text, judged[judged["reference"].isin(of)], words) for text, of in cells.items()]
    chosen: list[ChangeGroup] = []
    for group in sorted(found, key=lambda group: -group.largest):
        covered = frozenset().union(*(of.references for of in chosen))
        if 2 * len(group.references & covered) <= len(group.references):
            chosen.append(group)
    return chosen[:MOST_GROUPS]


def all_cells(judged: pd.DataFrame) -> ChangeGroup:
    """Return all cells as a group."""
    return _group(ALL, judged, {})


def _group(text: str, rows: pd.DataFrame, words: dict[tuple[str, int], str]) -> ChangeGroup:
    steps = [_step(place + 1, of, words.get((text, place + 1))) for place, of in rows.groupby("place")]
    return ChangeGroup(text, frozenset(rows["reference"]), steps)


def _alike(rows: pd.DataFrame, of: CampaignsCompared) -> Iterator[tuple[str, str, list[str]]]:
    """Yield direction, description and cells of each group of one campaign: all cells, or patterns of them."""
    for word, sign in DIRECTIONS.items():
        is_one = rows["direction"] == word
        if 2 * is_one.sum() > len(rows) and (sign * np.log(rows["time_ratio"].astype(float)) > 0).mean() >= NEARLY_ALL:
            yield word, ALL, rows["reference"].tolist()
            return
    tested = rows[rows["p_adjusted"].notna()]
    for word, patterns in patterns_of(rows, rows["value"], of.launches):
        for pattern, _ in patterns:
            device = rows["device"].iloc[0]
            yield word, pattern.text(device), tested["reference"].iloc[list(pattern.inside)].tolist()


def _step(place: int, rows: pd.DataFrame, word: str | None) -> Step:
    """Return the step of a group. word: the direction that the group as a whole has.

    Else its word is the most frequent verdict, or `2 slower` if only few cells are.
    """
    ratios, counts = rows["time_ratio"].astype(float), rows["verdict"].value_counts()
    numbers = map(float, (ratios.median(), ratios.min(), ratios.max(), rows["margin_ratio"].max()))
    if word not in counts and (word := counts.idxmax()) not in DIRECTIONS:
        word = next((f"{counts[of]} {of}" for of in DIRECTIONS if of in counts), word)
    return Step(place, word, *numbers)


def group_figure(group: ChangeGroup, names: list[str], changes: list[list[str] | None], place: int) -> Figure:
    """Return the change of a group over campaigns, with those of the environment. place: of the figure on the page."""
    rows = []
    for step in group.steps:
        changed = changes[step.place] or []
        more = [f"{len(changed) - 1} more"] if len(changed) > 1 else []
        label = SEPARATOR.join([names[step.place], *changed[:1], *more])
        ends = {"time_ratio": step.ratio, "time_low_ratio": step.low, "time_high_ratio": step.high}
        rows.append({"label": label, "cell": "", "verdict": step.word, "margin_ratio": step.margin} | ends)
    text = f"{group.text[:1].upper()}{group.text[1:]}"
    title = f"{text} ({len(group.references):,}): change in time vs. {names[0]}, median of cells"
    return ratio_figure(f"group-{place}", title, pd.DataFrame(rows), "range of the cells")


def group_lines(
    groups: list[ChangeGroup], judged: pd.DataFrame, names: list[str], changes: list[list[str] | None]
) -> list[tuple[str, str, str, str]]:
    """Return anchor, label, lead and text of the groups, and of all other cells.

    names, changes: of the campaigns, and of their environments.
    """
    is_pair, cause, found, others = len(names) == 2, changes[1] or (), [], judged
    for place, group in enumerate(groups):
        rows, last = judged[judged["reference"].isin(group.references)], group.steps[-1]
        others = others.drop(rows.index, errors="ignore")
        cells, side = plural(len(group.references), "cell"), "slower" if last.ratio > 1 else "faster"
        if is_pair:
            lead = f"{group.text}: {percent_number(abs(last.ratio - 1))} % {side}"
            lead += f" ({(rows['direction'] == side).sum()} of {cells})"
        else:
            lead = f"{group.text} ({cells}): {group.over(names)}"
        label = last.word.capitalize() if last.word in DIRECTIONS else "Within margin" if is_pair else "Changed"
        lead = f"{cause[0]}: {lead}" if is_pair and len(cause) == 1 and not place else f"{lead[:1].upper()}{lead[1:]}"
        found.append(("comparisons" if is_pair else f"group-{place}", label, lead, ""))
    return [*found, *_lines_on_others(others, names, bool(groups))]


def _lines_on_others(rows: pd.DataFrame, names: list[str], has_groups: bool) -> Iterator[tuple[str, str, str, str]]:
    """Yield the line on the cells of no group: their range if all are equivalent, else how many have which verdict."""
    if rows.empty:
        return
    num, where = rows["reference"].nunique(), "" if len(names) == 2 else " in all campaigns"
    label, cells = "Others" if has_groups else "Cells", f"{num:,} cells"
    if (rows["verdict"] == "equivalent").all():
        most = float(max(rows["time_high_ratio"].max(), 1 / rows["time_low_ratio"].min()))
        yield "comparisons", label, f"{cells} within ±{percent_number(most - 1)} %{where}", ""
        return
    counts, words = rows.groupby("verdict")["reference"].nunique(), []
    last = rows.loc[rows["place"] == len(names) - 2, "verdict"].value_counts()
    for word in (*DIRECTIONS, "inconclusive", *([] if where else ["equivalent"])):
        of_last = f" ({last.get(word, 0):,} in {names[-1]})" if where else ""
        words += [f"{counts[word]:,} {word}{of_last}"] if word in counts else []
    largest = by_effect(rows).iloc[0]
    text = f"Largest: {largest['full_name']}, {change_text(largest)} %{f' in {largest.campaign}' * bool(where)}"
    yield "comparisons", label, f"{cells}: {', '.join(words)}", text
