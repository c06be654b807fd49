import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regatta.core import moderation
from regatta.core.moderation import adjust_for_number
from regatta.core.verdicts import TEST, Compared, has_both_directions, judge_all, noise_floor, verdict_text

SECONDS = st.floats(min_value=1e-6, max_value=1e3)
MARGIN = 0.05
WELCH, PAIRED, OF_ALLOCATIONS, OF_PAIRED_ALLOCATIONS = TEST.values()
T_4, T_2 = 2.7764451, 4.3026527  # 97.5 % quantiles of t


def campaign(scatter, num_launches, num_cells=50, seed=1):
    """Return the launches of cells on two sides that do not differ."""
    random = np.random.default_rng(seed)
    return np.exp(scatter * random.standard_normal((num_cells, 2, num_launches)))


def judged(cells, is_paired=False, margin=MARGIN):
    return judge_all([Compared(base, test, is_paired) for base, test in cells.tolist()], margin)


def alone(base, test, is_paired=False, margin=MARGIN):
    """Return the verdict on a pair that no other pair informs."""
    [verdict] = judge_all([Compared(base, test, is_paired)], margin)
    return verdict


def shifted(shift, scatter=0.01):
    """Return two sides of three launches with this standard deviation of logarithms, and this difference of means."""
    logs = np.array([-scatter, 0.0, scatter])
    return np.exp(logs).tolist(), np.exp(shift + logs).tolist()


def test_the_ratio_is_of_geometric_means_of_the_test_over_the_base():
    ratio = Compared([1.0, 2.0], [4.0, 8.0, 16.0], False).ratio
    assert (ratio.num, ratio.mean, ratio.low, ratio.high, ratio.kind) == (
        2, pytest.approx(8 / 2**0.5), pytest.approx(2.0), pytest.approx(16.0), "range",
    )  # fmt: skip
    paired = Compared([1.0, 2.0], [4.0, 32.0], True).ratio
    assert (paired.mean, paired.low, paired.high) == tuple(map(pytest.approx, (8.0, 4.0, 16.0)))
    assert Compared([1.0], [2.0, 3.0], False).ratio.kind == "single"
    assert Compared([], [2.0], False).ratio.kind == "none"


def test_one_pair_alone_has_the_interval_and_the_p_of_welch():
    """SE 0.01 sqrt(2/3), 4 degrees of freedom: P(T > t) = 1/2 - 3/8 u (1 - u^2 / 12), u = t / sqrt(1 + t^2 / 4)."""
    verdict, error = alone(*shifted(0.2)), 0.01 * math.sqrt(2 / 3)
    ends = [verdict.ratio.low, verdict.ratio.mean, verdict.ratio.high]
    assert np.log(ends) == pytest.approx([0.2 - T_4 * error, 0.2, 0.2 + T_4 * error], rel=1e-6)
    t = 0.2 / error
    u = t / math.sqrt(1 + t**2 / 4)
    assert verdict.p_value == pytest.approx(2 * (0.5 - 3 / 8 * u * (1 - u**2 / 12)), rel=1e-5)
    assert (verdict.word, verdict.test, verdict.launches_needed) == ("slower", WELCH, 0)


def test_one_paired_comparison_alone_has_the_paired_t_test():
    """Logarithms of the ratios 0.19, 0.20, 0.21; the launches themselves differ by a factor of 100."""
    base = [1.0, 10.0, 100.0]
    test = [value * math.exp(log) for value, log in zip(base, (0.19, 0.20, 0.21), strict=True)]
    verdict, t = alone(base, test, True), 0.2 / (0.01 / math.sqrt(3))
    assert verdict.p_value == pytest.approx(1 - t / math.sqrt(2 + t**2), rel=1e-5)
    assert np.log(verdict.ratio.high) == pytest.approx(0.2 + T_2 * 0.01 / math.sqrt(3), rel=1e-6)
    assert (verdict.word, verdict.test) == ("slower", PAIRED)


@pytest.mark.parametrize(
    ("shift", "word"),
    [
        (0.0715, "slower"),  # half-width T_4 x 0.00816 = 0.02267; log 1.05 = 0.04879
        (0.0714, "inconclusive"),
        (0.0, "equivalent"),
        (0.026, "equivalent"),
        (0.027, "inconclusive"),
        (-0.0714, "inconclusive"),
        (-0.0715, "faster"),
    ],
)
def test_the_whole_interval_decides(shift, word):
    assert alone(*shifted(shift)).word == word


def test_an_interval_beyond_the_margin_is_no_finding_without_a_corrected_p():
    """Far beyond a margin of 0.1 %: t = 3.7 has p = 0.021."""
    verdict = alone(*shifted(0.03), margin=0.001)
    assert verdict.ratio.low > 1.001
    assert (verdict.word, verdict.p_value > 0.01) == ("inconclusive", True)


def test_p_values_are_corrected_by_benjamini_and_hochberg():
    # Of four: 0.001 x 4, 0.004 x 4 / 2, 0.02 x 4 / 3 and 0.5. NaN does not count.
    adjusted = adjust_for_number(np.array([0.02, np.nan, 0.5, 0.001, 0.004]))
    assert adjusted.tolist() == pytest.approx([0.08 / 3, np.nan, 0.5, 0.004, 0.008], nan_ok=True)
    assert judge_all([], MARGIN) == []


def test_rows_without_a_margin_have_an_interval_and_count_in_no_correction():
    pairs = [Compared(*shifted(shift), False) for shift in (0.2, 0.2, 0.2)]
    one, *others = judge_all(pairs, [MARGIN, None, None])
    assert one.p_adjusted == one.p_value
    for other in others:
        assert (other.word, other.test, other.p_value, other.launches_needed) == ("inconclusive", "none", None, None)
        assert (other.ratio.kind, other.ratio.low) == ("interval", pytest.approx(one.ratio.low))


def test_paired_and_unpaired_rows_are_corrected_as_one_table():
    pairs = [Compared(*shifted(0.2), is_paired) for is_paired in (False, True)]
    pairs[1].test[0] *= 1.01
    verdicts = judge_all(pairs, MARGIN)
    least = min(verdict.p_value for verdict in verdicts)
    assert min(verdict.p_adjusted for verdict in verdicts) == pytest.approx(
        min(2 * least, max(v.p_value for v in verdicts))
    )


def test_three_launches_that_agree_by_chance_prove_nothing_in_a_table_of_cells_that_vary():
    lucky = np.array([[[1.0, 1.0001, 1.0002], [1.2, 1.2001, 1.2002]]])
    assert judged(lucky)[0].word == "slower"
    assert judged(np.concatenate([lucky, campaign(0.1, 3)]))[0].word == "inconclusive"


def test_cells_that_vary_little_make_a_noisy_pair_of_launches_credible():
    cells = campaign(0.02, 3)
    cells[0] = np.exp([[-0.04, 0.0, 0.04], [0.07, 0.1, 0.13]])
    assert judged(cells[:1])[0].p_value > 0.01
    assert judged(cells)[0].p_adjusted < 0.01


def test_benchmarks_with_eight_cells_have_a_prior_each():
    """Collectives that vary by 10 % and training steps that vary by 1 %."""
    cells = np.concatenate([campaign(0.1, 3, 20), campaign(0.01, 3, 20, seed=2)])
    cells[20:23, 1] *= 1.08
    pairs = [Compared(base, test, False, "all") for base, test in cells.tolist()]
    apart = [Compared(pair.base, pair.test, False, str(i // 20)) for i, pair in enumerate(pairs)]
    widths = [
        [math.log(verdict.ratio.high / verdict.ratio.low) for verdict in judge_all(p, MARGIN)] for p in (pairs, apart)
    ]
    assert np.median(widths[1][20:]) < np.median(widths[0][20:])
    assert [verdict.word for verdict in judge_all(apart, 0.02)[20:23]] == ["slower"] * 3


def test_fewer_than_three_launches_never_give_a_verdict():
    for num in (1, 2):
        verdict = alone([1.0] * num, [2.0] * num)
        assert (verdict.word, verdict.test, verdict.p_value, verdict.p_adjusted) == ("inconclusive", "none", None, None)
        assert verdict.ratio.kind == {1: "single", 2: "range"}[num]
        assert alone([1.0] * num, [1.0] * num).word == "inconclusive"
    assert alone([], [1.0]).word == "inconclusive"


@pytest.mark.parametrize(("num_base", "num_test"), [(1, 19), (19, 1), (2, 6), (2, 40)])
def test_many_launches_on_one_side_do_not_make_up_for_fewer_than_three_on_the_other(num_base, num_test):
    assert alone([1.0] * num_base, [1.0] * num_test).word == "inconclusive"


def test_paired_lists_of_unequal_length_are_an_error():
    with pytest.raises(ValueError, match="cannot be paired"):
        Compared([1.0, 2.0], [1.0], True)


def test_each_row_is_judged_by_its_own_margin():
    verdicts = judge_all([Compared(*shifted(0.07), False)] * 3, [0.02, 0.07, 0.15])
    assert [verdict.word for verdict in verdicts] == ["slower", "inconclusive", "equivalent"]


def test_launches_that_do_not_vary_at_all_are_compared_too():
    assert [alone([1.0] * 5, [time] * 5).word for time in (1.0, 1.1, 0.9)] == ["equivalent", "slower", "faster"]


@settings(deadline=None)
@given(st.lists(SECONDS, min_size=1, max_size=12), st.booleans())
def test_a_cell_compared_with_itself_is_neither_faster_nor_slower(times, is_paired):
    assert alone(times, times, is_paired).word in ("equivalent", "inconclusive")


@settings(deadline=None)
@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=3, max_size=9), st.booleans())
def test_changing_sides_changes_faster_into_slower(pairs, is_paired):
    base, test = map(list, zip(*pairs, strict=True))
    there, back = alone(base, test, is_paired), alone(test, base, is_paired)
    assert back.word == {"faster": "slower", "slower": "faster"}.get(there.word, there.word)
    assert back.p_value == pytest.approx(there.p_value)


@pytest.mark.parametrize("num_launches", [3, 5, 10])
def test_campaigns_that_do_not_differ_are_rarely_faster_or_slower(num_launches):
    """20 campaigns of 50 cells, of which 0.4 are expected; benchmarks/coverage.py simulates thousands, with tails."""
    campaigns = [judged(campaign(0.05, num_launches, seed=seed), margin=0.02) for seed in range(20)]
    assert sum(any(verdict.word in ("faster", "slower") for verdict in verdicts) for verdicts in campaigns) <= 1


def test_a_difference_is_found_in_a_table_whose_other_cells_do_not_differ():
    cells = campaign(0.01, 3)
    cells[7, 1] *= 1.15
    assert [i for i, verdict in enumerate(judged(cells)) if verdict.word == "slower"] == [7]


def test_the_launches_that_are_said_to_be_needed_mostly_settle_it():
    random = np.random.default_rng(3)
    settled = []
    for _ in range(40):
        cells = np.exp(0.03 * random.standard_normal((30, 2, 60)))
        cells[:, 1] *= np.exp(random.uniform(-0.15, 0.15, (30, 1)))
        for row, verdict in enumerate(judged(cells[..., :3])):
            if verdict.launches_needed and verdict.launches_needed < 57:
                settled.append(judged(cells[..., : 3 + verdict.launches_needed])[row].word != "inconclusive")
                break
    assert 0.6 <= np.mean(settled) <= 0.95


def test_more_than_a_hundred_launches_are_not_predicted():
    """At the margin itself no number of launches is enough; in a table of cells that vary by 100 %, it is too many."""
    assert alone(*shifted(math.log(1.05))).launches_needed is None
    lucky = np.array([[[1.0, 1.0001, 1.0002], [1.2, 1.2001, 1.2002]]])
    [verdict, *_] = judged(np.concatenate([lucky, campaign(1.0, 3)]))
    assert (verdict.word, verdict.launches_needed) == ("inconclusive", None)


def test_one_launch_is_told_how_many_more_by_the_variation_of_the_others():
    pairs = [Compared(base, test, False) for base, test in campaign(0.02, 5).tolist()]
    assert 3 <= judge_all([*pairs, Compared([1.0], [1.0], False)], MARGIN)[-1].launches_needed <= 12
    assert alone([1.0], [1.0]).launches_needed is None  # nothing is known about the variation


def test_the_noise_floor_is_that_of_typical_pairs_whatever_the_noisiest():
    # t(0.975, 5) = 2.570582; the median distance is that of 1.02.
    floor = math.expm1(2.570582 * 1.483 * math.log(1.02))
    assert noise_floor([1.02, 1.0, 0.96, 1.01, 1.03]) == pytest.approx(floor, rel=1e-6)
    assert noise_floor([1.02, 1.0, 0.96, 1.01, 1.387]) == pytest.approx(floor, rel=1e-6)
    assert noise_floor([1.02, 1.0, 0.96, 1.01]) is None


OPEN, OPEN_DOWN = "may or may not exceed the 5 % margin", "may or may not exceed the 5 % margin (-4.8 %)"  # 1 / 1.05


def row_of(verdict, low, high, p_adjusted=0.0004, launches_needed=4, margin_ratio=0.05):
    ends = {"time_low_ratio": low, "time_high_ratio": high, "margin_ratio": margin_ratio}
    return SimpleNamespace(verdict=verdict, p_adjusted=p_adjusted, launches_needed=launches_needed, **ends)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (row_of("inconclusive", 1.044, 1.087), f"4.4–8.7 % slower; {OPEN}; needs 4 more launches per side"),
        (row_of("inconclusive", 0.92, 0.979, 0.01), f"2.1–8.0 % faster; {OPEN_DOWN}; needs 4 more"),
        (row_of("inconclusive", 1.044, 1.087, 0.011), "4.4–8.7 % slower, not significant; needs 4 more"),
        (row_of("inconclusive", 0.97, 1.09), "between 3.0 % faster and 9.0 % slower; needs 4 more"),
        (row_of("inconclusive", 0.97, 1.09, launches_needed=None), "between 3.0 % faster and 9.0 % slower; needs more than"),
        (row_of("inconclusive", 1.044, 1.087, None, 1), "4.4–8.7 % slower (range); needs 1 more launch per side"),
        (row_of("inconclusive", None, None, None), "too few launches; needs 4 more"),
        (row_of("inconclusive", None, None, None, None), "too few launches"),
        (row_of("inconclusive", math.nan, math.nan, math.nan), "too few launches"),
        (row_of("inconclusive", 1.0003, 1.345, margin_ratio=0.0324), "0.030–34 % slower; may or may not exceed the 3.2 %"),
        (row_of("slower", 1.06, 1.087), "slower"),
        (row_of(None, None, None), "n/a"),
    ],
)  # fmt: skip
def test_an_inconclusive_row_says_what_is_known_and_what_settles_it(row, text):
    assert verdict_text(row).startswith(text)


def of_allocations(base, test, is_paired=False, **options):
    """Judge a pair alone. base, test: a list of log times for each allocation."""
    sides = [np.exp([log for logs in side for log in logs]).tolist() for side in (base, test)]
    names = [tuple(str(i) for i, logs in enumerate(side) for _ in logs) for side in (base, test)]
    [verdict] = judge_all([Compared(*sides, is_paired, "b", tuple(names))], MARGIN, **options)
    return verdict


def test_two_allocations_per_side_are_the_units_of_the_interval():
    """Means 0.01 and 0.11, then 0.81 and 0.91: s^2 is 0.005 with 2 degrees of freedom, and SE^2 the same."""
    verdict = of_allocations([[0.0, 0.02], [0.1, 0.12]], [[0.8, 0.82], [0.9, 0.92]])
    ends = [verdict.ratio.low, verdict.ratio.mean, verdict.ratio.high]
    half = T_2 * math.sqrt(0.005)
    assert np.log(ends) == pytest.approx([0.8 - half, 0.8, 0.8 + half], rel=1e-6)
    assert (verdict.ratio.num, verdict.test) == (4, OF_ALLOCATIONS)
    assert verdict.p_value == pytest.approx(1 - 0.8 / math.sqrt(0.005) / math.sqrt(2 + 0.64 / 0.005), rel=1e-6)


def test_an_allocation_is_compared_with_the_scatter_of_a_history():
    """Allocations at -0.1, 0 and 0.1: s^2 is 0.01 with 2 degrees of freedom. SE^2 = 0.01 (1/3 + 1)."""
    verdict = of_allocations([[-0.1], [0.0], [0.1]], [[0.5, 0.51, 0.49]])
    half = T_2 * math.sqrt(0.01 * 4 / 3)
    assert np.log([verdict.ratio.low, verdict.ratio.high]) == pytest.approx([0.5 - half, 0.5 + half], rel=1e-6)


def test_two_allocations_against_one_say_nothing_about_their_variation():
    verdict = of_allocations([[-0.01, 0.0], [0.01]], [[0.5, 0.51, 0.49]])
    assert verdict.test == WELCH
    assert verdict.ratio.high < math.exp(0.6)


def test_paired_allocations_are_paired_by_their_means():
    """Differences 0.1 and 0.2: SE^2 = 0.005 / 2, with 1 degree of freedom."""
    verdict = of_allocations([[0.0, 0.0], [0.5, 0.7]], [[0.1, 0.1], [0.7, 0.9]], is_paired=True)
    half = 12.7062047 * math.sqrt(0.005 / 2)
    assert np.log([verdict.ratio.low, verdict.ratio.high]) == pytest.approx([0.15 - half, 0.15 + half], rel=1e-6)
    assert verdict.test == OF_PAIRED_ALLOCATIONS


def test_verdicts_of_one_allocation_must_exceed_what_allocations_vary_by():
    """The interval is [0.177, 0.223]: beyond the margin (0.049) by 0.128, that is 13.7 %. Of -0.2 as well."""
    for shift, word in ((0.2, "slower"), (-0.2, "faster")):
        sides = shifted(shift)
        names = (("a",) * 3, ("b",) * 3)
        for variation, expected in ((0.0, word), (0.13, word), (0.14, "inconclusive")):
            [verdict] = judge_all([Compared(*sides, False, "b", names)], MARGIN, variation)
            is_settled = expected == word or shift < 0  # for a gate, which only asks whether it is slower
            assert (verdict.word, verdict.launches_needed == 0) == (expected, is_settled)
    pair = [[-0.01], [0.0], [0.01]], [[0.19], [0.2], [0.21]]
    assert of_allocations(*pair, allocation_variation=0.14).word == "slower"  # their variation is in the interval
    [equal] = judge_all([Compared(*shifted(0.0), False)], MARGIN, 0.14)
    assert equal.word == "equivalent"


def test_a_correlation_of_successive_launches_is_named_and_widens_the_interval():
    random, cells = np.random.default_rng(1), []
    for _ in range(100):
        logs = random.standard_normal((2, 10))
        for i in range(1, 10):
            logs[:, i] = 0.6 * logs[:, i - 1] + 0.8 * logs[:, i]
        cells.append(np.exp(0.02 * logs).tolist())
    verdicts = judge_all([Compared(*cell, False) for cell in cells], MARGIN)
    assert [verdict.correlation for verdict in verdicts] == pytest.approx([0.6] * 100, abs=0.06)
    assert [verdict.widening for verdict in verdicts] == pytest.approx([2.1] * 100, abs=0.25)
    assert judge_all([Compared(*shifted(0.2), False)], MARGIN)[0].correlation is None


def test_pairs_of_all_kinds_in_any_order_have_the_intervals_of_tables_of_one_kind():
    """Kinds differ in whether launches are paired and whether allocations are the unit. Two pairs have no test."""
    random, allocations = np.random.default_rng(4), ("a", "a", "b", "b")
    pairs = []
    for i in range(24):
        base, test = np.exp(0.02 * random.standard_normal((2, 4))).tolist()
        pairs.append(Compared(base, test, i % 2 == 0, "b", (allocations, allocations) if i % 3 == 0 else ((), ())))
    pairs[7], pairs[9] = Compared([1.0], [], False), Compared([1.0], [1.1], False)
    found = judge_all(pairs, MARGIN)
    for kind in {(pair.is_paired, pair.is_by_allocation) for pair in pairs}:
        rows = [i for i, pair in enumerate(pairs) if (pair.is_paired, pair.is_by_allocation) == kind]
        for i, alone in zip(rows, judge_all([pairs[i] for i in rows], MARGIN), strict=True):
            assert (found[i].ratio, found[i].test, found[i].p_value) == (alone.ratio, alone.test, alone.p_value)
    assert (found[7].ratio.kind, found[9].ratio.kind, found[9].p_value) == ("none", "single", None)


@pytest.mark.parametrize("is_paired", [False, True])
def test_cells_that_lack_a_launch_share_the_others_with_their_repeats(is_paired):
    """All cells have the ups and downs of a launch; each lacks another one. Shifted to the left, they seem independent."""
    random = np.random.default_rng(9)
    logs = np.array([0.02 * random.standard_normal(5) + 0.001 * random.standard_normal((20, 5)) for _ in range(2)])
    logs[:, np.arange(20), np.arange(20) % 5] = np.nan
    pairs = []
    for base, test in zip(*logs, strict=True):
        repeats = tuple(np.flatnonzero(np.isfinite(base)).tolist())
        times = np.exp([base[list(repeats)], test[list(repeats)]]).tolist()
        pairs.append(Compared(*times, is_paired, "b", repeats=(repeats, repeats)))
    verdicts, groups = judge_all(pairs, MARGIN), np.full(20, "b")
    if is_paired:
        expected = moderation.paired_contrasts(logs[1] - logs[0], logs.mean(0), groups)
    else:
        expected = moderation.unpaired_contrasts(*logs, groups)
    assert [verdict.p_value for verdict in verdicts] == pytest.approx(expected.p_value, rel=1e-9)
    assert expected.freedom.max() < (
        4.1 if is_paired else 8.1
    )  # all cells together know as much as 5 launches: 4 and 8


@pytest.mark.parametrize(
    ("directions", "p_values", "expected"),
    [
        ([], [], False),
        ([None] * 3, [None] * 3, False),  # none tested
        (["slower"] * 3, [1e-4] * 3, False),
        (["slower"] * 6 + [None] * 5 + ["faster"], [1e-4] * 6 + [0.5] * 5 + [0.0017], False),  # 6 x 0.0017
        (["slower"] * 6 + [None] * 5 + ["faster"], [1e-4] * 6 + [0.5] * 5 + [0.0016], True),
        (["slower"] * 6 + [None] * 4 + ["faster"] * 2, [1e-4] * 6 + [0.5] * 4 + [0.004] * 2, True),
        (["slower", "faster", None], [0.004, 1e-5, 0.5], True),  # 2 x 0.004
        (["slower", "faster", None], [0.006, 1e-5, 0.5], False),
        (["slower", "faster", None], [1e-5, 0.006, math.nan], True),  # one in its family
    ],
)
def test_a_direction_with_one_cell_needs_a_p_corrected_over_its_family(directions, p_values, expected):
    assert has_both_directions(directions, p_values) is expected
