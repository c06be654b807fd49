"""The best bucket sizes of many workloads in one heatmap, and what the slowest size costs."""

from collections.abc import Sequence
from itertools import groupby

from regatta.core.names import SEPARATOR
from regatta.core.text import plural
from regatta.report.findings import percent_number
from regatta.report.matrix import Group, Matrix, MatrixRow, Square, densely, shaded

MIB = " MiB"


def bucket_overview(matrices: Sequence[Matrix], shapes: Sequence[str], ranks: str, worst: float) -> Matrix:
    """Return a heatmap with a row for each matrix, and a column for each shape that any of them has.

    matrices: of `bucket_matrices`. shapes: in order. worst: the slowdown of level 1.
    """
    used = [place for place in shapes if any(row.name == place for of in matrices for row in of.groups[0].rows)]
    rows = []
    for matrix in matrices:
        by_shape = {row.name: _square(matrix, row, worst) for row in matrix.groups[0].rows}
        subject, _, settings = matrix.caption.partition(SEPARATOR)
        rows.append((subject, MatrixRow(settings, tuple(map(by_shape.get, used)))))
    groups = (Group(name, tuple(row for _, row in of)) for name, of in groupby(rows, key=lambda item: item[0]))
    caption = f"Fastest sizes (MiB) by nodes × {ranks} per node"
    return shaded(densely(Matrix(caption, tuple(used), tuple(groups), is_folded=True, label="Fastest bucket sizes")))


def _square(matrix: Matrix, row: MatrixRow, worst: float) -> Square:
    """Return the sizes of a row that may be the fastest, and what the slowest costs."""
    planned = [(size.removesuffix(MIB), one) for size, one in zip(matrix.columns, row.squares, strict=True) if one]
    measured = [(size, one) for size, one in planned if one.level is not None]
    cells = tuple(cell for _, one in planned for cell in one.cells)
    states = {word for _, one in planned for word in one.state.split()}
    if len(measured) < 2:
        kind = "failed" if {"failed", "partial"} & states else "missing"
        return Square(next(one.text for _, one in planned if one.level is None), None, kind, cells)
    near = [place for place, (_, one) in enumerate(measured) if {"best", "near"} & set(one.state.split())]
    text = measured[near[0]][0]
    if len(near) > 1:
        is_range = near[-1] - near[0] == len(near) - 1
        text = f"{text}\N{EN DASH}{measured[near[-1]][0]}" if is_range else plural(len(near), "size")
    slowest, highest = max(measured, key=lambda item: item[1].level)
    cost = f"{percent_number(worst * highest.level)} %"
    note = f"{matrix.caption}, {row.name}: fastest {', '.join(measured[place][0] for place in near)}{MIB};"
    note += f" slowest {slowest}{MIB}, {cost} slower"
    state = " ".join(sorted(states & {"uncertain"}))
    is_bad = bool({"failed", "partial"} & states)
    return Square(text, highest.level, "partial" if is_bad else state, cells, note, beside=f"+{cost}")
