from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regatta.statistics import (
    median_interval,
    min_samples,
    over_launches,
    percentile,
    ratio_over_launches,
)

SECONDS = st.floats(min_value=1e-9, max_value=1e4)


@pytest.mark.parametrize(("probability", "num"), [(0.5, 5), (0.75, 11), (0.90, 29), (0.95, 59), (0.99, 299)])
def test_a_percentile_needs_the_sample_that_can_carry_it(probability, num):
    assert min_samples(probability) == num
    assert percentile(np.arange(num - 1), probability) is None
    assert percentile(np.arange(num), probability) == pytest.approx(probability * (num - 1))


def test_the_interval_of_a_median_is_taken_by_ranks():
    # m = 25: floor((25 - 9.8) / 2) = 7 and ceil(1 + (25 + 9.8) / 2) = 19, counted from 1.
    assert median_interval(np.arange(1, 26)[::-1]) == (7, 19)
    # m = 100: floor((100 - 19.6) / 2) = 40 and ceil(1 + (100 + 19.6) / 2) = 61.
    assert median_interval(np.arange(1, 101)) == (40, 61)


def test_the_interval_of_a_small_sample_stays_inside_it():
    assert median_interval(np.arange(1, 7)) == (1, 6)
    assert median_interval(np.arange(1, 6)) is None
    assert median_interval(np.array([])) is None


def test_few_launches_give_a_range_and_many_an_interval():
    assert over_launches([]).kind == "none"
    assert over_launches([2.0]) == over_launches([2.0])
    assert (over_launches([2.0]).kind, over_launches([2.0]).low) == ("single", None)
    five = over_launches([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (five.num, five.median, five.low, five.high, five.kind) == (5, 3.0, 1.0, 5.0, "range")
    assert over_launches([1.0] * 5 + [9.0]).kind == "bootstrap"


def test_the_bootstrap_gives_the_same_interval_every_time():
    values = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]
    assert over_launches(values) == over_launches(values)


@given(st.lists(SECONDS, min_size=2, max_size=9))
def test_the_spread_encloses_the_median_and_stays_inside_the_launches(values):
    spread = over_launches(values)
    ordered = [min(values), spread.low, spread.median, spread.high, max(values)]
    # scipy interpolates between resamples, which may round in the last digit.
    assert all(low <= high * (1 + 1e-12) for low, high in pairwise(ordered))


def test_the_range_of_a_ratio_holds_every_pair_of_launches():
    ratio = ratio_over_launches([2.0, 3.0, 4.0], [1.0, 2.0])
    assert (ratio.median, ratio.low, ratio.high, ratio.kind) == (2.0, 1.0, 4.0, "range")
    assert ratio_over_launches([], [1.0]).kind == "none"
    assert ratio_over_launches([1.0], [2.0]).kind == "single"
    assert ratio_over_launches([1.0] * 6, [2.0] * 6).kind == "bootstrap"
