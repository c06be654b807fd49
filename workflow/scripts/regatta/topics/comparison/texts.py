"""Words of comparisons, wherever they are shown: texts of rows, and names of what is compared."""

import json
from functools import partial

import pandas as pd

from regatta.core.benchmarks import all_axes
from regatta.core.names import SEPARATOR, cell_names, value_text
from regatta.core.text import is_unknown, size, with_minus_signs
from regatta.core.verdicts import margins_text, verdict_text
from regatta.report.findings import percent_number
from regatta.store.csv_files import plain_rows
from regatta.tables.pairs import RATIO, num_within

COMPARED = "Times: primary time of each benchmark, such as pipelined steps and calls."


def benchmark_words(name: str) -> str:
    """Return what a benchmark measures: `train steps`."""
    return f"{name.replace('_', ' ')}s"


def row_text(row: object) -> str:
    """Return the result on a row: `slower: ratio 1.100 [1.080, 1.120], n = 6`."""
    return f"{verdict_text(row)}: ratio {interval_text(row)}, n = {launches_text(row)}"


def interval_text(row: object) -> str:
    """Return a ratio with its interval, `1.021 [1.018, 1.024]`, or its range, `1.021 (1.010 to 1.030)`."""
    return RATIO.cell(row) if is_unknown(row.time_low_ratio) else f"{RATIO.cell(row)} {RATIO.ends(row)}"


def launches_text(row: object) -> str:
    """Return n: launches of the cell and of its reference, as one number if they are equal."""
    reference, other = row.num_reference_launches, row.num_launches
    return str(other) if reference == other else f"{other} vs. {reference}"


def difference_text(ratio: float) -> str:
    """Return a ratio of times as a signed difference in percent: +2.1, −50."""
    number = percent_number(ratio - 1)
    return with_minus_signs(number if number == "0.0" or number.startswith("-") else f"+{number}")


def within_texts(judged: pd.DataFrame) -> list[str]:
    """Return the same in words: `2,470 slower within the margin`."""
    return [f"{num:,} {word} within the margin" for word, num in num_within(judged).items() if num]


def is_equal(judged: pd.DataFrame) -> bool:
    """Return whether all pairs are equivalent, and no more than half differ significantly."""
    return bool((judged["verdict"] == "equivalent").all()) and 2 * sum(num_within(judged).values()) <= len(judged)


def margin_text(judged: pd.DataFrame) -> str:
    """Return each margin and its source: `3.2 % (noise floor of 9 A/A pairs), 5 % (default)`."""
    margins = judged[["margin_ratio", "margin_source"]].drop_duplicates().itertuples(index=False)
    return ", ".join(f"{margins_text([ratio])} ({source})" for ratio, source in margins)


# Names of what is compared: the axis, its two sides, and the pairs.


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
    """Add `label`, the name of each row: its result, the compared values if they differ between rows, and the cell."""
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
    return rows.assign(label=result_texts(rows) + names)


def result_texts(rows: pd.DataFrame) -> pd.Series:
    """Return the beginning of the name of each row: of a result, its heading."""
    return rows["result_label"].map(lambda label: "" if is_unknown(label) else f"{label}{SEPARATOR}")
