"""The columns of every CSV that Regatta writes, and how they are written and read.

Column names end with the unit. An empty field is unknown. Floats have nine significant digits, so that the same records
give the same bytes. In measurements.csv they have twelve, a nanosecond of 999 s, so that an exported and imported time
compares as 1; in epochs.csv all, where launches must agree to the last digit. A text that a spreadsheet would
evaluate as a formula has a leading apostrophe, which reading removes.
"""

import io
import itertools
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from regatta.core.benchmarks import Benchmark, Result, all_axes, built_in_names, result_columns
from regatta.core.errors import UserError
from regatta.core.statistics import PERCENTILES
from regatta.kit.columns import FLAG, REAL, SHAPE, TEXT, WHOLE, Column, Columns, in_file
from regatta.model.frozen import FrozenCampaign, FrozenCell
from regatta.store.launch_files import write_text
from regatta.store.records import MEMORY_BYTES, RANK_BYTES, one_line

pd.set_option("mode.string_storage", "python")  # "auto" takes pyarrow where it is installed: other code for text
TYPES = {"string": TEXT, "integer": WHOLE, "number": REAL, "boolean": FLAG}
CELL_FIELDS = ("benchmark", "backend", "device", "nodes", "gpus_per_node", "world_size", "stack")
# Published columns keep their order; those of a new benchmark follow.
PUBLISHED_AXES = (
    "model strategy bucket_cap_mb gradient_as_bucket_view image_size context_length batch_size optimizer static_graph "
    "compression compile channels_last implementation hidden data data_folder epochs accumulation_steps norm seed "
    "operation algorithm message_bytes dtype"
).split()
PUBLISHED_RESULTS = (
    "whole_step_s no_sync_s communication_s host_wait_s communication_stream_s exposed_stream_s forward_s backward_s "
    "train_s test_s num_calls max_abs_error max_rel_error largest_output_error largest_input_gradient_error "
    "num_parameters num_layers d_model num_heads d_ff vocab_size flops_per_sample"
).split()


def _in_order(names: Collection[str], published: Iterable[str]) -> list[str]:
    """Return names with the published ones first."""
    return [name for name in dict.fromkeys([*published, *names]) if name in names]


# Columns that identify a cell, from its spec, with one per parameter of any benchmark. Used by every table.
CELL = {
    "benchmark": TEXT,
    **{name: TYPES[all_axes()[name].type] for name in _in_order(all_axes(), PUBLISHED_AXES)},
    **dict.fromkeys(("nodes", "gpus_per_node", "world_size"), WHOLE),
    **dict.fromkeys(("stack", "backend", "device"), TEXT),
}


def result_column(name: str, group: str = "values", file: str = "measurements", **more: object) -> Column:
    """Return the column of a result of a record, as its benchmark declares it. group: that of the record."""
    return _column_of(result_columns(group, file)[name], **more)


def _column_of(result: Result, **more: object) -> Column:
    kind = {}
    if result.group == "memory":
        is_peak = result.column == "peak_allocated_bytes"
        kind = {"shown_as": "MiB", "is_shown": is_peak, "group": "memory", "table": "memory"}
    elif result.group == "parts_ns":  # in ns in the record and in seconds in the table
        kind = {"type": REAL, "shown_as": "ms"}
    label = result.label if result.label[1:2].isupper() else result.label[0].lower() + result.label[1:]
    kind = {"type": TYPES[result.type], "better": result.better or "", "help": result.help} | kind
    return Column(result.column, **{"label": label} | kind | more)


def custom_results(benchmark: Benchmark, **more: object) -> list[Column]:
    """Return the columns of the results that a benchmark outside Regatta's tree declares. more: their other fields."""
    results = benchmark.columns["values", "measurements"].items()
    units = {name: "MiB" if name.endswith("_bytes") else result.unit or "" for name, result in results}
    return [_column_of(result, shown_as=units[name], source=name, **more) for name, result in results]


def _results(group: str, file: str = "measurements") -> list[Column]:
    return [result_column(name, group, file) for name in _in_order(result_columns(group, file), PUBLISHED_RESULTS)]


def columns_in(campaign: FrozenCampaign, columns: Columns) -> Columns:
    """Return the columns of a table with those of the campaign's custom benchmarks: axes if it has those of all others,
    and results in MEASUREMENTS."""
    added = {}
    for benchmark in campaign.custom_benchmarks.values() if CELL.keys() <= columns.keys() else ():
        found = [Column(axis.name, type=TYPES[axis.type]) for axis in benchmark.axes.values()]
        found += custom_results(benchmark) if columns is MEASUREMENTS else []
        added |= {column.name: column for column in found if column.name not in columns}
    return Columns(*columns.declared, *added.values())


def cell_columns() -> dict[str, str]:
    """Return CELL with the axes of benchmarks outside Regatta's tree that are known by name."""
    return CELL | {name: TYPES[axis.type] for name, axis in all_axes().items()}


def cell_row(cell: FrozenCell) -> dict:
    """Return the columns that identify a cell. Some parameters of an older version have none."""
    is_custom = cell.benchmark not in built_in_names()
    return {
        "cell": cell.id,
        **{name: value for name, value in cell.parameters.items() if is_custom or name in MEASUREMENTS},
        **{name: cell.field(name) for name in CELL_FIELDS},
        "command": None if cell.command is None else one_line(cell.command),
    }


_DRIFT = (
    "change of T_i over the launch, over the median of T_i, and whether it is significant; empty below 20 iterations"
)
MEASURED = Columns(
    *in_file(WHOLE, "number of timed iterations", "num_iterations"),
    *in_file(TEXT, "why sampling stopped; `precision` needs an interval within the target", "stop"),
    *in_file(REAL, "half the width of the interval of `p50_s`, over `p50_s`, at the end", "half_width_ratio"),
    *in_file(WHOLE, "number of warm-up iterations", "warmup_iterations"),
    *in_file(TEXT, "why the warm-up ended (steady or max_seconds)", "warmup_stop"),
    *in_file(REAL, "first iteration of the warm-up, which no other iteration time includes", "first_iteration_s"),
    *in_file(REAL, "minimum and median of T_i, the time of iteration i on its slowest rank", "min_s", "p50_s"),
    *in_file(REAL, "95 % confidence interval of the median by order statistics [1]", "p50_low_s", "p50_high_s"),
    *in_file(REAL, "quantile by linear interpolation; needs 11, 29, 59 and 299 iterations", *PERCENTILES),
    *in_file(REAL, "maximum of T_i", "max_s"),
    *in_file(REAL, "arithmetic mean of T_i, and standard deviation with m − 1", "mean_s", "std_s"),
    *in_file(REAL, _DRIFT, "drift_ratio"),
    *in_file(FLAG, _DRIFT, "has_drift"),
    *in_file(REAL, "effective sample size: m / autocorrelation time; empty below 20 iterations", "effective_samples"),
    *in_file(WHOLE, "iterations beyond the outer fences; empty below 11 iterations", "num_outliers"),
    *in_file(REAL, "time per step or call, back to back, in windows on the slowest rank", "window_step_s"),
    *_results("parts_ns"),
)
_LAST = "host that computes longest without synchronization, its lag behind the slowest other one, time over median"
_RECORD = "launch file, and line of the record in it, counted from 1"
_LOST = "share of CPU time lost to steal, or to throttling by a cgroup, on the host with the most"
_OTHERS = "CPU share of processes other than the ranks during the cell, on the host with the most, `loaded_host`"
MEASUREMENTS = Columns(
    *in_file(TEXT, "id of the cell", "cell"),
    *(Column(name, type=kind) for name, kind in CELL.items()),
    *in_file(WHOLE, "number of the planned launch, from 0; empty for a skipped cell", "repeat"),
    *in_file(TEXT, "as recorded, or `not_measured`: planned, but without a valid record in the store", "status"),
    *in_file(TEXT, "where and why it is not ok", "phase", "cause"),
    *in_file(TEXT, _RECORD, "launch"),
    *in_file(WHOLE, _RECORD, "line"),
    *in_file(WHOLE, "the cell's position in its launch, counted from 1", "position"),
    *in_file(TEXT, "hosts of the launch, in the order of their ranks; empty if unknown", "hosts"),
    *MEASURED.declared,
    *map(result_column, MEMORY_BYTES, itertools.repeat("memory")),
    *in_file(WHOLE, "ranks of other launches on the cell's hosts. Above 0, times are not comparable", "other_ranks"),
    *in_file(REAL, _OTHERS, "other_processes_ratio"),
    *in_file(REAL, _LOST, "steal_ratio", "throttled_ratio"),
    *in_file(TEXT, "host with the largest share of other processes", "loaded_host"),
    *_results("values"),
    *in_file(REAL, "of a training run: sum over epochs of `epoch_s`", "total_s"),
    *in_file(REAL, "of a training run: median over epochs of `train_s` and `test_s`", "epoch_train_s", "epoch_test_s"),
    *in_file(REAL, "of a training run: values of its last epoch", "train_loss", "test_loss", "accuracy_ratio"),
    *in_file(WHOLE, "of a training run: images of all ranks in an epoch", "train_samples"),
    *in_file(TEXT, "of a training run: digest of the train and test losses of all epochs, to the last digit", "losses"),
    *in_file(TEXT, _LAST, "last_host"),
    *in_file(REAL, _LAST, "last_host_lag_s", "last_host_ratio"),
    *in_file(TEXT, "name shared by all GPUs of the launch; empty on CPUs and if names differ", "gpu"),
    *in_file(FLAG, "whether torch may use TF32 for fp32 matrix products", "allow_tf32_matmul"),
    *in_file(FLAG, "whether torch may use TF32 for fp32 convolutions", "allow_tf32_cudnn"),
    *in_file(REAL, "time from creating the process group to the record: cost, not performance", "elapsed_s"),
    *in_file(TEXT, "when the record was written, and the command that measures the cell", "time_utc", "command"),
)
# For each ok record of train_run, one row per epoch (times of its slowest rank), and one per rank.
_OF_RECORD = MEASUREMENTS.named("cell", "repeat", "launch", "line")
EPOCHS = Columns(
    *_OF_RECORD,
    *in_file(WHOLE, "number of the epoch", "epoch"),
    *in_file(REAL, "time of the epoch on its slowest rank, and its parts", "epoch_s", "train_s", "test_s"),
    *_results("values", "epochs"),
)
RANKS = Columns(
    *_OF_RECORD,
    *in_file(WHOLE, "number of the rank", "rank"),
    *in_file(REAL, "time of all epochs of the rank", "total_s"),
    *_results("values", "ranks"),
    *map(result_column, RANK_BYTES, itertools.repeat("memory")),
)
QUANTITY = "the times used"
_LAG = "how much later the rank is than the median of the others: see below; below 0 if it is earlier"
_SHOWN = "the record of the quantiles, in which the most frequent suspect (a rank, else a host) has its largest lag"
# For each launch of several ranks, one row per quantity and rank that others waited for. cell, line: the quantiles'.
OF_LAUNCH = ("launch", "repeat", "stack", "device", "nodes", "gpus_per_node", "world_size")
WAITS = Columns(
    *MEASUREMENTS.named(*OF_LAUNCH),
    *in_file(TEXT, QUANTITY, "quantity"),
    Column("rank", "rank", WHOLE, table="strip", help="the rank"),
    Column("host", "host", TEXT, table="strip", help="its host"),
    *in_file(WHOLE, "records and iterations examined", "num_records", "num_iterations"),
    *in_file(WHOLE, "iterations in which the rank alone was last", "num_last"),
    *in_file(WHOLE, "records in which the rank was the suspect", "num_suspect"),
    *in_file(REAL, _LAG, "lag_s", "lag_ratio"),
    *in_file(WHOLE, "records in which its host was the suspect", "num_host_suspect"),
    *in_file(REAL, "the same lags of its host", "host_lag_s", "host_lag_ratio"),
    *in_file(TEXT, _SHOWN, "cell"),
    *in_file(WHOLE, _SHOWN, "line"),
    *(Column(f"{one}_s", one, table="strip", help="quantiles of the rank's times") for one in ("p5", "p50", "p95")),
)
# Each launch of the store, and each job that worked on a batch.
_LAUNCH_TIMES = "the supervisor's request to start the ranks, and the last line of the launch file"
_JOB_TIMES = "first and last line of one job in `jobs.jsonl`; `end_utc` is empty if the job could not record its end"
_SHAPE = "its shape: nodes, and ranks per node"


LAUNCHES = Columns(
    Column("batch", "batch", TEXT, table="launches", help="its batch"),
    *in_file(TEXT, "the launch", "launch"),
    Column("stack", "stack", TEXT, table="launches", help="its stack"),
    replace(SHAPE, table="launches", help=_SHAPE),
    *in_file(WHOLE, _SHAPE, "gpus_per_node"),
    Column("hosts", "hosts", TEXT, table="launches", help="hosts in the order of their ranks; empty if unknown"),
    *in_file(TEXT, _LAUNCH_TIMES, "start_utc", "end_utc"),
    *in_file(TEXT, "`complete` or `stopped`; empty if the ranks died", "end"),
    *in_file(REAL, "from process start to the end of imports, on the slowest rank; empty if not recorded", "import_s"),
    *in_file(REAL, "sum of the elapsed times of its records, by the monotonic clock of rank 0", "cells_s"),
    *in_file(REAL, "parts of `cells_s`: warm-up; iterations and pipelined windows", "warmup_s", "measuring_s"),
    Column("num_ok", "ok", WHOLE, table="launches", help="records with status ok; superseded ones count"),
    Column("num_failed", "not ok", WHOLE, table="launches", help="records with any other status"),
)
JOBS = Columns(
    *in_file(TEXT, "batch, and job that worked on it", "batch", "job"),
    *in_file(WHOLE, _SHAPE, "nodes", "gpus_per_node"),
    *in_file(TEXT, _JOB_TIMES, "start_utc", "end_utc"),
    *in_file(TEXT, "kind of the last line of the job", "end"),
    *in_file(REAL, "time between these lines by a clock that cannot be set; counts suspended time", "elapsed_s"),
)
# The tables that are read from the store, by the name of their file.
COLLECTED = {"measurements": MEASUREMENTS, "epochs": EPOCHS, "ranks": RANKS}
COLLECTED |= {"waits": WAITS, "launches": LAUNCHES, "jobs": JOBS}


# Columns of CELL in tables of one benchmark: where a cell ran, and the parameters of a training step.
SHAPE_COLUMNS = ("nodes", "gpus_per_node", "world_size", "stack", "backend", "device")
STEP_COLUMNS = tuple(
    "model image_size context_length batch_size dtype optimizer compile channels_last strategy bucket_cap_mb "
    "gradient_as_bucket_view static_graph compression".split()
)


OF_LAUNCHES = {"num_planned": WHOLE, "num_launches": WHOLE, "interval": TEXT}  # in a table of cells


def make_table(rows: list[dict], columns: dict[str, str]) -> pd.DataFrame:
    """Return rows as a table with exactly `columns`; a missing value is unknown.

    Rows may have other fields of a cell and its launches too. Raises ValueError for any other field.
    """
    names = set().union(*rows)
    if undeclared := names - columns.keys() - MEASUREMENTS.keys() - OF_LAUNCHES.keys():
        raise ValueError(f"{', '.join(sorted(undeclared))} is not a column of its table ({', '.join(columns)})")
    arrays = {  # dict.get without a loop in Python: a store has millions of values
        name: pd.array(list(map(dict.get, rows, itertools.repeat(name))), dtype=kind) for name, kind in columns.items()
    }
    return pd.DataFrame(arrays, index=range(len(rows)))


def plain_rows(table: pd.DataFrame, names: tuple[str, ...]) -> list[dict]:
    """Return these columns of each row; what is unknown is None.

    Plain dictionaries: a data frame for each of a thousand small groups would take seconds.
    """
    columns = (np.where(table[name].isna(), None, table[name].to_numpy(dtype=object)).tolist() for name in names)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def grouped(rows: list[dict], names: tuple[str, ...]) -> dict[tuple, list[dict]]:
    """Return rows by their values of `names`, in the order in which these come first."""
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


TABLE_DIGITS = 9  # significant ones of computed numbers


def to_csv(table: pd.DataFrame, num_digits: int | None = TABLE_DIGITS) -> str:
    """Return the text of DataFrame.to_csv, in a fifth of its time. num_digits: significant of floats; None: all."""
    show = repr if num_digits is None else f"%.{num_digits}g".__mod__
    columns = [_texts(table[name], show) for name in table.columns]
    lines = [",".join(map(quoted, table.columns)), *map(",".join, zip(*columns, strict=True))]
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
        form = {value: quoted(value) for value in set(values)}.__getitem__
    if not is_unknown.any():
        return list(map(form, values))
    return ["" if unknown else form(value) for value, unknown in zip(values, is_unknown.tolist(), strict=True)]


def quoted(value: object) -> str:
    """Return a value as a field of a CSV file."""
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


def read_csv(path: Path, columns: dict[str, str], needed: Collection[str] = ()) -> pd.DataFrame:
    """Read a table that `write_csv` wrote. Only an empty field is unknown: the word NA stays a word.

    needed: the columns that it cannot lack; all by default. Raises UserError if it is missing, damaged, or of a
    different version; it can be rebuilt from the store.
    """
    try:
        head, end, rows = path.read_bytes().decode("utf-8").partition("\n")
        if not f"{end}{rows}".endswith("\n"):
            raise ValueError("its last line is cut off")
        found = head.split(",")
        if absent := sorted({*(needed or columns)}.difference(found)):
            raise ValueError(f"it lacks {', '.join(absent)}")
        known, text = {name: columns[name] for name in columns if name in found}, io.StringIO(f"{head}{end}{rows}")
        table = pd.read_csv(text, dtype=known, keep_default_na=False, na_values=[""], usecols=list(known))
        unknown = (name for name in columns if name not in known)
        table = table.assign(**{name: pd.array([None] * len(table), dtype=columns[name]) for name in unknown})
    except (OSError, ValueError) as error:
        folder = path.parent.parent if path.parent.name == "tables" else path.parent
        why = one_line(getattr(error, "strerror", None) or error)
        raise UserError(
            f"{path}: cannot be read ({why}). Rebuild it from the store: make report CONFIG={folder}"
        ) from None
    for name, kind in columns.items():
        if kind == TEXT and any(text.startswith("'") for text in table[name].dropna().unique()):
            table[name] = table[name].map(unescape, na_action="ignore").astype(TEXT)
    return table
