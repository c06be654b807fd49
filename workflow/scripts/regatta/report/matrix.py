"""A matrix: one number or state for each row and shape, as an HTML table that any page can show."""

from dataclasses import dataclass

NUM_LEVELS = 20  # steps of the color scale; style.css has a class for each


@dataclass(frozen=True)
class Square:
    """One square. text: its number or mark. level: place on the color scale, 0 to 1; None: no color.

    side: "above" or "below" the middle of a diverging scale, whose colors differ; empty for a sequential scale.
    state: CSS class, such as "failed". cells: ids of the cells behind it. note: the whole sentence on it.
    """

    text: str
    level: float | None = None
    state: str = ""
    cells: tuple[str, ...] = ()
    note: str = ""
    side: str = ""

    @property
    def classes(self) -> str:
        """Return the CSS classes; a level beyond the scale has the color of its end."""
        step = "" if self.level is None else f"l{round(NUM_LEVELS * min(max(self.level, 0.0), 1.0))}"
        return " ".join(filter(None, (self.state, self.side, step)))


@dataclass(frozen=True)
class Row:
    """One row. squares: one for each column of its matrix, None where nothing was planned."""

    name: str
    squares: tuple[Square | None, ...]


@dataclass(frozen=True)
class Group:
    """Rows of one subject. summary: what a folded group shows."""

    name: str
    rows: tuple[Row, ...]
    summary: str = ""


@dataclass(frozen=True)
class Matrix:
    """Squares by row and column. is_folded: groups open one by one. label: for screen readers, unique on a page."""

    caption: str
    columns: tuple[str, ...]
    groups: tuple[Group, ...]
    is_folded: bool = False
    label: str = "All cells"
