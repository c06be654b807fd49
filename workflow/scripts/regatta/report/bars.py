"""The forms of a figure that are made of bars: stacked bars, and hosts over time. Heights are in those of a text."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from regatta.core.names import SEPARATOR
from regatta.core.text import one_line, with_minus_signs
from regatta.report.chart import GROUND, GROUP, INK, Chart, Medium, Style
from regatta.report.forms import MOST_NAME, add_legend, gid_of, in_two_lines, lay_out, new_plot, split_common

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

HOST, THIN_HOST, MANY_HOSTS = 1.4, 0.75, 16  # height of a row of at most so many hosts, and of more
LEAST_SHARE, LEAST_FAILED = 0.06, 0.003  # of all runs: width of one, for its label; of failures, so that they are seen


def draw_stacked(canvas: "Canvas", chart: Chart, medium: Medium) -> None:
    """Draw a stacked bar for each cell, below the name of its group, with the numbers of its parts beside it.

    Where each group has one bar, the group is named beside it. A negative part has no place in the bar.
    """
    frame, heads, text_pt = chart.frame, list(chart.styles), medium.text_pt
    bars = [rows for _, rows in frame.groupby(chart.cell, sort=False)]
    names = [SEPARATOR.join((rows["group"].iloc[0], rows["y"].iloc[0])) for rows in bars]
    common, is_flat = "", frame["group"].nunique() == len(bars)
    if is_flat:
        common, names = split_common(names)
        rows = [(in_two_lines(name, MOST_NAME).replace("\n", " "), bar) for name, bar in zip(names, bars, strict=True)]
    else:
        rows = []
        for group, of_group in frame.groupby("group", sort=False):
            rows.append((group, None))
            rows += [(bar["y"].iloc[0], bar) for _, bar in of_group.groupby(chart.cell, sort=False)]
    axes = new_plot(canvas, medium, 8 + 1.25 * len(rows), has_rows=True)
    sums = frame[frame["x"] > 0].groupby(chart.cell)["x"].sum()
    ticks = tuple((tick, str(tick)) for tick in (0, 50, 100))
    replace(chart.x, low=0, high=max(100, sums.max()), ticks=ticks).scale(axes, "x", [])
    axes.set(ylim=(len(rows) - 0.5, -0.5), xlabel=chart.x.label)
    axes.set_yticks([number for number, (_, bar) in enumerate(rows) if bar is not None])
    axes.set_yticklabels([name for name, bar in rows if bar is not None])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="x")
    beside = {"textcoords": "offset points", "ha": "right", "annotation_clip": False}
    for column, head in enumerate(heads):
        place = 3.7 * text_pt * (column + 0.9)
        for word, color, above in (
            (head.replace("-", "-\n"), INK, 4),
            ("\N{BLACK SQUARE}", chart.styles[head].color, 3.1 * text_pt),
        ):
            axes.annotate(word, (1, 1), (place, above), xycoords="axes fraction", va="bottom", color=color, **beside)
        for number, (_, bar) in enumerate(rows):
            if bar is not None:
                value = bar.loc[bar[chart.series] == head, "x"].iloc[0]
                shown = "\N{EN DASH}" if math.isnan(value) else with_minus_signs(chart.x.value(value))
                at = {"xycoords": axes.get_yaxis_transform(), "va": "center_baseline"}
                axes.annotate(shown, (1, number), (place, 0), **at, **beside)
    for number, (name, bar) in enumerate(rows):
        if bar is None:
            where = {"xycoords": axes.get_yaxis_transform(), "fontweight": "bold", "va": "center_baseline"}
            axes.annotate(name, (0, number), (-3 * text_pt, 0), textcoords="offset points", **where)
    lay_out(canvas, medium, common)
    for number, (_, bar) in enumerate(rows):
        begin = 0.0
        for _, part in bar[bar["x"] > 0].iterrows() if bar is not None else ():
            look = {"facecolor": chart.styles[part[chart.series]].color, "edgecolor": GROUND, "linewidth": 1}
            axes.barh(number, part["x"], 0.8, begin, gid=gid_of(part, chart.cell), **look)
            begin += part["x"]


def draw_hosts(canvas: "Canvas", chart: Chart, medium: Medium) -> None:
    """Draw the bars of each host over time, with a plot for each run of the time axis, which leaves out long gaps."""
    from matplotlib.patches import Patch, PathPatch
    from matplotlib.path import Path

    frame, (low, high), hosts = chart.frame, chart.ends, list(dict.fromkeys(chart.frame["y"]))
    runs = frame.groupby("run").agg({low: "min", high: "max"})
    lengths = (runs[high] - runs[low]).clip(lower=1)
    total, row = lengths.sum(), HOST if len(hosts) <= MANY_HOSTS else THIN_HOST
    canvas.set_size_inches(medium.wide_in or medium.width_in, (4 + row * len(hosts)) * medium.text_pt / 72)
    if medium.height_in:  # all rows fit on a slide
        factor = max(1, canvas.get_figheight() / medium.height_in)
        canvas.set_size_inches(factor * medium.width_in, factor * medium.height_in)
    plots = canvas.subplots(
        1, len(runs), squeeze=False, sharey=True, width_ratios=lengths.clip(lower=LEAST_SHARE * total)
    )[0]
    every = math.ceil(1.2 / row)
    plots[0].set(ylim=(len(hosts) - 0.5, -0.5), yticks=range(0, len(hosts), every))
    plots[0].set_yticklabels([one_line(host, MOST_NAME) for host in hosts[::every]])
    for axes, start, length in zip(plots, runs[low], lengths, strict=True):
        ticks = [(place, text) for place, text in chart.x.ticks if start <= place <= start + length]
        replace(chart.x, low=start, high=start + length, ticks=tuple(ticks)).scale(axes, "x", [])
        axes.grid(visible=True, axis="x")
    handles = {name: Patch(**_fill(style)) for name, style in chart.styles.items() if name in set(frame[chart.series])}
    add_legend(canvas, handles, [None] * len(handles), medium)
    canvas.subplots_adjust(wspace=0.015 * len(runs))
    lay_out(canvas, medium)
    order, places = list(chart.styles), {host: place for place, host in enumerate(hosts)}
    # A launch has the same bars on all of its hosts: one element.
    for (run, text, state, start, end), bars in frame.groupby(["run", "launch", chart.series, low, high], sort=False):
        style = chart.styles[state]
        end = max(end, start + LEAST_FAILED * total) if style.hatch else end
        across = [(start, -0.4), (end, -0.4), (end, 0.4), (start, 0.4), (start, -0.4)]
        boxes = [Path([(x, places[host] + y) for x, y in across], closed=True) for host in bars["y"]]
        look = _fill(style) | {"zorder": 2 + bool(style.hatch) - (state == order[0]), "clip_on": False}
        plots[run].add_artist(
            PathPatch(Path.make_compound_path(*boxes), gid=f"{GROUP}{text}" if text else None, **look)
        )


def _fill(style: Style) -> dict[str, object]:
    if style.hatch:
        return {"facecolor": GROUND, "edgecolor": style.color, "hatch": style.hatch, "linewidth": 0.8}
    return {"facecolor": style.color, "alpha": style.opacity, "edgecolor": "none"}
