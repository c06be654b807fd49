"""Names of what is compared: the axis of a comparison, its two sides, and the pairs."""

import json
from functools import partial

import pandas as pd

from regatta.core.benchmarks import all_axes
from regatta.core.names import SEPARATOR, cell_names, value_text
from regatta.core.text import size
from regatta.topics.base import plain_rows


def pair_text(rows: pd.DataFrame) -> str:
    """Return what is compared: `stack bound vs. contained`, `bucket size 1 MiB vs. 25 MiB`."""
    axis, sides = rows["axis"].iloc[0], (dict.fromkeys(rows[name]) for name in ("value", "reference_value"))
    word = "" if axis == "campaign" else f"{axis_label(axis)} "
    return word + " vs. ".join(" and ".join(axis_text(axis, value) for value in values) for values in sides)


def sides_text(rows: pd.DataFrame) -> tuple[str, str]:
    """Return the words for the reference and for what is compared with it: of two campaigns, base and test."""
    axis = rows["axis"].iloc[0]
    if axis == "campaign":
        return "base", "test"
    if len(rows[["value", "reference_value"]].drop_duplicates()) > 1:
        return "reference", "compared"
    return axis_text(axis, rows["reference_value"].iloc[0]), axis_text(axis, rows["value"].iloc[0])


def axis_label(axis: str) -> str:
    """Return the label of the axis of a comparison within a sentence."""
    label = all_axes()[axis].label if axis in all_axes() else axis.replace("_", " ")
    return label if label[:2].isupper() else label[:1].lower() + label[1:]


def axis_text(axis: str, value: str) -> str:
    """Return a value of the axis of a comparison, given as in comparisons.csv, with its unit."""
    known = all_axes().get(axis)
    if known is None or value == "None":
        return value
    if known.unit == "bytes":
        return size(int(value))
    if known.unit:
        return f"{value.removesuffix('.0')} {known.unit}"
    return value_text(known, value if known.type == "string" else json.loads(value))


def with_labels(rows: pd.DataFrame) -> pd.DataFrame:
    """Add `label`, the name of each row: the compared values if they differ between rows, and the cell."""
    if not len(rows):
        return rows.assign(label=[])
    axis = rows["axis"].iloc[0]
    names = pd.Series(
        [name.without(axis).brief for name in cell_names(plain_rows(rows, tuple(rows)))], index=rows.index
    )
    values, references = (rows[name].map(partial(axis_text, axis)) for name in ("value", "reference_value"))
    pairs = values + " vs. " + references
    if pairs.nunique() > 1:
        names = (values if references.nunique() == 1 else pairs) + SEPARATOR + names
    return rows.assign(label=names)
