"""Rows of tables as plain dictionaries: a data frame for each of a thousand small groups would take seconds."""

import pandas as pd


def plain_rows(table: pd.DataFrame, names: tuple[str, ...]) -> list[dict]:
    """Return these columns of each row; what is unknown is None."""
    columns = (table[name].astype(object).where(table[name].notna(), None).tolist() for name in names)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def grouped(rows: list[dict], names: tuple[str, ...]) -> dict[tuple, list[dict]]:
    """Return rows by their values of `names`, in the order in which these come first."""
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups
