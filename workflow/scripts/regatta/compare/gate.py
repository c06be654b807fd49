"""The gate: is every planned cell ok, none slower than in a baseline campaign, and each reference met? docs/metrics.md.

Cells are matched by what they measure and by the name of their stack, not by id. The unit is the launch, with its
primary time.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from regatta.compare.campaigns import CampaignResults, CampaignsCompared, compare_campaigns
from regatta.compare.gate_rules import (
    FAILED,
    LIKELY,
    NO_JOBS,
    PASSED,
    UNDECIDED,
    allocation_variation_of,
    differences,
    has_jobs,
    is_likely,
    outcome,
    stops,
    threshold_text,
)
from regatta.core.errors import GATE_UNDECIDED, UNEXPECTED_ERROR
from regatta.core.moderation import MIN_LAUNCHES
from regatta.core.text import is_unknown, natural, nodes_text, three
from regatta.core.verdicts import margins_text
from regatta.kit.columns import Row, table_rows
from regatta.kit.kinds import NOTE, SUMMARY, Kind, filled
from regatta.model.frozen import Cell
from regatta.report.findings import percent_number
from regatta.store.csv_files import grouped, plain_rows
from regatta.tables.pairs import direction_of, patterns_of
from regatta.tables.references import ReferencePair, reference_pairs

STATUS = {PASSED: 0, FAILED: UNEXPECTED_ERROR, UNDECIDED: GATE_UNDECIDED}
FAILURE = ("repeat", "status", "phase", "cause", "launch")
COMPARED = "in {num_compared:cell/cells} compared with '{baseline}'"
KINDS = (
    Kind(
        *("gate", SUMMARY),
        lead="gate: {result}",
        parts=(
            "{problems}",
            ("{num_not_ok:cell/cells} not ok", "{num_ok:cell/cells} ok"),
            (
                "{num_slower:regression/regressions} beyond {threshold} " + COMPARED,
                "{no_regression} beyond {threshold} " + COMPARED,
                "{num_undecided} of {num_compared:cell/cells} compared with '{baseline}' undecided ({why})",
            ),
            "{num_also:cell/cells} undecided ({why})",
            "references: {references}",
        ),
    ),
    Kind(
        *("below", NOTE),
        lead="note: {num_below} of {num_compared:compared cell/compared cells} slower by {by} %, significant but below"
        " {threshold}: {where}",
    ),
    Kind(
        *("without_interval", NOTE),
        lead="note: {num_without_interval} of {num_pairs:reference/references} judged without an interval: by the range"
        f" of fewer than {MIN_LAUNCHES} launches, or by a single value",
    ),
    Kind(
        *("screened", NOTE),
        lead="note: {num_screened} of {num_compared:compared cell/compared cells} only screened (fewer than"
        f" {MIN_LAUNCHES} launches on one side): slower means that every launch is slower than every baseline launch by"
        " more than the margin; expected by chance: at most {most_by_chance} of {num_screened:cell/cells}",
    ),
    Kind(
        *("differs", NOTE),
        lead="note: compare.py applies only the margin ({margin}) and differs: {differences}",
    ),
)
DIFFERENCES = {
    "not_failed": "{num:cell/cells} slower there, not failed here",
    "not_decided": "{num:cell/cells} slower there, undecided here",
    "only_failed": "{num:regression/regressions} here, not slower there (compare.py does not screen)",
    "only_stopped": "{num:undecided cell/undecided cells} here (no effect on its exit status)",
}


@dataclass(frozen=True)
class JudgedCell:
    """One cell. skipped: why it is not measured. failures: a dict of FAILURE for each repeat that is not ok.

    compared: how it compares with the baseline campaign, with the columns of comparisons.csv. Without p, as one side
    has too few launches for a test, the cell is screened. margin_ratio: beyond which it is slower or faster.
    """

    id: str
    benchmark: str
    repeats: int
    elapsed_s: float | None = None
    skipped: str | None = None
    failures: tuple[dict, ...] = ()
    compared: Row | ReferencePair | None = None


@dataclass(frozen=True)
class Gate:
    """The result of the gate. problems: not tied to one cell; they fail the gate, notes do not.

    found: the comparison with the baseline campaign, if there is one. allocation_variation: ratio added to the margin
    of cells whose intervals do not include it. policy: which undecided cells stop it (gate_rules.POLICIES). references:
    cells compared with bounds.
    """

    campaign: str
    found: CampaignsCompared | None
    margin: float
    cells: list[JudgedCell]
    problems: list[str]
    notes: list[str]
    allocation_variation: float = 0.0
    policy: str = LIKELY
    references: tuple[JudgedCell, ...] = ()

    @property
    def result(self) -> str:
        """Return passed, failed or undecided."""
        if self.not_ok or self.with_verdict("slower") or self.problems or self.references_that(FAILED):
            return FAILED
        return UNDECIDED if any(map(self.is_stopping, (*self.compared, *self.references))) else PASSED

    def references_that(self, word: str) -> list[JudgedCell]:
        """Return the references with an outcome, those farthest beyond the bound first."""
        found = [cell for cell in self.references if outcome(cell.compared) == word]
        return sorted(found, key=lambda cell: -cell.compared.time_ratio)

    def is_stopping(self, cell: JudgedCell) -> bool:
        return cell.compared is not None and stops(cell.compared, self.policy)

    @cached_property
    def undecided(self) -> list[JudgedCell]:
        """Return the undecided cells, those that stop the gate first, then the largest slowdown first."""
        found = [cell for cell in self.compared if outcome(cell.compared) == UNDECIDED]
        return sorted(found, key=lambda cell: not self.is_stopping(cell))

    @cached_property
    def not_ok(self) -> list[JudgedCell]:
        """Return the cells that are not ok in every repeat, those with the most failures first."""
        return sorted((cell for cell in self.cells if cell.failures), key=lambda cell: -len(cell.failures))

    @cached_property
    def compared(self) -> list[JudgedCell]:
        """Return the compared cells, the largest slowdown first."""
        return sorted((cell for cell in self.cells if cell.compared), key=lambda cell: -cell.compared.time_ratio)

    def with_verdict(self, verdict: str) -> list[JudgedCell]:
        return [cell for cell in self.compared if cell.compared.verdict == verdict]

    @property
    def values(self) -> dict[str, object]:
        """Return what the kinds of the gate's text name."""
        rows, num_slower = [cell.compared for cell in self.compared], len(self.with_verdict("slower"))
        screened = [row for row in rows if is_unknown(row.p_adjusted)]
        num_likely = sum(is_likely(cell.compared) for cell in self.undecided)
        why = f"{num_likely or 'none'} with an estimate beyond {self._thresholds}"
        differ = differences(rows, self.margin, self.policy)
        counts = {"met": PASSED, "violated": FAILED, UNDECIDED: UNDECIDED}
        counts = {word: len(self.references_that(result)) for word, result in counts.items()}
        return {
            "result": self.result,
            "problems": self.problems,
            "num_not_ok": len(self.not_ok),
            "num_ok": sum(cell.skipped is None for cell in self.cells),
            "num_slower": num_slower,
            "num_compared": len(rows),
            "baseline": self.found and self.found.base.campaign.name,
            "threshold": self._thresholds,
            "no_regression": "no regression" if rows and not self.undecided else "",
            "num_undecided": len(self.undecided),
            "num_also": len(self.undecided) if num_slower else 0,
            "why": why if self.policy == LIKELY else f"{why}; gate.undecided = {self.policy}",
            "num_screened": len(screened),
            "most_by_chance": three(by_chance(screened)),
            "margin": margins_text([self.margin]),
            "references": [f"{num} {word}" for word, num in counts.items() if num],
            "num_pairs": len(self.references),
            "num_without_interval": sum(not cell.compared.has_interval for cell in self.references),
            **self._below,
            "differences": [filled(DIFFERENCES[kind], {"num": num}) for kind, num in differ.items() if num],
        }

    @property
    def _below(self) -> dict[str, object]:
        """Return how many passed cells are significantly slower, by how much, and where."""
        below = [cell for cell in self.compared if outcome(cell.compared) == PASSED]
        below = [cell for cell in below if direction_of(cell.compared) == "slower"]
        if not below:
            return {"num_below": 0}
        ends = [percent_number(cell.compared.time_ratio - 1) for cell in (below[-1], below[0])]
        rows, ids = self.found.comparisons, {cell.id for cell in below}
        directions = ["slower" if cell in ids else "" for cell in rows["cell"]]
        found = dict(patterns_of(rows.assign(direction=directions), rows["value"], self.found.launches))
        where = [pattern.text(rows["device"].iloc[0]) for pattern, _ in found.get("slower", ())]
        where = where or [f"{'largest in ' if len(below) > 1 else ''}{below[0].id}"]
        return {"num_below": len(below), "by": " to ".join(dict.fromkeys(ends)), "where": " and ".join(where)}

    @property
    def _thresholds(self) -> str:
        return margins_text(sorted({cell.compared.margin_ratio for cell in self.compared}))

    @property
    def threshold_line(self) -> str:
        """Return the number that decides first; empty if nothing is compared."""
        thresholds = [cell.compared.margin_ratio for cell in self.compared]
        return threshold_text(self.margin, self.allocation_variation, thresholds) if thresholds else ""


def judge(
    results: CampaignResults,
    base: CampaignResults | None = None,
    margin: float = 0.05,
    allocation_variation: float | None = 0.0,
    undecided: str = LIKELY,
) -> Gate:
    """Return the result of the gate for a campaign, with all columns of its measurements.

    base: the baseline campaign. margin: allowed relative increase of a time. allocation_variation: see Gate; None: by
    scheduler. undecided: policy.
    """
    campaign, measurements, found, notes = results.campaign, results.measurements, None, []
    variation = allocation_variation_of(allocation_variation, *(of.campaign for of in (results, base) if of))
    if base:
        found = compare_campaigns(base, results, margin, variation)
        notes = _notes(found, is_covered=allocation_variation is not None)
    compared = {row.cell: row for row in table_rows(found.comparisons)} if found else {}
    rows = grouped(plain_rows(measurements, ("cell", "elapsed_s", *FAILURE)), ("cell",))
    cells = [
        _judged(cell, rows.get((cell.id,), []), campaign.repeats_of(cell), compared.get(cell.id))
        for cell in campaign.cells
    ]
    cells += [JudgedCell(cell.id, cell.benchmark, 0, skipped=cell.reason) for cell in campaign.skipped]
    cells.sort(key=lambda cell: natural(cell.id))
    problems = [] if campaign.cells else ["no cell is planned"]
    if base and not compared and (measurements["status"] == "ok").any():
        problems.append(f"nothing to compare with in '{base.campaign.name}'")
    pairs = {f"{pair.cell.id}: {pair.required}": pair for pair in reference_pairs(campaign, measurements)}
    held = tuple(JudgedCell(name, pair.cell.benchmark, 0, compared=pair) for name, pair in pairs.items())
    return Gate(campaign.name, found, margin, cells, problems, notes, variation, undecided, held)


def by_chance(screened: list[Row]) -> float:
    """Return how many of the screened rows at most should be called slower by chance.

    If n launches and m before come from one distribution, all n are the slowest in one of C(n + m, n) orders. This is
    the worst case, where the margin is negligible against between-launch variation.
    """
    nums = ((row.num_launches, row.num_reference_launches) for row in screened)
    return sum(1 / math.comb(now + before, now) for now, before in nums)


def _notes(found: CampaignsCompared, is_covered: bool) -> list[str]:
    """Return notes on drift, unless it is covered, on cells that are not compared, and on a different cluster."""
    base, test = found.base.campaign, found.test.campaign
    notes = [NO_JOBS] if len(found.comparisons) and not is_covered and not has_jobs(test, base) else []
    others = [f"{len(cells)} {reason.removeprefix('not compared, ')}" for reason, cells in found.unmatched.items()]
    notes += [f"not compared: {', '.join(others)}"] if others else []
    notes += [found.fallback] if found.fallback else []
    before, now = nodes_text(base.cluster), nodes_text(test.cluster)
    if before != now:
        notes.append(f"'{base.name}' was measured on cluster '{before}', this campaign on '{now}'")
    return notes


def _judged(cell: Cell, rows: list[dict], repeats: int, compared: Row | None) -> JudgedCell:
    failures = [{name: row[name] for name in FAILURE} for row in rows if row["status"] != "ok"]
    absent = sorted(set(range(repeats)) - {row["repeat"] for row in rows})
    failures += [dict.fromkeys(FAILURE) | {"repeat": repeat, "status": "not_measured"} for repeat in absent]
    failures.sort(key=lambda failure: failure["repeat"])
    elapsed_s = [float(row["elapsed_s"]) for row in rows if row["elapsed_s"] is not None]
    total_s = sum(elapsed_s) if elapsed_s else None
    return JudgedCell(cell.id, cell.benchmark, repeats, total_s, None, tuple(failures), compared)


def result_of(text: str) -> str:
    """Return passed, failed or undecided from the text of a gate."""
    return text.split()[1].rstrip(":")
