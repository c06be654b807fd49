"""Ratios at a glance: a matrix with one square for each pair of cells."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

import pandas as pd

from regatta.core.names import SEPARATOR, cell_names
from regatta.core.text import UNKNOWN, is_unknown, plural, shape
from regatta.report.matrix import Group, Matrix, MatrixRow, Square
from regatta.report.panels import ORDER
from regatta.report.rows import table_rows
from regatta.topics.base import plain_rows
from regatta.topics.comparison import sides, texts
from regatta.topics.comparison.texts import difference_text

MOST_COLUMNS_OF_HALF, FIGURE_ROWS = 6, 12  # of half the page; height of a figure in rows
MOST_ROWS_OPEN = 40  # of more rows, each subject is folded
SCALE_END = 1.2  # ratio with the strongest color, and 1 / 1.2


def ratio_matrices(comparisons: pd.DataFrame, names: Mapping[str, str]) -> list[Matrix]:
    """Return a matrix for each pair of compared values: workloads and settings down, shapes across.

    comparisons: rows in the order of their subjects. names: those of reference cells by id.
    """
    rows = comparisons[comparisons["margin_ratio"].notna()]  # identical stacks (A/A) have none
    pairs = [part for _, part in rows.groupby(["reference_value", "value"], sort=False)]
    return [_matrix(part, names, is_only=len(pairs) == 1) for part in pairs if part["time_ratio"].notna().any()]


def halves(matrices: list[Matrix]) -> tuple[Matrix, ...]:
    """Return the only matrix in two parts of about the same height, the first below a figure; empty if it is small.

    A part has only the columns that it needs.
    """
    [matrix, *others] = matrices or [None]
    if matrix is None or others or matrix.is_folded or len(matrix.columns) > MOST_COLUMNS_OF_HALF:
        return ()
    heights = list(accumulate(1 + len(group.rows) for group in matrix.groups))
    num = sum(height <= (heights[-1] - FIGURE_ROWS) / 2 for height in heights)
    parts = (matrix.groups[:num], matrix.groups[num:])
    return tuple(_part(matrix, groups, number) for number, groups in enumerate(parts)) if num else ()


def _part(matrix: Matrix, groups: tuple[Group, ...], number: int) -> Matrix:
    rows = [row for group in groups for row in group.rows]
    kept = [place for place in range(len(matrix.columns)) if any(row.squares[place] for row in rows)]

    def of(row: MatrixRow) -> MatrixRow:
        return replace(row, squares=tuple(row.squares[place] for place in kept))

    groups = tuple(replace(group, rows=tuple(map(of, group.rows))) for group in groups)
    texts_of = {"caption": "Further rows", "label": f"{matrix.label}, further rows"} if number else {}
    return replace(matrix, groups=groups, columns=tuple(matrix.columns[place] for place in kept), **texts_of)


def _matrix(rows: pd.DataFrame, names: Mapping[str, str], is_only: bool) -> Matrix:
    axis, (reference, value) = rows["axis"].iloc[0], sides.sides_text(rows)
    places = sorted(zip(rows["nodes"], rows["gpus_per_node"], strict=True), key=lambda of: (math.prod(of), of))
    places = list(dict.fromkeys(places))
    rows = rows.assign(cell_name=[name.without(axis) for name in cell_names(plain_rows(rows, tuple(rows)))])
    subjects = [(row.benchmark, row.cell_name.parts["subject"]) for row in table_rows(rows)]  # as in the campaign
    groups: dict[tuple, dict[str, dict[tuple, Square]]] = {subject: defaultdict(dict) for subject in subjects}
    settings = [column for column in ORDER if column in rows and column not in ("nodes", "gpus_per_node")]
    for row in table_rows(rows.sort_values(settings, kind="stable", na_position="first")):
        name, place = row.cell_name.without("subject", "shape"), (row.nodes, row.gpus_per_node)
        text, group = name.say(*name.parts, always=()), groups[row.benchmark, row.cell_name.parts["subject"]]
        if place in group[text]:  # one cell and several references
            text = SEPARATOR.join(filter(None, (text, f"vs. {names.get(row.reference, row.reference)}")))
        group[text][place] = _square(row)
    pair = sides.pair_text(rows) if axis != "campaign" else f"{value} vs. {reference}"
    found = []
    for key, by_row in groups.items():
        squares = tuple(MatrixRow(text, tuple(map(by_place.get, places))) for text, by_place in by_row.items())
        found.append(Group(key[1], squares, _summary(rows[[subject == key for subject in subjects]])))
    columns, is_folded = tuple(shape(*place) for place in places), sum(len(of.rows) for of in found) > MOST_ROWS_OPEN
    caption = f"{pair}: change in time (%); positive: {value} is slower"
    return Matrix(caption, columns, tuple(found), is_folded, "Ratios" if is_only else f"Ratios of {pair}")


def _square(row) -> Square:
    cells, others = (row.cell,), (row.reference,)  # the drawer of the first shows the comparison
    if is_unknown(row.time_ratio):
        return Square(UNKNOWN, None, "missing", cells, f"{row.cell_name.brief}: no valid launches", others=others)
    note = f"{row.cell_name.brief}: {texts.row_text(row)}"
    state = "unsettled" if texts.is_unsettled(row) else row.verdict
    state += " insignificant" if not is_unknown(row.p_adjusted) and texts.direction_of(row) is None else ""
    return ratio_square(row, state, cells, note, others)


def ratio_square(row, state: str, cells: tuple[str, ...], note: str, others: tuple[str, ...] = ()) -> Square:
    """Return the square of a ratio of times: colored by its size on the side of 1 on which it exceeds the margin."""
    ratio, limit = float(row.time_ratio), 1 + float(row.margin_ratio)
    side = "above" if ratio > limit else "below" if ratio < 1 / limit else ""
    level = abs(math.log(ratio)) / math.log(SCALE_END) if side else None
    return Square(difference_text(ratio), level, state, cells, note, side, others)


def _summary(rows: pd.DataFrame) -> str:
    """Return what a folded group shows: how many of its pairs are slower or faster, also within the margin."""
    beyond = [f"{num:,} {word}" for word in ("slower", "faster") if (num := int((rows["verdict"] == word).sum()))]
    counts = ", ".join([*beyond, *texts.within_texts(rows)])
    return f"{plural(len(rows), 'pair')}: {counts or 'none slower or faster'}"
