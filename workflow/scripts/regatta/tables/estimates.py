"""Means over launches of all cells, as arrays."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from regatta.core.moderation import MIN_LAUNCHES, mean_intervals
from regatta.core.statistics import Estimate

KINDS = np.array(["none", "single", "range", "interval"], dtype=object)  # of an interval, by the number of launches


@dataclass(frozen=True)
class Estimates:
    """Means over launches with their ends, one for each cell; NaN is unknown. num: launches."""

    num: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, found: Sequence[Estimate]) -> "Estimates":
        ends = np.array([[np.nan if end is None else end for end in of.ends] for of in found])
        return cls(np.array([of.num for of in found], dtype=int), *ends.reshape(-1, 3).T)

    @property
    def ends(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The means, low and high ends."""
        return self.mean, self.low, self.high

    @property
    def kinds(self) -> np.ndarray:
        """The kinds of the intervals."""
        return KINDS[np.minimum(self.num, MIN_LAUNCHES)]

    def where(self, is_known: np.ndarray) -> "Estimates":
        """Return the estimates of some cells; those of the others are unknown."""
        ends = (np.where(is_known, end, np.nan) for end in self.ends)
        return Estimates(np.where(is_known, self.num, 0), *ends)

    def times(self, factor: np.ndarray | float) -> "Estimates":
        """Return the estimates in another unit."""
        return Estimates(self.num, *(end * factor for end in self.ends))

    def rate(self, work: np.ndarray | float) -> "Estimates":
        """Return work per time. The low end is from the high end of the time."""
        return Estimates(self.num, work / self.mean, work / self.high, work / self.low)


def over_launches(
    values: np.ndarray, groups: np.ndarray, batches: np.ndarray, scale: np.ndarray | None = None
) -> Estimates:
    """Return the mean over launches of each row with its interval, moderated by the variances of all rows.

    values: (rows, launches), NaN is unknown. groups: the benchmark of each row. batches: of `batch_of`. scale: of each
    row, in units of which rows vary alike; means are then arithmetic. Without it, they are geometric, and values of 0
    or less are ignored. The interval is the 95 % moderated t interval (regatta.core.moderation), of two
    launches their range.
    """
    is_log = scale is None
    is_known = values > 0 if is_log else ~np.isnan(values)
    num, rows, launches = is_known.sum(1), is_known.any(1), is_known.any(0)
    mean, low, high = np.full((3, len(values)), np.nan)
    if rows.any():
        values = np.where(is_known, values, np.nan)
        part = values[np.ix_(rows, launches)]
        part = np.log(part) if is_log else part / scale[rows, None]
        found = mean_intervals(part, groups[rows].astype(str), is_log, batches[rows])
        ends = (found.shift, found.shift - found.half_width, found.shift + found.half_width)
        mean[rows], low[rows], high[rows] = (np.exp(end) if is_log else end * scale[rows] for end in ends)
        low = np.where(num < MIN_LAUNCHES, reduced(values, np.min), low)
        high = np.where(num < MIN_LAUNCHES, reduced(values, np.max), high)
        mean = np.where(num == 1, low, mean)
    return Estimates(num, mean, *(np.where(num < 2, np.nan, end) for end in (low, high)))


def scale_of(values: np.ndarray) -> np.ndarray:
    """Return the scale of each row (`over_launches`): its mean if all known values are positive, else 1 for all."""
    is_positive = np.all((values > 0) | np.isnan(values))
    return reduced(values, np.mean) if is_positive else np.ones(len(values))


def reduced(values: np.ndarray, reduce: Callable) -> np.ndarray:
    """Return each row's known values reduced to one number; NaN if there are none. reduce: takes an array and an axis.

    Rows with equally many values are reduced at once: numpy's functions that ignore NaN loop over rows.
    """
    num, found = (~np.isnan(values)).sum(1), np.full(len(values), np.nan)
    ordered = np.sort(values, axis=1)  # NaN last
    for size in set(num.tolist()) - {0}:
        of_size = num == size
        found[of_size] = reduce(ordered[of_size, :size], axis=1)
    return found


def known_of(values: Sequence, is_known: np.ndarray) -> np.ndarray | list:
    """Return the values where is_known; elsewhere NaN in an array of numbers, else None."""
    if isinstance(values, np.ndarray) and values.dtype == float:
        return np.where(is_known, values, np.nan)
    return [value if known else None for value, known in zip(values, is_known, strict=True)]


def numbers(values: Iterable[float | None]) -> np.ndarray:
    """Return numbers as an array; NaN for None."""
    return np.array([np.nan if value is None else value for value in values], dtype=float)
