"""Status and efficiency of all cells: workloads and stacks down, shapes across.

A benchmark without a known number shows how many of its measurements are ok.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from regatta.core.names import CellName
from regatta.core.text import is_unknown, plural, ranks_word, status_text, three
from regatta.kit.columns import Column
from regatta.kit.kinds import Value
from regatta.report.findings import percent_number
from regatta.report.matrix import Matrix, MatrixRow, Square, all_squares, by_workload_and_shape, densely, shaded
from regatta.report.page import BAD_MARK, MARKS, NO_RECORD, count_failed, shown_status
from regatta.report.panels import Section
from regatta.report.rows import table_rows
from regatta.tables.bandwidth import BUSBW
from regatta.tables.baselines import EFFICIENCY, is_wide
from regatta.tables.metrics import CALL, THROUGHPUT
from regatta.tables.reported import VALUE, in_unit
from regatta.topics.base import ReportData, Topic, best_row, lacking_text, once_per_report
from regatta.topics.custom import judged_columns
from regatta.topics.scripts import STEP_TIME

BASELINE = "baseline"  # state of a square with 100 % by definition

EFFICIENCIES = "highest mean scaling efficiency (%) of the square's cells, or samples/s without a baseline"
THROUGHPUTS = "highest samples/s of the square's cells"
NUMBERS = {  # by benchmark: what its squares show
    "train_step": EFFICIENCIES,
    "script": EFFICIENCIES,
    "collective": "for collectives: highest bus bandwidth, or lowest time per call",
    "program": "for programs: best value",
}
CUSTOM = "for custom benchmarks: best result, or lowest time"
OTHERS = "valid / planned measurements"

SquareValue = tuple[str, float | None, str, str]  # text, level on the color scale, what the number is, state


def section(data: ReportData) -> Section | None:
    if not data.campaign.all_cells:
        return None
    matrix = status_matrix(data)
    squares = all_squares(matrix)
    states = {one.state for one in squares}
    found = {cell.benchmark for cell in data.campaign.all_cells}
    known = NUMBERS | dict.fromkeys(data.campaign.benchmarks or {}, CUSTOM)
    others = [OTHERS] if found - known.keys() else []
    numbers = [
        THROUGHPUTS if text == EFFICIENCIES and EFFICIENCY not in _columns(data, benchmark) else text
        for benchmark, text in known.items()
        if benchmark in found
    ]
    numbers = list(dict.fromkeys(numbers + others))
    has_colors = any(one.level for one in squares)
    content = {"matrix": matrix, "numbers": numbers, "states": states, "has_colors": has_colors}
    content["known"] = next((one.beside for one in squares if one.beside), "")
    return Section("matrix", "Status and efficiency", template="matrix.html.j2", content=content)


def status_matrix(data: ReportData) -> Matrix:
    """Return a square for each workload, stack and shape of the campaign, also of skipped cells."""
    cells, names = data.campaign.all_cells, data.cell_names
    caption = f"Nodes × {ranks_word(data.device)} per node"
    matrix = by_workload_and_shape(caption, cells, names, _squares(data, names), _summary)
    return shaded(_without_baselines(densely(matrix)) if matrix.is_folded else matrix)


def _without_baselines(matrix: Matrix) -> Matrix:
    """Return a heatmap without the rows that only say 100 %, by definition, of measured baselines."""

    def has_more(row: MatrixRow) -> bool:
        return any(square.state != BASELINE for square in row.squares if square)

    groups = (replace(group, rows=tuple(filter(has_more, group.rows))) for group in matrix.groups)
    return replace(matrix, groups=tuple(group for group in groups if group.rows)) if matrix.is_dense else matrix


def _summary(rows: list[MatrixRow]) -> str:
    """Return the range of a folded group's colors, and how many of its squares have failures."""
    squares = [square for row in rows for square in row.squares if square is not None]
    levels = [square.level for square in squares if square.level is not None]
    texts = [f"{percent_number(min(levels))}\N{EN DASH}{percent_number(max(levels))} %"] if levels else []
    bad = sum(square.state in ("failed", "partial") for square in squares)
    return ", ".join([*texts, *([f"failures in {bad:,} of {len(squares):,}"] if bad else [])])


def statuses_by_cell(measurements: pd.DataFrame) -> dict[str, Counter]:
    """Return how many measurements of each cell have which status on the page."""
    statuses: dict[str, Counter] = defaultdict(Counter)
    for cell, status in zip(measurements["cell"], shown_status(measurements), strict=True):
        statuses[cell][status] += 1
    return statuses


def square_without_value(name: str, cells: list[str], counts: Counter) -> Square:
    """Return the square of cells without an ok measurement. counts: of their statuses."""
    bad = Counter({status: num for status, num in counts.items() if status != "skipped"})
    if not bad:
        return Square(MARKS["skipped"], None, "skipped", tuple(cells), "skipped")
    is_missing = set(bad) <= {"ok", *NO_RECORD}  # ok: without the value
    mark, state = (MARKS["not_measured"], "missing") if is_missing else (BAD_MARK, "failed")
    return Square(mark, None, state, tuple(cells), f"{name}: {_status_counts(bad)}")


def _status_counts(statuses: Counter) -> str:
    return ", ".join(f"{num} {status_text(status)}" for status, num in statuses.most_common())


def _columns(data: ReportData, benchmark: str) -> tuple[Column, ...]:
    """Return the numbers of a benchmark, without the efficiency if only baselines have one: 100 % by definition."""
    columns = _values_of(data)[benchmark]
    if EFFICIENCY not in columns:
        return columns
    rows = data.cells_of(benchmark).dropna(subset="efficiency_ratio")
    return columns if (rows["cell"] != rows["baseline"]).any() else columns[1:]


def _squares(data: ReportData, names: dict[str, CellName]) -> Callable[[str, list[str]], Square]:
    """Return a function from a benchmark and cells to their square."""
    statuses = statuses_by_cell(data.measurements)
    measured = {
        benchmark: {row.cell: row for row in table_rows(data.cells_of(benchmark)) if row.num_launches}
        for benchmark in _values_of(data)
    }

    def square(benchmark: str, cells: list[str]) -> Square:
        subject = names[cells[0]].parts["subject"]
        counts = sum((statuses[cell] for cell in cells), Counter())
        if not counts["ok"]:
            return square_without_value(subject, cells, counts)
        bad = Counter({status: num for status, num in counts.items() if status not in ("ok", "skipped")})
        rows = [measured[benchmark][cell] for cell in cells if cell in measured.get(benchmark, ())]
        text, level, what, state = f"{counts['ok']}/{counts['ok'] + bad.total()}", None, "ok measurements", ""
        if rows:
            text, level, what, state = _value(rows, _columns(data, benchmark), data.names)
        note, num_known = f"{subject}: {what}", len(rows) if rows else len(cells)
        if num_known < len(cells):
            note += f"; {num_known} of {len(cells)} sizes have a value"
        if bad:
            note += f"; {bad.total()} of {plural(counts.total(), 'measurement')} not ok: {_status_counts(bad)}"
        known = f"{num_known} of {len(cells)}" if num_known < len(cells) else ""
        state = "partial" if count_failed(bad) else "incomplete" if bad else state
        return Square(text, level, state, tuple(cells), note, beside=known)

    return square


def _value(rows: list, columns: tuple[Column, ...], names: dict[str, str]) -> SquareValue:
    """Return the best value of the first column that is known, as findings on scaling and communication do."""
    column = next(one for one in columns if any(not is_unknown(getattr(row, one.name)) for row in rows))
    rows = [row for row in rows if not is_unknown(getattr(row, column.name))]
    if column is EFFICIENCY:
        rows = [row for row in rows if row.cell != row.baseline] or rows
    of_program = column is VALUE
    if of_program:  # it may have several quantities
        rows = [row for row in rows if row.reported_quantity == rows[0].reported_quantity]
        column = in_unit(rows[0])
    is_rate = column.better == "larger"
    best = best_row(rows, column)
    column = in_unit(best, best.reported) if of_program else column
    of_several = f"{'highest' if is_rate else 'lowest'} mean of {len(rows):,}: " if len(rows) > 1 else ""
    note, shown = f"{column.label} {Value.of(best, column)}, {of_several}{names[best.cell]}", column.of(best)[0]
    note += f", {lacking}" if (lacking := lacking_text(best)) else ""
    if column is not EFFICIENCY:
        return f"{three(shown)} {column.unit_text}".removesuffix(" samples/s"), None, note, ""
    if best.cell == best.baseline:  # 100 by definition
        return f"{shown:.0f}", None, f"baseline: {names[best.cell]}", BASELINE
    if is_wide(best):
        return percent_number(best.efficiency_ratio), None, f"uncertain {note}", "uncertain"
    return percent_number(best.efficiency_ratio), float(best.efficiency_ratio), note, ""


@once_per_report
def _values_of(data: ReportData) -> dict[str, tuple[Column, ...]]:
    """Return VALUES with the benchmarks outside Regatta's tree."""
    names = data.campaign.benchmarks or {}
    return VALUES | {name: judged_columns(data.campaign, name) for name in names}


# By benchmark, the numbers of which the first known one counts.
VALUES = {
    "train_step": (EFFICIENCY, THROUGHPUT),
    "script": (EFFICIENCY, THROUGHPUT, STEP_TIME),
    "collective": (BUSBW, CALL),
    "program": (VALUE,),
}
TOPIC = Topic("matrix", "Status and efficiency", section=section)
