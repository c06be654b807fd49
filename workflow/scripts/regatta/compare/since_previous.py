"""How each campaign of a history compares with the previous one that measured the same cells: a line for each."""

from collections.abc import Sequence
from dataclasses import dataclass

from regatta.compare.campaigns import CampaignResults
from regatta.core.text import plural, signed_percent
from regatta.tables.pairs import MARGIN, by_effect, judged_rows, pairs_of_campaigns

SIGNS = {"slower": "\N{BLACK UP-POINTING TRIANGLE}", "faster": "\N{BLACK DOWN-POINTING TRIANGLE}"}


@dataclass(frozen=True)
class SincePrevious:
    """What is judged of a campaign: the verdicts on its cells against an earlier one, and the median of their ratios.

    base: place of that campaign. counts: pairs by verdict. largest: ratio of the pair that is slower or faster by most.
    """

    base: int
    counts: dict[str, int]
    time_ratio: float
    largest: float | None

    @property
    def directions(self) -> list[str]:
        """Return which of slower and faster any cell is."""
        return [word for word in SIGNS if word in self.counts]

    @property
    def states(self) -> list[tuple[str, str]]:
        """Return what the status says of it, as (text, CSS class): `▲ slower`. Empty: nothing is known to be slower."""
        found = [(f"{SIGNS[word]} {word}", word) for word in self.directions]
        return found or [("inconclusive", "")] * (self.time_ratio > 1 + MARGIN)

    @property
    def worst(self) -> float:
        """Return the ratio by which the table is sorted."""
        return self.largest or self.time_ratio

    @property
    def verdict(self) -> str:
        """Return the worst verdict on a cell."""
        return next(word for word in (*SIGNS, "inconclusive", "equivalent") if word in self.counts)

    @property
    def text(self) -> str:
        """Return the median and the verdicts: `+29.9 %, ▲ 17 of 57 cells slower, largest +30.4 %; 2 inconclusive`."""
        num = sum(self.counts.values())
        found = [f"{SIGNS[word]} {self.counts[word]} of {plural(num, 'cell')} {word}" for word in self.directions]
        if self.directions and self.counts.get(self.verdict) != num:
            found[-1] += f", largest {signed_percent(self.largest)} %"
        if "inconclusive" in self.counts:
            found.append(f"{self.counts['inconclusive']} inconclusive")
        found = found or [f"{plural(num, 'cell')} within {100 * MARGIN:g} %"]
        return f"{signed_percent(self.time_ratio)} %, {'; '.join(found)}"


def since_previous(campaigns: Sequence[CampaignResults]) -> list[SincePrevious | None]:
    """Return how each campaign compares with the latest earlier one that measured any of its cells; None without one.

    campaigns: oldest first. The margin is that of compare.py.
    """
    sides, found = [(of.campaign, of.measurements) for of in campaigns], []
    for place, side in enumerate(sides):
        tables = ((base, pairs_of_campaigns(sides[base], side, MARGIN)[0]) for base in reversed(range(place)))
        judged = next(((base, rows) for base, table in tables if len(rows := judged_rows(table))), None)
        if judged:
            base, rows = judged
            decided = by_effect(rows[rows["verdict"].isin(list(SIGNS))])["time_ratio"].tolist()
            counts = rows["verdict"].value_counts().to_dict()
            judged = SincePrevious(base, counts, float(rows["time_ratio"].median()), next(iter(decided), None))
        found.append(judged)
    return found
