"""A figure: its data frame, the form in which it is drawn, its axes and styles. matplotlib lays out and draws.

Colors are CSS variables of workflow/report/style.css, so that a figure follows the page's theme. A mark that stands for
a cell has its id in the attribute data-cell, a line or label those of its cells in data-line.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from regatta.core.text import three, with_minus_signs
from regatta.kit.kinds import joined

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colors of drawings have the names of the page's CSS variables. matplotlib draws each in a unique placeholder color.
COLORS = tuple(f"hue-{number}" for number in range(1, 7))
SLOWER = COLORS[3]  # of a slow place: not among the first series
INK, GREY, GRID, GROUND = "ink", "soft", "line", "ground"
GOOD, BAD, LEVEL, LOSS = "good", "bad", "level-high", "loss"
PLACEHOLDERS = {
    name: f"#a100{number:02x}"
    for number, name in enumerate((*COLORS, INK, GREY, GRID, GROUND, GOOD, BAD, LEVEL, LOSS), start=1)
}
# Gids of drawings: an attribute, and its value.
CELL = "data-cell:"  # the cell that it stands for
LINE = "data-line:"  # the cells of the marks that it connects
MARK = "data-mark:"  # its row in the frame
SIGNS = {"o": "\u25cf", "s": "\u25a0", "^": "\u25b2", "D": "\u25c6", "v": "\u25bc", "P": "\u271a"}  # by marker
MARKERS = tuple(SIGNS)
DASHES = ((), (5, 2), (1.5, 1.5), (6, 2, 1.5, 2), (9, 3), (3, 1.5))
FAINTEST = 0.4  # opacity of the first series of a hue
MOST_LABELS = 6  # of lines, at their ends; of more there is a legend
LEAST_ZOOMED, LEAST_SPAN = 0.6, 0.04  # of the highest value: least value on a zoomed axis; least span
MOST_TICKS, MAX_LAUNCHES = 6, 1000  # of more launches only the ranges are drawn
SLOW, HOLLOW = "slow node", "\N{WHITE CIRCLE}"  # column of a frame: slow nodes that a cell includes; their sign
ZOOMED = "zoomed"  # beside the label of an axis that does not start at 0


@dataclass(frozen=True)
class PlotAxis:
    """One axis. label: with unit. ticks: (place, text); empty: automatic. show: text of an automatic tick.

    drawn: label beside ticks that have its unit. value: text of a value, if not that of a tick.
    is_categorical: its places have no order.
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

    @property
    def heading(self) -> str:
        return self.drawn or self.label

    def written(self, value: float) -> str:
        return (self.value if self.show == PlotAxis.show else self.show)(float(f"{value:.3g}"))

    def place_text(self, place: float) -> str:
        """Return the only place on the axis in words, such as `GPUs: 2 (1×2)`."""
        text, _, shapes = dict(self.ticks).get(place, f"{place:g}").partition("\n")
        return f"{self.label.partition(' (')[0]}: {text}{f' ({shapes})' if shapes else ''}" if self.label else ""

    @classmethod
    def of_categories(cls, label: str, texts: Sequence[str]) -> "PlotAxis":
        """Return an axis with places 0, 1, ... for these texts."""
        return cls(label, ticks=tuple(enumerate(texts)), is_categorical=True)

    def scale(self, axes: "Axes", name: str, values: Sequence[float]) -> bool:
        """Set the ends and a few round ticks of the axis x or y of a plot; return whether it begins above 0: zoomed."""
        from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

        low = min(values) if self.low is None else self.low
        high = max(values) if self.high is None else self.high
        if self.is_log:
            around = max(1.1, (high / low) ** 0.07)
            low, high = low / around, high * around
        else:
            low = 0 if self.low is None and 0 < low < LEAST_ZOOMED * high else low
            around = 0.07 * max(high - low, LEAST_SPAN * abs(high)) or 0.07
            low, high = low - around * (self.low is None and low != 0), high + around * (self.high is None)
        axes.set(**{f"{name}scale": "log" if self.is_log else "linear", f"{name}lim": (low, high)})
        side = getattr(axes, f"{name}axis")
        if self.ticks and not self.is_categorical:
            side.set_ticks(*zip(*self.ticks, strict=True))
        else:
            steps = (1, 2, 5) if high < 150 * low else (1, 3) if high < 1500 * low else (1,)
            is_decades = self.is_log and high >= 10 * low
            round_values = LogLocator(subs=steps, numticks=MOST_TICKS), MaxNLocator(MOST_TICKS, steps=[1, 2, 5, 10])
            side.set_major_locator(round_values[not is_decades])
            side.set_major_formatter(FuncFormatter(lambda place, _: with_minus_signs(self.show(place))))
        side.set_minor_locator(NullLocator())
        return not self.is_log and bool(low > 0)


def size_ticks(values: Sequence[float], show: Callable = three, most: int = 6) -> tuple[tuple[float, str], ...]:
    """Return the measured values of an axis as ticks, thinned to at most `most`, keeping the last."""
    places = sorted(set(values))
    step = math.ceil(len(places) / most)
    return tuple((place, show(place)) for place in places[(len(places) - 1) % step :: step])


@dataclass(frozen=True)
class Style:
    """How a series is drawn. is_context: in gray behind the others. is_guide: what others are compared with."""

    color: str = COLORS[0]
    marker: str = "o"
    dashes: tuple[float, ...] = ()
    opacity: float = 1.0
    is_context: bool = False
    is_guide: bool = False
    hatch: str = ""

    @property
    def line(self) -> object:
        return (0, self.dashes) if self.dashes else "-"


CONTEXT = Style(GREY, "o", opacity=FAINTEST, is_context=True)
GUIDE = Style(GREY, "", (4, 3), is_guide=True)


def styles_of(hues: Mapping[str, int], context: Collection[str] = ()) -> dict[str, Style]:
    """Return how each series is drawn: color by hue; dashes and opacity by its position among the series of the hue.

    The last series of a hue, such as the largest shape, is solid and darkest. The first one has the hue's marker, which
    is the same in all figures. The others have markers that the figure does not use yet, as far as there are any.
    """
    numbers, places, found = Counter(hue for name, hue in hues.items() if name not in context), Counter(), {}
    spare = iter([marker for hue, marker in enumerate(MARKERS) if hue not in {of % len(COLORS) for of in numbers}])
    for name, hue in hues.items():
        if name in context:
            found[name] = CONTEXT
            continue
        place, index = places[hue], hue % len(COLORS)
        places[hue] += 1
        of_hue = MARKERS[(index + place) % len(MARKERS)]
        from_last = numbers[hue] - 1 - place
        opacity = 1 - (1 - FAINTEST) * from_last / max(numbers[hue] - 1, 1)
        marker = next(spare, of_hue) if place else of_hue
        found[name] = Style(COLORS[index], marker, DASHES[from_last % len(DASHES)], opacity)
    return found


@dataclass(frozen=True)
class Chart:
    """What a figure draws. form: key of regatta.report.draw.FORMS. x, y: axes of the frame's columns x and y.

    frame: one row for each mark; the columns `ends` are its interval, `series` is the key of its style, `cell` the cell
    that it stands for (empty: none), SLOW its slow nodes (the mark is hollow), and `launch 1`, ... its launches.
    styles: of the series, in the order of a legend.
    heading: completes the label of the values. context: label of all context series. stretch: factor of the height.
    record: the measurement shown, if there is only one.
    """

    form: str
    frame: pd.DataFrame
    x: PlotAxis
    y: PlotAxis
    ends: tuple[str, str] = ("low", "high")
    series: str = "series"
    cell: str = "cell"
    styles: Mapping[str, Style] = field(default_factory=dict)
    heading: str = ""
    context: str = ""
    stretch: float = 1.0
    record: str = ""

    @property
    def marks(self) -> pd.DataFrame:
        """Return the frame with the axes' labels as names of their columns, the cell first."""
        names = {"x": self.x.label or "x", "y": self.y.label.partition(", ")[0]}
        marks = self.frame.assign(**{self.series: self.frame[self.series].str.replace("\n", " ")})
        if self.form == "rows" and self.x.is_categorical:
            marks["x"] = marks["x"].map({place: text.replace("\n", " ") for place, text in self.x.ticks})
        return marks.dropna(axis="columns", how="all").rename(columns=names)

    @property
    def footnotes(self) -> list[str]:
        """Return what hollow marks mean, and which series have a cross, if there are any."""
        slow = self.frame[SLOW].dropna().unique() if SLOW in self.frame else ()
        is_gap = self.frame["y"].isna() & ~self.frame[self.series].map(lambda name: self.styles[name].is_context)
        failed = [name.replace("\n", " ") for name in self.frame.loc[is_gap, self.series].unique()]
        found = {f"{HOLLOW} includes": slow, "\N{BALLOT X} failed:": failed if self.form == "lines" else ()}
        return [f"{sign} {joined([*names])}" for sign, names in found.items() if len(names)]

    @property
    def axes_text(self) -> str:
        return f"{self.y.label} by {self.x.label}" if self.x.label else self.y.label

    @property
    def launches(self) -> list[str]:
        return [name for name in self.frame if name.startswith("launch ")]

    @property
    def values(self) -> list[float]:
        """Return what the axis of values spans: values, their ends, and launches or their range."""
        names = {"y", *self.ends, *self.launches, "minimum", "maximum"} & {*self.frame}
        values = self.frame[sorted(names)].to_numpy(float)
        return values[~np.isnan(values)].tolist()

    @property
    def has_bands(self) -> bool:
        """Return whether intervals are drawn: in lines, only if all values of a series have one."""
        frame = self.frame.dropna(subset="y")
        known = frame[list(self.ends)].notna().all(axis="columns")
        whole = known.groupby(frame[self.series]).all()
        return bool(whole.any() if self.form == "lines" else known.any())

    def of(self, name: str) -> pd.DataFrame:
        return self.frame[self.frame[self.series] == name]

    def cells_of(self, *names: str) -> str:
        """Return the gid of what shows these series."""
        cells = self.frame.loc[self.frame[self.series].isin(names), self.cell]
        return LINE + " ".join(cell for cell in cells if cell)


@dataclass(frozen=True)
class Medium:
    """What is drawn for: sizes, and colors by name. height_in: None for that of the form."""

    width_in: float
    text_pt: float
    colors: Mapping[str, str]
    height_in: float | None = None
    wide_in: float | None = None  # width of hosts over time


# The style sheet keeps text at 12 px at any width.
PAGE = Medium(5.6, 12.5, PLACEHOLDERS, wide_in=10)
