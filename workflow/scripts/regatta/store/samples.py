"""Times and numbers out of a record, checked: a record may come from another version, or have been damaged."""

import sys

import numpy as np

MOST_WHOLE = 2**63 - 1


def whole_times(values: object, name: str, num_ranks: int, least: int = 1) -> np.ndarray:
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


def slowest_rank(record: dict, num_ranks: int) -> np.ndarray:
    """Return nanoseconds of the slowest rank, (iterations,). Raises ValueError if samples break the contract."""
    if record.get("samples_ns") is not None:
        return whole_times(record["samples_ns"], "samples_ns", num_ranks).max(axis=0)
    if record.get("slowest_rank_samples_ns") is not None:
        return whole_times([record["slowest_rank_samples_ns"]], "slowest_rank_samples_ns", 1)[0]
    raise ValueError("status ok, but neither samples_ns nor slowest_rank_samples_ns is there")


def number(value: object, name: str, low: float | None = None, high: float | None = None) -> float | None:
    """Return a finite number between low and high, None as it is. Raises ValueError for all else."""
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= sys.float_info.max:
        raise ValueError(f"{name} = {value!r}: is no number")
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(f"{name} = {value!r}: lies beyond {low} to {high}")
    return float(value)


def count(value: object, name: str) -> int | None:
    """Return a whole number from 0, None as it is. Raises ValueError for all else."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_WHOLE:
        raise ValueError(f"{name} = {value!r}: is no whole number from 0")
    return value


def numbers(
    values: object, name: str, num: int, what: str, low: float | None = None, high: float | None = None
) -> list[float | None]:
    """Return a list of `num` numbers or None, one for each `what`. Raises ValueError for all else."""
    if not isinstance(values, list):
        raise ValueError(f"{name}: is no list with a number for each {what}")
    if len(values) != num:
        raise ValueError(f"{name}: has {len(values)} values, not one for each of {num} {what}s")
    return [number(value, name, low, high) for value in values]
