"""Best buckets of the table: the fastest size, and those that may be the best too."""

import pytest
from synthetic import make_campaign, train_cell
from typed import cell_row, step_cells

from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.topics.buckets import BUCKETS, buckets_table
from regatta.topics.settings import settings_table


def rows_of(steps, strategy="ddp", gpus=4):
    """Return the rows of the table. steps: MiB (None: no buckets) -> seconds of its launches."""
    cells = {bucket: train_cell("resnet50", 1, gpus, strategy, bucket) for bucket in steps}
    rows = [
        cell_row(cells[bucket]) | {"repeat": repeat, "status": "ok", "window_step_s": step}
        for bucket, launches in steps.items()
        for repeat, step in enumerate(launches)
    ]
    campaign, measurements = make_campaign(list(cells.values())), make_table(rows, MEASUREMENTS)
    scaling = step_cells(campaign, measurements)
    settings = settings_table(scaling, measurements)
    table = buckets_table(scaling, settings).astype(object)
    return table.where(table.notna(), None).to_dict("records")


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ({1: [0.150, 0.152], 10: [0.100, 0.102], 25: [0.101, 0.104]}, (3, 10, 0.1 * 1.02**0.5, "25")),
        ({1: [0.2, 0.21], 10: [0.1, 0.11]}, (2, 10, 0.1 * 1.1**0.5, "none")),
        ({1: [0.2], 10: [0.1]}, (2, 10, 0.1, None)),  # one launch decides nothing
        ({25: [0.1, 0.11]}, (1, None, None, None)),  # the best of nothing
        ({1: [], 25: []}, (0, None, None, None)),
    ],
)
def test_the_best_is_the_fastest_and_those_within_noise_are_named(steps, found):
    [row] = rows_of(steps)
    num, best, seconds, others = found
    assert (row["num_buckets"], row["best_bucket_cap_mb"], row["indistinguishable_mb"]) == (num, best, others)
    assert row["best_step_s"] == (seconds and pytest.approx(seconds))
    assert list(row) == list(BUCKETS)


@pytest.mark.parametrize(("strategy", "bucket", "gpus"), [("ddp", 25, 1), ("flat", None, 4)])
def test_one_rank_and_strategies_without_buckets_have_no_row(strategy, bucket, gpus):
    assert rows_of({bucket: [0.1]}, strategy, gpus) == []
