"""Series of a panel: points of cells."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """One cell in a panel. values: one per launch. reported: the table's number, which the line goes through.

    is_on_line: False for a second shape of the same size. cell: its id, so that the mark opens it; empty: none.
    ends: of the interval of the reported value. shape: of the cell, where places alone don't tell.
    """

    x: float
    values: tuple[float, ...]
    reported: float
    is_on_line: bool = True
    cell: str = ""
    ends: tuple[float, float] | None = None
    shape: str = ""


@dataclass(frozen=True)
class Series:
    """One line. hue: index of its color.

    is_context: drawn in gray behind the others, with one entry for all of them in the legend.
    """

    label: str
    points: tuple[Point, ...]
    hue: int = 0
    is_context: bool = False

    @property
    def cells(self) -> tuple[str, ...]:
        return tuple(point.cell for point in self.points if point.cell)
