"""Absolute references: metrics of cells, each compared with a constant. Definitions: docs/metrics.md, Gate.

The interval is that of cells.csv. Nothing is corrected for the number of pairs, and no other interval changes.
"""

import math
from dataclasses import dataclass, replace

import pandas as pd

from regatta.campaign.expansion import has_fields
from regatta.core.benchmarks import Benchmark
from regatta.core.text import is_unknown
from regatta.kit.columns import Column, Row, table_rows
from regatta.model.frozen import FrozenCampaign, FrozenCell
from regatta.tables.cells import cells_table, metrics_of, results_of
from regatta.tables.metrics import CALL, METRICS


@dataclass(frozen=True)
class ReferencePair:
    """A metric of a cell and its bound. required: the bound in words. limit: the bound with its tolerance.

    ends: of the interval or range; without either, the value twice. value: None if unknown. text: of value and ends.
    """

    cell: FrozenCell
    metric: str
    required: str
    is_least: bool
    limit: float
    value: float | None
    ends: tuple[float, float]
    text: str
    has_interval: bool

    def is_beyond(self, value: float) -> bool:
        """Return whether a value violates the bound."""
        return value < self.limit if self.is_least else value > self.limit

    @property
    def distance(self) -> float:
        """Return how far the value is from the limit, relative to it; infinite if unknown."""
        return math.inf if self.value is None else abs(self.value - self.limit) / (abs(self.limit) or 1.0)


def numbers_of(benchmark: Benchmark) -> list[str]:
    """Return the names of the metrics of a benchmark that are numbers."""
    columns = [*(results_of(benchmark) if benchmark.is_custom else ()), *METRICS]
    has_other_time = any(of.is_main and benchmark.name in of.benchmarks for of in METRICS)
    columns = [of for of in columns if of.is_number and not (has_other_time and of.name == CALL.name)]
    return [of.name for of in columns if not of.benchmarks or benchmark.name in of.benchmarks]


def reference_pairs(
    campaign: FrozenCampaign, measurements: pd.DataFrame, references: list[dict]
) -> list[ReferencePair]:
    """Return a pair for each reference and each planned cell that it selects."""
    wanted = {reference["metric"] for reference in references}
    columns = {column.name: column for column in metrics_of(campaign)}
    wanted |= {columns[name].interval for name in wanted}
    metrics = [column for name, column in columns.items() if name in wanted]
    rows = {row.cell: row for row in table_rows(cells_table(campaign, measurements, metrics))} if wanted else {}
    return [
        _pair(cell, rows[cell.id], columns[reference["metric"]], reference)
        for reference in references
        for cell in campaign.cells
        if has_fields(cell, reference["when"])
    ]


def _pair(cell: FrozenCell, row: Row, column: Column, reference: dict) -> ReferencePair:
    is_least, tolerance = "least" in reference, reference.get("tolerance", 0)
    bound, sign = reference["least" if is_least else "most"], -1 if is_least else 1
    limit = bound + sign * abs(bound) * tolerance
    required = f"at {'least' if is_least else 'most'} {limit:.6g}"
    required += f" ({bound:.6g} {'−' if is_least else '+'} {100 * tolerance:g} %)" if tolerance else ""
    in_file = replace(column, shown_as="", scale=None, minus=0, text=None, of_row=None, applies=None)
    value, low, high = in_file.of(row)
    has_ends = not is_unknown(low) and not is_unknown(high)
    text = f"{in_file.cell(row)} {in_file.ends(row)}" if has_ends else in_file.cell(row)
    text += f", n = {row.num_launches}" if value is not None else f": unknown ({row.num_launches} ok launches)"
    has_interval = has_ends and getattr(row, column.interval) == "interval"
    ends = (low, high) if has_ends else (value, value)
    return ReferencePair(cell, column.name, required, is_least, limit, value, ends, text, has_interval)
