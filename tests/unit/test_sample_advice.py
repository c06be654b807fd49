"""Drift, autocorrelation and outliers: columns of measurements.csv, and the warnings based on them."""

import numpy as np
import pandas as pd
import pytest
from synthetic import collective_cell, make_campaign, report_data

from regatta.store.collect import cell_row
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.store.records import measured
from regatta.topics.quality import autocorrelated, drifting, launch_ranges_table, outlying, precision_warnings


def columns_of(slowest_ns):
    record = {"status": "ok", "memory": None, "values": None, "warmup": None, "sampling": None, "parts_ns": None}
    record |= {"samples_ns": [list(slowest_ns), [1] * len(slowest_ns)], "windows": None}
    row, error = measured(record, collective_cell(4096, 1, 2)["spec"])
    assert error is None
    return row


def test_samples_that_rise_by_a_tenth_have_drift():
    row = columns_of([1000 + step for step in range(101)])
    assert row["drift_ratio"] == 0.0952  # 100 / 1050
    assert row["has_drift"] is True
    assert row["effective_samples"] < 10  # each is like the one before
    assert row["num_outliers"] == 0


def test_samples_that_scatter_about_the_same_have_none():
    row = columns_of((1000 + np.random.default_rng(1).integers(-5, 6, 200)).tolist())
    assert (row["has_drift"], row["num_outliers"]) == (False, 0)
    assert row["effective_samples"] > 100


def test_outliers_are_counted_and_kept():
    row = columns_of([*range(1000, 1020), 2000, 3000, 10])
    assert row["num_outliers"] == 3
    assert row["max_s"] == 3000e-9
    assert row["min_s"] == 10e-9


def test_too_few_samples_say_nothing():
    row = columns_of([1000 + step for step in range(10)])
    assert [row[name] for name in ("drift_ratio", "has_drift", "effective_samples", "num_outliers")] == [None] * 4


def table_of(*rows):
    names = ("cell", "repeat", "num_iterations", "drift_ratio", "has_drift", "effective_samples", "num_outliers")
    kinds = ("string", "Int64", "Int64", "Float64", "boolean", "Float64", "Int64")
    return pd.DataFrame(
        {n: pd.array([r[i] for r in rows], dtype=k) for i, (n, k) in enumerate(zip(names, kinds, strict=True))}
    )


GOOD = ("a", 0, 100, 0.01, False, 80.0, 1)
UNKNOWN = ("b", 1, 9, None, None, None, None)


def test_good_and_unknown_launches_are_warned_of_by_nobody():
    for advice in (drifting, autocorrelated, outlying):
        assert advice(table_of(GOOD, UNKNOWN), {}) is None
        assert advice(table_of(), {}) is None


NAMES = {name: f"cell {name}" for name in "abcd"}


def test_warnings_name_the_worst_and_how_many():
    ok = table_of(GOOD, UNKNOWN, ("c", 2, 100, 0.05, True, 9.0, 6), ("d", 3, 200, -0.125, True, 8.0, 40))
    drift = drifting(ok, NAMES)
    assert drift.values == {"num": 2, "num_tested": 3, "num_rising": 1, "largest": -0.125}
    assert drift.sources[0].rows[0] == "d, launch 4"
    assert "cell d, launch 4" in drift.found
    alike = autocorrelated(ok, NAMES)
    assert alike.values == {"num": 2, "num_known": 3, "least_effective_samples": 8.0}
    assert alike.sources[0].rows[0] == "d, launch 4"
    outliers = outlying(ok, NAMES)
    assert outliers.values == {"num": 2, "num_known": 3, "num_outliers": 47, "num_samples": 400}
    assert outliers.sources[0].rows == ("d, launch 4", "c, launch 3")


def test_as_many_drifts_as_chance_explains_are_no_warning():
    """Of 900, 9 are expected. 16 or more have a chance of 2 %, 17 or more of 1.2 %, 18 or more of 0.6 %."""
    for num, is_found in ((9, False), (17, False), (18, True)):
        ok = table_of(*[("a", i, 100, 0.05, i < num, 80.0, 0) for i in range(900)])
        assert (drifting(ok, NAMES) is not None) == is_found


def test_one_or_two_outliers_of_few_samples_are_no_warning():
    assert outlying(table_of(("a", 0, 12, 0.0, False, 9.0, 2)), NAMES) is None
    assert outlying(table_of(("a", 0, 12, 0.0, False, 9.0, 3)), NAMES) is not None


@pytest.mark.parametrize(
    ("last_s", "between", "advice"),
    [(1.1e-3, 0.1, "increase repeats"), (1.02e-3, 0.02, "Increase max_seconds under sampling")],
)
def test_what_to_do_about_a_missed_precision_depends_on_the_variation_between_launches(last_s, between, advice):
    """Half widths of 1.5, 2 and 3 %: an interval is 4 % wide in the median. Launches: (1.1 - 1.0) / 1.0 ms, (1.02 - 1.0) / 1.0 ms."""
    cell = collective_cell(4096, 1, 2)
    rows = [
        cell_row(cell) | {"repeat": i, "status": "ok", "p50_s": time, "stop": "max_seconds", "half_width_ratio": width}
        for i, (time, width) in enumerate([(1e-3, 0.02), (1e-3, 0.015), (last_s, 0.03)])
    ]
    measurements = make_table(rows, MEASUREMENTS)
    ranges = launch_ranges_table(measurements)
    found = precision_warnings(report_data(make_campaign([cell], repeats=6), measurements, launch_ranges=ranges))
    [missed] = [warning for warning in found if "half_width_ratio" in warning.values]
    assert missed.values == {
        "num": 3,
        "num_ok": 3,
        "num_cells": 1,
        "half_width_ratio": 0.02,
        "worst_ratio": 0.03,
        "between_ratio": pytest.approx(between),
    }
    assert advice in missed.advice
