"""Values of the data block: rounded numbers, distinct texts by index, columns of a table as lists."""

import math

import pandas as pd

from regatta.core.text import is_unknown


class Texts:
    """Distinct texts in the order of their first use. A column of texts is a list of their indices."""

    def __init__(self) -> None:
        self._indices: dict[str, int] = {}

    def index(self, text: object) -> int | None:
        return None if is_unknown(text) else self._indices.setdefault(str(text), len(self._indices))

    @property
    def all(self) -> list[str]:
        return list(self._indices)


def rounded(value: float | None) -> float | int | None:
    """Return a number with six significant digits, an integer where it is one; None if unknown or not finite."""
    if is_unknown(value) or not math.isfinite(value):
        return None
    number = float(f"{value:.6g}")
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def column_values(table: pd.DataFrame, column: str) -> list:
    """Return a column; what is unknown is None."""
    return table[column].astype(object).where(table[column].notna(), None).tolist()


def printable(text: str, limit: int = 20_000) -> str:
    """Return a text without control characters and lone surrogates; a longer one is cut, with a note."""
    shown = text[:limit]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)
    return shown if len(text) <= limit else f"{shown} [cut: the first {limit:,} of {len(text):,} characters]"
