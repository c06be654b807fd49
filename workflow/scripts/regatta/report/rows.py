"""Rows of a wide table, of which a figure or a table on the page reads a few columns."""

import pandas as pd


class Row:
    """One row; its columns are attributes, as in a row of DataFrame.itertuples."""

    __slots__ = ("_columns", "_place")

    def __init__(self, columns: "_Columns", place: int) -> None:
        self._columns, self._place = columns, place

    def __getattr__(self, name: str) -> object:
        try:
            return self._columns[name][self._place]
        except KeyError:
            raise AttributeError(f"the table has no column {name}") from None


class _Columns(dict):
    """The values of each column, read at its first use."""

    def __init__(self, table: pd.DataFrame) -> None:
        super().__init__()
        self.table = table

    def __missing__(self, name: str) -> list:
        self[name] = self.table[name].to_numpy(dtype=object).tolist()  # tolist of a string column is slow
        return self[name]


def table_rows(table: pd.DataFrame) -> list[Row]:
    """Return the rows of a table. DataFrame.itertuples reads all columns, which takes milliseconds for each table."""
    columns = _Columns(table)
    return [Row(columns, place) for place in range(len(table))]
