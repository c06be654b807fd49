"""Consistency of printed figures: each stands for an interval of half a unit in its last digit to either side."""

import re
from decimal import Decimal

Interval = tuple[float, float]
SLACK = 1e-9  # relative, for binary fractions at the ends of an interval
MOST_DIGITS = 1e6  # from here on, programs with columns of six or seven characters print exponents


def printed_interval(figure: str | float) -> Interval:
    """Return what a figure of at least 0 can stand for: 0.07 is 0.065 to 0.075.

    figure: its text, or a number of JSON, whose trailing zeros are unknown: 3 is 2.5 to 3.5.
    """
    text = figure if isinstance(figure, str) else re.sub(r"\.0$", "", repr(figure))
    number = Decimal(text)
    if not isinstance(figure, str) and number >= MOST_DIGITS:
        number = number.normalize()
    half = Decimal(5).scaleb(number.as_tuple().exponent - 1)
    return float(max(number - half, Decimal(0))), float(number + half)


def ratio(size: float, time: Interval) -> Interval:
    """Return the interval of size / time."""
    shortest, longest = time
    return size / longest, size / shortest if shortest else float("inf")


def scaled(interval: Interval, factor: float) -> Interval:
    """Return an interval times a factor of at least 0."""
    return tuple(factor * end if factor else 0.0 for end in interval)


def middle(interval: Interval) -> float:
    """Return the middle of an interval, for messages; its low end if it has no high one."""
    low, high = interval
    return low if high == float("inf") else (low + high) / 2


def common(*intervals: Interval) -> Interval | None:
    """Return what all intervals have in common; None if they contradict each other."""
    low, high = max(low for low, _ in intervals), min(high for _, high in intervals)
    return None if low > high * (1 + SLACK) else (min(low, high), high)
