"""Status and efficiency of all cells: workloads and stacks down, shapes across.

A benchmark without a known number shows how many of its measurements are ok.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from regatta.core.text import is_unknown, plural, status_text, three
from regatta.kit.columns import Column, Row, table_rows
from regatta.kit.kinds import Value
from regatta.model.frozen import Cell
from regatta.report.findings import percent_number
from regatta.report.matrix import Matrix, Position, Square, by_workload_and_shape, merged, shape_columns, shapes_caption
from regatta.report.page import BAD_MARK, MARKS, count_failed, shown_status
from regatta.report.panels import Section
from regatta.tables.bandwidth import BUSBW
from regatta.tables.baselines import EFFICIENCY, is_wide
from regatta.tables.metrics import CALL, THROUGHPUT
from regatta.tables.reported import VALUE, in_unit
from regatta.topics.base import ReportData, Topic, best_row, lacking_text, once_per_report
from regatta.topics.custom import judged_columns
from regatta.topics.scripts import STEP_TIME
from regatta.topics.warnings_section import marks, warnings

BASELINE = "baseline"  # state of a square with 100 % by definition
MARK_OF = {"failed": BAD_MARK, "missing": MARKS["not_measured"], "skipped": MARKS["skipped"]}
EFFICIENCIES = "highest mean scaling efficiency (%) of the square's cells, or samples/s without a baseline"
THROUGHPUTS = "highest samples/s of the square's cells"
CUSTOM = "for custom benchmarks: best result, or lowest time"
OTHERS = "valid / planned measurements"
VALUES = {  # by benchmark: the numbers of which the first known one counts, and what its squares show
    "train_step": ((EFFICIENCY, THROUGHPUT), EFFICIENCIES),
    "script": ((EFFICIENCY, THROUGHPUT, STEP_TIME), EFFICIENCIES),
    "collective": ((BUSBW, CALL), "for collectives: highest bus bandwidth, or lowest time per call"),
    "program": ((VALUE,), "for programs: best value"),
}


@once_per_report
def values_of(data: ReportData) -> dict[str, tuple[tuple[Column, ...], str]]:
    """Return VALUES of the campaign, without the efficiency where only baselines have one: 100 % by definition."""
    known = VALUES | {name: (judged_columns(data.campaign, name), CUSTOM) for name in data.campaign.benchmarks or {}}
    cells, benchmarks = data.tables["cells"], {cell.benchmark: None for cell in data.campaign.all_cells}
    is_compared = cells["efficiency_ratio"].notna() & (cells["cell"] != cells["baseline"])
    compared, found = set(cells.loc[is_compared, "benchmark"]), {}
    for name in dict.fromkeys([*known, *benchmarks]):
        columns, text = known.get(name, ((), OTHERS))
        without = EFFICIENCY in columns and name not in compared
        found[name] = (columns[1:], THROUGHPUTS) if without else (columns, text)
    return {name: found[name] for name in found if name in benchmarks}


@once_per_report
def statuses_by_cell(data: ReportData) -> dict[str, Counter]:
    """Return how many measurements of each cell have which status on the page."""
    statuses: dict[str, Counter] = defaultdict(Counter)
    for cell, status in zip(data.measurements["cell"], shown_status(data.measurements), strict=True):
        statuses[cell][status] += 1
    return statuses


def square_of(place: Position, cells: Iterable[str], statuses: Counter, subject: str, **shown: object) -> Square:
    """Return a square with what failed of its measurements. statuses: their numbers. shown: nothing without a value."""
    planned = Counter({status: num for status, num in statuses.items() if status != "skipped"})
    bad = planned - Counter(ok=planned["ok"] if shown else 0)
    counts = ", ".join(f"{num} {status_text(status)}" for status, num in bad.most_common())
    if not shown:  # of an ok measurement without the value
        state = "failed" if count_failed(bad) else "missing" if bad else "skipped"
        return Square(*place, MARK_OF[state], state, tuple(cells), f"{subject}: {counts}" if bad else state)
    note = f"{subject}: {shown['note']}"
    if bad:
        note += f"; {bad.total()} of {plural(planned.total(), 'measurement')} not ok: {counts}"
        shown["values"] = ()
    states = shown.get("state"), "partial" if count_failed(bad) else "incomplete" if bad else ""
    return Square(*place, **shown | {"cells": tuple(cells), "note": note, "state": " ".join(filter(None, states))})


def best_squares(
    data: ReportData,
    cells: Collection[Cell],
    columns: Mapping[str, Iterable[Column]],
    show: Callable[[Row, Column, str], dict],
) -> tuple[Square, ...]:
    """Return a square for each workload, stack and shape of cells, with the best of its cells (`best_of`).

    columns: by benchmark. show: what a square shows of a row of cells.csv, its best column and its note.
    """
    statuses, found = statuses_by_cell(data), []
    rows = {row.cell: row for row in table_rows(data.tables["cells"])}
    for place, ids in by_workload_and_shape(cells, data.cell_names).items():
        counts = sum((statuses[cell] for cell in ids), Counter())
        known, wanted = [rows[cell] for cell in ids if cell in rows], columns.get(place[0][0], ())
        known, shown = [row for row in known if any(is_known(row, column) for column in wanted)], {}
        if known:
            best, column, of_several = best_of(known, wanted)
            note = f"{column.label} {Value.of(best, column)}, {of_several}{data.names[best.cell]}{lacking_text(best)}"
            shown = {"note": note, **show(best, column, note)}
            if len(known) < len(ids):
                shown["beside"] = f"{len(known)} of {len(ids)}"
                shown["note"] += f"; {shown['beside']} sizes have a value"
        elif counts["ok"]:
            planned = counts.total() - counts["skipped"]
            shown = {"text": f"{counts['ok']}/{planned}", "note": "ok measurements"}
        found.append(square_of(place, ids, counts, place[0][-1], **shown))
    return tuple(found)


def is_known(row: Row, column: Column) -> bool:
    return not is_unknown(getattr(row, column.name))


def best_of(rows: list[Row], columns: Iterable[Column]) -> tuple[Row, Column, str]:
    """Return the row with the best value of the first column that is known, this column, and of how many in words."""
    column = next(one for one in columns if any(is_known(row, one) for row in rows))
    rows = [row for row in rows if is_known(row, column)]
    if column is EFFICIENCY:
        rows = [row for row in rows if row.cell != row.baseline] or rows
    if column is VALUE:  # a program may have several quantities
        rows = [row for row in rows if row.reported_quantity == rows[0].reported_quantity]
        column = in_unit(rows[0])
    best = best_row(rows, column)
    rank = "highest" if column.better == "larger" else "lowest"
    of_several = f"{rank} mean of {len(rows):,}: " if len(rows) > 1 else ""
    return best, in_unit(best, best.reported) if column.name == VALUE.name else column, of_several


def _shown(data: ReportData, best: Row, column: Column, note: str) -> dict:
    """Return the text, level and state of the best value of a square, and its note if it is another one."""
    value, low, _ = of = column.of(best)
    if column is not EFFICIENCY:
        known = (of,) * (column is BUSBW and low is not None)  # others may have units of their rows
        return {"text": f"{three(value)} {column.unit_text}".removesuffix(" samples/s"), "values": known}
    if best.cell == best.baseline:
        return {"text": f"{value:.0f}", "note": f"baseline: {data.names[best.cell]}", "state": BASELINE}
    text = percent_number(best.efficiency_ratio)
    if is_wide(best):
        return {"text": text, "note": f"uncertain {note}", "state": "uncertain"}
    return {"text": text, "level": float(best.efficiency_ratio), "values": (of,) * (low is not None)}


def _summary(squares: Collection[Square]) -> str:
    """Return the range of a folded group's colors, and how many of its squares have failures."""
    levels = [square.level for square in squares if square.level is not None]
    texts = [f"{percent_number(min(levels))}\N{EN DASH}{percent_number(max(levels))} %"] if levels else []
    bad = sum(not {"failed", "partial"}.isdisjoint(square.state.split()) for square in squares)
    return ", ".join([*texts, *([f"failures in {bad:,} of {len(squares):,}"] if bad else [])])


def status_matrix(data: ReportData) -> Matrix:
    """Return a square for each workload, stack and shape of the campaign, also of skipped cells.

    Rows that only say 100 %, by definition, of measured baselines without a warning, or skipped, are left out.
    """
    cells = data.campaign.all_cells
    of_benchmarks = {name: of for name, (of, _) in values_of(data).items()}
    squares = best_squares(data, cells, of_benchmarks, partial(_shown, data))
    marked, empty = marks(data, warnings(data)).keys(), (BASELINE, "skipped")
    telling = [one for one in squares if one.state not in empty or not marked.isdisjoint(one.cells)]
    bare = {(one.group, one.row) for one in squares if one.state == BASELINE}
    bare -= {(one.group, one.row) for one in telling}
    squares = merged([one for one in squares if (one.group, one.row) not in bare], {*data.places, *marked})
    notes = [f"Number: {'; '.join(dict.fromkeys(text for _, text in values_of(data).values()))}"]
    if any(square.level for square in squares):
        notes.append("Color: efficiency (lighter is lower); baselines, 100 by definition, are not colored")
    notes += [
        f"{one.beside}: sizes that have a value; the number is the best of them" for one in squares if one.beside
    ][:1]
    columns = shape_columns([cell.shape for cell in cells])
    return Matrix(shapes_caption(data.device), columns, squares, summary=_summary, notes=tuple(notes))


def section(data: ReportData) -> Section | None:
    if not data.campaign.all_cells:
        return None
    return Section(template="matrix.html.j2", content={"matrices": (status_matrix(data),)})


TOPIC = Topic("matrix", "Status and efficiency", section=section)
