"""The test of lack of fit: results computed by hand, and the stated error rate."""

import numpy as np
import pytest

from regatta.topics.fits.least_squares import lack_of_fit, wider


def test_the_f_test_holds_points_around_the_fit_against_launches_around_their_point():
    # A constant is fitted to points of which the logarithms are -0.02, 0 and 0.02, each of two launches 0.01 off.
    launches = [np.exp([mean - 0.01, mean + 0.01]) for mean in (-0.02, 0.0, 0.02)]
    found = lack_of_fit(np.ones((3, 1)), launches)
    # 2 x (0.0004 + 0.0004) / 2 over 6 x 0.0001 / 3 is 4; of 2 and 3 degrees of freedom P(F > x) = (1 + 2 x / 3)^(-3/2).
    assert found.p_value == pytest.approx((1 + 8 / 3) ** -1.5, rel=1e-3)
    assert found.scatter == pytest.approx(0.0002**0.5)


def test_a_point_with_more_launches_counts_for_more():
    few = [np.exp([-0.02, -0.02]), np.exp([0.01, -0.01]), np.exp([0.03, 0.01])]
    many = [*few[:2], np.exp([0.03, 0.01] * 5)]
    # Constant -0.02 x 2 + 0.02 x 10 over 14 launches is 0.16 / 14; 3 points, 11 launches to spare.
    mean = 0.16 / 14
    between = (2 * (-0.02 - mean) ** 2 + 2 * mean**2 + 10 * (0.02 - mean) ** 2) / 2
    within = (2 * 0.0001 + 10 * 0.0001) / 11
    found = lack_of_fit(np.ones((3, 1)), many)
    assert found.p_value == pytest.approx((1 + 2 * between / within / 11) ** -5.5, rel=0.02)
    assert found.p_value < lack_of_fit(np.ones((3, 1)), few).p_value


def test_without_a_second_launch_or_a_point_to_spare_there_is_no_test():
    line = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 3.0]])
    assert lack_of_fit(line, [np.array([value]) for value in (1.0, 1.1, 1.3)]) is None
    assert lack_of_fit(line[:2], [np.array([1.0, 1.1]), np.array([0.9, 1.0])]) is not None  # a slope held at 0 is none
    assert lack_of_fit(line[:2], [np.array([1.0, 1.1]), np.array([2.0, 2.1])]) is None
    assert lack_of_fit(line, [np.array([1.0, 1.1]), np.array([1.5]), np.array([2.0])]) is not None


def test_launches_that_agree_to_the_last_digit_count_as_a_thousandth_apart():
    line = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 3.0]])
    exact = lack_of_fit(line, [np.full(3, value) for value in (1.0, 1.1, 1.3)])
    assert (exact.p_value, exact.scatter) == (pytest.approx(1), pytest.approx(0.001))
    assert lack_of_fit(line, [np.full(3, value) for value in (1.0, 1.1005, 1.3)]).p_value > 0.01
    assert lack_of_fit(line, [np.full(3, value) for value in (1.0, 1.11, 1.3)]).p_value < 0.01


@pytest.mark.parametrize("slope", [0.0, 0.05])
def test_curves_that_are_of_the_law_are_refused_as_often_as_the_level_says(slope):
    sizes = np.array([1, 2, 4, 8, 16])
    terms = np.stack([np.ones(5), sizes - 1], axis=1)
    random = np.random.default_rng(5)
    noise = random.lognormal(0, 0.02, (600, 5, 3))
    p_values = [lack_of_fit(terms, list((terms @ [1, slope])[:, None] * own)).p_value for own in noise]
    assert np.mean(np.array(p_values) < 0.01) <= 0.025
    assert np.mean(np.array(p_values) < 0.1) == pytest.approx(0.1, abs=0.04)


def test_the_wider_of_two_spreads_says_which_it_is():
    def told(launches, residuals, kind="range"):
        low, high, word = wider(*((np.array(low), np.array(high)) for low, high in (launches, residuals)), kind)
        return low.tolist(), high.tolist(), word

    assert told(([8.0], [12.0]), ([9.0], [11.0])) == ([8.0], [12.0], "range")
    assert told(([8.0], [12.0]), ([9.0], [13.0]), "interval") == ([8.0], [13.0], "residuals")  # one end suffices
    assert told(([10.0], [10.0]), ([10.0], [10.0]), "single") == ([10.0], [10.0], "residuals")
    assert told(([0.0], [1.0]), ([-5.0], [1.0])) == ([0.0], [1.0], "range")  # below 0 is nothing
