import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from regatta.core.statistics import Estimate
from regatta.core.verdicts import Compared, _rank_p, compare_launches, judge_all, noise_floor, sign_test, verdict_text

SECONDS = st.floats(min_value=1e-6, max_value=1e3)
MARGIN = 0.05


def found(low, high, p_value=1e-6, num=20, is_paired=False):
    """Return a comparison of 20 launches, or as many as `num` says, whose ratio has this spread."""
    ratio = Estimate(num, math.sqrt(low * high), low, high, "interval")
    scatters = (0.01,) if is_paired else (0.01, 0.01)
    return Compared(ratio, num, num, is_paired, "Mann-Whitney U", p_value, math.log(ratio.median), scatters)


def word(*arguments, margin=MARGIN, **options):
    return judge_all([found(*arguments, **options)], margin)[0].word


def campaign(scatter, num_launches, num_cells=50, seed=1):
    """Return the launches of cells on two sides that do not differ."""
    random = np.random.default_rng(seed)
    return np.exp(scatter * random.standard_normal((num_cells, 2, num_launches)))


def judged(cells, is_paired=False, margin=MARGIN):
    return judge_all([compare_launches(base, test, is_paired) for base, test in cells.tolist()], margin)


def test_the_ratio_is_of_the_test_over_the_base_and_above_one_is_slower():
    compared = compare_launches([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], False)
    assert (compared.ratio.median, compared.ratio.low, compared.ratio.high) == (2.5, 4 / 3, 6.0)
    assert (compared.num_base, compared.num_test, compared.test) == (3, 3, "Mann-Whitney U")
    paired = compare_launches([1.0, 2.0, 4.0], [3.0, 4.0, 20.0], True)
    assert paired.ratio.median == pytest.approx(3.0)  # of 3, 2 and 5
    assert paired.test == "Wilcoxon signed rank"


@pytest.mark.parametrize(
    ("num_base", "num_test", "p_value"),
    [(4, 4, 2 / 70), (3, 5, 2 / 56), (5, 5, 2 / 252), (6, 6, 2 / 924), (3, 4, None), (3, 3, None), (2, 9, None)],
)
def test_the_rank_test_of_launches_apart_counts_orders_and_is_none_where_it_cannot_reach_five_percent(
    num_base, num_test, p_value
):
    base, test = [1.0 + i / 100 for i in range(num_base)], [2.0 + i / 100 for i in range(num_test)]
    assert compare_launches(base, test, False).p_value == (None if p_value is None else pytest.approx(p_value))


@pytest.mark.parametrize(("num", "p_value"), [(5, None), (6, 2 / 64), (8, 2 / 256)])
def test_the_paired_rank_test_counts_signs(num, p_value):
    base = [1.0 + i for i in range(num)]
    test = [value * (1.1 + i / 100) for i, value in enumerate(base)]
    assert compare_launches(base, test, True).p_value == (None if p_value is None else pytest.approx(p_value))


def test_launches_that_tie_have_a_p_value_too():
    assert compare_launches([1.0] * 8, [1.0] * 8, False).p_value == 1
    assert compare_launches([1.0] * 8, [1.0] * 8, True).p_value == 1
    assert compare_launches([1.0, 1.0, 1.1, 1.1], [2.0, 2.0, 2.1, 2.1], False).p_value < 0.05
    assert compare_launches([1.0] * 7 + [1.1], [1.0] * 4 + [1.1] * 4, True).p_value > 0.05


@given(SECONDS, st.lists(SECONDS, min_size=1, max_size=9), st.floats(0, 10))
def test_of_a_single_launch_on_either_side_nothing_is_said(one, several, margin):
    pairs = [compare_launches([one], several, False), compare_launches(several, [one], False)]
    verdicts = judge_all([*pairs, compare_launches([1.0] * 6, [2.0] * 6, False)], margin)
    assert [(verdict.word, verdict.p_value) for verdict in verdicts[:2]] == [("inconclusive", None)] * 2


def test_paired_lists_of_unequal_length_are_an_error():
    with pytest.raises(ValueError, match="argument 2"):
        compare_launches([1.0, 2.0], [1.0], True)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.051, 1.20, "slower"),
        (1.05, 1.20, "inconclusive"),  # the spread reaches the margin
        (1.02, 1.08, "inconclusive"),  # slower for sure, but by more than the margin?
        (0.80, 0.952, "faster"),  # 1 / 1.05 = 0.95238
        (0.80, 0.953, "inconclusive"),
        (0.96, 1.04, "equivalent"),
        (1.01, 1.04, "equivalent"),  # a difference that is sure, and smaller than the margin
        (0.94, 1.04, "inconclusive"),
    ],
)
def test_the_whole_spread_decides(low, high, verdict):
    assert word(low, high) == verdict


def test_the_margin_decides_what_a_difference_is():
    assert [word(1.06, 1.09, margin=margin) for margin in (0.05, 0.07, 0.10)] == [
        "slower",
        "inconclusive",
        "equivalent",
    ]


def test_a_spread_beyond_the_margin_is_no_difference_without_a_corrected_p():
    assert word(1.1, 1.2, p_value=0.01) == "slower"
    assert word(1.1, 1.2, p_value=0.011) == "inconclusive"


def test_p_values_are_corrected_over_the_table_by_benjamini_and_hochberg():
    # Of four: 0.001 x 4, 0.004 x 4 / 2, 0.02 x 4 / 3 and 0.5; two are at most 0.01.
    verdicts = judge_all([found(1.1, 1.2, p_value) for p_value in (0.02, 0.5, 0.001, 0.004)], MARGIN)
    assert [verdict.p_adjusted for verdict in verdicts] == pytest.approx([0.08 / 3, 0.5, 0.004, 0.008])
    assert [verdict.word for verdict in verdicts] == ["inconclusive", "inconclusive", "slower", "slower"]
    assert judge_all([], MARGIN) == []


def test_where_ranks_cannot_reach_the_corrected_level_a_t_test_of_logarithms_decides():
    # Both sides scatter by 0.01, the shift is 0.2: t = 0.2 / (0.01 sqrt(2/3)) = 24.495 with 4 degrees of freedom, for
    # which P(T > t) = 1/2 - 3/8 u (1 - u^2 / 12) with u = t / sqrt(1 + t^2 / 4).
    base, test = np.exp([0.0, 0.01, 0.02]).tolist(), np.exp([0.2, 0.21, 0.22]).tolist()
    [verdict] = judge_all([compare_launches(base, test, False)], MARGIN)
    t = 0.2 / (0.01 * math.sqrt(2 / 3))
    u = t / math.sqrt(1 + t**2 / 4)
    assert verdict.p_value == pytest.approx(2 * (0.5 - 3 / 8 * u * (1 - u**2 / 12)), rel=1e-6)
    assert (verdict.word, verdict.test, verdict.launches_needed) == ("slower", "Welch's t of logarithms", 0)


def test_a_paired_t_test_takes_the_scatter_of_the_differences():
    # Logarithms of the ratios 0.19, 0.20, 0.21: t = 0.2 / (0.01 / sqrt 3) = 34.64 with 2 degrees of freedom, for which
    # P(T > t) = 1/2 - t / (2 sqrt(2 + t^2)). The launches themselves differ by a factor of 100.
    base = [1.0, 10.0, 100.0]
    test = [value * math.exp(log) for value, log in zip(base, (0.19, 0.20, 0.21), strict=True)]
    [verdict] = judge_all([compare_launches(base, test, True)], MARGIN)
    t = 0.2 / (0.01 / math.sqrt(3))
    assert verdict.p_value == pytest.approx(1 - t / math.sqrt(2 + t**2), rel=1e-6)
    assert (verdict.word, verdict.test) == ("slower", "paired t of logarithms")


def test_the_rank_test_is_used_as_soon_as_it_can_reach_the_corrected_level():
    # 2 / C(16, 8) = 0.000155: enough in a table of 64, of which each needs 0.01 / 64 = 0.000156; not in one of 65.
    cells = campaign(0.01, 8, num_cells=65)
    assert judged(cells[:64])[0].test == "Mann-Whitney U"
    assert judged(cells)[0].test == "Welch's t of logarithms"


def test_three_launches_that_agree_by_luck_prove_nothing_in_a_table_of_cells_that_scatter():
    lucky = np.array([[[1.0, 1.0001, 1.0002], [1.2, 1.2001, 1.2002]]])
    assert judged(lucky)[0].word == "slower"
    assert judged(np.concatenate([lucky, campaign(0.1, 3)]))[0].word == "inconclusive"


def test_fewer_than_three_launches_never_give_a_verdict():
    for num in (1, 2):
        cell = compare_launches([1.0] * num, [2.0] * num, False)
        [verdict] = judge_all([cell], MARGIN)
        assert (verdict.word, verdict.test, verdict.p_value, verdict.p_adjusted) == ("inconclusive", "none", None, None)
        assert cell.p_value is None
        assert judge_all([compare_launches([1.0] * num, [1.0] * num, False)], MARGIN)[0].word == "inconclusive"
    assert judge_all([compare_launches([], [1.0], False)], MARGIN)[0].word == "inconclusive"


def test_equivalence_needs_as_many_launches_as_are_rarely_all_on_one_side():
    # C(6, 3) = 20 orders for three and three launches; of pairs it takes five, 1 / 32.
    alike = [1.0, 1.01, 1.02, 1.0, 1.01]
    words = {num: judge_all([compare_launches(alike[:num], alike[:num], False)], MARGIN)[0].word for num in (2, 3)}
    assert words == {2: "inconclusive", 3: "equivalent"}
    paired = {num: judge_all([compare_launches(alike[:num], alike[:num], True)], MARGIN)[0].word for num in (4, 5)}
    assert paired == {4: "inconclusive", 5: "equivalent"}


@pytest.mark.parametrize(("num_base", "num_test"), [(1, 19), (19, 1), (2, 6), (2, 40)])
def test_many_launches_on_one_side_do_not_make_up_for_fewer_than_three_on_the_other(num_base, num_test):
    cell = compare_launches([1.0] * num_base, [1.0] * num_test, False)
    assert judge_all([cell], MARGIN)[0].word == "inconclusive"


def test_each_row_is_judged_by_its_own_margin():
    """Spreads of 1.06 to 1.09, by margins of 5, 7 and 10 %."""
    verdicts = judge_all([found(1.06, 1.09)] * 3, [0.05, 0.07, 0.10])
    assert [verdict.word for verdict in verdicts] == ["slower", "inconclusive", "equivalent"]


def test_launches_that_do_not_scatter_at_all_are_compared_too():
    words = [judge_all([compare_launches([1.0] * 5, [t] * 5, False)], MARGIN)[0].word for t in (1.0, 1.1, 0.9)]
    assert words == ["equivalent", "slower", "faster"]


@settings(deadline=None)
@given(st.lists(SECONDS, min_size=1, max_size=12), st.booleans())
def test_a_cell_compared_with_itself_is_neither_faster_nor_slower(times, is_paired):
    [verdict] = judge_all([compare_launches(times, times, is_paired)], MARGIN)
    assert verdict.word in ("equivalent", "inconclusive")


@settings(deadline=None)
@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=3, max_size=9), st.booleans())
def test_changing_sides_changes_faster_into_slower(pairs, is_paired):
    base, test = map(list, zip(*pairs, strict=True))
    [there] = judge_all([compare_launches(base, test, is_paired)], MARGIN)
    [back] = judge_all([compare_launches(test, base, is_paired)], MARGIN)
    assert back.word == {"faster": "slower", "slower": "faster"}.get(there.word, there.word)
    assert back.p_value == pytest.approx(there.p_value)


@pytest.mark.parametrize("num_launches", [3, 5, 10])
def test_campaigns_that_do_not_differ_are_never_faster_or_slower(num_launches):
    """20 campaigns of 50 cells; the figure of 100, with tails and more scatter, is printed by `make bench`."""
    for seed in range(20):
        verdicts = judged(campaign(0.05, num_launches, seed=seed), margin=0.02)
        assert {verdict.word for verdict in verdicts} <= {"equivalent", "inconclusive"}


def test_a_difference_is_found_in_a_table_whose_other_cells_do_not_differ():
    cells = campaign(0.01, 5)
    cells[7, 1] *= 1.15
    verdicts = judged(cells)
    assert [i for i, verdict in enumerate(verdicts) if verdict.word == "slower"] == [7]


def test_the_launches_that_are_said_to_be_needed_mostly_settle_it():
    """A scatter of 3.1 %: every launch is slower by more than the margin, and p is 0.011. Then as many as were asked for."""
    base = np.exp([-0.031, 0.0, 0.031])
    [three] = judge_all([compare_launches(base.tolist(), (1.12 * base).tolist(), False)], MARGIN)
    assert (three.word, three.p_value > 0.01) == ("inconclusive", True)
    random = np.random.default_rng(3)
    cells = np.exp(0.031 * random.standard_normal((100, 2, 3 + three.launches_needed)))
    cells[:, 1] *= 1.12
    words = [judged(cell[None])[0].word for cell in cells]
    assert words.count("slower") >= 70


def test_three_pairs_within_the_margin_are_told_that_two_more_settle_it():
    """Of scatter 1 %: (3.24 x 0.01 / log 1.05)^2 x pi / 2 = 0.7, but equivalence asks for five pairs."""
    pairs = [1.0, 2.0, 3.0], [1.0 * math.exp(0.01), 2.0, 3.0 * math.exp(-0.01)]
    [three] = judge_all([compare_launches(*pairs, True)], MARGIN)
    assert (three.word, three.launches_needed) == ("inconclusive", 2)


@pytest.mark.parametrize(("low", "high"), [(1.02, 1.2), (0.9, 1.01), (0.9, 1.2)])
def test_launches_needed_are_not_told_where_the_spread_holds_the_limit(low, high):
    """The ratio may then lie on either side of it, and how many launches would tell depends on where."""
    [verdict] = judge_all([found(low, high)], MARGIN)
    assert (verdict.word, verdict.launches_needed) == ("inconclusive", None)


def test_more_than_a_hundred_launches_are_not_foretold():
    """Far apart, but in a table whose cells scatter by 100 %: (2.6 + 0.84)^2 x 2 / log(1.2)^2 is some 700."""
    lucky = np.array([[[1.0, 1.0001, 1.0002], [1.2, 1.2001, 1.2002]]])
    [verdict, *_] = judged(np.concatenate([lucky, campaign(1.0, 3)]))
    assert (verdict.word, verdict.launches_needed) == ("inconclusive", None)


def test_one_launch_is_told_how_many_more_by_the_scatter_of_the_others():
    cells = [compare_launches(base, test, False) for base, test in campaign(0.02, 5).tolist()]
    needed = judge_all([*cells, compare_launches([1.0], [1.0], False)], MARGIN)[-1].launches_needed
    # ((1.96 + 1.28) x 0.02 x sqrt 2 / log 1.05)^2 x pi / 2 = 5.5, so 6 + 2 launches: 7 more, scatter being estimated.
    assert 5 <= needed <= 9


def test_the_noise_floor_is_the_largest_ratio_of_few_pairs_and_the_95th_percentile_of_many():
    assert noise_floor([]) is None
    assert noise_floor([1.02, 1.0, 0.96, 1.01, 1.03]) == pytest.approx(1 / 0.96 - 1)  # 4.17 % apart, whichever is above
    assert noise_floor([math.exp(i / 1000) for i in range(101)]) == pytest.approx(math.expm1(0.095))


def test_fewer_than_five_pairs_are_no_noise_floor():
    assert noise_floor([1.02, 1.0, 0.96, 1.01]) is None


@pytest.mark.parametrize(("num_above", "is_told"), [(8, True), (7, False), (0, True), (4, False)])
def test_ratios_of_alike_cells_that_are_mostly_on_one_side_of_one_are_told(num_above, is_told):
    """Of eight, all on one side has p = 2 / 256 = 0.0078; seven on one side 18 / 256. A ratio of 1 is on neither."""
    ratios = [1.01] * num_above + [0.99] * (8 - num_above) + [1.0]
    p_value = sign_test(ratios)
    assert (p_value < 0.01) == is_told
    if num_above in (0, 8):
        assert p_value == pytest.approx(2 / 256)
    assert sign_test([1.0, 1.0]) == 1


NOT_SETTLED = "whether beyond the 5 % margin is not settled"
NOT_SETTLED_DOWN = "whether beyond the 5 % margin (-4.8 %) is not settled"  # 1 / 1.05 = 0.952


@pytest.mark.parametrize(
    ("word", "low", "high", "kind", "p_adjusted", "text"),
    [
        ("inconclusive", 1.044, 1.087, "interval", 0.0004, f"slower by 4.4–8.7 %; {NOT_SETTLED}"),
        ("inconclusive", 1.044, 1.087, "range", 0.0004, f"slower (range 4.4–8.7 %); {NOT_SETTLED}"),
        ("inconclusive", 0.92, 0.979, "interval", 0.01, f"faster by 2.1–8.0 %; {NOT_SETTLED_DOWN}"),
        ("inconclusive", 1.044, 1.087, "interval", 0.011, "inconclusive"),  # p above 0.01
        ("inconclusive", 0.999, 1.087, "interval", 0.0004, "inconclusive"),  # the interval contains 1
        ("inconclusive", 1.0, 1.087, "interval", 0.0004, "inconclusive"),
        ("inconclusive", 1.044, 1.087, "range", None, "inconclusive"),  # not tested
        ("inconclusive", None, None, "single", None, "inconclusive"),
        ("inconclusive", float("nan"), float("nan"), "single", float("nan"), "inconclusive"),
        ("slower", 1.06, 1.087, "interval", 0.0004, "slower"),
        ("equivalent", 1.01, 1.02, "interval", 0.0004, "equivalent"),
    ],
)
def test_a_settled_direction_is_not_called_inconclusive(word, low, high, kind, p_adjusted, text):
    assert verdict_text(word, low, high, kind, p_adjusted, 0.05) == text


def test_small_differences_keep_two_figures_and_a_margin_one_decimal():
    text = verdict_text("inconclusive", 1.0003, 1.345, "interval", 0.001, 0.0324)
    assert text == "slower by 0.030–34 %; whether beyond the 3.2 % margin is not settled"


def test_the_rank_test_is_that_of_scipy_also_with_ties_and_zeros():
    random = np.random.default_rng(1)
    for digits in (12, 1):  # many values are equal if rounded
        for num in (3, 5, 6, 12, 60):
            base, test = (np.round(random.normal(size=size), digits) for size in (num, num + 1))
            is_exact = num <= 49 and len({*base, *test}) == 2 * num + 1
            method = "exact" if is_exact else "asymptotic"
            assert _rank_p([base, test]) == scipy.stats.mannwhitneyu(base, test, method=method).pvalue
            shifts = base - test[:num]
            if np.any(shifts):
                assert _rank_p([shifts]) == scipy.stats.wilcoxon(shifts).pvalue
    assert _rank_p([np.zeros(5)]) == 1.0
