"""Strips with a row for each cell, the labels of rows and lines, and which figure the first screen has."""

import re

import pandas as pd
import pytest
from synthetic import CLUSTER, analyse, cluster_campaign, make_campaign, train_cell, write_results

from regatta.report.headline import figures_of_page, headline_figure, without_headline
from regatta.report.labels import shortened, split_common, wrapped
from regatta.report.lines import Panel, PlotAxis, Point, Series
from regatta.report.panels import Figure, Section, Table
from regatta.report.row_strips import MOST_ROWS, RowStrip, chart_of, has_bands
from regatta.report.svg import COLORS
from regatta.topics.catalog import drawn_figures
from regatta.topics.comparison.changes import changes_figure


def row(label: str, value: float, x: float = 1.0, **changes) -> Series:
    ends = (0.9 * value, 1.1 * value)
    return Series(label, (Point(x, (0.95 * value, value), value, cell=label, ends=ends),), **changes)


RANKS = PlotAxis("GPUs (nodes × GPUs per node)", ticks=((1, "1\n1×1"),))


def panel_of(*series: Series, x: PlotAxis = RANKS, **changes):
    return Panel(x, PlotAxis("Efficiency (%)", low=0), series, **changes)


CATEGORIES = PlotAxis.of_categories("", ["batch 8\nno mode", "batch 8\nmode fast"])
TWO_STACKS = [
    Series(stack, tuple(Point(place, (value,), value, cell=f"{stack}{place}") for place, value in enumerate(values)))
    for stack, values in (("bound", (285.0, 321.0)), ("contained", (286.0, 322.0)))
]


@pytest.mark.parametrize(
    ("panel", "is_strip"),
    [
        (panel_of(row("ddp", 90)), True),
        (panel_of(row("ddp", 90), row("fsdp", 80)), True),
        (panel_of(row("ddp", 90), row("fsdp", 80, x=2.0)), False),
        (panel_of(*TWO_STACKS), False),
        (panel_of(*TWO_STACKS, x=CATEGORIES), True),
        (panel_of(), False),
    ],
)
def test_a_panel_with_one_place_or_places_without_an_order_has_rows(panel, is_strip):
    assert isinstance(chart_of(panel), RowStrip) is is_strip


def test_each_series_of_one_place_has_a_row_named_without_what_all_share():
    strip = RowStrip(panel_of(row("ddp\nbound", 99.2), row("ddp\ncontained", 97.44)))
    assert [(one.label, strip.number_of(one)) for one in strip.rows] == [("bound", "99.2"), ("contained", "97.4")]
    assert strip.heading == "Efficiency (%) · GPUs: 1 (1×1) · ddp"


def test_categories_are_rows_in_their_order_with_each_stack_below_the_other():
    strip = RowStrip(panel_of(*TWO_STACKS, x=CATEGORIES))
    wanted = [("no mode", "bound"), ("no mode", "contained"), ("mode fast", "bound"), ("mode fast", "contained")]
    assert [tuple(one.label.replace("\n", " · ").split(" · ")) for one in strip.rows] == wanted
    assert [strip.number_of(one) for one in strip.rows] == ["285", "286", "321", "322"]
    assert strip.heading == "Efficiency (%) · batch 8"


def test_the_shapes_of_one_size_have_a_row_each():
    points = tuple(Point(4.0, (value,), value, shape=shape) for shape, value in (("1×4", 90.0), ("2×2", 80.0)))
    strip = RowStrip(panel_of(Series("ddp", points), Series("fsdp", points[:1])))
    assert [one.label for one in strip.rows] == ["ddp · 1×4", "ddp · 2×2", "fsdp"]


def test_the_height_follows_the_number_of_rows():
    heights = [RowStrip(panel_of(*(row(f"s{n}", 50) for n in range(num)))).size_in[1] for num in (6, 7, 12)]
    assert heights[1] - heights[0] == pytest.approx((heights[2] - heights[1]) / 5)
    assert heights[0] < heights[2] < 2 * heights[0]


def test_of_too_many_rows_those_of_the_context_share_one():
    series = [row("best", 90), *(row(f"other {n}", 50 + n, is_context=True) for n in range(MOST_ROWS))]
    strip = RowStrip(panel_of(*series, context="other bucket sizes"))
    assert [one.label for one in strip.rows] == ["best", "other bucket sizes"]
    assert len(strip.rows[1].points) == MOST_ROWS
    assert strip.number_of(strip.rows[1]) == ""
    assert len(RowStrip(panel_of(*series[:MOST_ROWS])).rows) == MOST_ROWS


@pytest.mark.parametrize(
    ("values", "is_log", "ends"),
    [
        ((285, 321), False, (270, 336)),  # far from 0
        ((285, 321), True, (270, 336)),
        ((100, 100.01), False, (97, 103)),  # equal: not enlarged
        ((10, 321), False, (0, 340)),
        ((1, 321), True, (0.9, 500)),
    ],
)
def test_the_axis_begins_near_values_that_are_far_from_0(values, is_log, ends):
    series = tuple(Series(str(value), (Point(1.0, (value,), value),)) for value in values)
    axis = RowStrip(Panel(PlotAxis("x"), PlotAxis("y", is_log, low=None if is_log else 0), series)).axis
    assert axis.is_log is (is_log and values[0] == 1)
    if axis.low:
        assert ends[0] < axis.low <= values[0]
        assert values[1] <= axis.high < ends[1]
    else:
        assert (axis.low or 0, axis.high) == (0, None)


def test_a_strip_draws_launches_value_interval_and_guide(drawing):
    strip = RowStrip(panel_of(row("ddp", 90), row("fsdp", 80), guides=(("100 %", ((1, 100), (1, 100))),)))
    svg = strip.draw("f", "x")
    assert re.findall(r'data-cell="(\w+)"', svg) == ["ddp", "ddp", "fsdp", "fsdp"]  # launches, value
    assert re.findall(r'data-line="(\w+)"', svg) == ["ddp", "fsdp"]  # bands
    assert {"ddp", "fsdp", "100 %", "90", "80"} <= {*re.findall(r">([^<>]*)</text>", svg)}
    assert strip.lines == [("100 %", 100)]
    assert strip.legend == ()
    assert has_bands([strip])
    assert not has_bands([RowStrip(panel_of(*TWO_STACKS, x=CATEGORIES)), panel_of(*TWO_STACKS)])


def test_the_marks_of_a_strip_have_the_ends_of_intervals():
    rows = RowStrip(panel_of(row("ddp", 90))).marks().rows
    assert [(cell, mark, value) for cell, _, _, mark, _, value in rows] == [
        ("ddp", "value", 90),
        ("ddp", "launch 1", pytest.approx(85.5)),
        ("ddp", "launch 2", 90),
        ("ddp", "low", 81),
        ("ddp", "high", pytest.approx(99)),
    ]


@pytest.mark.parametrize(
    ("labels", "common", "rest"),
    [
        ([], "", []),
        (["ddp\nbound"], "", ["ddp · bound"]),
        (["ddp\nbound", "ddp\ncontained"], "ddp", ["bound", "contained"]),
        (["ddp bucket 1 MiB", "ddp bucket 25 MiB"], "ddp", ["bucket 1 MiB", "bucket 25 MiB"]),
        (["batch 8 · no mode", "batch 8 · no compile"], "batch 8", ["no mode", "no compile"]),
        (["ddp", "ddp · bound"], "", ["ddp", "ddp · bound"]),  # the first would be empty
        (["ddp", "ddp"], "", ["ddp", "ddp"]),
    ],
)
def test_labels_are_without_what_all_have_in_common(labels, common, rest):
    assert split_common(labels) == (common, rest)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("bound", ["bound"]),
        ("ResNet-50 · bound", ["ResNet-50", "bound"]),
        ("other bucket sizes", ["other", "bucket sizes"]),
        ("Transformer small · a · b", ["Transformer small", "a · b"]),
        ("a" * 20, ["a" * 20]),
    ],
)
def test_long_labels_have_two_lines(text, lines):
    assert wrapped(text, 14).split("\n") == lines
    assert [len(line) for line in shortened("\n".join(lines), 10).split("\n")] == [min(len(line), 10) for line in lines]


def section(name: str, *charts, headline=None) -> Section:
    figures = tuple(Figure(f"{name}-{n}", f"{name}-{n}", chart, Table("", (), ())) for n, chart in enumerate(charts))
    first = headline and Figure(name, name, headline, Table("", (), ()))
    return Section(name, "", figures=figures, headline=first)


ONE, SEVERAL = RowStrip(panel_of(row("ddp", 90))), RowStrip(panel_of(row("ddp", 90), row("fsdp", 80)))
CURVE = panel_of(Series("ddp", (Point(1.0, (1.0,), 1.0, cell="a"), Point(2.0, (1.0,), 1.0, cell="b"))))


@pytest.mark.parametrize(
    ("sections", "title"),
    [
        ([section("scaling", CURVE), section("comparisons", headline=SEVERAL)], "scaling-0"),
        ([section("scaling", SEVERAL), section("comparisons", headline=ONE)], "comparisons"),
        ([section("scripts", SEVERAL, CURVE), section("comparisons", headline=SEVERAL)], "scripts-0"),  # of two sizes
        ([section("scaling", SEVERAL), section("scripts", CURVE)], "scaling-0"),
        ([section("scaling", ONE), section("scripts", ONE, CURVE)], "scripts-1"),
        ([section("scaling", ONE)], "scaling-0"),
        ([section("comparisons", headline=SEVERAL)], "comparisons"),
        ([section("sweep", headline=CURVE), section("comparisons", headline=SEVERAL)], "sweep"),
    ],
)
def test_without_several_places_the_first_screen_has_what_is_compared(sections, title):
    assert headline_figure(sections).title == title


@pytest.mark.parametrize(
    ("sections", "nums"),
    [
        ([section("communication", CURVE), section("stability", CURVE)], [0, 1]),
        ([section("communication", CURVE, CURVE)], [2]),
        ([section("scaling", CURVE, headline=CURVE)], [1]),
        ([section("stability", CURVE)], [1]),
        ([section("scaling", ONE), section("comparisons", headline=SEVERAL)], [1, 0]),
        ([section("stability")], [0]),
    ],
)
def test_the_only_figure_of_a_section_is_shown_once(sections, nums):
    assert [len(one.figures) for one in without_headline(sections)] == nums
    assert len(figures_of_page(sections, False)) == sum(nums) + (headline_figure(sections) is not None)


def report_of(tmp_path, cells):
    return {one.id: one for one in drawn_figures(analyse(write_results(tmp_path / "r", make_campaign(cells), CLUSTER)))}


def test_one_shape_with_two_stacks_compares_them_first(tmp_path):
    stacks = ("bound", "contained")
    cells = [train_cell("resnet50", 1, 1, "none", stack=stack) for stack in stacks]
    cells += [train_cell("resnet50", 1, 1, bucket=bucket, stack=stack) for bucket in (1, 25) for stack in stacks]
    for cell in cells:
        cell["spec"]["stack"]["binds"] = [cell["spec"]["stack"]["name"]]  # else the stacks are identical
    figures = report_of(tmp_path, cells)
    strip = figures["headline"].chart
    assert strip.panel.y.label == "Change in time (%)"
    assert len(strip.rows) == 3
    assert {one.label for one in strip.rows} == {"no DDP", "ddp · bucket 1 MiB", "ddp · bucket 25 MiB"}
    assert isinstance(figures["efficiency-1"].chart, RowStrip)
    assert len(figures["efficiency-1"].chart.rows) == 4  # with the other bucket size


def test_one_shape_with_one_stack_shows_the_efficiency_of_each_workload(tmp_path):
    cells = [train_cell(model, 1, 2, strategy) for model in ("resnet50", "resnet101") for strategy in ("ddp", "fsdp")]
    cells += [train_cell(model, 1, 1, "none") for model in ("resnet50", "resnet101")]
    strip = report_of(tmp_path, cells)["headline"].chart
    assert isinstance(strip, RowStrip)
    assert len(strip.rows) == 4
    assert [name for name, _ in strip.lines] == ["100 %"]


def test_changes_have_verdicts_beside_their_numbers_the_largest_first():
    rows = pd.DataFrame(
        {
            "cell": ["a", "b"],
            "benchmark": "train_step",
            "model": ["resnet50", "resnet101"],
            "axis": "stack",
            "value": "x",
            "reference_value": "y",
            "nodes": 1,
            "gpus_per_node": 1,
            "time_ratio": [1.01, 0.5],
            "time_low_ratio": [0.99, None],
            "time_high_ratio": [1.02, None],
            "interval": ["interval", None],
            "margin_ratio": 0.05,
            "verdict": ["equivalent", "faster"],
        }
    )
    figure = changes_figure(rows)
    strip = figure.chart
    assert [strip.number_of(one).split("\n") for one in strip.rows] == [["−50", "faster"], ["+1.0", "equivalent"]]
    assert [place for _, place in strip.lines] == pytest.approx([5, 100 / 1.05 - 100])
    assert [one.points[0].reported for one in strip.rows] == pytest.approx([-50, 1])
    assert strip.rows[0].points[0].ends is None
    assert strip.rows[1].points[0].ends == pytest.approx((-1, 2))
    assert (strip.axis.low, strip.axis.high) == pytest.approx((-50 - 0.06 * 56.5, 6.5 + 0.06 * 56.5))
    assert [line[3] for line in figure.table.rows] == ["n/a", "[−1.0, +2.0]"]


def test_a_stack_has_one_color_in_all_figures_of_a_page_and_one_marker_where_it_has_one_line(tmp_path):
    """Also where a table has one of the two stacks alone, and on one shape, where cells are rows."""
    cells = cluster_campaign(repeats=3)["cells"]
    only_bound = {"n08g04", "n02g04"}
    kept = [
        c for c in cells if not (c["spec"]["stack"]["name"] == "contained" and c["id"].split("-")[-3] in only_bound)
    ]
    for name, chosen in (("all", cells), ("some", kept), ("one", [c for c in cells if "n01g02" in c["id"]])):
        data = analyse(write_results(tmp_path / name, make_campaign(chosen, repeats=3, device="cuda"), CLUSTER))
        stacks = {cell.id: cell.stack.name for cell in data.campaign.cells}
        colors, found = styles_by(data, stacks)
        assert colors == {"contained": {COLORS[0]}, "bound": {COLORS[1]}}, name
        assert found == {"contained": {(COLORS[0], "o")}, "bound": {(COLORS[1], "s")}}, name


def test_with_one_stack_a_strategy_has_one_color_and_one_marker_in_all_figures(tmp_path):
    cells = [cell for cell in cluster_campaign(repeats=3)["cells"] if cell["spec"]["stack"]["name"] == "bound"]
    data = analyse(write_results(tmp_path / "r", make_campaign(cells, repeats=3, device="cuda"), CLUSTER))
    strategies = {cell.id: cell.parameters["strategy"] for cell in data.campaign.cells if "strategy" in cell.parameters}
    assert styles_by(data, strategies)[1] == {"ddp": {(COLORS[0], "o")}, "none": {(COLORS[1], "s")}}


def styles_by(data, values):
    """Return the colors of each value, and its colors and markers in figures where it has one line.

    No two lines of a figure have the same color and marker. values: by cell.
    """
    colors, found = {}, {}
    for figure in drawn_figures(data):
        of_figure = {}
        for of_cells, style in styles_in(figure.chart):
            of = {values[cell] for cell in of_cells if cell in values}
            if len(of) == 1 and style.marker and style.color in COLORS:
                of_figure.setdefault(of.pop(), []).append((style.color, style.marker))
        for value, styles in of_figure.items():
            colors.setdefault(value, set()).update(color for color, _ in styles)
            if len(set(styles)) == 1:
                found.setdefault(value, set()).update(styles)
        if isinstance(figure.chart, Panel):
            lines = [style for styles in of_figure.values() for style in styles]
            assert len(lines) == len(set(lines)), figure.title
    return colors, found


def styles_in(chart):
    if isinstance(chart, RowStrip):
        return [([point.cell for point in row.points], row.style) for row in chart.rows if not row.is_context]
    return [(entry.cells, entry) for entry in chart.legend]
