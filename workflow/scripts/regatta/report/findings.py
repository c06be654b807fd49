"""Findings and warnings of the report, each with its source rows.

A finding is data: a kind, numbers with their intervals, cells, source rows. Its kind turns it into words.
Findings are computed from tables, not from figures, which may leave rows out.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import pandas as pd
from markupsafe import Markup, escape

from regatta.core.files import address
from regatta.core.text import is_unknown, three
from regatta.kit.kinds import Kind, Value, filled
from regatta.store.csv_files import COLLECTED

UNIT = re.compile(r"(?<=\d) (?=%|[kMGT]i?B|samples/s|tokens/s|s\b|ms\b|percentage points)")

_TIMES = "\N{MULTIPLICATION SIGN}"
_NUMBER = rf"\d(?:[.,]?\d)*(?:{_TIMES}(?!\d)|\N{{NO-BREAK SPACE}}[^\s<;,()]+)?(?![\w{_TIMES}])"
_BEFORE = rf"^([^<]*?(?<![\w.,{_TIMES}-]))"  # of a number that is no part of a name or shape
FIRST_NUMBER = re.compile(rf"{_BEFORE}({_NUMBER}(?:(?:, | to | or | of |\N{{EN DASH}}){_NUMBER})*)")


@dataclass(frozen=True)
class Source:
    """The source of numbers. file: path in the results folder. rows: their names; what: a text instead of rows."""

    file: str
    rows: tuple[str, ...] = ()
    what: str = ""

    @property
    def anchor(self) -> str:
        return anchor_of(self.file)


HEADERS = Source("launches/*.jsonl", what="the first line of each")
PROBLEMS, PREFLIGHT = "problems.json", "preflight/*.json"


@dataclass(frozen=True)
class Finding:
    """One main result. values: by name, in the units of the tables. sources: rows behind it.

    words: names and texts that only its sentences need; `included`: text and cells of slow nodes that it warns of.
    declared: its kind, of its topic (`Topic.stated`).
    confidence, in values: how far a line of the summary can be trusted, if not fully.
    """

    kind: str
    values: dict[str, object]
    sources: tuple[Source, ...]
    cells: tuple[str, ...] = ()
    anchor: str = ""  # anchor on the page; if empty, the list of warnings, or the topic's section
    words: dict[str, object] = field(default_factory=dict)
    declared: Kind | None = None

    @property
    def rank(self) -> str:
        return self.declared.rank

    @property
    def statement(self) -> tuple[str, str]:
        """Return the statement, and what qualifies it."""
        return self.declared.words(self.values | self.words)

    @property
    def text(self) -> str:
        return " ".join(filter(None, self.statement))

    @property
    def advice(self) -> str:
        return filled(self.declared.advice, self.values | self.words)

    @property
    def next_step(self) -> str:
        return filled(self.declared.next_step, self.values | self.words)

    @property
    def key(self) -> str:
        return self.declared.key or self.kind

    @property
    def mark(self) -> str:
        return filled(self.declared.mark, self.values | self.words)

    @property
    def numbers(self) -> dict[str, object]:
        """Return its values as answer.json has them."""
        found: dict[str, object] = {}
        for name, value in self.values.items():
            found |= value.by_name(name) if isinstance(value, Value) else {name: value}
        return found


def with_code(text: str) -> Markup:
    """Return a text whose parts between backticks, commands and keys, are marked as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def unbroken(text: str) -> str:
    """Return a text in which no line breaks between a number and its unit."""
    return type(text)(UNIT.sub("\N{NO-BREAK SPACE}", text))


def copied(text: Markup, button: str) -> Markup:
    """Return a text with a button behind each command of several words."""
    return Markup(re.sub(r"<code>[^<]* [^<]*</code>", lambda code: f"{code[0]}{button}", text))


def asides(text: str) -> Markup:
    """Return a text whose parentheses are marked as secondary."""
    return Markup(re.sub(r"\([^()]*\)", r'<span class="aside">\g<0></span>', str(escape(text))))


def numbered(text: Markup) -> Markup:
    """Return a text whose first number, with its unit and the other end of a range, is marked as such."""
    return Markup(FIRST_NUMBER.sub(r'\1<span class="number">\2</span>', str(text), count=1))


def percent_number(ratio: float) -> str:
    """Return a ratio in percent with the digits that a measurement supports: 37, 3.2, 0.4."""
    percent = 100 * ratio
    return f"{percent:.0f}" if abs(percent) >= 9.95 else f"{percent:z.1f}"


def percent_text(percent: float) -> str:
    return percent_number(percent / 100)


def excess_text(ratio: float, word: str = "slower") -> str:
    """Return how much longer something takes, from a ratio of at least 1: `is 3.2 % slower`, `takes 2.8× as long`.

    word: of results, worse.
    """
    if ratio < 2 or word != "slower":
        return f"is {percent_number(ratio - 1)} % {word}"
    return f"takes {three(ratio, 2)}\N{MULTIPLICATION SIGN} as long"


def file_of(table: str) -> str:
    """Return the file of a table, tables/failures.csv or measurements.csv; a name with a dot is a file already."""
    return table if "." in table else f"{table}.csv" if table in (*COLLECTED, "cells") else f"tables/{table}.csv"


def anchor_of(file: str) -> str:
    """Return the anchor on the page where a file can be downloaded or its content is shown; of a log, its address."""
    if file.endswith(".log"):
        return address(*file.split("/"))
    if file.endswith(".csv"):
        return f"#csv-{file.rpartition('/')[2].removesuffix('.csv')}"
    return {PROBLEMS: "#left-out", PREFLIGHT: "#preflight"}.get(file, "#provenance")


def of_cells(table: str, cells: Iterable[str | None]) -> Source:
    """Return the rows of some cells, in this order, of a table with one row for each cell."""
    return Source(file_of(table), tuple(dict.fromkeys(cell for cell in cells if not is_unknown(cell))))


def of_rows(table: str, rows: pd.DataFrame, key: tuple[str, ...] = ()) -> Source:
    """Return some rows of a table, named by the columns of `key`, or by their number below the heading."""
    if not key:
        return Source(file_of(table), tuple(f"row {index + 1}" for index in rows.index))
    return Source(
        file_of(table), tuple(", ".join(map(str, values)) for values in rows[list(key)].itertuples(index=False))
    )


def of_runs(table: str, rows: pd.DataFrame, first: object = None) -> Source:
    """Return some rows of measurements.csv or failures.csv, one per cell and launch. first: index of the first one."""
    if first is not None:
        rows = pd.concat([rows.loc[[first]], rows.drop(first)])
    return Source(file_of(table), tuple(f"{row.cell}, launch {row.repeat + 1}" for row in rows.itertuples()))
