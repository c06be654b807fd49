"""Columns of the released benchmarks, which are frozen. Comparisons ignore those that were added."""

import csv
import io

from regatta.core.benchmarks import all_axes, result_columns
from regatta.store.csv_files import PUBLISHED_AXES, PUBLISHED_RESULTS

ADDED = {"import_s", "last_host", "last_host_lag_s", "last_host_ratio"}  # since the tables were frozen


def new_columns() -> set[str]:
    """Return the columns that were added: of axes and results, those that tables.py does not list as published."""
    results = {**result_columns("values"), **result_columns("parts_ns")}
    return (all_axes().keys() - set(PUBLISHED_AXES)) | (results.keys() - set(PUBLISHED_RESULTS)) | ADDED


def without_new_columns(text: str) -> str:
    """Return a CSV file without these columns, unchanged where it has none of them."""
    heads = text.partition("\n")[0].split(",")
    kept = [index for index, head in enumerate(heads) if head not in new_columns()]
    if len(kept) == len(heads):
        return text
    out = io.StringIO()
    rows = ([row[index] for index in kept] for row in csv.reader(io.StringIO(text)))
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()
