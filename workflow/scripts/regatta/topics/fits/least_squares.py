"""Fit a time as a sum of non-negative terms: the latency-bandwidth model, a + c sqrt(S) + S/B.

Residuals are logarithms of model over value, so that a microsecond counts as much as a second; the loss is robust
against outliers.
Arrays: terms (points, parameters), values (points,).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regatta.core.statistics import CONFIDENCE, MIN_LAUNCHES_BOOTSTRAP

FAR_OFF = 0.1  # log residual above which the weight of a point decreases: about 10 %
RESOLUTION = 1e-3  # floor of log residuals (root mean square): the repeatability of timings
NUM_RESAMPLES = 999


@dataclass(frozen=True)
class LogFit:
    """parameters: one per term, 0 or more. log_residuals: log of model over value. weights: 1, less for outliers.

    aicc: the corrected information criterion of Hurvich and Tsai, lower is better; infinite with too few points.
    """

    parameters: np.ndarray
    log_residuals: np.ndarray
    weights: np.ndarray
    aicc: float

    @property
    def rms(self) -> float:
        return float(np.sqrt(np.mean(self.log_residuals**2)))

    @property
    def max_ratio(self) -> float:
        """Return the largest deviation of the model, as a ratio: 0.25 if one is 25 % above the other."""
        return float(np.exp(np.abs(self.log_residuals).max()) - 1)


def fit_sum(terms: np.ndarray, values: np.ndarray) -> LogFit:
    """Fit by least squares of log residuals with loss soft_l1 (scipy.optimize.least_squares). Values are above 0."""
    import scipy.optimize  # 0.25 s to import, only if there is something to fit

    relative = terms / values[:, None]
    scales = relative.max(axis=0)
    scaled = relative / scales  # order of magnitude 1 in any unit
    start = scipy.optimize.nnls(scaled, np.ones(len(values)))[0]
    with np.errstate(divide="ignore"):  # a step to where the model is 0 is rejected for its infinite residual
        found = scipy.optimize.least_squares(
            lambda parameters: np.log(scaled @ parameters),
            np.maximum(start, 1e-6),
            lambda parameters: scaled / (scaled @ parameters)[:, None],
            bounds=(0, np.inf),
            method="dogbox",  # ends exactly at 0 for a term without effect
            loss="soft_l1",
            f_scale=FAR_OFF,
            ftol=1e-12,
            xtol=1e-12,
            gtol=1e-12,
        )
    residuals = np.log(scaled @ found.x)
    weights = 1 / np.sqrt(1 + (residuals / FAR_OFF) ** 2)  # the derivative of soft_l1
    return LogFit(found.x / scales, residuals, weights, _aicc(2 * found.cost, *terms.shape))


def refit(fit: LogFit, terms: np.ndarray, values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the parameters, (resamples, parameters), for other values of the same points, (resamples, points).

    With the weights of `fit` each is a non-negative linear least-squares problem, and thousands are a matrix product.
    """
    root = np.sqrt(fit.weights)
    rows = root[:, None] * terms / (values * np.exp(fit.log_residuals))[:, None]
    return _non_negative(rows, root * (others / values - fit.log_residuals))


def half_widths(fit: LogFit, terms: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return half of the 95 % interval (Student's t) of each parameter from the residuals, to first order.

    Infinite where the points do not determine the fit.
    """
    from scipy.special import stdtrit  # 100 times as fast as scipy.stats.t.ppf

    rows = np.sqrt(fit.weights)[:, None] * terms / (values * np.exp(fit.log_residuals))[:, None]
    scales = np.linalg.norm(rows, axis=0)
    free = len(values) - terms.shape[1]
    if free < 1 or np.linalg.matrix_rank(rows / scales) < terms.shape[1]:
        return np.full(terms.shape[1], np.inf)
    variance = (fit.weights * fit.log_residuals**2).sum() / free
    inverse = np.linalg.inv((rows / scales).T @ (rows / scales))
    return stdtrit(free, (1 + CONFIDENCE) / 2) * np.sqrt(variance * np.diag(inverse)) / scales


def interval_kind(num_launches: int) -> str:
    """Return what launches allow: none, single, a range, or with six or more an interval."""
    if num_launches < 2:
        return ("none", "single")[num_launches]
    return "interval" if num_launches >= MIN_LAUNCHES_BOOTSTRAP else "range"


def interval(
    values: np.ndarray, reach: np.ndarray, resampled: np.ndarray, num_launches: int
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the ends of the wider interval, over launches or from the residuals, and which it is.

    reach: half widths of that from the residuals. resampled: (resamples, quantities); few launches give a range.
    """
    kind = interval_kind(num_launches)
    tail = 100 * (1 - CONFIDENCE) / 2 if kind == "interval" else 0
    return wider(np.percentile(resampled, [tail, 100 - tail], axis=0), (values - reach, values + reach), kind)


def wider(
    launches: Sequence[np.ndarray], residuals: Sequence[np.ndarray], kind: str
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the outer ends of both intervals, at least 0, and which they are.

    `kind`, that of the launches, where these reach as far as the residuals within RESOLUTION; else `residuals`.
    """
    low, high = np.maximum(np.minimum(launches[0], residuals[0]), 0), np.maximum(launches[1], residuals[1])
    is_inside = (launches[0] - low <= RESOLUTION * high) & (high - launches[1] <= RESOLUTION * high)
    return low, high, kind if kind in ("range", "interval") and is_inside.all() else "residuals"


def _aicc(deviance: float, num_points: int, num_terms: int) -> float:
    num = num_terms + 1  # the variance is a parameter too
    if num_points - num - 1 < 1:
        return np.inf
    likelihood = num_points * np.log(max(deviance / num_points, RESOLUTION**2))
    return float(likelihood + 2 * num + 2 * num * (num + 1) / (num_points - num - 1))


def _non_negative(rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Solve min |rows x - target| with x >= 0 for each row of targets, by trying all sets of positive terms.

    With at most three terms these are seven; scipy.optimize.nnls takes one target at a time.
    """
    num = rows.shape[1]
    best, least = np.zeros((len(targets), num)), np.full(len(targets), np.inf)
    for support in (s for k in range(num, 0, -1) for s in itertools.combinations(range(num), k)):
        used = rows[:, support]
        found = targets @ np.linalg.pinv(used).T
        misfit = ((found @ used.T - targets) ** 2).sum(axis=1)
        is_better = (found >= 0).all(axis=1) & (misfit < least)
        least[is_better] = misfit[is_better]
        best[is_better] = 0
        best[np.ix_(is_better, support)] = found[is_better]
        if len(support) == num and is_better.all():
            break
    return best
