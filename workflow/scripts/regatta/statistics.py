"""The statistics of Regatta: what may be said of the samples of one launch, and of the launches of one cell.

Samples inside a launch share processes, memory layout and minutes, so they are not independent of each other. Only
launches are. An interval within a launch says how well it knows its own median; the reported one is across launches.
"""

import math
from dataclasses import dataclass

import numpy as np

PERCENTILES = {"p75_s": 0.75, "p90_s": 0.90, "p95_s": 0.95, "p99_s": 0.99}

Z_95 = 1.96
MIN_SAMPLES_INTERVAL = 6  # below this no pair of order statistics encloses the median with 95 %
MIN_LAUNCHES_BOOTSTRAP = 6  # a bootstrap of fewer values says little more than their range
NUM_RESAMPLES = 9999
BOOTSTRAP_SEED = 1
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Spread:
    """Median and spread over launches. `kind`: none (no value), single, range (2 to 5) or bootstrap (6 and more)."""

    num: int
    median: float | None = None
    low: float | None = None
    high: float | None = None
    kind: str = "none"


def min_samples(probability: float) -> int:
    """Return how many independent samples hold at least one above this quantile, with 95 % confidence."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(probability))


def percentile(samples: np.ndarray, probability: float) -> float | None:
    """Return a quantile (linear interpolation), or None where the sample is too small to reach it."""
    if len(samples) < min_samples(probability):
        return None
    return float(np.quantile(samples, probability))


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


def over_launches(values: list[float]) -> Spread:
    """Return median and spread of one value per launch: the range, or from six launches a bootstrap interval."""
    if len(values) < 2:
        return Spread(len(values), values[0], None, None, "single") if values else Spread(0)
    median = float(np.median(values))
    if len(values) < MIN_LAUNCHES_BOOTSTRAP:
        return Spread(len(values), median, min(values), max(values), "range")
    low, high = _bootstrap((values,), lambda x, axis: np.median(x, axis=axis))
    return Spread(len(values), median, low, high, "bootstrap")


def ratio_over_launches(above: list[float], below: list[float]) -> Spread:
    """Return the ratio of two medians over launches with its spread.

    With fewer than six launches on either side the spread is the range over all pairs of launches.
    """
    num = min(len(above), len(below))
    if num == 0:
        return Spread(0)
    ratio = float(np.median(above) / np.median(below))
    if max(len(above), len(below)) == 1:
        return Spread(1, ratio, None, None, "single")
    if num < MIN_LAUNCHES_BOOTSTRAP:
        return Spread(num, ratio, min(above) / max(below), max(above) / min(below), "range")
    low, high = _bootstrap((above, below), lambda x, y, axis: np.median(x, axis=axis) / np.median(y, axis=axis))
    return Spread(num, ratio, low, high, "bootstrap")


def _bootstrap(samples: tuple[list[float], ...], statistic) -> tuple[float, float]:
    import scipy.stats  # half a second, which only campaigns with six launches need

    result = scipy.stats.bootstrap(
        samples,
        statistic,
        n_resamples=NUM_RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",  # BCa is undefined where launches tie
        vectorized=True,
        rng=np.random.default_rng(BOOTSTRAP_SEED),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)
