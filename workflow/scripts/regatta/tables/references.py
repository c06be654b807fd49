"""Absolute references: metrics of cells, each compared with a constant. Definitions: docs/metrics.md, Gate.

The interval is that of cells.csv. Nothing is corrected for the number of pairs, and no other interval changes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from regatta.campaign.expansion import has_fields
from regatta.core.benchmarks import Benchmark, load_benchmark
from regatta.core.errors import UserError, nearest
from regatta.core.moderation import MIN_LAUNCHES
from regatta.core.schemas import show
from regatta.core.text import is_unknown
from regatta.kit.columns import Column, Row, table_rows
from regatta.model.frozen import Cell, FrozenCampaign, FrozenCell
from regatta.tables.cells import cells_table, metrics_of, results_of
from regatta.tables.estimates import KINDS
from regatta.tables.metrics import CALL, METRICS
from regatta.tables.primary_times import values_by_cell


@dataclass(frozen=True)
class ReferencePair:
    """A row of pairs: a metric of a cell, and a bound on it. required: the bound in words. text: of value and interval.

    Ratios are 1 + the distance beyond the bound, relative to it; time_high_ratio is None for an unknown value.
    """

    cell: FrozenCell
    required: str
    text: str
    verdict: str
    time_ratio: float
    time_high_ratio: float | None
    has_interval: bool
    margin_ratio: float = 0.0


def numbers_of(benchmark: Benchmark) -> list[str]:
    """Return the names of the metrics of a benchmark that are numbers."""
    columns = [*(results_of(benchmark) if benchmark.is_custom else ()), *METRICS]
    has_other_time = any(of.is_main and benchmark.name in of.benchmarks for of in METRICS)
    columns = [of for of in columns if of.is_number and not (has_other_time and of.name == CALL.name)]
    return [of.name for of in columns if not of.benchmarks or benchmark.name in of.benchmarks]


class _Fields:
    """A cell as `Column.applies` takes a row; without results, so that only what is declared counts."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    def __getattr__(self, name: str) -> object:
        return self._cell.field(name)


def selected(cells: Sequence[Cell], when: dict, metric: str) -> Iterator[Cell]:
    """Yield the cells with these fields for which a metric is defined."""
    applies = next((of.applies for of in METRICS if of.name == metric), None)
    return (cell for cell in cells if has_fields(cell, when) and (applies is None or applies(_Fields(cell))))


def reference_errors(references: Sequence[dict], cells: Sequence[Cell]) -> Iterator[tuple[tuple, str]]:
    """Yield what is wrong with references, each with its place: they select no cell, or cells without the metric."""
    for index, reference in enumerate(references):
        metric, when, name = reference["metric"], reference["when"], f"gate.references[{index}]"
        benchmarks = dict.fromkeys(cell.benchmark for cell in cells if has_fields(cell, when))
        known = {of: numbers_of(load_benchmark(of)) for of in benchmarks}
        for benchmark, names in known.items():
            if metric not in names:
                text = f"{name}.metric = {show(metric)} is not a metric of {benchmark}, which its `when` selects."
                text += f"{nearest(metric, names)} Choose from: {', '.join(names)}."
                yield (index, "metric"), text
        lists = [(key, value) for key, values in when.items() if isinstance(values, list) for value in values]
        for key, value in [(None, None), *lists] if all(metric in names for names in known.values()) else ():
            fields = when if key is None else when | {key: value}
            if any(selected(cells, fields, metric)):
                continue
            text = f" with {metric}" if any(has_fields(cell, fields) for cell in cells) else ""
            text = f"selects no planned cell{text}."
            if key is None:
                yield (index, "when"), f"{name}.when {text} Correct it, or remove the reference."
                break
            yield (index, "when", key), f"{name}.when.{key}: {show(value)} {text} Remove it, or plan its cells."


def raise_reference_errors(campaign: FrozenCampaign, path: Path) -> None:
    """Raise UserError if references are not as a plan freezes them."""
    if lines := [f"{path}: {text}" for _, text in reference_errors(campaign.references or (), campaign.cells)]:
        raise UserError("\n".join(lines))


def reference_pairs(campaign: FrozenCampaign, measurements: pd.DataFrame) -> list[ReferencePair]:
    """Return a pair for each reference and each planned cell that it selects."""
    references = campaign.references or ()
    wanted = {reference["metric"] for reference in references}
    columns = {column.name: column for column in metrics_of(campaign)}
    wanted |= {columns[name].interval for name in wanted}
    metrics = [column for name, column in columns.items() if name in wanted]
    table = cells_table(campaign, measurements, metrics) if wanted else None
    rows = {of["metric"]: _rows(table, columns[of["metric"]], measurements) for of in references}
    return [
        _pair(cell, rows[of["metric"]][cell.id], columns[of["metric"]], of)
        for of in references
        for cell in selected(campaign.cells, of["when"], of["metric"])
    ]


def _rows(table: pd.DataFrame, column: Column, measurements: pd.DataFrame) -> dict[str, Row]:
    """Return rows by cell with num_values: launches with a value, which determine the kind of the column's interval."""
    num = table["num_launches"].to_numpy(int)
    if column.source in measurements:
        known = values_by_cell(measurements, column.source)
        num = np.array([len(known.get(cell, ())) for cell in table["cell"]])
        table = table.assign(**{column.interval or "interval": KINDS[np.minimum(num, MIN_LAUNCHES)]})
    return {row.cell: row for row in table_rows(table.assign(num_values=num))}


def _pair(cell: FrozenCell, row: Row, column: Column, reference: dict) -> ReferencePair:
    is_least, tolerance = "least" in reference, reference.get("tolerance", 0)
    bound, sign = reference["least" if is_least else "most"], -1 if is_least else 1
    limit = bound + sign * abs(bound) * tolerance
    required = f"{column.name} at {'least' if is_least else 'most'} {limit:.12g}"
    required += f" ({bound:.12g} {'−' if is_least else '+'} {100 * tolerance:g} %)" if tolerance else ""
    in_file = replace(column, shown_as="", scale=None, minus=0, text=None, of_row=None, applies=None)
    value, low, high = in_file.of(row)
    if value is None or not all(math.isfinite(end) for end in (value, low, high) if end is not None):
        text = f"unknown ({row.num_launches} ok launches)"
        return ReferencePair(cell, required, text, "inconclusive", math.inf, None, has_interval=True)
    text, ends, has_interval = in_file.cell(row), (value, value), False
    if not is_unknown(low) and not is_unknown(high):
        text, ends = f"{text} {in_file.ends(row)}", (low, high)
        has_interval = getattr(row, column.interval) == "interval"
    verdict = verdict_beyond((value, *ends), limit, sign)
    return ReferencePair(cell, required, f"{text}, n = {row.num_values}", *verdict, has_interval)


def verdict_beyond(ends: tuple[float, float, float], limit: float, sign: int) -> tuple[str, float, float]:
    """Return verdict, time_ratio and time_high_ratio. ends: value and interval. sign: -1 of a bound from below."""
    least, estimate, most = sorted(1 + sign * (end - limit) / (abs(limit) or 1) for end in ends)
    return "slower" if least > 1 else "inconclusive", estimate, most
