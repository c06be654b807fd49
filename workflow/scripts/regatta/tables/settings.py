"""Settings that may be the best of their row, and the cost of the others: tables/settings.csv.

A row has the cells that differ in one axis only. Method: regatta.core.best_settings, docs/metrics.md.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass

import numpy as np
import pandas as pd

from regatta.core.best_settings import best_settings
from regatta.core.moderation import FALSE_DISCOVERIES, adjust_for_number
from regatta.core.text import is_unknown
from regatta.kit.columns import FLAG, TEXT, WHOLE, Column, Columns, in_file
from regatta.kit.kinds import Value
from regatta.store.csv_files import SHAPE_COLUMNS, grouped, make_table, plain_rows
from regatta.tables.amdahl import CURVE
from regatta.tables.cells import rows_of
from regatta.tables.primary_times import Times, batch_name, times_by_cell

EQUAL_RATIO = 0.05  # settings that cost at most this much more are called equal; as the default margin
# Common fields of cells that differ only in bucket size, or only in algorithm.
GROUP = (*(name for name in CURVE if name not in ("bucket_cap_mb", *SHAPE_COLUMNS)), *SHAPE_COLUMNS)
ALGORITHM = ("operation", "dtype", "message_bytes", "nodes", "gpus_per_node", "stack", "backend", "device")
COST = Column(
    *("cost_ratio", "cost"),
    shown_as="%",
    better="smaller",
    interval="interval",
    help="geometric mean of the cell's primary times over that of the best cell, minus 1, with its simultaneous 95 %"
    " interval: that of a cell with the best of all others, at least 0",
)
LEAST_P = "p of the row's most significant difference (Benjamini–Hochberg over rows of the axis); 1 if it excludes none"
IS_BEST = "whether `cost_low_ratio` is 0. Of equal settings, one is excluded in at most 6 % of rows"
SETTINGS = Columns(
    *in_file(TEXT, "the cell, and what cells of its row differ in", "cell", "axis"),
    Column("num_settings", type=WHOLE, help="cells of the row"),
    COST,
    *(Column("may_be_best", type=FLAG, help=IS_BEST), Column("p_adjusted", help=LEAST_P)),
)


@dataclass(frozen=True)
class Setting:
    """A cell among cells that differ in a setting; the fields are columns of the table. None if undecided."""

    num_settings: int = 1
    cost: float | None = None
    low: float | None = None
    high: float | None = None
    may_be_best: bool | None = None
    p_adjusted: float | None = None

    @property
    def is_costly(self) -> bool:
        """Return whether a sentence about several rows may state the cost, at the rate of comparisons."""
        return self.may_be_best is False and self.p_adjusted <= FALSE_DISCOVERIES

    @property
    def value(self) -> Value:
        """Return the cost of a decided setting, whose intervals need two launches."""
        return Value(COST, self.cost, self.low, self.high, "interval")


SettingsOfCells = Mapping[str, Setting]  # cells without others are undecided


def compare_settings(rows: Iterable[list[str]], times: dict[str, Times]) -> SettingsOfCells:
    """Return the settings of rows of cells of one benchmark; no cell is in two rows.

    Cells with the same batch and repeat were measured in one launch, or next to each other: a block.
    """
    rows, found = [row for row in rows if len(row) > 1], defaultdict(Setting)
    if not rows:
        return found
    blocks = [sorted({_block(cell, *item) for cell in row for item in times[cell].items()}) for row in rows]
    logs = np.full((len(rows), max(map(len, rows)), max(map(len, blocks)) or 1), np.nan)
    for place, (row, columns) in enumerate(zip(rows, blocks, strict=True)):
        for setting, cell in enumerate(row):
            for repeat, (launch, seconds) in times[cell].items():
                logs[place, setting, columns.index(_block(cell, repeat, (launch, seconds)))] = math.log(seconds)
    best = best_settings(logs)
    costs, adjusted = np.expm1([best.cost, best.low, best.high]), adjust_for_number(best.p_value)
    for place, row in enumerate(rows):
        for setting, cell in enumerate(row):
            at = place, setting
            known = (*costs[:, *at].tolist(), bool(best.may_be_best[at]), float(adjusted[place]))
            found[cell] = Setting(len(row), *(() if best.is_undecided[at] else known))
    return found


def _block(cell: str, repeat: int, launch: tuple[str | None, float]) -> tuple[str, int]:
    """Return the block of a launch, which several cells share; separate for each cell if the batch is unknown."""
    return (cell if is_unknown(launch[0]) else batch_name(launch[0]), repeat)


def settings_table(cells: pd.DataFrame, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each cell that differs from others only in bucket size, or only in algorithm."""
    times, found = times_by_cell(measurements), []
    sized = rows_of(cells, "train_step").dropna(subset=["bucket_cap_mb"])
    of_axes = (("bucket_cap_mb", sized, GROUP), ("algorithm", rows_of(cells, "collective"), ALGORITHM))
    for axis, table, key in of_axes:
        measured = [row for row in plain_rows(table, (*key, "cell")) if row["cell"] in times]
        rows = [[cell["cell"] for cell in row] for row in grouped(measured, key).values()]
        for cell, setting in compare_settings(rows, times).items():
            found.append(dict(zip(SETTINGS, (cell, axis, *astuple(setting)), strict=True)))
    return make_table(found, SETTINGS)


def settings_of(table: pd.DataFrame, axis: str) -> SettingsOfCells:
    """Return the settings of an axis by cell. table: of `settings_table`."""
    rows = [list(row.values()) for row in plain_rows(table[table["axis"] == axis], tuple(SETTINGS))]
    return defaultdict(Setting, {cell: Setting(*values) for cell, _, *values in rows})


def highest_cost(cells: Iterable[str], settings: SettingsOfCells) -> dict[str, float | str]:
    """Return the highest end of the intervals of all costs, rounded up, as `equal` if settings are equal within
    EQUAL_RATIO, else as `upper`; neither without an interval. That no difference was shown does not make them equal."""
    ends = [settings[cell].high for cell in cells if settings[cell].high is not None]
    if not ends:
        return {}
    digits = 0 if max(ends) >= 0.0995 else 1
    shown = math.ceil(100 * max(ends) * 10**digits - 1e-9) / 10**digits
    return {"equal" if max(ends) <= EQUAL_RATIO else "upper": f"{shown:g} %"}
