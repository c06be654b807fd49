"""The columns of every CSV that Regatta writes, and how they are written and read.

Column names end with the unit. An empty field is unknown. Floats have nine significant digits, so that the same records
give the same bytes. In measurements.csv they have twelve, a nanosecond of 999 s, so that an exported and imported time
compares as 1; in epochs.csv all, where launches must agree to the last digit. A text that a spreadsheet would
evaluate as a formula has a leading apostrophe, which reading removes.
"""

import io
import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from regatta.core.benchmarks import all_axes, result_columns
from regatta.core.errors import UserError
from regatta.core.statistics import PERCENTILES
from regatta.kit.columns import CELL_ID, FLAG, INTERVAL_ENDS, REAL, TEXT, WHOLE, Column, Columns, in_file
from regatta.store.launch_files import write_text
from regatta.store.records import MEMORY_BYTES, RANK_BYTES, one_line

TYPES = {"string": TEXT, "integer": WHOLE, "number": REAL, "boolean": FLAG}
# Published columns keep their order; those of a new benchmark follow.
PUBLISHED_AXES = (
    *("model", "strategy", "bucket_cap_mb", "gradient_as_bucket_view", "image_size", "context_length", "batch_size"),
    *("optimizer", "static_graph", "compression", "compile", "channels_last", "implementation", "hidden", "data"),
    *(
        "data_folder",
        "epochs",
        "accumulation_steps",
        "norm",
        "seed",
        "operation",
        "algorithm",
        "message_bytes",
        "dtype",
    ),
)
PUBLISHED_RESULTS = (
    *("whole_step_s", "no_sync_s", "communication_s", "host_wait_s", "communication_stream_s", "exposed_stream_s"),
    *("forward_s", "backward_s", "train_s", "test_s", "num_calls", "max_abs_error", "max_rel_error"),
    *("largest_output_error", "largest_input_gradient_error", "num_parameters", "num_layers", "d_model", "num_heads"),
    *("d_ff", "vocab_size", "flops_per_sample"),
)


def _in_order(types: dict[str, str], published: tuple[str, ...]) -> dict[str, str]:
    """Return column -> type with the published columns first."""
    return {name: TYPES[types[name]] for name in [*published, *types] if name in types}


# Columns that identify a cell, from its spec, with one per parameter of any benchmark. Used by every table.
CELL = {
    "benchmark": TEXT,
    **_in_order({name: axis.type for name, axis in all_axes().items()}, PUBLISHED_AXES),
    **dict.fromkeys(("nodes", "gpus_per_node", "world_size"), WHOLE),
    **dict.fromkeys(("stack", "backend", "device"), TEXT),
}
# A time of a part is in ns in the record and in seconds in the table.
_PARTS = _in_order(dict.fromkeys(result_columns("parts_ns"), "number"), PUBLISHED_RESULTS)
_VALUES = _in_order({name: r.type for name, r in result_columns("values").items()}, PUBLISHED_RESULTS)
MEASURED = {
    "num_iterations": WHOLE,
    "stop": TEXT,
    "half_width_ratio": REAL,
    "warmup_iterations": WHOLE,
    "warmup_stop": TEXT,
    "first_iteration_s": REAL,
    **dict.fromkeys(("min_s", "p50_s", "p50_low_s", "p50_high_s", *PERCENTILES, "max_s", "mean_s", "std_s"), REAL),
    "drift_ratio": REAL,
    "has_drift": FLAG,
    "effective_samples": REAL,
    "num_outliers": WHOLE,
    "window_step_s": REAL,
    **_PARTS,
}
MEASUREMENTS = {
    "cell": TEXT,
    **CELL,
    "repeat": WHOLE,
    **dict.fromkeys(("status", "phase", "cause", "launch"), TEXT),
    **dict.fromkeys(("line", "position"), WHOLE),
    "hosts": TEXT,
    **MEASURED,
    **dict.fromkeys(MEMORY_BYTES, WHOLE),
    "num_calls": _VALUES["num_calls"],
    "other_ranks": WHOLE,
    **dict.fromkeys(("other_processes_ratio", "steal_ratio", "throttled_ratio"), REAL),
    "loaded_host": TEXT,
    **_VALUES,
    "gpu": TEXT,
    "allow_tf32_matmul": FLAG,
    "allow_tf32_cudnn": FLAG,
    "elapsed_s": REAL,
    "time_utc": TEXT,
    "command": TEXT,
}
# For each ok record of train_run, one row per epoch (times of its slowest rank), and one per rank.
_RECORD = {name: MEASUREMENTS[name] for name in ("cell", "repeat", "launch", "line")}
EPOCHS = {
    **_RECORD,
    "epoch": WHOLE,
    **dict.fromkeys(("epoch_s", "train_s", "test_s"), REAL),
    "train_samples": WHOLE,
    **dict.fromkeys(("train_loss", "test_loss", "accuracy_ratio"), REAL),
}
RANKS = {**_RECORD, "rank": WHOLE, "total_s": REAL, "accuracy_ratio": REAL, **dict.fromkeys(RANK_BYTES, WHOLE)}
# Outliers among the tested iterations, by class. The class of the others is unknown.
_FENCED = "iterations of records with at least 11 iterations. If no record has that many, numbers of outliers are empty"
_SPIKES = (
    "outliers in these iterations, in total and by class; equal in all rows of a launch, shape, stack and quantity"
)
_KINDS = {"": "outliers", "_all_ranks": "all ranks", "_one_host": "one host", "_one_rank": "one rank"}
OUTLIERS = (
    Column("num_fenced", "iterations", WHOLE, table="outliers", help=_FENCED),
    *(Column(f"num_spikes{end}", of, WHOLE, table="outliers", help=_SPIKES) for end, of in _KINDS.items()),
    *in_file(REAL, "sum over outliers of E / record median: cost in iterations", "spike_cost_iterations"),
)
SPIKES_OF_RANK = Column("num_spikes_of_rank", type=WHOLE, help="outliers of class one rank that this rank caused")
QUANTITY = "the times used"
_LAG = "how much later the rank is than the median of the others: see below; below 0 if it is earlier"
_SHOWN = "the record of the quantiles, in which the most frequent suspect (a rank, else a host) has its largest lag"
# For each launch of several ranks, one row per quantity and rank that others waited for. cell, line: the quantiles'.
OF_LAUNCH = ("launch", "repeat", "stack", "device", "nodes", "gpus_per_node", "world_size")
WAITS = Columns(
    *(Column(name, type=MEASUREMENTS[name]) for name in OF_LAUNCH),
    *in_file(TEXT, QUANTITY, "quantity"),
    Column("rank", "rank", WHOLE, table="strip", help="the rank"),
    Column("host", "host", TEXT, table="strip", help="its host"),
    *in_file(WHOLE, "records and iterations examined", "num_records", "num_iterations"),
    *in_file(WHOLE, "iterations in which the rank alone was last", "num_last"),
    *OUTLIERS,
    SPIKES_OF_RANK,
    *in_file(WHOLE, "outliers of class one host that the rank's host caused", "num_spikes_of_host"),
    *in_file(WHOLE, "records in which the rank was the suspect", "num_suspect"),
    *in_file(REAL, _LAG, "lag_s", "lag_ratio"),
    *in_file(WHOLE, "records in which its host was the suspect", "num_host_suspect"),
    *in_file(REAL, "the same lags of its host", "host_lag_s", "host_lag_ratio"),
    *in_file(TEXT, _SHOWN, "cell"),
    *in_file(WHOLE, _SHOWN, "line"),
    *(Column(f"{one}_s", one, table="strip", help="quantiles of the rank's times") for one in ("p5", "p50", "p95")),
)
# Each launch of the store, and each job that worked on a batch.
LAUNCHES = {
    **dict.fromkeys(("batch", "launch", "stack"), TEXT),
    **dict.fromkeys(("nodes", "gpus_per_node"), WHOLE),
    **dict.fromkeys(("hosts", "start_utc", "end_utc", "end"), TEXT),
    **dict.fromkeys(("cells_s", "warmup_s", "measuring_s"), REAL),
    **dict.fromkeys(("num_ok", "num_failed"), WHOLE),
}
JOBS = {
    **dict.fromkeys(("batch", "job"), TEXT),
    **dict.fromkeys(("nodes", "gpus_per_node"), WHOLE),
    **dict.fromkeys(("start_utc", "end_utc", "end"), TEXT),
    "elapsed_s": REAL,
}
# The tables that are read from the store, by the name of their file.
COLLECTED = {
    "measurements": MEASUREMENTS,
    "epochs": EPOCHS,
    "ranks": RANKS,
    "waits": WAITS,
    "launches": LAUNCHES,
    "jobs": JOBS,
}


# Columns of CELL in tables of one benchmark: where a cell ran, and the parameters of a training step.
SHAPE_COLUMNS = ("nodes", "gpus_per_node", "world_size", "stack", "backend", "device")
STEP_COLUMNS = (
    *("model", "image_size", "context_length", "batch_size", "dtype", "optimizer", "compile", "channels_last"),
    *("strategy", "bucket_cap_mb", "gradient_as_bucket_view", "static_graph", "compression"),
)


def cell_columns(parameters: Iterable[str]) -> dict[str, str]:
    """Return the first columns of a table of cells: id, parameters, shape, and the launches of its intervals."""
    described = {name: CELL[name] for name in (*parameters, *SHAPE_COLUMNS)}
    return {"cell": TEXT, **described, "num_planned": WHOLE, "num_launches": WHOLE, "interval": TEXT}


def described(parameters: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of `cell_columns`, of a table with one row for each cell."""
    return CELL_ID, *(Column(name, type=kind) for name, kind in cell_columns(parameters).items() if name != "cell")


def result_column(name: str, group: str = "values") -> Column:
    """Return the column of a result of a record, as its benchmark declares it. group: that of the record."""
    result = result_columns(group)[name]
    column = Column(name, result.label, TYPES[result.type], better=result.better or "", group=group)
    return replace(column, shown_as="MiB", is_shown=name == "peak_allocated_bytes") if group == "memory" else column


def interval_columns(name: str, unit: str) -> dict[str, str]:
    """Return the columns of a number with its range or interval: step_s, step_low_s, step_high_s."""
    return {f"{name}{end}_{unit}": REAL for end in INTERVAL_ENDS}


def make_table(rows: list[dict], columns: dict[str, str]) -> pd.DataFrame:
    """Return rows as a table with exactly `columns`; a missing value is unknown.

    Rows may have other fields of a cell too (store/collect.py, cell_row). Raises ValueError for any other field.
    """
    names = set().union(*rows)
    if undeclared := names - columns.keys() - MEASUREMENTS.keys():
        raise ValueError(f"{', '.join(sorted(undeclared))} is not a column of its table ({', '.join(columns)})")
    return pd.DataFrame({name: _column(rows, name, kind, name in names) for name, kind in columns.items()})


def _column(rows: list[dict], name: str, kind: str, is_known: bool) -> pd.api.extensions.ExtensionArray:
    if not is_known:
        return pd.array([None], dtype=kind).take([0] * len(rows))
    values = list(map(dict.get, rows, itertools.repeat(name)))
    if kind != REAL:
        return pd.array(values, dtype=kind)
    numbers = np.array(values, dtype=float)  # None becomes NaN, in a fifth of the time of pd.array
    return pd.arrays.FloatingArray(numbers, np.isnan(numbers))


def to_csv(table: pd.DataFrame, num_digits: int = 9) -> str:
    """Return a table as CSV. num_digits: significant ones of floats."""
    return _csv(table, f"%.{num_digits}g".__mod__)


def to_exact_csv(table: pd.DataFrame) -> str:
    return _csv(table, repr)


def _csv(table: pd.DataFrame, show: Callable[[float], str]) -> str:
    """Return the text of DataFrame.to_csv, in a fifth of its time. show: formats a float."""
    columns = [_texts(table[name], show) for name in table.columns]
    lines = [",".join(map(_quoted, table.columns)), *map(",".join, zip(*columns, strict=True))]
    return "\n".join(lines) + "\n"


def _texts(column: pd.Series, show: Callable[[float], str]) -> list[str]:
    """Return the fields of a column; unknown values are empty."""
    values, is_unknown = column.to_numpy(dtype=object).tolist(), column.isna().to_numpy()
    if is_unknown.all():
        return [""] * len(values)
    form = str
    if pd.api.types.is_float_dtype(column.dtype):
        form = show
    elif column.dtype in (TEXT, object):  # texts repeat
        form = {value: _quoted(value) for value in set(values)}.__getitem__
    if not is_unknown.any():
        return list(map(form, values))
    return ["" if unknown else form(value) for value, unknown in zip(values, is_unknown.tolist(), strict=True)]


def _quoted(value: object) -> str:
    text = escape(str(value))
    has_special = "," in text or '"' in text or "\n" in text or "\r" in text
    return '"' + text.replace('"', '""') + '"' if has_special else text


# A text that begins like a formula, or with the apostrophe itself, so that reading is unambiguous. Numbers may be texts
# too: the tidy CSV has values of all types in one column.
FORMULA = re.compile(r"[=+@\t\r']|-(?!(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\Z)")


def escape(text: str) -> str:
    """Return a text, with a leading apostrophe if a spreadsheet would evaluate it as a formula (CSV injection)."""
    return f"'{text}" if FORMULA.match(text) else text


def unescape(text: str) -> str:
    """Return the text that `escape` changed."""
    return text.removeprefix("'")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    write_text(path, to_csv(table))


def read_csv(path: Path, columns: dict[str, str]) -> pd.DataFrame:
    """Read a table that `write_csv` wrote. Only an empty field is unknown: the word NA stays a word.

    Raises UserError if it is missing, damaged, or of a different version; it can be rebuilt from the store.
    """
    try:
        text = io.StringIO(path.read_bytes().decode("utf-8"))
        table = pd.read_csv(text, dtype=columns, keep_default_na=False, na_values=[""], usecols=list(columns))
    except (OSError, ValueError) as error:
        folder = path.parent.parent if path.parent.name == "tables" else path.parent
        why = one_line(getattr(error, "strerror", None) or error)
        raise UserError(
            f"{path}: cannot be read ({why}). Rebuild it from the store:"
            f" python workflow/scripts/rebuild_report.py {folder}"
        ) from None
    for name, kind in columns.items():
        if kind == TEXT and any(text.startswith("'") for text in table[name].dropna().unique()):
            table[name] = table[name].map(unescape, na_action="ignore").astype(TEXT)
    return table
