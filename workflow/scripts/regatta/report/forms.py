"""The forms of a figure with values and their ends: lines with bands, and rows. Heights are in those of a text."""

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from regatta.core.names import SEPARATOR
from regatta.core.text import with_minus_signs
from regatta.report.chart import (
    BAD,
    CELL,
    GREY,
    GRID,
    GROUND,
    LINE,
    MOST_LABELS,
    SIGNS,
    ZOOMED,
    Chart,
    Medium,
    PlotAxis,
    Style,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PLOT, LINE_HEIGHT = 14.5, 1.45  # height of a plot, and of a line of text on a phone, by that of the text
ROW, TWO_LINES = 1.65, 2.8  # height of a row, by the lines of its name
MOST_ROWS = 24  # of more, values stand side by side
MOST_GROUPS = 5  # whose names fit above their values
MOST_LABEL, MOST_NAME = 13, 24  # characters of a line of a label, and of the name of a row
EMPHASES = (1.6, 0.9, 0.6)  # size of lines and marks of each color: those drawn later don't hide equal ones below
WIDER = 1.7  # than the last series of a color: the others, so that they are seen below it where lines coincide
DOT, MANY_PLACES = 4.5, 24  # of more places, dots are half as large: they would hide the lines
FAINT, BAND = 0.45, 0.2  # opacity of launches, and of bands
LEAST_ABOVE_0, LEAST_ZOOMED = 0.5, 0.04  # of the highest value: an axis of rows begins above 0 if all are higher
LOG_RATIO = 10  # highest to lowest value of a logarithmic axis of rows, at least


def split_common(labels: Sequence[str]) -> tuple[str, list[str]]:
    """Return the parts that all labels have, and of each label the other ones; none of these is empty."""
    parts = [re.split(rf"\n|, |{re.escape(SEPARATOR)}", label) for label in labels]
    common = [part for part in parts[0] if all(part in of for of in parts)] if len(parts) > 1 else []
    others = [[part for part in of if part not in common] for of in parts]
    common, others = (common, others) if all(others) else ([], parts)
    return SEPARATOR.join(common), [SEPARATOR.join(of) for of in others]


def in_two_lines(text: str, most: int) -> str:
    """Return a text in at most two lines of so many characters."""
    text = re.sub(r"(?<=\d) (?=[A-Za-z])", "\N{NO-BREAK SPACE}", text)  # before a unit
    if len(text) > most and max(map(len, text.split(SEPARATOR))) <= most:  # between two parts
        text = SEPARATOR.join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in text.split(SEPARATOR))
    lines = textwrap.wrap(text, most, max_lines=2, placeholder="\N{HORIZONTAL ELLIPSIS}")
    return "\n".join(line.strip(SEPARATOR) for line in lines).replace("\N{NO-BREAK SPACE}", " ")


def apart(wanted: Sequence[float], heights: Sequence[float], highest: float) -> list[float]:
    """Return places in ascending order for labels of these heights that do not overlap, near those wanted (ascending).

    All are at most `highest`.
    """
    gaps = [(one + other) / 2 for one, other in pairwise(heights)]
    places: list[float] = []
    for number, place in enumerate(wanted):
        places.append(max(place, places[-1] + gaps[number - 1]) if places else place)
    for index in reversed(range(len(places))):
        places[index] = min(places[index], highest - sum(gaps[index:]))
    return places


def new_plot(canvas: "Canvas", medium: Medium, height: float, has_rows: bool = False) -> "Axes":
    """Return the plot of a canvas of this height, in text heights. has_rows: it is no smaller on a slide."""
    height_in = height * medium.text_pt / 72
    factor = max(1, height_in / medium.height_in) if has_rows and medium.height_in else 1
    canvas.set_size_inches(factor * medium.width_in, factor * medium.height_in if medium.height_in else height_in)
    return canvas.subplots()


def lay_out(canvas: "Canvas", medium: Medium, *heading: str) -> None:
    """Write what stands above the plots, and give these the place that texts around them leave. Marks come later."""
    text, (width, height) = SEPARATOR.join(filter(None, heading)), canvas.bbox.size
    above = canvas.text(0.01, 1, "\n".join(textwrap.wrap(text, int(width / (0.55 * medium.text_pt)))), va="top")
    renderer = canvas._get_renderer()
    boxes, first, last = [one.get_tightbbox(renderer) for one in canvas.axes], canvas.axes[0].bbox, canvas.axes[-1].bbox
    top, *below = (one.get_window_extent(renderer).height for one in (above, *canvas.legends))
    gap = 0.3 * medium.text_pt
    canvas.subplots_adjust(
        left=(gap + first.x0 - min(box.x0 for box in boxes)) / width,
        right=1 - (gap + max(box.x1 for box in boxes) - last.x1) / width,
        bottom=(gap + sum(below) + first.y0 - min(box.y0 for box in boxes)) / height,
        top=1 - (gap + (top if text else 0) + max(box.y1 for box in boxes) - first.y1) / height,
    )


def add_legend(canvas: "Canvas", handles: Mapping[str, object], gids: Sequence[str | None], medium: Medium) -> None:
    """Add a legend below the plot. gids: of its entries. handles: artists by label."""
    labels = [label.replace("\n", SEPARATOR) for label in handles]
    columns = max(1, int(canvas.get_figwidth() * 72 / (0.6 * medium.text_pt * (max(map(len, labels)) + 5))))
    if medium.height_in is None:
        height_in = math.ceil(len(labels) / columns) * LINE_HEIGHT * medium.text_pt / 72
        canvas.set_figheight(canvas.get_figheight() + height_in)
    style = {"borderaxespad": 0.2, "handlelength": 1.8, "columnspacing": 1, "labelspacing": 0.35}
    legend = canvas.legend(handles.values(), labels, loc="lower left", ncols=columns, **style)
    for handle, text, gid in zip(legend.legend_handles, legend.get_texts(), gids, strict=True):
        handle.set_gid(gid)
        text.set_gid(gid)


def _handle(style: Style):
    from matplotlib.lines import Line2D

    look = {"color": style.color, "alpha": style.opacity, "marker": style.marker or "none", "markersize": 5}
    return Line2D([], [], linewidth=1.5, dashes=style.dashes or (None, None), **look)


def _mark(axes: "Axes", x: Sequence[float], y: Sequence[float], gid: str | None, **style: object) -> None:
    from matplotlib.lines import Line2D

    axes.add_artist(Line2D(x, y, gid=gid, **style))


def _dots(axes: "Axes", x: Sequence[float], y: Sequence[float], gid: str | None, size: float, **style: object) -> None:
    """Draw dots as one path: lines of length 0 with round ends."""
    dots = ([value for one in of for value in (one, one, math.nan)] for of in (x, y))
    _mark(axes, *dots, gid, linewidth=size, solid_capstyle="round", **style)


def gid_of(row: Mapping, name: str) -> str | None:
    return f"{CELL}{row[name]}" if row[name] else None


def _launches(frame: "pd.DataFrame") -> list[str]:
    return [name for name in frame if name.startswith("launch ")]


def _values(row: dict) -> list[float]:
    """Return the different values of the launches of a mark."""
    values = (value for name, value in row.items() if name.startswith("launch ") and not math.isnan(value))
    return list(dict.fromkeys(values))


def draw_lines(canvas: "Canvas", chart: Chart, medium: Medium) -> None:
    """Draw a line for each series through its values, with bands of its intervals and faint launches."""
    styles, frame = chart.styles, chart.frame
    named = [name for name, style in styles.items() if not style.is_context]
    context = [name for name, style in styles.items() if style.is_context]
    is_labelled = sum(not styles[name].is_guide for name in named) <= MOST_LABELS
    common, rest = split_common([name for name in named if not styles[name].is_guide]) if is_labelled else ("", [])
    texts = dict(zip([name for name in named if not styles[name].is_guide], rest, strict=True)) if is_labelled else {}
    labels = {name: in_two_lines(texts.get(name, name), MOST_LABEL) for name in named}
    if context:  # its label stands at the lowest of those that are longest
        ends = {name: chart.of(name).dropna(subset="y").iloc[-1] for name in context}
        last = max(context, key=lambda name: (ends[name]["x"], -ends[name]["y"]))
        labels[last] = in_two_lines(chart.context, MOST_LABEL)
    num_lines = sum(1 + label.count("\n") for label in labels.values()) if is_labelled else 0
    axes = new_plot(canvas, medium, 5.5 + max(PLOT * chart.stretch, LINE_HEIGHT * num_lines))
    values = frame[["y", *chart.ends, *_launches(frame), *({"minimum", "maximum"} & {*frame})]].to_numpy(float)
    chart.x.scale(axes, "x", frame["x"].dropna().tolist())
    is_zoomed = chart.y.scale(axes, "y", values[~np.isnan(values)].tolist())
    axes.set_xlabel(chart.x.label)
    axes.grid(visible=True)
    gids = {name: chart.cells_of(*(context if name in context else [name])) for name in labels}
    drawn = []
    if is_labelled:
        for name, label in labels.items():
            style = styles[name]
            sign = f"{SIGNS[style.marker]} " if style.marker and not style.is_context else ""
            where = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "va": "center"}
            place = (1, chart.of(name)["y"].dropna().iloc[-1])
            drawn.append(axes.annotate(sign + label, place, (5, 0), color=style.color, gid=gids[name], **where))
    else:
        order = sorted(labels, key=lambda name: not styles[name].is_guide)
        handles = {chart.context if name in context else name: _handle(styles[name]) for name in order}
        add_legend(canvas, handles, [gids[name] for name in order], medium)
    lay_out(canvas, medium, chart.y.heading, chart.heading, common, ZOOMED * is_zoomed)
    drawn.sort(key=lambda label: label.xy[1])
    wanted = [axes.transData.transform((axes.get_xlim()[0], label.xy[1]))[1] for label in drawn]
    heights = [LINE_HEIGHT * medium.text_pt * (1 + label.get_text().count("\n")) for label in drawn]
    for label, place, wish in zip(drawn, apart(wanted, heights, axes.bbox.ymax), wanted, strict=True):
        label.xyann = (5, place - wish)
    colors = list(dict.fromkeys(styles[name].color for name in named if not styles[name].is_guide))
    emphases = dict(zip(colors, EMPHASES, strict=False)) if len(colors) > 1 else {}
    for name, style in styles.items():
        _line(axes, chart, chart.of(name), style, emphases.get(style.color, EMPHASES[-1] if len(colors) > 1 else 1))
    _crosses(axes, chart)


def _crosses(axes: "Axes", chart: Chart) -> None:
    """Mark at the bottom where series have a gap, one above the other: their cells failed."""
    failed = chart.frame[
        chart.frame["y"].isna() & ~chart.frame[chart.series].map(lambda of: chart.styles[of].is_context)
    ]
    for (x, cell), number in zip(failed[["x", chart.cell]].to_numpy(), failed.groupby("x").cumcount(), strict=True):
        look = {"marker": "x", "markersize": 6, "markeredgewidth": 2, "color": BAD, "linestyle": "none"}
        _mark(
            axes, [x], [0.03 + 0.06 * number], f"{CELL}{cell}", transform=axes.get_xaxis_transform(), zorder=4, **look
        )


def _line(axes: "Axes", chart: Chart, rows: "pd.DataFrame", style: Style, emphasis: float) -> None:
    """Draw one series. Of several values at one place the line goes through the first; the others are hollow."""
    common, gid = {"color": style.color, "alpha": style.opacity}, chart.cells_of(*rows[chart.series].head(1))
    gid = gid if all(rows[chart.cell]) else None
    if rows["x"].isna().all():
        axes.axhline(rows["y"].iloc[0], color=style.color, dashes=style.dashes, linewidth=1.2, zorder=1.5)
        return
    wider = WIDER if style.opacity < 1 else 1
    width = 1.2 if style.is_guide else 1 if style.is_context else 1.8 * emphasis * wider
    on_line = rows[~rows["x"].duplicated()]
    line_gid = LINE + " ".join(on_line[chart.cell]) if gid else None
    _mark(axes, on_line["x"], on_line["y"], line_gid, dashes=style.dashes or (None, None), linewidth=width, **common)
    if style.is_guide:
        return
    low, high = chart.ends
    if not style.is_context and rows.loc[rows["y"].notna(), [low, high]].notna().all(axis=None):
        look = {"color": style.color, "alpha": BAND, "linewidth": 0}
        axes.fill_between(on_line["x"], on_line[low], on_line[high], gid=line_gid, **look)
    dot = DOT * (0.5 if chart.frame["x"].nunique() > MANY_PLACES else 1)
    dot = dot / 2 if style.is_context else emphasis * dot * wider**0.5
    for row, is_first in zip(rows.to_dict("records"), ~rows["x"].duplicated(), strict=True):
        if math.isnan(row["y"]):
            continue
        cell, launches = gid_of(row, chart.cell), _values(row)
        if len(launches) > 1 and not style.is_context:
            look = {"color": style.color, "alpha": FAINT * style.opacity}
            _dots(axes, [row["x"]] * len(launches), launches, cell, 0.75 * dot, **look)
        if "minimum" in rows and not style.is_context:
            _mark(axes, [row["x"]] * 2, [row["minimum"], row["maximum"]], cell, linewidth=1, **common)
        fill = style.color if is_first else GROUND
        shape = {"marker": style.marker, "markersize": dot, "markeredgewidth": 0.2 * dot, "markerfacecolor": fill}
        _mark(axes, [row["x"]], [row["y"]], cell, linestyle="none", zorder=3, **shape, **common)


def draw_rows(canvas: "Canvas", chart: Chart, medium: Medium) -> None:
    """Draw a row for each value, with its interval or range, launches and number; of many, values side by side."""
    guides = [name for name, style in chart.styles.items() if style.is_guide]
    rows = chart.frame[~chart.frame[chart.series].isin(guides)]
    rows = rows.sort_values("x", kind="stable") if chart.x.is_categorical else rows
    is_across, text = len(rows) > MOST_ROWS, dict(chart.x.ticks)
    words = rows[chart.series].nunique() > 1 and chart.x.is_categorical and rows["x"].is_unique  # of each value
    shapes = rows.groupby(chart.series)["x"].transform("size") > rows.groupby(chart.series)["x"].transform("nunique")
    parts = [
        (
            text.get(row["x"], "").replace("\n", SEPARATOR) if chart.x.is_categorical else "",
            "" if words else row[chart.series],
            row["shape"] if shapes[index] and "shape" in rows else "",
        )
        for index, row in rows.iterrows()
    ]
    common, names = split_common([SEPARATOR.join(filter(None, of)) for of in parts])
    names = [in_two_lines(name, MOST_NAME) for name in names]
    row_height = (TWO_LINES if any("\n" in name for name in names) else ROW) * chart.stretch
    height = PLOT * chart.stretch if is_across else max(row_height * len(rows), 5)
    axes = new_plot(canvas, medium, height + 6, has_rows=True)
    values = chart.frame[["y", *chart.ends, *_launches(rows)]].to_numpy(float)
    axis = _near(chart.y, values := values[~np.isnan(values)])
    is_zoomed = axis.scale(axes, "y" if is_across else "x", values.tolist())
    places = rows["x"].to_numpy(float) if is_across else np.arange(len(rows), dtype=float)
    if is_across:
        axes.set(xlim=(places.min() - 0.6, places.max() + 0.6), xlabel=chart.x.label)
        axes.locator_params(axis="x", nbins=8, integer=True)
        axes.xaxis.set_major_formatter("{x:,.0f}")
    else:
        axes.set(ylim=(len(rows) - 0.5, -0.5))
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        for number, (name, (_, row)) in enumerate(zip(names, rows.iterrows(), strict=True)):
            value = "" if math.isnan(row["y"]) else with_minus_signs(chart.y.written(row["y"]))
            _beside(axes, number, name, "right", medium)
            _beside(axes, number, " ".join(filter(None, (value, row[chart.series] if words else ""))), "left", medium)
    axes.grid(visible=True, axis="y" if is_across else "x")
    limits = chart.frame.loc[chart.frame[chart.series].isin(guides), "y"]
    for name in guides:
        at = chart.of(name)["y"].iloc[0]
        look = {"color": GREY, "dashes": chart.styles[name].dashes, "linewidth": 1.2, "zorder": 1.5}
        (axes.axhline if is_across else axes.axvline)(at, **look)
        where = {"textcoords": "offset points", "color": GREY, "annotation_clip": False}
        if is_across:
            axes.annotate(name, (1, at), (3, 0), xycoords=axes.get_yaxis_transform(), va="center", **where)
        else:
            side = "center" if len(guides) == 1 else "left" if at == max(limits) else "right"
            axes.annotate(name, (at, 1), (0, 2), xycoords=axes.get_xaxis_transform(), ha=side, va="bottom", **where)
    found = [name for name in chart.styles if name and name in set(rows[chart.series])]
    if is_across and found and rows[chart.series].nunique() > 1:
        handles = {name: _handle(chart.styles[name]) for name in found}
        for handle in handles.values():
            handle.set_linestyle("none")
        add_legend(canvas, handles, [chart.cells_of(name) for name in found], medium)
    if is_across and "group" in rows:
        _groups(axes, rows)
    lay_out(canvas, medium, chart.y.heading, chart.heading, common if not is_across else "", ZOOMED * is_zoomed)
    for place, row in zip(places, rows.to_dict("records"), strict=True):
        _row(axes, chart, row, place, is_across)


def _groups(axes: "Axes", rows: "pd.DataFrame") -> None:
    """Shade every second group of successive values, and name as many above as fit."""
    groups = rows.groupby("group", sort=False)["x"].agg(["min", "max"])
    every = math.ceil(len(groups) / MOST_GROUPS)
    for number, (name, low, high) in enumerate(groups.itertuples()):
        if number % 2:
            axes.axvspan(low - 0.5, high + 0.5, color=GRID, alpha=0.4, zorder=0, linewidth=0)
        if number % every == 0:
            place = ((low + high) / 2, 1.02)
            axes.annotate(name[-9:], place, xycoords=axes.get_xaxis_transform(), ha="center", va="bottom")


def _near(axis: PlotAxis, values: np.ndarray) -> PlotAxis:
    """Return the axis of rows: it begins near the values if all are far from 0; logarithmic only for a wide range."""
    low, high = values.min(), values.max()
    if axis.low or axis.high is not None or low <= 0 or (axis.is_log and high > LOG_RATIO * low):
        return axis
    half = max(high - low, LEAST_ZOOMED * high) / 2
    is_far, middle = low > LEAST_ABOVE_0 * high, (low + high) / 2
    ends = {"low": middle - 1.16 * half, "high": middle + 1.16 * half} if is_far else {"low": 0}
    return replace(axis, is_log=False, **ends)


def _beside(axes: "Axes", row: int, text: str, side: str, medium: Medium) -> None:
    """Write the name (right-aligned) or number of a row; each line is a text, so that a smaller one is aligned too."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        offset = (-6 if side == "right" else 6, 1.2 * medium.text_pt * ((len(lines) - 1) / 2 - index))
        where = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "va": "center_baseline"}
        axes.annotate(line, (side == "left", row), offset, ha=side, annotation_clip=False, **where)


def _row(axes: "Axes", chart: Chart, row: dict, place: float, is_across: bool) -> None:
    """Draw interval or range, launches and value. A mark without a value stands at the low end."""
    style, cell, end = chart.styles[row[chart.series]], gid_of(row, chart.cell), "y" if is_across else "x"
    color, launches = {"color": style.color}, _values(row)

    def at(values: Sequence[float]) -> tuple:
        places = [place] * len(values)
        return (places, values) if is_across else (values, places)

    if math.isnan(row["y"]):
        low = getattr(axes, f"get_{end}lim")()[0]
        _mark(axes, *at([low]), cell, marker=style.marker, markersize=5, linestyle="none", clip_on=False, **color)
        return
    ends = [row[name] for name in (("minimum", "maximum") if "minimum" in row else chart.ends)]
    if not math.isnan(ends[0]):
        gid = f"{LINE}{row[chart.cell]}" if cell else None
        _mark(
            axes,
            *at(ends),
            gid,
            linewidth=1.8 if is_across else 6,
            alpha=0.3 + 0.4 * is_across,
            solid_capstyle="butt",
            **color,
        )
    if len(launches) and not style.is_context:
        _dots(axes, *at(launches), cell, DOT, alpha=FAINT, **color)
    shape = (
        {"marker": style.marker, "markersize": 3 if is_across else 5}
        if is_across
        else {"marker": "|", "markersize": 12, "markeredgewidth": 2}
    )
    _mark(axes, *at([row["y"]]), cell, linestyle="none", **shape, **color)
