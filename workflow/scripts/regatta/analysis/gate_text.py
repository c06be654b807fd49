"""What the gate says: a short text for the terminal, and a JUnit file for systems that show test results."""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from regatta.analysis.failures_table import log_path
from regatta.analysis.gate import Comparison, Gate, JudgedCell, chance_alone
from regatta.numbers import bracket, percent, plural, ratio_text, three
from regatta.statistics import MIN_LAUNCHES_INTERVAL

SHOWN = 4  # cells of a kind, so that the whole text stays within 20 lines
SHOWN_FASTER = 2
CAUSE_LENGTH = 160
LEAST_P = 0.001  # told as it is; less is told as less
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, production 2


def gate_text(gate: Gate, results: Path) -> str:
    """Return at most 20 lines: passed or failed, the worst cells, notes, and where the rest is."""
    slower, faster = gate.with_verdict("slower"), gate.with_verdict("faster")[::-1]
    lines = [headline(gate)]
    lines += _some("not ok", [f"{cell.id}: {_cause(cell)}" for cell in gate.not_ok], SHOWN)
    lines += _some("slower", [_compared(cell) for cell in slower], SHOWN)
    lines += _some("faster", [_compared(cell) for cell in faster], SHOWN_FASTER)
    lines += _cannot_tell(gate.with_verdict("inconclusive"))
    lines += [f"  note: {note}" for note in [*gate.notes, *_chance(gate)]]
    lines.append(f"  report: {results / 'report.html'}; every cell: {results / 'gate.junit.xml'}")
    return "\n".join(lines) + "\n"


def headline(gate: Gate) -> str:
    """Return the first line: `gate: passed: …`, or `gate: failed: …` with what failed it."""
    planned = [cell for cell in gate.cells if cell.skipped is None]
    slower = len(gate.with_verdict("slower"))
    told = list(gate.problems)
    if gate.not_ok:
        told.append(f"{plural(len(gate.not_ok), 'cell')} not ok")
    elif planned:
        told.append(f"{plural(len(planned), 'cell')} ok")
    if gate.compared:
        against = f"{len(gate.compared)} compared with '{gate.baseline_campaign}' (margin {percent(gate.margin)} %)"
        told.append(f"{plural(slower, 'regression') if slower else 'no regression'} of {against}")
    return f"gate: {'passed' if gate.is_passed else 'failed'}: {', '.join(told)}"


def junit(gate: Gate) -> str:
    """Return a JUnit file with one testcase for each cell, and one for each problem that is no cell's.

    Structure: the schema of Jenkins' xUnit plugin, junit-10.xsd; GitLab and others read a part of it.
    """
    cases = [_testcase(gate, cell) for cell in gate.cells]
    for problem in gate.problems:
        case = ET.Element("testcase", classname=f"{gate.campaign}.gate", name=problem)
        ET.SubElement(case, "failure", type="problem", message=problem)
        cases.append(case)
    failures, skipped = (sum(case.find(tag) is not None for case in cases) for tag in ("failure", "skipped"))
    seconds = sum(cell.elapsed_s or 0 for cell in gate.cells)
    counts = {"tests": str(len(cases)), "failures": str(failures), "errors": "0", "time": f"{seconds:.3f}"}
    root = ET.Element("testsuites", name="regatta", **counts)
    suite = ET.SubElement(root, "testsuite", name=gate.campaign, **counts, skipped=str(skipped))
    suite.extend(cases)
    for element in root.iter():
        element.attrib = {name: _xml(value) for name, value in element.attrib.items()}
        element.text = None if element.text is None else _xml(element.text)
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True).decode() + "\n"


def comparison_words(comparison: Comparison) -> str:
    """Return a comparison in words: `takes 1.230 times as long, interval [1.190, 1.270], p = 0.00433, 6 launches (6 before)`,
    or `takes 1.230 times as long, range (1.190 to 1.270), 3 launches (3 before), screened`."""
    ratio, num = comparison.ratio, comparison.num_launches
    spread = "" if ratio.low is None else f", {ratio.kind} {bracket(ratio.low, ratio.high, ratio.kind, ratio_text)}"
    p_value = "" if comparison.is_screened else f", {_p_words(comparison.p_adjusted)}"
    told = f"takes {ratio_text(ratio.median)} times as long{spread}{p_value}, {plural(num, 'launch', 'launches')}"
    return f"{told} ({comparison.num_before} before)" + (", screened" if comparison.is_screened else "")


def _testcase(gate: Gate, cell: JudgedCell) -> ET.Element:
    case = ET.Element("testcase", classname=f"{gate.campaign}.{cell.spec['benchmark']}", name=cell.id)
    if cell.elapsed_s is not None:
        case.set("time", f"{cell.elapsed_s:.3f}")
    if cell.skipped is not None:
        ET.SubElement(case, "skipped", message=cell.skipped)
    told = f"{cell.verdict}: {comparison_words(cell.comparison)}" if cell.comparison else ""
    if cell.failures:
        details = [_failure(failure) for failure in cell.failures]
        ET.SubElement(case, "failure", type="not ok", message=_cause(cell)).text = "\n".join([*details, told]).strip()
    elif cell.verdict == "slower":
        ET.SubElement(case, "failure", type="regression", message=told).text = told
    elif told:
        ET.SubElement(case, "system-out").text = told
    return case


def _failure(failure: dict) -> str:
    phase = f" in {failure['phase']}" if failure["phase"] else ""
    log = f"; {log_path(failure['launch'])}" if failure["launch"] else ""
    return f"repeat {failure['repeat']}: {failure['status']}{phase}: {failure['cause'] or 'no cause known'}{log}"


def _cause(cell: JudgedCell) -> str:
    """Return how often a cell was not ok, how, and the commonest cause: `1 timeout of 3: no record after 60 s`."""
    statuses = Counter(failure["status"] for failure in cell.failures)
    cause = Counter(failure["cause"] or "no cause known" for failure in cell.failures).most_common(1)[0][0]
    told = ", ".join(f"{num} {status}" for status, num in statuses.items())
    shown = cause if len(cause) <= CAUSE_LENGTH else f"{cause[: CAUSE_LENGTH - 3]}..."
    return f"{told} of {cell.repeats}: {shown}"


def _compared(cell: JudgedCell) -> str:
    return f"{cell.id}: {comparison_words(cell.comparison)}"


def _some(kind: str, items: list[str], num: int) -> Iterator[str]:
    yield from (f"  {kind}: {item}" for item in items[:num])
    if len(items) > num:
        yield f"  ... and {len(items) - num} more {kind}"


def _cannot_tell(cells: list[JudgedCell]) -> Iterator[str]:
    if cells:
        yield f"  inconclusive: {plural(len(cells), 'cell')}, which fail nothing; the slowest: {_compared(cells[0])}"


def _chance(gate: Gate) -> Iterator[str]:
    num, most = chance_alone(gate)
    if num:
        yield (
            f"{num} of {plural(len(gate.compared), 'compared cell')} only screened, for want of {MIN_LAUNCHES_INTERVAL} launches"
            " on both sides: slower is every launch slower than every launch before, by more than the margin; chance alone: at"
            f" most {three(most)} of {plural(num, 'cell')}"
        )


def _p_words(p_value: float) -> str:
    return f"p = {three(p_value)}" if p_value >= LEAST_P else f"p < {LEAST_P:g}"


def _xml(text: str) -> str:
    """Return a text without the characters that XML forbids."""
    return NOT_XML.sub("", text)
