"""Formulas of metrics. Each takes `tables.cells.CellValues`, and returns a value for each cell."""

from collections.abc import Callable

import numpy as np

from regatta.model.frozen import Cell
from regatta.store.records import SETTINGS
from regatta.tables.estimates import Estimates, reduced

PART_BYTES = ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "saved_bytes", "algorithm_bytes")


# Variation between launches.


def range_ratio(times: np.ndarray) -> np.ndarray:
    """Return (largest - smallest) / median over the launches of each cell; NaN with one launch."""
    ratios = (reduced(times, np.max) - reduced(times, np.min)) / reduced(times, np.median)
    return np.where((~np.isnan(times)).sum(1) > 1, ratios, np.nan)


def range_of_latencies(values) -> np.ndarray:
    return np.where(np.isnan(values["pipelined_s"].mean), np.nan, range_ratio(values.of_launches("p50_s")))


# Rates of steps.


def token_rate(values) -> np.ndarray:
    of_model = values.parameter("batch_size") * values.parameter("context_length")
    tokens = np.where(np.isnan(of_model), values.parameter("tokens_per_step"), of_model)
    return values["step_s"].rate(values.world_size * tokens).mean


def of_peak(field: str) -> Callable:
    """Return the formula of a field of the peak in the cluster file that MFU is relative to: docs/metrics.md."""

    def formula(values) -> list:
        peaks = values.campaign.cluster.get("peaks") or []
        agreed = zip(*(values.agreed(name) for name in ("gpu", *SETTINGS)), strict=True)
        found = [_peak_of(cell, peaks, *of_cell) for cell, of_cell in zip(values.cells, agreed, strict=True)]
        both = zip(values["compute_per_gpu_tflop_per_s"], found, strict=True)
        return [None if np.isnan(reached) or peak is None else peak[field] for reached, peak in both]

    return formula


def _peak_of(cell: Cell, peaks: list[dict], gpu: str | None, *is_allowed: bool | None) -> dict | None:
    """Return the peak for the fastest math mode that torch allows, so that MFU is never overstated.

    With fp32 it is that of tf32, where the file has one for the GPU and the ranks' settings allow it.
    """
    of_gpu = {peak["dtype"]: peak for peak in peaks if peak["device"] == gpu}
    dtype = cell.parameters.get("dtype")
    if dtype != "fp32" or "tf32" not in of_gpu:
        return of_gpu.get(dtype)
    # Settings of matrix products and of cuDNN: every classifier has convolutions.
    is_allowed = is_allowed if cell.parameters.get("image_size") is not None else is_allowed[:1]
    return None if None in is_allowed else of_gpu.get("tf32" if any(is_allowed) else "fp32")


# Gradient communication.


def is_parallel(values) -> np.ndarray:
    return values.world_size > 1


def exposed_time(values) -> Estimates:
    """Return exposed communication: the mean over launches of the difference of two steps.

    It may be 0 or negative, so its mean is arithmetic. Cells vary alike relative to their step.
    """
    whole, without = values.of_launches("whole_step_s"), values.of_launches("no_sync_s")
    whole = np.where(whole > 0, whole, np.nan)
    return values.mean(whole - without, reduced(whole, np.mean)).where(is_parallel(values))


def exposed_kinds(values) -> np.ndarray:
    return np.where(is_parallel(values), values["exposed_s"].kinds, None)


def exposed_share(launches: Callable) -> object:
    """Return exposed communication over the step in each launch. launches: returns a column of measurements.csv."""
    return (launches("whole_step_s") - launches("no_sync_s")) / launches("whole_step_s")


def exposed_over(part: str) -> Callable:
    """Return the formula of the arithmetic mean over launches of exposed communication over a part of the step."""

    def share(values) -> np.ndarray:
        exposed = values.of_launches("whole_step_s") - values.of_launches("no_sync_s")
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(is_parallel(values), reduced(exposed / values.of_launches(part), np.mean), np.nan)

    return share


# Memory, and training runs.


def bytes_of_parts(values) -> np.ndarray:
    total = np.nansum([values[name] for name in PART_BYTES], axis=0)
    return np.where(np.isnan(values["saved_bytes"]), np.nan, total)


def has_same_losses(values) -> list[bool | None]:
    is_known = values["total_s"].num > 1
    return [of is not None if known else None for known, of in zip(is_known, values.agreed("losses"), strict=True)]
