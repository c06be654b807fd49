"""A simple CSV of times, read, and all tables of a campaign as one tidy CSV, written."""

import csv
import io
import re

import pandas as pd

from regatta.core.errors import nearest
from regatta.formats.base import (  # fmt: skip
    Options,
    Reading,
    Source,
    collective_parameters,
    parameters_of,
    quoted,
    refusal,
)
from regatta.formats.exporter import ResultsFolder
from regatta.store.tables import CELL, TEXT, WHOLE, to_csv

FORMAT = "csv"
MOST = 10**15
# Python alone also reads 1_0, and digits of any script.
NUMBER = re.compile(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
NEEDED = ("benchmark", "nodes", "gpus_per_node", "backend", "device", "seconds")
OF_BENCHMARK = {
    "train_step": ("model", "batch_size", "strategy"),
    "collective": ("operation", "message_bytes"),
}
OPTIONAL = {
    "train_step": ("bucket_cap_mb", "image_size", "context_length", "dtype", "optimizer"),
    "collective": ("dtype",),
}
WHOLE_COLUMNS = ("nodes", "gpus_per_node", "batch_size", "message_bytes", "image_size", "context_length")
STATISTIC = "the median of a launch, as the file gives it"
NAMES = {name for names in (*OF_BENCHMARK.values(), *OPTIONAL.values()) for name in names} | set(NEEDED)
# What a row of any table is of.
OF_ROW = {
    "cell": TEXT,
    **CELL,
    "version": WHOLE,
    "scaling": TEXT,
    "against": TEXT,
    "reference": TEXT,
    "rank": WHOLE,
    "repeat": WHOLE,
    "status": TEXT,
}
TIDY = {"table": TEXT, **OF_ROW, "quantity": TEXT, "value": TEXT}  # a value has all its digits: no type holds them all


def is_csv(text: str) -> bool:
    head = text.partition("\n")[0].strip().split(",")
    return {"benchmark", "seconds"} <= set(head)


def read_csv_text(text: str, name: str, options: Options) -> Source:
    """Read rows of one launch and cell each. The same cell in several rows is measured in as many launches."""
    if not text.endswith("\n"):
        raise refusal(
            name, text.count("\n") + 1, "the last line has no end, so it may be cut off", "a line end behind it"
        )
    reader = csv.reader(io.StringIO(text, newline=""))
    head = [column.strip() for column in next(reader)]
    for column in head:
        if column not in NAMES or head.count(column) > 1:
            raise refusal(
                name, 1, f"column {quoted(column)}", f"each of {', '.join(sorted(NAMES))} once.{nearest(column, NAMES)}"
            )
    if lacking := [column for column in NEEDED if column not in head]:
        raise refusal(name, 1, f"no column {', '.join(lacking)}", f"the columns {', '.join(NEEDED)}")
    readings, settings = [], set()
    try:
        for fields in reader:
            if any(field.strip() for field in fields):
                row = _row(head, fields, name, reader.line_num)
                settings.add((row["backend"], row["device"]))
                readings.append(_reading(row, name, reader.line_num))
    except csv.Error as error:
        raise refusal(name, reader.line_num, f"no CSV ({error})", f"{len(head)} fields in each line") from None
    if len(settings) != 1:
        raise refusal(name, 1, f"{len(settings)} pairs of backend and device", "one backend and device in each file")
    backend, device = settings.pop()
    return Source(FORMAT, STATISTIC, backend, device, tuple(readings), twice="launch")


def _row(head: list[str], fields: list[str], name: str, line: int) -> dict[str, str | None]:
    if len(fields) != len(head):
        raise refusal(name, line, f"{len(fields)} fields", f"{len(head)}, as many as the head has")
    row = {column: field.strip() or None for column, field in zip(head, fields, strict=True)}
    benchmark = row["benchmark"]
    if benchmark not in OF_BENCHMARK:
        raise refusal(name, line, f"benchmark {quoted(benchmark)}", f"one of {', '.join(OF_BENCHMARK)}")
    for column in (*NEEDED, *OF_BENCHMARK[benchmark]):
        if row.get(column) is None:
            raise refusal(name, line, f"no {column}", f"{column} in each row of {benchmark}")
    if row["device"] not in ("cpu", "cuda"):
        raise refusal(name, line, f"device {quoted(row['device'])}", "cpu or cuda")
    return row


def _reading(row: dict[str, str | None], name: str, line: int) -> Reading:
    benchmark = row["benchmark"]
    given = {c: row[c] for c in (*OF_BENCHMARK[benchmark], *OPTIONAL[benchmark]) if row.get(c) is not None}
    for column in WHOLE_COLUMNS:
        for place in (row, given):
            if column in place and place[column] is not None:
                place[column] = csv_number(place[column], column, name, line, int)
    if "bucket_cap_mb" in given:
        given["bucket_cap_mb"] = csv_number(given["bucket_cap_mb"], "bucket_cap_mb", name, line, float)
    seconds = csv_number(row["seconds"], "seconds", name, line, float)
    if benchmark == "collective":
        parameters = collective_parameters(given["operation"], given["message_bytes"], given.get("dtype", "fp32"))
    else:
        parameters = parameters_of(benchmark, **given)
    times = {"p50_s": seconds}
    return Reading(
        line, benchmark, parameters, row["nodes"], row["gpus_per_node"], times_s=times, printed={"seconds": seconds}
    )


def csv_number(text: str, column: str, name: str, line: int, kind: type) -> int | float:
    """Return a number above 0. Raises UserError for all else."""
    try:
        value = kind(text) if NUMBER.fullmatch(text) else -1
    except ValueError:
        value = -1
    if not 0 < value <= MOST:
        raise refusal(
            name, line, f"{column} {quoted(text)}", "a whole number above 0" if kind is int else "a number above 0"
        )
    return value


def tidy_table(folder: ResultsFolder) -> pd.DataFrame:
    """Return every number of measurements.csv and the tables of cells in a row of its own: of what, its name, its value.

    Tables without cells are left out, such as those of hosts: a row of theirs is of no cell.
    """
    versions = {cell["id"]: cell["spec"]["version"] for cell in folder.cells}
    parts = [_melted("measurements", folder.measurements, versions)]
    parts += [_melted(name, table, versions) for name, table in folder.tables.items() if "cell" in table]
    table = pd.concat([part for part in parts if len(part)], ignore_index=True).astype(TIDY)
    return table.assign(value=table["value"].str.removesuffix(".0"))


def _melted(name: str, table: pd.DataFrame, versions: dict[str, int]) -> pd.DataFrame:
    """versions: cell -> version of its benchmark, of the chosen cells."""
    own = table[table["cell"].isin(versions.keys())]
    own = own.assign(version=own["cell"].map(versions))
    keys = [column for column in OF_ROW if column in own.columns]
    numbers = [column for column in own.columns if column not in (*keys, "line") and _is_number(own[column])]
    own = own[[*keys, *numbers]].astype(dict.fromkeys(numbers, TEXT))  # with all digits
    long = own.melt(id_vars=keys, var_name="quantity", ignore_index=False).sort_index(kind="stable")
    return long[long["value"].notna()].assign(table=name).reindex(columns=list(TIDY))


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def tidy_csv(folder: ResultsFolder) -> str:
    return to_csv(tidy_table(folder))
