"""Bucket sizes on the page: what each square shows, and which rows and tables there are."""

import random
import re
import shutil
import statistics
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from synthetic import LAPTOP, Machine, analyse, make_campaign, make_report, train_cell, write_results

from regatta.topics.buckets import MOST_TABLES, bucket_squares, findings, section


def matrices_of(folder, cells, faults=None, machine=LAPTOP, **fields):
    """Return the data of the report, and the squares of its matrices by (title, shape, size)."""
    data = analyse(write_results(folder, make_campaign(cells, **fields), machine, faults))
    return data, squares_of(data)


def squares_of(data) -> dict:
    return {(one.group[-1], one.row, one.column): one for table in bucket_squares(data) for one in table}


def step_means(data) -> dict[str, float]:
    """Return the geometric mean of the step times of each cell with ok launches, from the launches alone."""
    steps = defaultdict(list)
    for row in data.ok.dropna(subset="window_step_s").itertuples():
        steps[row.cell].append(row.window_step_s)
    return {cell: statistics.geometric_mean(values) for cell, values in steps.items()}


@settings(max_examples=6, phases=[Phase.generate])  # shrinking a failure would take minutes
@given(
    sizes=st.lists(st.sampled_from([0.5, 1, 4, 25, 100]), min_size=1, max_size=4, unique=True),
    num_ranks=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=3, unique=True),
    stacks=st.sampled_from([["host"], ["host", "tuned"]]),
    repeats=st.integers(1, 4),
    noise=st.sampled_from([0.001, 0.01, 0.3]),
    seed=st.integers(0, 1000),
)
def test_every_number_is_that_of_the_means_in_measurements_csv(sizes, num_ranks, stacks, repeats, noise, seed):
    rng = random.Random(seed)
    cells = [train_cell("resnet18", 1, g, "ddp", b, stack=s) for s in stacks for g in num_ranks for b in sizes]
    lost = {(c["id"], r): ("failed", "setup", "boom") for c in cells for r in range(repeats) if rng.random() < 0.2}
    machine = Machine(**vars(LAPTOP) | {"noise": noise})
    folder = Path(mkdtemp())
    try:
        data, squares = matrices_of(folder / "r", cells, lost, machine, repeats=repeats)
        means = step_means(data)
    finally:
        shutil.rmtree(folder)
    rows = defaultdict(list)
    for cell in cells:
        rows[cell["spec"]["stack"]["name"], cell["spec"]["gpus_per_node"]].append(cell["id"])
    known = {key: [means[cell] for cell in ids if cell in means] for key, ids in rows.items()}
    compared = [key for key, values in known.items() if len(values) > 1]
    shown = [key for key in rows if key[0] in {stack for stack, _ in compared}]
    assert sorted(cell for square in squares.values() for cell in square.cells) == sorted(
        cell for key in shown for cell in rows[key]
    )
    best = {cell: min(known[key], default=None) for key in shown for cell in rows[key]}
    for square in squares.values():
        [cell] = square.cells
        if cell in means:
            slower = 100 * (means[cell] / best[cell] - 1)
            assert float(square.text.split()[0]) == pytest.approx(slower, abs=0.051 if slower < 9.95 else 0.51)
            assert square.level == pytest.approx(slower / 100, abs=1e-6)
            assert square.text == "0" or "best" not in square.state.split()
        else:
            assert (square.text, square.state) == ("\N{BALLOT X}", "failed")
    framed = Counter(place[:2] for place, square in squares.items() if "best" in square.state.split())
    assert set(framed.values()) <= {1}
    assert len(framed) <= len(compared)


def test_the_marked_sizes_are_those_of_the_table(tmp_path):
    cells = [train_cell("resnet18", 1, g, "ddp", b) for g in (2, 4) for b in (1, 20, 25, 30)]
    machine = Machine(**vars(LAPTOP) | {"noise": 0.05})
    data, squares = matrices_of(tmp_path / "r", cells, machine=machine)
    fields = data.cells_of("train_step")[["cell", "world_size", "bucket_cap_mb", "step_s"]]
    table = data.tables["settings"].merge(fields)
    fastest = set(table.loc[table.groupby("world_size")["step_s"].idxmin(), "cell"])
    may_be_best = table[table["may_be_best"] | table["cell"].isin(fastest)]
    marked = {
        state: {(int(place[-1]), float(size.split()[0])) for (_, place, size), q in squares.items() if state in q.state}
        for state in ("best", "near")
    }
    is_alone = ~may_be_best["world_size"].duplicated(keep=False)  # else no size is decided to be the best
    for state, rows in (("best", may_be_best[is_alone]), ("near", may_be_best[~is_alone])):
        assert marked[state] == set(zip(rows["world_size"], rows["bucket_cap_mb"], strict=True))
    assert marked["near"]
    slower = {cell: (cost, high) for cell, cost, high in table[["cell", "cost_ratio", "cost_high_ratio"]].to_numpy()}
    for square in squares.values():
        cost, high = slower[square.cells[0]]
        if square.text != "0":
            assert float(square.text.split("\N{PLUS-MINUS SIGN}")[1]) == pytest.approx(100 * (high - cost), abs=0.51)


def test_what_failed_what_was_not_measured_and_what_lacks_launches_are_marked(tmp_path):
    cells = [train_cell("resnet18", 1, 2, "ddp", b) for b in (1, 4, 25, 100)]
    ids = [cell["id"] for cell in cells]
    faults = {(ids[0], r): ("timeout", "measure", "no record") for r in range(3)}
    faults |= dict.fromkeys(((ids[1], r) for r in range(3)), "not_measured")
    faults[ids[2], 0] = ("failed", "setup", "boom")
    _, squares = matrices_of(tmp_path / "r", cells, faults)
    shown = {size: (square.text, square.state.split()) for (_, _, size), square in squares.items()}
    assert shown["1 MiB"] == ("\N{BALLOT X}", ["failed"])
    assert shown["4 MiB"] == ("\N{WHITE CIRCLE}", ["missing"])
    assert "partial" in shown["25 MiB"][1]
    assert "partial" not in shown["100 MiB"][1]
    assert "3 timed out" in squares["ResNet-18", "1×2", "1 MiB"].note


def test_a_skipped_size_is_marked(tmp_path):
    cells = [train_cell("resnet18", 1, 2, "ddp", b) for b in (1, 25)]
    gone = train_cell("resnet18", 1, 2, "ddp", 100) | {"reason": "excluded by exclude[0]"}
    campaign = make_campaign(cells, [gone])
    data = analyse(write_results(tmp_path / "r", campaign, LAPTOP))
    square = squares_of(data)["ResNet-18", "1×2", "100 MiB"]
    assert (square.text, square.state, square.cells) == ("\N{EN DASH}", "skipped", (gone["id"],))
    assert squares_of(data)["ResNet-18", "1×2", "1 MiB"].level is not None


def test_a_note_has_step_time_interval_and_number_of_launches(tmp_path):
    cells = [train_cell("resnet18", 1, 2, "ddp", b) for b in (1, 25)]
    data, squares = matrices_of(tmp_path / "r", cells)
    rows = data.cells_of("train_step").set_index("cell")
    for square in squares.values():
        step, low, high = (1e3 * rows.loc[square.cells[0], f"step_{end}s"] for end in ("", "low_", "high_"))
        found = re.search(r"step time ([\d.]+) ms \(95 % CI ([\d.]+)–([\d.]+) ms\), n = 3/3", square.note)
        assert [float(text) for text in found.groups()] == pytest.approx([step, low, high], rel=0.006)


def test_rows_and_tables_with_one_bucket_size_are_left_out(tmp_path):
    cells = [train_cell("resnet18", 1, 2, "ddp", 25), train_cell("resnet18", 1, 1, "none")]
    cells += [train_cell("mobilenet_v3_small", 1, 2, "ddp", b) for b in (1, 25)]
    cells += [train_cell("mobilenet_v3_small", 1, 4, "ddp", 25)]
    _, squares = matrices_of(tmp_path / "r", cells)
    assert {key[:2] for key in squares} == {("MobileNetV3-Small · ddp", "1×2")}


def test_without_two_bucket_sizes_there_is_no_section_and_no_finding(tmp_path):
    data, squares = matrices_of(tmp_path / "r", [train_cell("resnet18", 1, g) for g in (1, 2)])
    assert squares == {}
    assert section(data) is None
    assert findings(data) == []


def test_many_tables_are_folded_in_the_order_of_the_campaign(tmp_path):
    batches = range(1, MOST_TABLES + 3)
    cells = [train_cell("resnet18", 1, 2, "ddp", b, batch_size=n) for n in batches for b in (1, 25)]
    data, _ = matrices_of(tmp_path / "r", cells, repeats=1)
    tables = bucket_squares(data)
    assert [square.cells[0] for table in tables for square in table] == [cell["id"] for cell in cells]
    assert len(tables) == MOST_TABLES + 2
    page = make_report(tmp_path / "r").read_text()
    part = page.partition('<section id="bucket"')[2].partition("</section>")[0]
    overview, tables = part.split("<summary>Show all")
    assert (overview.count("<table"), tables.count("<table"), tables.count('scope="row"')) == (
        1,
        1,
        MOST_TABLES + 2,
    )


def test_an_overview_of_many_tables_has_the_sizes_within_noise_and_the_cost_of_the_default(tmp_path):
    batches, sizes = range(1, MOST_TABLES + 2), (1, 4, 25, 100)
    cells = [train_cell("resnet18", 1, g, "ddp", b, batch_size=n) for n in batches for g in (2, 4) for b in sizes]
    lost = {(cell["id"], repeat): ("failed", "setup", "boom") for cell in cells[:4] for repeat in range(5)}
    data, squares = matrices_of(tmp_path / "r", cells, lost, repeats=5)
    matrix = section(data).content["matrices"][0]
    assert (matrix.columns, matrix.is_dense) == (("1×2", "1×4"), True)
    rows = {f"{group[-1]} · {name}": row for group, of in matrix.groups.items() for name, row in of.items()}
    assert len(rows) == len(batches)
    num_failed = 0
    for name, row in rows.items():
        for place, square in row.items():
            of = {size: one for (title, at, size), one in squares.items() if (title, at) == (name, place)}
            assert sorted(square.cells) == sorted(cell for one in of.values() for cell in one.cells)
            if square.state == "failed":
                num_failed += 1
                assert {one.text for one in of.values()} == {"✗"} == {square.text}
                continue
            near = [float(size.split()[0]) for size, one in of.items() if {"best", "near"} & set(one.state.split())]
            ends = square.text.split("–")
            is_range = len(near) == sizes.index(near[-1]) - sizes.index(near[0]) + 1
            assert (float(ends[0]), float(ends[-1])) == (near[0], near[-1]) if is_range else str(len(near)) in ends[0]
            assert square.level == of["25 MiB"].level
            assert float(square.beside.strip("+ %")) == pytest.approx(100 * of["25 MiB"].level, abs=0.5)
    assert num_failed == 1


def test_few_tables_have_no_overview_and_sizes_of_one_launch_are_undecided(tmp_path):
    cells = [train_cell("resnet18", 1, 2, "ddp", b) for b in (1, 25)]
    data, squares = matrices_of(tmp_path / "r", cells, repeats=1)
    assert [matrix.is_dense for matrix in section(data).content["matrices"]] == [False]
    assert ["uncertain" in square.state for square in squares.values()] == [True, True]


def test_squares_carry_their_cells_and_hostile_names_stay_text(tmp_path):
    evil = '"><script>alert(1)</script>'
    cells = [train_cell("resnet18", 1, 2, "ddp", b, stack=s) for s in (evil, "host") for b in (1, 25)]
    page = make_report(write_results(tmp_path / "r", make_campaign(cells, repeats=1), LAPTOP)).read_text()
    assert "<script>alert" not in page
    part = page.partition('<section id="bucket"')[2].partition("</section>")[0]
    assert sorted(map(int, re.findall(r'<td[^>]* data-cell="(\d+)"', part))) == [0, 1, 2, 3]
