"""A topic: one part of the report with its tables, as a struct of plain functions, in one module or folder.

topics/catalog.py lists all topics in the page's order; tables, rules, sections, findings and definitions derive
from that list.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import pandas as pd

from regatta.core.benchmarks import SAMPLES_LABEL, load_benchmark
from regatta.core.names import CellName
from regatta.core.text import is_unknown
from regatta.kit.columns import Column, Columns, Row, table_rows
from regatta.kit.kinds import FAIR, LOW, WARNINGS, Kind
from regatta.model.frozen import FrozenCampaign
from regatta.report.commands import command_words
from regatta.report.findings import Finding
from regatta.report.panels import Section
from regatta.store.csv_files import grouped as grouped
from regatta.store.csv_files import plain_rows as plain_rows
from regatta.tables.cells import rows_of
from regatta.tables.facts import Fact, facts_of
from regatta.tables.primary_times import primary_columns, times_by_cell
from regatta.tables.settings import compare_settings

Tables = Mapping[str, pd.DataFrame]
Computed, AnyRow = TypeVar("Computed"), TypeVar("AnyRow")
MAIN = {"is_shown": True, "is_main": True}  # of a column with the time of a cell
FASTEST = (  # parts of a kind that name the fastest cell and those that may be as fast
    "Fastest of {compared:configuration}: {fastest}.",
    "Within noise: {near}.",
    "Undecided, with one launch: {num_undecided}.",
)
WARNED = "warnings"  # anchor of the list of warnings
MOST_EXCLUDED_RATIO = 0.2  # of all cells: without more, headlines would be of the few that are left


def primary_text(benchmarks: Iterable[str], columns: dict[str, str]) -> str:
    """Return the text that names the time used for each of these benchmarks. columns: of `primary_columns`."""
    texts = []
    for name in sorted(set(benchmarks) & columns.keys()):
        declared = load_benchmark(name).primary_time
        is_declared = declared["column"] == columns[name]
        lacking = f"{SAMPLES_LABEL}, as records lack the {declared['label']}"
        texts.append(f"{name}: {declared['label'] if is_declared else lacking}")
    return "; ".join(texts)


def fallback_text(*tables: pd.DataFrame) -> str:
    """Return a text on benchmarks whose time differs from the one that a table alone would use; empty without any."""
    columns, changed = primary_columns(*tables), []
    for table in tables:
        alone = primary_columns(table)
        changed += [
            name
            for name in set(table["benchmark"].unique() if "benchmark" in table else ()) & alone.keys()
            if alone[name] != columns[name]
        ]
    return f"one side lacks a primary time; {primary_text(changed, columns)}" if changed else ""


@dataclass(frozen=True)
class TableSpec:
    """A table of tables/. make: takes the frozen campaign and tables.

    `make` may use any table: those read from the store (COLLECTED) and those of other topics.
    """

    columns: Columns
    make: Callable[[FrozenCampaign, Tables], pd.DataFrame]

    @classmethod
    def of(cls, columns: Columns, function: Callable[..., pd.DataFrame], *names: str) -> "TableSpec":
        """Return a table that a function makes of the tables with these names, or of the `campaign`."""
        return cls(
            columns, lambda campaign, tables: function(*(campaign if n == "campaign" else tables[n] for n in names))
        )


@dataclass(frozen=True)
class ReportData:
    """The data of sections, findings and warnings. tables: collected and computed, by name.

    headers: the first line of each launch file with a row in measurements.csv. preflight: its result, or None.
    columns: of the computed tables, by name. topics: those that apply, in the page's order. once: results of functions
    (`once_per_report`).
    """

    campaign: FrozenCampaign
    tables: Tables
    headers: list[dict]
    problems: dict
    launches: Path
    preflight: dict | None = None
    columns: Mapping[str, Columns] = field(default_factory=dict)
    topics: "tuple[Topic, ...]" = ()
    once: dict = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def measurements(self) -> pd.DataFrame:
        return self.tables["measurements"]

    @property
    def ok(self) -> pd.DataFrame:
        return self.measurements[self.measurements["status"] == "ok"]

    @property
    def device(self) -> str:
        return self.campaign.device

    @property
    def cell_names(self) -> dict[str, CellName]:
        """Return the name of each cell of the campaign, by its id."""
        return self.campaign.cell_names

    @cached_property
    def names(self) -> dict[str, str]:
        """The full name of each cell of the campaign, by its id."""
        return {cell: name.full for cell, name in self.cell_names.items()}

    @cached_property
    def facts(self) -> list[Fact]:
        """The facts on stacks and launches."""
        return facts_of(self.headers, self.campaign.cells, self.preflight["stacks"] if self.preflight else ())

    @cached_property
    def commands(self) -> dict[str, str]:
        """The commands that texts of findings name."""
        return command_words(self.launches.parent, self.campaign)

    @cached_property
    def findings(self) -> list[Finding]:
        """The findings of all topics in the page's order, each with its kind."""
        return [finding for topic in self.topics for finding in self.findings_of(topic)]

    @cached_property
    def places(self) -> dict[str, str]:
        """The slow nodes and ranks of each cell on any: `n05 (20 % slower)`."""
        found: dict[str, dict] = {}
        for finding in self.findings:
            for place, (text, cells) in finding.words.get("included", {}).items():
                found |= {cell: found.get(cell, {}) | {place: f"{place} ({text})"} for cell in cells}
        return {cell: ", ".join(of.values()) for cell, of in found.items()}

    def findings_of(self, topic: "Topic") -> list[Finding]:
        """Return the findings of one topic, which are computed once, each with its kind."""
        found = [topic.stated(finding) for finding in once_per_report(topic.findings)(self)]
        return [replace(finding, words=self.commands | finding.words) for finding in found]

    def cells_of(self, benchmark: str) -> pd.DataFrame:
        """Return the rows of cells.csv of one benchmark (`tables.cells.rows_of`)."""
        key = ("cells", benchmark)
        if key not in self.once:
            self.once[key] = rows_of(self.tables["cells"], benchmark)
        return self.once[key]


def once_per_report(function: Callable[[ReportData], Computed]) -> Callable[[ReportData], Computed]:
    """Return a function that computes its result once for each report, or comparison. Callers must not change it."""

    @functools.wraps(function)
    def found(data: ReportData) -> Computed:
        if function not in data.once:
            data.once[function] = function(data)
        return data.once[function]

    return found


@once_per_report
def unreliable_cells(data: ReportData) -> set[str]:
    """Return the cells whose comparison a finding of rank LOW or FAIR invalidates."""
    return {cell for finding in data.findings if finding.rank in (LOW, FAIR) for cell in finding.cells}


@once_per_report
def invalid_cells(data: ReportData) -> set[str]:
    """Return the cells that no line of the summary may rest on, by the warnings of the topics that judge validity.

    On slow nodes it may: it says so.
    """
    found = [finding for topic in data.topics if topic.is_judge for finding in data.findings_of(topic)]
    warned = [finding for finding in found if finding.rank in (LOW, FAIR) and not finding.words.get("included")]
    most = max(1, MOST_EXCLUDED_RATIO * len(data.campaign.cells))
    return {cell for finding in warned if len(finding.cells) <= most for cell in finding.cells}


def _cell(row: AnyRow) -> tuple[str]:
    return (row.cell,)


def headline_rows(
    data: ReportData, rows: Iterable[AnyRow], cells: Callable[[AnyRow], Iterable[str]] = _cell
) -> list[AnyRow]:
    """Return the rows of which no cell is invalid; if none is left, all of them. cells: those of a row."""
    rows, invalid = list(rows), invalid_cells(data)
    return [row for row in rows if invalid.isdisjoint(cells(row))] or rows


def on_most_ranks(rows: Iterable[AnyRow]) -> list[AnyRow]:
    """Return the rows with the largest world size."""
    largest = max((row.world_size for row in rows), default=0)
    return [row for row in rows if row.world_size == largest]


def complete_rows(rows: list[AnyRow]) -> list[AnyRow]:
    """Return the rows of cells with all their launches; if there is none, all of them: for a judgement."""
    return [row for row in rows if row.num_launches >= row.num_planned] or rows


def lacking_text(row: AnyRow) -> str:
    """Return how many launches a cell has, such as ` (2 of 3 launches)`, if it lacks any; else an empty text."""
    return f" ({row.num_launches} of {row.num_planned} launches)" if row.num_launches < row.num_planned else ""


def best_row(rows: Iterable[AnyRow], column: Column) -> AnyRow:
    """Return the row with the best value of a column, the first of equal ones."""
    return (max if column.better == "larger" else min)(rows, key=lambda row: getattr(row, column.name))


def fastest_of_groups(data: ReportData, groups: list[list[Row]], column: Column) -> list[tuple[Row, dict]]:
    """Return the best row of each group by a column, with the values of FASTEST; compared is unknown for a single cell.

    groups: of one benchmark. near: those that may be the fastest, also in the light of all groups together. Undecided
    ones are counted.
    """
    settings = compare_settings([[row.cell for row in rows] for rows in groups], times_by_cell(data.measurements))
    names, found = data.cell_names, []
    for rows in groups:
        best = best_row(rows, column)
        others = [row.cell for row in rows if row.cell != best.cell]
        is_open = {cell: settings[cell].may_be_best is None for cell in others}
        near = [cell for cell in others if not is_open[cell] and not settings[cell].is_costly]
        values = {
            "fastest": names[best.cell].say(*names[best.cell].series),
            "num_candidates": len(rows),
            "compared": len(rows) if others else None,
            "near": tuple(names[cell].unlike(names[best.cell]) for cell in near),
            "num_undecided": sum(is_open.values()),
        }
        found.append((best, values))
    return found


def with_summary(
    data: ReportData, found: list[Finding], summary: Callable[[Finding], Finding], most: int | None = None
) -> list[Finding]:
    """Return at most `most` results, after the line of the summary on the first one with valid cells."""
    valid = headline_rows(data, found, lambda one: one.cells)
    return [*map(summary, valid[:1]), *found[:most]]


def with_context(rows: pd.DataFrame, field: str, column: Column) -> pd.DataFrame:
    """Return rows with `is_context`: whether a cell differs in a field from the best of its kind on most ranks.

    A kind is cells that differ only in this field and their shape. rows: with names.
    """
    kinds: dict[str, list] = defaultdict(list)
    of_rows = [(name.without("shape", field).full, name.parts.get(field)) for name in rows["cell_name"]]
    for (kind, _), row in zip(of_rows, table_rows(rows), strict=True):
        kinds[kind] += [] if is_unknown(getattr(row, column.name)) else [row]
    best = {kind: best_row(on_most_ranks(of), column) for kind, of in kinds.items() if of}
    values = {kind: row.cell_name.parts.get(field) for kind, row in best.items()}
    return rows.assign(is_context=[value != values.get(kind, value) for kind, value in of_rows])


def nothing(_: object) -> list:
    return []


@dataclass(frozen=True)
class Topic:
    """One topic. id, title: of its section. kinds: those of its findings.

    terms: (term, definition) pairs of Methods that no kind has.
    part_of: id of the topic whose section contains this one's. is_of_sweeps: whether it applies to a sweep, whose cells
    differ in their nodes. Other topics would rank or pool cells that measure the same. is_judge: whether its warnings
    say which cells have invalid numbers (`headline_rows`). benchmarks: without their cells, its terms are not defined;
    default: without rows of its tables.
    """

    id: str
    title: str = ""
    tables: dict[str, TableSpec] = field(default_factory=dict)
    section: Callable[[ReportData], Section | None] | None = None
    findings: Callable[[ReportData], list[Finding]] = nothing
    kinds: tuple[Kind, ...] = ()
    terms: tuple[tuple[str, str], ...] = ()
    part_of: str = ""
    is_of_sweeps: bool = False
    is_judge: bool = False
    benchmarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.findings is not nothing and not self.kinds:
            raise ValueError(f"topic '{self.id}' has findings and no kinds, which turn them into text")

    def stated(self, finding: Finding) -> Finding:
        """Return a finding with its kind, and where it is shown unless it names another place: `Finding.anchor`."""
        kind = next(kind for kind in self.kinds if kind.name == finding.kind)
        place = WARNED if kind.rank in WARNINGS else self.id
        return replace(finding, declared=kind, anchor=finding.anchor or place)
