"""The note on intervals that are widened because successive launches of the cells are correlated. docs/metrics.md."""

from regatta.kit.kinds import NOTE, Kind
from regatta.report.findings import Finding, of_cells
from regatta.topics.base import ReportData, Topic, primary_widenings

KINDS = (
    Kind(
        *("correlated_launches", NOTE),
        lead="Correlated launches: successive ones are alike (correlation {correlation:.2f}).",
        parts=("95 % CIs of {num} of {num_cells:cell} are widened, up to {widening_ratio:.2f} times.",),
        advice="Check for drift of the machine and for other users. From five launches (repeats), intervals allow"
        " for it.",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the finding on widened intervals of primary times; none if no correlation is significant."""
    correlation, widenings = primary_widenings(data.measurements)
    cells = tuple(cell for cell, factor in widenings.items() if factor > 1)
    if not cells:
        return []
    values = {"num": len(cells), "num_cells": len(widenings), "correlation": correlation}
    values["widening_ratio"] = max(widenings.values())
    return [Finding("correlated_launches", values, (of_cells("launch_ranges", cells),), cells, "warnings")]


TOPIC = Topic(*("correlated_launches", "Warnings"), findings=findings, kinds=KINDS, is_of_sweeps=True)
