"""What one line of a launch file must look like, and what is read out of one record.

The schema is workflow/schemas/record.yaml. Samples are many, so they are taken out before the schema is applied and
checked as arrays.
"""

from functools import cache

import jsonschema
import numpy as np

from regatta.statistics import PERCENTILES, drift, effective_samples, median_interval, outliers, percentile
from regatta.store.imported_times import imported_step, imported_times, is_without_samples
from regatta.store.samples import count, number, slowest_rank, whole_times
from regatta.store.schemas import SCHEMAS, schemas_by_kind
from regatta.store.training import training_of

SCHEMA_FILE = SCHEMAS / "record.yaml"
ARRAYS = ("samples_ns", "slowest_rank_samples_ns", "rank_quantiles_ns", "windows", "parts_ns")
# Part of an iteration (docs/contracts.md) -> its column: median over iterations of the slowest rank.
PARTS = {
    "step": "whole_step_s",
    "no_sync": "no_sync_s",
    "communication": "communication_s",
    "host_wait": "host_wait_s",
    "communication_stream": "communication_stream_s",
    "exposed_stream": "exposed_stream_s",
    "forward": "forward_s",
    "backward": "backward_s",
    "train": "train_s",
    "test": "test_s",
}
# How far a checked result was from the exact one: of a collective's sum, of a batch norm and its input's gradient.
ERRORS = ("max_abs_error", "max_rel_error", "largest_output_error", "largest_input_gradient_error")
# What a model is: its size, of a transformer its dimensions, and the operations that a training step makes of one sample.
MODEL_COUNTS = (
    "num_parameters", "num_layers", "d_model", "num_heads", "d_ff", "vocab_size", "flops_per_sample",
)  # fmt: skip
# Of one rank, or the largest over ranks.
MEMORY_BYTES = (
    "parameter_bytes", "gradient_bytes", "optimizer_bytes", "saved_bytes", "algorithm_bytes", "peak_allocated_bytes",
    "peak_reserved_bytes", "device_used_bytes", "peak_rss_bytes",
)  # fmt: skip


def one_line(value: object, limit: int = 1000) -> str:
    """Return any value as one line that can be encoded: no line break, control character or lone surrogate."""
    words = " ".join(str(value).split())
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in words)
    return text if len(text) <= limit else text[: limit - 3] + "..."


@cache
def _validators() -> dict[str, jsonschema.Draft202012Validator]:
    return {kind: jsonschema.Draft202012Validator(schema) for kind, schema in schemas_by_kind(SCHEMA_FILE).items()}


def violation(line: dict) -> str | None:
    """Return how a line of a launch file breaks the schema, or None. Arrays of samples are not looked at."""
    validator = _validators().get(line["kind"])
    if validator is None:
        return f"unknown kind {one_line(line['kind'])!r}"
    error = jsonschema.exceptions.best_match(validator.iter_errors({k: v for k, v in line.items() if k not in ARRAYS}))
    if error is None:
        return None
    return one_line(f"{'.'.join(map(str, error.absolute_path)) or 'line'}: {error.message}", 300)


def problem_of(record: dict) -> str | None:
    """Return why a record cannot be analysed, or None: it breaks the schema, or its samples are unreadable."""
    try:
        return violation(record) or measured(record, record["spec"])[1]
    except (KeyError, TypeError) as error:
        return one_line(f"its spec does not say the shape ({error!r})")


def measured(record: dict, spec: dict) -> tuple[dict, str | None]:
    """Return the measured columns of a valid record, and what makes its samples unreadable (or None).

    Times only of an ok record: what failed its check or was cut off is no measurement.
    """
    try:
        row = {**_memory(record), **_errors(record), **_counts(record), **_model(record)}
        row["other_ranks"] = record.get("other_ranks")
        if record["status"] != "ok":
            return row, None
        if is_without_samples(record):
            return row | imported_times(record), None
        slowest = slowest_rank(record, spec["nodes"] * spec["gpus_per_node"])
        step_s = _window_step(record.get("windows"), spec["nodes"] * spec["gpus_per_node"])
        parts = _parts(record.get("parts_ns") or {}, spec["nodes"] * spec["gpus_per_node"])
        training_of(record, spec)
    except ValueError as error:
        return {}, one_line(error, 300)
    step_s = imported_step(record) if step_s is None else step_s
    return row | _times(slowest * 1e-9) | {"window_step_s": step_s} | parts, None


def _memory(record: dict) -> dict:
    memory = record["memory"] or {}
    row = {}
    for name in MEMORY_BYTES:
        value = memory.get(name)
        row[name] = max((b for b in value if b is not None), default=None) if isinstance(value, list) else value
    return row


def _errors(record: dict) -> dict:
    """Return how far a result was from the exact one, and how many calls a step's exchange makes. Raises ValueError."""
    values = record["values"] or {}
    errors = {name: number(values.get(name), f"values.{name}") for name in ERRORS}
    return errors | {"num_calls": count(values.get("num_calls"), "values.num_calls")}


def _model(record: dict) -> dict:
    """Return what the record says of the model. Raises ValueError."""
    values = record["values"] or {}
    return {name: count(values.get(name), f"values.{name}") for name in MODEL_COUNTS}


def _counts(record: dict) -> dict:
    warmup, sampling = record["warmup"] or {}, record["sampling"] or {}
    first_ns = warmup.get("first_iteration_ns")
    return {
        "num_iterations": sampling.get("num_iterations"),
        "stop": sampling.get("stop"),
        "half_width_ratio": sampling.get("half_width_ratio"),
        "warmup_iterations": warmup.get("num_iterations"),
        "warmup_stop": warmup.get("stop"),
        "first_iteration_s": None if first_ns is None else first_ns * 1e-9,
    }


def _parts(parts: object, world_size: int) -> dict:
    """Return the median over iterations of the slowest rank for each part that has a column. Raises ValueError if their
    samples break the contract."""
    if not isinstance(parts, dict):
        raise ValueError("parts_ns is no mapping of names")
    times = {name: whole_times(rows, f"parts_ns.{name}", world_size, least=0) for name, rows in parts.items()}
    return {PARTS[name]: float(np.median(rows.max(axis=0))) * 1e-9 for name, rows in times.items() if name in PARTS}


def _window_step(windows: dict | None, world_size: int) -> float | None:
    """Return seconds per step over all pipelined windows: total time of the slowest ranks over total steps."""
    if windows is None:
        return None
    if not isinstance(windows, dict) or not {"steps_per_window", "elapsed_ns"} <= windows.keys():
        raise ValueError("windows lacks steps_per_window or elapsed_ns")
    steps = windows["steps_per_window"]
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise ValueError(f"windows.steps_per_window = {steps!r} is no positive whole number")
    slowest = whole_times(windows["elapsed_ns"], "windows.elapsed_ns", world_size).max(axis=0)
    return float(slowest.sum() * 1e-9 / (steps * len(slowest)))


def _times(slowest: np.ndarray) -> dict:
    """Return the columns of one launch's samples, (iterations,) in seconds."""
    low, high = median_interval(slowest) or (None, None)
    return {
        "min_s": float(slowest.min()),
        "p50_s": float(np.median(slowest)),
        "p50_low_s": low,
        "p50_high_s": high,
        **{name: percentile(slowest, probability) for name, probability in PERCENTILES.items()},
        "max_s": float(slowest.max()),
        "mean_s": float(slowest.mean()),
        "std_s": float(slowest.std(ddof=1)) if len(slowest) > 1 else None,
        **_doubts(slowest),
    }


def _doubts(slowest: np.ndarray) -> dict:
    """Return the columns by which the report warns of a launch's samples. All samples are kept in all other columns.

    Rounded to what such estimates are good for.
    """
    trend, far, worth = drift(slowest), outliers(slowest), effective_samples(slowest)
    return {
        "drift_ratio": round(trend.change_ratio, 4) if trend else None,
        "has_drift": trend.is_flagged if trend else None,
        "effective_samples": None if worth is None else round(worth, 1),
        "num_outliers": far.num_above + far.num_below if far else None,
    }
