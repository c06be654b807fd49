import pytest
from synthetic import make_campaign, train_cell
from typed import cell_row, step_cells

from regatta.core.verdicts import Compared, judge_all
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.tables.baselines import grade

BATCH = 32
# Images per second and GPU, by shape. "none" is one GPU without DDP. Published p50 values of two ResNets, 2 nodes x 4 GPUs.
RESNETS = {
    "resnet50": {"none": 1392, (1, 1): 1322, (1, 4): 1255, (2, 4): 1233},
    "resnet101": {"none": 790, (1, 1): 727, (1, 4): 703, (2, 4): 706},
}


def cell_of(model, place, **more):
    if place == "none":
        return train_cell(model, 1, 1, "none", batch_size=BATCH, **more)
    return train_cell(model, *place, "ddp", batch_size=BATCH, **more)


def measure(cells_and_rates, repeats=1):
    """Return measurements in which each launch of a cell has this rate per GPU; None is a failed cell."""
    rows = []
    for cell, rates in cells_and_rates:
        for repeat, rate in enumerate(rates if isinstance(rates, list) else [rates] * repeats):
            row = cell_row(cell) | {"repeat": repeat, "status": "failed" if rate is None else "ok"}
            batch = cell["spec"]["parameters"]["batch_size"]
            rows.append(row | {"window_step_s": None if rate is None else batch / rate})
    return make_table(rows, MEASUREMENTS)


def analyse(cells_and_rates, repeats=1, **fields):
    campaign = make_campaign([cell for cell, _ in cells_and_rates], repeats=repeats, **fields)
    table = step_cells(campaign, measure(cells_and_rates, repeats))
    return table.set_index("cell").astype(object)


def resnet(model, without=()):
    return [(cell_of(model, place), rate) for place, rate in RESNETS[model].items() if place not in without]


@pytest.mark.parametrize(
    ("model", "against_none", "parts"),
    [("resnet50", 0.886, (0.950, 0.949, 0.982)), ("resnet101", 0.894, (0.920, 0.967, 1.004))],
)
def test_published_rates_give_the_known_efficiency_and_its_parts(model, against_none, parts):
    row = analyse(resnet(model)).loc[cell_of(model, (2, 4))["id"]]
    assert row["efficiency_ratio"] == pytest.approx(against_none, abs=5e-4)
    found = (row["ddp_ratio"], row["intra_node_ratio"], row["inter_node_ratio"])
    assert found == pytest.approx(parts, abs=5e-4)
    assert found[0] * found[1] * found[2] == pytest.approx(row["efficiency_ratio"])
    assert row["throughput_samples_per_s"] == pytest.approx(8 * RESNETS[model][2, 4])


@pytest.mark.parametrize(("model", "against_ddp"), [("resnet50", 0.933), ("resnet101", 0.971)])
def test_another_baseline_gives_another_efficiency(model, against_ddp):
    baseline = {"strategy": "ddp", "nodes": 1, "gpus_per_node": 1}
    row = analyse(resnet(model), baseline=baseline).loc[cell_of(model, (2, 4))["id"]]
    assert row["efficiency_ratio"] == pytest.approx(against_ddp, abs=5e-4)
    assert row["baseline"] == cell_of(model, (1, 1))["id"]
    assert row["baseline_samples_per_s"] == pytest.approx(RESNETS[model][1, 1])


def test_a_baseline_of_several_gpus_counts_per_gpu():
    baseline = {"strategy": "ddp", "nodes": 1, "gpus_per_node": 4}
    row = analyse(resnet("resnet50"), baseline=baseline).loc[cell_of("resnet50", (2, 4))["id"]]
    assert row["efficiency_ratio"] == pytest.approx(1233 / 1255)
    assert row["baseline_samples_per_s"] == pytest.approx(4 * 1255)


def test_what_needs_a_cell_that_was_not_planned_is_unknown():
    row = analyse(resnet("resnet50", without=[(1, 1)])).loc[cell_of("resnet50", (2, 4))["id"]]
    assert row["ddp_ratio"] is None or row.isna()["ddp_ratio"]
    assert row.isna()["intra_node_ratio"]
    assert row["inter_node_ratio"] == pytest.approx(0.982, abs=5e-4)
    assert row["efficiency_ratio"] == pytest.approx(0.886, abs=5e-4)


def test_without_its_baseline_a_cell_has_a_rate_and_no_efficiency():
    table = analyse([(cell_of("resnet50", "none"), None), (cell_of("resnet50", (1, 4)), 1255)])
    row = table.loc[cell_of("resnet50", (1, 4))["id"]]
    assert row["throughput_samples_per_s"] == pytest.approx(5020)
    assert row["baseline"] == cell_of("resnet50", "none")["id"]
    assert row.isna()[["efficiency_ratio", "grade", "baseline_samples_per_s", "ddp_ratio"]].all()


def test_a_part_that_a_shape_does_not_have_is_empty():
    table = analyse(resnet("resnet50"))
    one = table.loc[cell_of("resnet50", (1, 1))["id"]]
    assert one["ddp_ratio"] == pytest.approx(0.950, abs=5e-4)
    assert one.isna()[["intra_node_ratio", "inter_node_ratio"]].all()
    none = table.loc[cell_of("resnet50", "none")["id"]]
    assert none["efficiency_ratio"] == 1.0
    assert none.isna()[["ddp_ratio", "grade", "efficiency_low_ratio"]].all()


def test_partners_have_the_same_bucket_stack_and_batch():
    buckets = [
        (train_cell("resnet50", 1, g, "ddp", b, batch_size=BATCH), 1000 + g + b) for g in (1, 4) for b in (1, 25)
    ]
    other_stack = [(cell_of("resnet50", "none", stack="other"), 5000)]
    table = analyse([(cell_of("resnet50", "none"), 1392), *buckets, *other_stack])
    row = table.loc[train_cell("resnet50", 1, 4, "ddp", 1, batch_size=BATCH)["id"]]
    assert row["intra_node_ratio"] == pytest.approx(1005 / 1002)
    assert row["ddp_ratio"] == pytest.approx(1002 / 1392)


def test_the_mean_is_taken_of_times_and_the_rate_derived_from_it():
    table = analyse([(cell_of("resnet50", (1, 1)), [100.0, 400.0])], repeats=2)
    # Times 0.32 and 0.08 s: geometric mean 0.16 s, 200 a second; The mean of the rates would be 250.
    assert table["throughput_samples_per_s"].iloc[0] == pytest.approx(200)
    assert table["step_s"].iloc[0] == pytest.approx(0.16)
    assert (table["throughput_low_samples_per_s"].iloc[0], table["throughput_high_samples_per_s"].iloc[0]) == (100, 400)
    assert table["interval"].iloc[0] == "range"


def test_the_ends_of_an_efficiency_are_the_range_of_all_pairs_below_three_launches():
    table = analyse(
        [(cell_of("resnet50", "none"), [100.0, 200.0]), (cell_of("resnet50", (1, 4)), [80.0, 120.0])], repeats=2
    )
    row = table.loc[cell_of("resnet50", (1, 4))["id"]]
    assert (row["efficiency_low_ratio"], row["efficiency_high_ratio"]) == pytest.approx((0.4, 1.2))


def test_a_campaign_without_training_has_an_empty_table():
    table = step_cells(make_campaign([]), measure([]))
    assert table.empty
    assert "efficiency_ratio" in table


@pytest.mark.parametrize(
    ("ratio", "word"), [(0.95, "excellent"), (0.9, "good"), (0.85, "good"), (0.8, "poor"), (0.1, "poor")]
)
def test_grades_begin_above_their_limits(ratio, word):
    assert grade(ratio, ratio, ratio) == word


def test_one_launch_gets_no_grade():
    assert grade(0.95) is None
    assert grade(0.95, 0.94, None) is None


@pytest.mark.parametrize(
    ("ratio", "low", "high", "word"),
    [
        (0.95, 0.91, 0.97, "excellent"),
        (0.95, 0.9, 0.97, None),  # 0.9 itself is good
        (0.89, 0.88, 0.9, "good"),
        (0.85, 0.79, 0.89, None),
        (0.5, 0.46, 0.55, "poor"),
        (0.5, 0.44, 0.55, None),  # wider than 20 % of it
        (2.9, 0.16, 3.08, None),
    ],
)
def test_a_spread_on_both_sides_of_a_limit_or_a_wide_one_has_no_grade(ratio, low, high, word):
    assert grade(ratio, low, high) == word


def test_a_wide_spread_leaves_the_grade_of_the_table_empty():
    table = analyse([(cell_of("resnet50", "none"), [100.0, 200.0]), (cell_of("resnet50", (1, 4)), [80.0, 120.0])], 2)
    assert table.loc[cell_of("resnet50", (1, 4))["id"]].isna()["grade"]


def test_rows_stand_in_the_order_of_their_sizes():
    table = analyse([(train_cell("resnet50", 1, 1, "ddp", bucket), 100) for bucket in (100, 25, 1)])
    assert table["bucket_cap_mb"].tolist() == [1, 25, 100]


def test_the_interval_of_an_efficiency_is_that_of_the_comparison_of_both_cells():
    """Different shapes never share an allocation: an unpaired contrast, as a comparison of the same times has it."""
    base, own = [100.0, 101.0, 103.0], [90.0, 92.0, 91.0]
    cell = cell_of("resnet50", (1, 4))
    row = analyse([(cell_of("resnet50", "none"), base), (cell, own)], 3).loc[cell["id"]]
    [verdict] = judge_all([Compared([BATCH / rate for rate in own], [BATCH / rate for rate in base], False)], [None])
    found = (row["efficiency_ratio"], row["efficiency_low_ratio"], row["efficiency_high_ratio"])
    assert found == pytest.approx((verdict.ratio.mean, verdict.ratio.low, verdict.ratio.high))
    assert row["efficiency_interval"] == "interval"
    assert found[0] == pytest.approx((90 * 92 * 91 / (100 * 101 * 103)) ** (1 / 3))


def test_cells_of_one_launch_are_paired_so_that_their_common_level_does_not_widen_the_efficiency():
    levels, cells = (1.0, 1.2, 1.5), [train_cell("resnet50", 1, 1, strategy) for strategy in ("none", "ddp")]
    rows = [
        cell_row(cell) | {"repeat": repeat, "status": "ok", "launch": f"b-l{repeat:03d}-a00", "window_step_s": step}
        for cell, ratio in zip(cells, (1.0, 1.25), strict=True)
        for repeat, step in enumerate(level * ratio for level in levels)
    ]
    row = (
        step_cells(make_campaign(cells, repeats=3), make_table(rows, MEASUREMENTS))
        .set_index("cell")
        .loc[cells[1]["id"]]
    )
    ends = (row["efficiency_ratio"], row["efficiency_low_ratio"], row["efficiency_high_ratio"])
    assert ends == pytest.approx((0.8, 0.8, 0.8))


def test_an_efficiency_over_a_single_launch_of_the_baseline_has_neither_spread_nor_grade():
    own = cell_of("resnet50", (1, 4))
    row = analyse([(cell_of("resnet50", "none"), [100.0]), (own, [95.0, 96.0])], 2).loc[own["id"]]
    assert (row["num_launches"], row["efficiency_interval"]) == (2, "single")
    assert row[["efficiency_low_ratio", "efficiency_high_ratio", "grade"]].isna().all()
