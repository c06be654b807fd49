"""The note on intervals that are widened because successive launches of the cells are correlated. docs/metrics.md."""

from regatta.kit.kinds import NOTE, Kind
from regatta.report.findings import Finding, of_cells
from regatta.tables.primary_times import primary_widenings
from regatta.topics.base import ReportData, Topic

KINDS = (
    Kind(
        *("correlated_launches", NOTE),
        lead="Correlated launches: correlation {correlation:.2f} between successive ones.",
        parts=("95 % CIs of {num} of {num_cells:cell} are widened by a factor of up to {widening_ratio:.2f}.",),
        advice="Check for machine drift and other users. With five or more launches (repeats), intervals account"
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
    return [Finding("correlated_launches", values, (of_cells("cells", cells),), cells, "warnings")]


TOPIC = Topic(*("correlated_launches", "Warnings"), findings=findings, kinds=KINDS, is_of_sweeps=True)
