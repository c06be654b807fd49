"""The table of cells: each metric of each benchmark, one row for each cell (cells.csv). Metrics: tables/metrics.py.

One integer index of cell and launch places the values of a column in an array (cells, launches), which numpy reduces:
a loop over cells for each metric would take seconds for thousands of cells.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
import pandas as pd

from regatta.core.benchmarks import axes_of, benchmark_names, declared_benchmarks
from regatta.core.moderation import MIN_LAUNCHES, mean_intervals
from regatta.core.statistics import batch_of
from regatta.core.text import is_unknown
from regatta.kit.columns import (
    ARITHMETIC,
    CELL_ID,
    GEOMETRIC,
    LARGEST,
    LEAST,
    MEDIAN,
    MEDIAN_OF_ALL,
    REAL,
    TEXT,
    WHOLE,
    Column,
    Columns,
)
from regatta.model.frozen import FrozenCampaign
from regatta.store.csv_files import SHAPE_COLUMNS, TYPES, result_column
from regatta.tables.baselines import BaselineLookup, lookups_of
from regatta.tables.estimates import Estimates, known_of, reduced
from regatta.tables.metrics import METRICS
from regatta.tables.primary_times import primary_times

NUMBERS = {WHOLE: int, REAL: float}
REDUCED = {MEDIAN: np.median, LARGEST: np.max, LEAST: np.min}  # MEDIAN_OF_ALL: see `CellValues.over`


class CellValues:
    """The inputs of metric formulas, as arrays with one entry per cell. values["step_s"] returns the metric step_s."""

    def __init__(self, campaign: FrozenCampaign, measurements: pd.DataFrame) -> None:
        benchmarks = dict.fromkeys(cell.benchmark for cell in campaign.cells)
        self.campaign, self.measurements = campaign, measurements
        self.cells = [cell for benchmark in benchmarks for cell in campaign.cells_of(benchmark)]
        self.places = {cell.id: place for place, cell in enumerate(self.cells)}
        self.benchmark_of = np.array([cell.benchmark for cell in self.cells], dtype=object)
        self.world_size = np.array([cell.world_size for cell in self.cells], dtype=float)
        self._ok = measurements[(measurements["status"] == "ok").to_numpy() & measurements["cell"].isin(self.places)]
        launches, repeats = pd.factorize(self._ok["repeat"], sort=True)
        self._index = self._ok["cell"].map(self.places).to_numpy(int), launches
        self._shape = len(self.cells), len(repeats)
        self._columns = {column.name: column for column in metrics_of(campaign)}
        self._found: dict[str, object] = {}

    def __getitem__(self, name: str) -> "Estimates | np.ndarray":
        if name not in self._found:
            self._found[name] = self._value(self._columns[name])
        return self._found[name]

    def _value(self, column: Column) -> "Estimates | np.ndarray":
        if column.formula is None:
            return self.over(column.source, column.over, column.benchmarks)
        value = column.formula(self)
        if not column.benchmarks:
            return value
        is_known = self.is_of(*column.benchmarks)
        return value.where(is_known) if isinstance(value, Estimates) else known_of(value, is_known)

    def over(self, name: str, over: str, benchmarks: tuple[str, ...] = ()) -> "Estimates | np.ndarray":
        """Return a column of measurements.csv over launches, of these benchmarks or of all. over: one of OVER."""
        values = self.of_launches(name)
        if benchmarks:
            values = np.where(self.is_of(*benchmarks)[:, None], values, np.nan)
        if over in (GEOMETRIC, ARITHMETIC):
            return self.mean(values, over == GEOMETRIC)
        if over == MEDIAN_OF_ALL:
            has_all = np.isnan(values).sum(1) == np.isnan(self.ok).sum(1)
            return reduced(np.where(has_all[:, None], values, np.nan), np.median)
        return reduced(values, REDUCED[over])

    def is_of(self, *benchmarks: str) -> np.ndarray:
        """Return which cells are of one of these benchmarks."""
        return np.isin(self.benchmark_of, benchmarks)

    def parameter(self, name: str) -> np.ndarray:
        """Return a parameter of each cell as a number; NaN where it has none."""
        values = (cell.parameters.get(name) for cell in self.cells)
        return np.array([np.nan if value is None else value for value in values], dtype=float)

    def of_launches(self, column: str) -> np.ndarray:
        """Return a column of measurements.csv by cell and launch, as numbers; NaN where no ok launch has it."""
        if column not in self._ok:
            return np.full(self._shape, np.nan)
        return self._placed(self._ok[column].to_numpy(float, na_value=np.nan))

    def _placed(self, values: np.ndarray) -> np.ndarray:
        placed = np.full(self._shape, np.nan)
        placed[self._index] = values
        return placed

    @cached_property
    def lookups(self) -> dict[str, BaselineLookup]:
        """Where formulas find baselines, by benchmark."""
        return lookups_of(self.campaign)

    @cached_property
    def ok(self) -> np.ndarray:
        """1 for each ok launch, else NaN."""
        return self._placed(np.ones(len(self._ok)))

    def agreed(self, column: str) -> list:
        """Return the value of a column of measurements.csv on which all ok launches of a cell agree, or None."""
        if column not in self._ok:
            return [None] * len(self.cells)
        codes, texts = pd.factorize(self._ok[column], use_na_sentinel=True)
        placed = self._placed(codes.astype(float))
        least, largest = reduced(placed, np.min), reduced(placed, np.max)
        return [None if a != b or a < 0 else texts[int(a)] for a, b in zip(least, largest, strict=True)]

    @cached_property
    def primary_times(self) -> np.ndarray:
        """The primary time of each launch (cells, launches), in seconds."""
        times = primary_times(self.measurements).reindex(self._ok.index).to_numpy(float, na_value=np.nan)
        return self._placed(np.where(times > 0, times, np.nan))

    @cached_property
    def primary(self) -> Estimates:
        """The primary time of each cell, in seconds. All cells share a prior."""
        return self.mean(self.primary_times)

    def mean(self, values: np.ndarray, is_log: bool = True) -> Estimates:
        """Return the mean over launches of each cell with its interval, moderated by the variances of all cells.

        values: (cells, launches), NaN is unknown. With is_log, means are geometric, and values of 0 or less are
        ignored. Without it, means are arithmetic, and all cells must share a scale (`core.statistics.over_launches`).
        """
        is_known = values > 0 if is_log else ~np.isnan(values)
        num, cells, launches = is_known.sum(1), is_known.any(1), is_known.any(0)
        mean, low, high = np.full((3, len(values)), np.nan)
        if cells.any():
            values = np.where(is_known, values, np.nan)
            part = values[np.ix_(cells, launches)]
            batches = [batch_of(names[known]) for names, known in zip(self._launch_names, is_known, strict=True)]
            batches = [name for name, has_value in zip(batches, cells, strict=True) if has_value]
            groups = self.benchmark_of[cells].astype(str)
            found = mean_intervals(np.log(part) if is_log else part, groups, is_log, batches)
            ends = (found.shift, found.shift - found.half_width, found.shift + found.half_width)
            mean[cells], low[cells], high[cells] = (np.exp(end) if is_log else end for end in ends)
            low = np.where(num < MIN_LAUNCHES, reduced(values, np.min), low)
            high = np.where(num < MIN_LAUNCHES, reduced(values, np.max), high)
            mean = np.where(num == 1, low, mean)
        return Estimates(num, mean, *(np.where(num < 2, np.nan, end) for end in (low, high)))

    @cached_property
    def _launch_names(self) -> np.ndarray:
        names = np.full(self._shape, None, dtype=object)
        names[self._index] = self._ok["launch"].to_numpy(object)
        return names


def metrics_of(campaign: FrozenCampaign) -> list[Column]:
    """Return METRICS, and the results of benchmarks outside Regatta's tree: their means over launches."""
    own = {column.name: column for name in campaign.benchmarks or {} for column in results_of(campaign, name)}
    return [*own.values(), *METRICS]


def results_of(campaign: FrozenCampaign, benchmark: str) -> list[Column]:
    """Return the results that a benchmark outside Regatta's tree declares; result_NAME where a column has the name."""
    found = []
    for key, keys in campaign.benchmarks[benchmark]["results"].items():
        unit = "MiB" if key.endswith("_bytes") else keys.get("unit", "")
        column = result_column(key, shown_as=unit, source=key, over=ARITHMETIC, interval="interval", is_shown=True)
        is_taken = TAKEN & set(column.names) or key.startswith("parameter_")
        found.append(replace(column, name=f"result_{key}") if is_taken else column)
    return found


TAKEN = {name for column in METRICS for name in column.names}


CELL_COLUMNS = ("cell", "benchmark", *SHAPE_COLUMNS, "num_planned", "num_launches", "interval")  # also if empty


def parameters_of(benchmarks: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the columns of parameters: name -> (parameter, type). Those of custom benchmarks are parameter_NAME."""
    found = {}
    for benchmark in (name for name in benchmarks if name in benchmark_names()):  # another one is of a later version
        is_of_user = benchmark in declared_benchmarks()
        for axis in axes_of(benchmark).values():
            found[f"parameter_{axis.name}" if is_of_user else axis.name] = axis.name, TYPES[axis.type]
    return found


def parameters_of_code(campaign: FrozenCampaign) -> dict[str, str]:
    """Return the columns of parameters of users' scripts and programs: name -> type, numbers if all values are."""
    values: dict[str, list[str]] = defaultdict(list)
    for cell in campaign.all_cells:
        for name, value in cell.user_parameters.items():
            values[f"parameter_{name}"].append(str(value))
    patterns = ((WHOLE, r"-?(0|[1-9]\d{0,17})"), (REAL, r"-?\d{1,17}(\.\d+)?(e-?\d{1,2})?"), (TEXT, r"(?s).*"))
    return {
        name: next(kind for kind, pattern in patterns if all(re.fullmatch(pattern, text) for text in of))
        for name, of in values.items()
    }


def columns_of(campaign: FrozenCampaign) -> Columns:
    """Return the columns of cells.csv. They depend only on the frozen campaign; the file omits those without values."""
    return _columns_of(campaign, metrics_of(campaign))


def _columns_of(campaign: FrozenCampaign, metrics: Iterable[Column]) -> Columns:
    benchmarks = dict.fromkeys(cell.benchmark for cell in campaign.all_cells)
    return columns_with(benchmarks, metrics, parameters_of_code(campaign))


def columns_with(
    benchmarks: Iterable[str], metrics: Iterable[Column] = METRICS, of_code: Mapping[str, str] = MappingProxyType({})
) -> Columns:
    """Return the columns of cells.csv of a campaign with these benchmarks. of_code: of `parameters_of_code`."""
    texts = {"benchmark": TEXT, **of_code, **{name: kind for name, (_, kind) in parameters_of(benchmarks).items()}}
    texts |= {name: TEXT if name in ("stack", "backend", "device") else WHOLE for name in SHAPE_COLUMNS}
    texts |= {"hosts": TEXT, "num_planned": WHOLE, "num_launches": WHOLE, "interval": TEXT}
    found = Columns(CELL_ID)
    found.add([*(Column(name, type=kind, help=HELPS.get(name, "")) for name, kind in texts.items()), *metrics])
    return found


HELPS = {
    "hosts": "nodes on which a cell of a sweep is measured",
    "num_launches": "ok launches with a primary time",
    "interval": "kind of the intervals: `single` with 1 launch, `range` with 2, `interval` from 3",
}


def cells_table(campaign: FrozenCampaign, measurements: pd.DataFrame, metrics: Collection[Column] = ()) -> pd.DataFrame:
    """Return one row for each planned cell, measured or not, with the columns of `columns_of`.

    metrics: those to compute; all by default.
    """
    values, metrics = CellValues(campaign, measurements), metrics or metrics_of(campaign)
    columns = _columns_of(campaign, metrics)
    found: dict[str, object] = {"cell": list(values.places), "benchmark": values.benchmark_of}
    for name, kind in parameters_of_code(campaign).items():
        texts = (cell.user_parameters.get(name.removeprefix("parameter_")) for cell in values.cells)
        found[name] = [None if text is None else NUMBERS.get(kind, str)(text) for text in texts]
    for name, (parameter, _) in parameters_of(dict.fromkeys(cell.benchmark for cell in campaign.all_cells)).items():
        is_of_user = name != parameter
        found[name] = [
            cell.parameters.get(parameter) if is_of_user == (cell.benchmark in (campaign.benchmarks or {})) else None
            for cell in values.cells
        ]
    found |= {name: [cell.field(name) for cell in values.cells] for name in SHAPE_COLUMNS}
    found["hosts"] = [" ".join(cell.hosts) or None for cell in values.cells]
    found["num_planned"] = [campaign.repeats_of(cell) for cell in values.cells]
    found |= {"num_launches": values.primary.num, "interval": values.primary.kinds}
    for column in metrics:
        value = values[column.name]
        ends = value.ends if isinstance(value, Estimates) else (value,)
        found |= dict(zip(column.names, ends, strict=True))
    arrays = {name: _array(found[name], kind) for name, kind in columns.items()}
    return pd.DataFrame(arrays, index=range(len(values.cells)))


def rows_of(cells: pd.DataFrame, benchmark: str) -> pd.DataFrame:
    """Return the rows of a benchmark. Parameters of custom benchmarks are also available without the prefix."""
    others = [column for column in METRICS if column.benchmarks and benchmark not in column.benchmarks]
    without = {name for column in others for name in column.names}
    rows = cells.loc[cells["benchmark"] == benchmark, [name for name in cells if name not in without]]
    rows, axes = rows.reset_index(drop=True), axes_of(benchmark)
    for name, axis in axes.items():
        if f"parameter_{name}" in rows and benchmark in declared_benchmarks():
            rows[name] = rows[f"parameter_{name}"]
        elif name not in rows:  # a campaign without the benchmark
            rows[name] = pd.array([None] * len(rows), dtype=TYPES[axis.type])
    return rows


def _array(values: Sequence, kind: str) -> pd.api.extensions.ExtensionArray:
    if isinstance(values, np.ndarray) and values.dtype == float:
        is_unknown_value = np.isnan(values)
        if is_unknown_value.all():
            return pd.array([None] * len(values), dtype=kind)
        return (
            pd.array(np.where(is_unknown_value, None, values), dtype=kind)
            if kind == TEXT
            else pd.array(values, dtype=kind)
        )
    return pd.array([None if is_unknown(value) else value for value in values], dtype=kind)
