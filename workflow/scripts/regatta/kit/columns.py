"""A column of a table, declared once beside its computation.

From it derive its place and type in the CSV file, heading, unit and digits on the page, labels of axes, the table of
all cells, the drawer, and its definition in columns.csv. Names end with the unit: step_s has the ends step_low_s and
step_high_s.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from statistics import median_high
from typing import TYPE_CHECKING

from regatta.core import text as texts
from regatta.core.text import UNKNOWN, device_words, is_unknown, ratio_text

if TYPE_CHECKING:
    import pandas as pd

TEXT, WHOLE, REAL, FLAG = "string", "Int64", "Float64", "boolean"
# Unit suffix of a name -> displayed unit. A suffix precedes any other suffix that it ends with.
UNITS = {
    "samples_per_s": "samples/s",
    "tokens_per_s": "tokens/s",
    "tflop_per_s": "TFLOP/s",
    "gb_per_s": "GB/s",
    "s_per_sqrt_byte": "s/√B",
    "hours_per_million_samples": "{hours} per million samples",
    "hours_per_million_tokens": "{hours} per million tokens",
    "gpu_hours": "{hours}",
    "ratio": "",
    "loss": "",
    "bytes": "B",
    "mb": "MiB",
    "per_s": "1/s",
    "s": "s",
}
MICROSECONDS = "\N{MICRO SIGN}s"
EACH = "each"  # unit of times: selected for each value; in a list of cells, one for all
FACTORS = {
    **{("s", unit): factor for unit, factor in ((MICROSECONDS, 1e6), ("ms", 1e3), ("s", 1))},
    **{("bytes", unit): 2 ** (-10 * power) for power, unit in enumerate(("B", "KiB", "MiB", "GiB"))},
    ("ratio", "%"): 100,
    ("", "millions"): 1e-6,
    ("", "GFLOP"): 1e-9,
}
KEY_UNITS = {"%": "percent", MICROSECONDS: "us", "ms": "ms", "MiB": "mib"}  # in keys of the data block
PIPELINED = "pipelined: back to back, one synchronization per window"  # notes on how a time was taken
SYNCHRONIZED = "synchronized individually"
OF_PAIR, OF_CURVE = "pair", "curve"  # groups of a table's columns that the drawer shows with the cells of a row
FIGURES = 3  # significant ones without an interval
LEAST_FIGURES, MOST_FIGURES = 2, 4  # however wide or narrow the interval
MOST_DECIMALS = 7  # smaller numbers have an exponent
MOST_SPAN = 40  # of the values of a column that has the same number of decimals in all rows


class Over(StrEnum):
    """How a metric summarizes a column over launches. Means have an interval if the metric has one.

    MEDIAN_OF_ALL is unknown if a launch has no value.
    """

    GEOMETRIC = "geometric mean"
    ARITHMETIC = "arithmetic mean"
    MEDIAN = "median"
    MEDIAN_OF_ALL = "median of all launches"
    LARGEST = "largest"
    LEAST = "least"


@dataclass(frozen=True)
class Column:
    """A column of a CSV file, and how people read it.

    label: without unit, as within a sentence; {rank}, {ranks} and {hours} stand for words that depend on the device,
    others for words of a table. Without a label the column is in the file only. shown_as: unit; default: that of the
    name. scale: from the file to that unit, if the name has none. minus: subtracted from what is shown: 1 from a ratio
    shown as a difference. better: "smaller" or "larger".
    interval: the column with the kind of its interval, empty if it has no ends. help: definition. note: how it was
    timed. figures: significant ones without an interval. decimals: of all rows. text: formats a row. of_row: the
    column in a row's unit, for its ends. applies: whether a row can have a value; others show a dash. table: name,
    within its topic, of the table on the page that shows it.

    In the table of all cells, key: its key, default: stem and unit. is_shown: before a reader adds columns. is_main:
    the time of a cell; of several, the first known one. group: in the drawer; OF_PAIR or OF_CURVE in other tables.

    benchmarks: those whose cells have it, or are on its curve; default: those whose launches have a value. In
    cells.csv, source: the column of measurements.csv that it summarizes. over: how. formula: instead of both, takes
    `tables.cells.CellValues`. of_launch: computes the values of a formula by launch; its argument returns the values of
    a column of measurements.csv. Default: the value of the mean time, scaled to each launch.
    """

    name: str
    label: str = ""
    type: str = REAL
    shown_as: str = ""
    scale: float | None = None
    minus: float = 0
    better: str = ""
    interval: str = ""
    help: str = ""
    note: str = ""
    figures: int = FIGURES
    decimals: int | None = None
    text: Callable[[object], str] | None = None
    of_row: Callable[[object], "Column"] | None = None
    applies: Callable[[object], bool] | None = None
    table: str = ""
    key: str = ""
    is_shown: bool = False
    is_main: bool = False
    group: str = "results"
    source: str = ""
    over: Over | None = None
    benchmarks: tuple[str, ...] = ()
    formula: Callable[[object], object] | None = None
    of_launch: Callable[[Callable], object] | None = None

    @cached_property
    def unit(self) -> str:
        """Return the unit in its name; empty if it has none."""
        return next((unit for unit in UNITS if self.name.endswith(f"_{unit}")), "")

    @property
    def unit_text(self) -> str:
        """Return the unit that people read; {hours} stands for a word that depends on the device."""
        return self.shown_as or UNITS.get(self.unit, "")

    @property
    def stem(self) -> str:
        return self.name.removesuffix(f"_{self.unit}") if self.unit else self.name

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return its name in the file, followed by those of its ends if it has an interval."""
        return texts.with_ends(self.stem, self.unit) if self.interval else (self.name,)

    @cached_property
    def factor(self) -> float:
        """Return the factor from stored to displayed unit; 1 if the column name has no unit."""
        if self.scale is not None:
            return self.scale
        if not self.shown_as or self.shown_as == UNITS.get(self.unit):
            return 1
        return FACTORS[self.unit, self.shown_as] if self.unit else FACTORS.get(("", self.shown_as), 1)

    @property
    def block_key(self) -> str:
        return self.key or "_".join(filter(None, (self.stem, KEY_UNITS.get(self.shown_as, self.unit))))

    @property
    def is_number(self) -> bool:
        return self.type in (WHOLE, REAL)

    @property
    def is_ratio(self) -> bool:
        """Return whether people read it as a ratio, with the digits of one."""
        return self.unit == "ratio" and not self.shown_as

    def heading(self, device: str, **words: str) -> str:
        """Return the label with its unit, unless `text` says it: Step time (ms). Also for axes."""
        words |= device_words(device)
        unit = "" if self.text or self.shown_as == EACH else self.unit_text.format(**words)
        text = self.title(**words)
        return (f"{text} ({unit})" if text else unit) if unit else text

    def title(self, **words: str) -> str:
        """Return the label without a unit, with a capital. words: for its names in braces."""
        text = self.label.format(**words)
        return text[:1].upper() + text[1:] if len(text) > 1 else text

    def helps(self, device: str) -> str:
        return self.help.format(**device_words(device))

    def shown(self, value: float | None) -> float | None:
        """Return a value of the file in the unit that people read; None if unknown."""
        return None if is_unknown(value) else self.factor * (float(value) - self.minus)

    def of(self, row: object) -> tuple[float | None, float | None, float | None]:
        """Return value and ends of a row, in the unit that people read."""
        values = [self.shown(getattr(row, name)) for name in self.names]
        return tuple(values) if len(values) > 1 else (values[0], None, None)

    def cell(self, row: object) -> str:
        """Return the text of a row's value: n/a if unknown, or if the row cannot have one."""
        if self.applies is not None and not self.applies(row):
            return UNKNOWN
        if self.text is not None:
            return self.text(row)
        value = getattr(row, self.name)
        if is_unknown(value) or not self.is_number:
            return UNKNOWN if is_unknown(value) else str(value)
        if self.shown_as == EACH:
            return self._in_its_unit(row, Column.cell)
        if self.type == WHOLE and self.factor == 1:
            return f"{value:,}"
        if self.is_ratio:
            return ratio_text(value)
        return fixed(self.of(row)[0], self._digits(row), self.of(row)[1])

    def aligned(self, rows: Sequence[object]) -> "Column":
        """Return the column with the decimals of the median row in all rows, unless their values span decades."""
        rows = [row for row in rows if self.of(row)[0] and (self.applies is None or self.applies(row))]
        values = [abs(self.of(row)[0]) for row in rows]
        is_near = rows and max(values) <= MOST_SPAN * min(values)
        return replace(self, decimals=max(median_high(map(self._digits, rows)), 0)) if is_near else self

    def _digits(self, row: object) -> int:
        """Return the decimals of a row's number: by its interval, unless all rows have the same."""
        own = decimals_of(*self.of(row), getattr(row, self.interval) if self.interval else "", self.figures)
        return own if self.decimals is None or own < self.decimals == 0 else self.decimals

    def fitted(self, largest: float) -> "Column":
        """Return the column in the largest unit in which its largest value is at least 1, else in the smallest unit."""
        units = [(unit, factor) for (of, unit), factor in FACTORS.items() if of == self.unit]
        return self._shown_in([units[0][0], *(unit for unit, factor in units if factor * largest >= 1)][-1])

    def ends(self, row: object) -> str:
        """Return the text of a row's range, as (low to high), or interval, as [low, high]."""
        if self.applies is not None and not self.applies(row):
            return UNKNOWN
        if is_unknown(getattr(row, self.name)):
            return UNKNOWN
        if self.shown_as == EACH:
            return self._in_its_unit(row, Column.ends)
        if self.of_row is not None:
            return self.of_row(row).ends(row)
        _, low, high = self.of(row)
        if low is None or high is None:
            return UNKNOWN
        decimals = self._digits(row)
        ends = (ratio_text(end) if self.is_ratio else fixed(end, decimals, low) for end in (low, high))
        return texts.bracket(*ends, getattr(row, self.interval))

    @cached_property
    def _in_units(self) -> dict[str, "Column"]:
        return {}

    def _shown_in(self, unit: str) -> "Column":
        """Return the column in a unit. A table has thousands of rows, and few units."""
        return self._in_units.get(unit) or self._in_units.setdefault(unit, replace(self, shown_as=unit))

    def _in_its_unit(self, row: object, show: Callable) -> str:
        """Return a text of a row in the unit that suits its time, followed by this unit."""
        unit = texts.time_scale(getattr(row, self.name))[1]
        text = show(self._shown_in(unit), row)
        return text if text == UNKNOWN else f"{text} {unit}"


def decimals_of(value: float, low: float | None, high: float | None, kind: str, figures: int = FIGURES) -> int:
    """Return the decimals of a number and of its ends; negative if they are rounded to tens or hundreds.

    They have those of half of the interval's width, rounded to two digits if it begins with 1, else to one. kind: that
    of the interval. Two launches may agree by chance, so a range supports at most three digits.
    """
    if is_unknown(low) or is_unknown(high) or not high > low:
        return figures - 1 - _exponent(value) if value else 0
    half, largest = (high - low) / 2, max(map(abs, (value, low, high)))
    exponent = _exponent(half)
    decimals = -exponent + (round(half / 10 ** (exponent - 2)) < 200)
    most = FIGURES if kind == "range" else MOST_FIGURES
    return min(max(decimals, LEAST_FIGURES - 1 - _exponent(largest)), most - 1 - _exponent(largest))


def fixed(value: float, decimals: int, low: float | None = None) -> str:
    """Return a number with this many decimals. low: end of its interval; if above 0, nothing is rounded to 0."""
    if not is_unknown(low) and low > 0 and round(value, decimals) == 0:
        decimals = -_exponent(value)
    if decimals > MOST_DECIMALS:
        return f"{value:.1e}"
    return f"{round(value, decimals) + 0.0:,.{max(decimals, 0)}f}"


def _exponent(value: float) -> int:
    """Return the decimal exponent of a value that is rounded to three significant figures; 0 of 0."""
    return int(f"{value:.2e}".partition("e")[2])


def in_file(kind: str, text: str, *names: str) -> tuple[Column, ...]:
    """Return columns of a file that the page does not show. kind: their type; text: their definition."""
    return tuple(Column(name, type=kind, help=text) for name in names)


CELL_ID = Column("cell", type=TEXT)  # in a file with one row for each cell
CELL_NAME = Column("full_name", "cell", TEXT)  # below a title with the subject
FULL_NAME = Column("name", "cell", TEXT, text=lambda row: row.cell_name.full)
NUM_LAUNCHES = Column("num_launches", "n", WHOLE, text=lambda row: launches(row))
SHAPE = Column("nodes", "shape", WHOLE, text=lambda row: texts.shape(row.nodes, row.gpus_per_node))


def launches(row: object) -> str:
    return f"{row.num_launches}/{row.num_planned}"


class Columns(dict):
    """The columns of a file in order: name -> type, with the ends of intervals. declared: each Column once."""

    def __init__(self, *declared: Column) -> None:
        super().__init__({name: column.type for column in declared for name in column.names})
        self.declared = declared

    @property
    def is_of_cells(self) -> bool:
        """Return whether the file has one row for each cell."""
        return CELL_ID in self.declared

    def named(self, *names: str) -> list[Column]:
        """Return the columns of these names, in their order."""
        by_name = {column.name: column for column in self.declared}
        return [by_name[name] for name in names]

    def of_table(self, table: str) -> list[Column]:
        """Return the columns that a table on the page shows."""
        return [column for column in self.declared if column.table == table]


class Row:
    """One row; its columns are attributes, as in a row of DataFrame.itertuples."""

    __slots__ = ("_columns", "_place")

    def __init__(self, columns: "_Columns", place: int) -> None:
        self._columns, self._place = columns, place

    def __getattr__(self, name: str) -> object:
        try:
            return self._columns[name][self._place]
        except KeyError:
            raise AttributeError(f"the table has no column {name}") from None


class _Columns(dict):
    """The values of each column, read at its first use."""

    def __init__(self, table: "pd.DataFrame") -> None:
        super().__init__()
        self.table = table

    def __missing__(self, name: str) -> list:
        self[name] = self.table[name].to_numpy(dtype=object).tolist()  # tolist of a string column is slow
        return self[name]


def table_rows(table: "pd.DataFrame") -> list[Row]:
    """Return the rows of a table. DataFrame.itertuples reads all columns, which takes milliseconds for each table."""
    columns = _Columns(table)
    return [Row(columns, place) for place in range(len(table))]
