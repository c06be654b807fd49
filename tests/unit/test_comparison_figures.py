import re
from html.parser import HTMLParser

import pytest
from comparison_results import cell_of, results_of, write_folder
from synthetic import make_header, report_data

from regatta.compare.campaigns import compare_campaigns, history_of_cells, read_campaign
from regatta.compare.output import comparison_page, difference_text, history_page
from regatta.report.panels import full_names
from regatta.report.plotting import log_ticks
from regatta.topics.comparison.figures import (
    MAX_LINES,
    MAX_PANELS,
    Row,
    axis_text,
    comparison_figures,
    draw_forest,
    finding_text,
    finding_values,
    judged_rows,
    pages,
    with_labels,
)
from regatta.topics.comparison.section import NOT_KNOWN, Difference, environment_table, section
from regatta.topics.comparison.tables import comparisons_table

FIVE = [1.00, 1.01, 1.02, 1.03, 1.04]
RATIOS = {4096: 1.5, 8192: 1.0, 16384: 0.5, 32768: 1.2}


def times_of(ratios):
    """Return the launches of contained and bound for each size, in two batches: not paired."""
    times = []
    for size, ratio in ratios.items():
        times.append((cell_of("contained", size), FIVE, ["a-0"] * 5))
        times.append((cell_of("bound", size), [ratio * value for value in FIVE], ["b-0"] * 5))
    return times


def section_of(times, headers=(), **fields):
    campaign, measurements = results_of(times, **fields)
    comparisons = comparisons_table(campaign, measurements)
    return section(report_data(campaign, measurements, headers, comparisons=comparisons))


def row(label="a", ratio=1.0, low=None, high=None, verdict="inconclusive"):
    return Row(label, ratio, low, high, True, "6", verdict)


def test_the_figure_has_the_largest_effect_on_top_and_what_is_within_the_margin_below():
    (figure,) = section_of(times_of(RATIOS)).figures
    assert [r[0] for r in figure.table.rows] == [
        "all-reduce · 1×2 · 16 KiB", "all-reduce · 1×2 · 4 KiB", "all-reduce · 1×2 · 32 KiB", "all-reduce · 1×2 · 8 KiB",
    ]  # fmt: skip
    assert figure.table.rows[0][1:5] == ("1.02 s", "510 ms", "0.500 (0.481 to 0.520)", "5")
    assert figure.title == "stack bound vs. contained: collective"
    assert "dashed bar: range over launches" in figure.caption
    assert "paired" not in figure.caption


def values_of(times):
    return finding_values(with_labels(judged_rows(comparisons_table(*results_of(times)))))


def test_the_finding_counts_the_verdicts_and_names_the_largest_difference():
    values = values_of(times_of(RATIOS))
    assert values["by_verdict"] == {"slower": 2, "faster": 1, "inconclusive": 0, "equivalent": 1}
    assert (values["largest"], values["largest_text"]) == ("all-reduce · 1×2 · 16 KiB", "0.500 (0.481 to 0.520)")
    assert values["margins"] == (0.05,)
    (figure,) = section_of(times_of(RATIOS)).figures
    assert figure.alt == finding_text(values)
    assert "largest" not in values_of(times_of({4096: 1.0}))


def eight(ratios):
    return times_of({4096 * (i + 1): ratio for i, ratio in enumerate(ratios)})


def test_the_finding_has_the_direction_where_nearly_all_ratios_have_it():
    """All of eight on one side: p = 2 / 2^8 = 0.0078."""
    found = values_of(eight([1.002, 1.003, 1.001, 1.004, 1.005, 1.006, 1.007, 1.008]))["direction"]
    assert (found["num"], found["num_pairs"], found["is_slower"]) == (8, 8, True)
    assert found["median_ratio"] == pytest.approx(1.0045)
    assert (found["most_ratio"], found["p_value"]) == (pytest.approx(1.008), pytest.approx(2 / 2**8))
    values = values_of(eight([0.998] * 7 + [0.8]))
    assert values["direction"]["most_ratio"] == pytest.approx(0.8)
    assert (values["by_verdict"]["faster"], values["by_verdict"]["equivalent"]) == (1, 7)
    assert "8 of 8 pairs (median 0.2 %, maximum 20.0 %; sign test, p = 0.00781)" in finding_text(values)
    for mixed in ([1.002] * 7, [1.002] * 17 + [0.998] * 3):  # p = 0.016; 85 %, at p = 0.0026
        assert values_of(eight(mixed))["direction"] is None


def test_below_three_launches_no_verdict_is_possible_and_none_is_counted():
    times = [(cell, launches[:2], batches[:2]) for cell, launches, batches in times_of(RATIOS)]
    values = values_of(times)
    assert values["num_undecidable"] == values["num"] == 4
    assert "Verdicts" not in finding_text(values)
    assert values_of([*times[:2], *times_of(RATIOS)[2:]])["num_undecidable"] == 1


def test_the_section_says_what_is_compared_by_which_margin():
    section = section_of(times_of(RATIOS))
    assert "(p50_s)" in section.lead
    assert "Margin: 5.0 % (default)." in section.lead
    assert "Warning" not in section.lead
    (figure,) = section.figures
    assert figure.table.columns[5:8] == ("test", "p", "corrected p")
    assert figure.table.rows[0][5] == "Welch's t of logarithms"


def test_alike_stacks_have_a_table_of_their_own_and_a_warning_where_they_differ():
    """Eight ratios, all above 1, and none of them judged."""
    times = []
    for index in range(8):
        alike = cell_of("contained", 4096 * (index + 1)), cell_of("again", 4096 * (index + 1))
        times += [
            (cell, [(1 + 0.001 * index * turn + 0.001 * turn) * t for t in FIVE]) for turn, cell in enumerate(alike)
        ]
    for cell, _ in times:
        cell["spec"]["stack"] |= {"image_id": "aaa"}
    section = section_of(times)
    assert section.figures == ()
    (table,) = section.tables
    assert table.caption == "stack again vs. contained: identical stacks (A/A), no verdict (8)"
    assert {row[-1] for row in table.rows} == {"A/A"}
    assert table.rows[0][0] == "all-reduce · 1×2 · 32 KiB"  # 0.8 % from 1
    assert "8 of 8 ratios above 1" in section.lead
    assert "Margin:" not in section.lead


def test_pairs_of_one_allocation_are_in_the_caption():
    times = [(cell, launches) for cell, launches, _ in times_of(RATIOS)]
    assert "Launches are paired by allocation." in section_of(times).figures[0].caption


def test_what_is_beyond_the_last_panel_is_counted():
    ratios = {4096 * i: 1 + i / 100 for i in range(1, MAX_PANELS * MAX_LINES + 6)}
    figures = section_of(times_of(ratios)).figures
    assert len(figures) == MAX_PANELS
    drawn = sum(len(figure.table.rows) for figure in figures)
    assert f"Not drawn: {len(ratios) - drawn} comparisons" in figures[-1].caption
    assert all("Not drawn" not in figure.caption for figure in figures[:-1])
    assert figures[0].title.endswith(f"(1 of {MAX_PANELS})")
    assert len({figure.id for figure in figures}) == MAX_PANELS


def test_a_panel_holds_so_many_lines_of_labels_and_no_label_is_cut():
    rows = [row("a word · " * 4)] * 5 + [row("short")] * 20
    split = pages(rows)
    assert [r for page in split for r in page] == rows
    assert all(sum(len(r.lines) for r in page) <= MAX_LINES for page in split)
    assert row("ResNet-101 · 1×2 · bucket 100 MiB · bound").lines == ["ResNet-101 · 1×2 ·", "bucket 100 MiB · bound"]
    assert row("a_word_that_is_much_longer_than_a_line").lines == ["a_word_that_is_much_long", "er_than_a_line"]
    assert pages([]) == []


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.94, 1.08, ["0.95", "1", "1.05"]),
        (0.999, 1.004, ["1", "1.002", "1.004"]),
        (0.4, 2.1, ["0.5", "1", "2"]),
    ],
)
def test_the_axis_has_at_most_five_round_places_and_one_is_among_them(low, high, expected):
    texts = [text for _, text in log_ticks(low, high, "{:g}".format, most=5)]
    assert "1" in texts
    assert len(texts) <= 6
    if high < 2:
        assert texts == expected


def test_the_same_rows_are_the_same_bytes_and_more_rows_are_a_higher_figure(drawing):
    rows = [row("a", 1.1, 1.0, 1.2, verdict) for verdict in ("faster", "slower", "equivalent", "inconclusive")]
    svg, size = draw_forest(rows, 0.05)
    assert draw_forest(rows, 0.05) == (svg, size)
    assert draw_forest(rows[:2], 0.05)[1][1] < size[1]
    assert size[0] == 390
    assert b"<date>" not in svg
    draw_forest([row(ratio=1.0)], 0.0)  # no band, one launch
    draw_forest([row(ratio=300.0, low=0.002, high=500.0)], 0.05)


def test_a_range_is_drawn_otherwise_than_an_interval(drawing):
    interval, as_range = (
        draw_forest([Row("a", 1.1, 1.0, 1.2, is_interval, "6", "slower")], 0.0)[0] for is_interval in (True, False)
    )
    dashes = [len(re.findall(rb"stroke-dasharray", svg)) for svg in (interval, as_range)]
    assert dashes[1] == dashes[0] + 1


def test_what_differs_besides_stands_in_a_table_of_its_own():
    times = times_of(RATIOS)
    campaign, measurements = results_of(times)
    headers = []
    for stack, library in (("contained", "/usr/lib/libnccl.so.2"), ("bound", "/host/libnccl.so.2")):
        own = [cell for cell, *_ in times if cell["spec"]["stack"]["name"] == stack]
        for launch in measurements[measurements["stack"] == stack]["launch"].unique():
            headers.append(make_header(campaign, launch, 0, own, "2026-11-21T03:00:00Z", libraries=[library]))
    nccl = {"contained": {"network": "Socket"}, "bound": {"network": "AWS Libfabric"}}
    comparisons = comparisons_table(campaign, measurements)
    preflight = {"stacks": [{"stack": name, "verdict": verdict} for name, verdict in nccl.items()]}
    (table,) = section(
        report_data(campaign, measurements, headers, comparisons=comparisons, preflight=preflight)
    ).tables
    assert table.columns == ("property", "contained", "bound")
    assert table.rows == (
        ("binds", "none", "/opt/lib:/host"),
        ("NCCL network", "Socket", "AWS Libfabric"),
        ("libnccl", "/usr/lib/libnccl.so.2", "/host/libnccl.so.2"),
    )


def test_what_was_not_recorded_of_one_side_is_readable_in_the_table():
    table = environment_table("What differs", [Difference(NOT_KNOWN, "nothing", "network")], "contained", "bound")
    assert table.rows == (("not recorded, so not compared", "nothing", "network"),)


@pytest.mark.parametrize(
    ("difference", "text"),
    [
        (Difference("torch", "2.12.1", "2.13.0"), "torch: 2.12.1 -> 2.13.0"),
        (Difference(NOT_KNOWN, "nothing", "commit, torch"), "recorded only in base: commit, torch"),
        (Difference(f"{NOT_KNOWN} (stack a)", "GPU", "CPU"), "recorded only in base: CPU; in test: GPU (stack a)"),
    ],
)
def test_a_difference_in_the_terminal_names_the_side_that_recorded_it(difference, text):
    assert difference_text(difference, "in base", "in test") == text


@pytest.mark.parametrize(
    ("axis", "value", "text"),
    [
        ("bucket_cap_mb", "25", "25 MiB"),
        ("bucket_cap_mb", "0.5", "0.5 MiB"),
        ("message_bytes", "1048576", "1 MiB"),
        ("strategy", "none", "no DDP"),
        ("compile", "true", "compile"),
        ("stack", "bound", "bound"),
        ("nodes", "2", "2"),
    ],
)
def test_values_of_the_compared_axis_have_a_unit(axis, value, text):
    assert axis_text(axis, value) == text


def test_an_axis_inside_one_launch_has_no_environments_to_compare():
    times = [(cell_of("bound", size), FIVE) for size in (4096, 8192)]
    section = section_of(times, versus={"axis": "message_bytes", "reference": None, "margin": None})
    assert section.tables == ()
    assert section.figures[0].title == "message size 8 KiB vs. 4 KiB: collective"


def test_a_section_without_anything_to_compare_says_why():
    section = section_of([(cell_of("bound"), FIVE)])
    assert not section.has_content
    assert "stack" in section.empty
    section = section_of([(cell_of("contained"), FIVE), (cell_of("bound"), ["failed"] * 5)])
    assert "1 pairs" in section.empty


def test_each_row_is_named_by_what_varies_and_by_its_value_where_there_are_several():
    times = [(cell_of("bound", size), FIVE) for size in (4096, 8192, 16384)]
    campaign, measurements = results_of(times, versus={"axis": "message_bytes", "reference": 8192, "margin": None})
    table = comparisons_table(campaign, measurements)
    assert [r[0] for r in comparison_figures(table)[0].table.rows] == [
        "4 KiB · all-reduce · 1×2",
        "16 KiB · all-reduce · 1×2",
    ]
    assert full_names(table) == ["all-reduce · 1×2 processes · 4 KiB", "all-reduce · 1×2 processes · 16 KiB"]


class Page(HTMLParser):
    """What a page shows: ids, addresses, images without a text, scripts."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.addresses, self.silent, self.scripts = [], [], 0, 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        own = dict(attrs)
        self.ids += [own["id"]] if "id" in own else []
        self.addresses += [own[name] for name in ("href", "src") if own.get(name)]
        self.silent += tag == "img" and not own.get("alt")
        self.scripts += tag == "script"


def pages_of(tmp_path):
    before = write_folder(tmp_path / "before", [(cell_of("bound", size), FIVE) for size in RATIOS], "01")
    after = write_folder(
        tmp_path / "<b>after", [(cell_of("bound", size), [r * t for t in FIVE]) for size, r in RATIOS.items()], "09"
    )
    base, test = read_campaign(before), read_campaign(after)
    return comparison_page(compare_campaigns(base, test, 0.05)), history_page(history_of_cells([base, test]))


def test_the_pages_stand_alone(tmp_path):
    for text in pages_of(tmp_path):
        page = Page(text)
        assert page.silent == page.scripts == 0
        assert len(page.ids) == len(set(page.ids))
        anchors = [address[1:] for address in page.addresses if address.startswith("#")]
        assert anchors
        assert set(anchors) <= set(page.ids)
        assert all(address.startswith(("#", "data:")) for address in page.addresses)
        assert "<b>after" not in text
        assert "&lt;b&gt;after" in text


def test_the_page_of_two_campaigns_folds_and_counts_what_is_within_the_margin(tmp_path):
    text, history = pages_of(tmp_path)
    assert "2 of 4 comparisons slower, 1 faster, 0 inconclusive, 1 equivalent (margin 5.0 %)." in text
    assert "<summary>Within the margin of 5.0 %: 1 row</summary>" in text
    assert "All cells are in both campaigns." in text
    assert "4 cells in 2 campaigns. The environment changed 0 times." in history
