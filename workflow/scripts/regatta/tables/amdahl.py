"""Amdahl's law fitted to the step times of a curve by number of ranks: tables/scaling_models.csv.

Seconds per sample: T(n) = T(1) (sigma + (1 - sigma)/n), sigma being the serial share. With a fixed batch size per rank,
a step then takes T(1) (1 + sigma (n-1)) per sample of a rank. Definitions, and when a fit is rejected: docs/metrics.md.
"""

import numpy as np
import pandas as pd

from regatta.core.moderation import MIN_LAUNCHES
from regatta.core.text import percent, plural, three
from regatta.kit.columns import OF_CURVE, TEXT, WHOLE, Column, Columns
from regatta.store.csv_files import CELL, SHAPE_COLUMNS, STEP_COLUMNS, grouped, make_table, plain_rows
from regatta.tables.cells import rows_of

MIN_SIZES = 4
LEAST_NOISE = 0.01  # half-width; equal allocations differ by as much, which launches within one do not show
MAX_EXTRAPOLATION = 2

SHAPE = ("nodes", "gpus_per_node", "world_size")
CURVE = tuple(name for name in (*STEP_COLUMNS, *SHAPE_COLUMNS) if name not in SHAPE)
STEP_ENDS = ("step_s", "step_low_s", "step_high_s")
POINT = (*CURVE, "nodes", "world_size", "num_launches", "interval", *STEP_ENDS)
LAWS = {"table": "laws", "interval": "interval", "shown_as": "%"}
SERIAL = "serial share σ: the part of the time per sample on one {rank} that more {ranks} do not shorten"
BEYOND = "twice the largest n; efficiency there, relative to the fitted X₁: 1 / (1 + σ (n − 1))"
SIZES = f"number of world sizes with {MIN_LAUNCHES} or more launches, smallest and largest"
SIGMA = Column("sigma_ratio", "serial share σ", **LAWS, help=SERIAL, better="smaller")
PREDICTED = Column("extrapolated_efficiency_ratio", "predicted efficiency", **LAWS, help=BEYOND, better="larger")
AWAY = "largest relative deviation of the law from `step_s`"
REFUSED = "why the law is rejected, or not fitted"
RESIDUAL = Column("max_residual_ratio", "largest deviation", table="laws", shown_as="%", help=AWAY)
FITTED = {"table": "laws", "text": lambda row: f"{row.min_world_size} to {row.max_world_size}", "help": SIZES}
SCALING_MODELS = Columns(
    *(Column(name, type=CELL[name]) for name in CURVE),
    *(Column(name, type=WHOLE, help=SIZES) for name in ("num_sizes", "min_world_size")),
    Column("max_world_size", "fitted {ranks}", WHOLE, **FITTED),
    Column("num_launches", "n", WHOLE, table="laws", help="launches of the size with the fewest"),
    Column("interval", type=TEXT, help="kind of the intervals"),
    Column("x1_samples_per_s", help="X₁: fitted throughput of one {rank}, even if that was not measured"),
    *(SIGMA, RESIDUAL),
    Column("extrapolated_world_size", "predicted {ranks}", WHOLE, table="laws", help=BEYOND),
    PREDICTED,
    Column("refusal", "fitted model", TEXT, group=OF_CURVE, benchmarks=("train_step",), help=REFUSED),
)


def scaling_models_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each curve: a workload with a strategy and bucket size on one stack, over its world sizes.

    Strategy none runs on one rank, without a curve.
    """
    steps = rows_of(cells, "train_step")
    curves = grouped(plain_rows(steps[steps["strategy"] != "none"], POINT), CURVE)
    rows = [dict(zip(CURVE, key, strict=True)) | _law(cells) for key, cells in curves.items()]
    return make_table(rows, SCALING_MODELS)


def _law(cells: list[dict]) -> dict:
    """Return the columns of the fit, or why there is none. The noise of a cell is its 95 % interval.

    Of several shapes with as many ranks the one on the fewest nodes counts.
    """
    known = sorted((cell for cell in cells if cell["interval"] == "interval"), key=lambda cell: -cell["nodes"])
    points = sorted({cell["world_size"]: cell for cell in known}.values(), key=lambda cell: cell["world_size"])
    row = {"num_sizes": len(points)}
    if points:
        row |= {"num_launches": min(cell["num_launches"] for cell in points)}
        row |= {"min_world_size": points[0]["world_size"], "max_world_size": points[-1]["world_size"]}
    if len(points) < MIN_SIZES:
        sizes = f"{plural(len(points), 'world size')} with {MIN_LAUNCHES} or more launches"
        return row | {"refusal": f"{sizes}; a fit needs {MIN_SIZES}"}
    sizes = np.array([cell["world_size"] for cell in points])
    seconds, low, high = np.transpose([[cell[name] for name in STEP_ENDS] for cell in points])
    noise = np.maximum(np.log(high / low) / 2, LEAST_NOISE)
    terms = _terms(sizes)
    sigma, reach = ratio(np.array([0, 1]), terms[:, :2], seconds, noise)
    if sigma > 1 or sigma + reach < 0:
        bound = "above 1: throughput falls" if sigma > 1 else "below 0: super-linear"
        return row | {"refusal": f"the serial share would be {three(sigma)}, {bound}"}
    shares = np.maximum([sigma, sigma - reach, sigma + reach], 0)
    steps = 1 + shares[0] * (sizes - 1)  # relative to that of one rank
    weighted = steps / (seconds * noise)
    one = float((weighted / noise).sum() / (weighted**2).sum())
    residuals = np.log(one * steps / seconds)
    worst = float(np.exp(np.abs(residuals).max()) - 1)
    if ((residuals / noise) ** 2).sum() > len(points) - 2:
        where = plural(int(sizes[np.abs(residuals).argmax()]), "rank")
        return row | {"refusal": f"residuals exceed noise: Amdahl's law deviates by {percent(worst)} % at {where}"}
    beyond = MAX_EXTRAPOLATION * int(sizes[-1])
    step, low, high = 1 + shares * (beyond - 1)
    curved, reach = ratio(_terms(np.array([beyond]))[0], terms, seconds, noise)
    efficiencies = [1 / step, 1 / max(high, curved + reach), 1 / max(min(low, curved - reach), 1)]
    row |= {"interval": "interval", "x1_samples_per_s": points[0]["batch_size"] / one, "max_residual_ratio": worst}
    row |= dict(zip(SIGMA.names, shares.tolist(), strict=True)) | {"extrapolated_world_size": beyond}
    return row | dict(zip(PREDICTED.names, efficiencies, strict=True))


def _terms(sizes: np.ndarray) -> np.ndarray:
    """Return the factors of T(1), sigma T(1), and of a curvature that may be hidden by noise, in the step time."""
    return np.stack([np.ones(len(sizes)), sizes - 1, sizes * (sizes - 1)], axis=1)


def ratio(factors: np.ndarray, terms: np.ndarray, seconds: np.ndarray, noise: np.ndarray) -> tuple[float, float]:
    """Return a weighted sum of parameters over the first one, and the half-width of its interval, to first order.

    Parameters: of the least squares of relative residuals, weighted by 1/noise². noise: half-widths over seconds.
    """
    rows = terms / (seconds * noise)[:, None]
    parameters = np.linalg.lstsq(rows, 1 / noise)[0]
    value = factors @ parameters / parameters[0]
    gradient = (factors - value * np.eye(len(factors))[0]) / parameters[0]
    return float(value), float(np.sqrt(gradient @ np.linalg.inv(rows.T @ rows) @ gradient))
