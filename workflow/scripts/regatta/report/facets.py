"""Which cells share a panel, and what their lines are called there, where cells differ in several words."""

import math
from collections.abc import Iterator

import pandas as pd

from regatta.report.plotting import MAX_SERIES

MAX_LINES = 12  # of names that find room beside a panel


def facets(rows: pd.DataFrame, words: list[str], splits: list[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield (title, rows) for each panel, with a column `label`: what differs within the panel, the first of `words` always.

    words: columns of text that tell lines apart. splits: those of them by which rows are divided, one after the other,
    until the names of a panel find room beside it; a panel's title has what its lines share of these.
    """
    labels = _labels(rows, words)
    names = list(dict.fromkeys(labels))
    if len(names) > MAX_SERIES or sum(name.count("\n") + 1 for name in names) > MAX_LINES:
        left = [column for column in splits if rows[column].nunique() > 1]
        if left:
            for _, part in rows.groupby(left[0], sort=False):
                yield from facets(part, words, splits)
            return
    title = ", ".join(rows[column].iloc[0] for column in splits if rows[column].nunique() == 1)
    num = math.ceil(len(names) / MAX_SERIES)
    for index in range(num):
        chosen = labels.isin(names[index * MAX_SERIES :][:MAX_SERIES])
        count = "" if num == 1 else f" ({index + 1} of {num})"
        yield title + count, rows[chosen].assign(label=labels[chosen])


def _labels(rows: pd.DataFrame, words: list[str]) -> pd.Series:
    """Return names of two lines at most: the first two words above, the others below."""
    told = [column for column in words if column == words[0] or rows[column].nunique() > 1]
    above = [column for column in told if column in words[:2]]
    below = [column for column in told if column not in above]
    texts = []
    for row in rows.to_dict("records"):
        lines = [" ".join(row[column] for column in above), " ".join(row[column] for column in below)]
        texts.append("\n".join(line for line in lines if line))
    return pd.Series(texts, index=rows.index, dtype=object)
