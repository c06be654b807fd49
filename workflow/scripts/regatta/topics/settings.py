"""Settings that may be the best, and the cost of the others: tables/settings.csv.

Method: regatta.core.best_settings, docs/metrics.md.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import astuple, dataclass

import numpy as np
import pandas as pd

from regatta.core.best_settings import best_settings
from regatta.core.moderation import FALSE_DISCOVERIES, adjust_for_number
from regatta.core.text import is_unknown
from regatta.kit.columns import FLAG, TEXT, WHOLE, Column, Columns, Row, in_file
from regatta.kit.kinds import Value
from regatta.store.csv_files import SHAPE_COLUMNS, make_table
from regatta.tables.amdahl import CURVE
from regatta.tables.cells import rows_of
from regatta.tables.primary_times import Times, batch_name, times_by_cell
from regatta.topics.base import ReportData, best_row, grouped, plain_rows

EQUAL_RATIO = 0.05  # settings that cost at most this much more are called equal; as the default margin
FASTEST = (  # parts of a kind that name the fastest cell and those that may be as fast
    "Fastest of {compared:configuration}: {fastest}.",
    "Within noise: {near}.",
    "Undecided: {num_undecided} with one launch.",
)
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
    """A cell among cells that differ in a setting.

    cost, low, high: time relative to the best, minus 1, with the simultaneous 95 % interval. These and may_be_best are
    None if undecided. p_adjusted: of its row, corrected over the rows (Benjamini and Hochberg).
    """

    num_settings: int
    cost: float | None = None
    low: float | None = None
    high: float | None = None
    may_be_best: bool | None = None
    p_adjusted: float | None = None


UNDECIDED = Setting(1)


def compare_settings(rows: Iterable[list[str]], times: dict[str, Times]) -> dict[str, Setting]:
    """Return the settings of rows of cells of one benchmark; no cell is in two rows. Other cells are undecided.

    Cells with the same batch and repeat were measured in one launch, or next to each other: a block.
    """
    rows, found = [row for row in rows if len(row) > 1], defaultdict(lambda: UNDECIDED)
    if not rows:
        return found
    blocks = [sorted({_block(cell, *item) for cell in row for item in times[cell].items()}) for row in rows]
    logs = np.full((len(rows), max(map(len, rows)), max(map(len, blocks)) or 1), np.nan)
    for place, (row, columns) in enumerate(zip(rows, blocks, strict=True)):
        for setting, cell in enumerate(row):
            for repeat, (launch, seconds) in times[cell].items():
                logs[place, setting, columns.index(_block(cell, repeat, (launch, seconds)))] = math.log(seconds)
    best = best_settings(logs)
    adjusted = adjust_for_number(best.p_value)
    for place, row in enumerate(rows):
        for setting, cell in enumerate(row):
            at = place, setting
            if best.is_undecided[at]:
                found[cell] = Setting(len(row))
            else:
                costs = (float(np.expm1(part[at])) for part in (best.cost, best.low, best.high))
                found[cell] = Setting(len(row), *costs, bool(best.may_be_best[at]), float(adjusted[place]))
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
        measured = [row for row in plain_rows(table, (*key, axis, "cell")) if row["cell"] in times]
        rows = [[cell["cell"] for cell in row] for row in grouped(measured, key).values()]
        for cell, setting in compare_settings(rows, times).items():
            found.append(dict(zip(SETTINGS, (cell, axis, *astuple(setting)), strict=True)))
    return make_table(found, SETTINGS)


def settings_of(table: pd.DataFrame, axis: str) -> dict[str, Setting]:
    """Return the settings of an axis by cell. Other cells are undecided. table: of `settings_table`."""
    rows = plain_rows(table[table["axis"] == axis], tuple(SETTINGS))
    found = {row["cell"]: Setting(*(row[name] for name in list(SETTINGS)[2:])) for row in rows}
    return defaultdict(lambda: UNDECIDED, found)


def is_costly(setting: Setting) -> bool:
    """Return whether a sentence about several rows may state the cost of a setting, at the rate of comparisons."""
    return setting.may_be_best is False and setting.p_adjusted <= FALSE_DISCOVERIES


def fastest_of_groups(data: ReportData, groups: list[list[Row]], column: Column) -> list[tuple[Row, dict]]:
    """Return the best row of each group by a column, with the values of FASTEST; compared is unknown for a single cell.

    groups: of one benchmark. near: those that may be the fastest, also in the light of all groups together. Undecided
    ones are counted.
    """
    settings = compare_settings([[row.cell for row in rows] for rows in groups], times_by_cell(data.measurements))
    names, found = data.cell_names, []
    for rows in groups:
        best = best_row(rows, column)
        others = {row.cell: settings[row.cell] for row in rows if row.cell != best.cell}
        is_near = {cell: one.may_be_best is not None and not is_costly(one) for cell, one in others.items()}
        values = {
            "fastest": names[best.cell].say(*names[best.cell].series),
            "num_candidates": len(rows),
            "compared": len(rows) if others else None,
            "near": tuple(names[cell].unlike(names[best.cell]) for cell in others if is_near[cell]),
            "num_undecided": sum(one.may_be_best is None for one in others.values()),
        }
        found.append((best, values))
    return found


def highest_cost(cells: Iterable[str], settings: dict[str, Setting]) -> dict[str, float | str]:
    """Return the highest end of the intervals of all costs, rounded up, as `equal` if settings are equal within
    EQUAL_RATIO, else as `upper`; neither without an interval. That no difference was shown does not make them equal."""
    ends = [settings[cell].high for cell in cells if settings[cell].high is not None]
    if not ends:
        return {}
    digits = 0 if max(ends) >= 0.0995 else 1
    shown = math.ceil(100 * max(ends) * 10**digits - 1e-9) / 10**digits
    return {"equal" if max(ends) <= EQUAL_RATIO else "upper": f"{shown:g} %"}


def cost_of(setting: Setting) -> Value:
    """Return the cost of a decided setting, whose intervals need two launches."""
    return Value(COST, setting.cost, setting.low, setting.high, "interval")
