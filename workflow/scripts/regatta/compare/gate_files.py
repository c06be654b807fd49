"""The files of a gate: a short text for the terminal, and a JUnit file for systems that show test results."""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

from regatta.compare.gate import KINDS, Gate, JudgedCell
from regatta.compare.gate_rules import FAILED, PASSED, UNDECIDED, outcome
from regatta.core.text import is_unknown, one_line, status_text
from regatta.kit.kinds import filled
from regatta.tables.references import ReferencePair
from regatta.topics.comparison.texts import row_text
from regatta.topics.failures import log_path

# Cells listed of each kind, so that the text has at most 22 lines, or 30 with references.
SHOWN = {"not ok": 3, "slower": 3, "violated": 3, "undecided": 2, "undecided references": 2}
CAUSE_LENGTH = 160
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, production 2
REFERENCE = {FAILED: "violated", UNDECIDED: UNDECIDED, PASSED: "met"}
HASH = re.compile("-[0-9a-f]{12}$")


def headline(gate: Gate) -> tuple[str, str]:
    """Return the result and what it is based on."""
    return KINDS[0].words(gate.values)


def gate_text(gate: Gate, results: Path, page: Path | None = None) -> str:
    """Return the result, the worst cells, notes, and where the rest is, also on a page."""
    values, faster, lines = gate.values, gate.with_verdict("faster"), [gate.threshold_line]
    for word, cells in (
        ("not ok", [f"not ok: {cell.id}: {_cause(cell)}" for cell in gate.not_ok]),
        ("slower", [f"{cell.id}: {_verdict_text(cell)}" for cell in gate.with_verdict("slower")]),
        ("violated", [f"{cell.id}: {_verdict_text(cell)}" for cell in gate.references_that(FAILED)]),
        ("undecided", [f"{cell.id}: {_verdict_text(cell)}" for cell in gate.undecided]),
        ("undecided references", [f"{cell.id}: {_verdict_text(cell)}" for cell in gate.references_that(UNDECIDED)]),
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


def _verdict_text(cell: JudgedCell) -> str:
    if isinstance(cell.compared, ReferencePair):
        return f"{REFERENCE[outcome(cell.compared)]}: {cell.compared.text}"
    lead = f"{UNDECIDED}: " if outcome(cell.compared) == UNDECIDED else ""
    return lead + row_text(cell.compared) + (", screened" if is_unknown(cell.compared.p_adjusted) else "")


def _cause(cell: JudgedCell) -> str:
    """Return counts by status and the most frequent cause: `1 of 3 timed out: no record after 60 s`."""
    statuses = Counter(failure["status"] for failure in cell.failures)
    cause = Counter(failure["cause"] or "unknown cause" for failure in cell.failures).most_common(1)[0][0]
    counts = ", ".join(f"{num} of {cell.repeats} {status_text(status)}" for status, num in statuses.items())
    return f"{counts}: {one_line(cause, CAUSE_LENGTH)}"


def junit(gate: Gate) -> str:
    """Return a JUnit file with one testcase for each cell, for each reference of it, and for each other problem.

    Structure: the schema of Jenkins' xUnit plugin, junit-10.xsd; GitLab and others read a part of it.
    """
    root = ET.Element("testsuites", name="regatta")
    suite = ET.SubElement(root, "testsuite", name=gate.campaign)
    names = dict(zip((cell.id for cell in gate.cells), _testcase_names(gate.cells), strict=True))
    for cell in gate.cells:
        _add_testcase(suite, cell, names[cell.id], gate.is_stopping(cell))
    for cell in gate.references:
        name = f"{names[cell.compared.cell.id]}: {cell.compared.required}"
        _add_testcase(suite, cell, name, gate.is_stopping(cell), "reference")
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
    """Return ids without hashes, so that names survive an upgrade; keep hashes where names would coincide."""
    names = [HASH.sub("", cell.id) for cell in cells]
    counts = Counter([*names, *(cell.id for cell in cells)])
    return [name if counts[name] == 1 else cell.id for name, cell in zip(names, cells, strict=True)]


def _add_testcase(
    suite: ET.Element, cell: JudgedCell, name: str, is_stopping: bool, failed: str = "regression"
) -> None:
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
        kind = UNDECIDED if is_stopping else failed
        ET.SubElement(case, "failure", type=kind, message=compared).text = compared
    elif compared:
        ET.SubElement(case, "system-out").text = compared


def _failure(failure: dict) -> str:
    status = status_text(failure["status"], failure["phase"])
    log = f"; {path}" if (path := log_path(failure["launch"])) else ""  # an import has none
    return f"launch {failure['repeat'] + 1}: {status}: {failure['cause'] or 'unknown cause'}{log}"
