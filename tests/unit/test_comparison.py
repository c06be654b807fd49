import copy
import math

import pandas as pd
import pytest
from comparison_results import STACKS, cell_of, results_of
from synthetic import train_cell
from typed import comparisons_table, margins_of

from regatta.core.verdicts import Compared
from regatta.tables.pairs import (
    ALIKE,
    MARGIN,
    Margin,
    alike_that_differ,
    by_effect,
    half_widths,
    is_within_margin,
    repeats_needed,
)
from regatta.tables.primary_times import sides_of, times_by_cell
from regatta.topics.comparison.texts import interval_text, launches_text, margin_text, verdict_text

CONTAINED, BOUND = cell_of("contained"), cell_of("bound")
SIX = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]


def table_of(reference, other, batches=None, **fields):
    """Compare bound with contained, each with the times of its launches."""
    own = [(batches[0],), (batches[1],)] if batches else [(), ()]
    times = [(CONTAINED, reference, *own[0]), (BOUND, other, *own[1])]
    return comparisons_table(*results_of(times, **fields))


def test_launches_of_one_batch_are_paired_by_repeat():
    """Each pair has the ratio 1.1, independent of the noise that both share: the median is 1.1 without any range."""
    row = table_of(SIX, [1.1 * value for value in SIX]).iloc[0]
    assert row["is_paired"]
    assert row["time_ratio"] == pytest.approx(1.1)
    assert row["time_low_ratio"] == pytest.approx(1.1)
    assert row["time_high_ratio"] == pytest.approx(1.1)
    assert (row["num_launches"], row["num_reference_launches"]) == (6, 6)
    assert row["reference_time_s"] == pytest.approx(math.prod(SIX) ** (1 / 6))
    assert row["time_s"] == pytest.approx(1.1 * math.prod(SIX) ** (1 / 6))
    assert row["verdict"] == "slower"
    assert (row["axis"], row["value"], row["reference_value"]) == ("stack", "bound", "contained")
    assert (row["cell"], row["reference"]) == (BOUND["id"], CONTAINED["id"])


def test_launches_of_two_batches_are_not_paired():
    row = table_of(SIX, [1.1 * value for value in SIX], (["a-0"] * 6, ["b-0"] * 6)).iloc[0]
    assert not row["is_paired"]
    assert row["time_ratio"] == pytest.approx(1.1)
    assert row["time_low_ratio"] < 1 < row["time_high_ratio"]
    assert row["verdict"] == "inconclusive"


def test_a_launch_without_its_partner_is_left_out_while_most_have_one():
    first, second = ["a-0"] * 4, ["a-0", "a-0", "b-0", "a-0"]
    sides = sides_of(
        {repeat: (batch, 1.0 + repeat) for repeat, batch in enumerate(first)},
        {repeat: (batch, 11.0 + repeat) for repeat, batch in enumerate(second)},
    )
    assert sides.is_paired
    assert (sides.base, sides.test) == ([1.0, 2.0, 4.0], [11.0, 12.0, 14.0])


def test_all_launches_count_unpaired_where_half_of_them_have_no_partner():
    reference = {repeat: ("a-l0-a0", 1.0 + repeat) for repeat in range(4)}
    other = {repeat: ("a-l0-a0" if repeat < 2 else "b-l0-a0", 11.0 + repeat) for repeat in range(4)}
    sides = sides_of(reference, other)
    assert not sides.is_paired
    assert (len(sides.base), len(sides.test)) == (4, 4)
    assert sides_of(reference, {}) == Compared(
        [1.0, 2.0, 3.0, 4.0], [], False, "", (("a",) * 4, ()), ((0, 1, 2, 3), ()), ("a-l0-a0", "")
    )


def test_a_failed_launch_takes_its_pair_along():
    row = table_of([1.0, 2.0, 3.0], [1.1, "failed", 3.3]).iloc[0]
    assert (row["num_launches"], row["num_reference_launches"], row["is_paired"]) == (2, 2, True)
    assert row["time_ratio"] == pytest.approx(1.1)
    assert row["interval"] == "range"


def test_a_pair_without_launches_on_one_side_is_a_row_without_a_verdict():
    table = table_of([1.0, 1.0], ["failed", "timeout"])
    assert len(table) == 1
    row = table.iloc[0]
    assert (row["num_launches"], row["num_reference_launches"], row["num_planned"]) == (0, 2, 2)
    assert table[["time_ratio", "verdict", "p_value", "interval", "is_paired", "launches_needed"]].isna().all(axis=None)
    assert row["reference_time_s"] == 1.0


def test_a_campaign_of_one_stack_has_an_empty_table_with_all_columns():
    table = comparisons_table(*results_of([(CONTAINED, [1.0, 1.0])]))
    assert len(table) == 0
    assert {"cell", "reference", "time_ratio", "verdict", "stack", "message_bytes"} <= set(table.columns)


def test_the_margin_is_the_campaigns_or_the_gates():
    assert set(table_of(SIX, SIX)["margin_ratio"]) == {MARGIN}
    versus = {"axis": "stack", "reference": None, "margin": 0.02}
    assert set(table_of(SIX, SIX, versus=versus)["margin_ratio"]) == {0.02}


def again_of(cell):
    """Return the same cell on a stack of another name (A/A)."""
    again = copy.deepcopy(cell)
    again["spec"]["stack"]["name"], again["id"] = "again", f"again-{cell['id']}"
    return again


def alike_times(ratios, num_launches=3, of=cell_of):
    """Return launches of two alike stacks, in two batches, whose medians have these ratios."""
    launches = [0.9, 1.0, 1.1][:num_launches]
    times = []
    for index, ratio in enumerate(ratios):
        cell = of("contained", 4096 * (index + 1))
        times.append((cell, launches, ["a-0"] * len(launches)))
        times.append((again_of(cell), [ratio * value for value in launches], ["b-0"] * len(launches)))
    return times


def margins_by_noise(ratios, given=None, num_launches=3):
    versus = {"axis": "stack", "reference": None, "margin": given}
    campaign, measurements = results_of(alike_times(ratios, num_launches), versus=versus)
    return margins_of(campaign, times_by_cell(measurements))["collective"]


FIVE_ALIKE = [1.03, 0.99, 1.0, 1.01, 1.02]


def test_five_alike_pairs_set_the_margin_and_never_let_it_be_less_than_their_noise():
    """The median distance is that of 1.01, or 0.99: t(0.975, 5) 2.5706 x 1.483 x 0.01005 is 3.9 % of noise."""
    noise, floor = "noise floor of 5 A/A pairs", pytest.approx(math.expm1(2.570582 * 1.483 * -math.log(0.99)), rel=1e-6)
    assert margins_by_noise(FIVE_ALIKE) == Margin(floor, noise)
    assert margins_by_noise(FIVE_ALIKE, given=0.01) == Margin(floor, noise)
    assert margins_by_noise(FIVE_ALIKE, given=0.04) == Margin(0.04, "campaign")
    assert margins_by_noise([1.5, *FIVE_ALIKE[1:]], given=0.01) == Margin(floor, noise)  # one noisy pair


def test_few_alike_pairs_or_launches_or_equal_times_are_no_noise_floor():
    assert margins_by_noise([1.0, 1.0, 1.0, 1.01, 0.99]) == Margin(MARGIN, "default")  # most pairs were rounded
    assert margins_by_noise(FIVE_ALIKE[:4]) == Margin(MARGIN, "default")
    assert margins_by_noise(FIVE_ALIKE, num_launches=2) == Margin(MARGIN, "default")
    assert margins_by_noise(FIVE_ALIKE[:4], given=0.01) == Margin(0.01, "campaign")


def test_the_noise_of_one_benchmark_is_no_margin_of_another():
    steps = [train_cell("resnet18", 1, 2, stack=stack) for stack in ("contained", "bound")]
    steps[1]["spec"]["stack"] |= STACKS["bound"]
    table = comparisons_table(*results_of(alike_times(FIVE_ALIKE) + [(cell, SIX) for cell in steps]))
    (row,) = table[table["benchmark"] == "train_step"].itertuples()
    assert (row.margin_ratio, row.margin_source) == (MARGIN, "default")


def test_alike_pairs_are_rows_apart_that_are_neither_judged_nor_corrected_for():
    """Ten times as long: by the noise of these very pairs it could never be slower."""
    other = [(CONTAINED, SIX), (BOUND, [1.1 * value for value in SIX])]
    cells = [*other, *alike_times([10.0] * 6, of=lambda stack, size: cell_of(stack, size + 1))]
    table = comparisons_table(*results_of(cells))
    alike = table[table["verdict"] == ALIKE]
    assert len(alike) == 6
    assert list(alike["time_ratio"]) == pytest.approx([10.0] * 6)
    unjudged = ["test", "p_value", "p_adjusted", "margin_ratio", "margin_source", "launches_needed"]
    assert alike[unjudged].isna().all(axis=None)
    assert not is_within_margin(alike).any()
    (judged,) = table[table["verdict"] != ALIKE].itertuples()
    assert judged.p_adjusted == judged.p_value
    assert judged.verdict == "equivalent"  # 10 % by a margin of 900 %


def test_alike_stacks_are_listed_along_another_axis_too_and_each_pair_once():
    versus = {"axis": "message_bytes", "reference": None, "margin": None}
    times = alike_times([1.0, 1.0])
    table = comparisons_table(*results_of(times, versus=versus))
    assert list(table["axis"]) == ["message_bytes", "message_bytes", "stack", "stack"]
    assert list(table["verdict"] == ALIKE) == [False, False, True, True]
    versus = {"axis": "stack", "reference": "again", "margin": None}
    table = comparisons_table(*results_of(times, versus=versus))
    assert list(table["value"]) == ["contained", "contained"]


def paired_alike(ratios):
    """Return the comparisons of alike stacks with exactly these ratios: intervals without width."""
    times = [(cell, launches) for cell, launches, _ in alike_times(ratios)]
    return comparisons_table(*results_of(times))


@pytest.mark.parametrize(
    ("table", "num"),
    [
        (paired_alike([1.001] * 8), 8),
        (paired_alike([1.001, *[1.0] * 7]), 0),  # one or more of 8 has p = 0.34
        (paired_alike([1.001, 0.999, *[1.0] * 6]), 0),  # two or more: p = 0.06
        (paired_alike([1.001, 0.999, 1.001, *[1.0] * 5]), 3),  # three or more: p = 0.006
        (comparisons_table(*results_of(alike_times([1.02] * 8))), 0),  # wide intervals
        (table_of(SIX, SIX), 0),
    ],
)
def test_alike_stacks_of_which_more_pairs_differ_than_by_chance_are_reported(table, num):
    rows, num_pairs, expected = alike_that_differ(table)
    assert len(rows) == num
    assert expected == pytest.approx(0.05 * num_pairs)


@pytest.mark.parametrize(
    ("needed", "launches", "repeats"),
    [
        ([1, 2, 9], 5, 7),
        ([1, None, None], 5, None),  # most need more than can be predicted
        ([None, None], 2, 6),  # a test needs one more
        ([None, 4], 2, 9),
        ([3, 4], 5, 9),
    ],
)
def test_the_repeats_that_settle_most_open_pairs(needed, launches, repeats):
    names = ("num_launches", "num_reference_launches")
    rows = pd.DataFrame({"launches_needed": needed} | dict.fromkeys(names, launches))
    assert repeats_needed(rows, 5) == repeats


def test_p_values_are_corrected_over_the_table():
    """One comparison alone keeps its p; among others it is larger."""
    times = [(CONTAINED, SIX), (BOUND, [1.1 * value for value in SIX])]
    alone = comparisons_table(*results_of(times)).iloc[0]
    assert alone["p_adjusted"] == pytest.approx(alone["p_value"])
    for size in (8192, 16384, 32768):
        times += [(cell_of("contained", size), SIX), (cell_of("bound", size), [1.3, 1.0, 1.5, 1.1, 1.2, 1.4])]
    among = comparisons_table(*results_of(times)).set_index("message_bytes").loc[4096]
    assert among["p_adjusted"] > among["p_value"]


def test_rows_are_ordered_by_the_size_of_their_effect_up_or_down():
    """Half the time is as large an effect as twice the time."""
    times = []
    for size, ratio in ((4, 1.5), (8, 0.5), (12, 1.01), (16, None), (20, 1.9)):
        times.append((cell_of("contained", size), [1.0, 1.0]))
        times.append((cell_of("bound", size), [ratio, ratio] if ratio else ["failed", "failed"]))
    table = comparisons_table(*results_of(times))
    assert list(by_effect(table)["message_bytes"]) == [8, 20, 4, 12, 16]


def test_inside_the_noise_is_what_is_neither_faster_nor_slower_and_within_the_margin():
    times = []
    for size, ratio in ((4, 1.2), (8, 1.02), (12, 0.96)):
        times += [(cell_of("contained", size), [1.0, 1.0]), (cell_of("bound", size), [ratio, ratio])]
    table = comparisons_table(*results_of(times))
    assert set(table["verdict"]) == {"inconclusive"}  # of two launches
    assert list(is_within_margin(table)) == [False, True, True]


def test_a_row_in_words_has_ratio_interval_launches_and_verdict(wording):
    row = next(table_of(SIX, [1.1 * value for value in SIX]).itertuples())
    assert (interval_text(row), launches_text(row), verdict_text(row)) == ("1.100 [1.100, 1.100]", "6", "slower")
    row = next(table_of([1.0, 1.25], [1.0, 1.0, 1.5], (["a-0"] * 2, ["b-0"] * 3)).itertuples())
    wording(interval_text(row))  # 1.5 ** (1 / 3) / 1.25 ** (1 / 2)
    assert launches_text(row) == "3 vs. 2"
    row = next(table_of([1.0], [2.0]).itertuples())
    assert interval_text(row) == "2.000"


def test_margins_are_shown_with_their_source(wording):
    judged = pd.DataFrame({
        "benchmark": ["collective", "collective", "train_step"],
        "margin_ratio": [0.032, 0.032, 0.05],
        "margin_source": ["noise floor of 9 A/A pairs"] * 2 + ["default"],
    })  # fmt: skip
    wording([margin_text(judged), margin_text(judged[:2])])


def test_half_the_width_of_an_interval_is_what_noise_can_hide():
    kinds = ["interval", "interval", "interval", "range"]
    ends = {"time_low_ratio": [1.0, 0.5, 2.0, 1.0], "time_high_ratio": [1.21, 0.5, 2.0808, 9.0]}
    rows = pd.DataFrame({"interval": kinds, **ends})
    values = half_widths(rows)  # sqrt(1), sqrt(1.0404), sqrt(1.21)
    assert values == {"median_ratio": pytest.approx(0.02), "max_ratio": pytest.approx(0.1), "num": 3, "num_unknown": 1}
    assert half_widths(rows.tail(1)) is None
