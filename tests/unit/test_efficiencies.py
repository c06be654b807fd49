"""Efficiency against every baseline, weak and strong separately, with numbers computed by hand."""

import pytest
from synthetic import make_campaign, report_data, train_cell
from typed import baselines_of, cell_row, efficiencies_table

from regatta.kit.kinds import Value
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.tables.baselines import EFFICIENCY
from regatta.topics.scaling.scaling_findings import launches_needed
from regatta.topics.scaling.scaling_section import section


def table_of(times):
    campaign = make_campaign([cell for cell, _ in times], repeats=max(len(steps) for _, steps in times))
    rows = [
        cell_row(cell) | {"repeat": i, "status": "ok", "window_step_s": step}
        for cell, steps in times
        for i, step in enumerate(steps)
    ]
    table = efficiencies_table(campaign, make_table(rows, MEASUREMENTS))
    return {(row.cell, row.scaling, row.against): row for row in table.itertuples()}


def test_each_baseline_has_its_own_number():
    none, one = train_cell("resnet50", 1, 1, "none", batch_size=32), train_cell("resnet50", 1, 1, batch_size=32)
    node, both = train_cell("resnet50", 1, 4, batch_size=32), train_cell("resnet50", 2, 4, batch_size=32)
    # Published rates of one GPU in samples/s: 1392 without DDP, 1322 with it on one GPU, 1255 on 4, 1233 on 8.
    rows = table_of([(none, [32 / 1392]), (one, [32 / 1322]), (node, [32 / 1255]), (both, [32 / 1233])])
    assert rows[both["id"], "weak", "none, 1 rank"].efficiency_ratio == pytest.approx(0.886, abs=5e-4)
    assert rows[both["id"], "weak", "ddp, 1 rank"].efficiency_ratio == pytest.approx(0.933, abs=5e-4)
    assert rows[both["id"], "weak", "ddp, 1 node"].efficiency_ratio == pytest.approx(0.982, abs=5e-4)
    assert {key[0] for key in rows} == {node["id"], both["id"]}
    assert not [key for key in rows if key[1] == "strong"]


def test_strong_scaling_keeps_the_batch_of_all_ranks():
    one, four = train_cell("resnet50", 1, 1, batch_size=32), train_cell("resnet50", 1, 4, batch_size=8)
    rows = table_of([(one, [0.4, 0.5]), (four, [0.125, 0.2])])
    assert list(rows) == [(four["id"], "strong", "ddp, 1 rank")]
    row = rows[four["id"], "strong", "ddp, 1 rank"]
    # Geometric means: root of 0.4 x 0.5 / (0.125 x 0.2) / 4; over all pairs of launches 0.4 / 0.8 to 0.5 / 0.5.
    assert row.efficiency_ratio == pytest.approx(0.5**0.5)
    assert (row.efficiency_low_ratio, row.efficiency_high_ratio) == pytest.approx((0.5, 1.0))
    assert row.interval == "range"
    assert row.baseline_step_s == pytest.approx(0.2**0.5)


def test_a_baseline_that_was_not_measured_gives_no_number():
    none, four = train_cell("resnet50", 1, 1, "none"), train_cell("resnet50", 1, 4)
    [row] = table_of([(none, []), (four, [0.1])]).values()
    assert row.num_baseline_launches == 0
    assert row.interval == "none"


def test_one_rank_has_no_baseline_and_a_step_without_ddp_none_twice():
    assert list(baselines_of(train_cell("resnet50", 1, 1))) == []
    names = [(scaling, name) for scaling, name, _ in baselines_of(train_cell("resnet50", 1, 2, "none"))]
    assert names == [("weak", "none, 1 rank"), ("strong", "none, 1 rank")]


def test_a_table_that_is_too_long_has_its_first_rows_and_says_how_many_there_are():
    cells = [train_cell("resnet50", 1, 1, "none", batch_size=b) for b in range(1, 8)]
    cells += [train_cell("resnet50", n, 4, "ddp", batch_size=b) for n in (1, 2, 4, 8) for b in range(1, 8)]
    cells += [train_cell("resnet50", 1, 1, "ddp", batch_size=b) for b in range(1, 8)]
    rows = [cell_row(cell) | {"repeat": 0, "status": "ok", "window_step_s": 0.1} for cell in cells]
    campaign, measurements = make_campaign(cells, repeats=1), make_table(rows, MEASUREMENTS)
    efficiencies = efficiencies_table(campaign, measurements)
    [table] = section(report_data(campaign, measurements, efficiencies=efficiencies)).tables
    # 7 cells of 1 node have 2 baselines each, those of 2, 4 and 8 nodes 3: 77 rows. Batch 1 on 4 ranks has
    # two strong ones of batch 4.
    assert "40 of 79" in table.caption
    assert len(table.rows) == 40


@pytest.mark.parametrize(
    ("low", "high", "num", "repeats", "needed"),
    [
        (0.40, 0.60, 5, 5, 20),  # twice as wide as 20 % of 0.5
        (0.44, 0.545, 5, 5, 6),  # 1.05 times: 5.5
        (0.44, 0.545, 2, 2, 3),  # the least for an interval
        (0.44, 0.545, 3, 8, 9),  # more than those planned, some of which failed
        (0.25, 0.75, 4, 4, 100),
        (0.24, 0.75, 4, 4, None),
    ],
)
def test_an_uncertain_efficiency_needs_launches_by_the_square_of_its_width(low, high, num, repeats, needed):
    assert launches_needed(Value(EFFICIENCY, 0.5, low, high, "interval", num), repeats) == needed
