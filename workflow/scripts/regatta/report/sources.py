"""Which rows of which file of the results folder a statement of the report is made of, so that it can be looked up."""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from regatta.core.text import is_unknown
from regatta.store.tables import COLLECTED, TABLES

BY_CELL = (
    "scaling", "percentiles", "strategies", "memory", "collectives", "training_runs", "batch_norms", "launch_ranges",
)  # fmt: skip
# The columns that tell a row from the others, and how they name it. Rows of all other tables are numbered from 1.
NAMES = {
    **dict.fromkeys(BY_CELL, (("cell",), "{}")),
    "comparisons": (("cell", "reference"), "{} against {}"),
    "failures": (("cell", "repeat"), "{}, repeat {}"),
    "measurements": (("cell", "repeat"), "{}, repeat {}"),
}
ELSEWHERE = {"problems.json": "#left-out", "preflight": "#preflight"}


@dataclass(frozen=True)
class Trace:
    """Where the numbers of a statement stand. file: in the results folder. rows: their names; what: words in place of them."""

    file: str
    rows: tuple[str, ...] = ()
    what: str = ""

    @property
    def anchor(self) -> str:
        return anchor_of(self.file)


@dataclass(frozen=True)
class Finding:
    """A sentence, the anchor on the page where more of it stands, the name of what is there, and what it is made of."""

    text: str
    anchor: str
    name: str
    traces: tuple[Trace, ...] = ()


HEADERS = Trace("launches/*.jsonl", what="the first line of each")


def file_of(table: str) -> str:
    """Return the file of a table, tables/scaling.csv or measurements.csv; what is no table's name is a file already."""
    return f"tables/{table}.csv" if table in TABLES else f"{table}.csv" if table in COLLECTED else table


def anchor_of(file: str) -> str:
    """Return where on the page a file can be downloaded, or what stands in it is shown."""
    name = file.rpartition("/")[2].removesuffix(".csv")
    if name in (*TABLES, *COLLECTED):
        return f"#csv-{name}"
    return ELSEWHERE.get(file.partition("/")[0], "#provenance")


def of_cells(table: str, cells: Iterable[str | None]) -> Trace:
    """Return the rows of some cells, in this order, of a table with one row for each cell."""
    return Trace(file_of(table), tuple(dict.fromkeys(cell for cell in cells if not is_unknown(cell))))


def of_rows(table: str, rows: pd.DataFrame) -> Trace:
    """Return some rows of a table, as it was read and with what was added to it."""
    return Trace(file_of(table), tuple(row_names(table, rows)))


def joined(traces: Iterable[Trace]) -> tuple[Trace, ...]:
    """Return rows of the same file as one trace, files and rows in the order in which they come."""
    rows: dict[tuple[str, str], list[str]] = {}
    for trace in traces:
        rows.setdefault((trace.file, trace.what), []).extend(trace.rows)
    found = [Trace(file, tuple(dict.fromkeys(names)), what) for (file, what), names in rows.items()]
    return tuple(trace for trace in found if trace.rows or trace.what)


def row_number(index: int) -> str:
    """Return the name of a row by its index in a table as it was read: the first one below the heading is row 1."""
    return f"row {index + 1}"


def row_names(table: str, rows: pd.DataFrame) -> list[str]:
    """Return the name of each row: its cell, or its number below the heading where it has none."""
    if table not in NAMES:
        return [row_number(index) for index in rows.index]
    columns, words = NAMES[table]
    return [words.format(*values) for values in rows[list(columns)].itertuples(index=False)]
