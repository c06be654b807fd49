"""What one line of a launch file must look like, and what is read out of one record.

The schema is workflow/schemas/record.yaml. Samples are many, so they are taken out before the schema is applied and
checked as arrays.
"""

from functools import cache
from pathlib import Path

import jsonschema
import numpy as np
import yaml

from regatta.statistics import PERCENTILES, median_interval, percentile

SCHEMA_FILE = Path(__file__).resolve().parents[3] / "schemas" / "record.yaml"
ARRAYS = ("samples_ns", "slowest_rank_samples_ns", "rank_quantiles_ns", "windows", "parts_ns")
# Part of an iteration (docs/contracts.md) -> its column: median over iterations of the slowest rank.
PARTS = {
    "step": "whole_step_s",
    "no_sync": "no_sync_s",
    "communication": "communication_s",
    "host_wait": "host_wait_s",
    "forward": "forward_s",
    "backward": "backward_s",
    "train": "train_s",
    "test": "test_s",
}
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
    schema = yaml.safe_load(SCHEMA_FILE.read_text(encoding="utf-8"))
    kinds = schema["x-kinds"]
    return {
        kind: jsonschema.Draft202012Validator({"$ref": f"#/$defs/{kind}", "$defs": schema["$defs"]}) for kind in kinds
    }


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
    row = {**_memory(record), **_errors(record), **_counts(record)}
    if record["status"] != "ok":
        return row, None
    try:
        slowest = _slowest_rank(record, spec["nodes"] * spec["gpus_per_node"])
        step_s = _window_step(record.get("windows"), spec["nodes"] * spec["gpus_per_node"])
        parts = _parts(record.get("parts_ns") or {}, spec["nodes"] * spec["gpus_per_node"])
    except ValueError as error:
        return {}, one_line(error)
    return row | _times(slowest * 1e-9) | {"window_step_s": step_s} | parts, None


def _memory(record: dict) -> dict:
    memory = record["memory"] or {}
    row = {}
    for name in MEMORY_BYTES:
        value = memory.get(name)
        row[name] = max((b for b in value if b is not None), default=None) if isinstance(value, list) else value
    return row


def _errors(record: dict) -> dict:
    """Return how far a collective's sum was from the exact one, and how many calls a step's exchange makes."""
    values = record["values"] or {}
    return {name: values.get(name) for name in ("max_abs_error", "max_rel_error", "num_calls")}


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


def _slowest_rank(record: dict, world_size: int) -> np.ndarray:
    """Return nanoseconds of the slowest rank, (iterations,). Raises ValueError if samples break the contract."""
    if record.get("samples_ns") is not None:
        return _whole_times(record["samples_ns"], "samples_ns", world_size).max(axis=0)
    if record.get("slowest_rank_samples_ns") is not None:
        return _whole_times([record["slowest_rank_samples_ns"]], "slowest_rank_samples_ns", 1)[0]
    raise ValueError("status ok, but neither samples_ns nor slowest_rank_samples_ns is there")


def _parts(parts: object, world_size: int) -> dict:
    """Return the median over iterations of the slowest rank for each part that has a column. Raises ValueError if their
    samples break the contract."""
    if not isinstance(parts, dict):
        raise ValueError("parts_ns is no mapping of names")
    times = {name: _whole_times(rows, f"parts_ns.{name}", world_size, least=0) for name, rows in parts.items()}
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
    slowest = _whole_times(windows["elapsed_ns"], "windows.elapsed_ns", world_size).max(axis=0)
    return float(slowest.sum() * 1e-9 / (steps * len(slowest)))


def _whole_times(values: object, name: str, num_ranks: int, least: int = 1) -> np.ndarray:
    """Return [rank][iteration] as an array (ranks, iterations), nanoseconds. Raises ValueError with what is wrong."""
    try:
        times = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name}: the ranks have different numbers of values") from None
    if times.ndim != 2 or times.shape[1] == 0:
        raise ValueError(f"{name}: is no list of values for each rank")
    if times.dtype.kind not in "iu" or bool((times < least).any()):
        raise ValueError(f"{name}: holds a value that is no positive whole number of nanoseconds")
    if len(times) != num_ranks:
        raise ValueError(f"{name}: has {len(times)} ranks; the shape has {num_ranks}")
    return times


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
    }
