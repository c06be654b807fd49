"""Variation between launches and samples by launch in the report: numbers computed by hand."""

import json
import re

import numpy as np
import pytest
from synthetic import LAPTOP, analyse, edit_records, make_campaign, make_report, train_cell, write_results
from synthetic_waits import write_waits
from typed import stack_styles

from regatta.report.lines import Panel, PlotAxis, Point, Series
from regatta.store.csv_files import make_table
from regatta.topics.base import Topic
from regatta.topics.catalog import _tables_of, sections
from regatta.topics.stability import LAUNCH_RANGES, ecdf_figures, iteration_times, most_variable, variation_figure


def ranges_of(**ratios):
    rows = [
        {"cell": cell, "num_launches": 1 if ratio is None else 3, "median_s": 0.1, "min_s": 0.1, "max_s": 0.1}
        | {"range_ratio": ratio}
        for cell, ratio in ratios.items()
    ]
    return make_table(rows, LAUNCH_RANGES)


def data_of(folder, cells, repeats=3, **options):
    return analyse(write_results(folder, make_campaign(cells, repeats=repeats, **options), LAPTOP))


def part_of(data, part):
    [stability] = [section for section in sections(data) if section.id == "stability"]
    return next((found for found in stability.parts if found.id == part), None)


def test_the_most_variable_cell_comes_first_and_a_single_launch_not_at_all():
    ranges = ranges_of(b9=0.02, b10=0.02, c=None, d=0.3, e=0.051)
    assert most_variable(ranges)["cell"].tolist() == ["d", "e", "b9", "b10"]


def test_each_cell_has_a_mark_in_the_color_of_its_stack(drawing):
    cells = [train_cell("resnet18", 1, g, stack=stack) for stack in ("one", "two") for g in (1, 2)]
    ids = [cell["id"] for cell in cells]
    styles = stack_styles(make_campaign(cells))
    assert [styles[cell].label for cell in ids] == ["one", "one", "two", "two"]
    ranges = ranges_of(**dict(zip(ids, (0.01, 0.02, 0.5, None), strict=True)))
    figure = variation_figure(most_variable(ranges), styles, {cell: cell for cell in ids}, "cpu")
    assert sorted(re.findall(r'data-cell="([^"]*)"', figure.svg)) == sorted(ids[:3])
    assert [(entry.label, entry.css_color) for entry in figure.legend] == [
        ("one", "var(--hue-1)"),
        ("two", "var(--hue-2)"),
    ]
    assert [row[-1] for row in figure.table.rows] == ["50.0", "2.00", "1.00"]
    assert "logarithmic" in figure.svg
    within = variation_figure(most_variable(ranges.iloc[:2]), styles, {cell: cell for cell in ids}, "cpu")
    assert "logarithmic" not in within.svg
    assert within.legend == (), "one stack needs no legend"


def test_the_most_variable_of_many_cells_are_drawn_in_two_layers_and_counted():
    """Both stacks are measured everywhere: the marks of the second must not cover those of the first."""
    cells = [train_cell(f"m{n}", 1, 2, stack=stack) for n in range(600) for stack in ("one", "two")]
    ids = [cell["id"] for cell in cells]
    ranges = ranges_of(**{cell: 0.04 - 1e-5 * place for place, cell in enumerate(ids)})
    names = {cell: cell for cell in ids}
    figure = variation_figure(ranges, stack_styles(make_campaign(cells)), names, "cpu")
    assert len(figure.chart.values) == 1000
    assert re.findall(r"[\d,]+", figure.chart.x)[1:] == ["1,000", "1,200"]
    assert list(figure.chart.mark_sizes.values()) == [5.0, 1.5]
    few = variation_figure(ranges.head(4), stack_styles(make_campaign(cells)), names, "cpu")
    assert not re.search(r"\d", few.chart.x)


def test_samples_are_those_of_the_slowest_rank_by_launch(tmp_path):
    cell = train_cell("resnet18", 1, 2)
    folder = write_results(tmp_path / "r", make_campaign([cell], repeats=2), LAPTOP)
    for record in edit_records(folder):
        num = len(record["samples_ns"][0])
        record["samples_ns"] = [[1_000_000 * (record["repeat"] + 1)] * num, [3_000_000] + [500_000] * (num - 1)]
    data = analyse(folder)
    samples = iteration_times(data.ok, cell["id"], data.launches)
    assert list(samples) == [0, 1]
    assert sorted(set(samples[0].tolist())) == pytest.approx([0.001, 0.003])
    assert sorted(set(samples[1].tolist())) == pytest.approx([0.002, 0.003])


def test_distributions_are_those_of_the_five_most_variable_cells(tmp_path):
    cells = [train_cell("resnet18", 1, 1, "ddp", bucket) for bucket in (1, 2, 3, 4, 5, 6, 7)]
    data = data_of(tmp_path / "r", cells)
    ratios = {cell["id"]: 0.01 * place for place, cell in enumerate(cells)}
    rows = most_variable(ranges_of(**ratios))
    styles = stack_styles(data.campaign)
    figures = ecdf_figures(rows, data.ok, data.launches, styles, data.names)
    assert [figure.id for figure in figures] == [f"ecdf-{number}" for number in range(1, 6)]
    assert [figure.title.rpartition(" ")[0][-1] for figure in figures] == ["7", "6", "5", "4", "3"]  # bucket sizes
    assert [entry.label for entry in figures[0].legend] == ["launch 1", "launch 2", "launch 3"]
    assert len({(entry.dashes, entry.opacity) for entry in figures[0].legend}) == 3
    assert len({figure.table.caption for figure in figures}) == 5
    still = most_variable(ranges_of(**{cells[0]["id"]: 0.0}))
    assert ecdf_figures(still, data.ok, data.launches, styles, data.names) == ()


def test_a_cell_whose_times_cannot_be_read_has_no_distribution(tmp_path):
    data = data_of(tmp_path / "r", [train_cell("resnet18", 1, 1)])
    rows = most_variable(data.tables["launch_ranges"])
    for path in data.launches.glob("*.jsonl"):
        path.write_text("rubbish\n", encoding="utf-8")
    assert ecdf_figures(rows, data.ok, data.launches, stack_styles(data.campaign), data.names) == ()


def test_distributions_are_folded_where_few_cells_vary(tmp_path, monkeypatch):
    data = data_of(tmp_path / "r", [train_cell("resnet18", 1, g) for g in (1, 2)])
    assert data.tables["launch_ranges"]["range_ratio"].max() < 0.05
    assert part_of(data, "launch-times").summary
    monkeypatch.setattr("regatta.topics.stability.DISAGREEMENT_RATIO", 0.0)
    assert not part_of(data, "launch-times").summary


def test_without_a_straggler_the_times_by_rank_are_folded(tmp_path):
    none = analyse(write_waits(tmp_path / "none", (2, 4), {}))
    part = part_of(none, "stragglers")
    assert part.summary
    [figure] = part.figures
    assert [row[0] for row in figure.table.rows] == [str(rank) for rank in range(8)]
    assert {row[1] for row in figure.table.rows} == {"node000", "node001"}
    slow = part_of(analyse(write_waits(tmp_path / "slow", (2, 4), {3: 0.06})), "stragglers")
    assert slow.summary == ""
    assert [figure.id for figure in slow.figures] == ["rank-times"]


def test_quantiles_by_rank_are_those_of_the_record(tmp_path):
    data = analyse(write_waits(tmp_path / "r", (1, 2), {}, repeats=1))
    ok = data.ok.sort_values("line")
    record = json.loads(
        next(data.launches.glob("*.jsonl")).read_text(encoding="utf-8").splitlines()[int(ok["line"].iloc[0]) - 1]
    )
    [figure] = part_of(data, "stragglers").figures
    assert [float(row[3]) for row in figure.table.rows] == pytest.approx(
        [float(np.median(times)) * 1e-3 for times in record["samples_ns"]], rel=0.005
    )


def test_of_one_rank_nothing_is_said_about_stragglers(tmp_path):
    assert part_of(data_of(tmp_path / "r", [train_cell("resnet18", 1, 1)]), "stragglers") is None


def test_parts_of_the_section_keep_their_anchors(tmp_path):
    folder = write_results(tmp_path / "r", make_campaign([train_cell("resnet18", 1, g) for g in (1, 2)]), LAPTOP)
    page = make_report(folder).read_text(encoding="utf-8")
    section = page.partition('<section id="stability"')[2].partition("</section>")[0]
    places = [section.index(f'<div id="{part}"') for part in ("warnings", "launch-times", "percentiles")]
    assert places == sorted(places)
    assert page.index('id="stability"') < page.index('<section id="failures"')
    assert '<a href="#warnings" aria-label="Evidence: Confidence">' in page


def test_a_part_of_no_topic_is_an_error():
    with pytest.raises(ValueError, match="'lost' is part_of"):
        _tables_of((Topic("lost", "Lost", part_of="nothing"),))


def test_a_hostile_stack_is_text_in_the_legend_alone(drawing):
    evil = '"><script>alert(1)</script>$x$' + "\x1b[31m" + "a" * 10_000
    cells = [train_cell("resnet18", 1, g) for g in (1, 2)]
    cells[0]["spec"]["stack"]["name"] = evil
    ids = [cell["id"] for cell in cells]
    styles = stack_styles(make_campaign(cells))
    figure = variation_figure(ranges_of(**dict.fromkeys(ids, 0.1)), styles, dict(zip(ids, ids, strict=True)), "cpu")
    assert "script" not in figure.svg
    assert "aaaa" not in figure.svg
    assert evil in [entry.label for entry in figure.legend]


def test_ticks_keep_digits_that_tell_them_apart(drawing):
    ticks = tuple((value, f"{value:.4f}") for value in (0.0301, 0.0302, 0.0303))
    line = Series("a", tuple(Point(value, (value,), value) for value, _ in ticks))
    svg = Panel(PlotAxis("x", ticks=ticks), PlotAxis("y"), (line,)).draw("f", "x")
    assert ">0.0301</text>" in svg
    assert not re.search(r'[ "]\d+\.\d{3,}', svg.replace(">0.03", "")), "coordinates have two decimals"
