"""The note on intervals that are widened because successive launches of the cells are correlated. docs/metrics.md."""

import numpy as np

from regatta.core.moderation import mean_intervals
from regatta.kit.kinds import NOTE, Kind
from regatta.report.findings import Finding, of_cells
from regatta.tables.cells import CellValues
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
    values = CellValues(data.campaign, data.measurements)
    is_known = ~np.isnan(values.primary_times)
    rows, launches = is_known.any(1), is_known.any(0)
    logs, groups = np.log(values.primary_times[np.ix_(rows, launches)]), np.full(rows.sum(), "")
    found = mean_intervals(logs, groups, batches=values.batches(is_known)[rows])
    cells = tuple(sorted(np.array(list(values.places))[rows][found.widening > 1].tolist()))
    if not cells:
        return []
    values = {"num": len(cells), "num_cells": int(rows.sum()), "correlation": float(np.max(found.correlation))}
    values["widening_ratio"] = float(found.widening.max())
    return [Finding("correlated_launches", values, (of_cells("cells", cells),), cells)]


TOPIC = Topic("correlated_launches", findings=findings, kinds=KINDS, is_of_sweeps=True)
