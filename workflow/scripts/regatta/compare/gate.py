"""The gate: is every planned cell ok, and did any get slower than in a baseline campaign? Definitions: docs/metrics.md.

Cells are matched by what they measure and by the name of their stack, not by id. The unit is the launch, with its
primary time.
"""

import math
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace

import pandas as pd

from regatta.compare.campaigns import matched_cells
from regatta.core.moderation import MIN_LAUNCHES
from regatta.core.text import natural, nodes_text, percent, plural, status_text, three
from regatta.core.verdicts import Compared, Verdict, judge_all
from regatta.kit.findings import filled
from regatta.topics.base import fallback_text, grouped, plain_rows, primary_columns
from regatta.topics.comparison.tables import sides_of, times_by_cell, verdict_values
from regatta.topics.comparison.texts import KIND_OF, row_text
from regatta.topics.failures import log_path

ALLOCATION_VARIATION = 0.08  # default: for a standard deviation of 3 % between allocations (decision 7)
FAILURE = ("repeat", "status", "phase", "cause", "launch")


@dataclass(frozen=True)
class JudgedCell:
    """One cell. skipped: why it is not measured. failures: a dict of FAILURE for each repeat that is not ok.

    pair, comparison: the launches of the baseline campaign and this one, and the verdict. Without p, as one side has
    too few launches for a test, the cell is screened.
    """

    id: str
    spec: dict
    repeats: int
    elapsed_s: float | None = None
    skipped: str | None = None
    failures: tuple[dict, ...] = ()
    pair: Compared | None = None
    comparison: Verdict | None = None

    @property
    def verdict(self) -> str | None:
        return self.comparison.word if self.comparison else None


@dataclass(frozen=True)
class Gate:
    """The result of the gate. problems: not tied to one cell; they fail the gate, notes do not.

    allocation_variation: ratio added to the margin of cells whose intervals do not include it.
    """

    campaign: str
    baseline_campaign: str | None
    margin: float
    cells: list[JudgedCell]
    problems: list[str]
    notes: list[str]
    allocation_variation: float = 0.0

    @property
    def is_passed(self) -> bool:
        return not (self.not_ok or self.with_verdict("slower") or self.problems)

    @cached_property
    def not_ok(self) -> list[JudgedCell]:
        """Return the cells that are not ok in every repeat, those with the most failures first."""
        return sorted((cell for cell in self.cells if cell.failures), key=lambda cell: -len(cell.failures))

    @cached_property
    def compared(self) -> list[JudgedCell]:
        """Return the compared cells, the largest slowdown first."""
        found = [cell for cell in self.cells if cell.comparison]
        return sorted(found, key=lambda cell: -cell.comparison.ratio.mean)

    @property
    def with_allowance(self) -> list[JudgedCell]:
        """Return the compared cells that must exceed allocation_variation in addition to the margin."""
        return [cell for cell in self.compared if self.allocation_variation and not cell.pair.is_by_allocation]

    def margin_of(self, cell: JudgedCell) -> float:
        """Return the ratio beyond which a compared cell is slower or faster."""
        allowance = 0.0 if cell.pair.is_by_allocation else self.allocation_variation
        return self.margin + (1 + self.margin) * allowance

    def with_verdict(self, verdict: str) -> list[JudgedCell]:
        return [cell for cell in self.compared if cell.verdict == verdict]


def judge(
    campaign: dict,
    measurements: pd.DataFrame,
    before: tuple[dict, pd.DataFrame] | None = None,
    margin: float = 0.05,
    allocation_variation: float = 0.0,
) -> Gate:
    """Return the result of the gate for a frozen campaign and its measurements.

    before: the same of the baseline campaign.
    margin: allowed relative increase of a time. allocation_variation: see Gate.
    """
    pairs, notes = _pairs(campaign, measurements, before) if before else ({}, [])
    verdicts = compare_all(list(pairs.values()), margin, allocation_variation)
    compared = dict(zip(pairs, zip(pairs.values(), verdicts, strict=True), strict=True))
    rows = grouped(plain_rows(measurements, ("cell", "elapsed_s", *FAILURE)), ("cell",))
    repeats = campaign["repeats"]
    cells = [
        _judged(cell, rows.get((cell["id"],), []), cell.get("repeats", repeats), *compared.get(cell["id"], ()))
        for cell in campaign["cells"]
    ]
    cells += [JudgedCell(cell["id"], cell["spec"], 0, skipped=cell["reason"]) for cell in campaign["skipped"]]
    cells.sort(key=lambda cell: natural(cell.id))
    baseline_campaign = before[0]["name"] if before else None
    problems = [] if campaign["cells"] else ["no cell is planned"]
    if before and not pairs and (measurements["status"] == "ok").any():
        problems.append(f"nothing to compare with in '{baseline_campaign}'")
    return Gate(campaign["name"], baseline_campaign, margin, cells, problems, notes, allocation_variation)


def compare_all(pairs: list[Compared], margin: float, allocation_variation: float = 0.0) -> list[Verdict]:
    """Return the verdict on the launches of each cell, `test` now with `base` before.

    All cells are one table, as in every comparison (regatta.core.verdicts). With fewer than MIN_LAUNCHES on either side
    there is no test, and a gate must be able to fail: those cells are screened. Error rates of both:
    docs/decisions/0007-intervals-and-verdicts.md.
    """
    judged, limit = judge_all(pairs, margin, allocation_variation), (1 + margin) * (1 + allocation_variation)
    both = zip(pairs, judged, strict=True)
    return [verdict if pair.num >= MIN_LAUNCHES else _screened(pair, limit) for pair, verdict in both]


def chance_alone(gate: Gate) -> tuple[int, float]:
    """Return how many cells are screened, and how many of them at most should be called slower by chance.

    If n launches and m before come from one distribution, all n are the slowest in one of C(n + m, n) orders. This is
    the worst case, where the margin is negligible against between-launch variation.
    """
    screened = [cell.pair for cell in gate.compared if cell.comparison.p_adjusted is None]
    return len(screened), sum(1 / math.comb(len(pair.test + pair.base), len(pair.test)) for pair in screened)


def _screened(pair: Compared, limit: float) -> Verdict:
    """Return the verdict on a cell with few launches: slower if all are slower than all before, beyond the margin."""
    is_slower, is_faster = min(pair.test) / max(pair.base) > limit, max(pair.test) / min(pair.base) < 1 / limit
    return Verdict("slower" if is_slower else "faster" if is_faster else "inconclusive", pair.ratio)


def _pairs(campaign: dict, measurements: pd.DataFrame, before: tuple) -> tuple[dict[str, Compared], list[str]]:
    """Return each cell with launches on both sides, and notes on the others and on a different cluster."""
    tables = before[1], measurements
    columns, clusters = primary_columns(*tables), [nodes_text(of["cluster"]) for of in (before[0], campaign)]
    times = tuple(times_by_cell(table, columns) for table in tables)
    pairs, unmatched = matched_cells(before[0], campaign, times)
    found = {
        cell["id"]: sides_of(
            times[0][old["id"]], times[1][cell["id"]], cell["spec"]["benchmark"], is_same_campaign=False
        )
        for old, cell in pairs
    }
    others = [f"{len(cells)} {reason.removeprefix('not compared, ')}" for reason, cells in unmatched.items()]
    notes = [f"not compared: {', '.join(others)}"] if others else []
    notes += filter(None, [fallback_text(*tables)])
    if clusters[0] != clusters[1]:
        notes.append(f"'{before[0]['name']}' was measured on cluster '{clusters[0]}', this campaign on '{clusters[1]}'")
    return found, notes


def _judged(cell: dict, rows: list[dict], repeats: int, *compared: Compared | Verdict) -> JudgedCell:
    failures = [{name: row[name] for name in FAILURE} for row in rows if row["status"] != "ok"]
    absent = sorted(set(range(repeats)) - {row["repeat"] for row in rows})
    failures += [dict.fromkeys(FAILURE) | {"repeat": repeat, "status": "not_measured"} for repeat in absent]
    failures.sort(key=lambda failure: failure["repeat"])
    elapsed_s = [float(row["elapsed_s"]) for row in rows if row["elapsed_s"] is not None]
    total_s = sum(elapsed_s) if elapsed_s else None
    return JudgedCell(cell["id"], cell["spec"], repeats, total_s, None, tuple(failures), *compared)


# A short text for the terminal, and a JUnit file for systems that show test results.

SHOWN = 4  # cells of a kind, so that the whole text stays within 20 lines
SHOWN_FASTER = 2
CAUSE_LENGTH = 160
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, production 2


def gate_text(gate: Gate, results: Path) -> str:
    """Return at most 20 lines: passed or failed, the worst cells, notes, and where the rest is."""
    lines, unclear = [headline(gate)], gate.with_verdict("inconclusive")
    lines += _some("not ok", [f"not ok: {cell.id}: {_cause(cell)}" for cell in gate.not_ok], SHOWN)
    for word, cells, num in (
        ("slower", gate.with_verdict("slower"), SHOWN),
        ("faster", gate.with_verdict("faster")[::-1], SHOWN_FASTER),
    ):
        lines += _some(word, [f"{cell.id}: {_verdict(gate, cell)}" for cell in cells], num)
    if unclear:
        num, slowest = plural(len(unclear), "cell"), f"{unclear[0].id}: {_verdict(gate, unclear[0])}"
        lines.append(f"  not settled: {num} (do not fail the gate); largest ratio: {slowest}")
    lines += [f"  note: {note}" for note in gate.notes]
    if texts := _limits(gate):
        lines.append(f"  note: {'; '.join(texts)}")
    lines.append(f"  report: {results / 'report.html'}; every cell: {results / 'gate.junit.xml'}")
    return "\n".join(lines) + "\n"


def _limits(gate: Gate) -> list[str]:
    """Return what intervals and verdicts do not include: variation between allocations, and a test."""
    (num, most), excluded = chance_alone(gate), gate.with_allowance
    words = {"num": num, "most": three(most), "num_compared": len(gate.compared), "num_excluded": len(excluded)}
    words["limit"] = percent(gate.margin_of(excluded[0])) if excluded else ""
    return list(filter(None, (filled(KIND_OF[name].lead, words) for name in ("allocations_excluded", "screened"))))


def headline(gate: Gate) -> str:
    """Return the first line: `gate: passed: …`, or `gate: failed: …` with what failed it."""
    texts, slower = list(gate.problems), len(gate.with_verdict("slower"))
    if num := len(gate.not_ok) or sum(cell.skipped is None for cell in gate.cells):
        texts.append(f"{plural(num, 'cell')} {'not ok' if gate.not_ok else 'ok'}")
    if gate.compared:
        margin = f"margin {percent(gate.margin)} %"
        if gate.with_allowance:
            margin += f", allocations {percent(gate.allocation_variation)} %"
        against = f"{len(gate.compared)} compared with '{gate.baseline_campaign}' ({margin})"
        texts.append(f"{plural(slower, 'regression') if slower else 'no regression'} of {against}")
    return f"gate: {'passed' if gate.is_passed else 'failed'}: {', '.join(texts)}"


def _some(kind: str, items: list[str], num: int) -> Iterator[str]:
    yield from (f"  {item}" for item in items[:num])
    if len(items) > num:
        yield f"  ... and {len(items) - num} more {kind}"


def _verdict(gate: Gate, cell: JudgedCell) -> str:
    nums = {"num_launches": len(cell.pair.test), "num_reference_launches": len(cell.pair.base)}
    row = SimpleNamespace(margin_ratio=gate.margin_of(cell), **nums, **verdict_values(cell.comparison))
    return row_text(row) + (", screened" if row.p_adjusted is None else "")


def _cause(cell: JudgedCell) -> str:
    """Return counts by status and the most frequent cause: `1 of 3 timed out: no record after 60 s`."""
    statuses = Counter(failure["status"] for failure in cell.failures)
    cause = Counter(failure["cause"] or "unknown cause" for failure in cell.failures).most_common(1)[0][0]
    counts = ", ".join(f"{num} of {cell.repeats} {status_text(status)}" for status, num in statuses.items())
    shown = cause if len(cause) <= CAUSE_LENGTH else f"{cause[: CAUSE_LENGTH - 3]}..."
    return f"{counts}: {shown}"


def junit(gate: Gate) -> str:
    """Return a JUnit file with one testcase for each cell, and one for each problem not tied to one cell.

    Structure: the schema of Jenkins' xUnit plugin, junit-10.xsd; GitLab and others read a part of it.
    """
    root = ET.Element("testsuites", name="regatta")
    suite = ET.SubElement(root, "testsuite", name=gate.campaign)
    for cell in gate.cells:
        _add_testcase(suite, gate, cell)
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


def _add_testcase(suite: ET.Element, gate: Gate, cell: JudgedCell) -> None:
    case = ET.SubElement(suite, "testcase", classname=f"{gate.campaign}.{cell.spec['benchmark']}", name=cell.id)
    if cell.elapsed_s is not None:
        case.set("time", f"{cell.elapsed_s:.3f}")
    if cell.skipped is not None:
        ET.SubElement(case, "skipped", message=cell.skipped)
    compared = _verdict(gate, cell) if cell.comparison else ""
    if cell.failures:
        details = "\n".join([*map(_failure, cell.failures), compared]).strip()
        ET.SubElement(case, "failure", type="not ok", message=_cause(cell)).text = details
    elif cell.verdict == "slower":
        ET.SubElement(case, "failure", type="regression", message=compared).text = compared
    elif compared:
        ET.SubElement(case, "system-out").text = compared


def _failure(failure: dict) -> str:
    status = status_text(failure["status"], failure["phase"])
    log = f"; {log_path(failure['launch'])}" if failure["launch"] else ""
    return f"launch {failure['repeat'] + 1}: {status}: {failure['cause'] or 'unknown cause'}{log}"
