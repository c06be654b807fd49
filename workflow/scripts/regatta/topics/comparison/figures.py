"""Comparisons as forest plots, the largest effect first, and what differs between the environments as tables."""

import math
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from regatta.core.names import SEPARATOR, cell_names
from regatta.core.text import UNKNOWN, duration, is_unknown, plural, ratio_text
from regatta.core.verdicts import MIN_LAUNCHES_TEST, MIN_NOISE_PAIRS, NO_TEST
from regatta.report.panels import Figure, Table
from regatta.report.plotting import COLOURS, GREY, GRID, INK, WIDTH_IN, image_of, log_ticks, new_canvas, set_ticks
from regatta.store.tables import to_csv
from regatta.topics.comparison.environment import NOT_KNOWN, Difference
from regatta.topics.comparison.tables import ALIKE, by_effect, is_noise
from regatta.topics.comparison.words import (
    finding_text,
    judged_rows,
    launches_text,
    margin_text,
    p_text,
    spread_text,
    summary,
    verdict_text,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# Draw a forest plot: one row for each comparison, its ratio of times as a mark, its spread as a line.

MAX_LINES = 14  # of labels in a panel
LABEL_CHARACTERS = 24
LINE_POINTS, GAP_POINTS, TOP_POINTS, BOTTOM_POINTS = 11, 4, 20, 36
LEFT_POINTS, RIGHT_POINTS = 126, 30  # for the labels, and for n
POINTS_PER_INCH = 72
PIXELS_PER_POINT = 390 / (WIDTH_IN * POINTS_PER_INCH)  # as wide as the other figures of the report
BAND = "#ECEEF1"
NO_BREAK = "\N{NO-BREAK SPACE}"
# Verdict -> colour, marker, and whether the marker is filled: told apart without colour too.
MARKS = {
    "slower": (COLOURS[1], "s", True),
    "faster": (COLOURS[0], "o", True),
    "inconclusive": (COLOURS[3], "o", False),
    "equivalent": (COLOURS[2], "D", False),
}


@dataclass(frozen=True)
class Row:
    """One comparison. low, high: None where there is one launch. is_interval: False where they are a range."""

    label: str
    ratio: float
    low: float | None
    high: float | None
    is_interval: bool
    num: str
    verdict: str

    @property
    def lines(self) -> list[str]:
        """The label, broken between its parts where that will do: never between a number and its unit."""
        whole = self.label.replace(" ", NO_BREAK).replace(
            SEPARATOR.replace(" ", NO_BREAK), f"{SEPARATOR.rstrip().replace(' ', NO_BREAK)} "
        )
        return [line.replace(NO_BREAK, " ") for line in textwrap.wrap(whole, LABEL_CHARACTERS)] or [""]


def pages(rows: list[Row]) -> list[list[Row]]:
    """Split rows into panels of at most MAX_LINES lines of labels, in their order."""
    found: list[list[Row]] = []
    left = 0
    for row in rows:
        if not found or len(row.lines) > left:
            found.append([])
            left = MAX_LINES
        found[-1].append(row)
        left -= len(row.lines)
    return found


def draw_forest(rows: list[Row], margin: float) -> tuple[bytes, tuple[int, int]]:
    """Return the plot as SVG, and its size in pixels. margin: ratio up to which times are equivalent."""
    heights = [LINE_POINTS * len(row.lines) + GAP_POINTS for row in rows]
    height, width = sum(heights) + TOP_POINTS + BOTTOM_POINTS, WIDTH_IN * POINTS_PER_INCH
    with new_canvas(WIDTH_IN, height / POINTS_PER_INCH, POINTS_PER_INCH) as figure:
        inner = width - LEFT_POINTS - RIGHT_POINTS
        axes = figure.add_axes((LEFT_POINTS / width, BOTTOM_POINTS / height, inner / width, sum(heights) / height))
        _scale(axes, rows, margin, sum(heights))
        place = sum(heights)
        for row, own in zip(rows, heights, strict=True):
            _draw_row(axes, row, place - own / 2)
            place -= own
        _legend(figure, rows, width, height)
        figure.text(0.5, 3 / height, "ratio of times: below 1 faster, above 1 slower", ha="center", fontsize=9)
        figure.text(1 - 3 / width, 24 / height, "n", ha="right", fontsize=9)
        return image_of(figure), (390, round(height * PIXELS_PER_POINT))


def _scale(axes: "Axes", rows: list[Row], margin: float, height: float) -> None:
    values = [value for row in rows for value in (row.ratio, row.low, row.high) if value is not None]
    low, high = min([*values, 1 / (1 + margin)]), max([*values, 1 + margin])
    gap = max((high / low) ** 0.05, 1.001)
    axes.set_xscale("log")
    axes.set(xlim=(low / gap, high * gap), ylim=(0, height))
    ticks = ratio_ticks(low / gap, high * gap)
    set_ticks(axes.xaxis, ticks)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="x", color=GRID, linewidth=0.8)
    axes.tick_params(length=3)
    if margin > 0:
        axes.axvspan(1 / (1 + margin), 1 + margin, color=BAND, linewidth=0, zorder=0.5)
        for edge in (1 / (1 + margin), 1 + margin):
            axes.axvline(edge, color=GREY, linewidth=0.7, dashes=(3, 2), zorder=1)
    axes.axvline(1, color=INK, linewidth=1, zorder=1.2)


def ratio_ticks(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Return at most five round places of an axis of ratios, 1 among them: even steps near 1, 1-2-5 on a long axis."""
    if high / low > 3:
        ticks = log_ticks(low, high, "{:g}".format)
        return ticks if len(ticks) <= 5 else tuple(t for t in ticks if t[1].strip("0.") in ("1", "2", "5"))[:6]
    for step in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
        places = [1 + k * step for k in range(math.ceil((low - 1) / step), math.floor((high - 1) / step) + 1)]
        if len(places) <= 5:
            break
    return tuple((place, f"{place:.3f}".rstrip("0").rstrip(".")) for place in places)


def _draw_row(axes: "Axes", row: Row, place: float) -> None:
    colour, marker, is_filled = MARKS[row.verdict]
    if row.low is not None:
        style = {"linewidth": 2} if row.is_interval else {"linewidth": 0.9, "dashes": (3, 1.5)}
        axes.plot([row.low, row.high], [place, place], color=colour, solid_capstyle="butt", zorder=2, **style)
    axes.plot(
        [row.ratio], [place], linestyle="none", marker=marker, markersize=5.5, markeredgewidth=1.2,
        markerfacecolor=colour if is_filled else "white", markeredgecolor=colour, zorder=3,
    )  # fmt: skip
    beside = axes.get_yaxis_transform()
    text = {"transform": beside, "va": "center", "fontsize": 9, "linespacing": 1.0}
    inner = WIDTH_IN * POINTS_PER_INCH - LEFT_POINTS - RIGHT_POINTS
    axes.text(-(LEFT_POINTS - 3) / inner, place, "\n".join(row.lines), ha="left", **text)
    axes.text(1 + (RIGHT_POINTS - 3) / inner, place, row.num, ha="right", **text)


def _legend(figure: "Canvas", rows: list[Row], width: float, height: float) -> None:
    """Write which mark means which verdict, above the rows: those that the panel has."""
    from matplotlib.lines import Line2D

    place, level = 8.0, height - 9
    for verdict in dict.fromkeys(word for word in MARKS if any(row.verdict == word for row in rows)):
        colour, marker, is_filled = MARKS[verdict]
        figure.add_artist(
            Line2D(
                [place / width], [level / height], linestyle="none", marker=marker, markersize=5.5, markeredgewidth=1.2,
                markerfacecolor=colour if is_filled else "white", markeredgecolor=colour,
            )
        )  # fmt: skip
        figure.text((place + 6) / width, level / height, verdict, va="center", fontsize=9)
        place += 18 + 5.4 * len(verdict)


MAX_PANELS = 4  # of a benchmark; the smaller effects are in comparisons.csv
MAX_ALIKE = 10  # rows of alike stacks; the others are nearer to 1
HEADS = ("cell", "reference", "this", "ratio", "n", "test", "p", "p corrected", "verdict")
ALIKE_HEADS = ("cell", "reference", "this", "ratio", "n", "verdict")


def comparison_figures(comparisons: pd.DataFrame) -> list[Figure]:
    """Return forest plots of the rows that have a ratio, by benchmark: those beyond the margin first, then the others."""
    known = judged_rows(comparisons)
    if not len(known):
        return []
    known = known.assign(label=_labels(known))
    found: list[Figure] = []
    for benchmark, rows in known.groupby("benchmark", sort=False):
        left = _within_margin_last(rows)
        split = pages([_row(row) for row in left.itertuples()])[:MAX_PANELS]
        for index, page in enumerate(split):
            part, left = left.iloc[: len(page)], left.iloc[len(page) :]
            title = f"{benchmark} ({index + 1} of {len(split)})" if len(split) > 1 else benchmark
            num_left = len(left) if index == len(split) - 1 else 0
            everything = None if found else known
            found.append(_figure(f"comparison-{len(found) + 1}", title, part, page, num_left, everything))
    return found


def environment_table(title: str, found: list[Difference], reference: str, other: str) -> Table | None:
    """Return what differs between the environments of two sides, or None if nothing is known to."""
    rows = tuple((d.name.replace(NOT_KNOWN, f"{NOT_KNOWN}, so not compared", 1), d.reference, d.other) for d in found)
    return (
        Table(title, ("what", reference, other), rows, is_words=True, sources=("launches/*.jsonl",)) if rows else None
    )


def alike_table(comparisons: pd.DataFrame) -> Table | None:
    """Return the rows of stacks that differ in their name alone (A/A), those furthest from 1, or None without any."""
    rows = comparisons[(comparisons["verdict"] == ALIKE).fillna(False)]
    if not len(rows):
        return None
    shown = by_effect(rows.assign(label=_labels(rows))).head(MAX_ALIKE)
    most = f"{len(rows)}" if len(shown) == len(rows) else f"the {len(shown)} of {len(rows)} that are furthest from 1"
    title = (
        f"{pair_text(rows)}: alike but for the name, so noise and not judged ({most}). From {MIN_NOISE_PAIRS} pairs of"
        f" {MIN_LAUNCHES_TEST} launches on they give the margin of their benchmark."
    )
    body = tuple((*_times(row), row.verdict) for row in shown.itertuples())
    return Table(title, ALIKE_HEADS, body, sources=("comparisons",))


def comparison_table(title: str, comparisons: pd.DataFrame, chosen: pd.Index) -> Table:
    """Return some rows as numbers for people. They are named by what varies among all comparisons."""
    known = judged_rows(comparisons)
    return _numbers(title, known.assign(label=_labels(known) if len(known) else []).loc[chosen])


def finding(comparisons: pd.DataFrame) -> str:
    """Return the sentence on all comparisons: which side takes longer where nearly all agree, how many ended in which word,
    by which margin, and the largest effect."""
    known = judged_rows(comparisons)
    text = f"{pair_text(known)}: {finding_text(known)}"
    told = by_effect(known[known["verdict"].isin(["slower", "faster"])])
    if not len(told):
        return f"{text}."
    row = next(told.assign(label=_labels(known)).head(1).itertuples())
    return f"{text}. The largest difference: {row.label} takes {spread_text(row)} times as long (n = {launches_text(row)})."


def _within_margin_last(rows: pd.DataFrame) -> pd.DataFrame:
    ordered = by_effect(rows)
    is_within = is_noise(ordered)
    return pd.concat([ordered[~is_within], ordered[is_within]])


def _labels(known: pd.DataFrame) -> pd.Series:
    """Return the name of each row: what is compared with what where it is not the same in all rows, and the cell."""
    axis = known["axis"].iloc[0]
    own = pd.Series([name.without(axis).brief for name in cell_names(known.to_dict("records"))], index=known.index)
    pairs = known["value"] + " : " + known["reference_value"]
    if pairs.nunique() == 1:
        return own
    told = known["value"] if known["reference_value"].nunique() == 1 else pairs
    return told + SEPARATOR + own


def pair_text(known: pd.DataFrame) -> str:
    """Return what is compared with what: `stack bound against contained`."""
    axis, values, references = (list(dict.fromkeys(known[name])) for name in ("axis", "value", "reference_value"))
    word = "" if axis[0] == "campaign" else f"{axis[0].replace('_', ' ')} "
    return f"{word}{' and '.join(values)} against {' and '.join(references)}"


def _row(row) -> Row:
    low, high = (None if is_unknown(value) else float(value) for value in (row.time_low_ratio, row.time_high_ratio))
    return Row(row.label, float(row.time_ratio), low, high, row.interval == "interval", launches_text(row), row.verdict)


def _figure(
    figure_id: str, title: str, rows: pd.DataFrame, drawn: list[Row], num_left: int, everything: pd.DataFrame | None
) -> Figure:
    """everything: all comparisons where this is the first figure, whose text tells of all."""
    margin = float(rows["margin_ratio"].iloc[0])
    svg, size = draw_forest(drawn, margin)
    first = rows.iloc[0]
    largest = f"{first['label']}: {ratio_text(first['time_ratio'])} times as long, {first['verdict']}"
    alt = finding(everything) if everything is not None else f"{title}: {summary(rows)}. First: {largest}."
    return Figure(
        figure_id,
        f"{pair_text(rows)}: {title}",
        svg,
        alt,
        _caption(rows, num_left, everything is not None),
        _numbers(f"Comparisons of {title}, by size of the effect", rows),
        to_csv(rows.drop(columns="label")),
        size,
        "comparisons",
    )


def _caption(rows: pd.DataFrame, num_left: int, is_first: bool) -> str:
    kinds, is_paired = set(rows["interval"]), rows["is_paired"].fillna(False)
    spreads = {"interval": "a thick line its 95 % interval", "range": "a thin dashed line the range over launches"}
    text = "A mark is the median time (p50) of one cell over that of the other"
    text += "".join(f", {told}" for kind, told in spreads.items() if kind in kinds)
    is_even = (rows["num_launches"] == rows["num_reference_launches"]).all()
    text += f"; n counts launches of each{'' if is_even else ', the reference first'}"
    if is_paired.any():
        some = "" if is_paired.all() else f" in {plural(int(is_paired.sum()), 'row')}"
        text += f", compared in pairs{some}, each of one allocation"
    text += f". At 1 there is no difference, below 1 is faster; the grey band is the margin of {margin_text(rows)}."
    nothing = " (here nothing)" if is_noise(rows).all() else ""
    text += f" First what is beyond the margin{nothing}, then what is within it, each with the largest effect first."
    if is_first and (rows["test"].fillna(NO_TEST) != NO_TEST).any():
        text += " In the table p is of the named test that the ratio is 1, corrected by Benjamini and Hochberg over all"
        text += " comparisons; faster and slower also need the whole spread beyond the margin."
    if num_left:
        text += f" Not drawn: {plural(num_left, 'comparison')} further down that order, in comparisons.csv."
    return text


def _numbers(title: str, rows: pd.DataFrame) -> Table:
    return Table(
        title,
        HEADS,
        tuple(
            (
                *_times(row),
                UNKNOWN if is_unknown(row.test) else row.test,
                p_text(row.p_value),
                p_text(row.p_adjusted),
                verdict_text(row),
            )
            for row in rows.itertuples()
        ),
    )


def _times(row) -> tuple[str, ...]:
    return row.label, duration(row.reference_time_s), duration(row.time_s), spread_text(row), launches_text(row)
