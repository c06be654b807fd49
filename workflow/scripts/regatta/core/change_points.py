"""When cells changed over several campaigns: the split of their log times that fits best. docs/metrics.md."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

NEAR = 3.84  # largest loss of fit of an equally plausible split: 95 % quantile of chi squared

Change = tuple[int, bool]  # the place of the first campaign after it, and whether times rise


def first_changes(logs: np.ndarray, errors: np.ndarray, observed: Sequence[Change]) -> list[Change]:
    """Return the first change of each cell, no later than its first verdict.

    logs, errors: mean log times (cells, campaigns) and their squared standard errors; NaN where not measured. observed:
    the first verdict of each cell. Cells that may have changed together get the same place, that of most of them.
    """
    left = dict(enumerate(map(_near, logs, errors, observed)))
    found = list(observed)
    while left:
        counts = Counter(change for near in left.values() for change in near)
        most = min(counts, key=lambda change: (-counts[change], change))
        for cell in [cell for cell, near in left.items() if most in near]:
            found[cell] = most
            del left[cell]
    return found


def _near(logs: np.ndarray, errors: np.ndarray, observed: Change) -> set[Change]:
    """Return the splits of one cell's history up to a verdict that fit about as well as the best one."""
    last, is_rise = observed
    places = np.flatnonzero(~np.isnan(logs[: last + 1]))
    weights, values = 1 / errors[places], logs[places]
    before, sums = np.cumsum(weights)[:-1], np.cumsum(weights * values)[:-1]
    after = weights.sum() - before
    gaps = (weights @ values - sums) / after - sums / before
    # By how much each split reduces the weighted sum of squares.
    fits = np.where((gaps > 0) == is_rise, gaps**2 / (1 / before + 1 / after), -np.inf)
    return {(int(places[i + 1]), is_rise) for i in np.flatnonzero(fits >= fits.max() - NEAR)}
