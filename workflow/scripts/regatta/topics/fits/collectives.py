"""Model of a collective's time by message size, T(S) = a + c sqrt(S) + S/B: tables/communication_models.csv.

Definitions, and when a fit is rejected: docs/metrics.md.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from regatta.core.statistics import BOOTSTRAP_SEED
from regatta.core.text import percent, plural, size, three
from regatta.kit.columns import MICROSECONDS, OF_CURVE, TEXT, WHOLE, Column, Columns
from regatta.store.csv_files import CELL, SHAPE_COLUMNS, make_table
from regatta.tables.bandwidth import BYTES_PER_GB
from regatta.tables.cells import rows_of
from regatta.topics.base import grouped, plain_rows
from regatta.topics.fits.least_squares import (
    NUM_RESAMPLES,
    LogFit,
    fit_sum,
    half_widths,
    interval,
    interval_kind,
    refit,
)

MIN_SIZES = 5
MIN_RANGE = 100  # largest size over smallest
MAX_FACTOR = 3  # between the ends of a parameter's interval
MAX_RESIDUAL = 0.25
MAX_EXTRAPOLATION = 2
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
    Column("left_out", type=TEXT, help="why a parameter is empty"),
    Column("refusal", "fitted model", TEXT, group=OF_CURVE, help=REFUSAL),
)


@dataclass(frozen=True)
class Curve:
    """Times of one operation by size. seconds: medians over launches. launches: complete ones, (launches, sizes)."""

    sizes: np.ndarray
    seconds: np.ndarray
    launches: np.ndarray

    @property
    def terms(self) -> np.ndarray:
        return np.stack([np.ones(len(self.sizes)), np.sqrt(self.sizes), self.sizes], axis=1)


def communication_models_table(cells: pd.DataFrame, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each operation, algorithm, dtype, shape, stack and backend of blocking calls with a message.

    The `latency_s` of cells is fitted; measurements: the launches behind it.
    """
    known = measurements[(measurements["status"] == "ok") & measurements["p50_s"].notna()]
    launches = grouped(plain_rows(known, ("cell", "repeat", "p50_s")), ("cell",))
    messages = rows_of(cells, "collective").dropna(subset="message_bytes")
    groups = grouped(plain_rows(messages, (*MODEL, "cell", "message_bytes", "latency_s")), MODEL)
    rows = [dict(zip(MODEL, key, strict=True)) | _model(_curve(group, launches)) for key, group in groups.items()]
    return make_table(rows, COMMUNICATION_MODELS)


def _curve(cells: list[dict], launches: dict[tuple, list[dict]]) -> Curve:
    measured = sorted((cell for cell in cells if cell["latency_s"] is not None), key=lambda cell: cell["message_bytes"])
    by_repeat = [{row["repeat"]: row["p50_s"] for row in launches.get((cell["cell"],), ())} for cell in measured]
    repeats = sorted(set.intersection(*map(set, by_repeat))) if by_repeat else []
    whole = np.array([[values[repeat] for values in by_repeat] for repeat in repeats])
    sizes, seconds = (np.array([cell[name] for cell in measured], float) for name in ("message_bytes", "latency_s"))
    return Curve(sizes, seconds, whole)


def _model(curve: Curve) -> dict:
    """Return the columns of one fit, or why there is none."""
    distinct = sorted(set(curve.sizes.tolist()))
    row = {"num_sizes": len(distinct), "num_launches": len(curve.launches)}
    if distinct:
        row |= {"min_bytes": int(distinct[0]), "max_bytes": int(distinct[-1])}
    if len(distinct) < MIN_SIZES:
        return row | {"refusal": f"{plural(len(distinct), 'size')} measured; a fit needs {MIN_SIZES}"}
    if distinct[-1] < MIN_RANGE * distinct[0]:
        factor = three(distinct[-1] / distinct[0])
        return row | {"refusal": f"largest / smallest size is {factor}; a fit needs at least {MIN_RANGE}"}
    form, fit, (low, high, kind), left_out = _best_form(curve)
    if refusal := _misses(curve, fit):
        return row | {"refusal": refusal}
    ends = dict(zip(form, np.transpose([fit.parameters, low, high]), strict=True))
    problems = {term: _unknown(term, curve, *ends[term]) for term in WITHOUT_SQRT}
    left_out += [problem for problem in problems.values() if problem]
    if all(problems.values()):
        return row | {"refusal": "latency and bandwidth are not identifiable: " + "; ".join(problems.values())}
    row |= {"interval": kind, "left_out": "; ".join(left_out) or None}
    row |= {"max_residual_ratio": fit.max_ratio, "rms_log_residual": fit.rms}
    for term, numbers in ends.items():
        if term == BANDWIDTH:  # the parameter is seconds per byte, so its ends swap
            numbers = [1 / (seconds * BYTES_PER_GB) if seconds else None for seconds in numbers[[0, 2, 1]]]
        row |= {} if problems.get(term) else dict(zip(PARAMETERS[term].names, numbers, strict=True))
    if not any(problems.values()):
        sqrt_c = ends[SQRT][0] if SQRT in ends else 0.0
        row["half_bandwidth_bytes"] = half_bandwidth(ends[LATENCY][0], sqrt_c, 1 / ends[BANDWIDTH][0])
    return row


def half_bandwidth(latency_a: Numeric, sqrt_c: Numeric, bytes_per_s: Numeric) -> Numeric:
    """Return the S with S/T(S) = B/2, where S/B = a + c sqrt(S). It rises with each parameter; without c it is a B."""
    root = (sqrt_c + np.sqrt(sqrt_c**2 + 4 * latency_a / bytes_per_s)) / 2
    return (bytes_per_s * root) ** 2


def _best_form(curve: Curve) -> tuple[tuple[int, ...], LogFit, tuple[np.ndarray, np.ndarray, str], list[str]]:
    """Return the terms, their fit, the ends and kind of their intervals, and why c is left out.

    c stays if it improves AICc and is known within MAX_FACTOR.
    """
    fits = {form: fit_sum(curve.terms[:, form], curve.seconds) for form in (WITHOUT_SQRT, WITH_SQRT)}
    reason = "c: does not improve the fit (AICc)"
    if fits[WITH_SQRT].aicc < fits[WITHOUT_SQRT].aicc:
        low, high, kind = _intervals(curve, WITH_SQRT, fits[WITH_SQRT])
        if high[SQRT] <= MAX_FACTOR * low[SQRT]:
            return WITH_SQRT, fits[WITH_SQRT], (low, high, kind), []
        reason = f"c: {_why_unknown(low[SQRT], high[SQRT])}"
    fit = fits[WITHOUT_SQRT]
    return WITHOUT_SQRT, fit, _intervals(curve, WITHOUT_SQRT, fit), [reason]


def _intervals(curve: Curve, form: tuple[int, ...], fit: LogFit) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the ends of the wider interval, over launches or from the residuals, and which it is.

    Resampled: launches that measured all sizes, or the launches if they are few.
    """
    terms, others = curve.terms[:, form], curve.launches
    if interval_kind(len(others)) == "interval":
        draws = np.random.default_rng(BOOTSTRAP_SEED).integers(len(others), size=(NUM_RESAMPLES, len(others)))
        others = np.exp(np.mean(np.log(others)[draws], axis=1))
    found = refit(fit, terms, curve.seconds, others) if len(others) > 1 else fit.parameters[None]
    reach = half_widths(fit, terms, curve.seconds)
    return interval(fit.parameters, reach, found, len(curve.launches))


def _misses(curve: Curve, fit: LogFit) -> str | None:
    """Return why a fit is rejected, if it misses more than one size in ten by more than MAX_RESIDUAL."""
    away = np.exp(np.abs(fit.log_residuals)) - 1
    num = int((away > MAX_RESIDUAL).sum())
    if num <= len(away) // 10:
        return None
    worst = size(int(curve.sizes[away.argmax()]))
    return (
        f"{num} of {len(away)} sizes deviate from the model by more than {percent(MAX_RESIDUAL)} % (maximum"
        f" {percent(float(away.max()))} % at {worst}); typical of a change of algorithm or protocol between sizes"
    )


def _unknown(term: int, curve: Curve, value: float, low: float, high: float) -> str | None:
    """Return why latency or bandwidth is not identifiable, or None.

    A latency below half of every time, or a bandwidth above twice what any message reached, would be extrapolated.
    """
    name = {LATENCY: "latency", BANDWIDTH: "bandwidth"}[term]
    at = int(curve.sizes.argmin() if term == LATENCY else curve.sizes.argmax())
    share = value * curve.terms[at, term] / curve.seconds[at]
    if share * MAX_EXTRAPOLATION < 1:
        return f"{name}: not identifiable, only {percent(float(share))} % of the time at {size(int(curve.sizes[at]))}"
    return f"{name}: {_why_unknown(low, high)}" if high > MAX_FACTOR * low else None


def _why_unknown(low: float, high: float) -> str:
    if low <= 0 or math.isinf(high):
        return "not identifiable from these sizes"
    return f"interval spans a factor of {three(high / low)}"
