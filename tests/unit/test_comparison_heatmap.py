"""The matrix of ratios, against hand-computed values."""

import math
import re

import pytest
from comparison_results import cell_of, results_of
from synthetic import train_cell
from typed import comparisons_table, launches_in

from regatta.report.matrix import MOST_ROWS_DENSE
from regatta.tables.pairs import judged_rows, num_within
from regatta.topics.comparison.comparison_figures import difference_text, ratio_matrices
from regatta.topics.comparison.comparison_findings import compared_findings
from regatta.topics.comparison.texts import is_equal, with_labels

FIVE = [1.00, 1.01, 1.02, 1.03, 1.04]
SIX = [1.00, 1.01, 1.02, 1.03, 1.04, 1.05]


def times_of(ratios, launches=FIVE):
    """Return the launches of contained and bound for each size, in two batches: not paired."""
    times = []
    for size, ratio in ratios.items():
        for stack, factor in (("contained", 1.0), ("bound", ratio)):
            values = launches if factor is None else [factor * value for value in launches]
            times.append((cell_of(stack, size), values, [f"{stack}-0"] * len(launches)))
    return times


def compared(times, **fields):
    return comparisons_table(*results_of(times, **fields))


def squares_of(matrix):
    return {(square.group[-1], square.row, square.column): square for square in matrix.squares}


def rows_of(matrix):
    return [row for rows in matrix.groups.values() for row in rows]


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(1.021, "+2.1"), (0.96, "−4.0"), (1.0, "0.0"), (1.0001, "0.0"), (0.9999, "0.0"), (1.5, "+50"), (0.5, "−50")],
)
def test_a_square_shows_the_difference_in_percent(ratio, text):
    assert difference_text(ratio) == text


def test_each_pair_has_one_square_with_its_ratio_color_and_verdict():
    table = compared(times_of({4096: 1.5, 8192: 1.0, 16384: 0.5, 32768: 1.1}))
    (matrix,) = ratio_matrices(table, {})
    squares = squares_of(matrix)
    found = {row: (s.text, s.state) for (_, row, _), s in squares.items()}
    assert found == {
        "4 KiB": ("+50", "slower above"),
        "8 KiB": ("0.0", "equivalent"),
        "16 KiB": ("−50", "faster below"),
        "32 KiB": ("+10", "slower above"),  # the range is 1.1 x (1.00 / 1.04) = 1.058 to 1.144
    }
    assert rows_of(matrix) == ["4 KiB", "8 KiB", "16 KiB", "32 KiB"]
    assert matrix.columns == ("1×2",)
    levels = {row: square.level for (_, row, _), square in squares.items()}
    assert levels["8 KiB"] is None
    assert levels["32 KiB"] == pytest.approx(math.log(1.1) / math.log(1.05) / 2)  # full at twice the margin
    assert sorted(cell for square in squares.values() for cell in square.cells) == sorted(table["cell"])


def test_workloads_and_settings_go_down_and_shapes_across():
    times = []
    for stack, factor in (("contained", 1.0), ("bound", 1.02)):
        for model in ("resnet18", "resnet50"):
            for nodes, bucket in ((2, 1), (2, 25), (1, 1)):
                cell = train_cell(model, nodes, 4, bucket=bucket, stack=stack)
                cell["spec"]["stack"] |= {"binds": [stack]}
                times.append((cell, [factor * value for value in SIX], [f"{stack}-{nodes}"] * 6))
    table = compared(times)
    (matrix,) = ratio_matrices(table, {})
    assert matrix.columns == ("1×4", "2×4")
    assert [group[-1] for group in matrix.groups] == ["ResNet-18", "ResNet-50"]
    assert len(squares_of(matrix)) == len(table) == 6
    assert list(map(len, next(iter(matrix.groups.values())).values())) == [2, 1]
    assert {square.text for square in squares_of(matrix).values()} == {"+2.0"}


def test_each_pair_of_values_has_its_own_matrix():
    times = [(cell_of("bound", size), FIVE) for size in (4096, 8192, 16384)]
    versus = {"axis": "message_bytes", "reference": 8192, "margin": None}
    found = ratio_matrices(compared(times, versus=versus), {})
    assert len({matrix.label for matrix in found}) == 2
    assert all(size in matrix.caption for size, matrix in zip(("4 KiB", "16 KiB"), found, strict=True))


def test_one_cell_with_several_references_has_a_square_for_each():
    """A cell without DDP is paired with DDP of every bucket size: never an average."""
    cells = [train_cell("resnet18", 1, 2, bucket=bucket) for bucket in (1, 25)]
    cells.append(train_cell("resnet18", 1, 2, "none"))
    times = [(cell, [factor * t for t in SIX]) for cell, factor in zip(cells, (1.0, 2.0, 1.0), strict=True)]
    table = compared(times, versus={"axis": "strategy", "reference": "ddp", "margin": None})
    names = {cells[0]["id"]: "one", cells[1]["id"]: "twenty-five"}
    (matrix,) = ratio_matrices(table, names)
    assert sorted(square.text for square in squares_of(matrix).values()) == ["0.0", "−50"]
    assert rows_of(matrix) == ["vs. one", "vs. twenty-five"]


def test_a_pair_without_valid_launches_has_an_empty_mark():
    times = times_of({4096: 1.5, 8192: 1.0})
    times[3] = (times[3][0], ["failed"] * 5)
    squares = squares_of(ratio_matrices(compared(times), {})[0])
    assert {row: square.state for (_, row, _), square in squares.items()} == {
        "4 KiB": "slower above",
        "8 KiB": "missing",
    }
    assert ratio_matrices(compared(times[2:]), {}) == ()


def test_rows_are_in_the_order_of_their_sizes():
    sizes = [2**30, 4096, 2**20, 1024]
    (matrix,) = ratio_matrices(compared(times_of(dict.fromkeys(sizes, 1.5))), {})
    assert rows_of(matrix) == ["1 KiB", "4 KiB", "1 MiB", "1 GiB"]


def test_rows_that_are_equivalent_are_one_row_with_their_median():
    ratios = {1024: 1.0, 2048: 1.02, 4096: 0.99, 8192: 1.5, 16384: 1.01}
    (matrix,) = ratio_matrices(compared(times_of(ratios)), {})
    squares = {square.row: square for square in matrix.squares}
    assert len(squares) == 2
    assert squares.pop("8 KiB").text == "+50"
    (square,) = squares.values()
    assert (square.text, square.state, len(square.cells), len(square.others)) == ("+0.5", "equivalent", 4, 4)
    assert re.findall(r"\d\.\d", square.note) == ["1.0", "2.0"]
    (matrix,) = ratio_matrices(compared(times_of({1024: 1.0, 2048: 1.02})), {})
    assert rows_of(matrix) == ["1 KiB", "2 KiB"]


def summary_of(matrix):
    [rows] = matrix.groups.values()
    return matrix.summary_of(rows)


def test_many_rows_are_low_and_more_are_folded_by_subject_and_counted():
    ratios = {4096 * i: 0.5 if i == 4 else 1.5 for i in range(1, MOST_ROWS_DENSE + 2)}
    (matrix,) = ratio_matrices(compared(times_of(ratios)), {})
    assert (matrix.is_dense, matrix.open_and_folded) == (False, ({}, matrix.groups))
    assert re.findall(r"\d+", summary_of(matrix)) == ["201", "200", "1"]
    (matrix,) = ratio_matrices(compared(times_of({4096 * i: 1.5 for i in range(1, MOST_ROWS_DENSE + 1)})), {})
    assert (matrix.is_dense, matrix.open_and_folded) == (True, (matrix.groups, {}))


def test_significant_pairs_within_the_margin_are_counted_alike_everywhere():
    """Of 41 pairs, 40 are 2 % slower and one is equal: none is beyond the margin of 5 %."""
    before = [1.000, 1.002, 1.004, 1.006, 1.008, 1.010]
    sizes = [4096 * i for i in range(1, 42)]
    after = {size: before[::-1] if size == 4096 else [1.02 * value for value in before] for size in sizes}
    times = [(cell_of("contained", size), before, ["a-0"] * 6) for size in sizes]
    times += [(cell_of("bound", size), after[size], ["b-0"] * 6) for size in sizes]
    table = compared(times)
    judged = judged_rows(table)
    assert num_within(judged) == {"slower": 40, "faster": 0}
    found, verdicts = compared_findings(with_labels(judged), launches_in(*results_of(times)))
    assert (found.values["by_verdict"]["equivalent"], found.values["num_within"]) == (41, {"slower": 40, "faster": 0})
    for text in (verdicts.words["verdicts"], summary_of(ratio_matrices(table, {})[0]), found.words["outcomes"]):
        assert re.findall(r"(\d+) (\w+) within", text) == [("40", "slower")]
    assert not is_equal(judged)
    assert is_equal(judged[judged["message_bytes"] == 4096])


def test_a_slower_cell_whose_margin_is_not_settled_is_inconclusive_and_significant():
    """Median ratio 1.06; the interval excludes 1 and contains 1.05."""
    before = [1.000, 1.002, 1.004, 1.006, 1.008, 1.010, 1.012, 1.014, 1.016, 1.018]
    after = [1.055 * value for value in before]
    times = [(cell_of("contained"), before, ["a-0"] * 10), (cell_of("bound"), after, ["b-0"] * 10)]
    table = compared(times)
    (row,) = table.itertuples()
    assert (row.verdict, 1 < row.time_low_ratio < 1.05 < row.time_high_ratio) == ("inconclusive", True)
    assert row.p_adjusted < 0.001
    found, verdicts = compared_findings(with_labels(judged_rows(table)), launches_in(*results_of(times)))
    assert (found.values["by_verdict"]["inconclusive"], found.values["num_unsettled"]) == (1, 1)
    assert ([part["outcome"] for part in found.values["parts"]], found.words["num_open"]) == (["slower"], 1)
    assert verdicts.words["verdicts"] == f"1 {row.verdict} (1 significant)"
    (square,) = squares_of(ratio_matrices(table, {})[0]).values()
    assert square.state == "unsettled above"
