"""Launches and nodes that were slow in most of their cells, and cells on a busy machine. docs/metrics.md.

Table slow_launches.csv. A slow launch increases the variation of all its cells, so it comes before any list of cells.
"""

from collections import defaultdict
from collections.abc import Iterable

import pandas as pd

from regatta.core.statistics import fast_median
from regatta.core.text import natural, plural, shape
from regatta.kit.columns import FLAG, REAL, TEXT, WHOLE, Columns, in_file
from regatta.report.findings import Advice, Finding, of_rows, of_runs, percent_number
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.topics.base import ReportData, TableSpec, Topic, grouped, once_per_report, plain_rows, with_primary

SLOW_FACTOR = 1.5  # beyond the median of the cell's other launches; chance: tests/figures/slow_launch_errors.py
MIN_CELLS = 3  # slow ones
MIN_OTHERS = 2  # other launches of a cell; with one, it is unknown which of the two is slow
MIN_LAUNCHES_OF_NODE = 2  # with one, the launch is reported
LOADED_RATIO = 0.25  # CPU share of other processes above which a measurement or timeout is on a busy machine
LOADED_LEAST_RATIO = 0.1  # share of such measurements outside slow launches; fewer are not listed
TAKEN_RATIO = 0.05  # CPU steal or CPU throttling; less is not listed
MOST_NAMED = 2  # in the summary
LOADS = ("other_processes_ratio", "steal_ratio", "throttled_ratio")
_RATIOS = "time / median of the cell's other launches: median over cells; smallest and largest of the slow cells"
SLOW_LAUNCHES = Columns(
    *in_file(TEXT, "the launch; empty for a node", "launch"),
    *in_file(WHOLE, "its repeat", "repeat"),
    *in_file(TEXT, "the node; empty for a launch", "host"),
    *MEASUREMENTS.named("nodes", "gpus_per_node", "stack"),
    *in_file(WHOLE, "cells compared, and those in which it was slow", "num_cells", "num_slow"),
    *in_file(REAL, _RATIOS, "median_ratio", "low_ratio", "high_ratio"),
    *in_file(FLAG, "slow in more than half of the cells, and in at least three", "is_slow"),
    *in_file(REAL, "medians of these loads over the slow cells, over all if none is slow", *LOADS),
)
USED = ("cell", "launch", "repeat", "hosts", "nodes", "gpus_per_node", "stack", "loaded_host", "primary_s")


def slow_launches_table(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each launch with comparable cells, then one for each node with such cells."""
    cells = grouped(plain_rows(with_primary(measurements), (*USED, *LOADS)), ("cell",)).values()
    by_launch: dict[str, list[dict]] = defaultdict(list)
    by_host: dict[str, list[dict]] = defaultdict(list)
    for rows in cells:
        for launch, compared in _compared(rows, [(row["launch"],) for row in rows]):
            by_launch[launch].append(compared)
        if len({row["hosts"] for row in rows}) > 1:  # else no launch was elsewhere
            for host, compared in _compared(rows, [row["hosts"].split(", ") if row["hosts"] else () for row in rows]):
                by_host[host].append(compared)
    launches = sorted(by_launch.items(), key=lambda item: (item[1][0]["rows"][0]["repeat"], natural(item[0])))
    found = [_of_launch(launch, compared) for launch, compared in launches]
    for host, compared in sorted(by_host.items(), key=lambda item: natural(item[0])):
        num = len({row["launch"] for one in compared for row in one["rows"]})
        found += [_row(compared, host) | {"host": host}] if num >= MIN_LAUNCHES_OF_NODE else []
    return make_table(found, SLOW_LAUNCHES)


def _compared(rows: list[dict], places: list[Iterable[str]]) -> Iterable[tuple[str, dict]]:
    """Yield, for one cell, each launch or host with MIN_OTHERS launches elsewhere, with its rows there and their ratio.

    rows: ok ones of the cell. places: those of each row.
    """
    found: dict[str, list[int]] = defaultdict(list)
    for index, of_row in enumerate(places):
        for place in of_row:
            found[place].append(index)
    known: dict[tuple[int, ...], dict] = {}  # hosts of one launch share their rows
    for place, indices in found.items():
        if len(rows) - len(indices) >= MIN_OTHERS:
            if (key := tuple(indices)) not in known:
                here = [rows[index] for index in indices]
                others = [row["primary_s"] for index, row in enumerate(rows) if index not in indices]
                ratio = fast_median([row["primary_s"] for row in here]) / fast_median(others)
                known[key] = {"rows": here, "ratio": ratio}
            yield place, known[key]


def _of_launch(launch: str, compared: list[dict]) -> dict:
    row = compared[0]["rows"][0]
    return _row(compared) | {"launch": launch} | {name: row[name] for name in SLOW_LAUNCHES if name in USED[2:]}


def _row(compared: list[dict], host: str | None = None) -> dict:
    """Return the columns of a launch or host. Loads are medians over its slow cells, or over all if none is slow.

    Loads of a host are from records in which it was the most loaded one.
    """
    ratios = [one["ratio"] for one in compared]
    slow = [ratio for ratio in ratios if ratio > SLOW_FACTOR]
    used = [row for one in compared if not slow or one["ratio"] > SLOW_FACTOR for row in one["rows"]]
    used = [row for row in used if host in (None, row["loaded_host"])]
    loads = {name: [row[name] for row in used if row[name] is not None] for name in LOADS}
    return {
        "num_cells": len(ratios),
        "num_slow": len(slow),
        "median_ratio": fast_median(ratios),
        "low_ratio": min(slow, default=None),
        "high_ratio": max(slow, default=None),
        "is_slow": len(slow) >= MIN_CELLS and 2 * len(slow) > len(ratios),
        **{name: fast_median(values) if values else None for name, values in loads.items()},
    }


@once_per_report
def findings(data: ReportData) -> list[Finding]:
    """Return slow nodes, then slow launches on other nodes, then measurements and timeouts on a busy machine."""
    table = data.tables["slow_launches"]
    slow = table[table["is_slow"]]
    nodes = set(slow["host"].dropna())
    runs = data.ok[["cell", "launch", "hosts"]]
    hosts_of = dict(zip(runs["launch"], runs["hosts"].fillna("").str.split(", "), strict=True))
    found = []
    for index in [*slow.index[slow["host"].notna()], *slow.index[slow["host"].isna()]]:
        [row] = plain_rows(slow.loc[[index]], tuple(SLOW_LAUNCHES))
        if row["host"] is None and nodes & set(hosts_of.get(row["launch"], ())):
            continue
        is_here = [row["host"] in hosts for hosts in runs["hosts"].fillna("").str.split(", ")]
        cells = runs["cell"][is_here if row["host"] else runs["launch"] == row["launch"]]
        values = {name: value for name, value in row.items() if name != "is_slow"}
        values["name"] = f"node {row['host']}" if row["host"] else _name_of(row, hosts_of, data)
        kind = "slow_node" if row["host"] else "slow_launch"
        sources = (of_rows("slow_launches", slow.loc[[index]]),)
        found.append(Finding(kind, values, sources, tuple(cells.unique()), "warnings"))
    return [*found, *_loaded(data, slow), *_loaded_timeouts(data)]


def _name_of(row: dict, hosts_of: dict[str, list[str]], data: ReportData) -> str:
    """Return `launch 1`, with shape, stack and nodes where launches of the campaign differ in them."""
    specs = [cell["spec"] for cell in data.campaign["cells"]]
    parts = []
    if len({(spec["nodes"], spec["gpus_per_node"]) for spec in specs}) > 1:
        parts.append(shape(row["nodes"], row["gpus_per_node"]))
    if len({spec["stack"]["name"] for spec in specs}) > 1:
        parts.append(f"stack {row['stack']}")
    if data.campaign.get("sweep"):
        parts.append(f"on {', '.join(hosts_of[row['launch']])}")
    return f"launch {row['repeat'] + 1}" + (f" ({', '.join(parts)})" if parts else "")


def _loaded(data: ReportData, slow: pd.DataFrame) -> list[Finding]:
    """Return the finding on measurements on a busy machine outside slow launches: if all are, no launch stands out."""
    ok = data.ok[~data.ok["launch"].isin(slow["launch"].dropna())]
    loaded = ok[(ok["other_processes_ratio"] > LOADED_RATIO).fillna(False)]
    if len(loaded) < max(1, LOADED_LEAST_RATIO * len(ok)):
        return []
    values = {"num": len(loaded), "num_ok": len(ok), "num_in_slow_launches": len(data.ok) - len(ok)}
    values["other_processes_ratio"] = float(loaded["other_processes_ratio"].median())
    rows = of_runs("measurements", loaded, loaded["other_processes_ratio"].idxmax())
    return [Finding("loaded_measurements", values, (rows,), tuple(loaded["cell"].unique()), "warnings")]


def _loaded_timeouts(data: ReportData) -> list[Finding]:
    """Return the finding on timeouts on a busy machine, which may be the cause."""
    late = data.measurements[data.measurements["status"] == "timeout"]
    loaded = late[(late["other_processes_ratio"] > LOADED_RATIO).fillna(False)]
    if loaded.empty:
        return []
    values = {"num": len(loaded), "num_timeouts": len(late)}
    values["other_processes_ratio"] = float(loaded["other_processes_ratio"].median())
    return [
        Finding(
            "loaded_timeouts", values, (of_runs("measurements", loaded),), tuple(loaded["cell"].unique()), "warnings"
        )
    ]


def clause(finding: Finding) -> str:
    """Return a finding as one clause: `launch 1 took 4-23x as long as the other launches in 5 of 6 cells; ...`."""
    values = finding.values
    others = f"other processes used {percent_number(values['other_processes_ratio'] or 0)} % of the CPU time"
    if finding.kind == "loaded_timeouts":
        return f"{values['num']} of {plural(values['num_timeouts'], 'timeout')} on a busy machine: {others}"
    if finding.kind == "loaded_measurements":
        outside = " outside slow launches" if values["num_in_slow_launches"] else ""
        of_all = f"{values['num']} of {plural(values['num_ok'], 'measurement')}{outside}"
        return f"{of_all} ran on a busy machine: {others} (median)"
    low, high = (_factor(values[name]) for name in ("low_ratio", "high_ratio"))
    span = low if low == high else f"{low}\N{EN DASH}{high}"
    compared = "the other nodes" if finding.kind == "slow_node" else "the other launches"
    of_cells = f"{values['num_slow']} of {plural(values['num_cells'], 'cell')}"
    parts = [f"{values['name']} took {span}\N{MULTIPLICATION SIGN} as long as {compared} in {of_cells}"]
    if values["other_processes_ratio"] is not None:
        parts.append(others)
    if (values["steal_ratio"] or 0) >= TAKEN_RATIO:
        parts.append(f"CPU steal {percent_number(values['steal_ratio'])} %")
    if (values["throttled_ratio"] or 0) >= TAKEN_RATIO:
        parts.append(f"CPU throttling (cgroup limit) {percent_number(values['throttled_ratio'])} %")
    return "; ".join(parts)


def _factor(ratio: float) -> str:
    """Return a factor with the digits that matter: 1.6, 4, 23."""
    return f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.1f}".removesuffix(".0")


def sentence(finding: Finding) -> str:
    text = clause(finding)
    return f"{text[0].upper()}{text[1:]}."


def summary(data: ReportData) -> tuple[list[str], dict]:
    """Return texts for the line on confidence, and its values: of slow nodes and launches, and of a busy machine."""
    slow = [finding for finding in findings(data) if finding.kind in ("slow_node", "slow_launch")]
    more = [f"{len(slow) - MOST_NAMED} more slow launches or nodes"] if len(slow) > MOST_NAMED else []
    loaded = [finding for finding in findings(data) if finding.kind == "loaded_measurements"]
    values = {"slow_launches": [finding.values for finding in slow]} if slow else {}
    values |= {finding.kind: finding.values for finding in loaded}
    return [*map(clause, slow[:MOST_NAMED]), *more, *map(clause, loaded)], values


def timeouts_on_busy_machine(data: ReportData) -> tuple[str, dict]:
    """Return text and values of timeouts on a busy machine, for the line on failures; empty without any."""
    found = [finding for finding in findings(data) if finding.kind == "loaded_timeouts"]
    return (clause(found[0]), {"loaded_timeouts": found[0].values}) if found else ("", {})


ADVICE = {
    "slow_launch": "Check for other programs, a second campaign, or reduced clocks at that time. With more launches"
    " (repeats), medians are barely affected by one. To exclude it, measure again under a new campaign name.",
    "slow_node": "Check the node: other programs, clocks, temperatures. Exclude it (exclude_nodes), or measure all"
    " nodes one by one (sweep: nodes).",
    "loaded_measurements": "Other programs increase times and between-launch variation. Stop them and measure again"
    " under a new campaign name.",
    "loaded_timeouts": "Run one campaign at a time and stop other programs; then retry with --forcerun measure, or"
    " raise cell_seconds.",
}


def warnings(data: ReportData) -> list[Advice]:
    return [
        Advice(sentence(finding), ADVICE[finding.kind], finding.sources, finding.values, finding.cells)
        for finding in findings(data)
    ]


def methods(campaign: dict) -> list[tuple[str, str]]:
    text = (
        f"A launch or node is slow if more than half of its cells, and at least {MIN_CELLS}, took more than"
        f" {SLOW_FACTOR:g} times the median of the cell's other launches ({MIN_OTHERS} or more). The value of a launch"
        " is its pipelined time per step or call, else the median of its samples. Other processes: the share of the"
        " host's CPU time that processes other than the ranks used. Shown: the median over the slow cells, on the most"
        " loaded host."
    )
    return [("Slow launch", text)]


TABLES = {"slow_launches": TableSpec(SLOW_LAUNCHES, lambda _, tables: slow_launches_table(tables["measurements"]))}
TOPIC = Topic(
    *("slow_launches", "Warnings", TABLES, None, findings, sentence, warnings, methods),
    is_of_sweeps=True,
)
