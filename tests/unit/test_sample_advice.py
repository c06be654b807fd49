"""Drift, likeness of neighbours and outliers: columns of measurements.csv, and the warnings that come of them."""

import numpy as np
import pandas as pd
from synthetic import collective_cell

from regatta.report.sample_advice import drifting, few_independent, outlying
from regatta.store.records import measured


def columns_of(slowest_ns):
    record = {"status": "ok", "memory": None, "values": None, "warmup": None, "sampling": None, "parts_ns": None}
    record |= {"samples_ns": [list(slowest_ns), [1] * len(slowest_ns)], "windows": None}
    row, mistake = measured(record, collective_cell(4096, 1, 2)["spec"])
    assert mistake is None
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
    for advice in (drifting, few_independent, outlying):
        assert advice(table_of(GOOD, UNKNOWN), {}) is None
        assert advice(table_of(), {}) is None


def test_warnings_name_the_worst_and_how_many():
    ok = table_of(GOOD, UNKNOWN, ("c", 2, 100, 0.05, True, 9.0, 6), ("d", 3, 200, -0.125, True, 8.0, 40))
    found = drifting(ok, {}).found
    assert found.startswith(
        "Times rose or fell within the launch in 2 measurements of 3 (1 rose, 1 fell); most, by -12.5 %"
    )
    assert found.endswith("in d, repeat 3.")
    assert few_independent(ok, {}).found.endswith("least in d, repeat 3: 8.00 of 200.")
    assert "in 2 measurements of 3" in few_independent(ok, {}).found
    found = outlying(ok, {}).found
    assert "more than 5 % of the samples in 2 measurements of 3; most in d, repeat 3: 40 of 200." in found
    assert found.endswith("In all measurements 47 of 400 samples.")
