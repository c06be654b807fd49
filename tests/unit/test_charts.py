"""What a figure draws: texts, colors, marks with their cells, axes, labels and legends, of each form."""

import re
from dataclasses import replace

import pandas as pd
import pytest
from drawn import chart, line, mark, svg_of, texts_of

from regatta.report.chart import COLORS, GROUND, Chart, PlotAxis, Style, styles_of
from regatta.report.draw import draw
from regatta.report.forms import apart, in_two_lines, split_common

pytestmark = pytest.mark.usefixtures("drawing")


def test_the_same_chart_gives_the_same_bytes():
    own = chart(*line("ddp"), guides=[("ideal", 1, 1), ("ideal", 4, 4)], x=PlotAxis("GPUs", is_log=True))
    assert draw(own, "figure", "what it shows") == draw(own, "figure", "what it shows")
    assert "<dc:date>" not in draw(own, "figure", "what it shows")


def test_a_drawing_has_text_colors_of_the_page_and_no_ids_that_another_has():
    own = chart(*line("ddp", cell="a"))
    first, second = (set(re.findall(r'id="([^"]*)"', draw(own, name, "x"))) for name in "ab")
    assert first
    assert not first & second
    svg = draw(own, "figure", 'a "label"')
    assert 'aria-label="a &quot;label&quot;: y by x"' in svg
    assert {"x", "\N{BLACK CIRCLE} ddp"} <= {*texts_of(svg)}
    assert "var(--hue-1)" in svg
    assert re.findall("#a100[0-9a-f]{2}|font-size", svg) == []  # the style sheet has the size of texts


def test_places_have_one_decimal_and_texts_all_of_theirs():
    ticks = tuple((value, f"{value:.4f}") for value in (0.0301, 0.0302, 0.0303))
    svg = svg_of(*(mark("a", value, value) for value, _ in ticks), x=PlotAxis("x", ticks=ticks))
    assert {"0.0301", "0.0302", "0.0303"} <= {*texts_of(svg)}
    assert not re.search(r"\d\.\d{2,}", " ".join(re.findall(r' (?:d|x|y|transform)="([^"]*)"', svg)))


def test_a_mark_has_its_cell_and_a_line_and_its_label_the_cells_of_the_series():
    marks = [mark("ddp", i, i, (i, i + 0.1), cell=f"cell-{min(i, 2)}") for i in (0, 1, 2, 2)]
    svg = svg_of(*marks)
    assert set(re.findall(r'data-cell="([^"]*)"', svg)) == {"cell-0", "cell-1", "cell-2"}
    # The line goes through the first of two cells at one place.
    assert re.findall(r'data-line="([^"]*)"', svg) == ["cell-0 cell-1 cell-2", "cell-0 cell-1 cell-2 cell-2"]
    assert not re.search("data-cell|data-line", svg_of(*line("ddp")).replace('data-line=""', ""))


@pytest.mark.parametrize(
    ("values", "axis", "is_zoomed"),
    [((40, 50), {}, True), ((40, 50), {"low": 0}, False), ((1, 50), {}, False), ((40, 50), {"is_log": True}, False)],
)
@pytest.mark.parametrize("form", ["lines", "rows"])
def test_an_axis_of_lines_or_rows_that_does_not_start_at_0_is_called_zoomed(form, values, axis, is_zoomed):
    marks = [mark("a", place, value) for place, value in enumerate(values, start=1)]
    text = texts_of(svg_of(*marks, form=form, y=PlotAxis("time (ms)", **axis)))[-3:]
    is_zoomed = values[0] == 40 if form == "rows" else is_zoomed  # rows begin near values that are far from 0
    assert any("zoomed" in one for one in text) is is_zoomed


@pytest.mark.parametrize("is_log", [True, False])
def test_one_value_alone_and_those_of_very_many_launches_can_be_drawn(is_log):
    axes = {"x": PlotAxis("x", is_log=is_log), "y": PlotAxis("y", is_log=is_log)}
    assert svg_of(mark("one", 1, 5, (5,), cell="a"), **axes).count('data-cell="a"') == 1
    frame = chart(mark("one", 1, 5, cell="a"), mark("one", 2, 6, cell="b"), **axes).frame
    ranges = Chart("lines", frame.assign(minimum=4.0, maximum=7.0), *axes.values(), styles=styles_of({"one": 0}))
    assert draw(ranges, "f", "x").count('data-cell="a"') == 2  # range and value


def test_series_of_one_hue_differ_in_dash_and_marker_and_those_of_two_in_color():
    same = styles_of({"a": 0, "b": 0, "c": 0})
    assert len({(style.dashes, style.marker) for style in same.values()}) == 3
    assert {style.color for style in same.values()} == {COLORS[0]}
    assert [style.opacity for style in same.values()] == [pytest.approx(0.4), pytest.approx(0.7), 1]
    assert len({(style.color, style.marker) for style in styles_of({"a": 0, "b": 1, "c": 2}).values()}) == 3


@pytest.mark.parametrize(("num", "is_labelled"), [(1, True), (6, True), (7, False)])
def test_up_to_six_lines_have_labels_at_their_ends_and_more_a_legend(num, is_labelled):
    names = [f"series {n}" for n in range(num)]
    marks = [mark(name, x, n + x, cell=f"c{n}") for n, name in enumerate(names) for x in (1, 2)]
    svg = svg_of(*marks, mark("gray", 1, 1), behind=["gray"], context="others", guides=[("ideal", 1, 3)])
    texts = [text for text in texts_of(svg) if "series" in text or text in ("ideal", "others")]
    assert len(texts) == num + 2
    assert any("\N{BLACK CIRCLE}" in text for text in texts) is is_labelled
    assert len(re.findall('data-line="c0 c0"', svg)) == 2 if is_labelled else 3  # line, then label or mark and text


@pytest.mark.parametrize(("rise", "downward"), [(0.001, "abc"), (1, "cba")])
def test_labels_of_lines_that_end_at_one_place_are_in_the_order_of_the_series(rise, downward):
    svg = svg_of(*(mark(name, x, 10 * x + rise * place) for place, name in enumerate("abc") for x in (0, 1)))
    places = {name: float(y) for y, name in re.findall(r'y="([\d.]+)">\S (\w)</text>', svg)}
    assert "".join(sorted(places, key=places.get)) == downward


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([], []),
        ([1, 50, 99], [1, 50, 99]),
        ([10, 10, 12], [10, 20, 30]),  # upward
        ([85, 95, 96], [80, 90, 100]),  # downward from the highest
        ([0, 98, 99, 99], [0, 80, 90, 100]),
    ],
)
def test_labels_move_apart_and_stay_below_the_highest_place(wanted, found):
    assert apart(wanted, [10] * len(wanted), 100) == found


@pytest.mark.parametrize(
    ("labels", "common", "rest"),
    [
        ([], "", []),
        (["ddp\nbound"], "", ["ddp · bound"]),
        (["ddp\nbound", "ddp\ncontained"], "ddp", ["bound", "contained"]),
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
        ("other bucket sizes", ["other bucket", "sizes"]),
        ("ddp bucket 25 MiB", ["ddp bucket", "25 MiB"]),
        ("a" * 20, ["a" * 14, "a" * 6]),
        ("one two three four five six seven", ["one two three", "four five six\N{HORIZONTAL ELLIPSIS}"]),
    ],
)
def test_long_labels_have_two_lines(text, lines):
    assert in_two_lines(text, 14).split("\n") == lines


def test_a_line_has_the_intervals_of_its_values_as_a_band_and_only_if_all_have_one():
    marks = [mark("ddp", i, 2, cell=f"c{i}", ends=(1, 9)) for i in (1, 2)]
    own = chart(*marks)
    assert own.has_bands
    assert len(re.findall('data-line="c1 c2"', draw(own, "figure", "band"))) == 3  # band, line and label
    assert "9" not in texts_of(svg_of(mark("ddp", 1, 2), mark("ddp", 2, 2)))
    assert "8" in texts_of(draw(own, "figure", "band"))  # the axis has room for it
    partly = chart(marks[0], mark("ddp", 2, 2, cell="c2"))
    assert not partly.has_bands
    assert len(re.findall('data-line="c1 c2"', draw(partly, "figure", "no band"))) == 2


def test_a_row_has_launches_value_interval_and_number_and_a_guide_its_name():
    rows = [mark(name, 1, y, (0.95 * y, y), (0.9 * y, 1.1 * y), name) for name, y in (("ddp", 90), ("fsdp", 80))]
    svg = svg_of(*rows, form="rows", guides=[("100 %", 1, 100)], y=PlotAxis("Efficiency (%)", low=0))
    assert re.findall(r'data-cell="(\w+)"', svg) == ["ddp", "ddp", "fsdp", "fsdp", "ddp", "fsdp"]  # values last
    assert {"ddp", "fsdp", "100 %", "90", "80"} <= {*texts_of(svg)}


CATEGORIES = PlotAxis.of_categories("", ["batch 8\nno mode", "batch 8\nmode fast"])


def test_categories_are_rows_in_their_order_with_each_stack_below_the_other():
    marks = [mark(stack, place, 285 + 36 * place) for stack in ("bound", "contained") for place in (0, 1)]
    texts = texts_of(svg_of(*marks, form="rows", x=CATEGORIES))
    names = ["no mode · bound", "no mode · contained", "mode fast · bound", "mode fast · contained"]
    assert [text for text in texts if text in names] == names
    assert texts[-1] == "y · batch 8 · zoomed"
    words = texts_of(svg_of(mark("slower", 0, 8), mark("equal", 1, 1), form="rows", x=CATEGORIES))
    assert {"no mode", "8.00 slower", "mode fast", "1.00 equal"} <= {*words}  # what is said of each value


def test_the_shapes_of_one_size_have_a_row_each():
    marks = [mark("ddp", 4, 90, shape="1×4"), mark("ddp", 4, 80, shape="2×2"), mark("fsdp", 4, 90, shape="1×4")]
    assert {"ddp · 1×4", "ddp · 2×2", "fsdp · 1×4"} <= {*texts_of(svg_of(*marks, form="rows"))}


@pytest.mark.parametrize(("num", "tick"), [(900, "800"), (1200, "1,200")])
def test_many_values_stand_side_by_side_with_those_without_one_last(num, tick):
    marks = [mark("equal", place, 1, cell="a") for place in range(1, num)] + [mark("failed", num, None, cell="b")]
    names = PlotAxis.of_categories("nodes, fastest first", [str(place) for place in range(num + 1)])
    svg = svg_of(*marks, form="rows", x=names, hues={"failed": 1}, guides=[("margin", None, 2)])
    assert {tick, "nodes, fastest first", "equal", "failed", "margin"} <= {*texts_of(svg)}
    assert (svg.count('data-cell="a"'), svg.count('data-cell="b"')) == (num - 1, 1)


def test_a_value_that_is_missing_is_a_word():
    svg = svg_of(mark("equal", 0, 1, cell="a"), mark("failed", 1, None, cell="b"), form="rows", x=CATEGORIES)
    assert {"1.00 equal", "failed"} <= {*texts_of(svg)}
    assert svg.count('data-cell="b"') == 1


def test_a_part_in_the_color_of_the_ground_is_hollow():
    bars = bars_of("a", ["8×4"])
    styles = bars.styles | {"DDP": Style(GROUND)}
    svg = draw(replace(bars, styles=styles), "f", "x")
    assert "\N{WHITE SQUARE}" in texts_of(svg)
    assert re.search(r"fill:var\(--ground\)[^}\"]*stroke:var\(--ink\)", svg)


def bars_of(groups: str, shapes: list[str]) -> Chart:
    marks = [
        {"cell": f"c{number}", "group": group, "y": shape, "part": part, "x": value}
        for number, (group, shape) in enumerate(zip(groups, shapes, strict=True))
        for part, value in (("efficiency", 80.0), ("DDP", 25.0), ("gain", -5.0), ("unknown", None))
    ]
    styles = {name: Style() for name in ("efficiency", "DDP", "gain", "unknown")}
    return Chart(
        "stacked",
        pd.DataFrame(marks),
        PlotAxis("share (%)", value="{:g}".format),
        PlotAxis("shape"),
        series="part",
        styles=styles,
    )


@pytest.mark.parametrize(
    ("groups", "shapes", "names"),
    [
        ("abc", ["8×4"] * 3, ["a", "b", "c"]),
        ("abc", ["8×4", "8×4", "4×4"], ["a · 8×4", "b · 8×4", "c · 4×4"]),
        ("aab", ["8×4", "4×4", "4×4"], ["8×4", "4×4", "4×4"]),
    ],
)
def test_bars_have_their_numbers_and_those_alone_in_a_group_its_name(groups, shapes, names):
    texts = texts_of(svg := draw(bars_of(groups, shapes), "f", "x"))
    assert [text for text in texts if text in names] == names
    assert [texts.count(text) for text in ("80", "25", "\N{MINUS SIGN}5", "\N{EN DASH}")] == [len(groups)] * 4
    assert [svg.count(f'data-cell="c{number}"') for number in range(len(groups))] == [2] * len(groups)
    assert texts.count("b") == (names != [f"{one} · {shape}" for one, shape in zip(groups, shapes, strict=True)])
