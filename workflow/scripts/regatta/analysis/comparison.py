"""Cells against cells, a pair in each row: inside a campaign (tables/comparisons.csv) and between two campaigns.

Compared is p50_s, one time per launch. Definitions: docs/metrics.md. What is compared is found in `versus` and
`campaigns_compared`; the statistics are those of `regatta.verdicts`.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pandas as pd

from regatta.analysis.collect import cell_row
from regatta.analysis.tables import CELL, FLAG, REAL, TEXT, WHOLE, make_table
from regatta.analysis.versus import alike_stacks, cell_pairs, versus_of
from regatta.campaign.matrix import field_value
from regatta.verdicts import compare_launches, judge_all, noise_floor

# One pair of cells. Columns of CELL say what `cell` is; it differs from `reference` in `axis` alone.
COMPARISONS = {
    "cell": TEXT,
    "reference": TEXT,
    "axis": TEXT,
    "value": TEXT,
    "reference_value": TEXT,
    **CELL,
    "num_planned": WHOLE,
    "num_launches": WHOLE,
    "num_reference_launches": WHOLE,
    "is_paired": FLAG,
    "time_s": REAL,
    "reference_time_s": REAL,
    "time_ratio": REAL,
    "time_low_ratio": REAL,
    "time_high_ratio": REAL,
    "interval": TEXT,
    "test": TEXT,
    "p_value": REAL,
    "p_adjusted": REAL,
    "margin_ratio": REAL,
    "verdict": TEXT,
    "launches_needed": WHOLE,
}

MARGIN = 0.05  # where neither the campaign nor alike stacks give one; that of the gate

Times = dict[int, tuple[str, float]]  # repeat -> (batch, p50_s) of one cell's ok launches


@dataclass(frozen=True)
class Sides:
    """The launches of two cells that are compared, in seconds. is_paired: those at one index shared an allocation."""

    reference: list[float]
    other: list[float]
    is_paired: bool


def comparisons_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each pair of cells that differ in the campaign's `versus` alone, measured or not."""
    versus, times = versus_of(campaign), times_by_cell(measurements)
    rows, sides = [], []
    for pair in cell_pairs(campaign):
        axis = {name: _text(field_value(cell["spec"], versus["axis"])) for name, cell in
                (("value", pair.other), ("reference_value", pair.reference))}  # fmt: skip
        rows.append(
            cell_row(pair.other)
            | {
                "reference": pair.reference["id"],
                "axis": versus["axis"],
                "num_planned": pair.other.get("repeats", campaign["repeats"]),
            }
            | axis
        )
        sides.append(sides_of(times[pair.reference["id"]], times[pair.other["id"]]))
    return compared_table(rows, sides, margin_of(campaign, times))


def margin_of(campaign: dict, times: dict[str, Times]) -> float:
    """Return the ratio up to which times are equivalent: what the campaign says, and no less than the noise of alike stacks."""
    pairs = [sides_of(times[pair.reference["id"]], times[pair.other["id"]]) for pair in alike_stacks(campaign)]
    noise = noise_floor([(pair.reference, pair.other) for pair in pairs if pair.reference and pair.other])
    given = versus_of(campaign)["margin"]
    if noise is None:
        return MARGIN if given is None else given
    return noise if given is None else max(given, noise)


def times_by_cell(measurements: pd.DataFrame) -> dict[str, Times]:
    """Return for each cell its ok launches. A launch's name begins with that of its batch (docs/contracts.md)."""
    found: dict[str, Times] = defaultdict(dict)
    ok = measurements[(measurements["status"] == "ok") & measurements["p50_s"].notna()]
    for row in ok[["cell", "repeat", "launch", "p50_s"]].itertuples():
        found[row.cell][int(row.repeat)] = (row.launch.rsplit("-", 2)[0], float(row.p50_s))
    return found


def sides_of(reference: Times, other: Times) -> Sides:
    """Pair the launches of two cells where they were measured in one allocation: by repeat, within a batch.

    Launches without a partner are left out, unless they are half of a side or more: then all are used, unpaired.
    """
    shared = [repeat for repeat in sorted(reference.keys() & other) if reference[repeat][0] == other[repeat][0]]
    is_paired = 2 * len(shared) > max(len(reference), len(other))
    repeats = (shared, shared) if is_paired else (sorted(reference), sorted(other))
    return Sides([reference[r][1] for r in repeats[0]], [other[r][1] for r in repeats[1]], is_paired)


def compared_table(rows: list[dict], sides: list[Sides], margin: float) -> pd.DataFrame:
    """Return rows with what their launches say. The p values are corrected over all rows that have launches on both sides."""
    known = [index for index, pair in enumerate(sides) if pair.reference and pair.other]
    compared = [compare_launches(sides[i].reference, sides[i].other, sides[i].is_paired) for i in known]
    judged = dict(zip(known, zip(compared, judge_all(compared, margin), strict=True), strict=True))
    full = []
    for index, (row, pair) in enumerate(zip(rows, sides, strict=True)):
        found = {
            "num_launches": len(pair.other),
            "num_reference_launches": len(pair.reference),
            "time_s": _median(pair.other),
            "reference_time_s": _median(pair.reference),
            "margin_ratio": margin,
        }
        full.append(row | found | (_said(*judged[index]) if index in judged else {}))
    return make_table(full, COMPARISONS)


def by_effect(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the largest effect first, up or down; what could not be compared comes last."""
    ratio = comparisons["time_ratio"].astype(float)
    size = ratio.where(ratio >= 1, 1 / ratio)
    return comparisons.loc[size.sort_values(ascending=False, kind="stable", na_position="last").index]


def is_noise(comparisons: pd.DataFrame) -> pd.Series:
    """Return which rows are inside the noise: neither faster nor slower, and with a ratio within the margin."""
    ratio, limit = comparisons["time_ratio"], 1 + comparisons["margin_ratio"]
    is_within = ((ratio <= limit) & (ratio >= 1 / limit)).fillna(False)
    return is_within & ~comparisons["verdict"].isin(["faster", "slower"])


def _said(compared, verdict) -> dict:
    ratio = compared.ratio
    return {
        "is_paired": compared.is_paired,
        "time_ratio": ratio.median,
        "time_low_ratio": ratio.low,
        "time_high_ratio": ratio.high,
        "interval": ratio.kind,
        "test": verdict.test,
        "p_value": verdict.p_value,
        "p_adjusted": verdict.p_adjusted,
        "verdict": verdict.word,
        "launches_needed": verdict.launches_needed,
    }


def _median(values: list[float]) -> float | None:
    return float(np.median(values)) if values else None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
