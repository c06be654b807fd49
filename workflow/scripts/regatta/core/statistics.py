"""Statistics of the samples of one launch, and of the launches of one cell.

Samples within a launch share processes, memory layout and minutes, so only launches are independent. An interval within
a launch is that of its median alone; the reported interval is across launches. Choice and coverage of the intervals:
docs/decisions/0007-intervals-and-verdicts.md.
"""

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from regatta.core.moderation import CONFIDENCE
from regatta.core.text import is_unknown

PERCENTILES = {"p75_s": 0.75, "p90_s": 0.90, "p95_s": 0.95, "p99_s": 0.99}

Z_95 = 1.96
MIN_SAMPLES_INTERVAL = 40  # with fewer, autocorrelated samples cannot be distinguished from independent ones

MIN_SAMPLES_AUTOCORRELATION = 20
NUM_BLOCKS = 40  # at least; at most 79, or one per sample
DRIFT_RATIO = 0.02  # over the whole launch; a smaller change is negligible
DRIFT_P = 0.01
DRIFT_CAUTION = 2.75  # standard errors of an autocorrelation; with 2, more than 1 % of short launches are flagged
FAR_OFF_DEVIATIONS = 3  # residuals beyond this are outliers
MAD_TO_DEVIATION = 1.4826  # of a normal distribution
OUTER_FENCE = 3

# Bootstraps of the fitted models.
MIN_LAUNCHES_BOOTSTRAP = 6  # resamples of fewer are too similar
BOOTSTRAP_SEED = 1

_pairs = functools.cache(np.triu_indices)  # takes 20 us


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

    @property
    def ends(self) -> tuple[float | None, float | None, float | None]:
        """The mean, low and high end."""
        return self.mean, self.low, self.high

    def times(self, factor: float) -> "Estimate":
        """Return the estimate in another unit."""
        return Estimate(self.num, *(None if end is None else factor * end for end in self.ends), self.kind)


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
    """Return the 95 % interval of the median by order statistics; None if the samples do not support one.

    Ranks floor((m - z sqrt(m t)) / 2) and ceil(1 + (m + z sqrt(m t)) / 2), counted from 1. t: autocorrelation time of
    the signs of sample minus median, from a correlation raised by one standard error. None below 40 samples, and if a
    rank is out of range. Source for t = 1: Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644.
    """
    m = len(samples)
    if m < MIN_SAMPLES_INTERVAL:
        return None
    ordered = np.sort(samples)
    time = _correlation_time(np.sign(samples - fast_median(ordered)), caution=1.0)
    reach = Z_95 * math.sqrt(m * time)
    low, high = math.floor((m - reach) / 2), math.ceil(1 + (m + reach) / 2)
    return (float(ordered[low - 1]), float(ordered[high - 1])) if low >= 1 and high <= m else None


def batch_of(launches: Iterable[str | None]) -> str:
    """Return a name that cells have in common if they share their launches, given those of a cell, the first one first.

    It is that of the first launch, which all cells of a shape and stack share, or of its batch if others are elsewhere.
    """
    if not (names := [launch for launch in launches if not is_unknown(launch)]):
        return ""
    batch = names[0].rsplit("-", 2)[0]
    return names[0] if all(name.startswith(f"{batch}-l") for name in names) else batch


def launch_table(cells: list[dict[int, float]]) -> np.ndarray:
    """Return an array of (cells, launches) with a column for each launch of any cell, NaN where a cell lacks it."""
    launches = sorted(set().union(*cells))
    table = np.full((len(cells), len(launches)), math.nan)
    places = {launch: place for place, launch in enumerate(launches)}
    filled = [(row, places[launch], value) for row, of in enumerate(cells) for launch, value in of.items()]
    if filled:
        rows, columns, values = zip(*filled, strict=True)
        table[list(rows), list(columns)] = values
    return table


def effective_samples(samples: np.ndarray) -> float | None:
    """Return the effective sample size; None below 20 samples.

    It is their number over the autocorrelation time of their ranks, which are robust to outliers.
    """
    if len(samples) < MIN_SAMPLES_AUTOCORRELATION:
        return None
    _, place, num_equal = np.unique(samples, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(num_equal) - (num_equal - 1) / 2)[place]  # ties share their average
    return len(samples) / _correlation_time(ranks)


def _correlation_time(series: np.ndarray, caution: float = 0.0) -> float:
    """Return the variance of the sum of a series relative to that of independent values, from 1 to the series' length.

    From block sums: their variance, and their lag-1 correlation as that of a first-order autoregression. caution:
    standard errors by which the correlation is raised. bench/harness/sampling.py has the same for signs.
    """
    num = len(series)
    per_block = max(1, num // NUM_BLOCKS)
    num_blocks = num // per_block
    series = series - series.mean()
    sums = series[: num_blocks * per_block].reshape(num_blocks, per_block).sum(axis=1)
    power, power_of_sums = series @ series / num, sums @ sums / num_blocks
    if not power_of_sums:
        return 1.0  # the clock is too coarse to distinguish the samples, or they alternate
    correlation = _lag_correlation(sums, num_fitted=1) + caution / math.sqrt(num)
    correlation = min(max(correlation, 0.0), 1 - 1 / num)
    time = max(power_of_sums / (power * per_block), 1.0) * (1 + correlation) / (1 - correlation)
    return min(float(time), float(num))


def _lag_correlation(residuals: np.ndarray, num_fitted: int) -> float:
    """Return the lag-1 autocorrelation of residuals, corrected for the bias of short series; may exceed 1.

    num_fitted: 1 for a mean, 2 for a line. Source: Marriott and Pope, Biometrika 41 (1954) 390,
    doi:10.1093/biomet/41.3-4.390; for a line Shaman and Stine, Journal of the American Statistical Association 83
    (1988) 842, doi:10.1080/01621459.1988.10478672.
    """
    power, num = residuals @ residuals, len(residuals)
    raw = float(residuals[1:] @ residuals[:-1] / power) if power else 0.0
    return (num * raw + num_fitted) / (num - 2 - num_fitted)


def drift(samples: np.ndarray) -> Drift | None:
    """Return the trend of a launch's samples in measurement order; None below 20 samples.

    It is the Theil-Sen slope of block medians. Source: Sen, Journal of the American
    Statistical Association 63 (1968) 1379, doi:10.1080/01621459.1968.10480934.
    """
    m = len(samples)
    if m < MIN_SAMPLES_AUTOCORRELATION:
        return None
    per_block = max(1, m // NUM_BLOCKS)
    blocks = np.sort(samples[: m // per_block * per_block].reshape(-1, per_block))
    blocks = (blocks[:, (per_block - 1) // 2] + blocks[:, per_block // 2]) / 2  # medians
    before, after = _pairs(len(blocks), 1)
    slope = fast_median((blocks[after] - blocks[before]) / (after - before))
    change_ratio = slope / per_block * (m - 1) / fast_median(samples)
    is_flagged = abs(change_ratio) > DRIFT_RATIO and _trend_p(blocks, slope, m) < DRIFT_P
    return Drift(change_ratio, is_flagged)


def num_outliers(samples: np.ndarray) -> int | None:
    """Return how many samples lie beyond the outer fences; None for too few samples. They are not excluded."""
    fences = outer_fences(samples)
    return None if fences is None else int(np.sum((samples < fences[0]) | (samples > fences[1])))


def outer_fences(samples: np.ndarray) -> tuple[float, float] | None:
    """Return Tukey's outer fences, three interquartile ranges beyond the quartiles; None below the 11 samples that a
    quartile needs. For a normal distribution, 2 in a million lie outside.

    Source: Tukey, Exploratory Data Analysis (1977). numpy.quantile is 7 times slower.
    """
    if len(samples) < min_samples(PERCENTILES["p75_s"]):
        return None
    ordered = np.sort(samples)
    low, high = _quantile(ordered, 0.25), _quantile(ordered, 0.75)
    reach = OUTER_FENCE * (high - low)
    return low - reach, high + reach


def _trend_p(blocks: np.ndarray, slope: float, num_samples: int) -> float:
    """Return the p-value of a linear trend of blocks whose residuals are a first-order autoregression.

    Generalized least squares (Prais and Winsten, 1954) with clipped outliers. The lag-1 correlation of residuals is
    raised by DRIFT_CAUTION standard errors, to at most 1. At 1 the increments are tested, so a random walk is no trend.
    """
    from scipy.special import stdtr  # 0.1 s to import, only for launches with a change

    num = len(blocks)
    time = np.arange(num) - (num - 1) / 2
    rest = blocks - slope * time
    rest -= fast_median(rest)
    reach = FAR_OFF_DEVIATIONS * MAD_TO_DEVIATION * fast_median(np.abs(rest))
    rest = np.clip(rest, -reach, reach)
    line = rest.mean() + rest @ time / (time @ time) * time
    correlation = _lag_correlation(rest - line, num_fitted=2) + DRIFT_CAUTION / math.sqrt(num_samples - 4)
    correlation = min(max(correlation, 0.0), 1.0)
    columns = np.stack([np.ones(num), time, slope * time + rest])
    first = math.sqrt(1 - correlation**2) * columns[:, :1]
    *terms, values = np.hstack([first, columns[:, 1:] - correlation * columns[:, :-1]])
    inverse = np.linalg.pinv(np.transpose(terms))
    found = inverse @ values
    free = num - 3
    deviation = np.linalg.norm(values - found @ terms) / math.sqrt(free) * np.linalg.norm(inverse[1])
    return 2 * float(stdtr(free, -abs(found[1]) / max(deviation, np.finfo(float).tiny)))
