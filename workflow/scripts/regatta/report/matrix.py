"""A table as a heatmap: squares by group, row and column, as an HTML table that any page can show.

A plan has one too, and loads no pandas: the long table is a sequence of records.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations

from regatta.core.names import SEPARATOR, CellName
from regatta.core.text import natural, ranks_word, shape
from regatta.kit.kinds import joined
from regatta.model.frozen import Cell

WITHIN_SQUARE = ("bucket_cap_mb", "message_bytes")  # ordered axes: a square has all sizes of its workload and shape
MOST_ROWS_OPEN = 8  # with more rows, rows are low or groups are folded
MOST_ROWS_DENSE = 200  # with more low rows, groups are folded
MOST_COLUMNS_BESIDE = 3  # of a matrix with high rows, beside a figure
MOST_ROWS_APART = 4  # with more rows, those that agree are one
EN_DASH, PLUS_MINUS = "\N{EN DASH}", " \N{PLUS-MINUS SIGN}"
LIGHTEST, LEAST_SPAN = 0.15, 0.1  # place of the lowest level on the color scale; minimum range of levels
STATES = {  # state of a square -> what the key says of it
    "uncertain": "uncertain",
    "failed": "failed",
    "partial": "partly failed: some launches failed",
    "incomplete": "some launches not measured or not started",
    "missing": "not measured or not started",
    "skipped": "skipped: reason in the details of the cell",
    "": "range of rows that are within noise of each other",
}
NO_VALUE = {"failed", "missing", "skipped"}  # states
Position = tuple[tuple[str, ...], str, str]


@dataclass(frozen=True)
class Square:
    """One square. group: the last part names it. row, column: its place in the group. text: its number or mark.

    state: CSS classes, such as "failed". cells: ids of the cells behind it. note: the whole sentence on it. level:
    place on the color scale; None: no color. others: cells that it is compared with, for which a filter may keep it.
    beside: small text after the number. values: numbers behind it with the ends of their intervals, for rows that may
    agree with others.
    """

    group: tuple[str, ...]
    row: str
    column: str
    text: str
    state: str = ""
    cells: tuple[str, ...] = ()
    note: str = ""
    level: float | None = None
    others: tuple[str, ...] = ()
    beside: str = ""
    values: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True)
class Matrix:
    """Squares by group, row and column. A position without a square was not planned.

    label: for screen readers, unique on a page. notes: first lines of the key. states: meanings in addition to STATES.
    scale: levels of the lightest and darkest color; default: from the squares. kind: CSS class. most_open: rows up to
    which the matrix is shown in full. most_dense: rows up to which it has low rows; beyond, all groups are folded. If
    most_dense is 0, only the groups beyond `most_open` rows are folded. fold: text under which the whole matrix is
    folded. summary: returns the text of a folded group.
    """

    caption: str
    columns: tuple[str, ...]
    squares: tuple[Square, ...]
    label: str = "All cells by shape"
    notes: tuple[str, ...] = ()
    states: Mapping[str, str] = field(default_factory=dict)
    scale: tuple[float, float] | None = None
    kind: str = ""
    most_open: int = MOST_ROWS_OPEN
    most_dense: int = MOST_ROWS_DENSE
    fold: str = ""
    summary: Callable[[Collection[Square]], str] = lambda _: ""

    @cached_property
    def groups(self) -> dict[tuple[str, ...], dict[str, dict[str, Square]]]:
        """The squares by group, row and column."""
        found: dict = {}
        for square in self.squares:
            found.setdefault(square.group, {}).setdefault(square.row, {})[square.column] = square
        return found

    @property
    def num_rows(self) -> int:
        return sum(map(len, self.groups.values()))

    @cached_property
    def is_dense(self) -> bool:
        """Whether its rows are low, each with the name of its group."""
        return self.most_open < self.num_rows <= self.most_dense

    @property
    def is_narrow(self) -> bool:
        """Whether it fits beside a figure."""
        return self.is_dense or len(self.columns) <= MOST_COLUMNS_BESIDE

    @cached_property
    def open_and_folded(self) -> tuple[dict, dict]:
        """The groups of the table that is shown, and those that open one by one."""
        parts, num, has_more = ({}, {}), 0, self.num_rows > max(self.most_open, self.most_dense)
        for group, rows in self.groups.items():
            num += len(rows)
            parts[has_more and num > (0 if self.most_dense else self.most_open)][group] = rows
        return parts

    def included(self, places: Mapping[str, str]) -> dict[object, str]:
        """Return the slow nodes that columns, then rows (group, name), then other squares include as a whole.

        places: those of cells (`ReportData.places`).
        """
        known, found = [one for one in self.squares if NO_VALUE.isdisjoint(one.state.split())], {}
        for key_of in (lambda one: one.column, lambda one: (one.group, one.row), lambda one: one):
            texts = defaultdict(set)
            for square in known:
                texts[key_of(square)] |= {places.get(cell, "") for cell in square.cells}
            found |= {key: f"includes {min(of)}" for key, of in texts.items() if len(of) == 1 and min(of)}
            known = [square for square in known if key_of(square) not in found]
        return found

    def summary_of(self, rows: dict[str, dict[str, Square]]) -> str:
        return self.summary([square for row in rows.values() for square in row.values()])

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The levels with the lightest and the darkest color."""
        levels = [square.level for square in self.squares if square.level is not None]
        span = max(max(levels) - min(levels), LEAST_SPAN)
        return self.scale or (max(levels) - span / (1 - LIGHTEST), max(levels))

    def share(self, level: float) -> str:
        """Return the place of a level on the color scale; one beyond it has the color of its end."""
        low, high = self.ends
        return f"{min(max((level - low) / (high - low), 0.0), 1.0):.0%}"

    @property
    def key(self) -> list[tuple[str, str, str]]:
        """Return state, example and meaning for each state that has one and occurs."""
        words, found = {**self.states, **STATES, **self.states}, {}
        for square in self.squares:
            found |= dict.fromkeys(square.state.split(), "n" if any(map(str.isdigit, square.text)) else square.text)
        found |= {"": f"n{EN_DASH}n"} if any(one.values and EN_DASH in one.text for one in self.squares) else {}
        return [(state, found[state], text) for state, text in words.items() if state in found]


def shapes_caption(device: str) -> str:
    return f"Nodes × {ranks_word(device)} per node"


def shape_columns(shapes: Iterable[tuple[int, int]]) -> tuple[str, ...]:
    """Return the columns of shapes, that with the fewest ranks first."""
    return tuple(shape(*place) for place in sorted(set(shapes), key=lambda place: (place[0] * place[1], place)))


def by_workload_and_shape(cells: Iterable[Cell], names: Mapping[str, CellName]) -> dict[Position, tuple[str, ...]]:
    """Return the cells of each square: workloads, with other settings and stacks down, shapes across; all in order."""
    places, order = defaultdict(list), {}
    for cell in cells:
        name = names[cell.id].without("shape", *WITHIN_SQUARE)
        group = cell.benchmark, name.parts["subject"]
        order.setdefault(group, len(order))
        row = name.without("subject").say(*name.parts, always=())
        places[group, row, shape(*cell.shape)].append(cell.id)
    in_order = sorted(places, key=lambda place: order[place[0]])
    return {place: tuple(places[place]) for place in in_order}


def agreeing(squares: Iterable[Square], key: Callable, merge: Callable, least: int = 2) -> list[Square]:
    """Return squares with `least` or more rows as one if their keys, columns and states are equal and their values
    agree in each column. key: of a square of a row. merge: returns the square of those in a column."""
    rows, alike, found = defaultdict(list), defaultdict(list), []
    for square in squares:
        rows[square.group, square.row].append(square)
    for row in rows.values():
        others = alike[key(row[0]), tuple((one.column, one.state) for one in row)]
        together = next((of for of in others if all(map(_agree, zip(row, *of, strict=True)))), [])
        if not together:
            others.append(together)
            found.append(together)
        together.append(row)
    return [one for of in found for one in (map(merge, zip(*of, strict=True)) if len(of) >= least else chain(*of))]


def _agree(squares: tuple[Square, ...]) -> bool:
    """Return whether no two values differ by more than the interval of a difference."""
    pairs = combinations(sorted(of for square in squares for of in square.values), 2)
    is_near = ((high - low) ** 2 <= (end - low) ** 2 + (high - start) ** 2 for (low, _, end), (high, start, _) in pairs)
    return all(square.values for square in squares) and all(is_near)


def joint(squares: tuple[Square, ...], **shown: object) -> Square:
    """Return a square with the cells and values of all, and else the fields of the first one or those shown."""
    of_all = {name: tuple(chain(*(getattr(one, name) for one in squares))) for name in ("cells", "others", "values")}
    return replace(squares[0], **of_all, **shown)


def merged(squares: Iterable[Square], apart: set[str]) -> tuple[Square, ...]:
    """Return squares, of which rows that agree and differ in one part of their names are one, with the range of the
    numbers, unless there are at most MOST_ROWS_APART rows. apart: cells whose rows stay."""
    found = [one if apart.isdisjoint(one.cells) else replace(one, values=()) for one in squares]
    is_long = len({(one.group, one.row) for one in found}) > MOST_ROWS_APART
    for place in range(max(len(_parts(one)) for one in found)) if is_long else ():
        found = agreeing(found, lambda of, at=place: (of.group[:-1], *_parts(of)[:at], *_parts(of)[at + 1 :]), _range)
    return tuple(found)


def _parts(square: Square) -> list[str]:
    """Return the parts of a row's name, and a line break where the group ends."""
    return [*square.group[-1].split(SEPARATOR), "\n", *square.row.split(SEPARATOR)]


def _range(squares: tuple[Square, ...]) -> Square:
    ends = (end for one in squares for end in one.text.partition(PLUS_MINUS)[0].split(EN_DASH))
    low, *_, high = sorted(ends, key=lambda end: natural(end.replace(",", "")))
    text = high if natural(low) == natural(high) else f"{low.partition(' ')[0]}{EN_DASH}{high}"
    parts = (joined([*dict.fromkeys(of)]) for of in zip(*map(_parts, squares), strict=True))
    name, _, row = (of.strip(SEPARATOR) for of in SEPARATOR.join(parts).partition("\n"))
    group, note = (*squares[0].group[:-1], name), "\n".join(one.note for one in squares)
    return joint(squares, group=group, row=row, text=text, note=note)
