"""The list of all warnings, the worst first, and the cells that they are on."""

from collections import defaultdict

from regatta.kit.kinds import NOTE, WARNINGS
from regatta.report.chart import HOLLOW
from regatta.report.findings import Finding
from regatta.report.panels import Section
from regatta.topics.base import WARNED, ReportData, Topic, once_per_report, unreliable_cells


@once_per_report
def warnings(data: ReportData) -> list[Finding]:
    """Return the warnings, the worst first, then in the page's order."""
    found = [finding for finding in data.findings if finding.rank in WARNINGS]
    return sorted(found, key=lambda finding: WARNINGS.index(finding.rank))


def warnings_by_cell(data: ReportData, warned: list[Finding]) -> dict[str, str]:
    """Return what the warnings on each cell are about, such as "Variation; Outliers", and its slow nodes."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for warning in warned:
        for cell in warning.cells:
            is_place = warning.declared.is_place
            found[cell][f"includes {data.places[cell]}" if is_place else warning.text.partition(":")[0]] = None
    return {cell: "; ".join(subjects) for cell, subjects in found.items()}


def marks(data: ReportData, warned: list[Finding]) -> dict[str, str]:
    """Return what is invalid on each cell that is marked. Of a warning on all results, the sentence is enough."""
    every, warned = {*data.ok["cell"]}, [one for one in warned if one.rank != NOTE and not one.declared.is_place]
    return warnings_by_cell(data, [one for one in warned if not every.issubset(one.cells)])


def section(data: ReportData) -> Section:
    warned, num_cells = warnings(data), len(data.campaign.cells)
    num, marked = len(unreliable_cells(data)), marks(data, warned)
    num_marked = len(marked.keys() | data.places)
    signs = " or ".join(["\N{WARNING SIGN}"] * bool(marked) + [HOLLOW] * bool(data.places))
    lead = f"{num:,} of {num_cells:,} cells have a warning that affects comparisons" if num else ""
    if num_marked == num > 0:
        lead += f"; tables mark them with {signs}"
    elif num_marked:
        lead += f"; {num_marked:,} are marked {signs} in tables"
    return Section(f"{lead}." if lead else "" if warned else "No warnings.")


TOPIC = Topic(WARNED, "Warnings", section=section, part_of="stability", is_of_sweeps=True)
