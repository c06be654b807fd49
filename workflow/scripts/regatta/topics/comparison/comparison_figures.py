"""Comparisons at a glance: a matrix with one square for each pair of cells, and the changes with their intervals."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from regatta.core.names import SEPARATOR, cell_names
from regatta.core.text import UNKNOWN, interval_heading, is_unknown, plural, shape
from regatta.core.verdicts import worded
from regatta.kit.columns import Row, table_rows
from regatta.report.chart import GREY, GUIDE, Chart, PlotAxis, Style, styles_of
from regatta.report.matrix import Matrix, Square, agreeing, joint, shape_columns
from regatta.report.panels import ORDER, Figure, Table
from regatta.store.csv_files import plain_rows
from regatta.tables.pairs import by_effect, directed
from regatta.topics.comparison import texts
from regatta.topics.comparison.texts import difference_text, pair_text, with_labels

MOST_ROWS, MOST_GROUPS = 12, 16
LABEL, LABEL_OF_RESULTS = "Change in time (%)", "Change, positive is worse (%)"
LEAST, AROUND_MARGIN = 2, 1.3  # change that the axis has at least to either side; relative to the margin
BESIDE = 0.06  # of the axis, beyond the last change
VERDICT_HUES = {"faster": 0, "slower": 3}  # others are gray
LEAST_ALIKE = 3  # rows that become one if all of their pairs are equivalent
FULL = 2  # margins (logarithms) at which a color is the strongest
RATIO_NOTE = "Positive: slower. Color: beyond the margin, full at twice the margin"
RATIO_STATES = {
    "slower": "verdict slower",
    "faster": "verdict faster",
    "unsettled": "slower or faster; may or may not exceed the margin",
    "equivalent": "equivalent: within the margin",
    "inconclusive": "inconclusive",
}
UNPAIRED = RATIO_STATES | {"missing": "no valid launches on one side"}


def ratio_matrices(comparisons: pd.DataFrame, names: Mapping[str, str], fold: str = "") -> tuple[Matrix, ...]:
    """Return a matrix for each pair of compared values: workloads and settings down, shapes across.

    comparisons: rows in the order of their subjects. names: those of reference cells by id. fold: see `Matrix`.
    """
    rows = directed(comparisons[comparisons["margin_ratio"].notna()])  # identical stacks (A/A) have none
    pairs = [part for _, part in rows.groupby(["reference_value", "value"], sort=False)]
    parts = [of for part in pairs for _, of in part.groupby("result_label", sort=False, dropna=False)]
    return tuple(
        _matrix(part, names, fold, is_only=len(pairs) == 1) for part in parts if part["time_ratio"].notna().any()
    )


def _matrix(rows: pd.DataFrame, names: Mapping[str, str], fold: str, is_only: bool) -> Matrix:
    axis, first = rows["axis"].iloc[0], rows.iloc[0]
    reference, value = texts.sides_text(rows) if is_only or axis != "campaign" else (first.reference_value, first.value)
    cells = [name.without(axis) for name in cell_names(plain_rows(rows, tuple(rows)))]
    groups = [(row.benchmark, name.parts["subject"]) for row, name in zip(table_rows(rows), cells, strict=True)]
    place = {group: place for place, group in enumerate(dict.fromkeys(groups))}  # as in the campaign
    fields = {"cell_name": cells, "group": groups, "place": list(map(place.get, groups))}
    rows = rows.assign(**fields, is_one_of=rows["cell"].duplicated(keep=False))
    settings = [column for column in ORDER if column in rows and column not in ("nodes", "gpus_per_node")]
    rows = rows.sort_values(["place", *settings], kind="stable", na_position="first")
    pair = pair_text(rows) if axis != "campaign" else f"{value} vs. {reference}"
    what = "" if is_unknown(first.result_label) else f"{first.result_label}: "
    return Matrix(
        f"{what}{pair}: change{'' if what else ' in time'} (%); positive: {value} is {worded('slower', first)}",
        shape_columns(zip(rows["nodes"], rows["gpus_per_node"], strict=True)),
        tuple(agreeing((_square(row, names) for row in table_rows(rows)), lambda one: one.group, _median, LEAST_ALIKE)),
        f"{what}{'Ratios' if is_only else f'Ratios of {pair}'} by shape",
        (f"One square per pair of cells. {RATIO_NOTE}",),
        UNPAIRED,
        scale=(0, 1),
        fold=fold,
        summary=lambda squares: _summary(rows[rows["cell"].isin({cell for one in squares for cell in one.cells})]),
    )


def _square(row: Row, names: Mapping[str, str]) -> Square:
    name = row.cell_name.without("subject", "shape")
    text = [name.say(*name.parts, always=())]
    text += [f"vs. {names.get(row.reference, row.reference)}"] if row.is_one_of else []  # of several references
    place = row.group, SEPARATOR.join(filter(None, text)), shape(row.nodes, row.gpus_per_node)
    cells = {"cells": (row.cell,), "others": (row.reference,)}  # the drawer of the first shows the comparison
    if is_unknown(row.time_ratio):
        return Square(*place, UNKNOWN, "missing", note=f"{row.cell_name.brief}: no valid launches", **cells)
    state = "unsettled" if row.verdict == "inconclusive" and row.direction else row.verdict
    limit = 1 + row.margin_ratio
    cells |= {"values": ((row.time_ratio, 1 / limit, limit),)} if state == "equivalent" else {}
    return Square(*place, **ratio_shown(row, state), note=f"{row.cell_name.brief}: {texts.row_text(row)}", **cells)


def _median(squares: tuple[Square, ...]) -> Square:
    """Return the square of equivalent pairs."""
    low, median, high = map(difference_text, np.quantile([one.values[0][0] for one in squares], (0, 0.5, 1)))
    note = f"{squares[0].group[-1]}: {len(squares)} equivalent pairs, {low} to {high} %"
    return joint(squares, row=f"{len(squares)} equivalent rows, median", text=median, note=note)


def ratio_shown(row: Row, state: str) -> dict:
    """Return what a square shows of a ratio of times: colored on the side on which it exceeds the margin."""
    ratio, limit = float(row.time_ratio), 1 + float(row.margin_ratio)
    side = "above" if ratio > limit else "below" if ratio < 1 / limit else ""
    level = abs(math.log(ratio)) / (FULL * math.log(limit)) if side else None
    return {"text": difference_text(ratio), "level": level, "state": f"{state} {side}".strip()}


def _summary(rows: pd.DataFrame) -> str:
    """Return what a folded group shows: how many of its pairs are slower or faster, also within the margin."""
    beyond = [f"{num:,} {word}" for word in ("slower", "faster") if (num := int((rows["verdict"] == word).sum()))]
    counts = ", ".join([*beyond, *texts.within_texts(rows)])
    return f"{plural(len(rows), 'pair')}: {counts or 'none slower or faster'}"


# The change in time of each pair with its interval: what the first screen has if all cells have one shape.


def changes_figure(judged: pd.DataFrame) -> Figure:
    """Return the figure of the rows, those with the largest effects first, of which it has MOST_ROWS; of more rows,
    which are times, that of their workloads."""
    if len(judged) > MOST_ROWS and judged["result"].isna().all():
        return workloads_figure(judged)
    shown, num = by_effect(with_labels(judged)).head(MOST_ROWS), len(judged)
    heading = LABEL if shown["result"].isna().all() else LABEL_OF_RESULTS
    title = f"{heading.removesuffix(' (%)')}: {pair_text(shown)}"
    title += f", largest {len(shown)} of {num} pairs" if len(shown) < num else ""
    return ratio_figure("changes", title, shown, interval_heading(shown["interval"]), heading)


def workloads_figure(judged: pd.DataFrame) -> Figure:
    """Return the figure of many rows: one for each workload and verdict, or also shape if those differ by the margin.

    Of more than MOST_ROWS workloads, one for each benchmark.
    """
    names = cell_names(plain_rows(judged, tuple(judged)))
    shapes = [shape(row.nodes, row.gpus_per_node) for row in table_rows(judged)]
    rows = judged.assign(subject=[name.parts["subject"] for name in names], shape=shapes)
    if rows["subject"].nunique() > MOST_ROWS:
        rows["subject"] = rows["benchmark"].map(texts.benchmark_words)
    by_shape = rows.astype({"time_ratio": float}).groupby(["subject", "verdict", "shape"])["time_ratio"].median()
    spread = by_shape.groupby(["subject", "verdict"]).agg(lambda of: of.max() / of.min())
    is_apart = spread.reindex(pd.MultiIndex.from_frame(rows[["subject", "verdict"]])) > 1 + judged["margin_ratio"].max()
    where, groups = rows["shape"].where(is_apart.to_numpy(), ""), []
    for (subject, _, verdict), of in rows.groupby(["subject", where, "verdict"], sort=False):
        places = of["shape"].iloc[0] if of["shape"].nunique() == 1 else f"{of['shape'].nunique()} shapes"
        label = SEPARATOR.join((subject, places, plural(len(of), "pair")))
        ends = {"time_low_ratio": of["time_low_ratio"].min(), "time_high_ratio": of["time_high_ratio"].max()}
        group = {"label": label, "verdict": verdict, "time_ratio": of["time_ratio"].median(), **ends}
        groups.append(group | {"cell": of["cell"].iloc[0] if len(of) == 1 else ""})
    shown = by_effect(pd.DataFrame(groups).assign(margin_ratio=judged["margin_ratio"].max()))
    title = f"Change in time: {pair_text(judged)}, median of pairs"
    if len(shown) > MOST_GROUPS:
        title += f", largest {MOST_GROUPS} of {len(shown)} groups"
    return ratio_figure("changes", title, shown.head(MOST_GROUPS), "95 % CIs of the pairs")


def ratio_figure(id_: str, title: str, shown: pd.DataFrame, ends: str, heading: str = LABEL) -> Figure:
    """Return a figure with a line for each row, all within its axis. ends: heading of the intervals.

    shown: columns of pairs, and `label`. cell: empty if a row stands for several.
    """
    rows, marks = table_rows(shown), []
    for place, row in enumerate(rows):
        value, low, high = map(_change, (row.time_ratio, row.time_low_ratio, row.time_high_ratio))
        marks.append({"cell": row.cell, "series": row.verdict, "x": place, "y": value, "low": low, "high": high})
    margin = 1 + float(shown["margin_ratio"].max())
    places = _change(margin), _change(1 / margin)
    limits = dict(zip((f"margin {places[0]:.3g} %", f"{_text(places[1])} %"), places, strict=True))
    least = max(LEAST, AROUND_MARGIN * places[0])
    marks += [{"cell": "", "series": name, "x": None, "y": place} for name, place in limits.items()]
    frame = pd.DataFrame(marks).astype(dict.fromkeys(("x", "y", "low", "high"), float))
    values = frame[["y", "low", "high"]].stack()
    low, high = min(values.min(), -least), max(values.max(), least)
    around = BESIDE * (high - low)
    styles = styles_of({row.verdict: VERDICT_HUES[row.verdict] for row in rows if row.verdict in VERDICT_HUES})
    styles |= {row.verdict: Style(GREY) for row in rows if row.verdict not in styles} | dict.fromkeys(limits, GUIDE)
    axes = (
        PlotAxis.of_categories("", [row.label for row in rows]),
        PlotAxis(heading, low=low - around, high=high + around, show=_text),
    )
    lines = tuple(
        (row.label, row.verdict, _text(of.y), UNKNOWN if is_unknown(of.low) else f"[{_text(of.low)}, {_text(of.high)}]")
        for row, of in zip(rows, frame.itertuples(), strict=False)
    )
    cells = tuple(row.cell for row in rows)
    heads = ("cell" if all(cells) else "cells", "verdict", heading.lower(), ends)
    table = Table(title, heads, lines, cells=cells if all(cells) else ())
    return Figure(id_, title, Chart("rows", frame, *axes, styles=styles), table, "comparisons")


def _change(ratio: object) -> float | None:
    """Return the change in percent that a ratio stands for; None if unknown."""
    return None if is_unknown(ratio) else 100 * (float(ratio) - 1)


def _text(change: float) -> str:
    return "0" if abs(change) < 1e-9 else difference_text(1 + change / 100)
