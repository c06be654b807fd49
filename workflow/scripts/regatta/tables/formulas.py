"""Formulas of metrics. Each takes `tables.cells.CellValues`, and returns a value for each cell."""

from collections.abc import Callable

import numpy as np

from regatta.tables.baselines import samples_of
from regatta.tables.estimates import Estimates, numbers, reduced
from regatta.tables.peaks import peaks_of

MILLION_PER_HOUR = 10**6 / 3600
PART_BYTES = ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "saved_bytes", "algorithm_bytes")
TFLOP = 10**12


def primary(values) -> Estimates:
    return values.primary


def primary_of_others(*benchmarks: str) -> Callable:
    """Return the formula of the primary time of all other benchmarks."""
    return lambda values: values.primary.where(~values.is_of(*benchmarks))


# Variation between launches.


def over_primary_times(reduce: Callable) -> Callable:
    """Return a formula that reduces each cell's primary times over launches. reduce: see `reduced`."""
    return lambda values: reduced(values.primary_times, reduce)


def range_ratio(times: np.ndarray) -> np.ndarray:
    """Return (largest - smallest) / median over the launches of each cell; NaN with one launch."""
    ratios = (reduced(times, np.max) - reduced(times, np.min)) / reduced(times, np.median)
    return np.where((~np.isnan(times)).sum(1) > 1, ratios, np.nan)


def range_of_primary_times(values) -> np.ndarray:
    return range_ratio(values.primary_times)


def range_of_latencies(values) -> np.ndarray:
    return np.where(np.isnan(values["pipelined_s"].mean), np.nan, range_ratio(values.of_launches("p50_s")))


# Rates and costs of steps.


def sample_rate(values) -> Estimates:
    return values["step_s"].rate(values.world_size * numbers(map(samples_of, values.cells)))


def token_rate(values) -> np.ndarray:
    of_model = values.parameter("batch_size") * values.parameter("context_length")
    tokens = np.where(np.isnan(of_model), values.parameter("tokens_per_step"), of_model)
    return values["step_s"].rate(values.world_size * tokens).mean


def cost_of_samples(values) -> Estimates:
    return values["step_s"].times(MILLION_PER_HOUR / values.parameter("batch_size"))


def cost_of_tokens(values) -> Estimates:
    return cost_of_samples(values).times(1 / values.parameter("context_length"))


def flops_per_sample(values) -> np.ndarray:
    return np.where(np.isnan(values["step_s"].mean), np.nan, numbers(values.agreed("flops_per_sample")))


def compute_rate(values) -> np.ndarray:
    return values["flops_per_sample"] * values.parameter("batch_size") / values["step_s"].mean / TFLOP


def of_peak(field: str) -> Callable:
    """Return the formula of a field of the peak that MFU is relative to, of cells with a compute rate."""
    return lambda values: [
        None if np.isnan(reached) or peak is None else peak[field]
        for reached, peak in zip(values["compute_per_gpu_tflop_per_s"], peaks_of(values), strict=True)
    ]


def utilization(values) -> np.ndarray:
    return values["compute_per_gpu_tflop_per_s"] / numbers(values["peak_tflop_per_s"])


# Gradient communication.


def is_parallel(values) -> np.ndarray:
    return values.world_size > 1


def exposed_time(values) -> Estimates:
    """Return exposed communication: the mean over launches of the difference of two steps.

    It may be 0 or negative, so its mean is arithmetic. Division by the cell's step gives all cells a common scale.
    """
    whole, without = values.of_launches("whole_step_s"), values.of_launches("no_sync_s")
    whole = np.where(whole > 0, whole, np.nan)
    step_s = reduced(whole, np.mean)
    shares = (whole - without) / step_s[:, None]
    return values.mean(shares, is_log=False).times(step_s).where(is_parallel(values))


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


def run_sample_rate(values) -> np.ndarray:
    return reduced(values.of_launches("train_samples"), np.max) / values["epoch_train_s"]


def has_same_losses(values) -> list[bool | None]:
    is_known = values["total_s"].num > 1
    return [of is not None if known else None for known, of in zip(is_known, values.agreed("losses"), strict=True)]
