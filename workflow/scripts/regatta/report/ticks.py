"""An axis: its ends, and its ticks: a few round values, or those that were measured."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regatta.core.text import three

Ticks = tuple[tuple[float, str], ...]  # (place, text)
MOST_TICKS = 7


@dataclass(frozen=True)
class PlotAxis:
    """One axis. label: with unit. ticks: (place, text); empty: automatic. show: text of an automatic tick.

    drawn: label beside ticks that have its unit. value: text of a value, if not that of a tick.
    is_categorical: its places have no order, so that bars mark the reported values, without a line between them.
    """

    label: str
    is_log: bool = False
    low: float | None = None
    high: float | None = None
    ticks: tuple[tuple[float, str], ...] = ()
    show: Callable[[float], str] = "{:,g}".format
    is_categorical: bool = False
    drawn: str = ""
    value: Callable[[float], str] = three

    def written(self, value: float) -> str:
        return (self.value if self.show == PlotAxis.show else self.show)(float(f"{value:.3g}"))

    @classmethod
    def of_categories(cls, label: str, texts: Sequence[str]) -> "PlotAxis":
        """Return an axis with places 0, 1, ... for these texts."""
        return cls(label, low=-0.5, high=len(texts) - 0.5, ticks=tuple(enumerate(texts)), is_categorical=True)


def limits_along(axis: PlotAxis, values: list[float], margin: float) -> tuple[float, float]:
    low = min(values) if axis.low is None else axis.low
    high = max(values) if axis.high is None else axis.high
    if axis.is_log:
        gap = max(math.log(high / low), 0.7 if len(set(values)) == 1 else 0.1) * margin
        if high / low < 1.1:  # nearly a single value: leave room around it
            gap = 0.5
        return low / math.exp(gap), high * math.exp(gap)
    gap = (high - low or abs(high) or 1) * margin
    return low if axis.low is not None else low - gap, high + (gap if axis.high is None else 0)


def ticks_between(low: float, high: float, axis: PlotAxis, starts_below: bool = False) -> Ticks:
    """Return a few round values: even steps, or on a log axis of more than a decade 1-2-5 or whole decades.

    starts_below: the first is the last one that is not above `low`.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator

    if axis.is_log and high / low >= 10:
        steps = (1, 2, 5) if high / low < 150 else (1, 3) if high / low < 1500 else (1,)
        locator = LogLocator(subs=steps, numticks=MOST_TICKS)
    else:
        locator = MaxNLocator(MOST_TICKS - 1, steps=[1, 2, 5, 10])
    found = locator.tick_values(low, high)
    low = max((place for place in found if place <= low), default=low) if starts_below else low
    places = [place for place in found if low <= place <= high]
    return tuple((float(place), axis.show(place)) for place in places[:: math.ceil(len(places) / MOST_TICKS)])


def size_ticks(values: list[float], show=three, most: int = 6) -> Ticks:
    """Return the measured values of an axis as ticks, thinned to at most `most`, keeping the last."""
    places = sorted(set(values))
    step = math.ceil(len(places) / most)
    return tuple((place, show(place)) for place in places[(len(places) - 1) % step :: step])
