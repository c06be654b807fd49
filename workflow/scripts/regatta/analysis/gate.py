"""The gate: is every planned cell ok, and did any get slower than in a baseline campaign? Definitions: docs/metrics.md.

Cells of two campaigns are the same if they measure the same on a stack of the same NAME. Their ids need not be equal:
after an upgrade the image is another, and with it the id. The unit is the launch, and its number the median, p50_s.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from regatta.campaign.matrix import canonical_json
from regatta.cell_words import natural
from regatta.numbers import plural
from regatta.statistics import (
    BOOTSTRAP_SEED,
    CONFIDENCE,
    MIN_LAUNCHES_BOOTSTRAP,
    NUM_RESAMPLES,
    Spread,
    ratio_over_launches,
)

MATCHED_BY = ("benchmark", "parameters", "nodes", "gpus_per_node", "backend", "device")  # and the stack's name
FAILURE = ("repeat", "status", "phase", "cause", "launch")


@dataclass(frozen=True)
class Comparison:
    """One cell against the same cell of the baseline campaign. `ratio`: of the median times; above 1 is slower now."""

    ratio: Spread
    num_launches: int
    num_before: int
    verdict: str  # faster, slower, equivalent or inconclusive


@dataclass(frozen=True)
class JudgedCell:
    """One cell. `skipped`: why it is not measured. `failures`: one dict of FAILURE for each repeat that is not ok."""

    id: str
    spec: dict
    repeats: int
    elapsed_s: float | None = None
    skipped: str | None = None
    failures: tuple[dict, ...] = ()
    comparison: Comparison | None = None

    @property
    def verdict(self) -> str | None:
        return self.comparison.verdict if self.comparison else None


@dataclass(frozen=True)
class Gate:
    """What the gate found. `problems` concern no single cell and fail the gate; `notes` do not."""

    campaign: str
    baseline_campaign: str | None
    margin: float
    cells: list[JudgedCell]
    problems: list[str]
    notes: list[str]

    @property
    def is_passed(self) -> bool:
        return not (self.not_ok or self.with_verdict("slower") or self.problems)

    @cached_property
    def not_ok(self) -> list[JudgedCell]:
        """Return the cells that are not ok in every repeat, those with most failures first."""
        return sorted((cell for cell in self.cells if cell.failures), key=lambda cell: -len(cell.failures))

    @cached_property
    def compared(self) -> list[JudgedCell]:
        """Return the compared cells, the one that got slowest first."""
        found = [cell for cell in self.cells if cell.comparison]
        return sorted(found, key=lambda cell: -cell.comparison.ratio.median)

    def with_verdict(self, verdict: str) -> list[JudgedCell]:
        return [cell for cell in self.compared if cell.verdict == verdict]


def judge(
    campaign: dict, measurements: pd.DataFrame, before: tuple[dict, pd.DataFrame] | None = None, margin: float = 0.05
) -> Gate:
    """Return what the gate says of a frozen campaign and its measurements.

    before: the same two of the baseline campaign; of its measurements cell, status and p50_s are read.
    margin: ratio by which a median may be longer.
    """
    comparisons, notes = _compare(campaign, measurements, before, margin) if before else ({}, [])
    rows = {cell: group.to_dict("records") for cell, group in measurements.astype(object).groupby("cell")}
    repeats = campaign["repeats"]
    cells = [_judged(cell, rows.get(cell["id"], []), repeats, comparisons) for cell in campaign["cells"]]
    cells += [JudgedCell(cell["id"], cell["spec"], 0, skipped=cell["reason"]) for cell in campaign["skipped"]]
    cells.sort(key=lambda cell: natural(cell.id))
    baseline_campaign = before[0]["name"] if before else None
    problems = [] if campaign["cells"] else ["no cell is planned"]
    if before and not comparisons and _launch_times(measurements):
        problems.append(f"nothing to compare with in '{baseline_campaign}'")
    return Gate(campaign["name"], baseline_campaign, margin, cells, problems, notes)


def compare(now: list[float], before: list[float], margin: float, num_compared: int) -> Comparison:
    """Return how a cell's launches compare with those of before, one of `num_compared` cells.

    slower: the whole spread of the ratio lies above 1 + margin. The spread is a bootstrap interval from six launches on
    either side, at a level that is meant to let the intervals of all compared cells hold together with 95 %. Few launches
    do not carry that for many cells: no such interval is wider than the range over pairs, which 1 lies outside of in
    2/C(n + m, n) of unchanged cells (2/924 of 6 and 6, which is too many for 24 cells and more). Below six it is that
    range, so that slower means every launch slower than every one before, by more than the margin.
    """
    now, before = sorted(now), sorted(before)  # resampling must not depend on the order of rows
    has_interval = min(len(now), len(before)) >= MIN_LAUNCHES_BOOTSTRAP
    ratio = _simultaneous(now, before, num_compared) if has_interval else ratio_over_launches(now, before)
    low, high = (ratio.median, ratio.median) if ratio.low is None else (ratio.low, ratio.high)
    return Comparison(ratio, len(now), len(before), _verdict(low, high, ratio.kind, margin))


def chance_alone(gate: Gate) -> tuple[int, float]:
    """Return how many cells have too few launches for an interval, and how many of them chance can at most call slower.

    If n launches and m before come from one distribution, all n are the slowest in one of C(n + m, n) orders. That is
    the worst case, of a spread between launches beside which the margin is nothing.
    """
    few = [cell.comparison for cell in gate.compared if cell.comparison.ratio.kind != "bootstrap"]
    return len(few), sum(1 / math.comb(c.num_launches + c.num_before, c.num_launches) for c in few)


def _verdict(low: float, high: float, kind: str, margin: float) -> str:
    if low > 1 + margin:
        return "slower"
    if high < 1 / (1 + margin):
        return "faster"
    is_within = 1 / (1 + margin) <= low and high <= 1 + margin
    return "equivalent" if is_within and kind != "single" else "inconclusive"


def _simultaneous(now: list[float], before: list[float], num_compared: int) -> Spread:
    """Percentile bootstrap of the ratio of medians, at a confidence that allows for the number of cells (Bonferroni)."""
    random = np.random.default_rng(BOOTSTRAP_SEED)
    medians = [np.median(random.choice(v, (NUM_RESAMPLES, len(v))), axis=1) for v in (now, before)]
    tail = (1 - CONFIDENCE) / 2 / num_compared
    low, high = np.quantile(medians[0] / medians[1], [tail, 1 - tail])
    ratio = float(np.median(now) / np.median(before))
    return Spread(min(len(now), len(before)), ratio, float(low), float(high), "bootstrap")


def _compare(campaign: dict, measurements: pd.DataFrame, before: tuple, margin: float) -> tuple[dict, list[str]]:
    """Return the comparison of each cell that has launches on both sides, and notes on the others."""
    old_campaign, old_measurements = before
    old_cells = {_match_key(cell["spec"]): cell for cell in old_campaign["cells"]}
    times, old_times = _launch_times(measurements), _launch_times(old_measurements)
    why_not, pairs = Counter(), {}
    for cell in campaign["cells"]:
        old = old_cells.get(_match_key(cell["spec"]))
        if old is None:
            why_not["new"] += 1
        elif old["spec"]["version"] != cell["spec"]["version"]:
            why_not["measured by another version of the benchmark"] += 1
        elif old["id"] not in old_times:
            why_not["not ok before"] += 1
        elif cell["id"] in times:
            pairs[cell["id"]] = times[cell["id"]], old_times[old["id"]]
    compared = {cell: compare(*pair, margin, len(pairs)) for cell, pair in pairs.items()}
    notes = ["not compared: " + ", ".join(f"{num} {why}" for why, num in why_not.items())] if why_not else []
    gone = [cell["spec"] for key, cell in old_cells.items() if cell["id"] in old_times]
    return compared, [*notes, *_notes(campaign, old_campaign, gone)]


def _notes(campaign: dict, old_campaign: dict, measured_before: list[dict]) -> Iterator[str]:
    planned = {_match_key(cell["spec"]) for cell in campaign["cells"]}
    gone = [_match_key(spec) for spec in measured_before if _match_key(spec) not in planned]
    skipped = {_match_key(cell["spec"]): cell["reason"] for cell in campaign["skipped"]}
    reasons = [skipped[key] for key in gone if key in skipped]
    if gone:
        more = f"; {len(reasons)} skipped, such as: {reasons[0]}" if reasons else ""
        yield f"{plural(len(gone), 'cell')} measured in '{old_campaign['name']}' not planned any more{more}"
    clusters = old_campaign["cluster"]["name"], campaign["cluster"]["name"]
    if clusters[0] != clusters[1]:
        yield f"'{old_campaign['name']}' was measured on cluster '{clusters[0]}', this campaign on '{clusters[1]}'"


def _judged(cell: dict, rows: list[dict], repeats: int, comparisons: dict[str, Comparison]) -> JudgedCell:
    failures = [{name: _known(row[name]) for name in FAILURE} for row in rows if row["status"] != "ok"]
    absent = sorted(set(range(repeats)) - {row["repeat"] for row in rows})
    failures += [dict.fromkeys(FAILURE) | {"repeat": repeat, "status": "not_measured"} for repeat in absent]
    failures.sort(key=lambda failure: failure["repeat"])
    elapsed_s = [float(row["elapsed_s"]) for row in rows if _known(row["elapsed_s"]) is not None]
    return JudgedCell(
        cell["id"],
        cell["spec"],
        repeats,
        elapsed_s=sum(elapsed_s) if elapsed_s else None,
        failures=tuple(failures),
        comparison=comparisons.get(cell["id"]),
    )


def _launch_times(measurements: pd.DataFrame) -> dict[str, list[float]]:
    """Return for each cell the median time of each ok launch."""
    ok = measurements[(measurements["status"] == "ok") & measurements["p50_s"].notna()]
    return {cell: group["p50_s"].astype(float).tolist() for cell, group in ok.groupby("cell")}


def _match_key(spec: dict) -> str:
    return canonical_json({name: spec[name] for name in MATCHED_BY} | {"stack": spec["stack"]["name"]})


def _known(value: object) -> object:
    return None if pd.isna(value) else value
