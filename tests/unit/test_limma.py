"""Moderated variances against limma, the reference implementation, for 5,000 cells at 5 launches.

The golden values are written by tests/golden/limma/make_limma.R. limma fits the prior by moments, Regatta by maximum
likelihood with a weak prior on d0: the priors differ by the errors of both estimators, all that follows agrees.
"""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import digamma, ndtri, polygamma
from scipy.stats import chi2

from regatta.core import moderation

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "limma"
NUM_CELLS, NUM_LAUNCHES, D0, S0, SLOPE = 5_000, 5, 4, 4e-4, -0.4
FREEDOM = NUM_LAUNCHES - 1.0
LEVEL = np.linspace(-3, 3, NUM_CELLS)
GROUPS = np.full(NUM_CELLS, "benchmark")
# Standard deviations of log (likelihood / moments), over 200 simulated sets of this size.
LOG_D0_SD, LOG_S0_SD = 0.0176, 0.0076
SPLINE = 0.005  # limma fits a spline to the trend, not a line


def uniform(num: int, state: int) -> tuple[np.ndarray, int]:
    """Return numbers of the generator of make_limma.R, and its state."""
    values = np.empty(num)
    for i in range(num):
        state = 16807 * state % 2147483647
        values[i] = state / 2147483647
    return values, state


@pytest.fixture(scope="module")
def logs() -> np.ndarray:
    of_cells, state = uniform(NUM_CELLS, 20261125)
    s2 = S0 * np.exp(SLOPE * LEVEL) * D0 / chi2.ppf(of_cells, D0)
    noise, _ = uniform(NUM_CELLS * NUM_LAUNCHES, state)
    return 0.01 + np.sqrt(s2)[:, None] * ndtri(noise).reshape(NUM_CELLS, NUM_LAUNCHES)


@pytest.fixture(scope="module")
def cells() -> pd.DataFrame:
    return pd.read_csv(FOLDER / "cells.csv")


@pytest.fixture(scope="module")
def priors() -> dict[str, pd.Series]:
    return {row["trend"]: row for _, row in pd.read_csv(FOLDER / "priors.csv", keep_default_na=False).iterrows()}


def by_moments(variance: np.ndarray) -> tuple[float, float]:
    """Return s0 squared and d0 as in Smyth 2004, section 6.2."""
    e = np.log(variance) - digamma(FREEDOM / 2) + math.log(FREEDOM / 2)
    excess = e.var(ddof=1) - polygamma(1, FREEDOM / 2)
    half = 0.5 + 1 / excess
    for _ in range(50):  # Newton, for trigamma(half) = excess
        step = polygamma(1, half) * (1 - polygamma(1, half) / excess) / polygamma(2, half)
        half += step
    return math.exp(e.mean() + digamma(half) - math.log(half)), 2 * half


def given(monkeypatch, s0, d0) -> None:
    """Take a prior as given instead of fitting it."""
    monkeypatch.setattr(
        moderation, "fit_prior", lambda variance, *_: (np.broadcast_to(s0, variance.shape), np.array(d0))
    )


def test_the_data_are_those_that_limma_had(logs, cells):
    assert logs[cells.cell].mean(-1) == pytest.approx(cells["mean"], rel=1e-9)
    assert logs[cells.cell].var(-1, ddof=1) == pytest.approx(cells.s2, rel=1e-9)


def test_with_the_prior_of_limma_variances_and_p_values_agree_in_every_digit(logs, cells, priors, monkeypatch):
    given(monkeypatch, priors["none"].s2_prior_first, priors["none"].df_prior)
    found = moderation.mean_intervals(logs, GROUPS)
    assert found.variance[cells.cell] == pytest.approx(cells.s2_post, rel=1e-12)
    assert found.freedom[cells.cell] == pytest.approx(cells.df_total, rel=1e-12)
    assert found.shift[cells.cell] / np.sqrt(found.squared_error()[cells.cell]) == pytest.approx(cells.t, rel=1e-9)
    assert found.p_value[cells.cell] == pytest.approx(cells.p_value, rel=1e-7)
    adjusted = moderation.adjust_for_number(found.p_value)
    assert adjusted[cells.cell] == pytest.approx(cells.p_adjusted, rel=1e-7)


def test_the_prior_of_limma_is_that_of_moments(logs, priors):
    s0, d0 = by_moments(logs.var(-1, ddof=1))
    assert (s0, d0) == pytest.approx((priors["none"].s2_prior_first, priors["none"].df_prior), rel=1e-9)


def test_the_fitted_prior_differs_by_the_errors_of_the_estimators(logs, cells, priors, monkeypatch):
    variance, freedom = logs.var(-1, ddof=1), np.full(NUM_CELLS, FREEDOM)
    s0, d0 = moderation.fit_prior(variance, freedom, LEVEL)
    assert math.log(d0 / priors["level"].df_prior) == pytest.approx(0, abs=3 * LOG_D0_SD)
    assert np.log(s0[cells.cell] / cells.s2_prior_trend).abs().max() < 3 * LOG_S0_SD + SPLINE
    post, _ = moderation.moderate(variance, freedom, LEVEL, GROUPS)
    assert np.log(post[cells.cell] / cells.s2_post_trend).abs().max() < 3 * LOG_S0_SD + SPLINE

    # 5,000 cells outweigh the weak prior: without it, the same.
    monkeypatch.setattr(moderation, "PRIOR_FREEDOM_SD", 1e6)
    monkeypatch.setattr(moderation, "SLOPE_SD", 1e6)
    assert moderation.fit_prior(variance, freedom, LEVEL)[1] == pytest.approx(d0, rel=1e-4)
