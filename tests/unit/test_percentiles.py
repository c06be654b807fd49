import pandas as pd
import pytest
from synthetic import make_campaign, train_cell

from regatta.store.collect import cell_row
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.topics.percentiles import PERCENTILE_COLUMNS, bucket_tables, percentile_tables, percentiles_table

BATCH = 32


def cell_of(nodes=1, gpus=1, strategy="ddp", bucket=25, **more):
    return train_cell("resnet50", nodes, gpus, strategy, bucket, batch_size=BATCH, **more)


def launch(cell, repeat, times, num=60):
    """Return a row of measurements.csv. times: p50, p75, p90, p95 in seconds; None: too few samples for it."""
    own = dict(zip(("p50_s", "p75_s", "p90_s", "p95_s"), times, strict=True))
    return cell_row(cell) | {"repeat": repeat, "status": "ok", "num_iterations": num} | own


def table_of(rows, cells, repeats=2):
    return percentiles_table(make_campaign(cells, repeats=repeats), make_table(rows, MEASUREMENTS))


def test_times_are_medians_over_launches_and_rates_are_the_batch_over_them():
    cell = cell_of(2, 8)
    times = [(0.10, 0.16, 0.20, 0.32), (0.30, 0.48, 0.60, 0.96), (0.20, 0.32, 0.40, 0.64)]
    row = table_of([launch(cell, i, t, 60 + i) for i, t in enumerate(times)], [cell], repeats=4).iloc[0]
    assert (row["num_planned"], row["num_launches"], row["num_samples"]) == (4, 3, 60)
    assert (row["p50_s"], row["p75_s"], row["p90_s"], row["p95_s"]) == (0.20, 0.32, 0.40, 0.64)
    # Of one GPU of sixteen: 32 images / 0.2 s, and not 512 / 0.2 s.
    rates = [row[f"{p}_per_gpu_samples_per_s"] for p in ("p50", "p75", "p90", "p95")]
    assert rates == pytest.approx([160, 100, 80, 50])
    assert pd.isna(row["p99_s"])
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
    assert row["p75_s"] == pytest.approx(0.15)
    assert pd.isna(row["p90_s"])
    assert pd.isna(row["p95_per_gpu_samples_per_s"])


def test_a_cell_without_a_valid_record_is_a_row_without_numbers():
    table = table_of([cell_row(cell_of()) | {"repeat": 0, "status": "failed"}], [cell_of()])
    row = table.iloc[0]
    assert (row["num_planned"], row["num_launches"]) == (2, 0)
    assert row[[name for name in PERCENTILE_COLUMNS if name.startswith(("p5", "p7", "p9", "num_samples"))]].isna().all()


# Published p50, p75, p90 and p95 of PyTorch's DDP benchmark on V100, in seconds: ResNet-50, batch 32.
PUBLISHED = {
    (1, 1, "none", None): (0.097, 0.097, 0.097, 0.097),
    (1, 1, "ddp", 25): (0.100, 0.100, 0.100, 0.100),
    (2, 8, "ddp", 25): (0.104, 0.104, 0.104, 0.104),
}


def published():
    cells = [train_cell("resnet50", n, g, s, b, batch_size=BATCH) for n, g, s, b in PUBLISHED]
    return table_of([launch(c, 0, t) for c, t in zip(cells, PUBLISHED.values(), strict=True)], cells, repeats=1)


def test_the_report_has_the_published_table_with_its_rows_in_its_order():
    (table,) = percentile_tables(published(), "cuda")
    assert len(table.columns) == 3 + 4 + 4
    assert table.rows[0][1:] == ("1/1", "60", *["97.00"] * 4, *["329.9"] * 4)
    assert [row[0].partition(" ")[0] for row in table.rows] == ["1×1", "1×1", "2×8"]
    assert (table.rows[2][3], table.rows[2][7]) == (
        "104.0",
        "307.7",
    )  # published: 306, of a time that is rounded to 0.104


def buckets(times_by_bucket):
    """Return the table of a campaign in which each bucket size took these p50, p75, p90 and p95 on 16 GPUs."""
    cells = {bucket: cell_of(2, 8, bucket=bucket) for bucket in times_by_bucket}
    rows = [launch(cells[bucket], 0, times) for bucket, times in times_by_bucket.items()]
    return table_of(rows, list(cells.values()), repeats=1)


def test_bucket_sizes_are_held_against_that_of_ddp_with_the_sign_that_the_heading_says():
    """Published: 16 GPUs, p75 0.108 s and p95 0.122 s with 1 MB, where the printed diff of p95 is -16.4 %."""
    (table,) = bucket_tables(buckets({1: (0.1, 0.108, 0.11, 0.122), 25: (0.1, 0.104, 0.104, 0.1048)}), "cuda")
    assert table.columns[2:6] == (
        "Step time p75, 25 MiB (ms)", "Step time p75, 1 MiB (ms)", "Rate per GPU at p75 (samples/s)", "Δ p75 (%)",
    )  # fmt: skip
    row = ("2×8 · ddp", "1 vs. 1", "104.0", "108.0", "296.3", "3.8", "104.8", "122.0", "262.3", "16")
    assert table.rows == (row,)


def test_a_faster_bucket_size_has_a_minus_and_an_unknown_percentile_no_difference():
    (table,) = bucket_tables(buckets({25: (0.1, 0.2, None, None), 100: (0.1, 0.1, None, None)}), "cuda")
    assert table.rows[0][5] == "-50"
    assert table.rows[0][6:] == ()  # of p95 no cell has a value, so it has no columns


def test_launches_too_short_for_higher_percentiles_are_compared_by_their_median():
    (table,) = bucket_tables(buckets({25: (0.1, None, None, None), 1: (0.12, None, None, None)}), "cpu")
    assert table.columns[-1] == "Δ p50 (%)"
    assert table.rows[0][2:] == ("100.0", "120.0", "266.7", "20")


def test_a_difference_can_be_worked_out_from_the_times_beside_it():
    (table,) = bucket_tables(buckets({25: (0.1, 0.02345, 0.1, 0.1), 100: (0.1, 0.02361, 0.1, 0.09999)}), "cuda")
    before, after, _, slower = table.rows[0][2:6]
    assert (before, after, slower) == ("23.45", "23.61", "0.68")
    assert f"{100 * (float(after) / float(before) - 1):.2f}" == slower
    assert table.rows[0][9] == "-0.010"


def test_without_the_usual_size_the_largest_is_the_one_that_others_are_held_against():
    tables = bucket_tables(buckets({1: (0.1,) * 4, 10: (0.1,) * 4, 100: (0.1,) * 4}), "cuda")
    assert [table.caption.split(":")[0] for table in tables] == [
        "Bucket size 1 MiB vs. 100 MiB",
        "Bucket size 10 MiB vs. 100 MiB",
    ]


def test_cells_that_differ_in_more_than_the_bucket_size_are_not_compared():
    cells = [cell_of(1, 2, bucket=25), cell_of(2, 1, bucket=1)]
    assert bucket_tables(table_of([launch(cell, 0, (0.1,) * 4) for cell in cells], cells), "cuda") == ()


def test_a_campaign_without_training_has_no_tables():
    table = table_of([], [])
    assert list(table) == list(PERCENTILE_COLUMNS)
    assert percentile_tables(table, "cpu") == bucket_tables(table, "cpu") == ()
