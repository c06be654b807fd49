import re

import pytest
from comparison_results import STACKS, cell_of, results_of
from markupsafe import escape
from synthetic import make_header, report_data, train_cell
from typed import comparisons_table, launches_in

from regatta.compare.campaigns import difference_text
from regatta.report.findings import excess_text
from regatta.report.page import load_template
from regatta.store.csv_files import LAUNCHES, make_table
from regatta.tables.facts import NOT_KNOWN, Difference
from regatta.tables.pairs import judged_rows
from regatta.topics.comparison.comparison_findings import choice, compared_findings
from regatta.topics.comparison.comparison_section import (
    MOST_ROWS,
    TOPIC,
    environment_table,
    pairs_table,
    section,
)
from regatta.topics.comparison.texts import axis_text, with_labels

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


def table_of(times, **fields):
    return section_of(times, **fields).tables[0]


def test_the_table_has_the_largest_effect_first_and_the_verdict_early(wording):
    section = section_of(times_of(RATIOS))
    table = section.tables[0]
    assert [row[0].rpartition(" · ")[2] for row in table.rows] == ["16 KiB", "4 KiB", "32 KiB", "8 KiB"]
    wording(table.columns)
    assert table.rows[0][1:] == ("faster", "510 ms", "1.02 s", "0.500", "[0.489, 0.511]", "5")
    assert section.figures == ()
    assert section.state == ("4 pairs", "quiet")
    assert table.cells[0].startswith("collective-all_reduce-16384-")


def findings_of(times, **fields):
    """Return the statement and the verdicts on the pairs of a campaign."""
    results = results_of(times, **fields)
    return compared_findings(with_labels(judged_rows(comparisons_table(*results))), launches_in(*results))


def test_the_findings_count_the_verdicts_and_name_the_largest_difference():
    found, _ = findings_of(times_of(RATIOS))
    values, words = found.values, found.words
    assert values["by_verdict"] == {"slower": 2, "faster": 1, "inconclusive": 0, "equivalent": 1}
    assert (values["largest"][-6:], values["largest_ratio"]) == ("16 KiB", pytest.approx(0.5))
    assert (values["margins"], words["of_margin"]) == ((0.05,), "5 % (default)")
    assert (values["num_significant"], words["num_beyond"], words["limit"]) == ({"slower": 2, "faster": 1}, 3, "")


def eight(ratios, shares_batch=False):
    times = times_of({4096 * (i + 1): ratio for i, ratio in enumerate(ratios)})
    return [(cell, launches) for cell, launches, _ in times] if shares_batch else times


def outcomes_of(found):
    return [(part["outcome"], part["chosen"]) for part in found.values["parts"]]


@pytest.mark.parametrize("is_turned", [False, True])
def test_the_value_to_use_is_named_where_most_pairs_differ_and_nearly_all_ratios_agree(is_turned, wording):
    """Launches of a side range over 4 %, so a ratio is significant from about 1.05 on. One of eight ratios is not."""
    ratios = [1.1, 1.2, 1.1, 1.3, 1.4, 1.5, 1.6, 1.001]
    found = findings_of(eight([1 / ratio for ratio in ratios] if is_turned else ratios))[0]
    direction = found.values["direction"]
    assert (direction["num"], direction["num_pairs"], direction["is_slower"]) == (7, 8, not is_turned)
    assert direction["median_ratio"] == pytest.approx(0.8 if is_turned else 1.25, rel=2e-3)
    assert direction["most_ratio"] == pytest.approx(1 / 1.6 if is_turned else 1.6)
    assert outcomes_of(found) == [("slower", "bound" if is_turned else "contained")]
    assert [part["num_beyond"] for part in found.values["parts"]] == [7]
    assert (found.words["num_beyond"], found.words["num_open"], found.words["limit"]) == (0, 0, "")  # not said twice
    wording(TOPIC.stated(found).text)


@pytest.mark.parametrize(
    ("ratios", "outcome", "significant"),
    [
        ([1.03] * 8, "uncertain", (0, 0)),  # eight of eight above 1: pairs of the same launches are not independent
        ([1.1] * 4 + [1.03] * 4, "uncertain", (4, 0)),  # half of the pairs
        ([1.1] * 17 + [0.8] * 3, "both_ways", (17, 3)),  # 85 % on one side
    ],
)
def test_without_a_common_direction_the_significant_pairs_are_counted(ratios, outcome, significant, wording):
    found = findings_of(eight(ratios))[0]
    assert (outcomes_of(found), found.values["direction"]) == ([(outcome, None)], None)
    assert tuple(found.values["num_significant"].values()) == significant
    wording(TOPIC.stated(found).text)


def test_an_uncertain_comparison_says_how_much_is_possible():
    """An interval of 3 % ± 2.2 %, on a log scale."""
    found = findings_of(eight([0.97, *[1.03] * 7]))[0]
    low, high = map(float, re.findall(r"([\d.]+) % (?:faster|slower)", found.words["outcomes"]))
    assert low == pytest.approx(100 - 97 / 1.022, abs=0.3)
    assert high == pytest.approx(103 * 1.022 - 100, abs=0.3)
    assert (found.words["num_open"], found.words["num_beyond"]) == (8, 0)


@pytest.mark.parametrize(
    ("ratios", "outcome", "significant"),
    [([1.02] * 4, ("slower", "contained"), (4, 0)), ([1.02, 1.01, 0.98, 1.0], ("equal", None), (2, 1))],
)
def test_pairs_within_the_margin_have_a_direction_if_it_is_that_of_most(ratios, outcome, significant, wording):
    """Paired launches with exactly these ratios: equivalent at a margin of 5 %, and significantly different."""
    found, _ = findings_of(eight(ratios, shares_batch=True))
    assert found.values["by_verdict"]["equivalent"] == 4
    assert (outcomes_of(found), tuple(found.values["num_significant"].values())) == ([outcome], significant)
    limit = "" if outcome[0] == "slower" else "5 %"  # said with the direction
    assert (found.words["num_beyond"], found.words["num_open"], found.words["limit"]) == (0, 0, limit)
    wording(TOPIC.stated(found).text)


def test_a_stack_that_is_better_for_one_benchmark_only_is_chosen_for_it():
    def part(benchmark, outcome, chosen):
        return {"reference": "host", "value": "tf32", "benchmarks": [benchmark], "outcome": outcome, "chosen": chosen}

    parts = [part("script", "uncertain", None), part("train_step", "slower", "tf32")]
    assert choice(parts).startswith("use tf32")
    assert choice([part("script", "both_ways", None), part("train_step", "equal", None)]) == "compared with host"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(1.032, "is 3.2 % slower"), (1.98, "is 98 % slower"), (2.834, "takes 2.8\N{MULTIPLICATION SIGN} as long")],
)
def test_large_ratios_are_said_as_factors(ratio, text):
    assert excess_text(ratio) == text


@pytest.mark.parametrize(
    ("ratios", "choice"),
    [((1.5, 1.2), "use contained"), ((0.5, 1.2), "compared with contained"), ((1.0, 1.0), "either")],
)
def test_of_several_values_one_is_chosen_only_if_none_is_faster(ratios, choice):
    times = []
    for size in RATIOS:
        for stack, ratio in zip(("contained", "bound", "other"), (1, *ratios), strict=True):
            cell = cell_of(stack, size)
            cell["spec"]["stack"]["binds"] = [stack]
            times.append((cell, [ratio * value for value in FIVE]))
    found = findings_of(times)[0]
    assert [part["value"] for part in found.values["parts"]] == ["bound", "other"]
    assert (found.words["choice"], found.values["median_ratio"]) == (choice, None)


@pytest.mark.parametrize(("step_ratio", "num_parts"), [(1.2, 2), (1.03, 1)])
def test_benchmarks_are_summarized_separately_if_the_medians_of_their_intervals_do_not_overlap(step_ratio, num_parts):
    """Intervals of ±2.2 %: collectives at 1.0, steps at 1.2 or 1.03."""
    times = times_of(dict.fromkeys(RATIOS, 1.0))
    for stack, ratio in (("contained", 1), ("bound", step_ratio)):
        for nodes in (1, 2, 4):
            cell = train_cell("resnet18", nodes, 2, stack=stack)
            cell["spec"]["stack"] |= STACKS[stack]
            times.append((cell, [ratio * value for value in FIVE], [f"{stack}-0"] * 5))
    values = findings_of(times)[0].values
    assert len(values["parts"]) == num_parts
    if num_parts == 2:
        assert outcomes_of(findings_of(times)[0]) == [("equal", None), ("slower", "contained")]
        assert values["direction"]["median_ratio"] == pytest.approx(1.2)
        assert values["median_ratio"] is None


ALTERNATING, IN_BLOCKS = ((0, 3, 4), (1, 2, 5)), ((0, 1, 2), (3, 4, 5))  # minutes at which launches start


@pytest.mark.parametrize(
    ("minutes", "num"),
    [
        (ALTERNATING, 0),
        (IN_BLOCKS, 2),
        (IN_BLOCKS[::-1], 2),
        (((0, 1, 3), (2, 4, 5)), 0),
        (((0,), (1,)), 0),  # one launch each cannot alternate
        (((0, 1, None), (2, 3, None)), 2),  # a start that was not recorded
        (((None, None, 1), (2, 3, 4)), 0),
    ],
)
def test_launches_of_one_side_before_all_of_the_other_are_a_warning(minutes, num):
    times, launches = [], []
    for stack, of_stack in zip(("contained", "bound"), minutes, strict=True):
        batch = f"{stack}-0"
        times += [(cell_of(stack, size), FIVE[: len(of_stack)], [batch] * len(of_stack)) for size in (4096, 8192)]
        for repeat, minute in enumerate(of_stack):
            launch = f"{batch}-l{10 * repeat + (stack == 'bound'):03d}-a00"
            start = None if minute is None else f"2026-11-21T03:{minute:02d}:00Z"
            launches.append({"launch": launch, "stack": stack, "start_utc": start})
    campaign, measurements = results_of(times)
    comparisons = comparisons_table(campaign, measurements)
    launches = make_table(launches, LAUNCHES)
    data = report_data(campaign, measurements, comparisons=comparisons, launches=launches)
    found = [finding for finding in TOPIC.findings(data) if finding.kind == "not_interleaved"]
    assert [finding.values for finding in found] == ([{"num": num, "num_pairs": 2}] if num else [])
    assert TOPIC.findings(data)[0].values["num_in_blocks"] == num
    if num:
        assert len(found[0].sources[0].rows) == 2


def test_below_three_launches_no_verdict_is_possible_and_none_is_counted(wording):
    times = [(cell, launches[:2], batches[:2]) for cell, launches, batches in times_of(RATIOS)]
    [found] = findings_of(times)
    assert outcomes_of(found) == [("undecided", None)]
    assert found.values["num_undecidable"] == found.values["num"] == 4
    assert findings_of([*times[:2], *times_of(RATIOS)[2:]])[0].words["few"] == 1
    wording(TOPIC.stated(found).text)


def test_the_number_of_repeats_that_settles_most_open_pairs_is_the_next_step():
    campaign, measurements = results_of(eight([1.03] * 4))
    comparisons = comparisons_table(campaign, measurements)
    data = report_data(campaign, measurements, comparisons=comparisons)
    [found] = [finding for finding in TOPIC.findings(data) if finding.kind == "open_pairs"]
    needed = set(comparisons["launches_needed"])
    assert found.values == {"num": 4, "num_pairs": 4, "repeats": 5 + needed.pop()}
    assert not needed


def test_alike_stacks_have_a_table_of_their_own():
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
    assert not section.template
    (table,) = section.tables
    assert {row[1] for row in table.rows} == {"A/A"}
    assert len(table.rows) == 8
    assert table.rows[0][0].endswith("32 KiB")  # 0.8 % from 1


def test_rows_beyond_the_most_are_counted_and_named_a_file():
    ratios = {4096 * i: 1 + i / 100 for i in range(1, MOST_ROWS + 6)}
    table = table_of(times_of(ratios))
    assert len(table.rows) == len(table.cells) == MOST_ROWS
    assert f"{MOST_ROWS} of {MOST_ROWS + 5}" in table.caption
    assert table.rows[0][0].endswith("180 KiB")  # the 45th size, 45 % slower


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
    _, table = section(
        report_data(campaign, measurements, headers, comparisons=comparisons, preflight=preflight)
    ).tables
    assert table.columns == ("property", "contained", "bound")
    assert table.rows == (
        ("binds", "none", "/opt/lib:/host"),
        ("NCCL network", "Socket", "AWS Libfabric"),
        ("libnccl", "/usr/lib/libnccl.so.2", "/host/libnccl.so.2"),
    )


def test_what_was_not_recorded_of_one_side_is_readable_in_the_table(wording):
    table = environment_table("What differs", [Difference(NOT_KNOWN, "nothing", "network")], "contained", "bound")
    wording(table.rows[0])


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
    assert [table.caption for table in section.tables] == ["Largest effects"]
    assert len(section.content["matrices"]) == 1


def test_a_section_without_anything_to_compare_is_left_out():
    assert section_of([(cell_of("bound"), FIVE)]) is None


def test_each_row_is_named_by_what_varies_and_by_its_value_where_there_are_several(wording):
    times = [(cell_of("bound", size), FIVE) for size in (4096, 8192, 16384)]
    campaign, measurements = results_of(times, versus={"axis": "message_bytes", "reference": 8192, "margin": None})
    table = comparisons_table(campaign, measurements)
    wording([row[0] for row in pairs_table(judged_rows(table), "").rows])


def test_several_pairs_have_a_heading_each_and_a_hostile_name_is_escaped(wording):
    stacks = ("contained", '"><script>', "other")
    times = [(cell_of(stack, size), FIVE) for size in RATIOS for stack in stacks]
    for place, (cell, _) in enumerate(times):
        cell["spec"]["stack"] |= {"binds": [str(place % 3)]}
    section = section_of(times)
    text = load_template(section.template).render(content=section.content, cell_indices={})
    captions = [matrix.caption for matrix in section.content["matrices"]]
    assert [text.count(str(escape(caption))) for caption in captions] == [2, 2]  # as text, and of its button
    assert "<script>" not in text
    assert "&#34;&gt;&lt;script&gt; vs." in text
    wording(section.tables[0].columns[2:5])
