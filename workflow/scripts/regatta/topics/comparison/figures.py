"""Comparisons as shown to readers: texts of rows, tables, and forest plots with the largest effect first."""

import json
import textwrap
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from regatta.core.benchmarks import all_axes
from regatta.core.names import SEPARATOR, cell_names, value_text
from regatta.core.text import UNKNOWN, bracket, duration, is_unknown, percent, plural, ratio_text, size, three
from regatta.core.verdicts import FALSE_DISCOVERIES, MIN_LAUNCHES_TEST, MOST_LAUNCHES, holds_limit, sign_test
from regatta.report import plotting
from regatta.report.findings import percent_number
from regatta.report.panels import Figure, Table
from regatta.store.csv_files import to_csv
from regatta.topics.comparison.tables import ALIKE, by_effect, is_noise

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VERDICTS = ("slower", "faster", "inconclusive", "equivalent")
NEARLY_ALL = 0.9  # share of ratios on one side of 1 above which the direction is also reported
SOURCES = {"campaign": "from the campaign", "default": "default", "option": "from the command line"}
COMPARED = (
    "Times: medians of synchronized steps and blocking calls (p50_s), not the pipelined windows used for scaling."
)


def interval_text(row) -> str:
    """Return a ratio with its interval, `1.021 [1.018, 1.024]`, or its range, `1.021 (1.010 to 1.030)`."""
    if is_unknown(row.time_low_ratio):
        return ratio_text(row.time_ratio)
    interval = bracket(row.time_low_ratio, row.time_high_ratio, row.interval, ratio_text)
    return f"{ratio_text(row.time_ratio)} {interval}"


def launches_text(row) -> str:
    """Return n: launches of the cell and of its reference, as one number if they are equal."""
    reference, other = row.num_reference_launches, row.num_launches
    return str(other) if reference == other else f"{other} vs. {reference}"


def verdict_text(row) -> str:
    """Return the verdict; of an inconclusive one also how many more launches would settle it."""
    if is_unknown(row.verdict):
        return UNKNOWN
    if row.verdict != "inconclusive":
        return row.verdict
    if not is_unknown(row.launches_needed):
        return f"inconclusive, {plural(row.launches_needed, 'more launch', 'more launches')}"
    is_known = not (is_unknown(row.p_value) or is_unknown(row.time_low_ratio))
    if is_known and not holds_limit(row.time_low_ratio, row.time_high_ratio, row.margin_ratio):
        return f"inconclusive, more than {MOST_LAUNCHES} launches"
    return row.verdict


def p_text(value: float | None) -> str:
    return UNKNOWN if is_unknown(value) else "below 0.001" if value < 0.001 else three(value)


def judged_rows(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have a verdict: launches on both sides, and stacks that are not identical (A/A)."""
    return comparisons[(comparisons["verdict"].notna() & (comparisons["verdict"] != ALIKE)).fillna(False)]


def margin_text(judged: pd.DataFrame) -> str:
    """Return the margin of each benchmark and its source: `3.2 % (noise floor of 9 A/A pairs) of collective`."""
    margins: dict[str, list[str]] = {}
    rows = judged[["benchmark", "margin_ratio", "margin_source"]].drop_duplicates()
    for benchmark, ratio, source in rows.itertuples(index=False):
        margins.setdefault(f"{percent(ratio)} % ({SOURCES.get(source, source)})", []).append(benchmark)
    if len(margins) == 1:
        return next(iter(margins))
    return ", ".join(f"{text} of {' and '.join(benchmarks)}" for text, benchmarks in margins.items())


def direction(judged: pd.DataFrame) -> dict | None:
    """Return which side takes longer, where nearly all ratios agree and a sign test rejects chance."""
    ratios = judged["time_ratio"].astype(float)
    if not len(ratios) or len(judged[["value", "reference_value"]].drop_duplicates()) > 1:
        return None
    p_value = sign_test(ratios.tolist())
    num_above, num_below = int((ratios > 1).sum()), int((ratios < 1).sum())
    if p_value > FALSE_DISCOVERIES or max(num_above, num_below) < NEARLY_ALL * len(ratios):
        return None
    is_slower = num_above > num_below
    return {
        "value": axis_text(judged["axis"].iloc[0], judged["value"].iloc[0]),
        "is_slower": is_slower,
        "num": max(num_above, num_below),
        "num_pairs": len(ratios),
        "median_ratio": float(ratios.median()),
        "most_ratio": float(ratios.max() if is_slower else ratios.min()),
        "p_value": p_value,
    }


def direction_text(found: dict | None) -> str:
    """Return `bound is slower in 8 of 8 pairs (median 2.1 %, maximum 2.8 %; sign test, p = 0.0078)`, or ""."""
    if found is None:
        return ""
    typical, most = (percent(abs(found[name] - 1)) for name in ("median_ratio", "most_ratio"))
    word = "slower" if found["is_slower"] else "faster"
    p_value = "p < 0.001" if found["p_value"] < 0.001 else f"p = {three(found['p_value'])}"
    pairs = f"{found['num']} of {plural(found['num_pairs'], 'pair')}"
    return f"{found['value']} is {word} in {pairs} (median {typical} %, maximum {most} %; sign test, {p_value})"


def counts_text(comparisons: pd.DataFrame) -> str:
    """Return the number of comparisons by verdict: `14 of 20 comparisons slower, 0 faster, 4 equivalent, ...`."""
    verdicts = judged_rows(comparisons)["verdict"]
    slower, *others = (int((verdicts == word).sum()) for word in VERDICTS)
    listed = ", ".join(f"{num} {word}" for num, word in zip(others, VERDICTS[1:], strict=True))
    return f"{slower} of {plural(len(verdicts), 'comparison')} slower, {listed}"


def pair_text(rows: pd.DataFrame) -> str:
    """Return what is compared: `stack bound vs. contained`, `bucket size 1 MiB vs. 25 MiB`."""
    [axis], *sides = (list(dict.fromkeys(rows[name])) for name in ("axis", "value", "reference_value"))
    word = "" if axis == "campaign" else f"{axis_label(axis)} "
    return word + " vs. ".join(" and ".join(axis_text(axis, value) for value in values) for values in sides)


def axis_label(axis: str) -> str:
    """Return the label of the axis of a comparison within a sentence."""
    label = all_axes()[axis].label if axis in all_axes() else axis.replace("_", " ")
    return label if label[:2].isupper() else label[:1].lower() + label[1:]


def axis_text(axis: str, value: str) -> str:
    """Return a value of the axis of a comparison, given as in comparisons.csv, with its unit."""
    known = all_axes().get(axis)
    if known is None or value == "None":
        return value
    typed = value if known.type == "string" else json.loads(value)
    if known.unit is None:
        return value_text(known, typed)
    if known.unit == "bytes":
        return size(typed)
    return f"{f'{typed:g}' if isinstance(typed, float) else typed} {known.unit}"


def finding_values(judged: pd.DataFrame) -> dict:
    """Return the counts by verdict, the direction where nearly all pairs agree on one, and the largest effect.

    judged: of `judged_rows`, with the column `label`, a name of each row.
    """
    fewest = judged[["num_launches", "num_reference_launches"]].min(axis=1)
    values = {
        "pair": pair_text(judged),
        "num": len(judged),
        "by_verdict": {word: int((judged["verdict"] == word).sum()) for word in VERDICTS},
        "num_undecidable": int((fewest < MIN_LAUNCHES_TEST).fillna(True).sum()),
        "margins": tuple(sorted(float(margin) for margin in judged["margin_ratio"].unique())),
        "direction": direction(judged),
    }
    for row in largest_effect(judged).itertuples():
        values |= {"largest": row.label, "largest_ratio": float(row.time_ratio), "largest_text": interval_text(row)}
    return values


def largest_effect(judged: pd.DataFrame) -> pd.DataFrame:
    """Return the slower or faster row with the largest effect, if there is one."""
    return by_effect(judged[judged["verdict"].isin(["slower", "faster"])]).head(1)


def finding_text(values: dict) -> str:
    """Return `finding_values` as sentences."""
    lead = direction_text(values["direction"]) or plural(values["num"], "comparison")
    texts = [f"{values['pair'][:1].upper()}{values['pair'][1:]}: {lead}."]
    num, num_undecidable = values["num"], values["num_undecidable"]
    if num_undecidable < num:
        counts = ", ".join(f"{num} {word}" for word, num in values["by_verdict"].items() if num)
        margin = " or ".join(f"{percent_number(margin)} %" for margin in values["margins"])
        texts.append(f"Verdicts at a margin of {margin}: {counts}.")
    if num_undecidable:
        few = f"{num_undecidable} of {num}" if num_undecidable < num else "All"
        texts.append(f"{few} have fewer than {MIN_LAUNCHES_TEST} launches, too few for a verdict.")
    if "largest" in values:
        texts.append(f"Largest difference: {values['largest']}, ratio {values['largest_text']}.")
    return " ".join(texts)


NUMBERS = {
    "cell": lambda row: row.label,
    "reference time": lambda row: duration(row.reference_time_s),
    "time": lambda row: duration(row.time_s),
    "ratio": interval_text,
    "n": launches_text,
    "test": lambda row: UNKNOWN if is_unknown(row.test) else row.test,
    "p": lambda row: p_text(row.p_value),
    "corrected p": lambda row: p_text(row.p_adjusted),
    "verdict": verdict_text,
}


def comparison_table(title: str, comparisons: pd.DataFrame, chosen: pd.Index) -> Table:
    """Return some rows as a table for readers. They are named by what varies among all comparisons."""
    return Table.of(title, NUMBERS, with_labels(judged_rows(comparisons)).loc[chosen])


def with_labels(rows: pd.DataFrame) -> pd.DataFrame:
    """Add `label`, the name of each row: the compared values if they differ between rows, and the cell."""
    if not len(rows):
        return rows.assign(label=[])
    axis = rows["axis"].iloc[0]
    names = pd.Series([name.without(axis).brief for name in cell_names(rows.to_dict("records"))], index=rows.index)
    values, references = (rows[name].map(partial(axis_text, axis)) for name in ("value", "reference_value"))
    pairs = values + " vs. " + references
    if pairs.nunique() > 1:
        names = (values if references.nunique() == 1 else pairs) + SEPARATOR + names
    return rows.assign(label=names)


MAX_PANELS = 4  # panels per benchmark; smaller effects are in comparisons.csv


def comparison_figures(comparisons: pd.DataFrame) -> list[Figure]:
    """Return forest plots of the rows that have a ratio, by benchmark: beyond the margin first, then within it."""
    known = with_labels(judged_rows(comparisons))
    found: list[Figure] = []
    for benchmark, rows in known.groupby("benchmark", sort=False):
        left = by_effect(rows)
        left = pd.concat([left[~is_noise(left)], left[is_noise(left)]])
        split = pages([_row(row) for row in left.itertuples()])[:MAX_PANELS]
        for index, page in enumerate(split):
            part, left = left.iloc[: len(page)], left.iloc[len(page) :]
            title = f"{benchmark} ({index + 1} of {len(split)})" if len(split) > 1 else benchmark
            first = part.iloc[0]
            alt = f"{title}: {counts_text(part)}. First: {first['label']}, ratio {ratio_text(first['time_ratio'])}."
            alt = alt if found else finding_text(finding_values(known))
            caption = _caption(part, len(left) if index == len(split) - 1 else 0)
            table = Table.of(f"Comparisons of {title}, largest effect first", NUMBERS, part)
            svg = draw_forest(page, float(first["margin_ratio"]), alt)
            names, csv = (f"comparison-{len(found) + 1}", f"{pair_text(part)}: {title}"), part.drop(columns="label")
            found.append(Figure(*names, svg, alt, caption, table, to_csv(csv), "comparisons"))
    return found


def _caption(rows: pd.DataFrame, num_left: int) -> str:
    kinds, num_paired = set(rows["interval"]), int(rows["is_paired"].fillna(False).sum())
    bars = {"interval": "thick bar: 95 % confidence interval", "range": "dashed bar: range over launches"}
    marks = [*(word for kind, word in bars.items() if kind in kinds), f"gray band: margin of {margin_text(rows)}"]
    text = f"Ratio of median times (p50); {'; '.join(marks)}."
    if num_paired:
        some = "" if num_paired == len(rows) else f" in {plural(num_paired, 'row')}"
        text += f" Launches are paired by allocation{some}."
    if num_left:
        text += f" Not drawn: {plural(num_left, 'comparison')} with smaller effects, in comparisons.csv."
    return text


# A forest plot: one row for each comparison, its ratio of times as a mark, its interval as a bar.

MAX_LINES = 14  # label lines per panel
LABEL_CHARACTERS = 24
LINE_POINTS, GAP_POINTS, TOP_POINTS, BOTTOM_POINTS = 11, 4, 20, 36
LEFT_POINTS, RIGHT_POINTS = 126, 46  # margins for the labels and for n
POINTS_PER_INCH = 72
PIXELS_PER_POINT = 390 / (plotting.WIDTH_IN * POINTS_PER_INCH)  # same width as the other figures of the report
BAND = "#ECEEF1"
NO_BREAK = "\N{NO-BREAK SPACE}"
# Verdict -> color, marker, and whether the marker is filled: distinguishable without color too.
MARKS = {
    "slower": (plotting.COLORS[1], "s", True),
    "faster": (plotting.COLORS[0], "o", True),
    "inconclusive": (plotting.COLORS[3], "o", False),
    "equivalent": (plotting.COLORS[2], "D", False),
}


@dataclass(frozen=True)
class Row:
    """One comparison. low, high: None with one launch. is_interval: False if they are a range."""

    label: str
    ratio: float
    low: float | None
    high: float | None
    is_interval: bool
    num: str
    verdict: str

    @property
    def lines(self) -> list[str]:
        """The label, broken between its parts where possible, never between a number and its unit."""
        dot = SEPARATOR.strip()
        whole = self.label.replace(" ", NO_BREAK).replace(f"{dot}{NO_BREAK}", f"{dot} ")
        return [line.replace(NO_BREAK, " ") for line in textwrap.wrap(whole, LABEL_CHARACTERS)] or [""]


def _row(row) -> Row:
    low, high = (None if is_unknown(value) else float(value) for value in (row.time_low_ratio, row.time_high_ratio))
    return Row(row.label, float(row.time_ratio), low, high, row.interval == "interval", launches_text(row), row.verdict)


def pages(rows: list[Row]) -> list[list[Row]]:
    """Split rows into panels of at most MAX_LINES lines of labels, in their order."""
    found: list[list[Row]] = []
    for row in rows:
        if not found or sum(len(listed.lines) for listed in [*found[-1], row]) > MAX_LINES:
            found.append([])
        found[-1].append(row)
    return found


def draw_forest(rows: list[Row], margin: float, alt: str) -> str:
    """Return the plot and its size in pixels. margin: ratio up to which times are equivalent."""
    from matplotlib.lines import Line2D

    heights = np.array([LINE_POINTS * len(row.lines) + GAP_POINTS for row in rows])
    inner = heights.sum()
    places = inner - heights.cumsum() + heights / 2
    height, width = inner + TOP_POINTS + BOTTOM_POINTS, plotting.WIDTH_IN * POINTS_PER_INCH
    with plotting.new_canvas(plotting.WIDTH_IN, height / POINTS_PER_INCH, POINTS_PER_INCH) as figure:
        shares = LEFT_POINTS / width, BOTTOM_POINTS / height, 1 - (LEFT_POINTS + RIGHT_POINTS) / width, inner / height
        axes = figure.add_axes(shares)
        _scale(axes, rows, margin)
        axes.set(ylim=(0, inner), xlabel="ratio of times (above 1: slower)")
        axes.set_yticks(places, ["\n".join(row.lines) for row in rows], ha="left", linespacing=1.0)
        axes.tick_params(axis="y", length=0, pad=LEFT_POINTS - 3)
        for row, place in zip(rows, places, strict=True):
            if row.low is not None:
                style = {"linewidth": 2} if row.is_interval else {"linewidth": 0.9, "dashes": (3, 1.5)}
                color = MARKS[row.verdict][0]
                axes.plot([row.low, row.high], [place] * 2, color=color, solid_capstyle="butt", zorder=2, **style)
            axes.plot([row.ratio], [place], zorder=3, **_mark(row.verdict))
            _beside(axes, row.num, place)
        _beside(axes, "n", -15)
        verdicts = [word for word in MARKS if any(row.verdict == word for row in rows)]
        handles = [Line2D([], [], label=word, **_mark(word)) for word in verdicts]
        spaces = {"handletextpad": 0, "columnspacing": 0.8, "borderpad": 0}
        figure.legend(handles=handles, loc="upper left", ncols=len(handles), frameon=False, fontsize=9, **spaces)
        return plotting.svg_of(figure, alt)


def _mark(verdict: str) -> dict:
    color, marker, is_filled = MARKS[verdict]
    style = {"linestyle": "none", "marker": marker, "markersize": 5.5, "markeredgewidth": 1.2}
    return style | {"markerfacecolor": color if is_filled else "white", "markeredgecolor": color}


def _beside(axes: "Axes", text: str, place: float) -> None:
    """Write a text at the right edge of the figure."""
    beside, style = axes.get_yaxis_transform(), {"ha": "right", "va": "center", "fontsize": 9}
    axes.annotate(text, (1, place), (RIGHT_POINTS - 3, 0), beside, "offset points", annotation_clip=False, **style)


def _scale(axes: "Axes", rows: list[Row], margin: float) -> None:
    values = [value for row in rows for value in (row.ratio, row.low, row.high) if value is not None]
    low, high = min([*values, 1 / (1 + margin)]), max([*values, 1 + margin])
    gap = max((high / low) ** 0.05, 1.001)
    axes.set_xscale("log")
    axes.set_xlim(low / gap, high * gap)
    plotting.set_ticks(axes.xaxis, plotting.log_ticks(low / gap, high * gap, "{:g}".format, most=5))
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="x", color=plotting.GRID, linewidth=0.8)
    axes.tick_params(length=3)
    if margin > 0:
        axes.axvspan(1 / (1 + margin), 1 + margin, color=BAND, linewidth=0, zorder=0.5)
        for edge in (1 / (1 + margin), 1 + margin):
            axes.axvline(edge, color=plotting.GREY, linewidth=0.7, dashes=(3, 2), zorder=1)
    axes.axvline(1, color=plotting.INK, linewidth=1, zorder=1.2)
