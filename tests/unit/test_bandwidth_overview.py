"""The heatmap of many bus bandwidths: each share of its whole, and the figures that stay open beside it."""

import re

import pytest
from synthetic import CLUSTER, analyse, collective_cell, make_campaign, make_report, write_results
from test_links import linked_report

from regatta.topics.bandwidth_overview import OF_HIGHEST, OF_PEAK, bandwidth_overview, most_different
from regatta.topics.communication import MOST_FIGURES_OPEN, section

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
SHAPES = ((1, 2), (1, 4), (2, 4))
SIZES = (2**16, 2**22)


def cells_of(operations=OPERATIONS) -> list[dict]:
    return [collective_cell(size, *shape, of) for of in operations for shape in SHAPES for size in SIZES]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    cells = [*cells_of(), collective_cell(2**16, 1, 1, "all_reduce"), collective_cell(None, 1, 2, "barrier")]
    lost = {(cells[0]["id"], 0): ("failed", "setup", "boom")}
    lost |= {(cell["id"], repeat): ("failed", "setup", "boom") for cell in cells[6:8] for repeat in range(3)}
    return write_results(tmp_path_factory.mktemp("many") / "r", make_campaign(cells, repeats=3), CLUSTER, lost)


def test_each_square_is_in_percent_of_the_highest_of_its_operation(results):
    data = analyse(results)
    matrix = bandwidth_overview(data)
    assert (matrix.columns, matrix.is_dense) == (("1×2", "1×4", "2×4"), True)
    assert OF_HIGHEST in matrix.notes[0]
    table = data.cells_of("collective").set_index("cell")
    squares = matrix.squares
    assert len(squares) == len(OPERATIONS) * len(SHAPES)
    states = []
    for square in squares:
        rows = table.loc[list(square.cells)]
        states.append(square.state)
        if square.state == "failed":
            assert square.text == "✗"
            continue
        of_operation = table.loc[table["operation"] == rows["operation"].iloc[0], "busbw_gb_per_s"]
        rows = rows[rows["num_launches"] == rows["num_launches"].max()]
        share = float(rows["busbw_gb_per_s"].max() / of_operation.max())
        assert square.level == pytest.approx(share)
        assert float(square.text) == pytest.approx(100 * share, abs=0.5)
    assert sorted(filter(None, states)) == ["failed", "partial"]


def test_two_figures_stay_open_and_the_others_are_folded_below_a_heatmap(results):
    data = analyse(results)
    found = section(data)
    [_, more] = found.parts
    titles = [one.title for one in (*found.figures, *more.figures)]
    assert len(found.figures) == 2
    assert len(set(titles)) == len(titles) == len(OPERATIONS) > MOST_FIGURES_OPEN
    assert "all-reduce" in titles[0]
    assert most_different(found.content["matrices"][0]) in titles[1]
    part = make_report(results).read_text().partition('<section id="communication"')[2].partition("</section>")[0]
    assert part.partition('id="bandwidths"')[2].count("<figure") == len(OPERATIONS) - 2
    assert len(re.findall(r'<td[^>]* data-cell="', part)) == len(OPERATIONS) * len(SHAPES)


def test_where_all_peaks_are_known_the_whole_is_the_peak_and_few_figures_have_no_heatmap(tmp_path):
    cells = [
        collective_cell(2**22, *shape, of, device="cuda", backend="nccl", cluster="tiny")
        for of in OPERATIONS[:2]
        for shape in SHAPES
    ]
    data = linked_report(tmp_path, cells)
    matrix = bandwidth_overview(data)
    assert OF_PEAK in matrix.notes[0]
    shares = data.cells_of("collective").set_index("cell")["peak_ratio"]
    for square in matrix.squares:
        assert square.level == pytest.approx(max(float(shares[cell]) for cell in square.cells))
    assert not section(data).template
