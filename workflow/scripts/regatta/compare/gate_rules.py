"""How a gate reads the verdict on a cell: passed, failed or undecided. Definitions: docs/metrics.md, Gate.

A row is that of comparisons.csv; its margin_ratio is the threshold of the gate, beyond which a cell fails.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import pandas as pd

from regatta.core.moderation import FALSE_DISCOVERIES, MIN_LAUNCHES
from regatta.core.text import is_unknown, plural
from regatta.core.verdicts import Compared, compare_all, margins_text
from regatta.kit.columns import table_rows
from regatta.kit.kinds import filled
from regatta.launchers import launcher_of
from regatta.model.frozen import FrozenCampaign

ALLOCATION_VARIATION = 0.085  # default with jobs: for a standard deviation of 3 % between allocations (decision 7)
PASSED, FAILED, UNDECIDED = "passed", "failed", "undecided"
LIKELY, FAIL, PASS = POLICIES = ("likely", "fail", "pass")  # of gate.undecided
NO_JOBS = "drift of the machine between the two runs is not covered: set gate.allocation_variation to cover it"
# How compare.py describes the difference from a gate, by kind of `differences`.
ELSEWHERE = {
    "not_failed": "{num:slower cell/slower cells} would not fail it",
    "not_decided": "{num:slower cell/slower cells} would leave it undecided",
    "only_failed": "{num:cell/cells} not slower here would fail it, because it screens cells with fewer than"
    f" {MIN_LAUNCHES} launches",
    "only_stopped": "{num:undecided cell/undecided cells} would stop it",
}


def has_jobs(*campaigns: FrozenCampaign) -> bool:
    """Return whether two runs may have different allocations. Of imported results, this is unknown: they may."""
    return any(of.imported is not None or launcher_of(of.cluster).submits for of in campaigns)


def allocation_variation_of(given: float | None, *campaigns: FrozenCampaign) -> float:
    """Return the ratio - 1 that two allocations may differ by if nothing changed. given: null if not set."""
    return given if given is not None else ALLOCATION_VARIATION if has_jobs(*campaigns) else 0.0


def outcome(row: object) -> str:
    """Return failed if the cell is slower, undecided if it may be: its upper end is beyond the threshold or unknown."""
    if row.verdict == "slower":
        return FAILED
    is_below = not is_unknown(row.time_high_ratio) and row.time_high_ratio <= 1 + row.margin_ratio
    return PASSED if is_below or row.verdict in ("faster", "equivalent") else UNDECIDED


def is_likely(row: object) -> bool:
    """Return whether the estimate is beyond the threshold."""
    return bool(row.time_ratio > 1 + row.margin_ratio)


def stops(row: object, undecided: str) -> bool:
    """Return whether an undecided row stops the gate. undecided: one of POLICIES."""
    return outcome(row) == UNDECIDED and (undecided == FAIL or (undecided == LIKELY and is_likely(row)))


def threshold_text(margin: float, allocation_variation: float, thresholds: Sequence[float]) -> str:
    """Return the difference beyond which a cell fails, as text. thresholds: of the cells."""
    alone = f"slower by more than {margins_text([margin])} (the margin)"
    wider = [threshold for threshold in thresholds if threshold > margin]
    if not wider:
        return f"fails a cell only if it is {alone}"
    both = f"slower by more than {margins_text(wider[:1])} (margin {margins_text([margin])} and"
    both += f" {margins_text([allocation_variation])} between allocations)"
    if len(wider) == len(thresholds):
        return f"fails a cell only if it is {both}"
    num = plural(len(thresholds) - len(wider), "cell")
    return f"fails {num} only if {alone}, and {plural(len(wider), 'cell')} only if {both}"


def is_slower_alone(row: object, margin: float) -> bool:
    """Return whether a row is slower by the margin alone, as compare.py judges."""
    is_found = not is_unknown(row.p_adjusted) and row.p_adjusted <= FALSE_DISCOVERIES
    return bool(is_found and row.time_low_ratio > 1 + margin)


def differences(rows: Iterable[object], margin: float, undecided: str = LIKELY) -> dict[str, int]:
    """Return how many cells a gate and compare.py decide differently, by kind. rows: of the gate.

    not_failed: slower there, not failed here. not_decided: slower there, undecided here, so the gate stops.
    only_failed, only_stopped: not slower there.
    """
    found = Counter()
    for row in rows:
        is_slower, is_failed, is_stopping = is_slower_alone(row, margin), outcome(row) == FAILED, stops(row, undecided)
        found["not_failed"] += is_slower and not (is_failed or is_stopping)
        found["not_decided"] += is_slower and is_stopping
        found["only_failed"] += is_failed and not is_slower
        found["only_stopped"] += is_stopping and not is_slower
    return found


def gate_difference(table: pd.DataFrame, launches: list[Compared], margin: float, variation: float) -> str:
    """Return why a gate differs from verdicts by the margin alone; empty if it does not. launches: of the rows."""
    words = [verdict.word for verdict in compare_all(launches, margin, variation)]
    thresholds = [pair.margin_with(margin, variation) for pair in launches]
    num = differences(table_rows(table.assign(verdict=words, margin_ratio=thresholds)), margin)
    texts = [filled(text, {"num": num[kind]}) for kind, text in ELSEWHERE.items() if num[kind]]
    return f"It {threshold_text(margin, variation, thresholds)}. {'; '.join(texts)}." if texts else ""
