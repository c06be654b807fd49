"""The report's matrix of status and efficiency: where each cell is, and what its square shows."""

import dataclasses
import re

import pytest
from planted import plant
from synthetic import (
    CLUSTER,
    LAPTOP,
    analyse,
    cluster_campaign,
    collective_cell,
    laptop_campaign,
    make_campaign,
    train_cell,
    write_results,
)

from regatta.core.text import three
from regatta.report.matrix import MOST_ROWS_DENSE, MOST_ROWS_OPEN, Matrix, Square, merged
from regatta.report.page import load_template
from regatta.topics import buckets, communication
from regatta.topics.scaling.scaling_findings import loss_bars
from regatta.topics.status_matrix import status_matrix


def matrix_of(folder, campaign, machine=LAPTOP, faults=None):
    """Return the data of the report, its matrix, and its squares by (subject, row, shape)."""
    data = analyse(write_results(folder, campaign, machine, faults))
    matrix = status_matrix(data)
    return data, matrix, {(square.group[-1], square.row, square.column): square for square in matrix.squares}


def tables_of(matrix) -> str:
    return str(load_template("matrix_tables.html.j2").module.matrix_tables(matrix))


@pytest.fixture(scope="module")
def laptop(tmp_path_factory):
    """The default campaign: of MobileNetV3-Small on 1x2, bucket 1 timed out always, and bucket 25 once."""
    campaign = laptop_campaign()
    ids = [cell["id"] for cell in campaign["cells"]]
    lost, hurt = (next(i for i in ids if f"mobilenet_v3_small-ddp-{bucket}-n01g02" in i) for bucket in (1, 25))
    faults = {(lost, repeat): ("timeout", "measure", "no record after 60 s") for repeat in range(3)}
    faults[hurt, 0] = ("failed", "measure", "boom")
    return matrix_of(tmp_path_factory.mktemp("matrix") / "r", campaign, LAPTOP, faults)


def test_every_cell_but_those_of_rows_with_baselines_alone_is_in_exactly_one_square(laptop):
    data, _, squares = laptop
    cells = [cell for square in squares.values() for cell in square.cells]
    assert sorted(cells) == sorted(cell.id for cell in data.campaign.all_cells if cell.field("strategy") != "none")


def test_the_bus_bandwidth_is_that_of_the_summary_also_if_a_cell_lacks_launches(tmp_path):
    cells = [collective_cell(1024 * 4**i, 1, 2) for i in range(6)]
    fault = {(cells[-1]["id"], 0): ("failed", "measure", "boom")}  # the fastest
    data, _, squares = matrix_of(tmp_path / "r", make_campaign(cells), LAPTOP, fault)
    [_, best] = communication.findings(data)
    value = best.values["busbw_gb_per_s"].estimate
    assert value == data.cells_of("collective")["busbw_gb_per_s"].max()
    assert [square.text for square in squares.values()] == [f"{three(value)} GB/s"]


def test_shapes_go_across_by_number_of_ranks(tmp_path):
    cells = [train_cell("resnet18", *place) for place in ((2, 2), (1, 8), (1, 1), (4, 1))]
    _, matrix, _ = matrix_of(tmp_path / "r", make_campaign(cells, repeats=1))
    assert matrix.columns == ("1×1", "2×2", "4×1", "1×8")


def test_a_square_shows_the_most_efficient_bucket_as_the_table_has_it(laptop):
    data, _, squares = laptop
    scaling = data.cells_of("train_step").set_index("cell")
    square = squares["ResNet-18", "ddp", "1×2"]
    best = max(float(scaling.loc[cell, "efficiency_ratio"]) for cell in square.cells)
    assert len(square.cells) == 2
    assert (square.text, square.level) == (f"{100 * best:.0f}", best)
    assert "mean of 2: " in square.note


def test_the_fastest_cell_counts_also_if_it_lacks_a_launch_and_the_note_says_so(tmp_path):
    cells = [train_cell("resnet18", 1, 1, "none"), *(train_cell("resnet18", 1, 2, "ddp", bucket) for bucket in (1, 25))]
    campaign = make_campaign(cells, repeats=2)
    data, *_ = matrix_of(tmp_path / "all", campaign)
    ratio = data.cells_of("train_step").set_index("cell")["efficiency_ratio"]
    fault = {(max((cell["id"] for cell in cells[1:]), key=ratio.get), 0): ("failed", "measure", "boom")}
    data, _, squares = matrix_of(tmp_path / "lost", campaign, faults=fault)
    ratio = data.cells_of("train_step").set_index("cell")["efficiency_ratio"]
    square = squares["ResNet-18", "ddp", "1×2"]
    assert square.level == max(ratio[cell] for cell in square.cells)
    assert "1 of 2 launches" in square.note


def test_an_uncertain_efficiency_is_marked_and_has_no_color(tmp_path):
    cells = [train_cell("resnet18", 1, 1, "none"), train_cell("resnet18", 1, 2)]
    noisy = dataclasses.replace(LAPTOP, noise=0.3)
    data, _, squares = matrix_of(tmp_path / "r", make_campaign(cells, repeats=6), noisy)
    row = data.cells_of("train_step").set_index("cell").loc[cells[1]["id"]]
    assert row["efficiency_high_ratio"] - row["efficiency_low_ratio"] > 0.2 * row["efficiency_ratio"]
    square = squares["ResNet-18", "ddp", "1×2"]
    text = f"{100 * row['efficiency_ratio']:.0f}"
    assert (square.text, square.level, square.state) == (text, None, "uncertain")
    assert loss_bars(data) == []


def test_failures_are_marked_and_what_never_ran_is_told_from_what_failed(laptop):
    squares = laptop[2]
    hurt = squares["MobileNetV3-Small", "ddp", "1×2"]
    assert hurt.state == "partial"
    assert "4 of 6" in hurt.note
    assert squares["all-reduce", "", "1×1"].state == "skipped"


def test_a_square_in_which_nothing_worked_has_no_number(tmp_path):
    campaign = make_campaign([train_cell("resnet18", 1, 2, "ddp", bucket) for bucket in (1, 25)], repeats=2)
    ids = [cell["id"] for cell in campaign["cells"]]
    failed = dict.fromkeys([(cell, repeat) for cell in ids for repeat in range(2)], ("failed", "setup", "boom"))
    [square] = matrix_of(tmp_path / "a", campaign, faults=failed)[2].values()
    assert (square.text, square.level, square.state) == ("✗", None, "failed")
    missing = dict.fromkeys(failed, "not_measured")
    [square] = matrix_of(tmp_path / "b", campaign, faults=missing)[2].values()
    assert (square.text, square.state) == ("○", "missing")


def test_launches_without_a_record_have_not_failed(tmp_path):
    cells = [train_cell("resnet18", 1, 2, "ddp", bucket) for bucket in (1, 25)]
    faults = {(cells[0]["id"], 0): "not_measured"}
    [square] = matrix_of(tmp_path / "a", make_campaign(cells, repeats=2), faults=faults)[2].values()
    assert square.state == "incomplete"
    faults |= {(cells[1]["id"], 0): ("failed", "setup", "boom")}
    [square] = matrix_of(tmp_path / "b", make_campaign(cells, repeats=2), faults=faults)[2].values()
    assert square.state == "partial"


def test_without_a_baseline_a_square_has_the_throughput_and_no_color(tmp_path):
    data, _, squares = matrix_of(tmp_path / "r", make_campaign([train_cell("resnet18", 1, 2)], repeats=1))
    [square] = squares.values()
    rate = float(data.cells_of("train_step")["throughput_samples_per_s"].iloc[0])
    assert float(square.text) == pytest.approx(rate, rel=5e-3)
    assert square.level is None


def test_a_collective_shows_the_bus_bandwidth_of_its_largest_message(tmp_path):
    cells = [collective_cell(4096 * 4**i, 1, 2) for i in range(3)]
    data, _, squares = matrix_of(tmp_path / "r", make_campaign(cells, repeats=2))
    [square] = squares.values()
    rows = data.cells_of("collective").set_index("message_bytes")
    assert square.text.endswith(" GB/s")
    assert float(square.text.split()[0]) == pytest.approx(float(rows.loc[65536, "busbw_gb_per_s"]), rel=5e-3)
    assert "64 KiB" in square.note


def test_a_square_with_an_incomplete_range_of_sizes_says_how_many_have_a_value(tmp_path):
    cells = [collective_cell(4096 * 4**i, 1, 2) for i in range(3)]
    faults = {(cells[-1]["id"], repeat): ("failed", "measure", "boom") for repeat in range(2)}
    _, matrix, squares = matrix_of(tmp_path / "r", make_campaign(cells, repeats=2), faults=faults)
    [square] = squares.values()
    assert (square.beside, square.state) == ("2 of 3", "partial")
    assert "2 of 3 sizes" in square.note
    assert re.findall(r"<small>(.*?)</small>", tables_of(matrix)) == ["2 of 3"]
    faults = {(cells[-1]["id"], 0): ("failed", "measure", "boom")}
    [square] = matrix_of(tmp_path / "one", make_campaign(cells, repeats=2), faults=faults)[2].values()
    assert (square.beside, square.state) == ("", "partial")


def test_stacks_are_rows_of_one_model(tmp_path):
    _, matrix, squares = matrix_of(tmp_path / "r", cluster_campaign(repeats=1), CLUSTER)
    rows = {group[-1]: list(rows) for group, rows in matrix.groups.items()}
    assert [name.split(" ")[-1] for name in rows["ResNet-50"]] == ["contained", "bound"]
    assert matrix.open_and_folded == (matrix.groups, {})
    assert sum(len(square.cells) for square in squares.values()) == 164 - 4  # without the measured baselines


def test_many_rows_are_a_heatmap_whose_rows_have_the_names_of_their_groups(tmp_path):
    batches = range(1, MOST_ROWS_OPEN + 2)
    cells = [train_cell("resnet18", 1, 2, batch_size=b, bucket=25) for b in batches]
    _, matrix, _ = matrix_of(tmp_path / "r", make_campaign(cells, repeats=1))
    assert (matrix.open_and_folded[1], matrix.is_dense) == ({}, True)
    page = tables_of(matrix)
    heads = re.findall(r'<th scope="row">([^<]*)</th>', page)
    assert len(heads) == len(batches)
    assert {head.partition(" · ")[0] for head in heads} == {"ResNet-18"}
    assert "<details" not in page


def test_a_heatmap_has_no_row_of_a_measured_baseline(tmp_path):
    batches = range(1, MOST_ROWS_OPEN + 2)
    cells = [train_cell("resnet18", 1, n, s, batch_size=b) for b in batches for n, s in ((1, "none"), (2, "ddp"))]
    lost = {(cells[0]["id"], 0): ("failed", "setup", "boom")}
    _, matrix, _ = matrix_of(tmp_path / "r", make_campaign(cells, repeats=1), faults=lost)
    assert matrix.is_dense
    found = {cell for square in matrix.squares for cell in square.cells}
    baselines = {cell["id"] for cell in cells[2::2]}
    assert found == {cell["id"] for cell in cells} - baselines


def test_very_many_rows_are_folded_by_subject_with_their_range(tmp_path):
    batches = range(1, MOST_ROWS_DENSE + 2)
    cells = [train_cell("resnet18", 1, n, s, batch_size=b) for b in batches for n, s in ((1, "none"), (2, "ddp"))]
    data, matrix, _ = matrix_of(tmp_path / "r", make_campaign(cells, repeats=1))
    known = data.cells_of("train_step")
    known = known[known["cell"] != known["baseline"]]["efficiency_ratio"].astype(float)
    [rows] = matrix.open_and_folded[1].values()
    assert matrix.summary_of(rows).startswith(f"{100 * known.min():.0f}")


@pytest.mark.parametrize(
    ("level", "style"), [(-0.1, "--level: 0%"), (0.0, "--level: 0%"), (0.5, "--level: 50%"), (1.3, "--level: 100%")]
)
def test_a_level_beyond_the_scale_has_the_color_of_its_end(level, style):
    matrix = Matrix("caption", ("1×1",), (Square(("a",), "", "1×1", "x", level=level),), scale=(0, 1))
    assert f'style="{style}"' in tables_of(matrix)


def test_groups_beyond_a_number_of_rows_are_folded_and_none_is_lost():
    squares = tuple(Square((name,), size, "1×1", "x") for name in "abc" for size in ("1 MiB", "4 MiB"))
    matrix = Matrix("caption", ("1×1",), squares, most_dense=0)
    assert "<details" not in tables_of(matrix)
    text = tables_of(dataclasses.replace(matrix, most_open=4))
    assert re.findall(r"<summary>(.) ", text) == ["c"]
    assert text.count("4 MiB") == 3


def test_colors_span_what_was_measured(laptop):
    _, matrix, squares = laptop
    levels = [square.level for square in squares.values() if square.level is not None]
    low, high = matrix.ends
    assert high == max(levels)
    assert (min(levels) - low) / (high - low) == pytest.approx(0.15)
    shares = {round((level - low) / (high - low), 2) for level in levels}
    assert f"--level: {100 * min(shares):.0f}%" in tables_of(matrix)


@pytest.fixture(scope="module")
def six_rows(tmp_path_factory):
    """Two models whose stacks agree, and one that scales otherwise and has a failure on one stack."""
    places = [(model, stack) for model in ("resnet18", "vgg16", "resnet50") for stack in ("host", "tuned")]
    cells = [train_cell(model, 1, 2, "ddp", b, stack=stack) for model, stack in places for b in (1, 25)]
    cells += [train_cell(model, 1, 1, "none", stack=stack) for model, stack in places]

    def seconds(spec, *_):
        size = spec["parameters"]["bucket_cap_mb"]
        slower = 1.3 if size and spec["parameters"]["model"] == "resnet50" else 1
        return {None: 0.1, 1: 0.15 * slower**2, 25: 0.125 * slower}[size]

    def fault(spec, repeat, _):
        found = spec["parameters"]["model"], spec["stack"]["name"], spec["gpus_per_node"], repeat
        return ("failed", "measure", "boom") if found == ("resnet50", "tuned", 2, 0) else None

    return analyse(plant(tmp_path_factory.mktemp("rows") / "r", make_campaign(cells, repeats=6), seconds, fault))


@pytest.mark.parametrize("matrix_of_page", [status_matrix, lambda data: buckets.section(data).content["matrices"][-1]])
def test_rows_that_agree_are_one_row_with_the_range_and_others_stay(six_rows, matrix_of_page):
    matrix = matrix_of_page(six_rows)
    rows = {f"{group[-1]} {name}": row for group, of in matrix.groups.items() for name, row in of.items()}
    [joint, *apart] = rows.values()
    assert len(apart) == 2
    assert "ResNet-18, VGG-16" in next(iter(rows))
    assert "host, tuned" in next(iter(rows))
    for column, square in joint.items():
        models = [cell.field("model") for cell in six_rows.campaign.all_cells if cell.id in square.cells]
        assert {*models} == {"resnet18", "vgg16"}
        assert len(models) == (8 if matrix_of_page is status_matrix else 4)
        ends = [float(end) for end in square.text.split("–")]
        truth = {"1×2": 80, "1 MiB": 20, "25 MiB": 0}[column]
        assert ends == sorted(ends)
        assert ends == pytest.approx([truth] * len(ends), abs=1)
    assert [any("partial" in one.state for one in row.values()) for row in apart] == [False, True]


def test_few_rows_stay_apart_also_if_they_agree(tmp_path):
    cells = [train_cell(model, 1, 2, stack=s) for model in ("resnet18", "vgg16") for s in ("host", "tuned")]
    data = analyse(plant(tmp_path / "r", make_campaign(cells), lambda *_: 0.1))
    assert len(status_matrix(data).squares) == 4


@pytest.mark.parametrize(
    ("texts", "range_text"),
    [
        (("0", "0.0 ±0.4", "0"), "0"),
        (("990 GB/s", "1,010 GB/s", "995 GB/s"), "990–1,010 GB/s"),
        (("3.5 ±0.8", "10 ±1.0", "9.5 ±0.9"), "3.5–10"),
    ],
)
def test_a_range_has_the_lowest_and_the_highest_number(texts, range_text):
    values, names = ((1.0, 0.0, 2.0),), ("a · x", "b · x", "c · x", "a · y", "b · y")
    squares = [
        Square((name,), "", "1×1", text, values=values) for name, text in zip(names, [*texts, "5", "5"], strict=True)
    ]
    found = {one.group[-1]: one.text for one in merged(squares, set())}
    assert found == {"a, b, c · x": range_text, "a, b · y": "5"}
    assert len(merged(squares[:4], set())) == 4
