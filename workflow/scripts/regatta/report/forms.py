"""The forms of a figure with values and their ends: lines with bands, and rows. Heights are in those of a text."""

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from itertools import compress, pairwise
from typing import TYPE_CHECKING

import numpy as np

from regatta.core.names import SEPARATOR
from regatta.core.text import with_minus_signs
from regatta.kit.kinds import joined
from regatta.report.chart import (
    BAD,
    CELL,
    GREY,
    GRID,
    GROUND,
    HOLLOW,
    LINE,
    MOST_LABELS,
    SIGNS,
    SLOW,
    ZOOMED,
    Chart,
    Medium,
    Style,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas
    from matplotlib.text import Annotation

PLOT, LINE_HEIGHT = 13, 1.45  # height of a plot, and of a line of text on a phone, by that of the text
ROW, TWO_LINES = 1.65, 2.8  # height of a row, by the lines of its name
QUIET = ("equivalent", "within the margin")  # null results, whose words do not stand beside their values
UNNAMED, MOST_NAMED = (*QUIET, "inconclusive"), 3  # of many values: series without names beside them, and names of one
MOST_ROWS = 24  # of more, values stand side by side
MOST_GROUPS = 5  # whose names fit above their values
MOST_LABEL, MOST_NAME = 13, 22  # characters of a line of a label, and of the name of a row
EMPHASES = (1.6, 0.9, 0.6)  # size of lines and marks by color: later ones are smaller, so coinciding ones stay visible
WIDER = 1.7  # width of a color's earlier series relative to the last, so that coinciding lines stay visible
DOT, MANY_PLACES = 4.5, 24  # of more places, dots are half as large: they would hide the lines
FAINT, BAND = 0.45, 0.2  # opacity of launches, and of bands
LOG_RATIO = 10  # highest to lowest value of a logarithmic axis of rows, at least
OFFSET = {"textcoords": "offset points", "annotation_clip": False}


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


def move_apart(axes: "Axes", labels: "list[Annotation]", medium: Medium) -> None:
    """Move labels at the right end of a plot apart, each near its height; of equal heights, the first is on top."""
    places = {label: axes.transData.transform((axes.get_xlim()[0], label.xy[1]))[1] for label in labels}
    labels = sorted(labels, key=lambda label: -round(places[label] / medium.text_pt))[::-1]
    heights = [LINE_HEIGHT * medium.text_pt * (1 + label.get_text().count("\n")) for label in labels]
    for label, place in zip(labels, apart([places[of] for of in labels], heights, axes.bbox.ymax), strict=True):
        label.xyann = (5, place - places[label])


def new_plots(
    canvas: "Canvas",
    medium: Medium,
    height: float,
    has_rows: bool = False,
    width_in: float | None = None,
    widths: Sequence[float] = (1,),
) -> "Sequence[Axes]":
    """Return the plots of a canvas of this height, in text heights, side by side. has_rows: no smaller on a slide."""
    width_in, height_in = width_in or medium.width_in, height * medium.text_pt / 72
    factor = max(1, height_in / medium.height_in) if has_rows and medium.height_in else 1
    canvas.set_size_inches(factor * width_in, factor * medium.height_in if medium.height_in else height_in)
    return canvas.subplots(1, len(widths), squeeze=False, sharey=True, width_ratios=widths)[0]


def lay_out(canvas: "Canvas", medium: Medium, *heading: str) -> None:
    """Write the heading above the plots, and fit the plots into the space that texts leave, before marks are drawn."""
    from matplotlib.backends.backend_svg import RendererSVG

    text, (width, height) = SEPARATOR.join(filter(None, heading)), canvas.bbox.size
    above = canvas.text(0.01, 1, "\n".join(textwrap.wrap(text, int(width / (0.55 * medium.text_pt)))), va="top")
    renderer = RendererSVG(width, height, StringIO(), image_dpi=72)
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


def _handle(style: Style, **look: object):
    from matplotlib.lines import Line2D

    look = {"linestyle": style.line, "linewidth": 1.5, "marker": style.marker or "none", "markersize": 5} | look
    return Line2D([], [], color=style.color, alpha=style.opacity, **look)


def gids_of(values: Iterable[str], kind: str = CELL) -> str | None:
    """Return the gid of marks with these cells, one for each mark; empty: none."""
    values = list(values)
    return kind + " ".join(values) if any(values) else None


def _marks(
    axes: "Axes",
    chart: Chart,
    rows: "pd.DataFrame",
    places: np.ndarray,
    style: Style,
    bars: tuple[Sequence[str], float, float],
    dot: float,
    is_across: bool = True,
    **look: object,
) -> None:
    """Draw the bar, launches (dots) and value of each row, hollow if it includes a slow node.

    Missing values are drawn at the low end of the axis. bars: columns of their ends, width and opacity. dot: size of a
    launch. is_across: the value axis is vertical. look: style of the values.
    """
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D
    from matplotlib.path import Path

    def draw(pairs: list[np.ndarray], **of_lines: object) -> None:
        """Draw the segments between pairs of values of each row; those of length 0 are dots."""
        paths, of_cells = [], []
        for place, cell, of in zip(places, cells, pairs, strict=True):
            points = np.full((of.size, 2), place)
            points[:, int(is_across)] = of.ravel()
            if of.size:
                paths.append(Path(points, [Path.MOVETO, Path.LINETO] * len(of)))
                of_cells.append(cell)
        if paths:
            of_lines |= {"facecolors": "none", "edgecolors": style.color, "zorder": 2, "clip_on": False}
            axes.add_collection(PathCollection(paths, gid=gids_of(of_cells), **of_lines), autolim=False)

    look = {"color": style.color, "alpha": style.opacity, "marker": style.marker, "clip_on": False} | look
    cells, (columns, width, opacity) = rows[chart.cell].tolist(), bars
    pairs = [pair[~np.isnan(pair).any(axis=1)] for pair in rows[[*columns]].to_numpy(float)[:, None]]
    draw(pairs, linewidths=width, alpha=opacity, capstyle="butt")
    launches = [np.unique(of[~np.isnan(of)]) for of in rows[chart.launches].to_numpy(float)]
    if not style.is_context:
        pairs = [np.stack([of, of], axis=1)[len(of) == 1 :] for of in launches]  # one launch is the value
        draw(pairs, linewidths=dot, alpha=FAINT * look["alpha"], capstyle="round")
    low, high = axes.get_ylim() if is_across else axes.get_xlim()
    values = np.clip(np.nan_to_num(rows["y"].to_numpy(float), nan=low), low, high)
    is_slow = rows[SLOW].notna().to_numpy() if SLOW in rows else np.zeros(len(places), bool)
    looks = ((~is_slow, style.color), (is_slow, GROUND))
    for chosen, fill in (one for one in looks if one[0].any()):  # for an empty line, there would be room at the origin
        at = (places[chosen], values[chosen])[:: 1 if is_across else -1]
        gid = gids_of(compress(cells, chosen))
        axes.add_artist(Line2D(*at, linestyle="none", gid=gid, zorder=3, markerfacecolor=fill, **look))


def draw_lines(canvas: "Canvas", chart: Chart, medium: Medium) -> None:
    """Draw a line for each series through its values, with bands of its intervals and faint launches."""
    styles, frame = chart.styles, chart.frame
    context, guides = ([name for name in styles if getattr(styles[name], kind)] for kind in ("is_context", "is_guide"))
    lines = [name for name in styles if name not in (*context, *guides)]
    is_labelled = len(lines) <= MOST_LABELS
    common, rest = split_common(lines) if is_labelled else ("", lines)
    labels = dict(zip([*guides, *lines], [*guides, *rest], strict=True))
    known = frame.dropna(subset="y")
    ends = known[~known[chart.series].duplicated(keep="last")].set_index(chart.series)
    if context:  # label the longest series, at equal length the lowest
        labels[max(context, key=lambda name: (ends["x"][name], -ends["y"][name]))] = chart.context
    labels = {name: in_two_lines(label, MOST_LABEL) if is_labelled else label for name, label in labels.items()}
    num_lines = sum(1 + label.count("\n") for label in labels.values()) if is_labelled else 0
    [axes] = new_plots(canvas, medium, 5.5 + max(PLOT * chart.stretch, LINE_HEIGHT * num_lines))
    chart.x.scale(axes, "x", frame["x"].dropna().tolist())
    is_zoomed = chart.y.scale(axes, "y", chart.values)
    axes.set_xlabel("\n".join(filter(None, (chart.x.label, *chart.footnotes))))
    axes.grid(visible=True)
    gids, drawn = {name: chart.cells_of(*(context if name in context else [name])) for name in labels}, []
    if is_labelled:
        where = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "va": "center"}
        for name, label in labels.items():
            sign = f"{SIGNS[styles[name].marker]} " if name in lines else ""
            look = {"color": styles[name].color, "gid": gids[name]}
            drawn.append(axes.annotate(sign + label, (1, ends["y"][name]), (5, 0), **look, **where))
    else:
        handles = {label: _handle(styles[name]) for name, label in labels.items()}
        add_legend(canvas, handles, list(gids.values()), medium)
    lay_out(canvas, medium, chart.y.heading, chart.heading, common, ZOOMED * is_zoomed)
    move_apart(axes, drawn, medium)
    colors = list(dict.fromkeys(styles[name].color for name in lines))
    emphases = dict(zip(colors, EMPHASES, strict=False)) if len(colors) > 1 else dict.fromkeys(colors, 1.0)
    for name, style in styles.items():
        _line(axes, chart, chart.of(name), style, emphases.get(style.color, EMPHASES[-1]))
    _crosses(axes, chart)


def _crosses(axes: "Axes", chart: Chart) -> None:
    """Mark at the bottom where series have a gap, one above the other: their cells failed."""
    from matplotlib.lines import Line2D

    is_context = chart.frame[chart.series].map(lambda name: chart.styles[name].is_context)
    failed, where = chart.frame[chart.frame["y"].isna() & ~is_context], axes.get_xaxis_transform()
    look = {"marker": "x", "markersize": 6, "markeredgewidth": 2, "color": BAD, "linestyle": "none", "zorder": 4}
    for (x, cell), number in zip(failed[["x", chart.cell]].to_numpy(), failed.groupby("x").cumcount(), strict=True):
        axes.add_artist(Line2D([x], [0.03 + 0.06 * number], gid=f"{CELL}{cell}", transform=where, **look))


def _line(axes: "Axes", chart: Chart, rows: "pd.DataFrame", style: Style, emphasis: float) -> None:
    """Draw one series. Of several values at one place the line goes through the first."""
    from matplotlib.lines import Line2D

    if rows["x"].isna().all():
        axes.axhline(rows["y"].iloc[0], color=style.color, linestyle=style.line, linewidth=1.2, zorder=1.5)
        return
    wider = WIDER if style.opacity < 1 else 1
    width = 1.2 if style.is_guide else 1 if style.is_context else 1.8 * emphasis * wider
    on_line = rows[~rows["x"].duplicated()]
    gid = LINE + " ".join(on_line[chart.cell]) if all(rows[chart.cell]) else None
    x, y, low, high = on_line[["x", "y", *chart.ends]].to_numpy(float).T
    look = {"color": style.color, "alpha": style.opacity, "linestyle": style.line, "linewidth": width}
    axes.add_artist(Line2D(x, y, gid=gid, **look))
    if style.is_guide:
        return
    if not style.is_context and not np.isnan([low, high])[:, ~np.isnan(y)].any():
        axes.fill_between(x, low, high, gid=gid, color=style.color, alpha=BAND, linewidth=0)
    dot = DOT * (0.5 if chart.frame["x"].nunique() > MANY_PLACES else 1)
    dot = dot / 2 if style.is_context else emphasis * dot * wider**0.5
    ranges = [name for name in ("minimum", "maximum") if name in rows and not style.is_context]
    shape = {"markersize": dot, "markeredgewidth": 0.2 * dot}
    known = rows.dropna(subset="y")
    _marks(axes, chart, known, known["x"].to_numpy(), style, (ranges, 1, style.opacity), 0.75 * dot, **shape)


def _row_names(chart: Chart, rows: "pd.DataFrame", has_words: bool) -> tuple[str, list[str]]:
    """Return what the names of all rows have in common, and the rest of each: category, series and shape."""
    columns = [] if has_words else [rows[chart.series]]
    if chart.x.is_categorical:
        columns.insert(0, rows["x"].map(dict(chart.x.ticks)).str.replace("\n", SEPARATOR))
    elif "shape" in rows and rows[chart.series].duplicated().any():
        columns.append(rows["shape"])
    common, names = split_common([SEPARATOR.join(filter(None, of)) for of in zip(*columns, strict=True)])
    return common, [in_two_lines(name, MOST_NAME) for name in names]


def _name_values(axes: "Axes", chart: Chart, rows: "pd.DataFrame") -> "list[Annotation]":
    """Write beside many values the names of those that differ most in each series, and how many more there are.

    Missing values, which are drawn at the lowest place, share one text.
    """
    drawn, names, where = [], dict(chart.x.ticks), {"xycoords": axes.get_yaxis_transform(), "va": "center"}
    for series, part in rows.groupby(chart.series, sort=False):
        part = part.sort_values("y", key=abs, ascending=False, kind="stable")
        texts = [f"{names[x]} {with_minus_signs(chart.y.written(y))}" for x, y in part[["x", "y"]].to_numpy()]
        texts[MOST_NAMED:] = [f"and {len(part) - MOST_NAMED} more"] if len(part) > MOST_NAMED else []
        if part["y"].isna().all():
            texts = [f"{len(part)} {series}: {joined([names[x] for x in part['x']])}"]
        for text, y, cell in zip(texts, part["y"].fillna(axes.get_ylim()[0]), part[chart.cell], strict=False):
            look = {"color": chart.styles[series].color, "gid": LINE + cell}
            drawn.append(axes.annotate(in_two_lines(text, MOST_NAME), (1, y), (5, 0), **look, **OFFSET, **where))
    return drawn


def draw_rows(canvas: "Canvas", chart: Chart, medium: Medium) -> None:
    """Draw a row for each value, with its interval or range, launches and number; of many, values side by side."""
    styles, series = chart.styles, chart.series
    is_guide = chart.frame[series].isin([name for name, style in styles.items() if style.is_guide])
    rows, guides = chart.frame[~is_guide], chart.frame[is_guide].drop_duplicates(series)
    rows = rows.sort_values("x", kind="stable") if chart.x.is_categorical else rows
    is_across, found = len(rows) > MOST_ROWS, [name for name in styles if name in set(rows[series])]
    has_words = len(found) > 1 and chart.x.is_categorical and rows["x"].is_unique  # each says something of one value
    common, names = ("", []) if is_across else _row_names(chart, rows, has_words)
    row_height = (TWO_LINES if any("\n" in name for name in names) else ROW) * chart.stretch
    height = PLOT * chart.stretch if is_across else max(row_height * len(rows), 5)
    [axes] = new_plots(canvas, medium, height + 6, has_rows=True)
    is_log = chart.y.is_log and max(chart.values) > LOG_RATIO * min(chart.values)
    axis = replace(chart.y, is_log=is_log, low=chart.y.low or None)  # rows are no bars from 0
    is_zoomed = axis.scale(axes, "y" if is_across else "x", chart.values)
    places = rows["x"].to_numpy(float) if is_across else np.arange(len(rows), dtype=float)
    axes.grid(visible=True, axis="y" if is_across else "x")
    axes.set_xlabel("\n".join(filter(None, (chart.x.label * is_across, *chart.footnotes))))
    if is_across:
        axes.set(xlim=(places.min() - 0.6, places.max() + 0.6))
        axes.locator_params(axis="x", nbins=8, integer=True)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        if len(found) > 1:
            handles = {name: _handle(styles[name], linestyle="none") for name in found if name}
            add_legend(canvas, handles, list(map(chart.cells_of, handles)), medium)
        if "group" in rows:
            _groups(axes, rows)
    else:
        axes.set(ylim=(len(rows) - 0.5, -0.5), yticks=[])
        axes.spines["left"].set_visible(False)
        signs = rows[SLOW].notna().map({True: HOLLOW, False: ""}) if SLOW in rows else [""] * len(rows)
        for number, (name, value, word, sign) in enumerate(zip(names, rows["y"], rows[series], signs, strict=True)):
            shown = "" if math.isnan(value) else with_minus_signs(chart.y.written(value))
            beside(axes, number, name, 0, medium)
            word = word if has_words and word not in QUIET else ""
            beside(axes, number, " ".join(filter(None, (shown, word, sign))), 1, medium)
    if len(guides) > 1:
        band = {"color": GREY, "alpha": BAND, "linewidth": 0, "zorder": 0}
        (axes.axhspan if is_across else axes.axvspan)(guides["y"].min(), guides["y"].max(), **band)
    named = set(found) - {*UNNAMED} if is_across and has_words else set()
    drawn = _name_values(axes, chart, rows[rows[series].isin(named)])
    for name, at in guides[[series, "y"]].itertuples(index=False):
        look = {"color": GREY, "linestyle": styles[name].line, "linewidth": 1.2, "zorder": 1.5}
        (axes.axhline if is_across else axes.axvline)(at, **look)
        side = "center" if len(guides) == 1 else "left" if at == guides["y"].max() else "right"
        if is_across:
            where = {"xy": (1, at), "xytext": (5, 0), "xycoords": axes.get_yaxis_transform(), "va": "center"}
        else:
            where = {"xy": (at, 1), "xytext": (0, 2), "xycoords": axes.get_xaxis_transform(), "ha": side}
        drawn += [axes.annotate(name, color=GREY, **OFFSET, **where)]
    lay_out(canvas, medium, chart.y.heading, chart.heading, common, ZOOMED * is_zoomed)
    move_apart(axes, drawn if is_across else [], medium)
    ends = ("minimum", "maximum") if "minimum" in rows else chart.ends
    bars = (ends, *((1.8, 0.7) if is_across else (6, 0.3)))
    tick = {"alpha": 1, "marker": "|", "markersize": 12, "markeredgewidth": 2}
    for name in found:
        for is_known in (True, False):
            chosen = ((rows[series] == name) & (rows["y"].notna() == is_known)).to_numpy()
            dot = {"alpha": 1, "markersize": 3 if is_across and name not in named else 7}
            look = tick if is_known and not is_across else dot
            _marks(axes, chart, rows[chosen], places[chosen], styles[name], bars, DOT, is_across=is_across, **look)


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


def beside(axes: "Axes", row: int, text: str, end: int, medium: Medium, gap: float = 6, **look: object) -> None:
    """Write a text before a row (end 0) or behind it (1). Each line is a text, so that a smaller one is aligned too."""
    lines = text.split("\n")
    look = {"ha": "left" if end else "right", "xycoords": axes.get_yaxis_transform(), "va": "center_baseline"} | look
    for index, line in enumerate(lines):
        above = 1.2 * medium.text_pt * ((len(lines) - 1) / 2 - index)
        axes.annotate(line, (end, row), (gap if end else -gap, above), **OFFSET, **look)
