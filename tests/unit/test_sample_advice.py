"""Drift, likeness of neighbours and outliers: columns of measurements.csv, and the warnings that come of them."""

import numpy as np
import pandas as pd
import pytest
from synthetic import collective_cell, make_campaign

from regatta.report.warnings import drifting, few_independent, outlying, warnings
from regatta.store.collect import cell_row
from regatta.store.records import measured
from regatta.store.tables import MEASUREMENTS, make_table
from regatta.topics.precision import launch_ranges_table
from regatta.topics.training_runs.tables import TRAINING_RUNS


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
        "Times rose or fell within the launch in 2 measurements of 3 (about 0.03 expected by chance; 1 rose,"
        " 1 fell); most, by -12.5 %"
    )
    assert found.endswith("in d, repeat 3.")
    assert few_independent(ok, {}).found.endswith("least in d, repeat 3: 8.00 of 200.")
    assert "in 2 measurements of 3" in few_independent(ok, {}).found
    found = outlying(ok, {}).found
    assert "more than 5 % of the samples in 2 measurements of 3; most in d, repeat 3: 40 of 200." in found
    assert found.endswith("In all measurements 47 of 400 samples, 11.8 %.")


def test_as_many_drifts_as_chance_explains_are_no_warning():
    """Of 900, 9 are expected. 16 or more have a chance of 2 %, 17 or more of 1.2 %, 18 or more of 0.6 %."""
    for num, is_told in ((9, False), (17, False), (18, True)):
        ok = table_of(*[("a", i, 100, 0.05, i < num, 80.0, 0) for i in range(900)])
        assert (drifting(ok, {}) is not None) == is_told
    assert "(about 9 expected by chance;" in drifting(ok, {}).found


def test_one_or_two_outliers_of_few_samples_are_no_warning():
    assert outlying(table_of(("a", 0, 12, 0.0, False, 9.0, 2)), {}) is None
    assert outlying(table_of(("a", 0, 12, 0.0, False, 9.0, 3)), {}) is not None


@pytest.mark.parametrize(
    ("last_s", "apart", "advice"),
    [
        (1.1e-3, "10.0", "Launches lie further apart than an interval is wide: more launches (repeats) help"),
        (1.02e-3, "2.0", "Raise max_seconds under sampling, or accept the precision."),
    ],
)
def test_what_to_do_about_a_missed_precision_depends_on_how_far_launches_lie_apart(last_s, apart, advice):
    """Half widths of 1.5, 2 and 3 %: an interval is 4 % wide in the median. Launches: (1.1 - 1.0) / 1.0 ms, (1.02 - 1.0) / 1.0 ms."""
    cell = collective_cell(4096, 1, 2)
    rows = [
        cell_row(cell) | {"repeat": i, "status": "ok", "p50_s": time, "stop": "max_seconds", "half_width_ratio": width}
        for i, (time, width) in enumerate([(1e-3, 0.02), (1e-3, 0.015), (last_s, 0.03)])
    ]
    measurements = make_table(rows, MEASUREMENTS)
    tables = {"training_runs": make_table([], TRAINING_RUNS), "launch_ranges": launch_ranges_table(measurements)}
    problems = {"corrupt": [], "invalid": []}
    told = warnings(make_campaign([cell], repeats=6), measurements, [], problems, tables)
    [found] = [warning for warning in told if "precision" in warning.found]
    assert found.found == (
        "3 measurements of 3 in 1 cell ended before the precision that was asked for, ±1.0 % (by max_seconds in 3); reached were"
        f" ±2.0 % in the median and ±3.0 % at worst, and launches of these cells lie {apart} % apart in the median."
    )
    assert found.advice.startswith(advice)
