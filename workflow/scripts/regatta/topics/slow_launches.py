"""Launches and nodes that were slow in most of their cells, and cells on a busy machine. docs/metrics.md.

Table slow_launches.csv. A slow launch increases the variation of all its cells, so it comes before any list of cells.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pandas as pd

from regatta.core.moderation import FALSE_DISCOVERIES, MIN_LAUNCHES, adjust_for_number
from regatta.core.patterns import launches_text
from regatta.core.statistics import fast_median
from regatta.core.text import natural, shape, three
from regatta.kit.columns import FLAG, REAL, TEXT, WHOLE, Column, Columns, in_file
from regatta.kit.kinds import FAIR, LOW, NOTE, Kind, Value
from regatta.report.findings import Finding, of_rows, of_runs
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.tables.pairs import MARGIN
from regatta.tables.primary_times import with_primary
from regatta.topics.base import ReportData, TableSpec, Topic, grouped, once_per_report, plain_rows

SLOW_FACTOR = 1.35  # slow without a test: 4 standard deviations of 8 %; chance: benchmarks/slow_launch_errors.py
MIN_CELLS = 3  # slow ones
MIN_OTHERS = 2  # other launches of a cell; with one, it is unknown which of the two is slow
MIN_LAUNCHES_OF_NODE = 2  # with one, the launch is reported
LOADED_RATIO = 0.25  # CPU share of other processes above which a measurement or timeout is on a busy machine
LOADED_LEAST_RATIO = 0.1  # share of such measurements outside slow launches; fewer are not listed
TAKEN_RATIO = 0.05  # CPU steal or CPU throttling; less is not listed
LOADS = {"other_processes_ratio": 0, "steal_ratio": TAKEN_RATIO, "throttled_ratio": TAKEN_RATIO}  # least shown
SHARE = Column("load_ratio", shown_as="%", figures=2)
PLACE = ("nodes", "gpus_per_node", "stack")
_SLOW = (
    "slower in more than half of the cells and in at least three, with a median ratio that differs significantly from"
    " the others, or is above 1.35"
)
_RATIOS = "time / median of the cell's other launches: median over cells; smallest and largest of the slow cells"
SLOW_LAUNCHES = Columns(
    *in_file(TEXT, "the launch; empty for a node", "launch"),
    *in_file(WHOLE, "its repeat", "repeat"),
    *in_file(TEXT, "the node; empty for a launch", "host"),
    *MEASUREMENTS.named(*PLACE),
    *in_file(WHOLE, "cells compared, and those in which it was slower by more than 5 %", "num_cells", "num_slow"),
    *in_file(REAL, _RATIOS, "median_ratio", "low_ratio", "high_ratio"),
    *in_file(REAL, "p of its median against those of the other launches, corrected; empty for a node", "p_adjusted"),
    *in_file(FLAG, _SLOW, "is_slow"),
    *in_file(REAL, "medians of these loads over the slow cells, over all if none is slow", *LOADS),
)
USED = ("cell", "launch", "repeat", "hosts", *PLACE, "loaded_host", "primary_s")


def slow_launches_table(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each launch with comparable cells, then one for each node with such cells."""
    by_launch: dict[str, list[dict]] = defaultdict(list)
    by_host: dict[str, list[dict]] = defaultdict(list)
    for rows in grouped(plain_rows(with_primary(measurements), (*USED, *LOADS)), ("cell",)).values():
        _compare(rows, [(row["launch"],) for row in rows], by_launch)
        if len({row["hosts"] for row in rows}) > 1:  # else no launch was elsewhere
            _compare(rows, [row["hosts"].split(", ") if row["hosts"] else () for row in rows], by_host)
    launches = []
    for compared in by_launch.values():
        first = compared[0]["rows"][0]
        launches.append({name: first[name] for name in ("launch", "repeat", *PLACE)} | _row(compared))
    launches.sort(key=lambda row: (row["repeat"], natural(row["launch"])))
    p_adjusted = adjust_for_number(_p_values(launches)).tolist()
    found = [row | {"p_adjusted": p_value} for row, p_value in zip(launches, p_adjusted, strict=True)]
    for host, compared in sorted(by_host.items(), key=lambda item: natural(item[0])):
        num = len({row["launch"] for one in compared for row in one["rows"]})
        found += [{"host": host} | _row(compared, host)] if num >= MIN_LAUNCHES_OF_NODE else []
    return make_table([row | {"is_slow": _is_slow(row)} for row in found], SLOW_LAUNCHES)


def _compare(rows: list[dict], places: list[Iterable[str]], found: dict[str, list[dict]]) -> None:
    """Add for each launch or host with MIN_OTHERS launches elsewhere its rows of one cell, and the ratio to the others.

    rows: ok ones of the cell. places: those of each row.
    """
    if len(rows) <= MIN_OTHERS:
        return
    here_of: dict[str, list[int]] = defaultdict(list)
    for index, of_row in enumerate(places):
        for place in of_row:
            here_of[place].append(index)
    known: dict[tuple[int, ...], dict] = {}  # hosts of one launch share their rows
    seconds = [row["primary_s"] for row in rows]
    without_one = _medians_without_one(seconds)
    for place, indices in here_of.items():
        if len(rows) - len(indices) >= MIN_OTHERS:
            if (key := tuple(indices)) not in known:
                here = [rows[index] for index in indices]
                elsewhere = (
                    without_one[indices[0]]
                    if len(indices) == 1
                    else fast_median([value for index, value in enumerate(seconds) if index not in indices])
                )
                known[key] = {"rows": here, "ratio": fast_median([row["primary_s"] for row in here]) / elsewhere}
            found[place].append(known[key])


def _medians_without_one(values: list[float]) -> list[float]:
    """Return for each of two or more values the median of the others, sorted once: a cell may have 20,000 launches."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ordered, medians = [values[index] for index in order], [0.0] * len(values)
    num = len(values) - 1
    for place, index in enumerate(order):
        low, high = (ordered[middle + (middle >= place)] for middle in ((num - 1) // 2, num // 2))
        medians[index] = float(high if num % 2 else (low + high) / 2)
    return medians


def _row(compared: list[dict], host: str | None = None) -> dict:
    """Return the columns of a launch or host. Loads are medians over its slow cells, or over all if none is slow.

    Loads of a host are from records in which it was the most loaded one.
    """
    ratios = [one["ratio"] for one in compared]
    slow = [ratio for ratio in ratios if ratio > 1 + MARGIN]
    used = [row for one in compared if not slow or one["ratio"] > 1 + MARGIN for row in one["rows"]]
    used = [row for row in used if host in (None, row["loaded_host"])]
    loads = {name: [row[name] for row in used if row[name] is not None] for name in LOADS}
    return {
        "num_cells": len(ratios),
        "num_slow": len(slow),
        "median_ratio": fast_median(ratios),
        "low_ratio": min(slow, default=None),
        "high_ratio": max(slow, default=None),
        **{name: fast_median(values) if values else None for name, values in loads.items()},
    }


def _p_values(launches: list[dict]) -> np.ndarray:
    """Return the p of each launch against the others of its shape and stack; NaN for fewer than MIN_LAUNCHES."""
    p_values = np.full(len(launches), np.nan)
    for of_place in grouped([row | {"index": index} for index, row in enumerate(launches)], PLACE).values():
        if len(of_place) >= MIN_LAUNCHES:
            logs = np.log([row["median_ratio"] for row in of_place])
            p_values[[row["index"] for row in of_place]] = p_of_each(logs)
    return p_values


def p_of_each(values: np.ndarray) -> np.ndarray:
    """Return the two-sided p of each of (..., 3 or more) values against the others: t test of its distance."""
    from scipy.special import stdtr

    num, apart = values.shape[-1], values - values.mean(-1, keepdims=True)
    squares = (apart**2).sum(-1, keepdims=True) - num / (num - 1) * apart**2  # of the others
    scale = np.sqrt(np.maximum(squares, 0) / (num - 2) * (num - 1) / num) + np.finfo(float).tiny
    return 2 * stdtr(num - 2, -np.abs(apart) / scale)


def _is_slow(row: dict) -> bool:
    is_unlike = row.get("p_adjusted", 1) <= FALSE_DISCOVERIES or row["median_ratio"] > SLOW_FACTOR
    return is_unlike and row["num_slow"] >= MIN_CELLS and 2 * row["num_slow"] > row["num_cells"]


@once_per_report
def findings(data: ReportData) -> list[Finding]:
    """Return slow nodes, then slow launches on other nodes, then measurements and timeouts on a busy machine."""
    table = data.tables["slow_launches"]
    slow = table.assign(is_launch=table["host"].isna())[table["is_slow"]]
    slow = slow.sort_values(["is_launch", "median_ratio"], ascending=[True, False], kind="stable")
    runs, found, slow_hosts = data.ok[["cell", "launch"]], [], set(slow["host"].dropna())
    hosts_of = data.ok["hosts"].fillna("").str.split(", ")
    for index, row in zip(slow.index, plain_rows(slow, tuple(table.columns.drop("is_slow"))), strict=True):
        is_here = [row["host"] in hosts for hosts in hosts_of] if row["host"] else runs["launch"] == row["launch"]
        hosts = hosts_of[is_here].iloc[0]
        if not row["host"] and slow_hosts.intersection(hosts):
            continue
        span = dict.fromkeys(three(row[end], 2) for end in ("low_ratio", "high_ratio"))
        if row["host"]:
            kind, name = "slow_node", ", ".join([f"node {row['host']}", *_launches_of_node(table, data, row["host"])])
        else:
            kind, name = "slow_launch", _name_of(row, hosts, data)
        words = _loads(row) | {"span": "\N{EN DASH}".join(span), "exclude": row["host"]}
        source, cells = of_rows("slow_launches", slow.loc[[index]]), tuple(runs.loc[is_here, "cell"].unique())
        found.append(Finding(kind, row | {"name": name}, (source,), cells, "warnings", words))
    # If all launches are disturbed, none is slow.
    ok = data.ok[~data.ok["launch"].isin(slow["launch"].dropna())]
    values = {"num_ok": len(ok), "num_in_slow_launches": len(data.ok) - len(ok)}
    found += _on_busy_machine("loaded_measurements", ok, LOADED_LEAST_RATIO * len(ok), values)
    late = data.measurements[data.measurements["status"] == "timeout"]
    return [*found, *_on_busy_machine("loaded_timeouts", late, 0, {"num_timeouts": len(late)})]


def _launches_of_node(table: pd.DataFrame, data: ReportData, host: str) -> list[str]:
    """Return the launches in which a node was slower than the margin, as one text; none if it was in all of them."""
    used = data.ok[data.ok["hosts"].fillna("").str.split(", ").map(lambda hosts: host in hosts)]
    slow = table[(table["median_ratio"] > 1 + MARGIN) & table["launch"].isin(used["launch"])]
    slow, repeats = sorted({int(repeat) + 1 for repeat in slow["repeat"]}), set(range(1, data.campaign.repeats + 1))
    return [launches_text(slow)] if slow and set(slow) < repeats else []


def _name_of(row: dict, hosts: list[str], data: ReportData) -> str:
    """Return `launch 1`, with shape, stack and nodes where launches of the campaign differ in them."""
    parts = []
    if len({cell.shape for cell in data.campaign.cells}) > 1:
        parts.append(shape(row["nodes"], row["gpus_per_node"]))
    if len(data.campaign.stack_names) > 1:
        parts.append(f"stack {row['stack']}")
    if data.campaign.sweep:
        parts.append(f"on {', '.join(hosts)}")
    return f"launch {row['repeat'] + 1}" + (f" ({', '.join(parts)})" if parts else "")


def _loads(values: dict) -> dict[str, Value | None]:
    """Return the loads as warnings print them: None for those that are too small to be listed."""
    known = {name: values[name] for name in LOADS if values.get(name) is not None}
    return {name: Value(SHARE, ratio) if ratio >= LOADS[name] else None for name, ratio in known.items()}


def _on_busy_machine(kind: str, rows: pd.DataFrame, least: float, values: dict) -> list[Finding]:
    """Return the finding on rows of measurements.csv on a busy machine, the most loaded one first, if there are any."""
    loaded = rows[(rows["other_processes_ratio"] > LOADED_RATIO).fillna(False)]
    if len(loaded) < max(1, least):
        return []
    others = loaded["other_processes_ratio"]
    values = {"num": len(loaded)} | values | {"other_processes_ratio": float(others.median())}
    source = of_runs("measurements", loaded, others.idxmax())
    return [Finding(kind, values, (source,), tuple(loaded["cell"].unique()), "warnings", _loads(values))]


# By 5 % in more than half of the cells, confidence is low. Load alone may not have changed the times: fair. A timeout
# leaves no time to compare.
SLOW = "Slow {name}: {span}\N{MULTIPLICATION SIGN} as long as the others in {num_slow} of {num_cells:cell}"
OTHERS = "other processes used {other_processes_ratio:number} of the CPU time"
TAKEN = ("CPU steal: {steal_ratio:number}.", "CPU throttling (cgroup limit): {throttled_ratio:number}.")
HELP = (
    f"A launch or node is slow if both hold. More than half of its cells, and at least {MIN_CELLS}, took over"
    f" {100 * MARGIN:g} % longer (primary time) than the median of the cell's other launches ({MIN_OTHERS} or more)."
    " Its median ratio differs from those of the other launches of this shape and stack (t test, corrected p at most"
    f" {FALSE_DISCOVERIES:g}) or exceeds {SLOW_FACTOR:g}. Other processes: their share of the CPU time of the most"
    " loaded host, median over the slow cells."
)
KINDS = (
    *(
        Kind(name, LOW, (f"{SLOW}; {OTHERS}.", f"{SLOW}."), TAKEN, advice, step)
        for name, advice, step in (
            (
                "slow_node",
                "Check other programs, clocks and temperatures. Exclude the node (exclude_nodes).",
                "exclude slow {name}: `exclude_nodes: [{exclude}]`",
            ),
            (
                "slow_launch",
                "Check for other programs or reduced clocks at that time. Measure again under a new campaign name.",
                "{name} is slow: measure again under a new `name`",
            ),
        )
    ),
    Kind(
        *("loaded_measurements", FAIR, f"Busy machine: {OTHERS} (median) in {{num}} of {{num_ok:measurement}}."),
        parts=("{num_in_slow_launches:more measurement} in slow launches.",),
        advice="Stop the other programs and measure again under a new campaign name.",
        next_step="stop other programs; measure again under a new `name`",
    ),
    Kind(
        *("loaded_timeouts", NOTE, f"Busy machine: {OTHERS} (median) in {{num}} of {{num_timeouts:timeout}}."),
        advice="Stop other programs; then retry: `{retry}`, or raise cell_seconds.",
        next_step="stop other programs; retry: `{retry}`",
    ),
)
TABLES = {"slow_launches": TableSpec.of(SLOW_LAUNCHES, slow_launches_table, "measurements")}
TERMS = (("Slow launch", HELP),)
TOPIC = Topic("slow_launches", "Warnings", TABLES, None, findings, KINDS, TERMS, is_of_sweeps=True, is_judge=True)
