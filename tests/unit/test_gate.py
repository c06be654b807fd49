import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from campaign_files import cells, collectives, message, small
from gate_results import CELL, CLUSTER, TIMES, gate_of, results_of, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import collective_cell, train_cell
from typed import judge

import warm_start
from regatta.compare.gate_files import gate_text, junit
from regatta.compare.gate_rules import ALLOCATION_VARIATION, LIKELY, POLICIES
from regatta.core.schemas import load_schema
from regatta.core.text import status_text
from regatta.core.verdicts import Compared, compare_all, judge_all

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"


def verdict_of(now, before, margin=0.05):
    [comparison] = compared_with(before, now, margin=margin)
    return comparison.word


def compared_with(before, now, margin=0.05):
    return compare_all([Compared(before, now, False)], margin)


def test_all_cells_ok_passes_and_without_a_baseline_campaign_nothing_is_compared(wording):
    gate = gate_of(TIMES)
    assert gate.result == "passed"
    assert gate.compared == []
    wording(text_of(gate))


@pytest.mark.parametrize(
    "status", ["failed", "timeout", "out_of_memory", "placement", "node_failure", "skipped", "not_measured"]
)
def test_one_repeat_that_is_not_ok_fails_regardless_of_its_status(status):
    gate = gate_of([1.0, status, 1.0])
    assert (gate.result == "passed", gate.values["num_not_ok"]) == (False, 1)
    assert f"1 of 3 {status_text(status)}:" in text_of(gate)


def test_a_planned_cell_or_repeat_without_any_row_is_not_ok():
    campaign, measurements = results_of([(CELL, TIMES)])
    gate = judge(campaign | {"repeats": 5}, measurements)
    assert [failure["repeat"] for failure in gate.not_ok[0].failures] == [3, 4]
    other = collective_cell(16, 1, 2)
    gate = judge(campaign | {"cells": [CELL, other]}, measurements)
    assert [cell.id for cell in gate.not_ok] == [other["id"]]


def test_an_imported_cell_is_planned_in_as_many_repeats_as_it_has():
    other = collective_cell(16384, 1, 2)
    campaign, measurements = results_of([(CELL, TIMES), (other, TIMES[:1])])
    assert judge(campaign, measurements).result != "passed"
    campaign["cells"] = [campaign["cells"][0], other | {"repeats": 1}]
    assert judge(campaign, measurements).result == "passed"


@pytest.mark.parametrize(
    "script", ["gate.py --campaign c --measurements m --out-text t --out-junit j", "compare.py a b"]
)
@pytest.mark.parametrize("margin", ["nan", "-0.5", "-1", "inf", "much"])
def test_a_margin_that_is_no_ratio_is_refused_before_anything_is_read(script, margin):
    done = warm_start.script(*script.split(), f"--margin={margin}", timeout=60)
    assert done.returncode == 2
    assert margin in done.stderr


def test_a_skipped_cell_does_not_count_but_a_campaign_without_a_planned_cell_fails():
    skipped = collective_cell(16, 1, 1)
    assert gate_of(TIMES, skipped=[skipped]).result == "passed"
    gate = judge(*results_of([], skipped=[skipped]))
    assert (gate.result == "passed", len(gate.problems)) == (False, 1)


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        # Standard deviation 0.01 of both: SE 0.0082, 4 degrees of freedom, t 2.776, so 2.3 % on either side.
        ([1.08, 1.09, 1.10], "slower"),  # 7.9 - 2.2 %
        ([1.06, 1.07, 1.08], "inconclusive"),  # 5.9 - 2.2 %
        ([1.5, 2.0, 1.05], "inconclusive"),
        ([0.92, 0.91, 0.93], "faster"),
        ([0.94, 0.93, 0.95], "inconclusive"),
        ([1.0, 1.01, 1.02], "equivalent"),
        ([1.0, 1.04, 1.08], "inconclusive"),
    ],
)
def test_from_three_launches_the_moderated_interval_decides(now, verdict):
    assert verdict_of(now, TIMES) == verdict


@pytest.mark.parametrize(
    ("now", "verdict"),
    [([1.08, 1.10], "slower"), ([1.06, 1.10], "inconclusive"), ([0.93, 0.95], "faster"), ([1.0, 1.0], "inconclusive")],
)
def test_below_three_launches_the_range_over_all_pairs_decides(now, verdict):
    """Before: 1.00 and 1.02, so 1.071 is beyond the margin of each, and 0.952 below it."""
    assert verdict_of(now, [1.0, 1.02]) == verdict


def test_the_margin_decides_what_a_regression_is():
    now = [1.08, 1.09, 1.10]
    assert gate_of(now, TIMES, margin=0.05).with_verdict("slower")
    assert gate_of(now, TIMES, margin=0.06).result == "undecided"  # 7.9 - 2.2 to 7.9 + 2.2 %
    assert verdict_of(now, TIMES, margin=0.11) == "equivalent"


def test_one_launch_on_either_side_is_slower_or_faster_by_its_ratio_and_never_equivalent():
    assert verdict_of([1.06], [1.0]) == "slower"
    assert verdict_of([0.95], [1.0]) == "faster"
    assert verdict_of([1.0], [1.0]) == "inconclusive"
    assert verdict_of([1.06, 1.07], [1.0]) == "slower"
    assert verdict_of([1.04, 1.07], [1.0]) == "inconclusive"
    assert verdict_of([1.0, 1.01, 1.02], [1.0]) == verdict_of([1.0, 1.0], [1.0, 1.0]) == "inconclusive"
    [comparison] = compared_with([1.0], [1.06, 1.07])
    assert (comparison.ratio.kind, comparison.ratio.low) == ("single", None)  # a range would be that of one side


def test_the_interval_of_one_cell_is_that_of_welch():
    """No other cell informs the prior. Logarithms 0, 0.01, 0.02 and 0.2, 0.21, 0.22: SE 0.01 sqrt(2/3), t(4) 2.776."""
    before, now = np.exp([0.0, 0.01, 0.02]).tolist(), np.exp([0.2, 0.21, 0.22]).tolist()
    [comparison] = compared_with(before, now)
    assert comparison.ratio.kind == "interval"
    assert np.log([comparison.ratio.mean, comparison.ratio.low]) == pytest.approx(
        [0.2, 0.2 - 2.7764451 * 0.01 * (2 / 3) ** 0.5]
    )


def test_cells_are_judged_as_one_table_by_the_rules_of_every_comparison():
    """Two launches are screened, but inform the prior of the others, as in compare.py."""
    random = np.random.default_rng(3)
    draws = np.exp(random.normal(0, 0.02, (40, 2, 3)))
    draws[20:25, 0] *= 1.1
    few = [Compared(before, now[:2], False) for now, before in draws[:20].tolist()]
    pairs = few + [Compared(before, now, False) for now, before in draws[20:].tolist()]
    found, verdicts = compare_all(pairs, 0.05), judge_all(pairs, 0.05)
    assert [comparison.p_adjusted is None for comparison in found] == [True] * 20 + [False] * 20
    for comparison, verdict in list(zip(found, verdicts, strict=True))[20:]:
        assert comparison.ratio == verdict.ratio
        assert (comparison.word, comparison.p_adjusted) == (verdict.word, verdict.p_adjusted)


def gate_of_draws(draws):
    return compare_all([Compared(before, now, False) for now, before in draws.tolist()], 0.05)


def test_of_cells_that_take_a_tenth_longer_a_gate_of_fifty_finds_most_with_six_launches():
    """Launches that scatter by 2 %. The gate's earlier bootstrap, at a level of 0.05 / 50 for each cell, found half."""
    random = np.random.default_rng(7)
    draws = np.exp(random.normal(0, 0.02, (20, 50, 2, 6)))
    draws[:, :10, 0] *= 1.1
    gates = [gate_of_draws(gate) for gate in draws]
    found = [comparison.word == "slower" for gate in gates for comparison in gate[:10]]
    assert np.mean(found) > 0.8


def test_cells_that_did_not_change_rarely_fail_a_gate_of_forty():
    """Launches that scatter by 10 %, twice the margin; 10 gates. With an interval for each cell alone it is one in ten."""
    random = np.random.default_rng(7)
    draws = np.exp(random.normal(0, 0.1, (10, 40, 2, 6)))
    gates = [gate_of_draws(gate) for gate in draws]
    assert not [comparison for gate in gates for comparison in gate if comparison.word == "slower"]


def test_the_number_that_chance_alone_can_call_slower_is_shown_with_few_launches(wording):
    other = collective_cell(16, 1, 2)
    gate = gate_of([(CELL, [2.0, 2.1]), (other, [1.0, 1.0])], [(CELL, TIMES), (other, [1.0, 1.0])])
    assert (gate.values["num_screened"], gate.values["most_by_chance"]) == (2, "0.267")  # 1 / C(5, 2) + 1 / C(4, 2)
    wording(text_of(gate))
    six = gate_of([2.0] * 6, [1.0] * 6)
    assert (six.values["num_screened"], six.values["most_by_chance"]) == (0, "0")
    assert "screened" not in text_of(six)


def test_cells_are_matched_by_what_they_measure_and_the_stacks_name_not_by_their_ids():
    upgraded = {**CELL["spec"], "cluster": "renewed", "sampling": {"min_samples": 99}}
    upgraded["stack"] = {"name": "host", "kind": "contained", "image_uuid": "another"}
    now = {**CELL, "id": "another-id", "spec": upgraded}
    gate = gate_of([(now, [2.0, 2.1])], [(CELL, [1.0, 1.1])])
    assert [cell.id for cell in gate.with_verdict("slower")] == ["another-id"]


@pytest.mark.parametrize(
    "other",
    [
        collective_cell(8192, 1, 2),
        collective_cell(4096, 1, 2, "all_gather"),
        collective_cell(4096, 2, 1),
        collective_cell(4096, 1, 2, stack="other"),
        collective_cell(4096, 1, 2, backend="nccl"),
        collective_cell(4096, 1, 2, device="cuda"),
        train_cell("resnet18", 1, 2),
    ],
)
def test_cells_that_differ_in_what_they_measure_are_not_compared(other):
    gate = gate_of([2.0, 2.1], [(other, [1.0, 1.1])])
    assert (gate.result == "passed", gate.compared, len(gate.problems)) == (False, [], 1)
    assert len(gate.notes) == 1
    assert re.findall(r"\d+", gate.notes[0]) == ["1", "1"]


def test_a_campaign_whose_times_are_all_zero_is_compared_with_nothing_and_fails():
    gate = gate_of([0.0, 0.0, 0.0], [1.0, 1.1, 1.0])
    assert (gate.result == "passed", len(gate.problems), gate.values["num_not_ok"]) == (False, 1, 0)


def test_another_version_of_a_benchmark_is_not_compared(wording):
    now = {**CELL, "spec": {**CELL["spec"], "version": 2}}
    gate = gate_of([(now, [2.0])], [(CELL, [1.0])])
    assert gate.compared == []
    wording(gate.notes)


def test_what_cannot_be_compared_is_noted_and_fails_nothing(wording):
    new, gone, broken, skipped = (collective_cell(size, 1, 2) for size in (16, 64, 256, 1024))
    now = [(CELL, TIMES), (new, TIMES), (broken, TIMES)]
    before = [(CELL, TIMES), (gone, TIMES), (broken, ["failed"] * 3), (skipped, TIMES)]
    gate = gate_of(now, before, skipped=[skipped], cluster=CLUSTER | {"name": "new-machine"})
    assert gate.result == "passed"
    wording(text_of(gate))


def test_a_cell_that_fails_now_is_no_regression_and_its_ok_launches_are_compared():
    assert gate_of(["failed", "failed"], [1.0, 1.1]).compared == []
    gate = gate_of(["failed", 2.0], [1.0, 1.1])
    assert [gate.values[name] for name in ("num_not_ok", "num_slower", "num_compared")] == [1, 1, 1]


launches = st.lists(st.floats(1.0, 1.8), min_size=1, max_size=9)
two_sides = st.lists(launches, min_size=1, max_size=3)


def numbered(sides, factor=1.0):
    return [(collective_cell(16 * 2**i, 1, 2), [factor * v for v in values]) for i, values in enumerate(sides)]


@given(two_sides, st.floats(0, 0.5))
@settings(max_examples=15)
def test_the_same_data_on_both_sides_never_regress(sides, margin):
    gate = gate_of(numbered(sides), numbered(sides), margin)
    assert gate.with_verdict("slower") == gate.with_verdict("faster") == []


close = st.lists(st.lists(st.floats(1.0, 1.05), min_size=1, max_size=9), min_size=1, max_size=3)


@given(close)
@settings(max_examples=15)
def test_times_that_all_double_always_regress_where_launches_differ_by_less(sides):
    gate = gate_of(numbered(sides, 2.0), numbered(sides))
    assert len(gate.with_verdict("slower")) == len(sides)
    assert len(gate_of(numbered(sides), numbered(sides, 2.0)).with_verdict("faster")) == len(sides)


@given(two_sides, two_sides, st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_the_order_of_rows_never_matters(now, before, seed):
    now, before = results_of(numbered(now)), results_of(numbered(before), name="old")
    shuffled = [(campaign, rows.sample(frac=1, random_state=seed)) for campaign, rows in (now, before)]
    first, second = judge(*now, before), judge(*shuffled[0], shuffled[1])
    assert junit(first) == junit(second)
    assert gate_text(first, Path()) == gate_text(second, Path())


def test_the_gate_is_in_no_cells_id(tmp_path):
    plain = cells(tmp_path, collectives(4096))
    gated = cells(tmp_path, collectives(4096, gate={"baseline_campaign": "before", "margin": 0.1}))
    assert [cell.id for cell in plain] == [cell.id for cell in gated]


@pytest.mark.parametrize("gate", ["{margins: 0.1}", "{margin: 5%}", "{margin: -0.1}", "{baseline_campaign: ../other}"])
def test_a_mistake_in_the_gate_is_told_with_its_place(tmp_path, gate, wording):
    text = yaml.safe_dump(small(), sort_keys=False) + f"gate: {gate}\n"
    wording(message(tmp_path, text))


def numbers(text):
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def named(rows, allocations):
    """Give each launch of a table the batch of its repeat."""
    launches = [f"n01g02-{allocations[int(repeat)]}-l{int(repeat):03d}-a00" for repeat in rows["repeat"]]
    return rows.assign(launch=launches)


def test_a_cell_is_slower_only_beyond_what_allocations_have_shown():
    """Ratio 1.10, interval [1.076, 1.124] of 3 launches each in one allocation: beyond 1.05, not beyond 1.05 x 1.08."""
    before = results_of([(CELL, TIMES)], name="old")
    for ratio, is_slower in ((1.10, False), (1.20, True)):
        now = results_of([(CELL, [ratio * time for time in TIMES])])
        assert judge(*now, before).result != "passed"
        gate = judge(*now, before, 0.05, 0.08)
        assert bool(gate.with_verdict("slower")) == is_slower
        assert numbers(gate.threshold_line) == [13.4, 5, 8]


def test_cells_with_several_allocations_are_judged_by_their_variation():
    """Means of 3 allocations: equal to the times. The interval includes their variation, so the margin is 5 %."""
    campaign, rows = results_of([(CELL, [1.10 * time for time in TIMES])])
    old, old_rows = results_of([(CELL, TIMES)], name="old")
    gate = judge(campaign, named(rows, "abc"), (old, named(old_rows, "def")), 0.05, 0.08)
    assert [cell.compared.margin_ratio for cell in gate.compared] == [0.05]
    assert len(gate.with_verdict("slower")) == 1
    assert numbers(gate.threshold_line) == [5]


def test_one_allocation_is_judged_by_the_variation_of_an_earlier_history():
    """Allocations of before at 1.0, 1.1 and 1.2: now 1.25 in one allocation is none of their business."""
    campaign, rows = results_of([(CELL, [1.25, 1.26, 1.24])])
    old, old_rows = results_of([(CELL, [1.0, 1.1, 1.2])], name="old")
    wide = judge(campaign, named(rows, "aaa"), (old, named(old_rows, "def")), 0.05, 0.08, "pass")
    assert (wide.result == "passed", len(wide.undecided)) == (True, 1)
    steady = judge(campaign, named(rows, "aaa"), (old, named(results_of([(CELL, TIMES)])[1], "def")), 0.05, 0.08)
    assert len(steady.with_verdict("slower")) == 1


def test_screened_cells_must_exceed_what_allocations_have_shown():
    before = results_of([(CELL, TIMES[:2])], name="old")
    now = results_of([(CELL, [1.12, 1.13])])
    assert judge(*now, before).result != "passed"
    assert judge(*now, before, 0.05, 0.08).result == "passed"


def test_a_baseline_without_launches_is_one_allocation():
    old, rows = results_of([(CELL, TIMES)], name="old")
    gate = judge(*results_of([(CELL, TIMES)]), (old, rows.assign(launch=None)), 0.05, 0.08)
    assert [cell.compared.margin_ratio > 0.05 for cell in gate.compared] == [True]


def test_the_defaults_are_those_of_the_schema():
    properties = load_schema("campaign")["properties"]["gate"]["properties"]
    assert properties["allocation_variation"]["default"] is None
    assert f"{ALLOCATION_VARIATION} with jobs" in properties["allocation_variation"]["description"]
    assert tuple(properties["undecided"]["enum"]) == POLICIES
    assert properties["undecided"]["default"] == LIKELY
