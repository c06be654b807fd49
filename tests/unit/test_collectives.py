import pytest
from synthetic import collective_cell, make_campaign

from regatta.analysis.collect import cell_row
from regatta.analysis.collectives import BUS_FACTOR, algorithm_bandwidth, bus_bandwidth, collectives_table
from regatta.analysis.tables import MEASUREMENTS, make_table


def table_of(cells, medians, repeats=3):
    rows = []
    for cell, values in zip(cells, medians, strict=True):
        for repeat, value in enumerate(values):
            status = "failed" if value is None else "ok"
            rows.append(cell_row(cell) | {"repeat": repeat, "status": status, "p50_s": value})
    return collectives_table(make_campaign(cells, repeats=repeats), make_table(rows, MEASUREMENTS)).set_index("cell")


@pytest.mark.parametrize(
    ("operation", "bandwidth"),
    [
        ("all_reduce", 1.75),
        ("all_gather", 7.0),
        ("reduce_scatter", 7.0),
        ("all_to_all", 7.0),
        ("broadcast", 1.0),
        ("reduce", 1.0),
    ],
)
def test_bus_bandwidth_of_a_billion_bytes_a_second_on_eight_ranks(operation, bandwidth):
    # Per rank 1 GB in 1 s; where S is the sum over ranks it is 8 GB, times (n-1)/n.
    assert bus_bandwidth(operation, 10**9, 1.0, 8) == pytest.approx(bandwidth)


def test_one_rank_has_no_bus_bandwidth():
    assert bus_bandwidth("all_reduce", 1024, 1e-6, 1) is None
    assert algorithm_bandwidth("all_reduce", 1000, 1e-6, 1) == pytest.approx(1.0)


def test_an_operation_without_a_known_factor_has_no_bus_bandwidth():
    assert bus_bandwidth("scatter_to_the_wind", 1024, 1e-6, 4) is None
    assert "scatter_to_the_wind" not in BUS_FACTOR


def test_latency_is_the_median_over_launches_and_bandwidth_follows_from_it():
    row = table_of([collective_cell(10**6, 1, 2)], [[0.001, 0.002, 0.004]]).iloc[0]
    assert row["latency_s"] == 0.002
    assert (row["latency_low_s"], row["latency_high_s"], row["interval"]) == (0.001, 0.004, "range")
    assert row["algbw_gb_per_s"] == pytest.approx(0.5)
    assert row["busbw_gb_per_s"] == pytest.approx(0.5)  # 2 (n-1)/n is 1 for two ranks


def test_a_cell_that_failed_everywhere_is_a_row_without_numbers():
    row = table_of([collective_cell(4096, 1, 2)], [[None, None, None]]).iloc[0]
    assert (row["num_planned"], row["num_launches"], row["interval"]) == (3, 0, "none")
    assert row[["latency_s", "algbw_gb_per_s", "busbw_gb_per_s"]].isna().all()


def test_a_launch_that_failed_does_not_count():
    row = table_of([collective_cell(4096, 1, 2)], [[0.001, None, 0.003]]).iloc[0]
    assert (row["num_launches"], row["latency_s"]) == (2, 0.002)
