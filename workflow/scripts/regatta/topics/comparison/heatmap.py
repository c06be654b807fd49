"""Ratios at a glance: a matrix with one square for each pair of cells."""

import math
from collections.abc import Mapping

import pandas as pd

from regatta.core.names import SEPARATOR, cell_names
from regatta.core.text import UNKNOWN, is_unknown, plural, shape
from regatta.kit.columns import Row, table_rows
from regatta.report.matrix import Matrix, Square, shape_columns
from regatta.report.panels import ORDER
from regatta.tables.pairs import direction_of, is_unsettled
from regatta.topics.base import plain_rows
from regatta.topics.comparison import sides, texts
from regatta.topics.comparison.texts import difference_text

SCALE_END = 1.2  # ratio with the strongest color, and 1 / 1.2
RATIO_NOTE = "Positive: slower. Color: beyond the margin, saturated at +20 % and \N{MINUS SIGN}17 %"
RATIO_STATES = {
    "slower": "verdict slower",
    "faster": "verdict faster",
    "unsettled": "slower or faster; may or may not exceed the margin",
    "equivalent": "equivalent: within the margin",
    "insignificant": "not significant: the 95 % CI includes 0, or the corrected p is too large",
    "inconclusive": "inconclusive",
}
UNPAIRED = RATIO_STATES | {"missing": "no valid launches on one side"}


def ratio_matrices(comparisons: pd.DataFrame, names: Mapping[str, str], fold: str = "") -> tuple[Matrix, ...]:
    """Return a matrix for each pair of compared values: workloads and settings down, shapes across.

    comparisons: rows in the order of their subjects. names: those of reference cells by id. fold: see `Matrix`.
    """
    rows = comparisons[comparisons["margin_ratio"].notna()]  # identical stacks (A/A) have none
    pairs = [part for _, part in rows.groupby(["reference_value", "value"], sort=False)]
    return tuple(
        _matrix(part, names, fold, is_only=len(pairs) == 1) for part in pairs if part["time_ratio"].notna().any()
    )


def _matrix(rows: pd.DataFrame, names: Mapping[str, str], fold: str, is_only: bool) -> Matrix:
    axis, (reference, value) = rows["axis"].iloc[0], sides.sides_text(rows)
    cells = [name.without(axis) for name in cell_names(plain_rows(rows, tuple(rows)))]
    groups = [(row.benchmark, name.parts["subject"]) for row, name in zip(table_rows(rows), cells, strict=True)]
    place = {group: place for place, group in enumerate(dict.fromkeys(groups))}  # as in the campaign
    fields = {"cell_name": cells, "group": groups, "place": list(map(place.get, groups))}
    rows = rows.assign(**fields, is_one_of=rows["cell"].duplicated(keep=False))
    settings = [column for column in ORDER if column in rows and column not in ("nodes", "gpus_per_node")]
    rows = rows.sort_values(["place", *settings], kind="stable", na_position="first")
    pair = sides.pair_text(rows) if axis != "campaign" else f"{value} vs. {reference}"
    return Matrix(
        f"{pair}: change in time (%); positive: {value} is slower",
        shape_columns(zip(rows["nodes"], rows["gpus_per_node"], strict=True)),
        tuple(_square(row, names) for row in table_rows(rows)),
        f"{'Ratios' if is_only else f'Ratios of {pair}'} by shape",
        (f"One square per pair of cells. {RATIO_NOTE}",),
        UNPAIRED,
        scale=(0, 1),
        fold=fold,
        summary=lambda squares: _summary(rows[rows["cell"].isin({square.cells[0] for square in squares})]),
    )


def _square(row: Row, names: Mapping[str, str]) -> Square:
    name = row.cell_name.without("subject", "shape")
    text = [name.say(*name.parts, always=())]
    text += [f"vs. {names.get(row.reference, row.reference)}"] if row.is_one_of else []  # of several references
    place = row.group, SEPARATOR.join(filter(None, text)), shape(row.nodes, row.gpus_per_node)
    cells = {"cells": (row.cell,), "others": (row.reference,)}  # the drawer of the first shows the comparison
    if is_unknown(row.time_ratio):
        return Square(*place, UNKNOWN, "missing", note=f"{row.cell_name.brief}: no valid launches", **cells)
    state = "unsettled" if is_unsettled(row) else row.verdict
    state += " insignificant" if not is_unknown(row.p_adjusted) and direction_of(row) is None else ""
    return Square(*place, **ratio_shown(row, state), note=f"{row.cell_name.brief}: {texts.row_text(row)}", **cells)


def ratio_shown(row: Row, state: str) -> dict:
    """Return what a square shows of a ratio of times: colored on the side on which it exceeds the margin."""
    ratio, limit = float(row.time_ratio), 1 + float(row.margin_ratio)
    side = "above" if ratio > limit else "below" if ratio < 1 / limit else ""
    level = abs(math.log(ratio)) / math.log(SCALE_END) if side else None
    return {"text": difference_text(ratio), "level": level, "state": f"{state} {side}".strip()}


def _summary(rows: pd.DataFrame) -> str:
    """Return what a folded group shows: how many of its pairs are slower or faster, also within the margin."""
    beyond = [f"{num:,} {word}" for word in ("slower", "faster") if (num := int((rows["verdict"] == word).sum()))]
    counts = ", ".join([*beyond, *texts.within_texts(rows)])
    return f"{plural(len(rows), 'pair')}: {counts or 'none slower or faster'}"
