"""The CSV that export_results.py writes, read again: each ok row of measurements.csv is a launch of its cell.

A row of the file is one number: `table`, what it is of, `quantity`, `value`. Read are the times of the table
`measurements`; the other tables are recomputed from them.
"""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from regatta.core.benchmarks import benchmark_names, load_benchmark
from regatta.core.text import plural
from regatta.formats.base import TIMES, Reading, Source, quoted, refusal
from regatta.formats.tidy_csv import FORMAT, STATISTIC, csv_number
from regatta.store.tables import CELL, FLAG, REAL, TEXT, WHOLE

NEEDED = ("table", "cell", "benchmark", "nodes", "gpus_per_node", "stack", "backend", "device", "repeat", "status",
          "quantity", "value")  # fmt: skip
KINDS = {**CELL, "version": WHOLE, **dict.fromkeys(TIMES, REAL), "num_iterations": WHOLE, "warmup_iterations": WHOLE}
TIMES_ALONE = "only times are taken over: no memory, no parts of an iteration, no errors of results"


@dataclass
class Launch:
    """A launch of a cell: the first row of it, and its numbers by quantity."""

    line: int
    row: dict[str, str]
    numbers: dict[str, float] = field(default_factory=dict)


def is_exported_csv(text: str) -> bool:
    return {"table", "quantity", "value"} <= set(text.partition("\n")[0].strip().split(","))


def read_exported_csv(text: str, name: str) -> Source:
    """Return what the file says of each launch. Raises UserError for one that is damaged or cut off."""
    num_lines = text.count("\n")
    if not text.endswith("\n"):
        raise refusal(name, num_lines + 1, "the last line has no end, so it may be cut off", "a line end behind it")
    launches, others, is_behind = {}, set(), False
    for line, row in _rows(text, name):
        is_behind = row["table"] != "measurements"
        if is_behind or row["status"] != "ok":
            others |= set() if is_behind else {(row["cell"], row["repeat"])}
            continue
        launch = launches.setdefault((row["cell"], row["repeat"]), Launch(line, row))
        if row["quantity"] in launch.numbers:
            raise refusal(name, line, f"{row['quantity']} of a launch for the second time", "each number once")
        launch.numbers[row["quantity"]] = _value(row["value"], row["quantity"], name, line)
    if not launches or not is_behind:
        want = "rows of other tables behind them" if launches else "rows of the table measurements with status ok"
        raise refusal(name, num_lines, "the file ends", f"{want}, as export_results.py writes them")
    readings = tuple(_reading(launch, name) for launch in launches.values())
    devices = {launch.row["device"] for launch in launches.values()}
    if len(devices) > 1 or not devices <= {"cpu", "cuda"}:
        raise refusal(name, 1, f"device {quoted(', '.join(sorted(devices)))}", "cpu or cuda, one in all rows")
    notes = [TIMES_ALONE]
    if others:
        notes.append(f"{plural(len(others), 'launch', 'launches')} whose status is not ok left out")
    return Source(FORMAT, STATISTIC, readings[0].backend, devices.pop(), readings, tuple(notes), twice="launch")


def _rows(text: str, name: str) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(io.StringIO(text, newline=""))
    head = [column.strip() for column in next(reader)]
    if lacking := [column for column in NEEDED if column not in head]:
        raise refusal(name, 1, f"no column {', '.join(lacking)}", "the columns that export_results.py writes")
    if len(set(head)) < len(head):
        raise refusal(name, 1, "a duplicate column", "each column once")
    try:
        for fields in reader:
            if not any(field.strip() for field in fields):
                continue
            if len(fields) != len(head):
                raise refusal(name, reader.line_num, f"{len(fields)} fields", f"{len(head)}, as many as the head has")
            yield reader.line_num, dict(zip(head, map(str.strip, fields), strict=True))
    except csv.Error as error:
        raise refusal(name, reader.line_num, f"no CSV ({error})", f"{len(head)} fields in each line") from None


def _reading(launch: Launch, name: str) -> Reading:
    row, line = launch.row, launch.line
    for column in NEEDED:
        if not row[column]:
            raise refusal(name, line, f"no {column}", f"{column} in each row of the table measurements")
    benchmark, numbers = row["benchmark"], launch.numbers
    if benchmark not in benchmark_names():
        raise refusal(name, line, f"benchmark {quoted(benchmark)}", f"one of {', '.join(benchmark_names())}")
    shape = (csv_number(row[column], column, name, line, int) for column in ("nodes", "gpus_per_node"))
    parameters = load_benchmark(benchmark).parameters
    return Reading(
        line, benchmark, {key: _value(row.get(key), key, name, line) for key in parameters}, *shape,
        times_s={time: numbers[time] for time in TIMES if time in numbers},
        num_iterations=numbers.get("num_iterations"), num_warmup=numbers.get("warmup_iterations"),
        stack=row["stack"], backend=row["backend"], version=_value(row.get("version"), "version", name, line),
    )  # fmt: skip


def _value(text: str | None, column: str, name: str, line: int) -> object:
    """Return a field as the kind of its column. None where it is empty, and where an older file lacks the column."""
    kind = KINDS.get(column, TEXT)
    if not text or kind == TEXT:
        return text or None
    if kind == FLAG:
        if text not in ("True", "False"):
            raise refusal(name, line, f"{column} {quoted(text)}", "True or False")
        return text == "True"
    if kind == WHOLE:
        if not re.fullmatch("[0-9]{1,19}", text):
            raise refusal(name, line, f"{column} {quoted(text)}", "a whole number of 0 or more")
        return int(text)
    value = csv_number(text, column, name, line, float)
    return int(value) if value.is_integer() else value
