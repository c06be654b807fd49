"""Primary times of launches, by cell and for pairs of cells."""

import math
from collections import defaultdict

import pandas as pd

from regatta.core.benchmarks import SAMPLES, benchmark_names, load_benchmark
from regatta.core.statistics import batch_of
from regatta.core.text import is_unknown
from regatta.core.verdicts import Compared
from regatta.kit.columns import Column

Times = dict[int, tuple[str, float]]  # repeat -> (launch, primary time) of one cell's ok launches


def primary_columns(*tables: pd.DataFrame) -> dict[str, str]:
    """Return by benchmark the column of measurements.csv with the primary time of a launch, the same in all tables.

    It is SAMPLES for all cells of a benchmark if one ok record lacks the declared time, because times with different
    meanings are not comparable.
    """
    columns = {name: load_benchmark(name).primary_time["column"] for name in benchmark_names()}
    for table in tables:
        ok = table[(table["status"] == "ok").to_numpy()]
        for column in set(columns.values()) - {SAMPLES}:
            is_absent = ok[SAMPLES].notna() & (ok[column].isna() if column in ok else True)
            lacking = set(ok.loc[is_absent, "benchmark"].unique()) if "benchmark" in ok else columns
            columns |= {name: SAMPLES for name, used in columns.items() if used == column and name in lacking}
    return columns


def with_primary(measurements: pd.DataFrame, columns: dict[str, str] | None = None) -> pd.DataFrame:
    """Return the launches that have a primary time, with the column primary_s, in seconds.

    columns: those of several tables that are compared (`primary_columns`).
    """
    columns = columns or primary_columns(measurements)
    seconds = measurements[SAMPLES].astype(float)
    for column in sorted(set(columns.values()) & set(measurements) - {SAMPLES}):
        is_used = measurements["benchmark"].map(columns) == column
        seconds = seconds.mask(is_used, measurements[column].astype(float))
    return measurements.assign(primary_s=seconds)[(measurements["status"] == "ok") & (seconds > 0)]


def steps_by_cell(measurements: pd.DataFrame) -> dict[str, list[float]]:
    """Return for each cell the primary time of each ok launch, in seconds."""
    return values_by_cell(with_primary(measurements), "primary_s")


def values_by_cell(measurements: pd.DataFrame, column: str) -> dict[str, list[float]]:
    """Return for each cell the known values of a column, one for each ok launch, in the order of the table."""
    rows = measurements[(measurements["status"] == "ok") & measurements[column].notna()]
    found: dict[str, list] = {}
    for cell, value in zip(rows["cell"], rows[column], strict=True):  # groupby takes a minute for 100,000 cells
        found.setdefault(cell, []).append(value)
    return found


def times_by_cell(measurements: pd.DataFrame, columns: dict[str, str] | None = None) -> dict[str, Times]:
    """Return the ok launches of each cell. columns: as in `with_primary`."""
    return _by_cell(with_primary(measurements, columns), "primary_s")


def results_by_cell(measurements: pd.DataFrame, benchmark: str, column: Column) -> dict[str, Times]:
    """Return a result of a benchmark as if it were a time: if more is better, its inverse.

    Cells with a value of 0 or less have none, nor do those with values so extreme that ratios would overflow.
    """
    rows = measurements[(measurements["status"] == "ok") & (measurements["benchmark"] == benchmark)]
    rows = rows.dropna(subset=column.source).astype({column.source: float})
    is_usable = rows[column.source].between(1e-150, 1e150)
    rows = rows[~rows["cell"].isin(rows.loc[~is_usable, "cell"])]
    costs = 1 / rows[column.source] if column.better == "larger" else rows[column.source]
    return _by_cell(rows.assign(cost=costs), "cost")


def _by_cell(ok: pd.DataFrame, column: str) -> dict[str, Times]:
    found: dict[str, Times] = defaultdict(dict)
    lists = (ok[name].to_numpy(dtype=object).tolist() for name in ("cell", "repeat", "launch", column))
    for cell, repeat, launch, seconds in zip(*lists, strict=True):
        found[cell][int(repeat)] = (None if is_unknown(launch) else launch, float(seconds))
    return found


def sides_of(reference: Times, other: Times, group: str = "", is_same_campaign: bool = True) -> Compared:
    """Pair the launches of two cells that were measured in one allocation: by repeat, within a batch.

    Launches without a counterpart are left out. If they are half of a side or more, all are used, unpaired.
    """
    both = sorted(reference.keys() & other) if is_same_campaign else ()
    shared = [repeat for repeat in both if batch_name(reference[repeat][0]) == batch_name(other[repeat][0])]
    is_paired = 2 * len(shared) > max(len(reference), len(other))
    repeats = (shared, shared) if is_paired else (sorted(reference), sorted(other))
    launches = [[of[r] for r in of_side] for of, of_side in zip((reference, other), repeats, strict=True)]
    seconds = ([time for _, time in of_side] for of_side in launches)
    names = [[launch for launch, _ in of_side] for of_side in launches]
    allocations = (() if any(map(is_unknown, of_side)) else tuple(map(batch_name, of_side)) for of_side in names)
    repeats, batches = tuple(map(tuple, repeats)), tuple(map(batch_of, names))
    return Compared(*seconds, is_paired, group, tuple(allocations), repeats, batches)


def batch_name(launch: str | None) -> str | float:
    """Return the batch of a launch, which is one allocation unless interrupted. NaN if unknown: it equals no other."""
    return math.nan if is_unknown(launch) else launch.rsplit("-", 2)[0]
