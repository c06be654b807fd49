"""Slow nodes and launches, ranks and hosts that all others wait for, and cells on a busy machine.

A slow launch increases the variation of all its cells, so it comes before any list of cells. Judged in
tables/places.py; definitions: docs/metrics.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from regatta.core.moderation import FALSE_DISCOVERIES, MIN_LAUNCHES
from regatta.core.patterns import launches_text
from regatta.core.text import UNKNOWN, plural, shape, three
from regatta.kit.columns import Column, Columns
from regatta.kit.kinds import FAIR, LOW, NOTE, RESULT, Kind, Value, joined
from regatta.report.cell_launches import HOST
from regatta.report.chart import COLORS, SLOWER, Chart, PlotAxis, Style
from regatta.report.findings import Finding, of_rows, of_runs, percent_number
from regatta.report.panels import Figure, Section, Table
from regatta.store.csv_files import WAITS, plain_rows
from regatta.store.launch_files import read_one_line
from regatta.store.waits import COMPUTE, HOST_WAIT, IN_COLLECTIVE, LAG_RATIO, QUANTILES, SUSPECT_P, waiting_times
from regatta.tables import places
from regatta.tables import slow_launches as launches
from regatta.tables.counterparts import versus_of
from regatta.tables.pairs import MARGIN
from regatta.tables.places import LAG, LAG_S, LAST, PLACE, place_text, rank_text
from regatta.topics.base import ReportData, TableSpec, Topic, once_per_report

LOADED_RATIO = 0.25  # CPU share of other processes above which a measurement or timeout is on a busy machine
LOADED_LEAST_RATIO = 0.1  # share of such measurements outside slow launches; fewer are not listed
TAKEN_RATIO = 0.05  # CPU steal or CPU throttling; less is not listed
LEAST_LOADS = {"other_processes_ratio": 0, "steal_ratio": TAKEN_RATIO, "throttled_ratio": TAKEN_RATIO}
SHARE = Column("load_ratio", shown_as="%", figures=2)
# The timed quantity: what waits, its name in a figure, and how a straggler shows in it.
QUANTITIES = {
    IN_COLLECTIVE: ("collective calls", "time in the collective", "a straggler waits least"),
    COMPUTE: (
        "steps without gradient synchronization",
        "step without gradient synchronization",
        "a straggler computes longest",
    ),
    HOST_WAIT: ("steps", "wait for synchronization", "a straggler waits least"),
}

# More than 5 % in more than half of the cells: confidence is low. Load alone may not have changed the times: fair. A
# timeout leaves no time to compare.
SLOW = "Slow {name}: {span}\N{MULTIPLICATION SIGN} as long as the others in {num_slow} of {num_cells:cell}"
OTHERS = "other processes used {other_processes_ratio:number} of the CPU time"
TAKEN = ("CPU steal: {steal_ratio:number}.", "CPU throttling (cgroup limit): {throttled_ratio:number}.")
LATE = "Last in {num_suspect_launches} of {num_launches:launch/launches}, by {lag_s:number} on average ({what})."
CHECK = "Check for other programs, clocks, temperatures, memory errors, cable and switch port. Exclude the node."
EXCLUDE = "`exclude_nodes: [{exclude}]`"
KINDS = (
    Kind(
        *("slow_node", LOW, (f"{SLOW}; {OTHERS}.", f"{SLOW}."), TAKEN, CHECK, f"exclude slow {{name}}: {EXCLUDE}"),
        key="slow_launches[]",
    ),
    Kind(
        *("slow_launch", LOW, (f"{SLOW}; {OTHERS}.", f"{SLOW}."), TAKEN),
        key="slow_launches[]",
        advice="Check for other programs or reduced clocks at that time. Measure again under a new campaign name.",
        next_step="{name} is slow: measure again under a new `name`",
    ),
    Kind(
        *("loaded_measurements", FAIR, f"Busy machine: {OTHERS} (median) in {{num}} of {{num_ok:measurement}}."),
        key="loaded_measurements",
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
HELP = (
    f"A launch or node is slow if both hold. More than half of its cells, and at least {launches.MIN_CELLS}, took over"
    f" {100 * MARGIN:g} % longer (primary time) than the median of the cell's other launches ({launches.MIN_OTHERS} or"
    " more). Its median ratio differs from those of the other launches of this shape and stack (t test, corrected p at"
    f" most {FALSE_DISCOVERIES:g}) or exceeds {launches.SLOW_FACTOR:g}. Other processes: their share of the CPU time of"
    " the most loaded host, median over the slow cells."
)
WHERE, LATE_PARTS = "{who} {how}; it slowed {slowed}.", (LATE, "Also slow: {others}.")
EXCLUDE_SLOW = f"exclude slow {{slow}} (a new campaign name repeats its cells): {EXCLUDE}"
KINDS_OF_STRAGGLERS = (
    Kind(*("straggler_host", FAIR, WHERE, LATE_PARTS, CHECK), EXCLUDE_SLOW, "straggler"),
    Kind(*("straggler_rank", FAIR, WHERE, LATE_PARTS, CHECK), "check {who}", "straggler"),
    Kind(
        *("no_straggler", RESULT),
        lead=(
            "No slow rank found. {num_checked} of {num_ok:measurement} could be checked.",
            f"Stragglers are not detectable with fewer than {MIN_LAUNCHES} launches.",
        ),
        term="Stragglers",
        help="A rank or node that all others wait for: it spends the least time in a collective that no rank can leave"
        " before all have arrived, or the most in a step without gradient synchronization. Lag: time behind the median"
        " of the others, as a share of the iteration; median over the records of a launch, then mean over launches."
        f" Slow: the 95 % CI (moderated) is beyond the margin, and corrected p is at most {FALSE_DISCOVERIES:g}."
        f" This takes {MIN_LAUNCHES} launches. Slow in a record: last in more iterations than expected by chance"
        f" (binomial test, corrected p < {SUSPECT_P:g}), with a lag above {100 * LAG_RATIO:g} %; in a launch: in more"
        f" than {100 * places.MOST_OF_RECORDS:g} % of its records.",
    ),
)


@once_per_report
def slow_launches(data: ReportData) -> list[Finding]:
    """Return slow nodes, slow launches on other nodes, the slowest first, then what ran on a busy machine."""
    table, ok, found = data.tables["slow_launches"], data.ok, []
    slow = table.assign(is_launch=table["host"].isna())[table["is_slow"]]
    slow = slow.sort_values(["is_launch", "median_ratio"], ascending=[True, False], kind="stable")
    hosts_of, slow_hosts = ok["hosts"].fillna("").str.split(", "), set(slow["host"].dropna())
    for index, row in zip(slow.index, plain_rows(slow, tuple(table.columns.drop("is_slow"))), strict=True):
        is_node = row["host"] is not None
        is_here = (
            hosts_of.map(lambda hosts, host=row["host"]: host in hosts) if is_node else ok["launch"] == row["launch"]
        )
        hosts, here = hosts_of[is_here].iloc[0], ok[is_here]
        if not is_node and slow_hosts.intersection(hosts):
            continue
        span = "\N{EN DASH}".join(dict.fromkeys(three(row[end], 2) for end in ("low_ratio", "high_ratio")))
        name = _node_text(row["host"], here, data) if is_node else _launch_text(row, hosts, data)
        cells = tuple(here["cell"].unique())
        words = _loads(row) | {"span": span, "exclude": row["host"]}
        words["included"] = {row["host"]: (f"{span}\N{MULTIPLICATION SIGN} as long", cells)} if is_node else {}
        kind, source = "slow_node" if is_node else "slow_launch", of_rows("slow_launches", slow.loc[[index]])
        found.append(Finding(kind, row | {"name": name}, (source,), cells, words=words))
    # If all launches are disturbed, none is slow.
    others = ok[~ok["launch"].isin(slow["launch"].dropna())]
    values = {"num_ok": len(others), "num_in_slow_launches": len(ok) - len(others)}
    found += _on_busy_machine("loaded_measurements", others, LOADED_LEAST_RATIO * len(others), values)
    late = data.measurements[data.measurements["status"] == "timeout"]
    return [*found, *_on_busy_machine("loaded_timeouts", late, 0, {"num_timeouts": len(late)})]


def _node_text(host: str, here: pd.DataFrame, data: ReportData) -> str:
    """Return `node n7, launches 6 and 7`: those in which it was slower than the margin, unless these are all."""
    table = data.tables["slow_launches"]
    slow = table[(table["median_ratio"] > 1 + MARGIN) & table["launch"].isin(here["launch"])]
    numbers = sorted({int(repeat) + 1 for repeat in slow["repeat"]})
    return f"node {host}" + (f", {launches_text(numbers)}" if 0 < len(numbers) < data.campaign.repeats else "")


def _launch_text(row: dict, hosts: list[str], data: ReportData) -> str:
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
    known = {name: values[name] for name in LEAST_LOADS if values.get(name) is not None}
    return {name: Value(SHARE, ratio) if ratio >= LEAST_LOADS[name] else None for name, ratio in known.items()}


def _on_busy_machine(kind: str, rows: pd.DataFrame, least: float, values: dict) -> list[Finding]:
    """Return the finding on rows of measurements.csv on a busy machine, the most loaded one first, if there are any."""
    loaded = rows[(rows["other_processes_ratio"] > LOADED_RATIO).fillna(False)]
    if len(loaded) < max(1, least):
        return []
    others = loaded["other_processes_ratio"]
    values = {"num": len(loaded)} | values | {"other_processes_ratio": float(others.median())}
    source = of_runs("measurements", loaded, others.idxmax())
    return [Finding(kind, values, (source,), tuple(loaded["cell"].unique()), words=_loads(values))]


@once_per_report
def stragglers(data: ReportData) -> list[Finding]:
    """Return slow nodes, slow ranks on other nodes, or that neither was found."""
    hosts, ranks = data.tables["straggler_hosts"], data.tables["stragglers"]
    slow_hosts, slow_ranks = (table[table["is_persistent"]] for table in (hosts, ranks))
    slow_ranks = slow_ranks[~slow_ranks["hosts"].isin(slow_hosts["host"])]
    found = [
        *_late("straggler_host", slow_hosts, "straggler_hosts", ["host"], data),
        *_late("straggler_rank", slow_ranks, "stragglers", [*PLACE, "rank"], data),
    ]
    examined = ranks.drop_duplicates([*PLACE, "quantity"])
    has_failed_node = any(map(HOST.search, data.tables["failures"]["cause"].dropna()))
    if not (found or examined.empty or has_failed_node or data.problems.get("blamed_nodes")):
        num_checked = int(examined.loc[examined["num_launches"] >= MIN_LAUNCHES, "num_records"].sum())
        values, source = {"num_checked": num_checked, "num_ok": len(data.ok)}, of_rows("stragglers", examined)
        found.append(Finding("no_straggler", values, (source,), anchor="stability"))
    return found


def _late(kind: str, slow: pd.DataFrame, table: str, keys: list[str], data: ReportData) -> list[Finding]:
    """Return the finding on all slow nodes or ranks, whose numbers are of the one with the largest lag; none without.

    keys: the columns that identify them.
    """
    if slow.empty:
        return []
    slow = slow.assign(interval="interval").sort_values("lag_ratio", ascending=False, kind="stable")
    ok, row, waits, included, is_hosts = data.ok, next(slow.itertuples()), data.tables["waits"], {}, keys == ["host"]
    values, excesses = {"host": None, "rank": None}, []
    values |= plain_rows(slow, (keys[-1], "quantity", "num_suspect_launches", "num_launches"))[0]
    for _, of in slow.groupby(keys, sort=False, dropna=False):
        place, is_timed = next(of.itertuples()), is_hosts and COMPUTE in set(of["quantity"])
        ratios = ok.loc[ok["last_host"] == place.host, "last_host_ratio"].tolist() if is_timed else []
        excesses.append(float(np.median(ratios)) - 1 if ratios else None)
        text = f"{percent_number(excesses[-1])} % slower" if ratios else f"lags by {Value.of(place, LAG):number}"
        launches = waits.merge(of[keys].drop_duplicates())["launch"]
        cells = set(ok.loc[ok["launch"].isin(launches), "cell"])
        included[place.host if is_hosts else rank_text(place)] = text, cells
    who, *others = included
    cells = [cell for cell in ok["cell"].unique() if any(cell in of for _, of in included.values())]
    shapes = ok.loc[ok["cell"].isin(cells), ["nodes", "gpus_per_node"]].drop_duplicates()
    num, places = ok.merge(shapes)["cell"].nunique(), sorted(shapes.itertuples(index=False))
    values |= {column.name: Value.of(row, column) for column in (LAG_S, LAG)}
    values |= {"num_cells": len(cells), "slower_ratio": excesses[0]}
    words = {"who": who, "others": others, "what": QUANTITIES[row.quantity][0], "included": included}
    words["slow"] = joined([f"node {one}" if is_hosts else one for one in included])
    words["exclude"] = ", ".join(included) if is_hosts else None
    words["slowed"] = "all" if num == len(cells) else f"{len(cells):,} of"
    words["slowed"] += f" {plural(num, 'cell')} on {joined([shape(*place) for place in places])}"
    words["how"] = "computes " * (excesses[0] is not None) + included[who][0]
    return [Finding(kind, values, (of_rows(table, slow),), tuple(cells), words=words)]


# The part of the section on stability.

STRIP = (
    "One cell in one launch: median and 5th to 95th percentile over iterations. Shaded bands separate hosts. Diamonds:"
    " straggler."
)
STYLES = {"": Style(COLORS[0], "o"), "straggler": Style(SLOWER, "D")}


def section(data: ReportData) -> Section | None:
    """Return the part on stragglers, folded without one; None if no record could show any."""
    ranks, hosts = data.tables["stragglers"], data.tables["straggler_hosts"]
    if ranks.empty:
        return None
    persistent = (table[table["is_persistent"] & table["line"].notna()] for table in (ranks, hosts))
    worst = next((max(rows.itertuples(), key=lambda row: row.lag_ratio) for rows in persistent if len(rows)), None)
    figures, tables = _rank_times(worst, data), []
    for noun, table in (("Ranks", "stragglers"), ("Hosts", "straggler_hosts")):
        rows = data.tables[table].assign(interval="interval").sort_values("lag_ratio", ascending=False, kind="stable")
        rows, shown = (
            rows[(rows["num_suspect_launches"] > 0) | rows["is_persistent"]],
            data.columns[table].of_table("late"),
        )
        if len(rows):
            tables.append(Table.of_columns(f"{noun} that were last most often", shown, rows, data.device, (table,)))
    lead = STRIP if figures else ""
    return Section(lead, figures, tuple(tables), is_folded=worst is None)


def _rank_times(worst, data: ReportData) -> tuple[Figure, ...]:
    """Return the strip of the worst straggler's record, without one that of the first on most ranks.

    Empty if the launch files have no such record any more.
    """
    waits, ok = data.tables["waits"], data.ok
    if worst is None:
        ok = ok[ok["launch"].isin(waits.loc[waits["world_size"] == waits["world_size"].max(), "launch"])]
    else:
        ok = ok[(ok["launch"] == worst.launch) & (ok["line"] == worst.line)]
    for row in ok.sort_values(["repeat", "launch", "line"], kind="stable").itertuples():
        try:
            record = read_one_line(data.launches / f"{row.launch}.jsonl", int(row.line))
            quantity, times_ns = waiting_times(record, record["spec"])
        except (KeyError, TypeError, ValueError):  # the file changed since it was collected
            continue
        ranks = waits[(waits["launch"] == row.launch) & (waits["quantity"] == quantity)].sort_values("rank")
        ranks = ranks[ranks["world_size"] == row.world_size]
        if times_ns is not None and len(ranks) == len(times_ns):
            quantiles = np.quantile(times_ns, list(QUANTILES.values()), axis=1) * 1e-9
            ranks = ranks.assign(**dict(zip(QUANTILES, quantiles, strict=True)))
            return (_strip(ranks, _are_slow(ranks, data), f"{data.names[row.cell]}, launch {row.repeat + 1}"),)
    return ()


def _are_slow(ranks: pd.DataFrame, data: ReportData) -> pd.Series:
    """Return of each rank of a record whether it is slow, or on a slow host. ranks: rows of waits.csv."""
    tables, keys = (data.tables["stragglers"], data.tables["straggler_hosts"]), [*PLACE, "quantity", "rank"]
    slow, slow_hosts = (table[table["is_persistent"]] for table in tables)
    is_slow = pd.MultiIndex.from_frame(ranks[keys]).isin(pd.MultiIndex.from_frame(slow[keys]))
    return ranks["host"].isin(slow_hosts["host"]) | is_slow


def _strip(ranks: pd.DataFrame, is_late: Sequence[bool], record: str) -> Figure:
    """Return the times of all ranks of one record by host. ranks: rows of waits.csv with the record's quantiles."""
    _, what, reading = QUANTITIES[ranks["quantity"].iloc[0]]
    time = Column("time_s", what).fitted(float(ranks["p95_s"].max()))
    shown = [replace(one, shown_as=time.shown_as) if one.unit else one for one in WAITS.of_table("strip")]
    rows = ranks.assign(last_ratio=ranks["num_last"] / ranks["num_iterations"])
    title = f"{what.capitalize()}, {place_text(next(ranks.itertuples()))}"
    caption = f"{what.capitalize()} by rank, {record}; {reading}"
    table = Table.of_columns(caption, (*shown, LAST), rows, ranks["device"].iloc[0])
    hosts = ranks["host"].fillna(UNKNOWN).tolist()
    value, low, high = time.factor * ranks[["p50_s", "p5_s", "p95_s"]].T.to_numpy(float)
    series = ["straggler" if is_slow else "" for is_slow in is_late]
    marks = {"cell": "", "series": series, "x": range(len(ranks)), "y": value, "low": low, "high": high, "group": hosts}
    names = PlotAxis.of_categories("rank", [f"{rank} \N{MIDDLE DOT} {host}" for rank, host in enumerate(hosts)])
    strip = Chart("rows", pd.DataFrame(marks), names, PlotAxis(time.heading("")), styles=STYLES, record=record)
    return Figure("rank-times", title, strip, table, "waits")


def _lags(make: Callable[[pd.DataFrame, float | None], pd.DataFrame], columns: Columns) -> TableSpec:
    return TableSpec(columns, lambda campaign, tables: make(tables["waits"], versus_of(campaign)["margin"]))


TABLES = {"slow_launches": TableSpec.of(launches.SLOW_LAUNCHES, launches.slow_launches_table, "measurements")}
LAUNCHES = Topic(
    *("slow_launches", "", TABLES, None, slow_launches, KINDS),
    terms=(("Slow launch", HELP),),
    is_of_sweeps=True,
    is_judge=True,
)
TABLES = {
    "stragglers": _lags(places.stragglers_table, places.STRAGGLERS),
    "straggler_hosts": _lags(places.straggler_hosts_table, places.STRAGGLER_HOSTS),
}
RANKS = Topic(
    *("stragglers", "Stragglers", TABLES, section, stragglers, KINDS_OF_STRAGGLERS), part_of="stability", is_judge=True
)
