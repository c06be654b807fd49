"""The columns of every CSV that Regatta writes, and how they are written and read.

Units end the column names. Whole numbers stay whole, an empty field is unknown, floats have nine significant digits, so
that the same records give the same bytes.
"""

import io
from pathlib import Path

import pandas as pd

from regatta.statistics import PERCENTILES
from regatta.store.launch_files import write_text

TEXT, WHOLE, REAL, FLAG = "string", "Int64", "Float64", "boolean"

# What a cell is; read from its spec. Used by every table.
CELL = {
    "benchmark": TEXT,
    "model": TEXT,
    "strategy": TEXT,
    "bucket_cap_mb": REAL,
    "gradient_as_bucket_view": FLAG,
    "image_size": WHOLE,
    "batch_size": WHOLE,
    "operation": TEXT,
    "message_bytes": WHOLE,
    "dtype": TEXT,
    "nodes": WHOLE,
    "gpus_per_node": WHOLE,
    "world_size": WHOLE,
    "stack": TEXT,
    "backend": TEXT,
    "device": TEXT,
}
MEASURED = {
    "num_iterations": WHOLE,
    "stop": TEXT,
    "half_width_ratio": REAL,
    "warmup_iterations": WHOLE,
    "warmup_stop": TEXT,
    "first_iteration_s": REAL,
    "min_s": REAL,
    "p50_s": REAL,
    "p50_low_s": REAL,
    "p50_high_s": REAL,
    **dict.fromkeys(PERCENTILES, REAL),
    "max_s": REAL,
    "window_step_s": REAL,
}
MEASUREMENTS = {
    "cell": TEXT,
    **CELL,
    "repeat": WHOLE,
    "status": TEXT,
    "phase": TEXT,
    "cause": TEXT,
    "launch": TEXT,
    "line": WHOLE,
    "position": WHOLE,
    **MEASURED,
    "peak_rss_bytes": WHOLE,
    "peak_allocated_bytes": WHOLE,
    "parameter_bytes": WHOLE,
    "elapsed_s": REAL,
    "time_utc": TEXT,
    "command": TEXT,
}

_SHAPE = ("nodes", "gpus_per_node", "world_size", "stack", "backend", "device")
_WORKLOAD = ("model", "image_size", "batch_size", "dtype", "strategy", "bucket_cap_mb", "gradient_as_bucket_view")
SCALING = {
    "cell": TEXT,
    **{name: CELL[name] for name in (*_WORKLOAD, *_SHAPE)},
    "num_planned": WHOLE,
    "num_launches": WHOLE,
    "interval": TEXT,
    "step_s": REAL,
    "step_low_s": REAL,
    "step_high_s": REAL,
    "throughput_samples_per_s": REAL,
    "throughput_low_samples_per_s": REAL,
    "throughput_high_samples_per_s": REAL,
    "throughput_per_gpu_samples_per_s": REAL,
    "baseline": TEXT,
    "baseline_samples_per_s": REAL,
    "efficiency_ratio": REAL,
    "efficiency_low_ratio": REAL,
    "efficiency_high_ratio": REAL,
    "efficiency_interval": TEXT,
    "grade": TEXT,
    "wrapper_ratio": REAL,
    "intra_node_ratio": REAL,
    "inter_node_ratio": REAL,
}
COLLECTIVES = {
    "cell": TEXT,
    **{name: CELL[name] for name in ("operation", "message_bytes", "dtype", *_SHAPE)},
    "num_planned": WHOLE,
    "num_launches": WHOLE,
    "interval": TEXT,
    "latency_s": REAL,
    "latency_low_s": REAL,
    "latency_high_s": REAL,
    "algbw_gb_per_s": REAL,
    "busbw_gb_per_s": REAL,
}
FAILURES = {
    "cell": TEXT,
    "repeat": WHOLE,
    "status": TEXT,
    "phase": TEXT,
    "cause": TEXT,
    "launch": TEXT,
    "log": TEXT,
    "command": TEXT,
}


def make_table(rows: list[dict], columns: dict[str, str]) -> pd.DataFrame:
    """Return rows as a table that has exactly `columns`; what a row lacks is unknown."""
    return pd.DataFrame({name: pd.array([row.get(name) for row in rows], dtype=kind) for name, kind in columns.items()})


def to_csv(table: pd.DataFrame) -> str:
    return table.to_csv(index=False, float_format="%.9g", lineterminator="\n")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    write_text(path, to_csv(table))


def read_csv(path: Path, columns: dict[str, str]) -> pd.DataFrame:
    """Read a table that `write_csv` wrote. Only an empty field is unknown: the word NA stays a word."""
    text = path.read_text(encoding="utf-8")
    return pd.read_csv(io.StringIO(text), dtype=columns, keep_default_na=False, na_values=[""], usecols=list(columns))
