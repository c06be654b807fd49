"""Number formatting: significant figures, ratios, and ranges distinguished from intervals."""

import pandas as pd
import pytest

from regatta.core.text import bracket, interval_heading, percent, ratio_text


def test_a_difference_that_rounds_to_nothing_has_no_minus():
    assert [percent(ratio) for ratio in (-0.0004, 0.0004, -0.0, -0.0006)] == ["0.0", "0.0", "0.0", "-0.1"]


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.998, "0.998"), (1.0, "1.000"), (1.0017, "1.002"), (0.05, "0.0500"), (12.34, "12.3"), (None, "n/a")],
)
def test_ratios_near_one_have_three_decimals_on_both_sides(ratio, text):
    assert ratio_text(ratio) == text


def test_a_range_is_told_from_an_interval_by_its_brackets():
    assert bracket("133", "179", "range") == "(133 to 179)"
    assert bracket("85.0", "89.0", "interval") == bracket("85.0", "89.0", pd.NA) == "[85.0, 89.0]"
    assert bracket("1.00", "2.00", "residuals") == "[1.00, 2.00] (residuals)"  # of a fit: says nothing of launches


def test_the_heading_of_spreads_says_which_kinds_are_below_it():
    assert interval_heading(pd.array(["range", "single", pd.NA], dtype="string")) == "range"
    assert interval_heading(["interval", "none"]) == "95 % CI"
    assert interval_heading(["interval", "range"]).split(" or ") == ["range", "95 % CI"]
    assert interval_heading(["single", None]) == "95 % CI"
