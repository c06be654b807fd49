"""Correlation of launches: of successive ones, and of the cells that share them.

Data are residuals, arrays of (..., cells, launches) with NaN where a launch is missing, with the batch of each cell as
a number: cells of a batch share their launches. Definitions: docs/metrics.md. Error rates:
docs/decisions/0007-intervals-and-verdicts.md.
"""

import functools

import numpy as np

CORRELATION_Z = 1.645  # threshold for correlated successive launches: one-sided p < 0.05
LONGEST = 30  # launches in a sequence; longer ones are treated as this long, which changes little
CORRELATIONS = np.arange(0, 0.91, 0.01)  # grid of estimates
TYPICAL = 30  # index of 0.3, the standard deviation of the normal prior of the correlation
LEAST_LAUNCHES = 3  # of a cell

Array = np.ndarray
Sides = tuple[tuple[Array, Array], ...]  # residuals and batches, for each side of a comparison


def _batch_sums(values: Array, batches: Array) -> Array:
    """Return the sums over the cells of each batch, (..., batches, launches)."""
    order = np.argsort(batches, kind="stable")
    return np.add.reduceat(values[..., order, :], np.unique(batches[order], return_index=True)[1], -2)


def inflation(sides: Sides) -> Array:
    """Return 1 + (G - 1) r, at least 1: the variance of the sum of residuals over cells, over that without r.

    r of two pairs rests on a single difference, and its square root is taken: otherwise 6 % of unchanged campaigns of
    which r is 0.9 had a finding (decision 7).
    """
    alone = sum(np.nansum(residuals**2, (-1, -2)) for residuals, _ in sides)
    shared = sum(np.sum(_batch_sums(np.nan_to_num(residuals), of) ** 2, (-1, -2)) for residuals, of in sides)
    found = np.maximum(shared / np.where(alone > 0, alone, 1), 1)
    if sum(residuals.shape[-1] for residuals, _ in sides) > 2:
        return found
    most = max(np.mean(np.bincount(of)[of]) for _, of in sides)  # if all cells of a batch vary alike
    return 1 + np.sqrt((found - 1) * np.maximum(most - 1, 0))


def serial_correlation(sides: Sides) -> Array:
    """Return the correlation of successive launches, pooled over cells, (..., 1); 0 unless it is significant.

    sides: residuals of (..., cells, launches), with batches, for each side of a comparison. For n launches in random
    order, the lag-1 correlation is -1/n on average, for any distribution; the sum over cells of the excess is tested.
    Cells of a batch count as correlated, by their mean correlation r: their excesses are by r^2. Cells of different
    batches are independent. The result is the first-order autoregression with this excess, shrunk by a normal prior.
    """
    excess, square, counts = 0, 0, []
    for residuals, batches in sides:
        num = np.isfinite(residuals).sum(-1)
        length = np.sqrt(np.nansum(residuals**2, -1))
        is_known = (num >= LEAST_LAUNCHES) & (length > 0)
        unit = np.where(is_known[..., None], residuals / np.where(is_known, length, 1)[..., None], np.nan)
        products = unit[..., 1:] * unit[..., :-1]
        random = np.isfinite(products).sum(-1) / np.maximum(num * (num - 1), 1)
        of_cells = num * (np.nansum(products, -1) + random)
        num_in, squares = np.moveaxis(_batch_sums(np.stack([is_known, of_cells**2], -1), batches), -1, 0)
        others = np.maximum(num_in - 1, 1)
        lengths = np.sum(_batch_sums(np.nan_to_num(unit), batches) ** 2, -1)
        shared = np.maximum(lengths / np.maximum(num_in, 1) - 1, 0) / others  # correlation of cells
        excess, square = excess + of_cells.sum(-1), square + np.sum(squares * (1 + others * shared**2), -1)
        counts += [(count, np.sum((num == count) & is_known, -1)) for count in np.unique(num[is_known])]
    is_significant = excess > CORRELATION_Z * np.sqrt(square)
    if not is_significant.any():
        return np.zeros((*is_significant.shape, 1))
    expected = np.zeros(len(CORRELATIONS))
    for count, num_such in counts:
        gained = serial_factors(min(int(count), LONGEST))[0]
        expected = expected + (count * num_such)[..., None] * (gained - gained[0])
    error = np.sqrt(square) / np.maximum(expected[..., TYPICAL], 1e-300)
    place = np.sum(expected <= (excess / (1 + error**2))[..., None], -1) - 1
    return np.where(is_significant, CORRELATIONS[np.maximum(place, 0)], 0)[..., None]


@functools.cache
def serial_factors(num: int) -> Array:
    """Return three values for each of CORRELATIONS between num successive launches, (3, correlations).

    They are the expected lag-1 correlation about the mean, the factor by which s^2/n underestimates the variance of the
    mean, and the degrees of freedom of s^2. The expectation is that of a ratio of quadratic forms of normal variables,
    by integration over exp(x) times s^2.
    """
    lags, x = np.abs(np.subtract.outer(np.arange(num), np.arange(num))), np.linspace(-20, 20, 401)
    center, full = np.eye(num) - 1 / num, CORRELATIONS[:, None, None] ** lags
    of_launches, axes = np.linalg.eigh(center @ full @ center)
    of_launches, axes = of_launches[:, 1:], axes[..., 1:]  # without the mean
    scaled = np.log1p(np.exp(x) * of_launches[..., None])
    weights = np.sum(axes[:, 1:] * axes[:, :-1], 1) * of_launches
    products = np.sum(weights[..., None] * np.exp(x - scaled - scaled.sum(1, keepdims=True) / 2), (1, 2)) / 2
    total = of_launches.sum(-1)
    factor = full.mean((1, 2)) * num * (num - 1) / total
    return np.array([products * (x[1] - x[0]), factor, total**2 / np.sum(of_launches**2, -1)])
