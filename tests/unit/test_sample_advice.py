"""Drift, autocorrelation and outliers: columns of measurements.csv, and the warnings based on them."""

import numpy as np
import pytest
from synthetic import collective_cell, make_campaign, report_data
from typed import cell_row

from regatta.kit.kinds import FAIR, NOTE
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.store.records import measured
from regatta.topics.stability import PRECISION as TOPIC
from regatta.topics.stability import findings


def columns_of(slowest_ns):
    record = {"status": "ok", "memory": None, "values": None, "warmup": None, "sampling": None, "parts_ns": None}
    record |= {"samples_ns": [list(slowest_ns), [1] * len(slowest_ns)], "windows": None}
    row, error = measured(record, collective_cell(4096, 1, 2)["spec"], None)
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


def found_in(*rows):
    """Return the findings on rows of (cell, repeat, iterations, drift, has drift, effective samples, outliers)."""
    names = ("cell", "repeat", "num_iterations", "drift_ratio", "has_drift", "effective_samples", "num_outliers")
    cells = {name: collective_cell(4096 * 4**i, 1, 2) for i, name in enumerate("abcd")}
    rows = [dict(zip(names, row, strict=True)) | {"status": "ok"} for row in rows]
    rows = [cell_row(cells[row["cell"]]) | row | {"cell": cells[row["cell"]]["id"]} for row in rows]
    data = report_data(make_campaign(list(cells.values()), repeats=6), make_table(rows, MEASUREMENTS))
    return {finding.kind: finding for finding in findings(data)}


CELLS = {name: collective_cell(4096 * 4**i, 1, 2)["id"] for i, name in enumerate("abcd")}
GOOD = ("a", 0, 100, 0.01, False, 80.0, 1)
UNKNOWN = ("b", 1, 9, None, None, None, None)


def test_good_and_unknown_launches_are_warned_of_by_nobody():
    assert not {"drift", "outlying"} & found_in(GOOD, UNKNOWN).keys()
    assert found_in() == {}


def test_warnings_name_the_worst_and_how_many():
    found = found_in(GOOD, UNKNOWN, ("c", 2, 100, 0.05, True, 9.0, 6), ("d", 3, 200, -0.125, True, 8.0, 40))
    drift, outliers = found["drift"], found["outlying"]
    counts = {"num_rising": 1, "num_falling": 1}
    assert drift.values == {"num": 2, "num_known": 3, "worst": 0.125, "largest": -0.125} | counts
    assert outliers.values == {"num": 2, "num_known": 3, "worst": 0.2}
    for finding in (drift, outliers):
        assert finding.sources[0].rows == (f"{CELLS['d']}, launch 4", f"{CELLS['c']}, launch 3")
        assert finding.cells == (CELLS["d"], CELLS["c"])
    assert [TOPIC.stated(finding).rank for finding in (drift, outliers)] == [FAIR, NOTE]
    assert (outliers.words["worst_num_outliers"], outliers.words["worst_num_iterations"]) == (40, 200)


def test_as_many_drifts_as_chance_explains_are_no_warning():
    """Of 900, 9 are expected. 16 or more have a chance of 2 %, 17 or more of 1.2 %, 18 or more of 0.6 %."""
    for num, is_found in ((9, False), (17, False), (18, True)):
        found = found_in(*[("a", i, 100, 0.05, i < num, 80.0, 0) for i in range(900)])
        assert ("drift" in found) == is_found


def test_one_or_two_outliers_of_few_samples_are_no_warning():
    assert "outlying" not in found_in(("a", 0, 12, 0.0, False, 9.0, 2))
    assert "outlying" in found_in(("a", 0, 12, 0.0, False, 9.0, 3))


def test_a_missed_precision_is_shown_beside_the_variation_between_launches():
    """Half widths of 1.5, 2 and 3 %. Launches: (1.1 - 1.0) / 1.0 ms."""
    cell = collective_cell(4096, 1, 2)
    rows = [
        cell_row(cell) | {"repeat": i, "status": "ok", "p50_s": time, "stop": "max_seconds", "half_width_ratio": width}
        for i, (time, width) in enumerate([(1e-3, 0.02), (1e-3, 0.015), (1.1e-3, 0.03)])
    ]
    measurements = make_table(rows, MEASUREMENTS)
    found = findings(report_data(make_campaign([cell], repeats=6), measurements))
    [missed] = [finding for finding in found if finding.kind == "imprecise"]
    values = {name: missed.values[name].estimate for name in ("half_width_ratio", "between_ratio")}
    assert values == {"half_width_ratio": 0.02, "between_ratio": pytest.approx(0.1)}
    assert (missed.values["num"], missed.values["num_known"], missed.values["num_cells"]) == (3, 3, 1)
