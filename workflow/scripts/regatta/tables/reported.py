"""Values that programs of users print: one number per cell, with its unit."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from regatta.campaign.program_entries import quantity_of
from regatta.core.readers import Quantity
from regatta.core.recorded_times import shown_value, work_of
from regatta.core.text import UNKNOWN, is_unknown
from regatta.core.units import fitted
from regatta.kit.columns import TEXT, Column, Over
from regatta.model.frozen import Cell
from regatta.tables.estimates import Estimates

BENCHMARK = "program"


def quantity_of_cell(cell: Cell) -> Quantity | None:
    """Return what a program reports; None for a cell of another benchmark."""
    return quantity_of(cell.spec)[1] if cell.benchmark == BENCHMARK else None


def with_unit(name: str, row: object) -> str:
    """Return the text of a column of values in a row, with the unit that suits its value."""
    column = in_unit(row, getattr(row, name), COLUMNS[name])
    shown = column.cell(row)
    return shown if shown == UNKNOWN else f"{shown} {column.shown_as}".rstrip()


def in_unit(row: object, value: float | None = None, column: Column | None = None) -> Column:
    """Return the value column in the row's unit. If a value is given, choose the unit prefix that suits it."""
    given = "" if is_unknown(row.unit) else row.unit  # a dimensionless number has none
    unit, scale = (given, 1.0) if is_unknown(value) else fitted(given, value)
    better = "" if is_unknown(row.better) else row.better
    return replace(column or VALUE, text=None, of_row=None, shown_as=unit, scale=scale, better=better)


def _values(values) -> Estimates:
    quantities = [quantity_of_cell(cell) for cell in values.cells]
    of_second = np.array([np.nan if of is None else shown_value(1, of) for of in quantities])
    is_time = np.array([of is None or work_of(of) is None for of in quantities], dtype=bool)
    times, rates = values.primary.times(of_second), values.primary.rate(of_second)
    ends = (np.where(is_time, *both) for both in zip(times.ends, rates.ends, strict=True))
    return Estimates(values.primary.num, *ends).where(values.is_of(BENCHMARK))


def _slow_values(values) -> list[float | None]:
    times = values.over("p95_s", Over.MEDIAN_OF_ALL, (BENCHMARK,))
    quantities = map(quantity_of_cell, values.cells)
    return [None if np.isnan(time) else shown_value(time, of) for time, of in zip(times, quantities, strict=True)]


def _of_quantity(field: str) -> Callable:
    """Return the formula of a field of what a program reports."""
    return lambda values: [getattr(quantity_of_cell(cell), field, None) for cell in values.cells]


VALUE = Column(
    *("reported", "value"),
    interval="interval",
    text=partial(with_unit, "reported"),
    of_row=lambda row: in_unit(row, row.reported),
    help="mean over launches of the number that the program prints, in its unit; the median if it prints"
    " several samples",
    table="programs",
    benchmarks=(BENCHMARK,),
    is_shown=True,
    is_main=True,
    formula=_values,
)
SLOWEST = Column(
    *("slow_reported", "slow 5 %"),
    text=partial(with_unit, "slow_reported"),
    help="median over launches of each launch's 95th percentile of the time; for a rate, the rate at that time",
    table="programs",
    benchmarks=(BENCHMARK,),
    formula=_slow_values,
)
UNIT = Column("unit", "unit", TEXT, table="programs", help="unit of the values", formula=_of_quantity("unit"))
BETTER = Column("better", type=TEXT, help="`smaller` or `larger`", formula=_of_quantity("better"))
COLUMNS = {column.name: column for column in (VALUE, SLOWEST, UNIT, BETTER)}
