"""Efficiency of each training cell against every baseline that makes sense: tables/efficiencies.csv. Definitions: docs/metrics.md.

The choice of baseline moves the number by several points, so each stands with its name. Weak scaling keeps the batch of a
rank, strong scaling that of all ranks together; they are never in one column.
"""

from collections.abc import Iterator

import pandas as pd

from regatta.analysis.collect import cell_row
from regatta.analysis.partners import Partners
from regatta.analysis.scaling import steps_by_cell
from regatta.analysis.tables import REAL, SCALING, TEXT, WHOLE, make_table
from regatta.cell_words import natural
from regatta.statistics import over_launches, ratio_over_launches

ONE_RANK = {"nodes": 1, "gpus_per_node": 1}
WEAK, STRONG = "weak", "strong"
EFFICIENCIES = {
    **{name: kind for name, kind in SCALING.items() if name in ("cell", "num_planned", "num_launches")},
    "scaling": TEXT,
    "against": TEXT,
    "baseline": TEXT,
    "num_baseline_launches": WHOLE,
    "baseline_step_s": REAL,
    "efficiency_ratio": REAL,
    "efficiency_low_ratio": REAL,
    "efficiency_high_ratio": REAL,
    "interval": TEXT,
}


def efficiencies_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each train_step cell of several ranks and each baseline of it that the campaign has."""
    specs = {cell["id"]: cell["spec"] for cell in campaign["cells"] if cell["spec"]["benchmark"] == "train_step"}
    partners, steps, rows = Partners(specs), steps_by_cell(measurements), []
    for cell in sorted((c for c in campaign["cells"] if c["id"] in specs), key=lambda cell: natural(cell["id"])):
        for scaling, against, changes in baselines_of(cell["spec"]):
            baseline = partners.find(cell["spec"], changes)
            if baseline is not None:
                row = {"num_planned": campaign["repeats"], "scaling": scaling, "against": against, "baseline": baseline}
                rows.append(cell_row(cell) | row | _efficiency(cell["spec"], cell["id"], baseline, scaling, steps))
    return make_table(rows, EFFICIENCIES)


def baselines_of(spec: dict) -> Iterator[tuple[str, str, dict]]:
    """Yield (weak or strong, its name, what differs from the cell) for each baseline of a cell; none of one rank."""
    n, parameters = spec["nodes"] * spec["gpus_per_node"], spec["parameters"]
    if n == 1:
        return
    strategy, same_work = parameters["strategy"], {"batch_size": parameters["batch_size"] * n}
    if strategy != "none":
        yield WEAK, "none, 1 rank", ONE_RANK | {"strategy": "none"}
    yield WEAK, f"{strategy}, 1 rank", ONE_RANK
    if spec["nodes"] > 1:
        yield WEAK, f"{strategy}, 1 node", {"nodes": 1}
    if strategy != "none":
        yield STRONG, "none, 1 rank", ONE_RANK | {"strategy": "none"} | same_work
    yield STRONG, f"{strategy}, 1 rank", ONE_RANK | same_work


def _efficiency(spec: dict, cell: str, baseline: str, scaling: str, steps: dict[str, list[float]]) -> dict:
    """Weak: T0/T, the batch of a rank being the same. Strong: T(1) / (n T(n)), the batch of all ranks being the same."""
    own, base = steps.get(cell, []), steps.get(baseline, [])
    shrink = spec["nodes"] * spec["gpus_per_node"] if scaling == STRONG else 1
    ratio = ratio_over_launches([step / shrink for step in base], own)
    return {
        "num_launches": len(own),
        "num_baseline_launches": len(base),
        "baseline_step_s": over_launches(base).median,
        "efficiency_ratio": ratio.median,
        "efficiency_low_ratio": ratio.low,
        "efficiency_high_ratio": ratio.high,
        "interval": ratio.kind,
    }
