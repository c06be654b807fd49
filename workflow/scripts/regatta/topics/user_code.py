"""What the sections on users' scripts, programs and benchmarks share: figures, tables, and the best value of each."""

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from regatta.core.names import PLACE
from regatta.core.text import size, thousands
from regatta.kit.columns import Column
from regatta.kit.kinds import RESULT, SUMMARY, Kind, Value
from regatta.report import panels
from regatta.report.chart import PlotAxis, size_ticks
from regatta.report.findings import Finding, of_cells
from regatta.report.panels import CELL_NAME, LAUNCHES, Figure, Table
from regatta.report.rows import Row
from regatta.topics.base import ReportData, best_row, headline_rows, on_most_ranks

BEST_OF = "best mean of {num:cell}"
LOG_RATIO = 16  # values that differ by more are on a logarithmic axis


def tables_of_cells(
    data: ReportData, source: str, benchmark: str, rows: pd.DataFrame, columns: Iterable[Column], subject: str
) -> tuple[Table, ...]:
    """Return a table of cells for each subject. source: the table of the rows. subject: its column."""
    columns, groups = (CELL_NAME, LAUNCHES, *columns), data.named(rows, benchmark).groupby(subject, sort=True)
    return tuple(Table.of_columns(of, columns, part, data.device, (source,)) for of, part in groups)


def figures_of_cells(
    data: ReportData,
    figure_id: str,
    source: str,
    benchmark: str,
    rows: pd.DataFrame,
    column: Column,
    values: panels.Launches,
    over: Column | None = None,
    is_log: bool = False,
) -> list[Figure]:
    """Return a figure of a column for each subject with several cells: a line for each setting, or for each stack.

    It is over the column `over`, else over the number of ranks, or with one shape by setting. is_log: of the vertical
    axis; default: by the values.
    """
    known = rows[rows[column.name].notna()]
    if known.empty:
        return []
    known = known.sort_values(over.name, kind="stable") if over else known
    found = panels.panels(
        data.named(known, benchmark, without=(over.name,) if over else ()),
        lambda name: (*(("shape",) if over else ()), *name.series, *name.settings, *PLACE),
        lambda name: name.parts["subject"],
    )
    kind, beside = column.title(), _axis(column.heading(data.device), known[column.name])
    figures = []
    for title, part in found:
        if len(part) == 1:  # the table is enough
            continue
        if over:
            x, show = over.name, size if over.unit == "bytes" else "{:g}".format
            below = replace(_axis(over.label, part[x]), low=None, ticks=size_ticks(part[x].tolist(), show))
        elif part["world_size"].nunique() > 1:
            x, below = "world_size", panels.ranks_axis(part)
        else:
            names = part["cell_name"]
            settings = [name.say(*name.series, *name.settings, always=name.series) for name in names]
            places = list(dict.fromkeys(settings))
            part = part.assign(place=list(map(places.index, settings)), label=part["stack"])
            x, below = "place", PlotAxis.of_categories("", [text.replace(", ", "\n") for text in places])
        figures.append(
            panels.figure_of_cells(
                *(f"{figure_id}-{len(figures) + 1}", f"{kind}: {title}", part, x, column, values),
                (below, replace(beside, is_log=True, low=None) if is_log else beside),
                [one for one in (CELL_NAME, over, LAUNCHES, column) if one],
                source,
            )
        )
    return figures


def _axis(label: str, values: pd.Series) -> PlotAxis:
    """Return an axis that is logarithmic if values differ by far, else begins at 0."""
    is_log = bool(values.min() > 0 and values.max() > LOG_RATIO * values.min())
    return PlotAxis(label, is_log, low=0 if values.min() >= 0 and not is_log else None, show=thousands)


def name_below(data: ReportData, row: Row) -> str:
    """Return the name of a row's cell below that of its script or program."""
    return data.cell_names[row.cell].without("subject").full


def kinds_of_subjects(name: str, other: str, leads: tuple[str, ...], num: str, subjects: str) -> tuple[Kind, Kind]:
    """Return the kind of the first subject, which is in the summary, and that of the others.

    num: what `num` counts. subjects: what `num_subjects` counts.
    """
    parts = ("{name}", num, f"first of {{num_subjects:{subjects}}}")
    sentences = ("{name}.", f"{num[:1].upper()}{num[1:]}.")
    return Kind(name, SUMMARY, leads, parts), Kind(other, RESULT, tuple(f"{lead}." for lead in leads), sentences)


def best_value(data: ReportData, section: str, rows: list[Row], column: Column, **values: object) -> Finding:
    """Return the best value of a column on the most ranks, for `findings_of_subjects`. values: other ones."""
    known = headline_rows(data, on_most_ranks(rows))
    best = best_row(known, column)
    words = {"name": name_below(data, best), "num": len(known) if len(known) > 1 else None}
    sources = (of_cells("cells", [row.cell for row in known]),)
    return Finding("", values | {"value": Value.of(best, column)}, sources, (best.cell,), section, words)


def findings_of_subjects(kinds: tuple[Kind, Kind], found: list[Finding]) -> list[Finding]:
    """Return a finding of each subject with its kind (`kinds_of_subjects`), the first of which is in the summary."""
    num = {"num_subjects": len(found) if len(found) > 1 else None}
    names = [kinds[min(number, 1)].name for number in range(len(found))]
    return [replace(one, kind=name, words=one.words | num) for name, one in zip(names, found, strict=True)]
