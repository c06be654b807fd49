"""Statistics of the samples of one launch, and of the launches of one cell.

Samples within a launch share processes, memory layout and minutes, so only launches are independent. An interval within
a launch is that of its median alone; the reported interval is across launches. Choice and coverage of the intervals:
docs/decisions/0007-intervals-and-verdicts.md.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from regatta.core.moderation import MIN_LAUNCHES, paired_contrasts

PERCENTILES = {"p75_s": 0.75, "p90_s": 0.90, "p95_s": 0.95, "p99_s": 0.99}

Z_95 = 1.96
MIN_SAMPLES_INTERVAL = 6  # below this no pair of order statistics covers the median with 95 % confidence
CONFIDENCE = 0.95

INTERVAL_ENDS = ("", "_low", "_high")  # column suffixes of a number with its range or interval

MIN_SAMPLES_AUTOCORRELATION = 20
SOKAL_WINDOW = 5
MAX_BLOCKS = 20
MIN_BLOCKS = 6  # the fewest whose order can reach p < 0.01: 2 / 6!
DRIFT_RATIO = 0.02  # over the whole launch; a smaller change is negligible
DRIFT_P = 0.01
OUTER_FENCE = 3

# Bootstraps of the fitted models.
MIN_LAUNCHES_BOOTSTRAP = 6  # resamples of fewer are too much alike
BOOTSTRAP_SEED = 1


@dataclass(frozen=True)
class Estimate:
    """Geometric mean over launches with its ends. `kind`: none (no value), single, range (2) or interval (3 and more).

    num: launches; for a ratio, those of the side with fewer.
    """

    num: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    kind: str = "none"

    def times(self, factor: float) -> "Estimate":
        """Return the estimate in another unit."""
        ends = (None if end is None else factor * end for end in (self.mean, self.low, self.high))
        return Estimate(self.num, *ends, self.kind)


def interval_values(name: str, unit: str, found: Estimate) -> dict[str, float | None]:
    """Return the values of the columns of an estimate: step_s, step_low_s, step_high_s."""
    values = (found.mean, found.low, found.high)
    return {f"{name}{end}_{unit}": value for end, value in zip(INTERVAL_ENDS, values, strict=True)}


@dataclass(frozen=True)
class Drift:
    """The trend of a launch's samples. change_ratio: from first to last sample, over the median.

    is_flagged: the change is above DRIFT_RATIO, and significant (DRIFT_P).
    """

    change_ratio: float
    is_flagged: bool


@functools.cache
def min_samples(probability: float) -> int:
    """Return how many independent samples contain at least one above this quantile, with 95 % confidence."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(probability))


def fast_median(samples: np.ndarray | list[float]) -> float:
    """Return numpy.median of a few hundred values, to the last bit, in a fifth of its time."""
    ordered, middle = sorted(samples) if isinstance(samples, list) else np.sort(samples), len(samples) // 2
    return float(ordered[middle] if len(samples) % 2 else (ordered[middle - 1] + ordered[middle]) / 2)


def percentiles(samples: np.ndarray) -> dict[str, float | None]:
    """Return PERCENTILES by name (linear interpolation); None where the sample is too small to reach one."""
    ordered = np.sort(samples)
    return {
        name: _quantile(ordered, probability) if len(samples) >= min_samples(probability) else None
        for name, probability in PERCENTILES.items()
    }


def _quantile(ordered: np.ndarray, probability: float) -> float:
    """Return numpy.quantile of sorted values, to the last bit: it interpolates from the nearer end."""
    place = probability * (len(ordered) - 1)
    index = int(place)
    share, low, high = place - index, float(ordered[index]), float(ordered[min(index + 1, len(ordered) - 1)])
    return low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share)


def median_interval(samples: np.ndarray) -> tuple[float, float] | None:
    """Return the 95 % interval of the median by order statistics, or None below six samples.

    Ranks floor((m - z sqrt m) / 2) and ceil(1 + (m + z sqrt m) / 2), counted from 1 and held inside the sample.
    Source: Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644.
    """
    m = len(samples)
    if m < MIN_SAMPLES_INTERVAL:
        return None
    low = math.floor((m - Z_95 * math.sqrt(m)) / 2)
    high = math.ceil(1 + (m + Z_95 * math.sqrt(m)) / 2)
    ordered = np.sort(samples)
    return float(ordered[max(low, 1) - 1]), float(ordered[min(high, m) - 1])


def over_launches(cells: list[dict[int, float]], groups: list[str], is_log: bool = True) -> list[Estimate]:
    """Return the mean over launches of each cell with its interval; the variances of all cells inform each other.

    cells: launch (repeat) -> time above 0. groups: the benchmark of each. The mean is geometric, its interval the 95 %
    moderated t interval (regatta.core.moderation). is_log: false for numbers that may be 0 or below; their mean is
    arithmetic, and their scale must be common to all cells.
    """
    launches = sorted(set().union(*cells))
    values = np.full((len(cells), len(launches)), math.nan)
    for row, of in zip(values, cells, strict=True):
        row[np.searchsorted(launches, list(of))] = list(of.values())
    values = np.log(values) if is_log else values
    found = paired_contrasts(values, values if is_log else 0 * values, np.array(groups))
    low, high = found.shift - found.half_width, found.shift + found.half_width
    ends = np.stack([found.shift, low, high], -1)
    ends = (np.exp(ends) if is_log else ends).tolist()
    return [_estimate(list(of.values()), *three) for of, three in zip(cells, ends, strict=True)]


def _estimate(values: list[float], mean: float, low: float, high: float) -> Estimate:
    num = len(values)
    if num < 2:
        return Estimate(num, values[0], None, None, "single") if num else Estimate(0)
    if num < MIN_LAUNCHES:
        return Estimate(num, mean, min(values), max(values), "range")
    return Estimate(num, mean, low, high, "interval")


def autocorrelation_time(samples: np.ndarray) -> float | None:
    """Return the integrated autocorrelation time of a launch's samples, at least 1; None below 20 samples.

    1 + 2 x the sum of the autocorrelations of the samples' ranks, which are robust to outliers, up to the first lag of
    five times the result. Source: Sokal, Monte Carlo Methods in Statistical Mechanics (1997),
    doi:10.1007/978-1-4899-0319-8_6. With fewer samples than about fifty times the result it is an underestimate.
    """
    m = len(samples)
    if m < MIN_SAMPLES_AUTOCORRELATION:
        return None
    _, place, num_equal = np.unique(samples, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(num_equal) - (num_equal - 1) / 2)[place]  # ties share their average
    centered = ranks - (m + 1) / 2
    if not np.any(centered):
        return 1.0  # the clock is too coarse to distinguish the samples
    spectrum = np.fft.rfft(centered, 2 * m)  # zero-padded against wrap-around
    correlation = np.fft.irfft(spectrum * spectrum.conj())[:m]
    times = 2 * np.cumsum(correlation / correlation[0]) - 1
    is_beyond = np.arange(m) >= SOKAL_WINDOW * times
    return max(float(times[np.argmax(is_beyond)]), 1.0)


def effective_samples(samples: np.ndarray) -> float | None:
    """Return the effective sample size; None below 20 samples."""
    time = autocorrelation_time(samples)
    return None if time is None else len(samples) / time


def drift(samples: np.ndarray) -> Drift | None:
    """Return the trend of a launch's samples in the order of measuring; None below 20 samples.

    The slope is Theil and Sen's, the test Mann and Kendall's, both of the medians of at most 20 blocks of samples. The
    test assumes independent blocks, so they are at least two autocorrelation times long, after removal of the slope. At
    least six blocks are left, so that a monotonic curve is found; samples that wander for a sixth of the launch can
    then pass for a trend. Source: Sen, Journal of the American Statistical Association 63 (1968) 1379,
    doi:10.1080/01621459.1968.10480934.
    """
    m = len(samples)
    if m < MIN_SAMPLES_AUTOCORRELATION:
        return None
    blocks = _block_medians(samples, math.ceil(m / MAX_BLOCKS))
    before, after = _pairs(len(blocks))
    slope = fast_median((blocks[after] - blocks[before]) / (after - before)) / math.ceil(m / MAX_BLOCKS)  # per sample
    change_ratio = slope * (m - 1) / fast_median(samples)
    is_flagged = abs(change_ratio) > DRIFT_RATIO and _trend_p(samples, slope) < DRIFT_P
    return Drift(change_ratio, is_flagged)


@functools.cache
def _pairs(num: int) -> tuple[np.ndarray, np.ndarray]:
    return np.triu_indices(num, 1)


def num_outliers(samples: np.ndarray) -> int | None:
    """Return how many samples lie beyond the outer fences; None for too few samples. They are not excluded."""
    fences = outer_fences(samples)
    return None if fences is None else int(np.sum((samples < fences[0]) | (samples > fences[1])))


def outer_fences(samples: np.ndarray) -> tuple[float, float] | None:
    """Return Tukey's outer fences, three interquartile ranges beyond the quartiles; None below the 11 samples that a
    quartile needs. For a normal distribution, 2 in a million lie outside.

    Source: Tukey, Exploratory Data Analysis (1977). Quartiles are interpolated here: numpy.quantile is 7 times slower.
    """
    if len(samples) < min_samples(PERCENTILES["p75_s"]):
        return None
    ordered = np.sort(samples)
    low, high = (_interpolated(ordered, probability) for probability in (0.25, 0.75))
    reach = OUTER_FENCE * (high - low)
    return low - reach, high + reach


def _interpolated(ordered: np.ndarray, probability: float) -> float:
    place = probability * (len(ordered) - 1)
    index = int(place)
    low, high = float(ordered[index]), float(ordered[min(index + 1, len(ordered) - 1)])
    return low + (place - index) * (high - low)


def _trend_p(samples: np.ndarray, slope: float) -> float:
    from scipy.stats import kendalltau  # 0.5 s to import, only for launches with a change

    m = len(samples)
    time = autocorrelation_time(samples - slope * np.arange(m))
    per_block = min(max(math.ceil(m / MAX_BLOCKS), math.ceil(2 * time)), m // MIN_BLOCKS)
    blocks = _block_medians(samples, per_block)
    return float(kendalltau(np.arange(len(blocks)), blocks).pvalue)


def _block_medians(samples: np.ndarray, per_block: int) -> np.ndarray:
    """Return the medians of consecutive blocks of samples. A remainder at the end is left out."""
    num = len(samples) // per_block
    blocks, middle = np.sort(np.reshape(samples[: num * per_block], (num, per_block)), axis=1), per_block // 2
    return blocks[:, middle] if per_block % 2 else (blocks[:, middle - 1] + blocks[:, middle]) / 2
