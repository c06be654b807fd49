"""Exposed and hidden communication, and memory: numbers computed by hand."""

import re

import pytest
from synthetic import collective_cell, make_campaign, report_data, train_cell
from typed import cell_row

from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.topics import gradient_communication as strategies
from regatta.topics import memory

# Three launches: exposed 10, 20, 12 ms; of the step 0.1, 0.2, 0.12; hidden 0.75, 0.5, 0.7.
LAUNCHES = [
    {"whole_step_s": 0.100, "no_sync_s": 0.090, "communication_s": 0.040, "host_wait_s": 0.001},
    {"whole_step_s": 0.100, "no_sync_s": 0.080, "communication_s": 0.040, "host_wait_s": 0.003},
    {"whole_step_s": 0.100, "no_sync_s": 0.088, "communication_s": 0.040, "host_wait_s": 0.002},
]


def report_of(*cells_and_launches):
    """Return the data of a report of cells and the columns of their launches."""
    rows = [
        cell_row(cell) | {"repeat": repeat, "status": "ok", "p50_s": 0.1} | columns
        for cell, launches in cells_and_launches
        for repeat, columns in enumerate(launches)
    ]
    campaign = make_campaign([cell for cell, _ in cells_and_launches], repeats=3)
    return report_data(campaign, make_table(rows, MEASUREMENTS))


def cells_of(*cells_and_launches):
    return report_of(*cells_and_launches).cells_of("train_step")


def figures_of(*cells_and_launches):
    """Return the figures of the section, which are folded if they are of one shape."""
    section = strategies.section(report_of(*cells_and_launches))
    return section.figures or section.parts[0].figures


def test_exposed_and_hidden_are_taken_within_each_launch():
    [row] = cells_of((train_cell("resnet18", 1, 2), LAUNCHES)).to_dict("records")
    assert row["exposed_s"] == pytest.approx(0.014)  # the mean of 10, 20 and 12 ms
    assert row["exposed_low_s"] + row["exposed_high_s"] == pytest.approx(0.028)
    assert row["exposed_interval"] == "interval"
    assert row["exposed_share_ratio"] == pytest.approx(0.14)
    assert row["hidden_ratio"] == pytest.approx(0.65)
    assert row["host_wait_s"] == pytest.approx(0.002)
    assert (row["num_planned"], row["num_launches"]) == (3, 3)


def test_what_the_streams_of_a_gpu_said_is_a_median_over_launches_and_empty_on_a_cpu():
    on_gpu = [
        {"communication_stream_s": s, "exposed_stream_s": e}
        for s, e in ((0.050, 0.009), (0.040, 0.011), (0.042, 0.008))
    ]
    launches = [launch | seen for launch, seen in zip(LAUNCHES, on_gpu, strict=True)]
    [row] = cells_of((train_cell("resnet18", 1, 2), launches)).to_dict("records")
    assert (row["communication_stream_s"], row["exposed_stream_s"]) == pytest.approx((0.042, 0.009))
    table = cells_of((train_cell("resnet18", 1, 2), LAUNCHES))
    assert table[["communication_stream_s", "exposed_stream_s"]].isna().all(axis=None)


def test_one_rank_and_collectives_have_no_row_and_unknown_values_are_empty():
    single, several = train_cell("resnet18", 1, 1), train_cell("resnet50", 1, 2)
    cells = (
        (single, LAUNCHES),
        (collective_cell(4, 1, 2), [{}]),
        (several, [{"whole_step_s": 0.1, "no_sync_s": 0.08}]),
    )
    table = cells_of(*cells).set_index("cell")
    assert table["exposed_s"].dropna().to_dict() == {several["id"]: pytest.approx(0.02)}
    assert table.loc[several["id"], ["communication_s", "hidden_ratio", "host_wait_s", "num_calls"]].isna().all()


def test_a_cell_without_a_record_has_a_row():
    [row] = cells_of((train_cell("resnet18", 1, 2), [])).to_dict("records")
    assert (row["num_launches"], row["exposed_interval"]) == (0, "none")


def test_memory_is_the_largest_over_launches():
    cell = train_cell("resnet18", 1, 2)
    launches = [{"saved_bytes": 10, "peak_rss_bytes": 7}, {"saved_bytes": 12, "peak_rss_bytes": 5}]
    data = report_of((cell, launches))
    [row] = data.cells_of("train_step").to_dict("records")
    assert (row["saved_bytes"], row["peak_rss_bytes"]) == (12, 7)
    [shown] = memory.section(data).tables
    assert [row[1:] for row in shown.rows] == [("12", "7")]
    assert memory.section(report_of((cell, []))) is None


def test_the_table_of_a_figure_has_exposed_time_and_its_range(wording):
    slow = [columns | {"no_sync_s": 0.05} for columns in LAUNCHES]
    two = LAUNCHES[:2], slow[:2]
    cells = [(train_cell("resnet18", 1, 2, bucket=bucket), of) for bucket, of in zip((1, 25), two, strict=True)]
    [figure] = figures_of(*cells)
    wording(re.findall('aria-label="([^"]*)"', figure.svg)[0])
    heads = ("Exposed communication (ms)", "range", "Exposed share of the step (%)", "Hidden communication (%)")
    assert shown(figure, *heads)[0] == ("15", "(10 to 20)", "15.0", "62.5")


def shown(figure, *heads):
    return [tuple(row[figure.table.columns.index(head)] for head in heads) for row in figure.table.rows]


def test_n_counts_the_launches_that_have_both_the_step_and_its_ablation():
    without = {"whole_step_s": 0.1, "communication_s": 0.04}
    second = [without, LAUNCHES[1], LAUNCHES[1]]
    pairs = zip((1, 25), (LAUNCHES, second), strict=True)
    [figure] = figures_of(*((train_cell("resnet18", 1, 2, bucket=bucket), of) for bucket, of in pairs))
    row = dict(zip(figure.table.columns, figure.table.rows[1], strict=True))
    [interval] = [text for head, text in row.items() if head.startswith("range")]
    assert (row["Exposed communication (ms)"], interval) == ("20.0", "(20.0 to 20.0)")
    assert [row[1] for row in figure.table.rows] == ["3/3", "2/3"]


def test_a_strategy_without_a_step_to_compare_with_has_no_marks():
    cells = ((train_cell("resnet18", 1, 2), LAUNCHES), (train_cell("resnet18", 1, 2, strategy="fsdp"), [{}, {}]))
    [figure] = figures_of(*cells)
    first, second = figure.table.rows
    assert (first[0].split(" · ")[-1], second[0].split(" · ")[-1]) == ("ddp", "fsdp")
    assert figure.chart.frame["cell"].tolist() == [cells[0][0]["id"]]
    assert second[1:3] == ("0/3", "100")
    assert set(second[3:]) == {"n/a"}
    assert strategies.section(report_of(cells[1])) is None


def test_a_figure_has_the_share_of_each_launch_over_the_ranks_and_a_line_for_each_stack():
    cells = [(train_cell("resnet18", *place, stack=stack), LAUNCHES) for place in ((1, 2), (2, 2)) for stack in "ab"]
    [figure] = figures_of(*cells)
    marks = figure.chart.marks
    assert figure.title == "Exposed share of the step: ResNet-18"
    assert marks[["series", "shape"]].to_numpy().tolist() == [
        [f"ddp {stack}", x] for stack in "ab" for x in ("1×2", "2×2")
    ]
    assert marks.filter(like="launch ").iloc[1].tolist() == pytest.approx([10, 20, 12])
    assert marks["Exposed share of the step (%)"][2] == pytest.approx(14)


def test_rows_of_one_shape_are_named_by_what_differs():
    """Two bucket sizes on two stacks: four rows that were all called 1×2."""
    pairs = [(stack, bucket) for stack in "ab" for bucket in (1, 25)]
    [figure] = figures_of(*((train_cell("resnet18", 1, 2, stack=s, bucket=b), LAUNCHES) for s, b in pairs))
    assert figure.chart.marks[["x", "series"]].to_numpy().tolist() == [[f"bucket {b} MiB", s] for s, b in pairs]


def test_the_finding_is_the_highest_mean_share_and_says_of_how_many_cells():
    """Shares 10, 20 and 12 %: mean 14 %, median 12 %. The other cell has half of the exposed time."""
    cells = [train_cell("resnet18", 1, 2, "ddp", bucket) for bucket in (1, 25)]
    fewer = [launch | {"no_sync_s": (launch["whole_step_s"] + launch["no_sync_s"]) / 2} for launch in LAUNCHES]
    [finding] = strategies.findings(report_of((cells[0], LAUNCHES), (cells[1], fewer)))
    assert finding.cells == (cells[0]["id"],)
    assert finding.values["share_ratio"].estimate == pytest.approx(0.14)
    assert finding.values["exposed"].estimate == pytest.approx(0.014)
    assert finding.words["num_cells"] == 2
