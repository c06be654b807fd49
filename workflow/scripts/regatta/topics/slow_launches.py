"""Launches and nodes that were slow in most of their cells, and cells on a busy machine. docs/metrics.md.

Table slow_launches.csv. A slow launch increases the variation of all its cells, so it comes before any list of cells.
"""

from collections import defaultdict
from collections.abc import Iterable

import pandas as pd

from regatta.core.statistics import fast_median
from regatta.core.text import natural, shape
from regatta.kit.columns import FLAG, REAL, TEXT, WHOLE, Columns, in_file
from regatta.kit.findings import FAIR, LOW, NOTE, Kind
from regatta.report.findings import Finding, of_rows, of_runs, percent_number
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.topics.base import ReportData, TableSpec, Topic, grouped, once_per_report, plain_rows, with_primary

SLOW_FACTOR = 1.5  # beyond the median of the cell's other launches; chance: tests/figures/slow_launch_errors.py
MIN_CELLS = 3  # slow ones
MIN_OTHERS = 2  # other launches of a cell; with one, it is unknown which of the two is slow
MIN_LAUNCHES_OF_NODE = 2  # with one, the launch is reported
LOADED_RATIO = 0.25  # CPU share of other processes above which a measurement or timeout is on a busy machine
LOADED_LEAST_RATIO = 0.1  # share of such measurements outside slow launches; fewer are not listed
TAKEN_RATIO = 0.05  # CPU steal or CPU throttling; less is not listed
LOADS = {"other_processes_ratio": 0, "steal_ratio": TAKEN_RATIO, "throttled_ratio": TAKEN_RATIO}  # least shown
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
    names = [name for name in SLOW_LAUNCHES if name in USED]
    found = [_row(compared) | {name: compared[0]["rows"][0][name] for name in names} for _, compared in launches]
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
    slow = table.assign(is_launch=table["host"].isna())[table["is_slow"]]
    slow = slow.sort_values(["is_launch", "median_ratio"], ascending=[True, False], kind="stable")
    runs = data.ok[["cell", "launch", "hosts"]]
    hosts_of = runs["hosts"].fillna("").str.split(", ")
    by_launch, found = dict(zip(runs["launch"], hosts_of, strict=True)), []
    for index, row in zip(slow.index, plain_rows(slow, tuple(table)), strict=True):
        del row["is_slow"]
        if row["host"]:
            kind, name = "slow_node", f"node {row['host']}"
            is_here = [row["host"] in hosts for hosts in hosts_of]
        elif set(slow["host"].dropna()).isdisjoint(by_launch.get(row["launch"], ())):
            kind, name, is_here = "slow_launch", _name_of(row, by_launch, data), runs["launch"] == row["launch"]
        else:
            continue
        span = dict.fromkeys(_factor(row[end]) for end in ("low_ratio", "high_ratio"))
        words = _loads(row) | {"span": "\N{EN DASH}".join(span)}
        source, cells = of_rows("slow_launches", slow.loc[[index]]), tuple(runs.loc[is_here, "cell"].unique())
        found.append(Finding(kind, row | {"name": name}, (source,), cells, "warnings", words))
    # If all launches are disturbed, none is slow.
    ok = data.ok[~data.ok["launch"].isin(slow["launch"].dropna())]
    values = {"num_ok": len(ok), "num_in_slow_launches": len(data.ok) - len(ok)}
    found += _on_busy_machine("loaded_measurements", ok, LOADED_LEAST_RATIO * len(ok), values)
    late = data.measurements[data.measurements["status"] == "timeout"]
    return [*found, *_on_busy_machine("loaded_timeouts", late, 0, {"num_timeouts": len(late)})]


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


def _loads(values: dict) -> dict[str, str]:
    known = {name: values.get(name) for name in LOADS}
    return {
        name: "" if ratio is None or ratio < LOADS[name] else f"{percent_number(ratio)} %"
        for name, ratio in known.items()
    }


def _factor(ratio: float) -> str:
    """Return a factor with the digits that matter: 1.6, 4, 23."""
    return f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.1f}".removesuffix(".0")


def _on_busy_machine(kind: str, rows: pd.DataFrame, least: float, values: dict) -> list[Finding]:
    """Return the finding on rows of measurements.csv on a busy machine, the most loaded one first, if there are any."""
    loaded = rows[(rows["other_processes_ratio"] > LOADED_RATIO).fillna(False)]
    if len(loaded) < max(1, least):
        return []
    others = loaded["other_processes_ratio"]
    values = {"num": len(loaded)} | values | {"other_processes_ratio": float(others.median())}
    source = of_runs("measurements", loaded, others.idxmax())
    return [Finding(kind, values, (source,), tuple(loaded["cell"].unique()), "warnings", _loads(values))]


# More than half of the cells of a slow launch or node vary by over 50 %, and by 5 % confidence is low. Load alone may
# not have changed the times: fair. A timeout leaves no time to compare.
SLOW = "Slow {name}: {span}\N{MULTIPLICATION SIGN} as long as the other %s in {num_slow} of {num_cells:cell}"
OTHERS = "other processes used {other_processes_ratio} of the CPU time"
TAKEN = ("CPU steal: {steal_ratio}.", "CPU throttling (cgroup limit): {throttled_ratio}.")
KINDS = (
    Kind(
        *("slow_node", LOW, (f"{SLOW % 'nodes'}; {OTHERS}.", f"{SLOW % 'nodes'}."), TAKEN),
        advice="Check the node: other programs, clocks, temperatures. Exclude it (exclude_nodes), or measure all nodes"
        " one by one (sweep: nodes).",
        next_step="exclude the slow node: `exclude_nodes: [{host}]`",
    ),
    Kind(
        *("slow_launch", LOW, (f"{SLOW % 'launches'}; {OTHERS}.", f"{SLOW % 'launches'}."), TAKEN),
        advice="Check for other programs, a second campaign, or reduced clocks at that time. A single launch cannot be"
        " excluded: measure again under a new campaign name.",
        next_step="{name} is slow: measure again under a new `name`",
        term="Slow launch",
        help=f"A launch or node is slow if more than half of its cells, and at least {MIN_CELLS}, took more than"
        f" {SLOW_FACTOR:g} times the median of the cell's other launches ({MIN_OTHERS} or more), by their primary time."
        " Other processes: the share of the host's CPU time that processes other than the ranks used. Shown: the median"
        " over the slow cells, on the most loaded host.",
    ),
    Kind(
        *("loaded_measurements", FAIR, f"Busy machine: {OTHERS} (median) in {{num}} of {{num_ok:measurement}}."),
        parts=("{num_in_slow_launches:more measurement} in slow launches.",),
        advice="Other programs increase times and between-launch variation. Stop them and measure again under a new"
        " campaign name.",
        next_step="stop other programs; measure again under a new `name`",
    ),
    Kind(
        *("loaded_timeouts", NOTE, f"Busy machine: {OTHERS} (median) in {{num}} of {{num_timeouts:timeout}}."),
        advice="Run one campaign at a time and stop other programs; then retry with --forcerun measure, or raise"
        " cell_seconds.",
        next_step="stop other programs; retry: `snakemake --forcerun measure`",
    ),
)
TABLES = {"slow_launches": TableSpec.of(SLOW_LAUNCHES, slow_launches_table, "measurements")}
TOPIC = Topic(*("slow_launches", "Warnings", TABLES, None, findings), is_of_sweeps=True, is_judge=True, kinds=KINDS)
