"""The page of compare.py on two campaigns: the report's filters, drawer and table, with pairs of cells as its cells."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

import numpy as np
import pandas as pd

from regatta.compare.campaigns import CampaignResults, CampaignsCompared
from regatta.compare.comparison_output import campaign_text, names_and_lists, statements, title_of
from regatta.core.files import address
from regatta.core.text import change_text, duration, is_unknown, plural, signed_percent, three
from regatta.core.verdicts import verdict_text
from regatta.kit.columns import CELL_ID, WHOLE, Column, Columns, Row, table_rows
from regatta.model.frozen import names_by_id
from regatta.report.explore import NOT_CELLS, block_of, encoded, facets_of, numbers_of, settings_of
from regatta.report.page import load_template
from regatta.tables.pairs import judged_rows
from regatta.topics.comparison import texts
from regatta.topics.comparison.comparison_figures import ratio_matrices
from regatta.topics.comparison.comparison_section import environment_tables

VERDICTS = {  # headings of the table of verdicts
    "faster": "Improved (faster)",
    "slower": "Regressed (slower)",
    "inconclusive": "Inconclusive",
    "equivalent": "Unchanged (equivalent)",
}
IN_CSV = "geometric mean over launches; in seconds in CSV files"
CHANGE_HELP = (
    "test / base \N{MINUS SIGN} 1 with its 95 % confidence interval [a, b] or range (a to b); positive: test is slower."
    " Bars: one logarithmic axis, margin shaded"
)
NUMBERS = Columns(  # of the list, besides the verdict
    CELL_ID,
    Column(
        *("time_ratio", "change in time (%)"),
        shown_as="%",
        minus=1,
        text=change_text,
        key="change",
        is_shown=True,
        help=CHANGE_HELP,
    ),
    Column(
        "reference_time_s",
        "time, base",
        text=lambda row: duration(row.reference_time_s),
        key="base",
        is_shown=True,
        help=IN_CSV,
    ),
    Column("time_s", "time, test", text=lambda row: duration(row.time_s), key="test", is_shown=True, help=IN_CSV),
    Column(
        *("num_launches", "n", WHOLE),
        text=texts.launches_text,
        key="n",
        is_shown=True,
        help="launches; if unequal, test vs. base",
    ),
    Column("time_ratio", "ratio, test / base", text=texts.interval_text, key="ratio"),
    Column(
        *("p_adjusted", "p, corrected"),
        text=lambda row: three(row.p_adjusted) if row.p_adjusted >= 1e-4 else "< 0.0001",
        key="p_adjusted",
        help="two-sided, over all pairs (Benjamini-Hochberg)",
    ),
)


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


def pairs_block(found: CampaignsCompared, path: Path) -> dict:
    """Return the data of the page's script, with a pair for each cell. path: of the page."""
    judged, campaign = judged_rows(found.comparisons), found.test.campaign
    rows, cells = table_rows(judged), [campaign.by_id[cell] for cell in judged["cell"]]
    full_names, names = dict(zip(found.comparisons["cell"], names_and_lists(found)[0], strict=True)), names_by_id(cells)
    verdicts = [word for word in VERDICTS if (judged["verdict"] == word).any()]
    facets, common = facets_of(cells, [names[cell.id] for cell in cells], list(judged["verdict"]), NOT_CELLS)
    facets["status"] = {"label": "Verdict", "values": verdicts, "names": verdicts}
    facets["status"]["indices"] = [verdicts.index(row.verdict) for row in rows]
    columns = {"id": list(judged["cell"]), "name": [full_names[row.cell] for row in rows]}
    columns |= {"num_planned": [0] * len(rows), "verdict": list(map(verdict_text, rows))}
    columns |= {key: facet.pop("indices") for key, facet in facets.items()}
    places, tables = {cell: place for place, cell in enumerate(columns["id"])}, {"pairs": judged}
    numbers, of_numbers, ends = numbers_of(columns, places, tables, {"pairs": NUMBERS}, campaign.device)
    of_numbers |= {"verdict": columns["verdict"], "main": list(map(texts.row_text, rows))}
    of_numbers["num_ok"] = list(map(texts.launches_text, rows))
    settings = [entry | {"is_shown": entry["key"] == "name"} for entry in settings_of(facets, cells, campaign.device)]
    entry = {"kind": "text", "is_shown": True}
    verdict = {"key": "verdict", "label": "Verdict", "group": "results", "is_larger_worse": True} | entry
    listed = [*(of for of in settings if not of["key"].startswith("num_")), verdict, *numbers]
    band = 0.0
    if rows:
        axis = RatioAxis.of(judged)
        band, numbers[0]["strips"] = 50 * axis.margin / axis.end, list(map(axis.strip, rows))
    links = [_links(found, row, path) for row in rows]
    if any(links):
        columns["reports"] = [None] * len(rows)
        reports = {"key": "reports", "label": "Reports", "group": "links", "links": links}
        listed.append(reports | entry | {"help": "the cell in the report of each campaign"})
    ends["verdict"] = [None] * len(rows)
    block = block_of(columns, (facets, common), listed, (of_numbers, ends), list(range(len(rows))))
    return block | {"band": f"{band:.1f}%"}


def _links(found: CampaignsCompared, row: Row, path: Path) -> list[tuple[str, str]]:
    """Return name and address of the pair's cell in the report of each campaign that has one."""
    sides = (("base", found.base, row.reference), ("test", found.test, row.cell))
    reports = ((name, report_of(side, path), cell) for name, side, cell in sides)
    return [(name, f"{report}#cell={quote(cell)}") for name, report, cell in reports if report]


def report_of(side: CampaignResults, path: Path) -> str | None:
    """Return the address of a campaign's report relative to a page; None if it has none, such as an imported file."""
    report = side.folder / "report.html"
    return address(*Path(os.path.relpath(report, path.parent)).parts) if report.is_file() else None


@dataclass(frozen=True)
class VerdictCounts:
    """A row of the table of verdicts. change: geometric mean and range of all pairs. address: of its name.

    by_verdict: number of pairs, change, and the address that filters the page to them.
    """

    name: str
    num: int
    change: str
    by_verdict: dict[str, tuple[int, str, str]]
    address: str = ""


def counted(rows: pd.DataFrame, name: str, filters: dict[str, str] | None = None, address: str = "") -> VerdictCounts:
    """Return a row of the table of verdicts. filters: of the page; None: it cannot be filtered."""
    by_verdict = {}
    for verdict in VERDICTS:
        of, query = rows[rows["verdict"] == verdict], {"status": verdict} | (filters or {})
        link = "" if filters is None else f"#cells&{urlencode(query)}"
        by_verdict[verdict] = len(of), changes_text(of), link
    return VerdictCounts(name, len(rows), changes_text(rows), by_verdict, address)


def counts_of(block: dict, judged: pd.DataFrame) -> dict[str, list[VerdictCounts]]:
    """Return the rows of the table of verdicts by heading: all pairs, then those of each benchmark and shape."""
    found = {"All": [counted(judged, "All pairs", {})]}
    for key, title in (("benchmark", "By benchmark"), ("shape", "By shape")):
        if facet := block["facets"].get(key):
            parts = (judged[[index == place for index in block["cells"][key]]] for place in range(len(facet["names"])))
            named = zip(parts, facet["values"], facet["names"], strict=True)
            of_row = texts.benchmark_words if key == "benchmark" else str
            found[title] = [counted(rows, of_row(text), {key: name}) for rows, text, name in named]
    return found


def changes_text(rows: pd.DataFrame) -> str:
    """Return the geometric mean of the ratios and their range in percent: `+12.1 (+11.6 to +12.6)`."""
    if not len(rows):
        return ""
    logs = np.log(rows["time_ratio"].astype(float))
    mean, low, high = (signed_percent(math.exp(log)) for log in (logs.mean(), logs.min(), logs.max()))
    return mean if len(rows) == 1 else f"{mean} ({low} to {high})"


def comparison_page(found: CampaignsCompared, path: Path, gate: tuple[str, str] | None = None) -> str:
    """Return a page on two campaigns. path: of the page, to which its links to reports are relative.

    gate: its result and what it is based on.
    """
    judged, comparisons = judged_rows(found.comparisons), found.comparisons
    order = {cell.id: place for place, cell in enumerate(found.test.campaign.cells)}
    planned = comparisons.sort_values("cell", key=lambda cells: cells.map(order))
    block = pairs_block(found, path)
    num, num_alone = len(found.environment), sum(map(len, found.unmatched.values()))
    of_gate = [("comparisons", "Gate", gate[0].removeprefix("gate: ").capitalize(), gate[1])] if gate else []
    return load_template("compare.html.j2").render(
        title=title_of(found),
        lead=texts.COMPARED,
        facts=[(name, campaign_text(side)) for name, side in (("Base", found.base), ("Test", found.test))],
        contents=[
            ("environment", "Environment", plural(num, "difference") if num else "", "quiet"),
            ("comparisons", "Comparisons", plural(len(judged), "pair"), "quiet"),
            ("cells", "All pairs", "", ""),
            ("unmatched", "Not compared", plural(num_alone, "cell") if num_alone else "", "quiet"),
        ],
        summary=[*of_gate, *statements(found)],
        environment=environment_tables(found.environment, "base", "test"),
        heads=VERDICTS,
        counts=counts_of(block, judged) if len(judged) else {},
        content={"matrices": ratio_matrices(planned, {})} if len(judged) else None,
        lists=names_and_lists(found)[1],
        block=block,
        cell_indices={cell: place for place, cell in enumerate(judged["cell"])},
        cell_data=encoded(block),
    )
