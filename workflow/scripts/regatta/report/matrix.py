"""A matrix: one number or state for each row and column, as an HTML table that any page can show."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from regatta.core.names import CellName
from regatta.core.text import natural, shape
from regatta.model.frozen import Cell

WITHIN_SQUARE = ("bucket_cap_mb", "message_bytes")  # ordered axes: a square has all sizes of its workload and shape
MOST_ROWS_OPEN = 40  # of more rows, each subject is folded
MOST_ROWS_DENSE = 200  # of more low rows
LIGHTEST, LEAST_SPAN = 0.15, 0.1  # color of the lowest level; levels within less look alike


@dataclass(frozen=True)
class Square:
    """One square. text: its number or mark. level: place on the color scale of its matrix; None: no color.

    side: "above" or "below" the middle of a diverging scale, whose colors differ; empty for a sequential scale.
    state: CSS class, such as "failed". cells: ids of the cells behind it. note: the whole sentence on it. others: cells
    that it is compared with, which a filter may keep it for. beside: small text after the number.
    """

    text: str
    level: float | None = None
    state: str = ""
    cells: tuple[str, ...] = ()
    note: str = ""
    side: str = ""
    others: tuple[str, ...] = ()
    beside: str = ""

    @property
    def classes(self) -> str:
        return " ".join(filter(None, (self.state, self.side)))

    def style(self, scale: tuple[float, float] = (0, 1)) -> str:
        """Return its place on a color scale with these ends; a level beyond it has the color of its end."""
        low, high = scale
        return "" if self.level is None else f"--level: {min(max((self.level - low) / (high - low), 0.0), 1.0):.0%}"


@dataclass(frozen=True)
class MatrixRow:
    """One row. squares: one for each column of its matrix, None where nothing was planned."""

    name: str
    squares: tuple[Square | None, ...]


@dataclass(frozen=True)
class Group:
    """Rows of one subject. summary: what a folded group shows."""

    name: str
    rows: tuple[MatrixRow, ...]
    summary: str = ""


@dataclass(frozen=True)
class Matrix:
    """Squares by row and column. is_folded: groups open one by one. label: for screen readers, unique on a page.

    scale: levels with the lightest and the darkest color. is_dense: low rows, each with the name of its group.
    """

    caption: str
    columns: tuple[str, ...]
    groups: tuple[Group, ...]
    is_folded: bool = False
    label: str = "All cells"
    scale: tuple[float, float] = (0, 1)
    is_dense: bool = False


def shapes_in_order(cells: Iterable[Cell]) -> list[tuple[int, int]]:
    """Return the shapes of cells, that with the fewest ranks first."""
    return sorted({cell.shape for cell in cells}, key=lambda place: (place[0] * place[1], place))


def all_squares(matrix: Matrix) -> list[Square]:
    return [square for group in matrix.groups for row in group.rows for square in row.squares if square]


def densely(matrix: Matrix) -> Matrix:
    """Return a matrix as a heatmap of low rows, unless there are too many."""
    if sum(len(group.rows) for group in matrix.groups) > MOST_ROWS_DENSE:
        return matrix
    return replace(matrix, is_folded=False, is_dense=True)


def shaded(matrix: Matrix) -> Matrix:
    """Return a matrix whose color scale spans its levels."""
    levels = [square.level for square in all_squares(matrix) if square.level is not None]
    if not levels:
        return matrix
    span = max(max(levels) - min(levels), LEAST_SPAN)
    return replace(matrix, scale=(max(levels) - span / (1 - LIGHTEST), max(levels)))


def by_workload_and_shape(
    caption: str,
    cells: Collection[Cell],
    names: dict[str, CellName],
    make_square: Callable[[str, list[str]], Square],
    summary: Callable[[list[MatrixRow]], str],
) -> Matrix:
    """Return a matrix with workloads and stacks down and shapes across.

    names: those of the cells. make_square: takes a benchmark and the ids of the cells of a square. summary: the text
    of a folded group.
    """
    shapes = shapes_in_order(cells)
    places: dict[tuple, dict[tuple, list[str]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        name = names[cell.id]
        places[cell.benchmark, name.parts["subject"], _row_name(name)][cell.shape].append(cell.id)
    groups: dict[tuple, list[MatrixRow]] = defaultdict(list)
    for (benchmark, subject, row), by_shape in places.items():
        squares = (make_square(benchmark, by_shape[place]) if place in by_shape else None for place in shapes)
        groups[benchmark, subject].append(MatrixRow(row, tuple(squares)))
    return Matrix(
        caption,
        tuple(shape(*place) for place in shapes),
        tuple(
            Group(subject, tuple(sorted(rows, key=lambda row: natural(row.name))), summary(rows))
            for (_, subject), rows in groups.items()
        ),
        sum(map(len, groups.values())) > MOST_ROWS_OPEN,
    )


def _row_name(name: CellName) -> str:
    """Return what distinguishes a row within its subject: settings that are not ordered, and the stack."""
    name = name.without("subject", "shape", *WITHIN_SQUARE)
    return name.say(*name.parts, always=())
