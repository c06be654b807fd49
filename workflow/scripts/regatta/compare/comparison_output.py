"""What compare.py says: a text, and a page of pairs of cells with the filters, drawer and table of the report."""

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, urlencode

import numpy as np
import pandas as pd

from regatta.compare.campaign_history import RatioAxis, changes_of
from regatta.compare.campaigns import CampaignResults, CampaignsCompared, difference_text, distinct_names
from regatta.compare.change_groups import ChangeGroup, all_cells, change_groups, group_figure, group_lines
from regatta.core.files import address
from regatta.core.text import UNKNOWN, change_text, duration, is_unknown, plural, signed_percent, three
from regatta.core.verdicts import verdict_text
from regatta.kit.columns import CELL_ID, TEXT, WHOLE, Column, Columns, Row, table_rows
from regatta.model.frozen import Cell, FrozenCell, names_by_id
from regatta.report.explore import add_facet, data_block, encoded, facet_of
from regatta.report.findings import Finding
from regatta.report.page import render
from regatta.report.panels import Figure
from regatta.store.csv_files import COLLECTED, make_table
from regatta.tables.facts import NOT_KNOWN
from regatta.tables.pairs import COMPARISONS, RATIO, by_effect, is_within_margin, judged_rows
from regatta.topics.base import ReportData, once_per_report
from regatta.topics.comparison import texts
from regatta.topics.comparison.comparison_figures import changes_figure, ratio_matrices
from regatta.topics.comparison.comparison_findings import KIND_OF, compared_findings
from regatta.topics.comparison.comparison_section import environment_table

MOST_LISTED = 10  # cells of a list in the text
MOST_CHANGES = 2  # of the environment of two campaigns that the summary states
BASIS = "Pairs"  # label of the statement on margin and precision
LABELS = {"verdicts": BASIS, "compared": "Difference", "environment": "Environment"}  # by kind of a finding
HOW_TO_READ = (
    "Ratio of times: above 1 is slower. [ ]: 95 % confidence interval; ( ): range. n: launches, test vs. base."
)
VERDICTS = {  # headings of the table of verdicts
    "faster": "Improved (faster)",
    "slower": "Regressed (slower)",
    "inconclusive": "Inconclusive",
    "equivalent": "Unchanged (equivalent)",
}
MEANS = "geometric mean over launches; in seconds in CSV files"
CHANGES = (
    "test / base \N{MINUS SIGN} 1 with its 95 % confidence interval [a, b] or range (a to b); positive: test is slower."
    " Bars: one logarithmic axis, margin shaded"
)
LAUNCHES = "launches; if unequal, test vs. base"
CORRECTED = "two-sided, over all pairs (Benjamini-Hochberg)"
SHOWN = {"is_shown": True}
OF_FAILURES, OF_CELLS = {"launch": TEXT, "log": TEXT}, {"cell": TEXT, "baseline": TEXT}  # columns that a block needs
NUMBERS = Columns(  # of the list, besides the verdict
    CELL_ID,
    Column(
        "time_ratio", "change in time (%)", shown_as="%", minus=1, text=change_text, key="change", **SHOWN, help=CHANGES
    ),
    Column(
        "reference_time_s",
        "time, base",
        text=lambda row: duration(row.reference_time_s),
        key="base",
        **SHOWN,
        help=MEANS,
    ),
    Column("time_s", "time, test", text=lambda row: duration(row.time_s), key="test", **SHOWN, help=MEANS),
    Column("num_launches", "n", WHOLE, text=texts.launches_text, key="n", **SHOWN, help=LAUNCHES),
    Column("time_ratio", "ratio, test / base", text=texts.interval_text, key="ratio"),
    Column("p_adjusted", "p, corrected", text=lambda row: p_text(row.p_adjusted), key="p_adjusted", help=CORRECTED),
)


def comparison_text(compared: list[CampaignsCompared], shows_all: bool = False) -> str:
    """Return the text on campaigns, each compared with the first one. shows_all: no row folded, no list cut."""
    names = ["test"] if len(compared) == 1 else distinct_names(compared[0].base, *(of.test for of in compared))[1:]
    lines = [f"base: {campaign_text(compared[0].base)}"]
    lines += [f"{name}: {campaign_text(of.test)}" for name, of in zip(names, compared, strict=True)]
    for name, of in zip(names, compared, strict=True):
        lines += ["", *([f"{name} (test) vs. base"] if len(compared) > 1 else []), *_lines(of, shows_all)]
    return "\n".join(lines) + "\n"


def _lines(found: CampaignsCompared, shows_all: bool) -> list[str]:
    """Return the lines on two campaigns."""
    rows, is_within = found.comparisons, is_within_margin(found.comparisons)
    names, lists = names_and_lists(found)
    rows = rows.assign(full_name=names)
    listed = rows if shows_all else rows[~is_within]
    lines = [
        lead + (". " if text[:1].isupper() else "; " * bool(text)) + text for _, _, lead, text in statements(found)
    ]
    lines += [f"  {difference_text(difference, 'in base', 'in test')}" for difference in found.environment or ()]
    lines += [f"Note: {found.fallback}."] if found.fallback else []
    if len(listed):
        heads = ("cell", "base", "test", "test/base", "n", "verdict")
        lines += [HOW_TO_READ, "", *aligned([heads, *map(_texts, table_rows(listed))])]
    if len(listed) < len(rows):
        folded = rows.loc[is_within, "verdict"].value_counts().sort_index()
        words = ", ".join(f"{num} {word}" for word, num in folded.items())
        num = plural(folded.sum(), "row")
        lines += ["", f"Not shown: {num} with a ratio within the margin ({words}). --all shows them."]
    for title, items in lists.items():
        most = len(items) if shows_all else MOST_LISTED
        lines += ["", title, *(f"  {item}" for item in items[:most])]
        lines += [f"  ... and {len(items) - most} more"] if len(items) > most else []
    return lines


@once_per_report
def names_and_lists(found: CampaignsCompared) -> tuple[list[str], dict[str, list[str]]]:
    """Return the names of the compared cells, distinct from all others, and lists of what is not compared by title."""
    compared = [found.test.campaign.by_id[cell] for cell in found.comparisons["cell"]]
    cells = [cell for group in (compared, *found.unmatched.values()) for cell in group]
    names, devices = names_by_id(cells), {cell.device for cell in cells}

    def name(cell: Cell) -> str:
        return names[cell.id].full + (f" · {cell.device}" if len(devices) > 1 else "")

    lists = {"Not compared, because they differ in one field": found.fields} if found.fields else {}
    for reason, group in found.unmatched.items():
        lists[f"{reason}: {plural(len(group), 'cell')}"] = list(map(name, group))
    return list(map(name, compared)), lists


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Return rows as lines: the first and the last column to the left, the others to the right."""
    *widths, last = [max(map(len, column)) for column in zip(*rows, strict=True)]
    forms = [f"<{widths[0]}", *(f">{width}" for width in widths[1:]), f"<{last}"]
    return ["  ".join(map(format, row, forms)).rstrip() for row in rows]


@once_per_report
def statements(found: CampaignsCompared) -> list[tuple[str, str, str, str]]:
    """Return anchor, label, lead and text of each finding: the verdicts, what differs in times, and in environments."""
    judged = texts.with_labels(judged_rows(found.comparisons))
    names = [of.name for of in found.environment or () if not of.name.startswith(NOT_KNOWN)]
    words = {"num": len(names), "names": names, "unknown": "no launch files" if found.environment is None else ""}
    findings = [*compared_findings(judged, found.launches)[::-1], Finding("environment", words, (), (), "environment")]
    found_texts = [(f, *KIND_OF[f.kind].words(f.values | f.words)) for f in findings]
    said = [
        (f.anchor, LABELS[f.kind], f"{lead[:1].upper()}{lead[1:].removesuffix('.')}", text)
        for f, lead, text in found_texts
    ]
    return [
        *said[:-1],
        *([("comparisons", "Gate", "A gate would decide differently", found.gate)] if found.gate else []),
        said[-1],
    ]


def _texts(row) -> tuple[str, ...]:
    times = duration(row.reference_time_s), duration(row.time_s)
    return row.full_name, *times, texts.interval_text(row), texts.launches_text(row), texts.verdict_text(row)


def campaign_text(side: CampaignResults) -> str:
    """Return name and folder of a campaign, its size and its time."""
    ok = side.measurements[side.measurements["status"] == "ok"]
    size = f"{plural(ok['cell'].nunique(), 'cell')} in {plural(ok['launch'].nunique(), 'launch', 'launches')}"
    notes = "".join(f". Note: {note}" for note in side.notes)
    return f"{side.campaign.name} ({side.folder}, {size}, first record {side.first_time_utc or UNKNOWN}){notes}"


# The page.


def p_text(p_value: float) -> str:
    return three(p_value) if p_value >= 1e-4 else "< 0.0001"


def strip(axis: RatioAxis, row: Row) -> str:
    """Return the style of a row's strip (explore.css): a line from end to end, and a mark at the ratio."""
    ends = (row.time_ratio,) * 2 if is_unknown(row.time_low_ratio) else (row.time_low_ratio, row.time_high_ratio)
    low, middle, high = map(axis.percent, (ends[0], row.time_ratio, ends[1]))
    return f"--low:{low:g}%;--from:{middle:g}%;--to:{middle:g}%;--high:{high:g}%"


def axis_of(judged: pd.DataFrame) -> RatioAxis:
    """Return the axis of some rows, with all ratios and ends of intervals, so that no bar is cut off."""
    ends = judged[list(RATIO.names)].to_numpy(float)
    return RatioAxis.of(ends[~np.isnan(ends)].tolist(), float(judged["margin_ratio"].max()))


def pairs_of(compared: list[CampaignsCompared]) -> pd.DataFrame:
    """Return the pairs of all comparisons, the largest effect first. compared: each campaign with the first one.

    pair: id on the page. full_name: of the cell. campaign, place: of the comparison. order: in the campaign file.
    """
    names, tables = distinct_names(compared[0].base, *(of.test for of in compared)), []
    for place, of in enumerate(compared):
        rows, name = of.comparisons, names[place + 1]
        order = {cell.id: number for number, cell in enumerate(of.test.campaign.cells)}
        fields = {"pair": rows["cell"], "full_name": names_and_lists(of)[0], "order": rows["cell"].map(order)}
        if len(compared) > 1:
            fields |= {"value": name, "reference_value": names[0], "pair": f"{place + 1}-" + rows["cell"]}
        tables.append(rows.assign(place=place, campaign=name, **fields))
    return by_effect(pd.concat(tables, ignore_index=True))


def pairs_block(compared: list[CampaignsCompared], pairs: pd.DataFrame, path: Path) -> dict:
    """Return the data of the page's script, with a pair for each cell. pairs: of `pairs_of`. path: of the page."""
    judged = judged_rows(pairs)
    rows = table_rows(judged)
    block = data_block(_as_cells(compared, judged))
    verdicts = [word for word in VERDICTS if (judged["verdict"] == word).any()]
    facet = {"label": "Verdict", "values": verdicts, "names": verdicts}
    add_facet(block, "status", facet | {"indices": [verdicts.index(row.verdict) for row in rows]})
    settings = [of for of in block["columns"] if of["group"] == "settings" and not of["key"].startswith("num_")]
    numbers = [of for of in block["columns"] if of["group"] != "settings"]
    if len(compared) > 1:
        add_facet(block, "campaign", facet_of("Campaign", list(judged["campaign"])))
        settings.insert(2, {"key": "campaign", "label": "Campaign", "kind": "facet", "group": "settings"})
    for of in settings:
        of |= {"label": block["facets"].get(of["key"], of)["label"], "is_shown": of["key"] in ("name", "campaign")}
    entry = {"kind": "text", "is_shown": True}
    verdict = {"key": "verdict", "label": "Verdict", "group": "results", "is_larger_worse": True} | entry
    block["columns"] = [*settings, verdict, *numbers]
    block["cells"] |= {"name": list(judged["full_name"]), "verdict": list(map(verdict_text, rows))}
    block["texts"] |= {"verdict": block["cells"]["verdict"], "main": list(map(texts.row_text, rows))}
    block["ends"]["verdict"] = [None] * len(rows)
    band = 0.0
    if rows:
        axis = axis_of(judged)
        band, numbers[0]["strips"] = 50 * axis.margin / axis.end, [strip(axis, row) for row in rows]
    links = [_links(compared[row.place], row, path) for row in rows]
    if any(links):
        block["cells"]["reports"] = [None] * len(rows)
        reports = {"key": "reports", "label": "Reports", "group": "links", "links": links}
        block["columns"].append(reports | entry | {"help": "the cell in the report of each campaign"})
    return block | {"order": list(range(len(rows))), "band": f"{band:.1f}%"}


def _as_cells(compared: list[CampaignsCompared], judged: pd.DataFrame) -> ReportData:
    """Return pairs as the cells of a report without measurements. judged: rows of `pairs_of`."""
    rows = ((compared[row.place].test.campaign.by_id[row.cell], row.pair) for row in table_rows(judged))
    cells = tuple(FrozenCell(pair, cell.spec) for cell, pair in rows)
    campaign = replace(compared[0].test.campaign, cells=cells, skipped=())
    columns = COLLECTED | {"failures": OF_FAILURES, "cells": OF_CELLS, "comparisons": COMPARISONS}
    tables = {name: make_table([], of) for name, of in columns.items()}
    tables["pairs"] = judged.assign(cell=judged["pair"])
    declared = {"pairs": NUMBERS, "comparisons": COMPARISONS}
    return ReportData(campaign, tables, [], {}, Path(), columns=declared)


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


def counts_of(judged: pd.DataFrame, reports: dict[str, str | None]) -> list[VerdictCounts]:
    """Return the rows of the table of verdicts: all pairs; of several campaigns, those of each.

    reports: their addresses by name.
    """
    if len(reports) > 1:
        parts = ((name, judged[judged["campaign"] == name]) for name in reports)
        return [_counted(rows, name, {"campaign": name}, reports[name]) for name, rows in parts]
    return [_counted(judged, "All pairs", {})]


def _counted(rows: pd.DataFrame, name: str, filters: dict[str, str], address: str | None = None) -> VerdictCounts:
    """Return a row of the table of verdicts. filters: of the page."""
    by_verdict = {}
    for verdict in VERDICTS:
        of = rows[rows["verdict"] == verdict]
        by_verdict[verdict] = len(of), changes_text(of), f"#cells&{urlencode({'status': verdict} | filters)}"
    return VerdictCounts(name, len(rows), changes_text(rows), by_verdict, address or "")


def changes_text(rows: pd.DataFrame) -> str:
    """Return the geometric mean of the ratios and their range in percent: `+12.1 (+11.6 to +12.6)`."""
    if not len(rows):
        return ""
    logs = np.log(rows["time_ratio"].astype(float))
    mean, low, high = (signed_percent(math.exp(log)) for log in (logs.mean(), logs.min(), logs.max()))
    return mean if len(rows) == 1 else f"{mean} ({low} to {high})"


def page_summary(
    groups: list[ChangeGroup],
    judged: pd.DataFrame,
    compared: list[CampaignsCompared],
    names: list[str],
    changes: list[list[str] | None],
) -> list[tuple[str, str, str, str]]:
    """Return anchor, label, lead and text: what changed alike, what else, and environments.

    names, changes: of the campaigns, and of their environments.
    """
    of_last = {label: (anchor, label, *more) for anchor, label, *more in statements(compared[-1])}
    of_last.pop(BASIS, None)
    found = group_lines(groups, judged, names, changes) if groups or len(compared) > 1 else []
    environment = of_last.pop("Environment")
    if len(compared) > 1:
        changed = [name for name, of in zip(names, changes, strict=True) if of]
        lead = f"Changed in {', '.join(changed)}" if changed else "No change was recorded"
        environment = (*environment[:2], lead, "")
    elif changes[1] and len(changes[1]) <= MOST_CHANGES:
        environment = (*environment[:2], "; ".join(changes[1]), "")
    of_last.pop("Difference", None) if found else None
    is_said = any(lead.startswith(f"{environment[2]}: ") for _, _, lead, _ in found)
    return [*found, *of_last.values(), *([] if is_said else [environment])]


def first_figures(
    groups: list[ChangeGroup], judged: pd.DataFrame, names: list[str], changes: list[list[str] | None]
) -> list[Figure]:
    """Return the figures of the page, the first for the first screen: of pairs, or of groups over campaigns.

    names, changes: of the campaigns, and of their environments.
    """
    if not len(judged):
        return []
    if len(names) == 2:
        return [changes_figure(judged)]
    return [group_figure(group, names, changes, place) for place, group in enumerate(groups or [all_cells(judged)])]


def comparison_page(compared: list[CampaignsCompared], path: Path, gate: tuple[str, str] | None = None) -> str:
    """Return a page on campaigns, each compared with the first one. path: of the page, to which its links are relative.

    gate: its result and what it is based on.
    """
    found, pairs = compared[-1], pairs_of(compared)
    judged, block = judged_rows(pairs), pairs_block(compared, pairs, path)
    planned = pairs.assign(cell=pairs["pair"]).sort_values(["place", "order"])
    environment = environment_table("Environment differences", found.environment, "base", "test")
    matrices, is_series = ratio_matrices(planned, {}), len(compared) > 1
    groups, campaigns = change_groups(compared, judged), [found.base, *(of.test for of in compared)]
    names, changes = distinct_names(*campaigns), changes_of(campaigns)
    figures = first_figures(groups, judged, names, changes)
    of_campaigns = [(f"{name}: " * is_series, of) for name, of in zip(names[1:], compared, strict=True)]
    num, word = sum(not of.name.startswith(NOT_KNOWN) for of in found.environment or ()), "difference"
    if is_series:
        num, word = sum(map(bool, changes)), "change"
    num_alone = sum(len(cells) for of in compared for cells in of.unmatched.values())
    contents = [
        ("environment", "Environment", plural(num, word) if num else "", "quiet"),
        ("comparisons", "Comparisons", plural(len(judged), "pair"), "quiet"),
        ("cells", "All pairs", "", ""),
        ("unmatched", "Not compared", plural(num_alone, "cell") if num_alone else "", "quiet"),
    ]
    title = f"{names[0]} (base) to {names[-1]}: {len(names)} campaigns"
    of_gate = [("comparisons", "Gate", gate[0].removeprefix("gate: ").capitalize(), gate[1])] if gate else []
    reports = {name: report_of(of.test, path) for name, of in zip(names[1:], compared, strict=True)}
    most_changed = max(
        reversed(matrices), key=lambda of: sum(one.level is not None for one in of.squares), default=None
    )
    return render(
        "compare.html.j2",
        title=title if is_series else " vs. ".join(names[::-1]),
        lead=texts.COMPARED,
        facts=list(zip(["Base", *(names[1:] if is_series else ["Test"])], map(campaign_text, campaigns), strict=True)),
        contents=contents,
        summary=[*of_gate, *page_summary(groups, judged, compared, names, changes)],
        basis=[
            f"{names[-1]} vs. {names[0]}: {lead}. {text}" for _, *of, lead, text in statements(found) if BASIS in of
        ],
        has_notes=any(of.notes for of in campaigns),
        headline=figures[:1],
        figures=figures[1:],
        environment=environment and replace(environment, sources=()),  # of which the page has none
        heads=VERDICTS,
        counts=counts_of(judged, reports) if len(judged) else [],
        content={"matrices": [replace(of, fold="" if of is most_changed else of.label) for of in matrices]},
        names=names,
        changes=changes if is_series else [],
        lists={name + title: items for name, of in of_campaigns for title, items in names_and_lists(of)[1].items()},
        block=block,
        cell_indices={pair: place for place, pair in enumerate(judged["pair"])},
        cell_data=encoded(block),
    )
