"""The topic of stragglers: ranks and nodes that the others wait for, and outliers among iterations. docs/metrics.md."""

import pandas as pd

from regatta.core.moderation import FALSE_DISCOVERIES, MIN_LAUNCHES
from regatta.core.statistics import OUTER_FENCE
from regatta.core.text import three
from regatta.kit.findings import FAIR, NOTE, RESULT, Kind, Value
from regatta.report.findings import Finding, of_rows
from regatta.report.panels import Section, Table
from regatta.report.same_hosts import HOST
from regatta.store.csv_files import OUTLIERS
from regatta.topics.base import ReportData, TableSpec, Topic, once_per_report, plain_rows
from regatta.topics.comparison.tables import MARGIN, versus_of
from regatta.topics.stragglers.figures import rank_figures, worst_of
from regatta.topics.stragglers.tables import (
    LAG,
    MOST_OF_RECORDS,
    PLACE,
    STRAGGLER_HOSTS,
    STRAGGLERS,
    place_text,
    rank_text,
    straggler_hosts_table,
    stragglers_table,
)
from regatta.topics.stragglers.waits import COMPUTE, HOST_WAIT, IN_COLLECTIVE, LAG_RATIO, MOST_OF_EXCESS, SUSPECT_P

MOST_ROWS = 20
STRIP = (
    "Strip: one record, median and 5th to 95th percentile over iterations; bands are hosts; the axis does not start at"
    " 0. Diamonds: straggler. Triangles: outliers."
)
COSTLY_RATIO = 0.01  # share of iterations, and of their time, from which a place with outliers is named
# Behavior of the last rank, and the timed iterations.
DOES = {IN_COLLECTIVE: "arrives last", COMPUTE: "computes longest", HOST_WAIT: "waits least"}
WHAT = {IN_COLLECTIVE: "collective calls", COMPUTE: "steps without synchronization", HOST_WAIT: "steps"}
CLASSES = {column.name: column.label for column in OUTLIERS[2:-1]} | {"unknown": "unclassified"}


def section(data: ReportData) -> Section | None:
    """Return the part on stragglers and outliers, folded without a straggler; None if no record could show any."""
    stragglers, hosts, waits = (data.tables[name] for name in ("stragglers", "straggler_hosts", "waits"))
    if stragglers.empty:
        return None
    worst = worst_of(stragglers, hosts)
    figures = rank_figures(worst, waits, data.ok, data.launches, data.names)
    tables, summary = late_tables(stragglers, hosts, data.device), "Stragglers and outliers" if worst is None else ""
    return Section("stragglers", "Stragglers", "", STRIP if figures else "", figures, tables, summary=summary)


NOT_SLOW = "No slow node or rank among the {num_checked} of {num_ok:measurement} checked."
BEHIND = "{lag_ratio:number} of the iteration behind the other %s ({lag_ratio:ends})."
LATE = "In {num_suspect_launches} of {num_launches:launch/launches} it {does} in {what}, by {lag_s:number} on average."
CHECK = (
    "Check for other load, daemons, clocks, temperatures, memory errors, and the cable and switch port. Then measure"
    " again without this node. Outliers raise means and high percentiles; medians are barely affected."
)
KINDS = (
    Kind(
        *("straggler_host", FAIR, f"Slow node {{host}}: {BEHIND % 'nodes'}", (LATE, "Also slow: {others}.")),
        advice=CHECK,
        next_step="exclude the slow node: `exclude_nodes: [{host}]`",
        line="straggler",
        term="Stragglers",
        help="The rank that all others wait for. It spends the least time in a collective that no rank can leave before"
        " all have arrived, or the most in a step without gradient synchronization. Synchronized step times cannot show"
        " it. Suspect in a record: last in more iterations than expected by chance (binomial test, corrected p <"
        f" {SUSPECT_P:g}), and behind the median of the others by more than {100 * LAG_RATIO:g} % of the iteration."
        f" Suspect in a launch: suspect in more than {100 * MOST_OF_RECORDS:g} % of its records. Lag: median over the"
        " records of a launch, then mean over launches, against the median of the others. Slow: the whole moderated"
        f" 95 % interval of the lag is beyond the margin, and corrected p is at most {FALSE_DISCOVERIES:g}"
        f" (Benjamini-Hochberg over the table), as for nodes of a sweep. This takes {MIN_LAUNCHES} launches.",
    ),
    Kind(
        *("straggler_rank", FAIR, f"Slow {{who}}: {BEHIND % 'ranks'}", (LATE, "Also slow: {others}.")),
        advice=CHECK,
        next_step="check {who}",
        line="straggler",
    ),
    Kind("no_straggler", RESULT, (NOT_SLOW, f"Slow nodes and ranks: unknown before {MIN_LAUNCHES} launches.")),
    Kind(
        *("outliers", RESULT),
        lead=(
            "{num:outlier} in {num_iterations:iteration} ({classes}) take {cost} % of the time.",
            "No outliers in {num_iterations:iteration}.",
        ),
        parts=("Costliest: {what} on {place}, {largest_cost} % of their time.",),
        term="Outliers",
        help="Iterations whose slowest rank exceeds the outer fence of the record"
        f" ({OUTER_FENCE} interquartile ranges above the upper quartile). All ranks: more than"
        f" {100 * MOST_OF_EXCESS:g} % of the excess over the median is common to all ranks. One rank, one host: without"
        " it, the iteration would not be an outlier; in a collective, it is the only one that did not wait."
        " Unclassified: all others, and whole steps on GPUs. Their time: total excess over the median iteration / total"
        " time of all iterations.",
    ),
    Kind(
        *("outliers_of_one", NOTE),
        lead="Outliers: {who} caused {num} of {num_of_one} that one node or rank caused.",
        advice=CHECK,
    ),
)


@once_per_report
def findings(data: ReportData) -> list[Finding]:
    """Return slow nodes, slow ranks on other nodes, or that neither was found; then outliers of all, and of one."""
    hosts, stragglers = data.tables["straggler_hosts"], data.tables["stragglers"]
    slow_hosts, slow_ranks = (table[table["is_persistent"].fillna(False).astype(bool)] for table in (hosts, stragglers))
    slow_ranks = slow_ranks[~slow_ranks["hosts"].isin(slow_hosts["host"])]
    found = [
        *_late("straggler_host", slow_hosts, "straggler_hosts", ["host"], data),
        *_late("straggler_rank", slow_ranks, "stragglers", [*PLACE, "rank"], data),
    ]
    has_failed_node = any(map(HOST.search, data.tables["failures"]["cause"].dropna()))
    if not (found or stragglers.empty or has_failed_node or data.problems.get("blamed_nodes")):
        records = stragglers.drop_duplicates([*PLACE, "quantity"])
        num_checked = int(records.loc[records["num_launches"] >= MIN_LAUNCHES, "num_records"].sum())
        values, source = {"num_checked": num_checked, "num_ok": len(data.ok)}, of_rows("stragglers", records)
        found.append(Finding("no_straggler", values, (source,), anchor="stability"))
    checked = stragglers[stragglers["num_iterations_checked"].notna()].drop_duplicates([*PLACE, "quantity"])
    return [*found, *_outliers(checked), *_outliers_of_one(hosts, stragglers)]


def _late(kind: str, slow: pd.DataFrame, table: str, keys: list[str], data: ReportData) -> list[Finding]:
    """Return the finding on all slow nodes or ranks, whose numbers are of the one with the largest lag; none without.

    keys: the columns that identify them.
    """
    if slow.empty:
        return []
    slow = slow.assign(interval="interval").sort_values("lag_ratio", ascending=False, kind="stable")
    rows = list(slow.itertuples())
    names = (keys[-1], "quantity", "num_suspect_launches", "num_launches")
    values = {"host": None, "rank": None} | plain_rows(slow, names)[0]
    values |= {column.name: Value.of(rows[0], column) for column in LAG}
    who, *others = dict.fromkeys(row.host if keys == ["host"] else rank_text(row) for row in rows)
    words = {"who": who, "others": others, "does": DOES[rows[0].quantity], "what": WHAT[rows[0].quantity]}
    launches = data.tables["waits"].merge(slow[keys].drop_duplicates())["launch"]
    cells = tuple(data.ok.loc[data.ok["launch"].isin(launches), "cell"].unique())
    return [Finding(kind, values, (of_rows(table, slow),), cells, "warnings", words)]


def _outliers(places: pd.DataFrame) -> list[Finding]:
    """Return the finding on all outliers, with the place where they cost most; none if nothing was checked.

    places: a row of stragglers.csv for each checked shape, stack and quantity.
    """
    if places.empty:
        return []
    sums = places[["num_iterations_checked", "num_outliers", "outlier_cost_iterations", *list(CLASSES)[:-1]]].sum()
    num_iterations, num = int(sums["num_iterations_checked"]), int(sums["num_outliers"])
    by_class = {name: int(sums[name]) for name in list(CLASSES)[:-1]}
    by_class["unknown"] = num - sum(by_class.values())
    values = {"num": num, "num_iterations": num_iterations, "by_class": by_class}
    values |= {"cost_ratio": float(sums["outlier_cost_iterations"]) / num_iterations}
    classes = ", ".join(f"{CLASSES[name]} {of_class:,}" for name, of_class in by_class.items() if of_class)
    words = {"classes": classes, "cost": three(100 * values["cost_ratio"], 2)}
    share, cost = (
        places[name] / places["num_iterations_checked"] for name in ("num_outliers", "outlier_cost_iterations")
    )
    costly = places.assign(cost_ratio=cost)[(share > COSTLY_RATIO) & (cost > COSTLY_RATIO)]
    for row in costly.nlargest(1, "cost_ratio").itertuples():
        values |= {"largest_ratio": float(row.cost_ratio)}
        words |= {"what": WHAT[row.quantity], "place": place_text(row), "largest_cost": three(100 * row.cost_ratio, 2)}
    return [Finding("outliers", values, (of_rows("stragglers", places),), anchor="stragglers", words=words)]


def _outliers_of_one(hosts: pd.DataFrame, stragglers: pd.DataFrame) -> list[Finding]:
    """Return the finding on the node, else the rank, that caused most outliers of a single one."""
    for name, table, noun, of_all in (
        ("straggler_hosts", hosts, "host", "num_outliers_of_any_host"),
        ("stragglers", stragglers, "rank", "num_outliers_one_rank"),
    ):
        column, has_most = f"num_outliers_of_{noun}", table["has_most_outliers"].fillna(False).astype(bool)
        most = table[has_most].sort_values(column, ascending=False, kind="stable").head(1)
        for row in most.itertuples():
            values = {"num": int(getattr(row, column)), "num_of_one": int(getattr(row, of_all))}
            words = {"who": f"node {row.host}" if noun == "host" else rank_text(row)}
            return [Finding("outliers_of_one", values, (of_rows(name, most),), anchor="warnings", words=words)]
    return []


def late_tables(stragglers: pd.DataFrame, hosts: pd.DataFrame, device: str) -> tuple[Table, ...]:
    """Return the ranks, and the hosts if there are several, that were the suspect of a launch."""
    found = []
    tables = (("Rank", stragglers, STRAGGLERS, "stragglers"), ("Host", hosts, STRAGGLER_HOSTS, "straggler_hosts"))
    for noun, table, columns, name in tables:
        rows = table[(table["num_suspect_launches"] > 0) | table["is_persistent"].fillna(False).astype(bool)]
        if len(rows):
            rows = rows.sort_values("lag_ratio", ascending=False, kind="stable").assign(interval="interval")
            first = f" (first {MOST_ROWS} of {len(rows)})" if len(rows) > MOST_ROWS else ""
            caption = f"{noun}s that were last in most records of a launch{first}"
            found.append(Table.of_columns(caption, columns.of_table("late"), rows.head(MOST_ROWS), device, (name,)))
    return tuple(found)


def _margin(campaign: dict) -> float:
    margin = versus_of(campaign)["margin"]
    return MARGIN if margin is None else margin


TABLES = {
    "stragglers": TableSpec(STRAGGLERS, lambda campaign, tables: stragglers_table(tables["waits"], _margin(campaign))),
    "straggler_hosts": TableSpec(
        STRAGGLER_HOSTS, lambda campaign, tables: straggler_hosts_table(tables["waits"], _margin(campaign))
    ),
}
TOPIC = Topic("stragglers", "Stragglers", TABLES, section, findings, part_of="stability", is_judge=True, kinds=KINDS)
