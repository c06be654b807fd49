"""The list of all warnings, the worst first, and the cells that they are on."""

from collections import defaultdict

from regatta.kit.kinds import NOTE, WARNINGS
from regatta.report.findings import Finding
from regatta.report.panels import Section
from regatta.topics.base import WARNED, ReportData, Topic, once_per_report, unreliable_cells


@once_per_report
def warnings(data: ReportData) -> list[Finding]:
    """Return the warnings, the worst first, then in the page's order."""
    found = [finding for finding in data.findings if finding.rank in WARNINGS]
    return sorted(found, key=lambda finding: WARNINGS.index(finding.rank))


def warnings_by_cell(warned: list[Finding]) -> dict[str, str]:
    """Return what the warnings on each cell are about, such as "Variation; Outliers"."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for warning in warned:
        for cell in warning.cells:
            found[cell][warning.statement[0].partition(":")[0]] = None
    return {cell: "; ".join(subjects) for cell, subjects in found.items()}


def marks(data: ReportData, warned: list[Finding]) -> dict[str, str]:
    """Return what is invalid on each cell that is marked. Of a warning on all results, the sentence is enough."""
    every, warned = {*data.ok["cell"]}, [one for one in warned if one.rank != NOTE and not one.words.get("included")]
    return warnings_by_cell([one for one in warned if not every.issubset(one.cells)])


def section(data: ReportData) -> Section:
    num = len(unreliable_cells(data))
    lead = f"{num:,} of {len(data.campaign.cells):,} cells have a warning that affects comparisons." if num else ""
    return Section(lead or ("" if warnings(data) else "No warnings."))


TOPIC = Topic(WARNED, "Warnings", section=section, part_of="stability", is_of_sweeps=True)
