"""Amdahl's law: known parameters are recovered, other shapes rejected, and intervals hold the truth."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import make_campaign, train_cell
from typed import cell_row, step_cells

from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.tables.amdahl import PREDICTED, SCALING_MODELS, SIGMA, scaling_models_table

BATCH = 8
SHAPES = {1: (1, 1), 2: (1, 2), 4: (1, 4), 8: (2, 4), 16: (4, 4), 32: (8, 4)}
FACTS = {"num_sizes", "min_world_size", "max_world_size", "num_launches", "refusal"}
FITTED = [name for name in list(SCALING_MODELS)[list(SCALING_MODELS).index("num_sizes") :] if name not in FACTS]


def table_of(cells_and_steps):
    """Return the table of cells. cells_and_steps: cell -> seconds of a step of each launch."""
    rows = [
        cell_row(cell) | {"repeat": repeat, "status": "ok", "window_step_s": float(step)}
        for cell, steps in cells_and_steps
        for repeat, step in enumerate(steps)
    ]
    measurements = make_table(rows, MEASUREMENTS)
    return scaling_models_table(step_cells(make_campaign([cell for cell, _ in cells_and_steps]), measurements))


def rows_of(curves, shapes=SHAPES):
    """Return a row for each curve. curves: of world size -> steps of one rank's batch, in seconds, of each launch."""
    cells = [
        (train_cell("resnet50", *shapes[n], "ddp", bucket), steps)
        for bucket, curve in enumerate(curves, start=1)
        for n, steps in curve.items()
    ]
    table = table_of(cells).astype(object)
    return table.where(table.notna(), None).to_dict("records")


def row_of(curve, **more):
    [row] = rows_of([curve], **more)
    return row


def exact(step, sizes, num=3):
    return {n: [0.1 * step(n)] * num for n in sizes}


def amdahl(sigma):
    return lambda n: 1 + sigma * (n - 1)


def is_refused(row):
    return row["refusal"] is not None and all(row[name] is None for name in FITTED)


def ends(row, column):
    """Return value, low and high of a column."""
    return tuple(row[name] for name in column.names)


def test_the_parameters_of_an_exact_law_come_back_with_the_efficiency_on_twice_the_ranks():
    row = row_of(exact(amdahl(0.05), (1, 2, 4, 8, 16, 32)))
    assert (row["num_sizes"], row["min_world_size"], row["max_world_size"], row["num_launches"]) == (6, 1, 32, 3)
    assert (row["model"], row["strategy"], row["bucket_cap_mb"], row["stack"]) == ("resnet50", "ddp", 1, "host")
    # 8 samples in 0.1 s; on 64 ranks a step takes 1 + 0.05 x 63 times as long.
    assert (row["x1_samples_per_s"], row["sigma_ratio"]) == pytest.approx((80, 0.05))
    assert (row["extrapolated_world_size"], row["extrapolated_efficiency_ratio"]) == (64, pytest.approx(1 / 4.15))
    assert row["max_residual_ratio"] == pytest.approx(0, abs=1e-9)
    assert (row["interval"], row["refusal"]) == ("interval", None)


def test_the_serial_share_has_the_error_of_one_percent_at_each_size():
    """By hand, with J = (1, n - 1) / (1 + 0.1 (n - 1)) at 1, 2, 4 and 8 ranks and g = (-0.1, 1).

    J'J has 2.76418 and 23.10691 on the diagonal, 5.02374 beside it, and determinant 38.6338. So
    g' (J'J)^-1 g is (0.01 x 23.10691 + 0.2 x 5.02374 + 2.76418) / 38.6338 = 0.103536, of which the root is 0.321770.
    """
    value, low, high = ends(row_of(exact(amdahl(0.1), (1, 2, 4, 8))), SIGMA)
    assert (value - low, high - value) == pytest.approx((0.00321770, 0.00321770), rel=1e-4)


def test_the_interval_of_the_efficiency_has_room_for_a_curvature_that_noise_hides():
    n = np.array([1, 2, 4, 8, 16])
    value, low, high = ends(row_of(exact(amdahl(0.05), n.tolist())), PREDICTED)
    step, terms = 1 + 0.05 * (n - 1), np.stack([np.ones(5), n - 1, n * (n - 1)], axis=1)
    inverse = np.linalg.inv((terms / step[:, None]).T @ (terms / step[:, None]))
    beyond = np.array([1, 31, 32 * 31])
    gradient = beyond - 2.55 * np.array([1, 0, 0])  # of the step of 32 ranks over that of one, 2.55
    half = 0.01 * math.sqrt(gradient @ inverse @ gradient)
    assert (1 / value, 1 / high, 1 / low) == pytest.approx((2.55, 2.55 - half, 2.55 + half))


def test_a_size_with_a_wide_interval_counts_for_less():
    """At 8 ranks, the mean step is 10 % too long, with an interval of more than that."""
    curve = exact(amdahl(0.1), (1, 2, 4, 8, 16))
    row = row_of(curve | {8: [0.17 * 1.1 * factor for factor in (0.7, 1, 1 / 0.7)]})
    narrow = row_of(curve | {8: [0.17 * 1.1] * 3})
    assert row["sigma_ratio"] == pytest.approx(0.1, rel=0.01)
    assert row["max_residual_ratio"] == pytest.approx(0.1, rel=0.05)
    assert is_refused(narrow)
    assert "at 8 ranks" in narrow["refusal"]


def test_fewer_than_four_sizes_with_three_launches_carry_no_law():
    assert is_refused(row_of(exact(amdahl(0.1), (1, 2, 4))))
    row = row_of(exact(amdahl(0.1), (1, 2, 4, 8)) | {8: [0.17] * 2})  # a range is no interval
    assert is_refused(row)
    assert (row["num_sizes"], row["max_world_size"]) == (3, 4)
    row = row_of({1: [], 2: []})
    assert is_refused(row)
    assert (row["num_sizes"], row["min_world_size"], row["num_launches"]) == (0, None, None)


@pytest.mark.parametrize(
    ("step", "word"),
    [
        (lambda n: n**-0.1, "super-linear"),
        (amdahl(1.5), "1.50"),  # throughput falls from the second rank on
        (lambda n: 1 if n < 8 else 2, "residuals"),  # the second node doubles the step
    ],
)
def test_what_is_no_serial_share_is_refused(step, word):
    row = row_of(exact(step, SHAPES))
    assert is_refused(row)
    assert word in row["refusal"]


def test_a_rise_within_noise_is_a_serial_share_of_0():
    value, low, high = ends(row_of(exact(lambda n: n**-0.002, (1, 2, 4, 8))), SIGMA)
    assert value == low == 0 < high < 0.005


def scattered(step, sizes, num_curves, scatter=0.01, seed=1, num=3):
    """Return curves whose launches scatter around a step of step(n) times 0.1 s."""
    rng = np.random.default_rng(seed)
    return [{n: 0.1 * step(n) * rng.lognormal(0, scatter, num) for n in sizes} for _ in range(num_curves)]


def quadratic(sigma, kappa):
    return lambda n: 1 + sigma * (n - 1) + kappa * n * (n - 1)


@pytest.mark.parametrize("sigma", [0.005, 0.05])
@pytest.mark.parametrize("scatter", [0.005, 0.01, 0.02])
def test_curves_of_the_law_are_fitted_and_intervals_hold_the_truth(sigma, scatter):
    """Of 60 curves each; 95 % within three standard errors is 87 %."""
    rows = rows_of(scattered(amdahl(sigma), (1, 2, 4, 8, 16), 60, scatter))
    fitted = [row for row in rows if row["refusal"] is None]
    assert len(fitted) >= 57
    for column, truth in ((SIGMA, sigma), (PREDICTED, 1 / amdahl(sigma)(32))):
        held = [low <= truth <= high for _, low, high in (ends(row, column) for row in fitted)]
        assert np.mean(held) >= 0.87


@pytest.mark.parametrize(
    "step",
    [quadratic(0.02, 0.002), quadratic(0.02, 0.004), lambda n: 1 + 0.03 * math.log2(n), lambda n: n**0.05],
    ids=["0.002", "0.004", "logarithm", "power"],
)
def test_curves_of_other_shapes_are_refused(step):
    for scatter in (0.005, 0.01):
        rows = rows_of(scattered(step, (1, 2, 4, 8, 16), 40, scatter))
        assert np.mean([is_refused(row) for row in rows]) >= 0.9


@pytest.mark.parametrize("step", [quadratic(0.05, 0.0005), quadratic(0.02, 0.002)])
def test_where_noise_hides_another_shape_the_efficiency_has_its_truth_in_the_interval(step):
    for sizes, scatter in (((1, 2, 4, 8), 0.02), ((1, 2, 4, 8, 16), 0.02)):
        fitted = [row for row in rows_of(scattered(step, sizes, 40, scatter)) if row["refusal"] is None]
        truth = 1 / step(2 * sizes[-1])
        held = [low <= truth <= high for _, low, high in (ends(row, PREDICTED) for row in fitted)]
        assert np.mean(held or [1]) >= 0.9


def test_of_shapes_with_as_many_ranks_the_one_on_fewest_nodes_counts():
    shapes = {(1, 1): 1, (2, 1): 9, (1, 2): 1.1, (1, 4): 1.3, (2, 4): 1.7}
    [row] = table_of(
        [(train_cell("resnet50", *shape, "ddp"), [step] * 3) for shape, step in shapes.items()]
    ).itertuples()
    assert (row.num_sizes, row.sigma_ratio) == (4, pytest.approx(0.1))


def test_strategy_none_has_no_curve_and_each_bucket_its_own():
    cells = [train_cell("resnet50", 1, 1, "none")] + [train_cell("resnet50", 1, 1, "ddp", bucket) for bucket in (1, 25)]
    table = table_of([(cell, []) for cell in cells])
    assert table["bucket_cap_mb"].tolist() == [1, 25]
    assert table["num_sizes"].tolist() == [0, 0]
    empty = table_of([])
    assert list(empty) == list(SCALING_MODELS)
    assert empty.empty


@settings(max_examples=20)
@given(st.floats(0.001, 0.3), st.floats(0.001, 1000))
def test_another_unit_of_time_changes_only_x1(sigma, factor):
    [curve] = scattered(amdahl(sigma), (1, 2, 4, 8, 16), 1)
    row, other = row_of(curve), row_of({n: factor * steps for n, steps in curve.items()})
    for name in FITTED:
        value = row[name] / factor if name.startswith("x1") and row[name] else row[name]
        assert other[name] == (pytest.approx(value, rel=1e-6, abs=1e-9) if isinstance(value, float) else value)
