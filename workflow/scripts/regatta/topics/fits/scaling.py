"""Amdahl's law and the USL (Gunther) fitted to weak-scaling throughput: tables/scaling_models.csv.

X(n) = X(1) n / (1 + sigma (n-1) + kappa n (n-1)), with kappa = 0 for Amdahl. Definitions, and when a fit is rejected:
docs/metrics.md.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from regatta.core.statistics import BOOTSTRAP_SEED
from regatta.core.text import percent, plural, three
from regatta.kit.columns import OF_CURVE, TEXT, WHOLE, Column, Columns
from regatta.store.csv_files import CELL, SHAPE_COLUMNS, STEP_COLUMNS, make_table
from regatta.topics.base import grouped, plain_rows, steps_by_cell
from regatta.topics.fits.least_squares import (
    NUM_RESAMPLES,
    LackOfFit,
    LogFit,
    fit_sum,
    half_widths,
    interval,
    interval_kind,
    lack_of_fit,
    refit,
)

NUM_TERMS = {"amdahl": 2, "usl": 3}
MIN_SIZES = {"amdahl": 3, "usl": 4}
NAMES = {"amdahl": "Amdahl", "usl": "USL"}
NOISE = 0.05  # a model this close to a median fits, even beyond the range over launches
LACK_P = 0.01
LEAST_MISFIT = 0.01  # equal allocations differ by as much, which launches within one allocation do not show
MAX_EXTRAPOLATION = 2
MAX_PREDICTION_ERROR = 0.25  # predictions whose interval reaches further are refused

SHAPE = ("nodes", "gpus_per_node", "world_size")
CURVE = tuple(name for name in (*STEP_COLUMNS, *SHAPE_COLUMNS) if name not in SHAPE)
POINT = (*CURVE, "cell", "nodes", "world_size", "step_s", "step_low_s", "step_high_s")
FITTED = "X₁, σ, κ. X₁ is the fitted value, even if one {rank} was not measured. κ is empty for Amdahl"
LAWS = {"table": "laws"}
PARAMETER = {"interval": "interval", "help": FITTED, "better": "smaller"}
SHARE = PARAMETER | LAWS | {"shown_as": "%"}
X1 = Column("x1_samples_per_s", **PARAMETER | {"better": "larger"})
SIGMA, KAPPA = Column("sigma_ratio", "contention σ", **SHARE), Column("kappa_ratio", "coherency κ", **SHARE)
END = "twice the largest n, where predictions end; X there and its interval (see *Predictions*). Empty if refused"
BEYOND = LAWS | {"help": END}
PREDICTED = Column("extrapolated_samples_per_s", "prediction", interval="prediction_interval", **BEYOND)
SIZES = "number of measured world sizes, smallest and largest"
DEVIATION = "largest relative deviation of X(n) from `throughput_samples_per_s`; root mean square of ln(model/measured)"
AICC = "corrected Akaike criterion. Needs 5 (Amdahl) and 6 sizes (USL), three more than the model has parameters"
LACK = "p-value of the lack-of-fit test below. Empty if no size has two launches, or for as many parameters as sizes"
SELECTED = "`amdahl` or `usl`: the accepted model with the lower AICc. Without AICc, the one with fewer parameters"
PEAK = "n with the maximum USL throughput, √((1 − σ)/κ). Empty beyond twice the largest n, or beyond the largest if the"
PEAK += " prediction is refused"
REFUSAL = "why no model is accepted (then `scaling_model` is empty), or why an accepted model has no prediction"
RESIDUAL = Column("max_residual_ratio", "largest deviation", shown_as="%", **LAWS, help=DEVIATION)


def _sizes_text(row: object) -> str:
    return f"{row.min_world_size} to {row.max_world_size}"


SCALING_MODELS = Columns(
    *(Column(name, type=CELL[name]) for name in CURVE),
    *(Column(name, type=WHOLE, help=SIZES) for name in ("num_sizes", "min_world_size")),
    Column("max_world_size", "fitted {ranks}", WHOLE, **LAWS, text=_sizes_text, help=SIZES),
    Column("num_launches", "n", WHOLE, **LAWS, help="launches of the size with the fewest"),
    Column("interval", type=TEXT, help="kind of the intervals"),
    Column("scaling_model", "law", TEXT, **LAWS, text=lambda row: NAMES[row.scaling_model], help=SELECTED),
    *(X1, SIGMA, KAPPA),
    Column("peak_world_size", help=PEAK),
    RESIDUAL,
    Column("rms_log_residual", help=DEVIATION),
    *(Column(f"{name}_aicc", help=AICC) for name in NAMES),
    *(Column(f"{name}_lack_of_fit_p", help=LACK) for name in NAMES),
    Column("extrapolated_world_size", "predicted {ranks}", WHOLE, **BEYOND),
    PREDICTED,
    Column("refusal", "fitted model", TEXT, group=OF_CURVE, help=REFUSAL),
)


@dataclass(frozen=True)
class Points:
    """A curve, one point for each world size, by rising size. seconds: step time over the batch of a rank, n/X(n).

    low, high: their range or interval over launches, NaN if unknown. launches: by size, those of its launches.
    """

    sizes: np.ndarray
    seconds: np.ndarray
    low: np.ndarray
    high: np.ndarray
    launches: list[np.ndarray]


def scaling_models_table(scaling: pd.DataFrame, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each curve: a workload with a strategy and bucket size on one stack, over its world sizes.

    scaling: of `scaling_table`; measurements: the launches behind it. Strategy none runs on one rank, without a curve.
    """
    steps = steps_by_cell(measurements)
    groups = grouped(plain_rows(scaling[scaling["strategy"] != "none"], POINT), CURVE)
    rows = [dict(zip(CURVE, key, strict=True)) | _model(_points(group, steps)) for key, group in groups.items()]
    return make_table(rows, SCALING_MODELS)


def _points(cells: list[dict], steps: dict[str, list[float]]) -> Points:
    """Return the points of a curve. Of several shapes with as many ranks the one on the fewest nodes counts."""
    measured = [cell for cell in cells if cell["step_s"] is not None]
    dense = {cell["world_size"]: cell for cell in sorted(measured, key=lambda cell: -cell["nodes"])}
    chosen = [dense[n] for n in sorted(dense)]
    batch = np.array([cell["batch_size"] for cell in chosen], float)
    median, low, high = (
        np.array([cell[name] for cell in chosen], float) / batch for name in ("step_s", "step_low_s", "step_high_s")
    )
    launches = [np.array(steps[cell["cell"]]) / cell["batch_size"] for cell in chosen]
    return Points(np.array(sorted(dense), float), median, low, high, launches)


def _model(points: Points) -> dict:
    """Return the columns of the selected model, or why there is none."""
    num = len(points.sizes)
    row = {"num_sizes": num, "num_launches": min(map(len, points.launches), default=0)}
    if num:
        row |= {"min_world_size": int(points.sizes[0]), "max_world_size": int(points.sizes[-1])}
    if num < MIN_SIZES["amdahl"]:
        needs = f"a fit needs {MIN_SIZES['amdahl']} (Amdahl) or {MIN_SIZES['usl']} (USL)"
        return row | {"refusal": f"{plural(num, 'world size')} measured; {needs}"}
    if refusal := _super_linear(points):
        return row | {"refusal": refusal}
    models = [model for model in NUM_TERMS if num >= MIN_SIZES[model]]
    fits = {model: fit_sum(_terms(points.sizes, model), points.seconds) for model in models}
    lacks = {model: lack_of_fit(_terms(points.sizes, model), points.launches) for model in models}
    problems = {model: _problem(model, points, fits[model], lacks[model]) for model in models}
    fitting = [model for model in models if problems[model] is None]
    if not fitting:
        return row | {"refusal": "; ".join(problems.values())}
    model = min(fitting, key=lambda name: (fits[name].aicc, NUM_TERMS[name]))
    row |= {f"{name}_aicc": fit.aicc if math.isfinite(fit.aicc) else None for name, fit in fits.items()}
    row |= {f"{name}_lack_of_fit_p": lack.p_value for name, lack in lacks.items() if lack}
    fit = fits[model]
    row |= {"scaling_model": model, "max_residual_ratio": fit.max_ratio, "rms_log_residual": fit.rms}
    return row | _parameters(model, points, fits)


def _super_linear(points: Points) -> str | None:
    """Return why a curve is rejected whose throughput per rank exceeds that of its smallest size by more than noise."""
    gain = points.seconds[0] / points.seconds
    at = int(gain.argmax())
    is_overlapping = points.high[at] >= points.low[0]  # False where unknown
    if gain[at] <= 1 + NOISE or is_overlapping:
        return None
    few, many = (plural(int(points.sizes[i]), "rank") for i in (0, at))
    return (
        f"super-linear: throughput per rank with {many} is {three(float(gain[at]))} times that with {few}, which"
        f" neither model allows. Check whether {few} lacked cores, cache or memory"
    )


def _problem(model: str, points: Points, fit: LogFit, lack: LackOfFit | None) -> str | None:
    """Return why a model does not fit; None if it is within NOISE or within the launches at every size.

    Its residuals must not be systematic, which needs two launches of a size.
    """
    name, shares = NAMES[model], fit.parameters / fit.parameters[0] if fit.parameters[0] else np.array([1, np.inf])
    if shares[1] > 1:
        return f"{name} implies a serial fraction of {three(float(shares[1]))}, above 1"
    if model == "usl" and fit.parameters[2] == 0:
        return f"{name} reduces to Amdahl's law (kappa = 0)"
    away = np.exp(np.abs(fit.log_residuals)) - 1
    predicted = points.seconds * np.exp(fit.log_residuals)
    away[(away <= NOISE) | ((predicted >= points.low) & (predicted <= points.high))] = 0
    if away.any():
        where = plural(int(points.sizes[away.argmax()]), "rank")
        return f"{name} deviates by {percent(float(away.max()))} % at {where}, beyond noise"
    if lack is None or lack.p_value >= LACK_P or fit.max_ratio <= LEAST_MISFIT:
        return None
    signs = " ".join("+" if residual > 0 else "-" for residual in fit.log_residuals)
    sizes = ", ".join(str(int(n)) for n in points.sizes)
    return (
        f"{name} has systematic residuals (lack of fit, p < {LACK_P:g}): {signs} at {sizes} ranks, up to"
        f" {percent(fit.max_ratio)} %; launches vary by {percent(lack.scatter)} %"
    )


def _parameters(model: str, points: Points, fits: dict[str, LogFit]) -> dict:
    """Return the parameters, the peak and the prediction at twice the largest size, or why there is none.

    `interval` is that of the parameters. The prediction has the union of the intervals of the model and the USL:
    Amdahl's law fits many USL curves within noise at all measured sizes.
    """
    largest = int(points.sizes[-1])
    beyond = MAX_EXTRAPOLATION * largest
    values, lows, highs, kind = _intervals(model, points, fits[model], beyond)
    refusal = None
    if "usl" not in fits:
        refusal = f"{plural(len(points.sizes), 'world size')} measured, it needs {MIN_SIZES['usl']} (USL)"
    elif model != "usl":
        _, other_lows, other_highs, _ = _intervals("usl", points, fits["usl"], beyond)
        lows[1], highs[1] = min(lows[1], other_lows[1]), max(highs[1], other_highs[1])
    error = max(values[1] - lows[1], highs[1] - values[1]) / values[1]
    if not refusal and error > MAX_PREDICTION_ERROR:
        limit = percent(MAX_PREDICTION_ERROR)
        refusal = f"its interval (Amdahl or USL) reaches {percent(error)} % from the value, limit {limit} %"
    row = {"interval": kind, "extrapolated_world_size": beyond}
    columns = (X1, PREDICTED, SIGMA, KAPPA)
    for column, value, low, high in zip(columns, values, lows, highs, strict=False):  # Amdahl's has no kappa
        row |= dict(zip(column.names, (value, low, high), strict=True))
    if refusal:
        row = {name: value for name, value in row.items() if not name.startswith("extrapolated_")}
        row["refusal"] = f"no prediction for {plural(beyond, 'rank')}: {refusal}"
    if model == "usl":
        peak = math.sqrt((1 - row["sigma_ratio"]) / row["kappa_ratio"])
        row["peak_world_size"] = peak if 1 <= peak <= (largest if refusal else beyond) else None
    return row


def _intervals(model: str, points: Points, fit: LogFit, beyond: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """Return X(1), X(beyond), sigma and kappa, the ends of the wider interval of each, and which it is.

    That of X(beyond) includes differences between allocations, which extrapolation magnifies.
    """
    terms = _terms(points.sizes, model)
    others = refit(fit, terms, points.seconds, _resampled(points.launches))
    values, gradients = _derived(fit.parameters[None], model, beyond)
    resampled, _ = _derived(np.vstack([fit.parameters, others[others[:, 0] > 0]]), model, beyond)
    reach = half_widths(fit, terms, points.seconds, gradients)
    lows, highs, kind = interval(values[0], reach, resampled, [len(of) for of in points.launches])
    reach = half_widths(fit, terms, points.seconds, gradients, LEAST_MISFIT)[1]
    lows[1], highs[1] = max(min(lows[1], values[0, 1] - reach), 0), max(highs[1], values[0, 1] + reach)
    return values[0], lows, highs, kind


def _derived(parameters: np.ndarray, model: str, beyond: int) -> tuple[np.ndarray, np.ndarray]:
    """Return X(1), X(beyond), sigma and kappa of each fit, (fits, quantities), and their gradients of the first fit.

    With p the parameters and t the terms at n = beyond: X(1) = 1/p0, X(n) = n/(t p), sigma = p1/p0, kappa = p2/p0.
    """
    first, terms = parameters[:, 0], _terms(np.array([beyond]), model)[0]
    shares = parameters[:, 1:] / first[:, None]
    values = np.column_stack([1 / first, beyond / (parameters @ terms), shares])
    gradients = np.zeros((values.shape[1], parameters.shape[1]))
    gradients[0, 0] = -1 / first[0] ** 2
    gradients[1] = -beyond * terms / (parameters[0] @ terms) ** 2
    gradients[2:, 0] = -shares[0] / first[0]
    gradients[2:, 1:] = np.eye(shares.shape[1]) / first[0]
    return values, gradients


def _terms(sizes: np.ndarray, model: str) -> np.ndarray:
    """Return the factors of X(1)^-1, sigma X(1)^-1 and kappa X(1)^-1 in n/X(n)."""
    return np.stack([np.ones(len(sizes)), sizes - 1, sizes * (sizes - 1)], axis=1)[:, : NUM_TERMS[model]]


def _resampled(launches: list[np.ndarray]) -> np.ndarray:
    """Return step times (resamples, sizes). Sizes are drawn separately, since each has separate launches.

    For a range: one launch of each size, in all combinations, or in as many as a bootstrap has.
    """
    is_range = interval_kind([len(values) for values in launches]) != "interval"
    if is_range and math.prod(map(len, launches)) <= NUM_RESAMPLES:
        return np.array(list(itertools.product(*launches)))
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    draws = [rng.integers(len(of), size=(NUM_RESAMPLES, 1 if is_range else len(of))) for of in launches]
    return np.exp(np.stack([np.log(of[draw]).mean(axis=1) for of, draw in zip(launches, draws, strict=True)], axis=1))
