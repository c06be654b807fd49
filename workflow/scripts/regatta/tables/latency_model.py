"""Model of a collective's time by message size, T(S) = a + c sqrt(S) + S/B: tables/communication_models.csv.

Residuals are logarithms of model over time, so that a microsecond counts as much as a second; the loss is robust
against outliers. Definitions, and when a fit is rejected: docs/metrics.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from regatta.core.statistics import BOOTSTRAP_SEED, CONFIDENCE, MIN_LAUNCHES_BOOTSTRAP
from regatta.core.text import percent, plural, size, three
from regatta.kit.columns import MICROSECONDS, OF_CURVE, TEXT, WHOLE, Column, Columns
from regatta.store.csv_files import CELL, SHAPE_COLUMNS, grouped, make_table, plain_rows
from regatta.tables.bandwidth import BYTES_PER_GB
from regatta.tables.cells import rows_of

MIN_SIZES = 5
MIN_RANGE = 100  # largest size over smallest
MAX_FACTOR = 3  # between the ends of a parameter's interval
MAX_RESIDUAL = 0.25
MAX_EXTRAPOLATION = 2
FAR_OFF = 0.1  # log residual above which the weight of a size decreases: about 10 %
RESOLUTION = 1e-3  # floor of log residuals (root mean square): the repeatability of timings
NUM_RESAMPLES = 999
LATENCY, SQRT, BANDWIDTH = 0, 1, 2  # terms
WITH_SQRT, WITHOUT_SQRT = (LATENCY, SQRT, BANDWIDTH), (LATENCY, BANDWIDTH)

Numeric = float | pd.Series
LIBRARY = "torch"  # the algorithm of the communication library; imported tools have none
MODEL = ("operation", "algorithm", "dtype", *SHAPE_COLUMNS)
PARAMETER = {
    "table": "models",
    "interval": "interval",
    "help": "a, c and B, an algorithm bandwidth, and their intervals",
}
PARAMETERS = (
    Column("latency_a_s", "latency a", shown_as=MICROSECONDS, better="smaller", **PARAMETER),
    Column("sqrt_c_s_per_sqrt_byte", "c", **PARAMETER),
    Column("bandwidth_b_gb_per_s", "algorithm bandwidth B", better="larger", **PARAMETER),
)
HALF_BANDWIDTH = Column(
    *("half_bandwidth_bytes", "size at B/2"),
    shown_as="MiB",
    table="models",
    help="message size at which S/T is B/2: B² (c + √(c² + 4a/B))² / 4; without c, that is a B. The report calls an"
    " operation *latency-bound* below and *bandwidth-bound* above this size. Empty unless a and B are both known",
)
SIZES = "number of measured sizes, smallest and largest"
DEVIATION = "largest relative deviation between model and measured time (0.1 is 10 %); root mean square of"
DEVIATION += " ln(model/measured)"
SLOW_SIZE = "the only size whose time exceeds the model by over 25 % in all launches; time / model. Empty if several do"
REFUSAL = "why nothing was fitted; only sizes and launches are then filled"
COMMUNICATION_MODELS = Columns(
    *(Column(name, type=CELL[name]) for name in MODEL),
    Column("num_sizes", "sizes", WHOLE, table="models", help=SIZES),
    *(Column(name, type=WHOLE, help=SIZES) for name in ("min_bytes", "max_bytes")),
    Column("num_launches", "n", WHOLE, table="models", help="number of launches with all sizes"),
    Column("interval", type=TEXT, help="kind of the intervals"),
    *(*PARAMETERS, HALF_BANDWIDTH),
    Column("max_residual_ratio", "largest deviation", shown_as="%", table="models", help=DEVIATION),
    Column("rms_log_residual", help=DEVIATION),
    *(Column(name, help=SLOW_SIZE) for name in ("slow_size_bytes", "slow_size_ratio")),
    Column("left_out", type=TEXT, help="why a parameter is empty"),
    Column("refusal", "fitted model", TEXT, group=OF_CURVE, benchmarks=("collective",), help=REFUSAL),
)


def communication_models_table(cells: pd.DataFrame, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each operation, algorithm, dtype, shape, stack and backend of blocking calls with a message.

    The `latency_s` of cells is fitted; measurements: the launches behind it.
    """
    known = measurements[(measurements["status"] == "ok") & measurements["p50_s"].notna()]
    launches = grouped(plain_rows(known, ("cell", "repeat", "p50_s")), ("cell",))
    messages = rows_of(cells, "collective").dropna(subset="message_bytes")
    groups = grouped(plain_rows(messages, (*MODEL, "cell", "message_bytes", "latency_s")), MODEL)
    rows = [dict(zip(MODEL, key, strict=True)) | model_of(group, launches) for key, group in groups.items()]
    return make_table(rows, COMMUNICATION_MODELS)


def model_of(cells: list[dict], launches: dict[tuple, list[dict]]) -> dict:
    """Return the columns of one fit, or why there is none."""
    measured = sorted((cell for cell in cells if cell["latency_s"] is not None), key=lambda cell: cell["message_bytes"])
    sizes, seconds = (np.array([cell[name] for cell in measured], float) for name in ("message_bytes", "latency_s"))
    by_repeat = [{row["repeat"]: row["p50_s"] for row in launches.get((cell["cell"],), ())} for cell in measured]
    repeats = sorted(set.intersection(*map(set, by_repeat))) if by_repeat else []
    complete = np.array([[values[repeat] for values in by_repeat] for repeat in repeats])
    distinct = sorted(set(sizes.tolist()))
    row = {"num_sizes": len(distinct), "num_launches": len(complete)}
    if distinct:
        row |= {"min_bytes": int(distinct[0]), "max_bytes": int(distinct[-1])}
    if len(distinct) < MIN_SIZES:
        return row | {"refusal": f"{plural(len(distinct), 'size')} measured; a fit needs {MIN_SIZES}"}
    if distinct[-1] < MIN_RANGE * distinct[0]:
        factor = three(distinct[-1] / distinct[0])
        return row | {"refusal": f"largest / smallest size is {factor}; a fit needs at least {MIN_RANGE}"}
    form, fit, (low, high, kind), left_out = _best_form(sizes, seconds, complete)
    excess, least = np.exp(-fit.log_residuals), 1 + MAX_RESIDUAL
    at = excess.argmax()
    is_alone = (np.exp(np.abs(fit.log_residuals)) > least).sum() == 1
    if is_alone and len(complete) > 1 and complete[:, at].min() > least * seconds[at] / excess[at]:  # in each launch
        row |= {"slow_size_bytes": int(sizes[at]), "slow_size_ratio": float(excess[at])}
    if refusal := _misses(sizes, fit):
        return row | {"refusal": refusal}
    ends = dict(zip(form, np.transpose([fit.parameters, low, high]), strict=True))
    problems = {term: _unknown(term, sizes, seconds, *ends[term]) for term in WITHOUT_SQRT}
    left_out += [problem for problem in problems.values() if problem]
    if all(problems.values()):
        return row | {"refusal": "latency and bandwidth are not identifiable: " + "; ".join(problems.values())}
    away = np.abs(fit.log_residuals)
    row |= {"max_residual_ratio": float(np.exp(away.max()) - 1), "rms_log_residual": float(np.sqrt(np.mean(away**2)))}
    row |= {"interval": kind, "left_out": "; ".join(left_out) or None}
    for term, numbers in ends.items():
        if term == BANDWIDTH:  # the parameter is seconds per byte, so its ends swap
            numbers = [1 / (value * BYTES_PER_GB) if value else None for value in numbers[[0, 2, 1]]]
        row |= {} if problems.get(term) else dict(zip(PARAMETERS[term].names, numbers, strict=True))
    if not any(problems.values()):
        sqrt_c = ends[SQRT][0] if SQRT in ends else 0.0
        row["half_bandwidth_bytes"] = half_bandwidth(ends[LATENCY][0], sqrt_c, 1 / ends[BANDWIDTH][0])
    return row


def half_bandwidth(latency_a: Numeric, sqrt_c: Numeric, bytes_per_s: Numeric) -> Numeric:
    """Return the S with S/T(S) = B/2, where S/B = a + c sqrt(S). It rises with each parameter; without c it is a B."""
    root = (sqrt_c + np.sqrt(sqrt_c**2 + 4 * latency_a / bytes_per_s)) / 2
    return (bytes_per_s * root) ** 2


def _best_form(
    sizes: np.ndarray, seconds: np.ndarray, launches: np.ndarray
) -> tuple[tuple[int, ...], "LogFit", tuple[np.ndarray, np.ndarray, str], list[str]]:
    """Return the terms, their fit, the ends and kind of their intervals, and why c is left out.

    c stays if it improves AICc and is known within MAX_FACTOR. launches: complete ones, (launches, sizes).
    """
    terms = np.stack([np.ones(len(sizes)), np.sqrt(sizes), sizes], axis=1)
    fits = {form: fit_sum(terms[:, form], seconds) for form in (WITHOUT_SQRT, WITH_SQRT)}
    reason = "c: does not improve the fit (AICc)"
    if fits[WITH_SQRT].aicc < fits[WITHOUT_SQRT].aicc:
        ends = _intervals(fits[WITH_SQRT], seconds, launches)
        if not (problem := _why_unknown(ends[0][SQRT], ends[1][SQRT])):
            return WITH_SQRT, fits[WITH_SQRT], ends, []
        reason = f"c: {problem}"
    fit = fits[WITHOUT_SQRT]
    return WITHOUT_SQRT, fit, _intervals(fit, seconds, launches), [reason]


def _misses(sizes: np.ndarray, fit: "LogFit") -> str | None:
    """Return why a fit is rejected, if it misses more than one size in ten by more than MAX_RESIDUAL."""
    away = np.exp(np.abs(fit.log_residuals)) - 1
    num = int((away > MAX_RESIDUAL).sum())
    if num <= len(away) // 10:
        return None
    return (
        f"{num} of {len(away)} sizes deviate from the model by more than {percent(MAX_RESIDUAL)} % (maximum"
        f" {percent(float(away.max()))} % at {size(int(sizes[away.argmax()]))}); typical of a change of algorithm or"
        " protocol between sizes"
    )


def _unknown(term: int, sizes: np.ndarray, seconds: np.ndarray, value: float, low: float, high: float) -> str | None:
    """Return why latency or bandwidth is not identifiable, or None.

    A latency below half of every time, or a bandwidth above twice what any message reached, would be extrapolated.
    """
    name, at = ("latency", sizes.argmin()) if term == LATENCY else ("bandwidth", sizes.argmax())
    share = value * (1 if term == LATENCY else sizes[at]) / seconds[at]
    if share * MAX_EXTRAPOLATION < 1:
        return f"{name}: not identifiable, only {percent(float(share))} % of the time at {size(int(sizes[at]))}"
    problem = _why_unknown(low, high)
    return problem and f"{name}: {problem}"


def _why_unknown(low: float, high: float) -> str | None:
    """Return why an interval does not identify a parameter, or None."""
    if high <= MAX_FACTOR * low:
        return None
    is_open = low <= 0 or math.isinf(high)
    return "not identifiable from these sizes" if is_open else f"interval spans a factor of {three(high / low)}"


# The fit of a sum of non-negative terms, (points, terms), to values, (points,).


@dataclass(frozen=True)
class LogFit:
    """parameters: one per term, 0 or more. log_residuals: log of model over value. root: of the weights, 1, less for
    outliers. rows: terms relative to the model, times root: near the fit, it is a linear problem.

    aicc: the corrected information criterion of Hurvich and Tsai, lower is better; infinite with too few points.
    """

    parameters: np.ndarray
    log_residuals: np.ndarray
    root: np.ndarray
    rows: np.ndarray
    aicc: float


def fit_sum(terms: np.ndarray, values: np.ndarray) -> LogFit:
    """Fit by least squares of log residuals with loss soft_l1 (scipy.optimize.least_squares). Values are above 0."""
    from scipy.optimize import least_squares, nnls  # 0.25 s to import, only if there is something to fit

    relative = terms / values[:, None]
    scales = relative.max(axis=0)
    scaled = relative / scales  # order of magnitude 1 in any unit
    start = np.maximum(nnls(scaled, np.ones(len(values)))[0], 1e-6)
    options = {"loss": "soft_l1", "f_scale": FAR_OFF, **dict.fromkeys(("ftol", "xtol", "gtol"), 1e-12)}
    with np.errstate(divide="ignore"):  # a step to where the model is 0 is rejected for its infinite residual
        found = least_squares(
            lambda parameters: np.log(scaled @ parameters),
            start,
            lambda parameters: scaled / (scaled @ parameters)[:, None],
            bounds=(0, np.inf),
            method="dogbox",  # ends exactly at 0 for a term without effect
            **options,
        )
    model, num_points, num = scaled @ found.x, len(values), terms.shape[1] + 1  # the variance is a parameter too
    residuals, free = np.log(model), num_points - num - 1
    root = (1 + (residuals / FAR_OFF) ** 2) ** -0.25  # of the derivative of soft_l1
    likelihood = num_points * np.log(max(2 * found.cost / num_points, RESOLUTION**2))
    aicc = float(likelihood + 2 * num + 2 * num * (num + 1) / free) if free >= 1 else np.inf
    return LogFit(found.x / scales, residuals, root, root[:, None] * relative / model[:, None], aicc)


def refit(fit: LogFit, values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the parameters, (resamples, terms), for other values of the same points, (resamples, points).

    With the weights of `fit` each is a linear least-squares problem.
    """
    from scipy.optimize import nnls

    scales = np.linalg.norm(fit.rows, axis=0)
    return (
        np.array([nnls(fit.rows / scales, of)[0] for of in fit.root * (others / values - fit.log_residuals)]) / scales
    )


def _intervals(fit: LogFit, values: np.ndarray, launches: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the ends of the wider interval, over launches or from the residuals, and which it is.

    launches: values of each; few give a range.
    """
    from scipy.special import stdtrit  # 100 times as fast as scipy.stats.t.ppf

    num, free = len(launches), fit.rows.shape[0] - fit.rows.shape[1]
    has_interval = num >= MIN_LAUNCHES_BOOTSTRAP
    if has_interval:
        draws = np.random.default_rng(BOOTSTRAP_SEED).integers(num, size=(NUM_RESAMPLES, num))
        launches = np.exp(np.mean(np.log(launches)[draws], axis=1))
    resampled = refit(fit, values, launches) if num > 1 else fit.parameters[None]
    tail = 100 * (1 - CONFIDENCE) / 2 if has_interval else 0
    scales = np.linalg.norm(fit.rows, axis=0)
    scaled, reach = fit.rows / scales, np.inf
    if free >= 1 and np.linalg.matrix_rank(scaled) == len(scales):  # else the points do not determine the fit
        variance = ((fit.root * fit.log_residuals) ** 2).sum() / free * np.diag(np.linalg.inv(scaled.T @ scaled))
        reach = stdtrit(free, (1 + CONFIDENCE) / 2) * np.sqrt(variance) / scales
    ends = np.percentile(resampled, [tail, 100 - tail], axis=0)
    low, high, is_of_launches = wider(ends, (fit.parameters - reach, fit.parameters + reach))
    kind = "interval" if has_interval else "range"
    return low, high, kind if num > 1 and is_of_launches else "residuals"


def wider(launches: Sequence[np.ndarray], residuals: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return the outer ends of both intervals, at least 0, and whether launches reach them within RESOLUTION."""
    low, high = np.maximum(np.minimum(launches[0], residuals[0]), 0), np.maximum(launches[1], residuals[1])
    is_reached = (launches[0] - low <= RESOLUTION * high) & (high - launches[1] <= RESOLUTION * high)
    return low, high, bool(is_reached.all())
