import pytest
from synthetic import collective_cell, make_campaign
from typed import call_cells, cell_row

from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.tables.bandwidth import bus_factor


def table_of(cells, medians, repeats=3, **more):
    """medians: for each cell the seconds of its launches, None where one failed. more: other columns of all rows."""
    rows = []
    for cell, values in zip(cells, medians, strict=True):
        for repeat, value in enumerate(values):
            status = "failed" if value is None else "ok"
            rows.append(cell_row(cell) | {"repeat": repeat, "status": status, "p50_s": value} | more)
    return call_cells(make_campaign(cells, repeats=repeats), make_table(rows, MEASUREMENTS)).set_index("cell")


@pytest.mark.parametrize(
    ("operation", "bandwidth"),
    [
        ("all_reduce", 1.75),
        ("all_gather", 0.875),
        ("reduce_scatter", 0.875),
        ("all_to_all", 0.875),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("send_recv_ring", 1.0),
        ("send_recv_pair", 1.0),
        ("barrier", None),
    ],
)
def test_bus_bandwidth_of_a_billion_bytes_a_second_on_eight_ranks(operation, bandwidth):
    # 2 (n-1)/n = 14/8 and (n-1)/n = 7/8 for n = 8.
    assert bus_factor(operation, 8) == bandwidth


def test_bus_bandwidth_of_a_published_line_of_nccl_tests():
    # github.com/NVIDIA/dgxc-benchmarking, nccl/README.md, all_reduce on 8 H100: 1 MiB in 27.4 us, busbw 67 GB/s.
    assert 2**20 / 27.4e-6 / 1e9 * bus_factor("all_reduce", 8) == pytest.approx(67, abs=0.5)


def test_one_rank_has_no_bus_bandwidth():
    assert bus_factor("all_reduce", 1) is None


def test_an_operation_without_a_known_factor_has_no_bus_bandwidth():
    assert bus_factor("scatter_to_the_wind", 4) is None


def test_without_pipelined_calls_bandwidth_follows_from_the_latency():
    row = table_of([collective_cell(10**6, 1, 2)], [[0.001, 0.004]]).iloc[0]
    assert row["latency_s"] == row["time_s"] == pytest.approx(0.002)
    assert (row["latency_low_s"], row["latency_high_s"], row["interval"]) == (0.001, 0.004, "range")
    assert row["algbw_gb_per_s"] == pytest.approx(0.5)
    assert row["busbw_gb_per_s"] == pytest.approx(0.5)  # 2 (n-1)/n is 1 for two ranks


def test_a_cell_that_failed_everywhere_is_a_row_without_numbers():
    row = table_of([collective_cell(4096, 1, 2)], [[None, None, None]]).iloc[0]
    assert (row["num_planned"], row["num_launches"], row["interval"]) == (3, 0, "none")
    assert row[["latency_s", "algbw_gb_per_s", "busbw_gb_per_s"]].isna().all()


def test_a_launch_that_failed_does_not_count():
    row = table_of([collective_cell(4096, 1, 2)], [[0.001, None, 0.003]]).iloc[0]
    assert (row["num_launches"], row["latency_s"]) == (2, pytest.approx(0.003**0.5 / 1000**0.5))


def test_bandwidth_follows_from_the_pipelined_time():
    cell = collective_cell(10**6, 1, 4)
    row = table_of([cell], [[0.002, 0.004]], window_step_s=0.001).iloc[0]
    assert (row["latency_s"], row["pipelined_s"], row["time_s"]) == pytest.approx(
        (0.008**0.5 / 1000**0.5, 0.001, 0.001)
    )
    assert (row["pipelined_low_s"], row["pipelined_high_s"]) == (0.001, 0.001)
    assert (row["algbw_gb_per_s"], row["busbw_gb_per_s"]) == pytest.approx((1.0, 1.5))
    assert row["pipelined_algbw_gb_per_s"] == pytest.approx(1.0)
    assert row["pipelined_busbw_gb_per_s"] == pytest.approx(1.5)
    assert table_of([cell], [[0.002]]).iloc[0].filter(like="pipelined").isna().all()  # records without windows


def test_a_barrier_has_times_and_no_bandwidth():
    row = table_of([collective_cell(None, 1, 4, "barrier")], [[1e-5, 3e-5]], window_step_s=1e-5).iloc[0]
    assert (row["latency_s"], row["pipelined_s"]) == pytest.approx((3**0.5 * 1e-5, 1e-5))
    assert row[["message_bytes", "dtype", "algorithm"]].isna().all()
    assert row.filter(like="bw_gb_per_s").isna().all()


def test_memory_and_errors_are_the_largest_of_all_launches():
    cell = collective_cell(4096, 1, 2, algorithm="ring")
    rows = [
        cell_row(cell) | {"repeat": i, "status": "ok", "p50_s": 1.0, "algorithm_bytes": b, "max_abs_error": e}
        for i, (b, e) in enumerate([(2048, 1e-7), (2052, 3e-7)])
    ]
    row = call_cells(make_campaign([cell]), make_table(rows, MEASUREMENTS)).iloc[0]
    assert (row["algorithm"], row["algorithm_bytes"], row["max_abs_error"]) == ("ring", 2052, 3e-7)
    assert row[["max_rel_error"]].isna().all()
