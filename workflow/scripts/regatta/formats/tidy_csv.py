"""CSV: a simple one of times (read), and the tidy one of all tables of a campaign (written, and read again).

A row of the tidy CSV is one number: `table`, what it describes, `quantity`, `value`. The import reads the times of the
table `measurements`, in which each ok row is a launch of its cell; the other tables are recomputed from them.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pandas as pd

from regatta.core.benchmarks import benchmark_names, load_benchmark
from regatta.core.errors import nearest
from regatta.core.text import plural, quoted
from regatta.formats.base import (
    TIMES,
    Format,
    ImportedFile,
    Options,
    Reading,
    collective_parameters,
    parameters_of,
    refusal,
)
from regatta.formats.results_folder import ResultsFolder
from regatta.store.csv_files import CELL, FLAG, REAL, TEXT, WHOLE, cell_columns, to_csv, unescape

MOST = 10**15
MOST_RESULTS = 50_000  # of one import: 0.7 GB of memory
# Of a type: the form of its fields, as Python also reads 1_0 and digits of any script; their value; a message.
TYPES = {
    FLAG: ("True|False", "True".__eq__, "True or False"),
    WHOLE: (r"\+?[0-9]{1,19}", int, "an integer of at least {least}"),
    REAL: (r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", float, "a number above 0"),
}
DEVICES = ("cpu", "cuda")
KINDS = {**CELL, "version": WHOLE, **dict.fromkeys((*TIMES, "seconds"), REAL)}
KINDS |= dict.fromkeys(("num_iterations", "warmup_iterations"), WHOLE)
STATISTIC = "median of each launch, from the file"
HAS = r"(?=(?:\w{{1,40}},){{0,40}}{}\b)"  # a column, among those that follow


def _has_columns(text: str, *columns: str) -> bool:
    return {*columns} <= set(text.partition("\n")[0].strip().split(","))


def _is_exported(text: str) -> bool:
    return _has_columns(text, "table", "quantity", "value")


def _read(text: str, name: str, options: Options) -> ImportedFile:
    if not text.endswith("\n"):
        found = "no newline at the end; the file may be truncated"
        raise refusal(name, text.count("\n") + 1, found, "a newline after the last row")
    return _read_exported(text, name, options.is_incomplete) if _is_exported(text) else _read_simple(text, name)


def _rows(
    text: str, name: str, needed: tuple[str, ...], known: set[str] | None
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line and fields of each row that is not blank. known: all columns that are allowed; None: any."""
    reader = csv.reader(io.StringIO(text, newline=""))
    head = [column.strip() for column in next(reader)]
    for column in head:
        if head.count(column) > 1 or (known is not None and column not in known):
            want = "each column once" if known is None else f"each of {', '.join(sorted(known))} once."
            raise refusal(name, 1, f"column {quoted(column)}", want + nearest(column, known or ()))
    if missing := [column for column in needed if column not in head]:
        raise refusal(name, 1, f"no column {', '.join(missing)}", f"the columns {', '.join(needed)}")
    try:
        for fields in reader:
            if not any(field.strip() for field in fields):
                continue
            if len(fields) != len(head):
                raise refusal(name, reader.line_num, f"{len(fields)} fields", f"{len(head)}, as in the header")
            yield reader.line_num, dict(zip(head, map(str.strip, fields), strict=True))
    except csv.Error as error:
        raise refusal(name, reader.line_num, f"invalid CSV ({error})", f"{len(head)} fields in each line") from None


def _value(text: str | None, column: str, name: str, line: int, least: int = 0) -> object:
    """Return a field as the kind of its column; None if it is empty, or if an older file has no such column.

    least: minimum of integers. Raises UserError.
    """
    kind = KINDS.get(column) or cell_columns().get(column, TEXT)
    if not text or kind == TEXT:
        return text or None
    form, convert, want = TYPES[kind]
    value = convert(text) if re.fullmatch(form, text) else None
    if value is None or (kind == WHOLE and value < least) or (kind == REAL and not 0 < value <= MOST):
        raise refusal(name, line, f"{column} {quoted(text)}", want.format(least=least))
    return value


# The simple CSV: a row for each launch of a cell.

NEEDED = ("benchmark", "nodes", "gpus_per_node", "backend", "device", "seconds")
OF_BENCHMARK = {"train_step": ("model", "batch_size", "strategy"), "collective": ("operation", "message_bytes")}
OPTIONAL = {
    "train_step": ("bucket_cap_mb", "image_size", "context_length", "dtype", "optimizer"),
    "collective": ("dtype",),
}
COLUMNS = {name for names in (*OF_BENCHMARK.values(), *OPTIONAL.values()) for name in names} | set(NEEDED)


def _read_simple(text: str, name: str) -> ImportedFile:
    """Read rows of one launch and cell each. The same cell in several rows is measured in as many launches."""
    readings, settings, notes = [], set(), {}
    cells: dict[tuple, tuple] = {}  # by all fields but the time: a cell may have thousands of rows
    for line, fields in _rows(text, name, NEEDED, COLUMNS):
        if len(readings) == MOST_RESULTS:
            raise refusal(name, line, f"more than {MOST_RESULTS:,} rows", "fewer; split the file")
        cell = tuple(value for column, value in fields.items() if column != "seconds")
        if (known := cells.get(cell)) and (seconds := _value(fields["seconds"], "seconds", name, line)):
            readings.append(Reading(line, *known, times_s={"p50_s": seconds}, printed={"seconds": seconds}))
            continue
        readings.append(reading := _simple_reading(fields, name, line))
        cells[cell] = reading.benchmark, reading.parameters, reading.nodes, reading.gpus_per_node
        settings.add((fields["backend"], fields["device"]))
        known = {"dtype": "fp32"} if reading.benchmark == "collective" else reading.parameters
        for column in OPTIONAL[reading.benchmark]:
            if not fields.get(column) and known[column] is not None:
                text = f"{column} not in the file; default of {reading.benchmark} assumed: {known[column]}"
                notes.setdefault(text, line)
    if not readings:
        raise refusal(name, 1, "no row below the header", "a row for each launch of a cell")
    if len(settings) != 1:
        raise refusal(name, 1, f"{len(settings)} pairs of backend and device", "one backend and device per file")
    notes = tuple(f"{text} (first in line {line})" for text, line in notes.items())
    return ImportedFile(STATISTIC, *settings.pop(), tuple(readings), notes, twice="launch")


def _simple_reading(row: dict[str, str], name: str, line: int) -> Reading:
    benchmark = row["benchmark"]
    if benchmark not in OF_BENCHMARK:
        raise refusal(name, line, f"benchmark {quoted(benchmark)}", f"one of {', '.join(OF_BENCHMARK)}")
    for column in (*NEEDED, *OF_BENCHMARK[benchmark]):
        if not row.get(column):
            raise refusal(name, line, f"no {column}", f"{column} in each row of {benchmark}")
    if row["device"] not in DEVICES:
        raise refusal(name, line, f"device {quoted(row['device'])}", "cpu or cuda (also for AMD GPUs)")
    columns = (*NEEDED, *OF_BENCHMARK[benchmark], *OPTIONAL[benchmark])
    values = {column: _value(row.get(column), column, name, line, least=1) for column in columns}
    given = {column: value for column, value in values.items() if column not in NEEDED and value is not None}
    if benchmark == "collective":
        parameters = collective_parameters(given["operation"], given["message_bytes"], given.get("dtype", "fp32"))
    else:
        parameters = parameters_of(benchmark, **given)
    seconds = values["seconds"]
    shape = values["nodes"], values["gpus_per_node"]
    return Reading(line, benchmark, parameters, *shape, times_s={"p50_s": seconds}, printed={"seconds": seconds})


# The tidy CSV, read.

FIELDS = ("nodes", "gpus_per_node", "stack", "backend", "device", "repeat", "status", "quantity", "value")
EXPORTED = ("table", "cell", "benchmark", *FIELDS)


@dataclass
class ExportedLaunch:
    """A launch of a cell in an exported file: its first row, and its numbers by quantity."""

    line: int
    row: dict[str, str]
    numbers: dict[str, float] = field(default_factory=dict)


def _read_exported(text: str, name: str, is_incomplete: bool) -> ImportedFile:
    """Return what the file contains about each launch. Raises UserError for one that is damaged or truncated."""
    launches, others, is_after = {}, set(), False
    for line, fields in _rows(text, name, EXPORTED, None):
        row = {column: unescape(value) for column, value in fields.items()}
        is_after = row["table"] != "measurements"
        if is_after or row["status"] != "ok":
            if not is_after:
                others.add((row["cell"], row["repeat"]))
            continue
        launch = launches.setdefault((row["cell"], row["repeat"]), ExportedLaunch(line, row))
        if row["quantity"] in launch.numbers:
            raise refusal(name, line, f"duplicate {row['quantity']} of a launch", "each number once per launch")
        launch.numbers[row["quantity"]] = _value(row["value"], row["quantity"], name, line)
    notes = ["only times are imported; excluded: memory, parts of an iteration, numerical errors"]
    if is_incomplete and not is_after and len(launches) > 1:
        launches.popitem()
        notes.append("last launch excluded (possibly truncated)")
    elif not launches or not is_after:
        want = "rows of further tables" if launches else "rows of the table measurements with status ok"
        raise refusal(name, text.count("\n"), "the file ends", f"{want}, as export_results.py writes them")
    readings = tuple(_exported_reading(launch, name) for launch in launches.values())
    _refuse_sweep(launches.values(), name)
    devices = {launch.row["device"] for launch in launches.values()}
    if len(devices) > 1 or not devices <= set(DEVICES):
        raise refusal(name, 1, f"device {quoted(', '.join(sorted(devices)))}", "cpu or cuda, one in all rows")
    if others:
        notes.append(f"{plural(len(others), 'launch', 'launches')} with a status other than ok excluded")
    return ImportedFile(STATISTIC, readings[0].backend, devices.pop(), readings, tuple(notes), twice="launch")


def _refuse_sweep(launches: Iterable[ExportedLaunch], name: str) -> None:
    """Raise UserError if several cells differ in nothing that the file has: nodes of a sweep would be pooled."""
    cells: dict[tuple, str] = {}
    for launch in launches:
        row = launch.row
        same = cells.setdefault(tuple(row.get(column) for column in (*cell_columns(), "version")), row["cell"])
        if same != row["cell"]:
            found = f"cells {quoted(same)} and {quoted(row['cell'])}, as of a sweep, which differ in no column"
            raise refusal(name, launch.line, found, "one node or pair (export it with --where hosts=NAME)")


def _exported_reading(launch: ExportedLaunch, name: str) -> Reading:
    row, line = launch.row, launch.line
    for column in EXPORTED:
        if not row[column]:
            raise refusal(name, line, f"no {column}", f"{column} in each row of the table measurements")
    benchmark, numbers = row["benchmark"], launch.numbers
    if benchmark not in benchmark_names():
        wanted = f"one of {', '.join(benchmark_names())}, or that of --benchmark FILE"
        raise refusal(name, line, f"benchmark {quoted(benchmark)}", wanted)
    shape = (_value(row[column], column, name, line, least=1) for column in ("nodes", "gpus_per_node"))
    parameters = load_benchmark(benchmark).parameters
    parameters = {key: _value(row.get(key), key, name, line) for key in parameters}
    times = {time: numbers[time] for time in TIMES if time in numbers}
    cell = {key: row[key] for key in ("stack", "backend")}
    cell["version"] = _value(row.get("version"), "version", name, line)
    counts = {"num_iterations": numbers.get("num_iterations"), "num_warmup": numbers.get("warmup_iterations")}
    return Reading(line, benchmark, parameters, *shape, times, **counts, **cell)


# The tidy CSV, written.

# Columns that identify a row of any table.
OF_ROW = {
    "cell": TEXT,
    **CELL,
    "version": WHOLE,
    **dict.fromkeys(("scaling", "against", "reference"), TEXT),
    **dict.fromkeys(("rank", "repeat"), WHOLE),
    "status": TEXT,
}
TIDY = {"table": TEXT, **OF_ROW, "quantity": TEXT, "value": TEXT}  # values keep all digits, which no single type does


def _all_columns() -> dict[str, str]:
    return TIDY | cell_columns()


def _write(folder: ResultsFolder) -> str:
    """Return each number of measurements.csv and of the tables of cells as a row: what it describes, name, value.

    Tables without cells are left out, such as those of hosts.
    """
    versions = {cell.id: cell.version for cell in folder.cells}
    parts = [_melted("measurements", folder.measurements, versions)]
    parts += [_melted(name, table, versions) for name, table in folder.tables.items() if "cell" in table]
    table = pd.concat([part for part in parts if len(part)], ignore_index=True).astype(_all_columns())
    return to_csv(table.assign(value=table["value"].str.removesuffix(".0")))


def _melted(name: str, table: pd.DataFrame, versions: dict[str, int]) -> pd.DataFrame:
    """Return the numbers of a table in long form. versions: selected cell -> version of its benchmark."""
    rows = table[table["cell"].isin(versions.keys())]
    rows = rows.assign(version=rows["cell"].map(versions))
    keys = [column for column in OF_ROW | cell_columns() if column in rows.columns]
    numbers = rows.drop(columns=[*keys, "line"], errors="ignore").select_dtypes("number").columns
    rows = rows[[*keys, *numbers]].astype(dict.fromkeys(numbers, TEXT))  # keeps all digits
    long = rows.melt(id_vars=keys, var_name="quantity", ignore_index=False).sort_index(kind="stable")
    return long[long["value"].notna()].assign(table=name).reindex(columns=list(_all_columns()))


CSV = Format(
    "csv",
    "CSV with the columns benchmark and seconds (or of export_results.py)",
    lambda text: _has_columns(text, "benchmark", "seconds") or _is_exported(text),
    _read,
    write=_write,
    begins=rf"\b(?:{HAS.format('benchmark')}{HAS.format('seconds')}|{HAS.format('table')}{HAS.format('quantity')})",
)
