"""Which figure the first screen has, the figure of changes, and colors of stacks in all figures."""

import pandas as pd
import pytest
from drawn import chart, mark
from synthetic import CLUSTER, analyse, cluster_campaign, make_campaign, train_cell, write_results

from regatta.report.chart import COLORS
from regatta.report.panels import Figure, Section, Table
from regatta.topics.catalog import drawn_figures
from regatta.topics.comparison.comparison_figures import changes_figure
from regatta.topics.summary import figures_of_page, first_figure, without_figures


def figure(name: str, chart) -> Figure:
    return Figure(name, name, chart, Table("", (), ()))


def section(name: str, *charts, first=None) -> Section:
    """Return a section that offers its figures, or another one, for the first screen."""
    figures = tuple(figure(f"{name}-{number}", chart) for number, chart in enumerate(charts))
    return Section(figures=figures, headlines=(figure(name, first),) if first else figures, id=name)


ONE = chart(mark("ddp", 1, 90, cell="ddp"), form="rows")
SEVERAL = chart(mark("ddp", 1, 90, cell="ddp"), mark("fsdp", 1, 80, cell="fsdp"), form="rows")
CURVE = chart(mark("ddp", 1, 1, cell="a"), mark("ddp", 2, 1, cell="b"))


@pytest.mark.parametrize(
    ("sections", "compared", "title"),
    [
        ([section("scaling", CURVE)], SEVERAL, "scaling-0"),
        ([section("scaling", SEVERAL)], ONE, "comparisons"),
        ([section("scripts", SEVERAL, CURVE)], SEVERAL, "scripts-0"),  # of two sizes
        ([section("scaling", SEVERAL), section("scripts", CURVE)], None, "scaling-0"),
        ([section("scaling", ONE), section("scripts", ONE, CURVE)], None, "scripts-1"),
        ([section("scaling", ONE)], None, "scaling-0"),
        ([], SEVERAL, "comparisons"),
        ([section("sweep", first=CURVE)], SEVERAL, "sweep"),
    ],
)
def test_without_several_places_the_first_screen_has_what_is_compared(sections, compared, title):
    assert first_figure(sections, compared and figure("comparisons", compared)).title == title


@pytest.mark.parametrize(
    ("sections", "first", "nums"),
    [
        ([section("communication", CURVE), section("stability", CURVE)], "communication-0", [0, 1]),
        ([section("communication", CURVE, CURVE)], "communication-0", [1]),
        ([section("scaling", CURVE, first=CURVE)], "scaling", [1]),
        ([section("stability", CURVE)], None, [1]),
        ([section("stability")], None, [0]),
    ],
)
def test_a_figure_is_shown_once(sections, first, nums):
    first = [figure(first, CURVE)] if first else []
    assert [len(one.figures) for one in without_figures(sections, first)] == nums
    assert len(figures_of_page(sections, first)) == sum(nums) + len(first)


def cells_in(figure) -> set[str]:
    return {*figure.chart.frame["cell"]} - {""}


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
    assert (strip.form, strip.y.label) == ("rows", "Change in time (%)")
    names = {text.removeprefix("ResNet-50 · 1×1 · ") for _, text in strip.x.ticks}
    assert names == {"no DDP", "ddp · bucket 1 MiB", "ddp · bucket 25 MiB"}
    assert figures["efficiency-1"].chart.form == "rows"
    assert len(cells_in(figures["efficiency-1"])) == 4  # with the other bucket size


def test_one_shape_with_one_stack_shows_the_efficiency_of_each_workload(tmp_path):
    cells = [train_cell(model, 1, 2, strategy) for model in ("resnet50", "resnet101") for strategy in ("ddp", "fsdp")]
    cells += [train_cell(model, 1, 1, "none") for model in ("resnet50", "resnet101")]
    figure = report_of(tmp_path, cells)["headline"]
    assert (figure.chart.form, len(cells_in(figure))) == ("rows", 4)
    assert [name for name, style in figure.chart.styles.items() if style.is_guide] == ["100 %"]


def test_changes_have_verdicts_beside_their_numbers_the_largest_first():
    rows = pd.DataFrame(
        {
            "cell": ["a", "b"],
            "benchmark": "train_step",
            "model": ["resnet50", "resnet101"],
            "axis": "stack",
            "value": "x",
            "reference_value": "y",
            "result": None,
            "result_label": None,
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
    chart, nan = figure.chart, float("nan")
    assert [chart.y.written(y) for y in chart.frame["y"][:2]] == ["−50", "+1.0"]
    assert chart.frame["series"].tolist() == ["faster", "equivalent", "margin 5 %", "−4.8 %"]
    assert chart.frame["y"].tolist() == pytest.approx([-50, 1, 5, 100 / 1.05 - 100])
    assert chart.frame[["low", "high"]].to_numpy()[:2].ravel() == pytest.approx([nan, nan, -1, 2], nan_ok=True)
    assert (chart.y.low, chart.y.high) == pytest.approx((-50 - 0.06 * 56.5, 6.5 + 0.06 * 56.5))
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
        if figure.chart.form == "stacked":  # its colors are parts
            continue
        of_figure = {}
        for name, style in figure.chart.styles.items():
            of = {values[cell] for cell in figure.chart.of(name).get("cell", ()) if cell in values}
            if len(of) == 1 and style.marker and style.color in COLORS:
                of_figure.setdefault(of.pop(), []).append((style.color, style.marker))
        for value, styles in of_figure.items():
            colors.setdefault(value, set()).update(color for color, _ in styles)
            if len(set(styles)) == 1:
                found.setdefault(value, set()).update(styles)
        if figure.chart.form == "lines":
            lines = [style for styles in of_figure.values() for style in styles]
            assert len(lines) == len(set(lines)), figure.title
    return colors, found
