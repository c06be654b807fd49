import re
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import pandas as pd
import pytest
from synthetic import (
    CLUSTER,
    analyse,
    cluster_campaign,
    collective_cell,
    make_campaign,
    report_data,
    train_cell,
    write_results,
)
from typed import cell_row

from regatta.core.names import PLACE
from regatta.core.text import duration, natural, percent, prefixed, shape, size, thousands, three, with_minus_signs
from regatta.report.chart import COLORS, size_ticks
from regatta.report.panels import MOST_FIGURES, Figure, Table, drawn_and_listed, name_rows, panels
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.tables.metrics import COST_OF_SAMPLES, COST_OF_TOKENS
from regatta.topics import communication
from regatta.topics.catalog import TOPICS
from regatta.topics.scaling import scaling_section


def series_of(figure: Figure) -> list[str]:
    """Return the series that stand for cells."""
    return [name for name, style in figure.chart.styles.items() if not style.is_guide]


def results(tmp_path, cells, **fields):
    return analyse(write_results(tmp_path / "r", make_campaign(cells, device="cuda", **fields), CLUSTER))


def figures_of(data, kinds=("throughput", "efficiency")):
    """Return the figures of throughput, then those of efficiency."""
    section = scaling_section.section(data)
    figures = [figure for one in (section, *section.parts) for figure in one.figures] if section else []
    return [figure for kind in kinds for figure in figures if figure.id.startswith(kind)]


def collective_figures_of(data):
    section = communication.section(data)
    return [figure for one in (section, *section.parts[::-1]) for figure in one.figures] if section else []


def contrast(first, second):
    """Contrast ratio as WCAG 2.2 defines it."""

    def luminance(color):
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted(map(luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


def blended(color, ground, opacity):
    parts = [[int(of[i : i + 2], 16) for i in (1, 3, 5)] for of in (color, ground)]
    mixed = (opacity * one + (1 - opacity) * other for one, other in zip(*parts, strict=True))
    return "#" + "".join(f"{round(part):02x}" for part in mixed)


def test_hues_stand_out_from_the_ground_of_both_themes():
    style = (Path(__file__).resolve().parents[2] / "workflow" / "report" / "style.css").read_text()
    for light, dark in ((r"(#[0-9a-f]{6})", ".*"), (".*", r"(#[0-9a-f]{6})")):
        colors = dict(re.findall(rf"--([\w-]+): light-dark\({light}, {dark}\);", style))
        hues = [colors[f"hue-{index + 1}"] for index in range(len(COLORS))]
        assert len(set(hues)) == len(COLORS)
        marks = [*hues, colors["good"], colors["bad"]]
        assert min(contrast(mark, colors[ground]) for mark in marks for ground in ("ground", "card")) >= 3
        losses = [
            blended(colors["loss"], colors["card"], tint)
            for tint in (style.opacity for style in scaling_section.FILLS[1:-1])
        ]
        assert min(contrast(loss, colors["card"]) for loss in losses) >= 3
        assert min(contrast(*pair) for pair in pairwise([colors["level-high"], *losses])) >= 1.5


def test_losses_are_tints_of_one_color_and_that_by_a_slow_node_is_hollow():
    left, *losses, by_node = scaling_section.FILLS
    assert {style.color for style in losses} == {"loss"}
    assert (left.color, by_node.color) == ("level-high", "ground")
    assert [style.opacity for style in losses] == sorted({style.opacity for style in losses})


def test_measured_places_are_thinned_and_the_last_is_kept():
    assert size_ticks([1, 2, 4, 8], str, most=6) == ((1, "1"), (2, "2"), (4, "4"), (8, "8"))
    assert size_ticks(list(range(11)), str, most=4) == ((1, "1"), (4, "4"), (7, "7"), (10, "10"))


def test_without_a_baseline_throughput_is_shown_without_an_ideal(tmp_path):
    cells = [train_cell("resnet50", 1, g) for g in (1, 2)]
    data = results(tmp_path, cells)
    (figure,) = figures_of(data)
    assert "ideal" not in figure.chart.styles
    data = results(tmp_path / "b", [train_cell("resnet50", 1, 1, "none"), *cells])
    assert "ideal" in figures_of(data)[0].chart.styles


def test_two_shapes_of_one_size_share_a_tick_and_not_a_line(tmp_path):
    cells = [train_cell("resnet50", *s) for s in ((1, 1), (1, 4), (2, 2))]
    data = results(tmp_path, cells)
    (figure,) = figures_of(data)
    assert [row[0] for row in figure.table.rows] == ["1×1 · ddp", "1×4 · ddp", "2×2 · ddp"]


def test_stacks_with_many_bucket_sizes_lie_over_each_other(tmp_path):
    """13 bucket sizes and a baseline on two stacks: 28 lines, of which the legend names the best ones."""
    kinds = [("none", None), *(("ddp", bucket) for bucket in range(1, 14))]
    stacks = ("bound", "contained")
    cells = [train_cell("resnet50", 1, 2, *kind, stack=stack) for stack in stacks for kind in kinds if kind[1]]
    cells += [train_cell("resnet50", 1, 1, *kind, stack=stack) for stack in stacks for kind in kinds]
    data = results(tmp_path, cells)
    [figure] = [f for f in figures_of(data) if f.id.startswith("throughput")]
    assert (figure.title, len(figure.table.rows)) == ("Throughput: ResNet-50", 2 * 27)
    named = [name for name, style in figure.chart.styles.items() if not style.is_context]
    assert (named[-1], figure.chart.context, len(named)) == ("ideal", "other bucket sizes", 1 + 2 * 2)


def test_legends_and_colors_have_the_order_of_the_stacks_in_the_campaign(tmp_path):
    data = analyse(write_results(tmp_path / "r", cluster_campaign(repeats=1), CLUSTER))  # contained, then bound
    sections = [topic.section(data) for topic in TOPICS if topic.id in ("scaling", "communication")]
    figures = [figure for one in sections for of in (one, *one.parts) for figure in of.figures]
    figures = [figure for figure in figures if figure.chart.form == "lines" and figure.id != "headline"]
    assert len(figures) == 8
    for figure in figures:
        styles = {name: style.color for name, style in figure.chart.styles.items() if style.color in COLORS}
        stacks = [(name.rpartition(" ")[2].rpartition("\n")[2], color) for name, color in styles.items()]
        assert list(dict.fromkeys(stacks)) == [("contained", COLORS[0]), ("bound", COLORS[1])]
        assert [stack for stack, _ in stacks[:2]] == ["contained", "bound"]


def test_the_best_bucket_of_the_largest_shape_stands_out(tmp_path):
    buckets = [train_cell("resnet50", *place, "ddp", b) for place in ((1, 2), (8, 4)) for b in (1, 25, 100)]
    data = results(tmp_path, [train_cell("resnet50", 1, 1, "none"), *buckets])
    largest = data.cells_of("train_step").query("world_size == 32")
    best = largest.loc[largest["throughput_samples_per_s"].astype(float).idxmax(), "bucket_cap_mb"]
    (_, efficiency) = figures_of(data)
    named = [name for name, style in efficiency.chart.styles.items() if not (style.is_context or style.is_guide)]
    assert (named, efficiency.chart.context) == ([f"ddp bucket {best:g} MiB"], "other bucket sizes")


def test_one_rank_has_latency_and_no_bandwidth_figure(tmp_path):
    data = results(tmp_path, [collective_cell(4096 * 4**i, 1, 1) for i in range(3)])
    (figure,) = collective_figures_of(data)
    assert figure.id == "latency-1"
    assert sum("(µs)" in column for column in figure.table.columns) == 2


def test_algorithms_are_lines_of_one_panel_for_each_shape(tmp_path):
    algorithms = ("torch", "ring", "butterfly", "halving_doubling")
    cells = [collective_cell(4096 * 4**i, 1, g, algorithm=a) for i in range(3) for g in (2, 4) for a in algorithms]
    cells += [collective_cell(4096, 1, 2, "all_gather")]
    data = results(tmp_path, cells)
    data.tables["cells"] = data.tables["cells"].assign(max_rel_error=1.23e-7)
    figures = collective_figures_of(data)
    titles = ["all-reduce · fp32 · 1×2", "all-reduce · fp32 · 1×4", "all-gather · fp32"]
    assert [f.title for f in figures] == [
        f"{what}: {title}" for what in ("Bus bandwidth", "Latency") for title in titles
    ]
    assert series_of(figures[0]) == ["butterfly", "halving_doubling", "ring", "torch"]
    assert series_of(figures[2]) == ["1×2"]
    assert figures[3].table.columns[-1] == "Largest relative error"
    assert (figures[3].table.rows[3][0], figures[3].table.rows[3][-1]) == ("1×2 · halving_doubling", "1.2e-07")


def test_backends_are_lines_of_one_panel_and_algorithms_too(tmp_path):
    cells = [
        collective_cell(4096 * 4**i, 1, 2, algorithm=a, backend=b)
        for i in range(2) for a in ("torch", "ring") for b in ("gloo", "nccl")
    ]  # fmt: skip
    data = results(tmp_path, cells)
    figures = collective_figures_of(data)
    assert series_of(figures[0]) == ["ring\ngloo", "torch\ngloo", "ring\nnccl", "torch\nnccl"]
    assert figures[0].table.rows[0][0].split(" · ") == ["1×2", "ring", "gloo"]


def test_a_barrier_is_drawn_over_the_ranks(tmp_path):
    cells = [collective_cell(None, nodes, 4, "barrier", backend=b) for nodes in (1, 2) for b in ("gloo", "nccl")]
    data = results(tmp_path, cells)
    (figure,) = collective_figures_of(data)
    assert figure.title == "Latency: barrier"
    assert figure.chart.frame["x"].tolist() == [4, 8, 4, 8]
    assert series_of(figure) == ["barrier\ngloo", "barrier\nnccl"]
    assert figure.table.columns[1] == "n"  # no message size


def test_all_operations_in_one_report_have_the_same_axes(tmp_path):
    names = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv_pair")
    cells = [collective_cell(2**i, 1, 4, name) for name in (*names, "send_recv_ring") for i in (6, 20, 30)]
    cells += [collective_cell(None, 1, 4, "barrier")]
    data = results(tmp_path, cells)
    figures = collective_figures_of(data)
    assert len(figures) == 17
    for first_y, kind in (("Bus bandwidth (GB/s)", "bandwidth"), ("Latency (µs)", "latency")):
        own = [of.chart for of in figures if of.id.startswith(kind) and of.chart.form == "lines"]
        assert {(panel.y.label, panel.y.low, panel.y.high) for panel in own} == {(first_y, own[0].y.low, own[0].y.high)}
    with_sizes = [figure.chart.x for figure in figures if "barrier" not in figure.title]
    assert {(x.low, x.high) for x in with_sizes} == {(64, 2**30)}


def test_an_empty_table_makes_no_figure(tmp_path):
    data = results(tmp_path, [])
    assert figures_of(data) == []
    assert collective_figures_of(data) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.95, "0.950"), (0.9996, "1.00"), (1234.5, "1,230"), (12.345, "12.3"), (0.0001234, "0.000123"), (0, "0"), (None, "n/a"),
     (99.96, "100"), (999.6, "1,000"), (-0.0517, "-0.0517"), (float("nan"), "n/a"), (1392, "1,390")],
)  # fmt: skip
def test_three_significant_figures(value, text):
    assert three(value) == text


def test_sizes_durations_and_ticks_have_their_units():
    assert [size(n) for n in (12, 4096, 1536, 3 * 2**20, 2**30)] == ["12 B", "4 KiB", "1.50 KiB", "3 MiB", "1 GiB"]
    assert [duration(s) for s in (1.5e-6, 0.0123, 2.0, None)] == ["1.50 µs", "12.3 ms", "2.00 s", "n/a"]
    assert [thousands(v) for v in (950, 1500, 20000, 3e6)] == ["950", "1.5k", "20k", "3M"]
    values = (2e-10, 2e-9, 1e-6, 0.0005, 0.999999999999, 950, 1500, 1e8, 2.5e9, 1e12)
    ticks = ["0.2 ns", "2 ns", "1 µs", "500 µs", "1 s", "950 s", "1.5 ks", "100 Ms", "2.5 Gs", "1 Ts"]
    assert [prefixed(v, "s") for v in values] == ticks
    assert (percent(0.9328), shape(2, 4)) == ("93.3", "2×4")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("-0.5", "−0.5"),
        ("[-1.20, -0.3]", "[−1.20, −0.3]"),
        ("(-2 to 3)", "(−2 to 3)"),
        ("1e-05", "1e-05"),
        ("node-1", "node-1"),
        ("2026-11-21", "2026-11-21"),
    ],
)
def test_a_page_has_minus_signs_before_negative_numbers_alone(text, shown):
    assert with_minus_signs(text) == shown


def test_a_page_draws_the_first_figure_of_each_subject_before_the_second_of_any():
    titles = [f"Efficiency: {model} · {stack}" for model in "abc" for stack in ("bound", "contained")]
    figures = [Figure(title, title, lambda *_: "<svg/>", Table("", (), ())) for title in titles]
    drawn, listed = drawn_and_listed(figures, most=4)
    assert [figure.title[12:] for figure in drawn] == ["a · bound", "a · contained", "b · bound", "c · bound"]
    assert [figure.title[12:] for figure in listed] == ["b · contained", "c · contained"]
    assert drawn_and_listed(figures, most=6) == (figures, [])


@pytest.mark.parametrize(("num", "num_charts"), [(MOST_FIGURES - 1, MOST_FIGURES - 1), (MOST_FIGURES, 0)])
def test_the_matrix_replaces_the_charts_of_more_models_than_are_drawn(num, num_charts):
    """Besides the charts of efficiency, the breakdown is drawn."""
    models = [f"model_{number:02d}" for number in range(num)]
    cells = [(train_cell(model, 1, 1, "none"), [1.0]) for model in models]
    cells += [(train_cell(model, 1, 2), [1.0 + 0.1 * number]) for number, model in enumerate(models)]
    section = scaling_section.section(scaling_of(cells))
    titles = [figure.title for one in (section, *section.parts) for figure in one.figures]
    assert sum(title.startswith("Efficiency: ") for title in titles) == num_charts
    assert any(title.startswith("Throughput breakdown") for title in titles)
    assert ("matrix above" in section.lead) is (num_charts == 0)


def scaling_of(cells_and_seconds, device="cpu"):
    """Return the data of a report of cells with the seconds per step of their launches."""
    repeats = max(len(seconds) for _, seconds in cells_and_seconds)
    rows = [
        cell_row(cell) | {"repeat": repeat, "status": "ok", "window_step_s": s}
        for cell, seconds in cells_and_seconds
        for repeat, s in enumerate(seconds)
    ]
    campaign = make_campaign([cell for cell, _ in cells_and_seconds], repeats=repeats, device=device)
    measurements = make_table(rows, MEASUREMENTS)
    return report_data(campaign, measurements)


def test_the_line_goes_through_the_numbers_of_the_table():
    rates = {(1, "none"): (6.99, 129), (1, "ddp"): (20, 40), (2, "ddp"): (5, 50)}
    cells = [(train_cell("resnet18", 1, g, s), [g * 8 / rate for rate in pair]) for (g, s), pair in rates.items()]
    figures = figures_of(scaling_of(cells))
    by_label = [figure.chart.frame.groupby("series")["y"].agg(list).to_dict() for figure in figures]
    assert three(by_label[0]["no DDP"][0]) == "30.0"
    shown = {row[0]: row[4] for row in figures[0].table.rows}
    assert list(shown.values())[-1] == "30"
    assert shown["1×2 · ddp"] == f"{by_label[0]['ddp'][1]:.0f}"
    shown = {row[0]: row[2] for row in figures[1].table.rows}
    assert float(shown["1×2 · ddp"]) == pytest.approx(by_label[1]["ddp"][1], abs=5)


def test_the_line_of_bus_bandwidth_goes_through_that_of_the_mean_time():
    cell = collective_cell(10**6, 1, 2)
    rows = [cell_row(cell) | {"repeat": i, "status": "ok", "p50_s": s} for i, s in enumerate((0.001, 0.003))]
    figures = collective_figures_of(report_data(make_campaign([cell], repeats=2), make_table(rows, MEASUREMENTS)))
    reported = [figure.chart.frame["y"][0] for figure in figures]  # rows: of one message size
    assert reported == pytest.approx([1 / 3**0.5, 3**0.5])


def test_what_varies_is_in_the_names_of_the_cells():
    cells = [(train_cell("resnet18", 1, 1, "none", batch_size=b), [0.1]) for b in (8, 16)]
    cells += [(train_cell("resnet18", 1, 2, batch_size=b), [0.1]) for b in (8, 16)]
    throughput, _, efficiency, _ = figures_of(scaling_of(cells))
    assert all(row[0].endswith("batch 8") for row in throughput.table.rows)  # 8 before 16
    assert efficiency.title.endswith("batch 8")


def test_a_range_and_an_interval_differ_in_bracket_and_heading():
    steps = {2: [0.1, 0.102], 3: [0.1, 0.101, 0.102]}
    found = {}
    for num, own in steps.items():
        cells = [(train_cell("resnet18", 1, 1, "none"), own), (train_cell("resnet18", 1, 2), own)]
        found[num] = figures_of(scaling_of(cells))[1]
    assert found[2].table.rows[0][3] == "(98 to 102)"
    assert re.fullmatch(r"\[9\d, 10\d\]", found[3].table.rows[0][3])
    assert [found[num].table.columns[3] for num in steps] == ["range", "95 % CI"]


def test_parts_of_an_efficiency_have_three_decimals_on_both_sides_of_one():
    cells = [(train_cell("resnet18", 1, 1, "none"), [0.1]), (train_cell("resnet18", 1, 1), [0.0998])]
    efficiency = figures_of(scaling_of([*cells, (train_cell("resnet18", 1, 2), [0.0999])]))[1]
    assert efficiency.table.rows[1][4:6] == ("1.002", "0.999")


def test_cost_has_the_unit_of_samples_or_of_a_language_model():
    """8 ranks of 32 samples: 0.18 s and 0.72 s are 1.6 and 6.2 hours per million. 3.6 s for 1000 tokens."""
    cell = train_cell("resnet50", 2, 4, "ddp", 25, batch_size=32, device="cuda")
    data = scaling_of([(cell, [0.18, 0.72])], "cuda")
    assert data.cells_of("train_step")["cost_hours_per_million_samples"][0] == pytest.approx(3.125)
    [figure] = figures_of(data)
    numbers = dict(zip(figure.table.columns, figure.table.rows[0], strict=True))
    assert numbers[COST_OF_SAMPLES.heading("cuda")] == "3.1"  # half of the range is 2.3: two digits
    assert numbers["range of cost"] == "(1.6 to 6.2)"
    cell = train_cell("lm_small", 1, 1, "none", batch_size=2)
    cell["spec"]["parameters"] |= {"context_length": 500, "image_size": None}
    [figure] = figures_of(scaling_of([(cell, [3.6])]))
    numbers = dict(zip(figure.table.columns, figure.table.rows[0], strict=True))
    assert numbers[COST_OF_TOKENS.heading("cpu")] == "1.00"


@pytest.mark.parametrize(("gpus", "kinds"), [((1, 2), ["scaling"]), ((2, 4), ["scaling", "efficiency"])])
def test_an_efficiency_is_a_finding_where_the_breakdown_lacks_it(tmp_path, gpus, kinds):
    """Relative to two ranks, the losses are not those of the ideal, so there is no bar."""
    few = gpus[0]
    cells = [train_cell("resnet50", 1, few, "none"), *(train_cell("resnet50", 1, of, "ddp") for of in gpus)]
    campaign = make_campaign(cells, repeats=2, baseline={"strategy": "none", "nodes": 1, "gpus_per_node": few})
    data = analyse(write_results(tmp_path / "r", campaign, CLUSTER))
    assert [finding.kind for finding in scaling_section.findings(data)] == kinds


def test_of_more_than_four_efficiencies_without_a_bar_the_number_is_stated(tmp_path):
    cells = [
        train_cell("resnet50", 1, ranks, strategy, batch_size=batch)
        for batch in range(1, 7)
        for ranks, strategy in ((2, "none"), (2, "ddp"), (4, "ddp"))
    ]
    campaign = make_campaign(cells, repeats=2, baseline={"strategy": "none", "nodes": 1, "gpus_per_node": 2})
    _, *shown, count = scaling_section.findings(analyse(write_results(tmp_path / "r", campaign, CLUSTER)))
    assert len(shown) == 4
    assert (count.kind, count.values) == ("listed", {"num": 4, "num_groups": 6})


def test_processes_of_one_host_are_said_to_use_no_network_link():
    def text(nodes, **spec):
        cell = collective_cell(4096, nodes, 2, **spec)
        rows = make_table([cell_row(cell) | {"repeat": 0, "status": "ok", "p50_s": 0.001}], MEASUREMENTS)
        return communication.section(report_data(make_campaign([cell]), rows)).lead

    words = "Single host: no network traffic."
    assert words in text(1)
    assert words not in text(2)
    assert words not in text(1, device="cuda", backend="nccl")


def test_sizes_in_ids_sort_as_numbers():
    ids = [f"collective-all_reduce-{n}-n01g02-host-0a1e5" for n in (4096, 16384, 1048576)]
    assert sorted(ids) != sorted(ids, key=natural) == ids
    assert sorted(["ddp-25-n", "ddp-0.5-n", "ddp-1-n", "none-n"], key=natural) == [
        "ddp-0.5-n",
        "ddp-1-n",
        "ddp-25-n",
        "none-n",
    ]


def test_a_stack_whose_name_begins_that_of_a_backend_leaves_the_others_words_alone():
    rows = [
        {"stack": stack, "backend": backend, "strategy": "ddp", "model": "w", "nodes": nodes, "gpus_per_node": 1}
        for stack in ("g", "ddp")
        for backend in ("gloo", "nccl")
        for nodes in (1, 2)
    ]
    found = dict(
        panels(name_rows(pd.DataFrame(rows), "train_step"), lambda name: ("shape", *PLACE), attrgetter("workload"), 6)
    )
    assert sorted(found) == ["w · ddp", "w · g"]
    for part in found.values():
        assert part["label"].tolist() == ["1×1\ngloo", "1×1\nnccl", "2×1\ngloo", "2×1\nnccl"]
        assert [name.partition(" ")[0] for name in part["name"]][1:3] == ["1×1", "2×1"]


def test_the_first_figure_has_all_stacks_of_the_workloads_that_scale_least(tmp_path):
    shapes = ((1, "none"), (2, "ddp"), (4, "ddp"))
    cells = [
        train_cell("resnet50", 1, num, strategy, batch_size=batch, stack=stack)
        for batch in (1, 2, 4, 8)
        for stack in ("contained", "bound")
        for num, strategy in shapes
    ]
    data = analyse(write_results(tmp_path / "r", make_campaign(cells, repeats=3), CLUSTER))
    section = next(topic for topic in TOPICS if topic.id == "scaling").section(data)
    labels = [tuple(name.split("\n")) for name in series_of(section.headlines[0])]
    assert len(labels) == 6
    assert {stack for _, stack in labels} == {"contained", "bound"}
    assert len({batch for batch, _ in labels}) == 3
    assert section.headlines[0].title.split(": ")[1].startswith("3 of 4 ")  # not the lowest: each has two stacks


def test_lines_and_bars_have_the_order_of_the_campaign_file(tmp_path):
    places = [(model, stack) for model in ("resnet50", "resnet101") for stack in ("contained", "bound")]
    shapes = ((1, "none"), (1, "ddp"), (2, "ddp"), (4, "ddp"))
    cells = [train_cell(model, 1, num, strategy, stack=stack) for model, stack in places for num, strategy in shapes]
    data = results(tmp_path, cells)
    labels = [name.split("\n") for name in series_of(scaling_section.section(data).headlines[0])]
    assert [label[0] for label in labels] == ["ResNet-50", "ResNet-101"] * 2
    assert [label[1] for label in labels] == ["contained", "contained", "bound", "bound"]
    [bars] = scaling_section.losses_figures(data)
    names = [tuple(name.split(" · ")) for name in dict.fromkeys(bars.chart.frame["group"])]
    assert [(name[0], name[-1]) for name in names] == [
        (name, stack) for name in ("ResNet-50", "ResNet-101") for stack in ("contained", "bound")
    ]
