"""A topic: one part of the report, and everything that it needs, in one module or folder.

It is a struct of plain functions. topics/catalog.py lists all topics in the page's order; tables, rules, sections,
findings, warnings and methods derive from that list.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pandas as pd

from regatta.core.names import names_by_cell
from regatta.core.statistics import Spread
from regatta.report.findings import Advice, Finding
from regatta.report.panels import Section
from regatta.store.tables import REAL

Tables = Mapping[str, pd.DataFrame]


def interval_columns(name: str, unit: str) -> dict[str, str]:
    """Return the columns of a number with its range or interval: step_s, step_low_s, step_high_s."""
    return {f"{name}{end}_{unit}": REAL for end in ("", "_low", "_high")}


def interval_values(name: str, unit: str, found: Spread) -> dict[str, float | None]:
    """Return the values of these columns."""
    return dict(zip(interval_columns(name, unit), (found.median, found.low, found.high), strict=True))


@dataclass(frozen=True)
class TableSpec:
    """A table of tables/. columns: name -> type (store/tables.py). make: of the frozen campaign and all tables by name.

    `make` may ask for any table: what the store holds (measurements, epochs, ranks, waits) and what other topics make.
    """

    columns: dict[str, str]
    make: Callable[[dict, Tables], pd.DataFrame]


@dataclass(frozen=True)
class ReportData:
    """What sections, findings and warnings are made of. tables: collected and computed, by name.

    headers: the first line of each launch file with a row in measurements.csv. preflight: its result, or None.
    """

    campaign: dict
    tables: Tables
    headers: list[dict]
    problems: dict
    launches: Path
    preflight: dict | None = None

    @property
    def measurements(self) -> pd.DataFrame:
        return self.tables["measurements"]

    @property
    def ok(self) -> pd.DataFrame:
        return self.measurements[self.measurements["status"] == "ok"]

    @property
    def device(self) -> str:
        return self.campaign["device"]

    @cached_property
    def names(self) -> dict[str, str]:
        """The full name of each cell of the campaign, by its id."""
        return names_by_cell(self.campaign)


def nothing(_: object) -> list:
    return []


@dataclass(frozen=True)
class Topic:
    """findings: data; `sentence` turns one of them into text. methods: (term, definition) pairs for a frozen campaign."""

    id: str
    title: str
    tables: dict[str, TableSpec] = field(default_factory=dict)
    section: Callable[[ReportData], Section | None] | None = None
    findings: Callable[[ReportData], list[Finding]] = nothing
    sentence: Callable[[Finding], str] | None = None
    warnings: Callable[[ReportData], list[Advice]] = nothing
    methods: Callable[[dict], list[tuple[str, str]]] = nothing
