"""Read tables of text that a format declares as data: title, columns with patterns, units and meanings, and facts.

A file has one or more runs, each with a title, a line of column names and rows. Lines that do not begin like a row are
ignored, and one that does must be a complete row, so that damage is never skipped.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from regatta.core.errors import UserError
from regatta.core.units import NUMBER, convert, parse_number
from regatta.formats.base import (
    Format,
    ImportedFile,
    Options,
    Reading,
    collective_parameters,
    lines_of,
    quoted,
    refusal,
    without_empty,
)
from regatta.formats.runs import find_lines, join_runs, parts_of

DECIMAL, WHOLE = r"\d{1,15}\.\d\d", r"\d{1,15}"
NOTHING = r"(?!)"  # pattern that matches no line
UNIT = r"(?:\s*\((?:us|MB/s|%)\))?"  # behind a column's name


@dataclass(frozen=True)
class ColumnLayout:
    """A column of numbers. meaning: `size` (in bytes), `iterations`, `rate` (size / rate is a time), a name of TIMES,
    `check` (`Fail`: a wrong result), or nothing, if it is only kept.

    form: pattern of its values. A unit in it, behind the number, outranks that of the column. printed: its name in
    records, if it is another one.
    """

    meaning: str = ""
    unit: str = ""
    form: str = DECIMAL
    printed: str = ""


SIZE, ITERATIONS = ColumnLayout("size", "B", WHOLE), ColumnLayout("iterations", "", WHOLE)
CHECK = ColumnLayout("check", form="Pass|Fail|-")


@dataclass(frozen=True)
class TableRun:
    """A run of a file. line: of its title; facts: name -> the first line of the run that matches; None without one."""

    name: str
    line: int
    title: re.Match
    facts: dict[str, re.Match | None]
    lines: list[str]
    options: Options


@dataclass(frozen=True)
class Measured:
    """What a run measured. The message is size_factor x size; a time is rate_factor x size / rate, named rate_time.

    parameters: those that the format states beside size and data type. check: raises for a row with contradictory
    numbers, given their values by column in SI units and the line.
    """

    operation: str
    shape: tuple[int, int]
    statistic: str
    backend: str
    device: str
    dtype: str | None = None
    size_factor: int = 1
    rate_factor: float = 1.0
    rate_time: str = "window_step_s"
    num_iterations: int | None = None
    num_warmup: int | None = None
    parameters: dict = field(default_factory=dict)
    environment: dict = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    check: Callable[[dict, int], None] | None = None


@dataclass(frozen=True)
class TableLayout:
    """A format, as data. Patterns of lines match a whole line without the blanks around it.

    title: first line of a run; its groups have names. head: the line of column names, of which a run has some of
    `columns`. row: how a row begins. edge, between: what stands around and between its values. end: the last line of a
    run, if it has one. needs_end: a run without it is truncated, and every line before it must be a row. doubles: sizes
    double from row to row, so that a missing row is noticed. facts: see find_facts. recognized: pattern that only
    files of this program contain, if it is not the title. example: title for a message.

    Either `measured` returns what a run measured, or the fields below it state it. operation: template with the groups
    of the title in lower case. num_ranks: of every run; 0 if the user states the shape.
    """

    name: str
    contents: str
    title: str
    head: str
    columns: dict[str, ColumnLayout]
    example: str = "the title of the table"
    row: str = r"\s*\d"
    edge: str = r"\s*"
    between: str = r"\s+"
    end: str = ""
    needs_end: bool = False
    doubles: bool = True
    facts: dict[str, str] = field(default_factory=dict)
    recognized: str = ""
    program: str = ""
    measured: Callable[[TableRun], Measured] | None = None
    operation: str = ""
    statistic: str = "mean over iterations; no range"
    backend: str = "nccl"
    device: str = "cuda"
    num_ranks: int = 0
    counts_processes: bool = False


Numbers = dict[str, tuple[float, float]]  # by column: as printed, and in SI units


def table_format(table: TableLayout) -> Format:
    """Return the format of a table, recognized by its title in any line, or else by the pattern `recognized`."""
    mark = re.compile(table.recognized or rf"^[ \t]*(?:{table.title})", re.MULTILINE)
    return Format(
        *(table.name, table.contents, lambda text: mark.search(text) is not None, partial(_read, table)),
        counts_processes=table.counts_processes,
    )


def _read(table: TableLayout, text: str, name: str, options: Options) -> ImportedFile:
    lines = lines_of(text)
    found = find_lines(lines, {"title": table.title, "end": table.end or NOTHING})
    if not found["title"]:
        titles = ((n, line) for n, line in enumerate(lines, 1) if re.search(table.recognized or table.title, line))
        number, line = next(titles, (1, lines[0]))
        raise refusal(name, number, f"found {quoted(line)}", table.example)
    # Lines between the end of a run and the next title belong to the latter.
    ends = [number for number, _ in found["end"]]
    starts = [max((end for end in ends if end < title), default=title - 1) for title, _ in found["title"]]
    return join_runs([_read_run(table, part, name, options) for part in parts_of(lines, starts)], name)


def _read_run(table: TableLayout, lines: list[str], name: str, options: Options) -> ImportedFile:
    ((line, title), *_) = find_lines(lines, {"title": table.title})["title"]
    run = TableRun(name, line, title, find_facts(lines, table.facts), lines, options)
    measured = (table.measured or partial(_stated, table))(run)
    head, columns = _columns(table, run)
    rows = list(_rows(table, run, head, columns))
    if not rows:
        raise refusal(name, len(lines), "no rows", f"rows of {', '.join(columns)}")
    kept, notes = without_empty((_reading(table, measured, *row) for row in rows), name, head)
    notes = (*notes, *measured.notes)
    return ImportedFile(measured.statistic, measured.backend, measured.device, kept, notes, measured.environment)


def find_facts(lines: list[str], patterns: dict[str, str]) -> dict[str, re.Match | None]:
    """Return the first line that matches each pattern; None without one."""
    return {name: found[0][1] if found else None for name, found in find_lines(lines, patterns).items()}


def _stated(table: TableLayout, run: TableRun) -> Measured:
    """Return what the table states about every run."""
    nodes, gpus_per_node, notes = run.options.nodes, run.options.gpus_per_node, ()
    if table.num_ranks:
        notes = () if nodes else (f"{table.num_ranks} nodes with one process each are assumed",)
        nodes = nodes or table.num_ranks
        gpus_per_node = table.num_ranks // nodes
    if None in (nodes, gpus_per_node):
        raise refusal(run.name, run.line, "no number of ranks", "--nodes and --gpus-per-node")
    operation = table.operation.format(**{key: value.lower() for key, value in run.title.groupdict("").items()})
    return Measured(operation, (nodes, gpus_per_node), table.statistic, table.backend, table.device, notes=notes)


def _columns(table: TableLayout, run: TableRun) -> tuple[int, list[str]]:
    """Return the line of the column names, and the names."""
    names = "|".join(map(re.escape, sorted(table.columns, key=len, reverse=True)))
    column = re.compile(rf"[\s#|]*({names}){UNIT}(?=\s|$)")
    for number, line in enumerate(run.lines[run.line :], start=run.line + 1):
        if not re.fullmatch(table.head, line.strip()):
            continue
        rest, columns = line, []
        while match := column.match(rest):
            columns.append(match[1])
            rest = rest[match.end() :]
        if rest.strip(" \t|") or not columns:
            found = f"unknown columns {quoted(rest.strip())} in {quoted(line)}"
            raise refusal(run.name, number, found, f"the column names of {table.contents}")
        return number, columns
    raise refusal(run.name, len(run.lines), "no line of column names", f"the column names of {table.contents}")


def _rows(
    table: TableLayout, run: TableRun, head: int, columns: list[str]
) -> Iterator[tuple[int, dict[str, str], Numbers]]:
    """Yield line, texts and numbers of each row by column. Raises UserError for an incomplete or missing row."""
    forms = [table.columns[column].form for column in columns]
    names = [f"c{index}" for index in range(len(columns))]
    fields = table.between.join(f"(?P<{name}>{form})" for name, form in zip(names, forms, strict=True))
    pattern, begins = re.compile(table.edge + fields + table.edge, re.ASCII), re.compile(table.row)
    before, has_end = None, not table.needs_end
    for number, line in enumerate(run.lines[head:], start=head + 1):
        if table.end and re.fullmatch(table.end, line.strip()):
            has_end = True
            break
        if not begins.match(line) and not (table.needs_end and line.strip()):
            continue
        match = pattern.fullmatch(line)
        is_cut = number == len(run.lines) and forms[-1] == WHOLE  # no line break after an integer
        if match is None or is_cut:
            want = f"a complete row of {', '.join(columns)}"
            raise refusal(run.name, number, f"incomplete row {quoted(line)}", want)
        row = {column: match[name] for column, name in zip(columns, names, strict=True)}
        try:
            numbers = {c: _number(table.columns[c], row[c]) for c in columns if table.columns[c].meaning != "check"}
        except (ValueError, UserError) as error:
            raise refusal(run.name, number, f"row {quoted(line)}: {error}", "numbers in all columns") from None
        size = next((numbers[c][1] for c in columns if table.columns[c].meaning == "size"), None)
        if table.doubles and before is not None:
            _check_next(run, number, size, before)
        before = size
        yield number, row, numbers
    if not has_end:
        raise refusal(run.name, len(run.lines), "the table has no end", "the whole output")


def _check_next(run: TableRun, line: int, size: float, before: float) -> None:
    expected = max(1, 2 * before)
    if size != expected and not (run.options.is_incomplete and size > before):
        raise refusal(run.name, line, f"size {size:.0f} after {before:.0f}", f"{expected:.0f}, as sizes double")


def _number(column: ColumnLayout, text: str) -> tuple[float, float]:
    """Return a number as it is printed, and in SI units."""
    match = NUMBER.match(text)
    number = parse_number(match[0])
    return number, convert(number, text[match.end() :] or column.unit)


def _reading(table: TableLayout, measured: Measured, line: int, row: dict[str, str], both: Numbers) -> Reading:
    columns = {name: table.columns[name] for name in row}
    numbers = {name: number for name, (_, number) in both.items()}
    by_meaning = {columns[name].meaning: number for name, number in numbers.items()}
    size = int(by_meaning["size"]) * measured.size_factor if "size" in by_meaning else None
    if measured.check:
        measured.check(numbers, line)
    times = {meaning: number for meaning, number in by_meaning.items() if meaning.endswith("_s")}
    if size and by_meaning.get("rate"):
        times[measured.rate_time] = size * measured.rate_factor / by_meaning["rate"]
    iterations = by_meaning.get("iterations")
    kept = [name for name in both if columns[name].meaning != "size"]
    printed = {columns[name].printed or name: both[name][0] for name in kept}
    is_wrong = any(row[name] == "Fail" for name, column in columns.items() if column.meaning == "check")
    failure = f"wrong result ({table.program}, Validation: Fail)" if is_wrong else None
    if not any(times.values()):
        failure = failure or "the printed value is 0.00"
    return Reading(
        line,
        "collective",
        collective_parameters(measured.operation, size, measured.dtype) | measured.parameters,
        *measured.shape,
        times,
        printed,
        num_iterations=measured.num_iterations if iterations is None else int(iterations),
        num_warmup=measured.num_warmup,
        failure=failure,
    )
