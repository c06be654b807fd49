import pandas as pd
import pytest
from synthetic import make_campaign, report_data, train_cell
from typed import cell_row, step_cells

from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.tables.metrics import CALL_TIMES, NUM_SAMPLES, RATES
from regatta.topics.percentiles import section

BATCH = 32


def cell_of(nodes=1, gpus=1, strategy="ddp", bucket=25, **more):
    return train_cell("resnet50", nodes, gpus, strategy, bucket, batch_size=BATCH, **more)


def launch(cell, repeat, times, num=60):
    """Return a row of measurements.csv. times: p50, p75, p90, p95 in seconds; None: too few samples for it."""
    own = dict(zip(("p50_s", "p75_s", "p90_s", "p95_s"), times, strict=True))
    return cell_row(cell) | {"repeat": repeat, "status": "ok", "num_iterations": num} | own


def table_of(rows, cells, repeats=2):
    return step_cells(make_campaign(cells, repeats=repeats), make_table(rows, MEASUREMENTS))


def test_times_are_medians_over_launches_and_rates_are_the_batch_over_them():
    cell = cell_of(2, 8)
    times = [(0.10, 0.16, 0.20, 0.32), (0.30, 0.48, 0.60, 0.96), (0.20, 0.32, 0.40, 0.64)]
    row = table_of([launch(cell, i, t, 60 + i) for i, t in enumerate(times)], [cell], repeats=4).iloc[0]
    assert (row["num_planned"], row["num_launches"], row["num_samples"]) == (4, 3, 60)
    assert (row["call_p50_s"], row["call_p75_s"], row["call_p90_s"], row["call_p95_s"]) == (0.20, 0.32, 0.40, 0.64)
    # Of one GPU of sixteen: 32 images / 0.2 s, and not 512 / 0.2 s.
    rates = [row[f"{p}_per_gpu_samples_per_s"] for p in ("p50", "p75", "p90", "p95")]
    assert rates == pytest.approx([160, 100, 80, 50])
    assert pd.isna(row["call_p99_s"])
    assert pd.isna(row["p99_per_gpu_samples_per_s"])


def test_a_rate_is_that_of_the_median_time_and_no_mean_of_rates():
    cell = cell_of()
    row = table_of([launch(cell, 0, (0.1, None, None, None)), launch(cell, 1, (0.3, None, None, None))], [cell]).iloc[0]
    assert row["p50_per_gpu_samples_per_s"] == pytest.approx(160)  # the mean of 320 and 106.7 would be 213.3


def test_a_percentile_that_one_launch_cannot_carry_is_unknown():
    """Launches that took more samples were the faster ones: they must not speak for the slow one."""
    cell = cell_of()
    rows = [launch(cell, 0, (0.1, 0.1, 0.1, 0.1)), launch(cell, 1, (0.2, 0.2, None, None), num=20)]
    row = table_of(rows, [cell]).iloc[0]
    assert row["num_samples"] == 20
    assert row["call_p75_s"] == pytest.approx(0.15)
    assert pd.isna(row["call_p90_s"])
    assert pd.isna(row["p95_per_gpu_samples_per_s"])


def test_a_cell_without_a_valid_record_is_a_row_without_numbers():
    table = table_of([cell_row(cell_of()) | {"repeat": 0, "status": "failed"}], [cell_of()])
    row = table.iloc[0]
    assert (row["num_planned"], row["num_launches"]) == (2, 0)
    assert row[[column.name for column in (*CALL_TIMES, *RATES, NUM_SAMPLES)]].isna().all()


# Published p50, p75, p90 and p95 of PyTorch's DDP benchmark on V100, in seconds: ResNet-50, batch 32.
PUBLISHED = {
    (1, 1, "none", None): (0.097, 0.097, 0.097, 0.097),
    (1, 1, "ddp", 25): (0.100, 0.100, 0.100, 0.100),
    (2, 8, "ddp", 25): (0.104, 0.104, 0.104, 0.104),
}


def tables_of(published):
    """Return the tables of the section. published: percentiles in seconds by nodes, ranks, strategy and bucket."""
    cells = [train_cell("resnet50", n, g, s, b, batch_size=BATCH) for n, g, s, b in published]
    rows = [launch(c, 0, t) for c, t in zip(cells, published.values(), strict=True)]
    return section(report_data(make_campaign(cells, repeats=1), make_table(rows, MEASUREMENTS))).tables


def test_the_report_has_the_published_table_with_its_rows_in_its_order():
    (table,) = tables_of(PUBLISHED)
    assert len(table.columns) == 3 + 4 + 4
    assert table.rows[0][1:] == ("1/1", "60", *["97.00"] * 4, *["329.9"] * 4)
    assert [row[0].partition(" ")[0] for row in table.rows] == ["1×1", "1×1", "2×8"]
    assert (table.rows[2][3], table.rows[2][7]) == (
        "104.0",
        "307.7",
    )  # published: 306, of a time that is rounded to 0.104


def test_a_campaign_without_training_has_no_section():
    assert section(report_data(make_campaign([], repeats=1), make_table([], MEASUREMENTS))) is None
