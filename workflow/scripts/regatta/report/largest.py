"""Which cell speaks for the largest shape in a headline, and of how many it was chosen."""

import pandas as pd

from regatta.numbers import is_unknown, plural
from regatta.report.panels import SETTINGS, WHERE

# What candidates may differ in, and what they are called where it is that alone.
NOUNS = {
    "bucket_cap_mb": "bucket sizes",
    "strategy": "strategies",
    "stack": "stacks",
    "backend": "backends",
    "shape": "shapes",
}


def best_of_largest(rows: pd.DataFrame):
    """Return the fastest cell of the largest world size that was measured; of those with all their launches, if there are
    any: the median of fewer is the easier to be lucky with."""
    return max(candidates(rows).itertuples(), key=lambda row: row.throughput_samples_per_s)


def chosen_text(rows: pd.DataFrame) -> str:
    """Return of how many cells `best_of_largest` is the fastest, as `, the fastest of 2 bucket sizes,`; empty of a single one.

    The fastest of several medians looks faster than it is: noise helps to choose it.
    """
    chosen = candidates(rows)
    if len(chosen) < 2:
        return ""
    shapes = chosen["nodes"].astype(str) + "x" + chosen["gpus_per_node"].astype(str)
    told = chosen.assign(shape=shapes)
    varied = [
        name
        for name in ("bucket_cap_mb", "strategy", "shape", *WHERE, *SETTINGS)
        if told[name].nunique(dropna=False) > 1
    ]
    noun = NOUNS.get(varied[0], "cells") if len(varied) == 1 else "cells"
    is_part = len(chosen) < len(_of_largest(rows))
    text = f", the fastest of {len(chosen)} {noun}{' with all launches' if is_part else ''},"
    near = _not_told_apart(chosen)
    if near and noun == NOUNS["bucket_cap_mb"]:
        return f"{text} not told apart from {' and '.join(f'{row.bucket_cap_mb:g} MiB' for row in near)},"
    return f"{text} not told apart from the next," if near else text


def _not_told_apart(chosen: pd.DataFrame) -> list:
    """Return the cells whose spread reaches into that of the fastest. It is no test, as in tables/buckets.csv."""
    best, *others = sorted(chosen.itertuples(), key=lambda row: -row.throughput_samples_per_s)
    if is_unknown(best.step_high_s):
        return []
    return [row for row in others if not is_unknown(row.step_low_s) and row.step_low_s <= best.step_high_s]


def launches_text(row) -> str:
    """Return `n = 3`, or `n = 2 launches of 3 planned` where some are missing."""
    if row.num_launches >= row.num_planned:
        return f"n = {row.num_launches}"
    return f"n = {plural(row.num_launches, 'launch', 'launches')} of {row.num_planned} planned"


def _of_largest(rows: pd.DataFrame) -> pd.DataFrame:
    measured = rows[rows["step_s"].notna()]
    return measured[measured["world_size"] == measured["world_size"].max()]


def candidates(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of the largest world size of which the fastest is told."""
    largest = _of_largest(rows)
    whole = largest[largest["num_launches"] >= largest["num_planned"]]
    return whole if len(whole) else largest
