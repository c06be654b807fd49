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

from regatta.core.benchmarks import Benchmark, axes_of, built_in_names
from regatta.core.statistics import batch_of
from regatta.core.text import is_unknown
from regatta.kit.columns import CELL_ID, REAL, TEXT, WHOLE, Column, Columns, Over
from regatta.model.frozen import FrozenCampaign
from regatta.store.csv_files import SHAPE_COLUMNS, TYPES, custom_results
from regatta.tables.baselines import SCRIPT, WITH_BASELINE
from regatta.tables.counterparts import BaselineLookup
from regatta.tables.estimates import Estimates, known_of, over_launches, reduced, scale_of
from regatta.tables.metrics import METRICS
from regatta.tables.primary_times import primary_columns, with_primary

NUMBERS = {WHOLE: int, REAL: float}
REDUCED = {Over.MEDIAN: np.median, Over.LARGEST: np.max, Over.LEAST: np.min}


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

    def over(self, name: str, over: Over, benchmarks: tuple[str, ...] = ()) -> "Estimates | np.ndarray":
        """Return a column of measurements.csv over launches, of these benchmarks or of all."""
        values = self.of_launches(name)
        if benchmarks:
            values = np.where(self.is_of(*benchmarks)[:, None], values, np.nan)
        if over in (Over.GEOMETRIC, Over.ARITHMETIC):
            return self.mean(values, None if over == Over.GEOMETRIC else scale_of(values))
        if over == Over.MEDIAN_OF_ALL:
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
        """Where formulas find baselines, by benchmark. A script's may also differ in user parameters."""
        names = {SCRIPT: self.campaign.baseline}
        return {name: BaselineLookup(self.campaign.cells_of(name), names.get(name, ())) for name in WITH_BASELINE}

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
        return self.primary_times_in(primary_columns(self.measurements))

    def primary_times_in(self, columns: dict[str, str]) -> np.ndarray:
        """Return the primary times in columns that several campaigns have (`primary_columns`)."""
        times = with_primary(self.measurements, columns)["primary_s"].reindex(self._ok.index)
        return self._placed(times.to_numpy(float, na_value=np.nan))

    @cached_property
    def primary(self) -> Estimates:
        """Return the primary time of each cell, in seconds, moderated by benchmark."""
        return self.mean(self.primary_times)

    def mean(self, values: np.ndarray, scale: np.ndarray | None = None) -> Estimates:
        """Return the mean over launches of each cell (`over_launches`). values: (cells, launches), NaN is unknown."""
        is_known = values > 0 if scale is None else ~np.isnan(values)
        return over_launches(values, self.benchmark_of, self.batches(is_known), scale)

    def batches(self, is_known: np.ndarray) -> np.ndarray:
        """Return the batch of each cell (`batch_of`), given which launches have a value."""
        both = zip(self._launch_names, is_known, strict=True)
        return np.array([batch_of(names[known]) for names, known in both], dtype=str)

    @cached_property
    def _launch_names(self) -> np.ndarray:
        names = np.full(self._shape, None, dtype=object)
        names[self._index] = self._ok["launch"].to_numpy(object)
        return names


def metrics_of(campaign: FrozenCampaign) -> list[Column]:
    """Return METRICS, and the results of benchmarks outside Regatta's tree: their means over launches."""
    own = {column.name: column for of in campaign.custom_benchmarks.values() for column in results_of(of)}
    return [*own.values(), *METRICS]


def results_of(benchmark: Benchmark) -> list[Column]:
    """Return the results that a benchmark outside Regatta's tree declares; result_NAME where a column has the name."""
    found = []
    for column in custom_results(benchmark, over=Over.ARITHMETIC, interval="interval", is_shown=True):
        is_taken = TAKEN & set(column.names) or column.name.startswith("parameter_")
        found.append(replace(column, name=f"result_{column.name}") if is_taken else column)
    return found


TAKEN = {name for column in METRICS for name in column.names}


CELL_COLUMNS = ("cell", "benchmark", *SHAPE_COLUMNS, "num_planned", "num_launches", "interval")  # also if empty


def parameters_of(benchmarks: Iterable[Benchmark]) -> dict[str, tuple[str, str]]:
    """Return the columns of parameters: name -> (parameter, type). Those of custom benchmarks are parameter_NAME."""
    axes = [(benchmark.is_custom, axis) for benchmark in benchmarks for axis in benchmark.axes.values()]
    return {f"{'parameter_' * is_custom}{axis.name}": (axis.name, TYPES[axis.type]) for is_custom, axis in axes}


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
    return columns_with(campaign.benchmarks_of_cells, metrics_of(campaign), parameters_of_code(campaign))


def columns_with(
    benchmarks: Iterable[Benchmark],
    metrics: Iterable[Column] = METRICS,
    of_code: Mapping[str, str] = MappingProxyType({}),
) -> Columns:
    """Return the columns of cells.csv of a campaign with these benchmarks. of_code: of `parameters_of_code`."""
    texts = {"benchmark": TEXT, **of_code, **{name: kind for name, (_, kind) in parameters_of(benchmarks).items()}}
    texts |= {name: TEXT if name in ("stack", "backend", "device") else WHOLE for name in SHAPE_COLUMNS}
    texts |= {"hosts": TEXT, "num_planned": WHOLE, "num_launches": WHOLE, "interval": TEXT}
    described = (Column(name, type=kind, help=HELPS.get(name, "")) for name, kind in texts.items())
    return Columns(CELL_ID, *described, *metrics)


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
    columns = columns_with(campaign.benchmarks_of_cells, metrics, of_code := parameters_of_code(campaign))
    found: dict[str, object] = {"cell": list(values.places), "benchmark": values.benchmark_of}
    for name, kind in of_code.items():
        texts = (cell.user_parameters.get(name.removeprefix("parameter_")) for cell in values.cells)
        found[name] = [None if text is None else NUMBERS.get(kind, str)(text) for text in texts]
    for name, (parameter, _) in parameters_of(campaign.benchmarks_of_cells).items():
        is_of_user = name != parameter
        found[name] = [
            cell.parameters.get(parameter) if is_of_user == (cell.benchmark in campaign.custom_benchmarks) else None
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
        if f"parameter_{name}" in rows and benchmark not in built_in_names():
            rows[name] = rows[f"parameter_{name}"]
        elif name not in rows:  # a campaign without the benchmark
            rows[name] = pd.array([None] * len(rows), dtype=TYPES[axis.type])
    return rows


def _array(values: Sequence, kind: str) -> pd.api.extensions.ExtensionArray:
    if isinstance(values, np.ndarray) and values.dtype == float and kind != TEXT:
        return pd.array(values, dtype=kind)
    return pd.array([None if is_unknown(value) else value for value in values], dtype=kind)
