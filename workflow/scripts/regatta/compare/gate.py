"""The gate: is every planned cell ok, and did any get slower than in a baseline campaign? Definitions: docs/metrics.md.

Cells are matched by what they measure and by the name of their stack, not by id. The unit is the launch, with its
primary time.
"""

import math
import re
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

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
from regatta.core.text import is_unknown, natural, nodes_text, one_line, status_text, three
from regatta.core.verdicts import margins_text
from regatta.kit.columns import Row, table_rows
from regatta.kit.kinds import NOTE, SUMMARY, Kind, filled
from regatta.model.frozen import Cell
from regatta.store.csv_files import grouped, plain_rows
from regatta.topics.comparison.texts import row_text
from regatta.topics.failures import log_path

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
        ),
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
    compared: Row | None = None


@dataclass(frozen=True)
class Gate:
    """The result of the gate. problems: not tied to one cell; they fail the gate, notes do not.

    found: the comparison with the baseline campaign, if there is one. allocation_variation: ratio added to the margin
    of cells whose intervals do not include it. policy: which undecided cells stop it (gate_rules.POLICIES).
    """

    campaign: str
    found: CampaignsCompared | None
    margin: float
    cells: list[JudgedCell]
    problems: list[str]
    notes: list[str]
    allocation_variation: float = 0.0
    policy: str = LIKELY

    @property
    def result(self) -> str:
        """Return passed, failed or undecided."""
        if self.not_ok or self.with_verdict("slower") or self.problems:
            return FAILED
        return UNDECIDED if any(map(self.is_stopping, self.compared)) else PASSED

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
            "differences": [filled(DIFFERENCES[kind], {"num": num}) for kind, num in differ.items() if num],
        }

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
    return Gate(campaign.name, found, margin, cells, problems, notes, variation, undecided)


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


# A short text for the terminal, and a JUnit file for systems that show test results.

SHOWN = {"not ok": 3, "slower": 3, "undecided": 2}  # cells, so that the whole text stays within 20 lines
CAUSE_LENGTH = 160
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, production 2
HASH = re.compile("-[0-9a-f]{12}$")


def headline(gate: Gate) -> tuple[str, str]:
    """Return the result and what it is based on."""
    return KINDS[0].words(gate.values)


def gate_text(gate: Gate, results: Path, page: Path | None = None) -> str:
    """Return at most 20 lines: the result, the worst cells, notes, and where the rest is, also on a page."""
    values, faster = gate.values, gate.with_verdict("faster")
    lines = [gate.threshold_line]
    for word, cells in (
        ("not ok", [f"not ok: {cell.id}: {_cause(cell)}" for cell in gate.not_ok]),
        ("slower", [f"{cell.id}: {_verdict_text(cell)}" for cell in gate.with_verdict("slower")]),
        ("undecided", [f"{cell.id}: {_verdict_text(cell)}" for cell in gate.undecided]),
    ):
        most = SHOWN[word]
        lines += cells[:most] + ([f"... and {len(cells) - most} more {word}"] if len(cells) > most else [])
    if faster:
        lines.append(
            f"faster: {len(faster)} of {len(gate.compared)}; most: {faster[-1].id}: {row_text(faster[-1].compared)}"
        )
    lines += [f"note: {note}" for note in gate.notes] + [filled(kind.lead, values) for kind in KINDS[1:]]
    page = f"; comparison: {page}" if page else ""
    lines.append(f"report: {results / 'report.html'}{page}; every cell: {results / 'gate.junit.xml'}")
    return "".join(f"{line}\n" for line in [": ".join(headline(gate)), *(f"  {text}" for text in lines if text)])


def result_of(text: str) -> str:
    """Return passed, failed or undecided from the text of a gate."""
    return text.split()[1].rstrip(":")


def _verdict_text(cell: JudgedCell) -> str:
    lead = f"{UNDECIDED}: " if outcome(cell.compared) == UNDECIDED else ""
    return lead + row_text(cell.compared) + (", screened" if is_unknown(cell.compared.p_adjusted) else "")


def _cause(cell: JudgedCell) -> str:
    """Return counts by status and the most frequent cause: `1 of 3 timed out: no record after 60 s`."""
    statuses = Counter(failure["status"] for failure in cell.failures)
    cause = Counter(failure["cause"] or "unknown cause" for failure in cell.failures).most_common(1)[0][0]
    counts = ", ".join(f"{num} of {cell.repeats} {status_text(status)}" for status, num in statuses.items())
    return f"{counts}: {one_line(cause, CAUSE_LENGTH)}"


def junit(gate: Gate) -> str:
    """Return a JUnit file with one testcase for each cell, and one for each problem not tied to one cell.

    Structure: the schema of Jenkins' xUnit plugin, junit-10.xsd; GitLab and others read a part of it.
    """
    root = ET.Element("testsuites", name="regatta")
    suite = ET.SubElement(root, "testsuite", name=gate.campaign)
    for cell, name in zip(gate.cells, _testcase_names(gate.cells), strict=True):
        _add_testcase(suite, cell, name, gate.is_stopping(cell))
    for problem in gate.problems:
        case = ET.SubElement(suite, "testcase", classname=f"{gate.campaign}.gate", name=problem)
        ET.SubElement(case, "failure", type="problem", message=problem)
    num_failures, num_skipped = (len(suite.findall(f"testcase/{tag}")) for tag in ("failure", "skipped"))
    seconds = sum(cell.elapsed_s or 0 for cell in gate.cells)
    counts = {"tests": str(len(suite)), "failures": str(num_failures), "errors": "0", "time": f"{seconds:.3f}"}
    root.attrib |= counts
    suite.attrib |= counts | {"skipped": str(num_skipped)}
    ET.indent(root)
    text = NOT_XML.sub("", ET.tostring(root, encoding="unicode"))
    return f"<?xml version='1.0' encoding='utf-8'?>\n{text}\n"


def _testcase_names(cells: list[JudgedCell]) -> list[str]:
    """Return the ids without hashes, so that an upgrade keeps the names; with them where two would be equal."""
    names = [HASH.sub("", cell.id) for cell in cells]
    counts = Counter([*names, *(cell.id for cell in cells)])
    return [name if counts[name] == 1 else cell.id for name, cell in zip(names, cells, strict=True)]


def _add_testcase(suite: ET.Element, cell: JudgedCell, name: str, is_stopping: bool) -> None:
    case = ET.SubElement(suite, "testcase", classname=f"{suite.get('name')}.{cell.benchmark}", name=name)
    if cell.elapsed_s is not None:
        case.set("time", f"{cell.elapsed_s:.3f}")
    if cell.skipped is not None:
        ET.SubElement(case, "skipped", message=cell.skipped)
    compared = _verdict_text(cell) if cell.compared else ""
    if cell.failures:
        details = "\n".join([*map(_failure, cell.failures), compared]).strip()
        ET.SubElement(case, "failure", type="not ok", message=_cause(cell)).text = details
    elif compared and (is_stopping or outcome(cell.compared) == FAILED):
        kind = UNDECIDED if is_stopping else "regression"
        ET.SubElement(case, "failure", type=kind, message=compared).text = compared
    elif compared:
        ET.SubElement(case, "system-out").text = compared


def _failure(failure: dict) -> str:
    status = status_text(failure["status"], failure["phase"])
    log = f"; {path}" if (path := log_path(failure["launch"])) else ""  # an import has none
    return f"launch {failure['repeat'] + 1}: {status}: {failure['cause'] or 'unknown cause'}{log}"
