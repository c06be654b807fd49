"""The forms of a figure that are made of bars: stacked bars, and hosts over time. Heights are in those of a text."""

import math
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from regatta.core.names import SEPARATOR
from regatta.core.text import one_line, with_minus_signs
from regatta.report import forms
from regatta.report.chart import GRID, GROUND, INK, MARK, Chart, Medium, Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

HOST, THIN_HOST, MANY_HOSTS = 1.4, 0.75, 16  # height of a row of at most so many hosts, and of more
LEAST_SHARE, LEAST_FAILED = 0.06, 0.003  # of all runs: width of one, for its label; of failures, so that they are seen


def draw_stacked(canvas: "Canvas", chart: Chart, medium: Medium) -> None:
    """Draw a stacked bar for each cell, below the name of its group, with the values of its parts beside it. A part in
    the color of the ground is hollow.

    If each group has one bar, the name of the group is beside it. A negative part is written, but not drawn.
    """
    frame, text_pt = chart.frame, medium.text_pt
    bars = [of for _, of in frame.groupby(chart.cell, sort=False)]
    groups, labels = ([of[name].iloc[0] for of in bars] for name in ("group", "y"))
    common, rows = "", []  # (name, bar); without a bar: a heading
    if len({*groups}) == len(bars):
        common, labels = forms.split_common([SEPARATOR.join(of) for of in zip(groups, labels, strict=True)])
        labels, groups = [forms.in_two_lines(label, forms.MOST_NAME) for label in labels], []
    for number, (label, bar) in enumerate(zip(labels, bars, strict=True)):
        rows += [(groups[number], None)] if groups and groups[number] not in groups[:number] else []
        rows.append((label, bar))
    [axes] = forms.new_plots(canvas, medium, 8 + 1.25 * len(rows), True)
    highest = frame[frame["x"] > 0].groupby(chart.cell)["x"].sum().max()
    ticks = tuple((tick, str(tick)) for tick in (0, 50, 100))
    replace(chart.x, low=0, high=max(100, highest), ticks=ticks).scale(axes, "x", [])
    axes.set(ylim=(len(rows) - 0.5, -0.5), yticks=[], xlabel=chart.x.label)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="x")
    shares = [bar is not None and dict(zip(bar[chart.series], bar["x"], strict=True)) for _, bar in rows]
    for column, (head, style) in enumerate(chart.styles.items()):
        place = 3.7 * text_pt * (column + 0.9)
        look = {"xycoords": "axes fraction", "va": "bottom", "ha": "right"} | forms.OFFSET
        sign, color = ("\N{WHITE SQUARE}", INK) if style.color == GROUND else ("\N{BLACK SQUARE}", style.color)
        axes.annotate(sign, (1, 1), (place, 3.1 * text_pt), color=color, alpha=style.opacity, **look)
        axes.annotate(head.replace("-", "-\n").replace(" ", "\n"), (1, 1), (place, 4), **look)
        for number, of in enumerate(shares):
            if of:
                text = "\N{EN DASH}" if math.isnan(of[head]) else with_minus_signs(chart.x.value(of[head]))
                forms.beside(axes, number, text, 1, medium, place, ha="right")
    for number, (name, bar) in enumerate(rows):
        if bar is None:
            forms.beside(axes, number, name, 0, medium, 3 * text_pt, ha="left", fontweight="bold")
        else:
            forms.beside(axes, number, name.replace("\n", " "), 0, medium)
    forms.lay_out(canvas, medium, common)
    for number, (_, bar) in enumerate(rows):
        if bar is not None:
            parts = bar[bar["x"] > 0]
            spans = list(zip(parts["x"].cumsum() - parts["x"], parts["x"], strict=True))
            fills = [(style.color, style.opacity) for style in parts[chart.series].map(chart.styles)]
            look = {"facecolors": fills, "edgecolors": [INK if color == GROUND else GROUND for color, _ in fills]}
            axes.broken_barh(spans, (number - 0.4, 0.8), linewidth=1, gid=forms.gids_of(parts[chart.cell]), **look)


def draw_hosts(canvas: "Canvas", chart: Chart, medium: Medium) -> None:
    """Draw the bars of each host over time, with a plot for each run of the time axis, which leaves out long gaps."""
    from matplotlib.collections import PathCollection
    from matplotlib.patches import Patch
    from matplotlib.path import Path

    frame, (low, high), hosts = chart.frame, chart.ends, list(dict.fromkeys(chart.frame["y"]))
    runs = frame.groupby("run").agg({low: "min", high: "max"})
    lengths = (runs[high] - runs[low]).clip(lower=1)
    total, row = lengths.sum(), HOST if len(hosts) <= MANY_HOSTS else THIN_HOST
    widths = lengths.clip(lower=LEAST_SHARE * total)
    plots = forms.new_plots(canvas, medium, 4 + row * len(hosts), True, medium.wide_in, widths)
    every = math.ceil(1.2 / row)
    plots[0].set(ylim=(len(hosts) - 0.5, -0.5), yticks=range(0, len(hosts), every))
    plots[0].set_yticklabels([one_line(host, forms.MOST_NAME) for host in hosts[::every]])
    for axes, start, length in zip(plots, runs[low], lengths, strict=True):
        ticks = [(place, text) for place, text in chart.x.ticks if start <= place <= start + length]
        replace(chart.x, low=start, high=start + length, ticks=tuple(ticks)).scale(axes, "x", [])
        axes.grid(visible=True, axis="x")
    shown = {name: _fill(style) for name, style in chart.styles.items() if name in set(frame[chart.series])}
    forms.add_legend(canvas, {name: Patch(**look) for name, look in shown.items()}, [None] * len(shown), medium)
    canvas.subplots_adjust(wspace=0.015 * len(runs))
    forms.lay_out(canvas, medium)
    boxes = defaultdict(lambda: defaultdict(list))  # of a launch on all of its hosts: one element
    for number, mark in enumerate(frame.to_dict("records")):
        state, start, place = mark[chart.series], mark[low], hosts.index(mark["y"])
        end = max(mark[high], start + LEAST_FAILED * total * bool(chart.styles[state].hatch))
        corners = [(start, place - 0.4), (end, place - 0.4), (end, place + 0.4), (start, place + 0.4), (0, 0)]
        boxes[mark["run"], state][mark["launch"], start, end].append((str(number), Path(corners, closed=True)))
    for (run, state), of in boxes.items():
        paths = [Path.make_compound_path(*(box for _, box in bars)) for bars in of.values()]
        gid = forms.gids_of((bars[0][0] if launch else "" for (launch, *_), bars in of.items()), MARK)
        plots[run].add_collection(PathCollection(paths, gid=gid, clip_on=False, **shown[state]), autolim=False)


def _fill(style: Style) -> dict[str, object]:
    """Return the look of bars: hatched ones are above the others, the widest below them."""
    if style.hatch:
        return {"facecolor": GROUND, "edgecolor": style.color, "hatch": style.hatch, "linewidth": 0.8, "zorder": 3}
    return {"facecolor": style.color, "alpha": style.opacity, "edgecolor": "none", "zorder": 2 - (style.color == GRID)}
