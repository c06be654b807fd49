"""Read tables of text that a format declares as data: title, columns with patterns, units and meanings, and facts.

A file has one or more runs, each with a title, a line of column names and rows. Lines that do not begin like a row are
ignored, and one that does must be a complete row, so that damage is never skipped.
"""

import itertools
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from regatta.core.errors import UserError
from regatta.core.matching import find_matches
from regatta.core.printed_numbers import NUMBER, parse_number
from regatta.core.text import plural, quoted
from regatta.core.units import convert
from regatta.formats.base import (
    Format,
    ImportedFile,
    Options,
    Reading,
    collective_parameters,
    lines_of,
    refusal,
    stated_shape,
    without_empty,
)

DECIMAL, WHOLE = r"\d{1,15}\.\d\d", r"\d{1,15}"
NOTHING = r"(?!)"  # pattern that matches no line
UNIT = r"(?:\s*\((?:us|MB/s|%)\))?"  # behind a column's name


@dataclass(frozen=True)
class ColumnLayout:
    """A column of numbers. meaning: `size` (in bytes), `iterations`, `rate` (size / rate is a time), a name of TIMES,
    `check` (`Fail`: a wrong result), `text` (no number), or nothing, if it is only kept.

    form: pattern of its values. A unit in it, behind the number, outranks that of the column. printed: its name in
    records, if it is another one. may_be_blank: rows may lack its value.
    """

    meaning: str = ""
    unit: str = ""
    form: str = DECIMAL
    printed: str = ""
    may_be_blank: bool = False

    @property
    def is_number(self) -> bool:
        return self.meaning not in ("check", "text")


SIZE, ITERATIONS = ColumnLayout("size", "B", WHOLE), ColumnLayout("iterations", "", WHOLE)
CHECK = ColumnLayout("check", form="Pass|Fail|-")
AGAIN = "'"  # after the name of a column that a table has a second time

LineMatches = list[tuple[int, re.Match]]  # lines that match a pattern: number from 1, and match


def find_lines(lines: list[str], patterns: dict[str, str]) -> dict[str, LineMatches]:
    """Return the lines that each pattern matches as a whole, with any blanks around it."""

    def whole(pattern: str) -> Callable:
        match_line = re.compile(rf"\s*(?:{pattern})\s*").fullmatch
        return lambda line: (match,) if (match := match_line(line)) else ()

    found = {name: [] for name in patterns}
    filled = ((number, line) for number, line in enumerate(lines, start=1) if line)
    for name, number, match in find_matches(filled, {name: whole(pattern) for name, pattern in patterns.items()}):
        found[name].append((number, match))
    return found


def find_facts(lines: list[str], patterns: dict[str, str]) -> dict[str, re.Match | None]:
    """Return the first line that matches each pattern; None without one."""
    return {name: found[0][1] if found else None for name, found in find_lines(lines, patterns).items()}


# Several runs in one file.


def starts_of_runs(heads: list[int], ends: list[int]) -> list[int]:
    """Return the first line of each run, from 0: the one after the end of the run before it, else its head.

    Lines between two runs belong to the later one: its command and versions are printed before its table. heads, ends:
    lines from 1, in order.
    """
    starts = [0]
    for before, head in itertools.pairwise(heads):
        end = ends[bisect_left(ends, head) - 1] if ends else 0
        starts.append(end if before < end < head else head - 1)
    return starts


def parts_of(lines: list[str], starts: list[int]) -> Iterator[list[str]]:
    """Yield the lines of each run, with blank lines for those before it, so that line numbers stay. starts: from 0.

    The first run has the lines before the first start, too.
    """
    bounds = [0, *starts[1:], len(lines)]
    for first, end in itertools.pairwise(bounds):
        yield [""] * first + lines[first:end] + ([""] if end < len(lines) else [])  # its last line is not truncated


def join_runs(runs: list[ImportedFile], name: str) -> ImportedFile:
    """Return the content of a file. Readings of different runs are never in one launch."""
    if len(runs) == 1:
        return runs[0]
    for run in runs:
        if run.device != runs[0].device:
            found = f"runs on {runs[0].device} and on {run.device}"
            raise refusal(name, run.readings[0].line, found, "one device per file")
    statistics = dict.fromkeys(run.statistic for run in runs)
    readings = tuple(
        replace(
            reading,
            run=number,
            backend=reading.backend or run.backend,
            environment=run.environment,
            statistic=run.statistic if len(statistics) > 1 else None,
        )
        for number, run in enumerate(runs)
        for reading in run.readings
    )
    notes = dict.fromkeys(note for run in runs for note in run.notes)
    notes = (f"{plural(len(runs), 'run')} in one file, each imported as separate launches", *notes)
    return replace(runs[0], statistic="; or ".join(statistics), readings=readings, notes=notes)


# A run.


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
    files of this program contain, if it is not the title. example, remedy: title, and advice on a row, for messages.

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
    remedy: str = ""
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


def table_format(table: TableLayout) -> Format:
    """Return the format of a table, recognized by its title in any line, or else by the pattern `recognized`."""
    mark = re.compile(table.recognized or rf"^[ \t]*(?:{table.title})", re.MULTILINE)
    return Format(
        *(table.name, table.contents, lambda text: mark.search(text) is not None, partial(_read, table)),
        counts_processes=table.counts_processes,
        begins=table.title,
    )


def _read(table: TableLayout, text: str, name: str, options: Options) -> ImportedFile:
    lines = lines_of(text)
    found = find_lines(lines, {"title": table.title, "end": table.end or NOTHING})
    if not found["title"]:
        titles = ((n, line) for n, line in enumerate(lines, 1) if re.search(table.recognized or table.title, line))
        number, line = next(titles, (1, lines[0]))
        raise refusal(name, number, f"found {quoted(line)}", table.example)
    starts = starts_of_runs(*([number for number, _ in found[name]] for name in ("title", "end")))
    return join_runs([_read_run(table, part, name, options) for part in parts_of(lines, starts)], name)


def _read_run(table: TableLayout, lines: list[str], name: str, options: Options) -> ImportedFile:
    ((line, title), *_) = find_lines(lines, {"title": table.title})["title"]
    run = TableRun(name, line, title, find_facts(lines, table.facts), lines, options)
    measured = (table.measured or partial(_stated, table))(run)
    head, rows = read_rows(table, run)
    kept, notes = without_empty((_reading(measured, table.program, row) for row in rows), name, head)
    notes = (*notes, *measured.notes)
    return ImportedFile(measured.statistic, measured.backend, measured.device, kept, notes, measured.environment)


def _stated(table: TableLayout, run: TableRun) -> Measured:
    """Return what the table states about every run."""
    nodes, notes = run.options.nodes, ()
    if table.num_ranks:
        notes = () if nodes else (f"{table.num_ranks} nodes with one process each are assumed",)
        shape = nodes or table.num_ranks, table.num_ranks // (nodes or table.num_ranks)
    else:
        shape = stated_shape(run.options, run.name, run.line)
    operation = table.operation.format(**{key: value.lower() for key, value in run.title.groupdict("").items()})
    return Measured(operation, shape, table.statistic, table.backend, table.device, notes=notes)


@dataclass(frozen=True)
class RowOfTable:
    """A row. columns, texts, numbers: by column name; of numbers, as printed and in SI units."""

    line: int
    columns: dict[str, ColumnLayout]
    texts: dict[str, str | None]
    numbers: dict[str, tuple[float, float]]


def read_rows(table: TableLayout, run: TableRun) -> tuple[int, list[RowOfTable]]:
    """Return the line of the column names, and the rows below it. Raises UserError for an incomplete or missing row."""
    head, columns = _columns(table, run)
    rows = list(_rows(table, run, head, columns))
    if not rows:
        raise refusal(run.name, len(run.lines), "no rows", f"rows of {', '.join(columns)}")
    return head, rows


def _columns(table: TableLayout, run: TableRun) -> tuple[int, dict[str, ColumnLayout]]:
    """Return the line of the column names, and the columns."""
    names = "|".join(map(re.escape, sorted(table.columns, key=len, reverse=True)))
    column = re.compile(rf"[\s#|]*({names}){UNIT}(?=\s|$)")
    for number, line in enumerate(run.lines[run.line :], start=run.line + 1):
        if not re.fullmatch(table.head, line.strip()):
            continue
        rest, columns, times = line, {}, Counter()
        while match := column.match(rest):
            columns[match[1] + AGAIN * times[match[1]]] = table.columns[match[1]]
            times[match[1]] += 1
            rest = rest[match.end() :]
        if rest.strip(" \t|") or not columns:
            found = f"unknown columns {quoted(rest.strip())} in {quoted(line)}"
            raise refusal(run.name, number, found, f"the column names of {table.contents}")
        return number, columns
    raise refusal(run.name, len(run.lines), "no line of column names", f"the column names of {table.contents}")


def _rows(table: TableLayout, run: TableRun, head: int, columns: dict[str, ColumnLayout]) -> Iterator[RowOfTable]:
    fields, last = "", [*columns.values()][-1]
    for index, column in enumerate(columns.values()):
        form = f"{table.between if index else ''}(?P<c{index}>{column.form})"
        fields += f"(?:{form})?" if column.may_be_blank else form
    pattern, begins = re.compile(table.edge + fields + table.edge, re.ASCII), re.compile(table.row)
    before, has_end = None, not table.needs_end
    for number, line in enumerate(run.lines[head:], start=head + 1):
        if table.end and re.fullmatch(table.end, line.strip()):
            has_end = True
            break
        if not begins.match(line) and not (table.needs_end and line.strip()):
            continue
        match = pattern.fullmatch(line)
        is_cut = number == len(run.lines) and last.form == WHOLE  # no line break after an integer
        if match is None or is_cut:
            names = ", ".join(name.removesuffix(AGAIN) for name in columns)
            want = f"a complete row of {names}{table.remedy}"
            raise refusal(run.name, number, f"incomplete row {quoted(line)}", want)
        texts = {name: match[f"c{index}"] for index, name in enumerate(columns)}
        filled = {name: text for name, text in texts.items() if columns[name].is_number and text is not None}
        try:
            row = RowOfTable(number, columns, texts, {name: _number(columns[name], filled[name]) for name in filled})
        except (ValueError, UserError) as error:
            raise refusal(run.name, number, f"row {quoted(line)}: {error}", "numbers in all columns") from None
        size = next((row.numbers[name][1] for name in filled if columns[name].meaning == "size"), None)
        if table.doubles and before is not None:
            _check_next(run, number, size, before)
        before = size
        yield row
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


def _reading(measured: Measured, program: str, row: RowOfTable) -> Reading:
    numbers = {name: number for name, (_, number) in row.numbers.items()}
    by_meaning = {row.columns[name].meaning: number for name, number in numbers.items()}
    size = int(by_meaning["size"]) * measured.size_factor if "size" in by_meaning else None
    if measured.check:
        measured.check(numbers, row.line)
    times = {meaning: number for meaning, number in by_meaning.items() if meaning.endswith("_s")}
    if size and by_meaning.get("rate"):
        times[measured.rate_time] = size * measured.rate_factor / by_meaning["rate"]
    iterations = by_meaning.get("iterations")
    kept = [name for name in numbers if row.columns[name].meaning != "size"]
    is_wrong = any(row.texts[name] == "Fail" for name, column in row.columns.items() if column.meaning == "check")
    failure = f"wrong result ({program}, Validation: Fail)" if is_wrong else None
    if not any(times.values()):
        failure = failure or "the printed value is 0.00"
    return Reading(
        row.line,
        "collective",
        collective_parameters(measured.operation, size, measured.dtype) | measured.parameters,
        *measured.shape,
        times,
        printed={row.columns[name].printed or name: row.numbers[name][0] for name in kept},
        num_iterations=measured.num_iterations if iterations is None else int(iterations),
        num_warmup=measured.num_warmup,
        failure=failure,
    )
