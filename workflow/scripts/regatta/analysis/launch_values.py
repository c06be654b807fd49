"""The values of the ok launches of each cell, column by column.

Splitting a table of a hundred columns into five thousand cells takes pandas minutes; picking columns takes it a second.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd


class LaunchValues:
    """`of(cell, column)`: the known values, one for each ok launch that has one, in the order of the table."""

    def __init__(self, measurements: pd.DataFrame, columns: Iterable[str]) -> None:
        ok = measurements[(measurements["status"] == "ok").to_numpy()]
        self._rows = ok.groupby("cell").indices
        self._columns = {name: ok[name].to_numpy(dtype=float, na_value=np.nan) for name in columns}

    def cells(self) -> list[str]:
        return sorted(self._rows)

    def num_launches(self, cell: str) -> int:
        return len(self._rows.get(cell, ()))

    def of(self, cell: str, column: str) -> list[float]:
        return known(self.with_gaps(cell, column)).tolist()

    def with_gaps(self, cell: str, column: str) -> np.ndarray:
        """Return a value for each ok launch, NaN where unknown, so that columns can be joined launch by launch."""
        return self._columns[column][self._rows.get(cell, np.array([], dtype=int))]


def known(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]
