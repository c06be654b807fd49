"""The compared pairs as data of the page's script (regatta.report.explore), a pair for each cell, and their counts."""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

import numpy as np
import pandas as pd

from regatta.compare.campaigns import CampaignResults, CampaignsCompared
from regatta.compare.comparison_output import names_and_lists
from regatta.core.files import address
from regatta.core.text import change_text, duration, is_unknown, signed_percent, three
from regatta.core.verdicts import verdict_text
from regatta.kit.columns import Row, table_rows
from regatta.model.frozen import names_by_id
from regatta.report.cell_launches import OF_CELL
from regatta.report.explore import NOT_CELLS, facet_texts, facets_of, rounded, settings_of
from regatta.tables.pairs import judged_rows
from regatta.topics.comparison import texts

VERDICTS = {  # words of filters, and headings of the summary
    "faster": ("faster", "Improved (faster)"),
    "slower": ("slower", "Regressed (slower)"),
    "inconclusive": ("inconclusive", "Inconclusive"),
    "equivalent": ("equivalent", "Unchanged (equivalent)"),
}
UNUSED = ("command", "warning", "invalid", "stack_facts", "baseline", "curve")  # facts of cells that pairs lack


@dataclass(frozen=True)
class PairColumn:
    """A column of the list. value: to sort by, and in CSV files. text: as shown; None if unknown, like the value."""

    key: str
    label: str
    value: Callable[[Row], object]
    text: Callable[[Row], str | None]
    kind: str = "number"
    is_shown: bool = True
    help: str = ""

    @property
    def entry(self) -> dict:
        entry = {"key": self.key, "label": self.label, "kind": self.kind, "is_shown": self.is_shown}
        return entry | {"group": "results", "is_larger_worse": True} | ({"help": self.help} if self.help else {})


@dataclass(frozen=True)
class RatioAxis:
    """The logarithmic axis of a list of ratios, with 1 in its middle. end: log at its right end. margin: log."""

    end: float
    margin: float

    @classmethod
    def of(cls, judged: pd.DataFrame) -> "RatioAxis":
        """Return the axis of some rows. It spans all ratios and interval ends, so that no bar is cut off."""
        margin = math.log1p(float(judged["margin_ratio"].max()))
        ends = judged[["time_ratio", "time_low_ratio", "time_high_ratio"]].astype(float)
        return cls(max(float(np.abs(np.log(ends)).max(axis=None)), 2 * margin, 0.01), margin)

    def percent(self, ratio: float) -> float:
        """Return the place of a ratio, from 0 to 100."""
        return round(50 + 50 * math.log(ratio) / self.end, 1)

    def strip(self, row: Row) -> str:
        """Return the style of a row's strip (explore.css): a line from end to end, and a mark at the ratio."""
        ends = (row.time_ratio,) * 2 if is_unknown(row.time_low_ratio) else (row.time_low_ratio, row.time_high_ratio)
        low, middle, high = map(self.percent, (ends[0], row.time_ratio, ends[1]))
        return f"--low:{low:g}%;--from:{middle:g}%;--to:{middle:g}%;--high:{high:g}%"


IN_CSV = "geometric mean over launches; in seconds in CSV files"
COLUMNS = (
    PairColumn("verdict", "Verdict", verdict_text, verdict_text, "text"),
    PairColumn(
        *("change", "Change in time (%)"),
        lambda row: rounded(100 * (row.time_ratio - 1)),
        lambda row: change_text(row),
        help="test / base \N{MINUS SIGN} 1 with its 95 % confidence interval [a, b] or range (a to b); positive: test"
        " is slower. Bars: one logarithmic axis, margin shaded",
    ),
    PairColumn(
        "base",
        "Time, base",
        lambda row: rounded(row.reference_time_s),
        lambda row: duration(row.reference_time_s),
        help=IN_CSV,
    ),
    PairColumn("test", "Time, test", lambda row: rounded(row.time_s), lambda row: duration(row.time_s), help=IN_CSV),
    PairColumn(
        "n", "n", lambda row: int(row.num_launches), texts.launches_text, help="launches; if unequal, test vs. base"
    ),
    PairColumn("ratio", "Ratio, test / base", lambda row: rounded(row.time_ratio), texts.interval_text, is_shown=False),
    PairColumn(
        *("p_adjusted", "p, corrected", lambda row: rounded(row.p_adjusted)),
        lambda row: None if is_unknown(row.p_adjusted) else p_text(row.p_adjusted),
        is_shown=False,
        help="two-sided, over all pairs (Benjamini-Hochberg)",
    ),
)


def p_text(p_value: float) -> str:
    return three(p_value) if p_value >= 1e-4 else "< 0.0001"


def pairs_block(found: CampaignsCompared, path: Path) -> dict:
    """Return the block. path: of the page, to which links to the two reports are relative."""
    judged = judged_rows(found.comparisons)
    rows, cells = table_rows(judged), [found.test.campaign.by_id[cell] for cell in judged["cell"]]
    full_names, names = dict(zip(found.comparisons["cell"], names_and_lists(found)[0], strict=True)), names_by_id(cells)
    verdicts = [word for word in VERDICTS if (judged["verdict"] == word).any()]
    facets, common = facets_of(cells, [names[cell.id] for cell in cells], list(judged["verdict"]), NOT_CELLS)
    facets["status"] = {"label": "Verdict", "values": [VERDICTS[word][0] for word in verdicts], "names": verdicts}
    facets["status"]["indices"] = [verdicts.index(row.verdict) for row in rows]
    columns = {name: [None] * len(rows) for name in (*OF_CELL, *UNUSED)}
    columns |= {
        "id": list(judged["cell"]),
        "name": [full_names[row.cell] for row in rows],
        "num_planned": [0] * len(rows),
    }
    columns |= {key: facet.pop("indices") for key, facet in facets.items()}
    columns |= {column.key: list(map(column.value, rows)) for column in COLUMNS}
    facets = {key: facet | facet_texts(key, facet) for key, facet in facets.items()}
    settings = [
        entry | {"is_shown": entry["key"] == "name"} for entry in settings_of(facets, cells, found.test.campaign.device)
    ]
    entries = {column.key: column.entry for column in COLUMNS}
    band = 0.0
    if rows:
        axis = RatioAxis.of(judged)
        band, entries["change"]["strips"] = 50 * axis.margin / axis.end, list(map(axis.strip, rows))
    links = [list(links_of(found, row, path)) for row in rows]
    if any(links):
        columns["reports"] = [None] * len(rows)
        entry = {"key": "reports", "label": "Reports", "kind": "text", "is_shown": True, "group": "links"}
        entries["reports"] = entry | {"links": links, "help": "the cell in the report of each campaign"}
    return {
        "schema": 2,
        "columns": [*(entry for entry in settings if not entry["key"].startswith("num_")), *entries.values()],
        "facets": facets,
        "common": common,
        "cells": columns,
        "texts": {column.key: list(map(column.text, rows)) for column in COLUMNS}
        | {"main": list(map(texts.row_text, rows)), "num_ok": list(map(texts.launches_text, rows))},
        "ends": {column.key: [None] * len(rows) for column in COLUMNS},
        "order": list(range(len(rows))),
        "band": f"{band:.1f}%",
        "launches": {},
        "times": [],
        "files": {"names": [], "addresses": [], "argv": []},
        "comparisons": {"cell": [], "reference": [], "title": [], "lines": []},
        "curves": [],
        "words": [],
    }


def links_of(found: CampaignsCompared, row: Row, path: Path) -> Iterator[tuple[str, str]]:
    """Yield name and address of the pair's cell in the report of each campaign that has one."""
    for name, side, cell in (("base", found.base, row.reference), ("test", found.test, row.cell)):
        if report := report_of(side, path):
            yield name, f"{report}#cell={quote(cell)}"


def report_of(side: CampaignResults, path: Path) -> str | None:
    """Return the address of a campaign's report relative to a page; None if it has none, such as an imported file."""
    report = side.folder / "report.html"
    return address(*Path(os.path.relpath(report, path.parent)).parts) if report.is_file() else None


@dataclass(frozen=True)
class Counted:
    """The pairs of one verdict in one row of the summary. address: a fragment that filters the page to them."""

    num: int
    change: str
    address: str


@dataclass(frozen=True)
class CountedRow:
    """One row of the summary. change: geometric mean and range of all pairs."""

    name: str
    num: int
    change: str
    by_verdict: dict[str, Counted]


def counts_of(block: dict, judged: pd.DataFrame) -> dict[str, list[CountedRow]]:
    """Return the rows of the summary by heading: all pairs, then those of each benchmark and shape, if several."""
    found = {"All": [_counted_row(judged, "All pairs", {})]}
    for key, title in (("benchmark", "By benchmark"), ("shape", "By shape")):
        if facet := block["facets"].get(key):
            parts = (judged[[index == place for index in block["cells"][key]]] for place in range(len(facet["names"])))
            named = zip(parts, facet["values"], facet["names"], strict=True)
            of_row = texts.benchmark_words if key == "benchmark" else str
            found[title] = [_counted_row(rows, of_row(text), {key: name}) for rows, text, name in named]
    return found


def _counted_row(rows: pd.DataFrame, name: str, filters: dict[str, str]) -> CountedRow:
    by_verdict = {}
    for verdict in VERDICTS:
        of = rows[rows["verdict"] == verdict]
        by_verdict[verdict] = Counted(len(of), changes_text(of), f"#cells&{urlencode({'status': verdict} | filters)}")
    return CountedRow(name, len(rows), changes_text(rows), by_verdict)


def changes_text(rows: pd.DataFrame) -> str:
    """Return the geometric mean of the ratios and their range in percent: `+12.1 (+11.6 to +12.6)`."""
    if not len(rows):
        return ""
    logs = np.log(rows["time_ratio"].astype(float))
    mean, low, high = (signed_percent(math.exp(log)) for log in (logs.mean(), logs.min(), logs.max()))
    return mean if len(rows) == 1 else f"{mean} ({low} to {high})"
