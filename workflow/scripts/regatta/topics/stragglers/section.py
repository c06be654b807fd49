"""The topic of stragglers: ranks and nodes that the others wait for, and outliers among iterations. docs/metrics.md."""

import pandas as pd

from regatta.core.moderation import FALSE_DISCOVERIES, MIN_LAUNCHES
from regatta.core.statistics import OUTER_FENCE
from regatta.core.text import UNKNOWN, is_unknown, three
from regatta.kit.columns import TEXT, WHOLE, Column
from regatta.kit.findings import FAIR, NOTE, RESULT, Kind, Value
from regatta.report.findings import Finding, of_rows
from regatta.report.panels import Section, Table
from regatta.report.same_hosts import HOST
from regatta.topics.base import ReportData, TableSpec, Topic, once_per_report, plain_rows
from regatta.topics.comparison.tables import MARGIN, versus_of
from regatta.topics.stragglers.figures import straggler_figures, typical_figure, worst_of, worst_times
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
STRIP = "median and 5th to 95th percentile over iterations; bands are hosts; the axis does not start at 0"
COSTLY_RATIO = 0.01  # share of iterations, and of their time, from which a place with outliers is named
# Behavior of the last rank, and the timed iterations.
DOES = {IN_COLLECTIVE: "arrives last", COMPUTE: "computes longest", HOST_WAIT: "waits least"}
WHAT = {IN_COLLECTIVE: "collective calls", COMPUTE: "steps without synchronization", HOST_WAIT: "steps"}
_COUNTED = STRAGGLERS.of_table("outliers")
CLASSES = (*_COUNTED[2:], Column("unknown", "unclassified", WHOLE))  # the first two: iterations and all outliers


def section(data: ReportData) -> Section | None:
    """Return the part on stragglers and outliers, folded if there are none; None if no record could show any."""
    stragglers, hosts, waits = (data.tables[name] for name in ("stragglers", "straggler_hosts", "waits"))
    if stragglers.empty:
        return None
    outliers = outlier_tables(outlier_groups(stragglers), data.device)
    tables = (*late_tables(stragglers, hosts, data.device), *outliers)
    if (worst := worst_of(stragglers, hosts)) is not None:
        figures = straggler_figures(worst, waits, worst_times(worst, data.launches), data.names)
        lead = f"Strips: {STRIP}. Diamonds: straggler. Triangles: outliers."
    else:
        figures, lead = typical_figure(waits, data.ok, data.launches, data.names), f"Strip: one record, {STRIP}."
    summary = "" if worst is not None or outliers else "Stragglers and outliers"
    return Section(
        *("stragglers", "Stragglers"), lead=lead if figures else "", figures=figures, tables=tables, summary=summary
    )


NOT_SLOW = "No slow node or rank: {num_checked} of {num_ok:measurement} checked."
BEHIND = "{lag_ratio:number} of the iteration behind the other %s ({lag_ratio:ends})."
LATE = ("It {does} in {what}, by {lag_s:number}; suspect in {num_suspect_launches} of {num_launches:launch/launches}.",)
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
    return [*found, *_outliers(outlier_groups(stragglers)), *_outliers_of_one(hosts, stragglers)]


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


def _outliers(groups: pd.DataFrame) -> list[Finding]:
    """Return the finding on all outliers, with the place where they cost most; none if nothing was checked."""
    if groups.empty:
        return []
    num_iterations = int(groups["num_iterations_checked"].sum())
    by_class = {column.name: int(groups[column.name].sum()) for column in CLASSES}
    values = {"num": int(groups["num_outliers"].sum()), "num_iterations": num_iterations, "by_class": by_class}
    values |= {"cost_ratio": float(groups["outlier_cost_iterations"].sum()) / num_iterations}
    classes = ", ".join(f"{one.label} {by_class[one.name]:,}" for one in CLASSES if by_class[one.name])
    words = {"classes": classes, "cost": three(100 * values["cost_ratio"], 2)}
    costly = groups[(groups["share_ratio"] > COSTLY_RATIO) & (groups["cost_ratio"] > COSTLY_RATIO)]
    for row in costly.nlargest(1, "cost_ratio").itertuples():
        values |= {"largest_ratio": float(row.cost_ratio)}
        words |= {"what": WHAT[row.quantity], "place": place_text(row), "largest_cost": three(100 * row.cost_ratio, 2)}
    return [Finding("outliers", values, (of_rows("stragglers", groups),), anchor="stragglers", words=words)]


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


def late_tables(stragglers: pd.DataFrame, hosts: pd.DataFrame, device: str) -> list[Table]:
    """Return the ranks, and the hosts if there are several, that were the suspect of a launch."""
    found = []
    tables = (("Rank", stragglers, STRAGGLERS, "stragglers"), ("Host", hosts, STRAGGLER_HOSTS, "straggler_hosts"))
    for noun, table, columns, name in tables:
        suspect = table[(table["num_suspect_launches"] > 0) | table["is_persistent"].fillna(False).astype(bool)]
        if len(suspect):
            rows = suspect.sort_values("lag_ratio", ascending=False, kind="stable").assign(interval="interval")
            caption = f"{noun}s that were last in most records of a launch{_first_of(len(rows))}"
            shown = columns.of_table("late")
            found.append(Table.of_columns(caption, shown, rows.head(MOST_ROWS), device, (name,)))
    return found


def _first_of(num: int) -> str:
    return f" (first {MOST_ROWS} of {num})" if num > MOST_ROWS else ""


def outlier_groups(stragglers: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each checked shape, stack and quantity: counts, and the rank with most outliers of single ranks.

    rank, hosts: unknown if no rank has more than half of them.
    """
    checked = stragglers[stragglers["num_iterations_checked"].notna()]
    checked = checked.sort_values("num_outliers_of_rank", ascending=False, kind="stable")
    first = checked.drop_duplicates([*PLACE, "quantity"])
    has_most = 2 * first["num_outliers_of_rank"] > first["num_outliers_one_rank"]
    return first.assign(
        unknown=first["num_outliers"] - first[[column.name for column in CLASSES[:-1]]].sum(axis=1),
        rank=first["rank"].where(has_most),
        share_ratio=first["num_outliers"] / first["num_iterations_checked"],
        cost_ratio=first["outlier_cost_iterations"] / first["num_iterations_checked"],
    ).sort_values(["share_ratio", "quantity"], ascending=[False, True], kind="stable")


def _most(row) -> str:
    """Return the rank with more than half of the outliers of single ranks: `rank 3: 2 of 3`."""
    return (
        UNKNOWN
        if is_unknown(row.rank)
        else f"rank {row.rank}: {row.num_outliers_of_rank} of {row.num_outliers_one_rank}"
    )


OUTLIER_COLUMNS = (
    Column("place", "measured", TEXT, text=lambda row: f"{WHAT[row.quantity]}, {place_text(row)}"),
    *_COUNTED[:2],
    Column("share_ratio", "outliers", shown_as="%"),
    Column("cost_ratio", "added time", shown_as="%"),
    *CLASSES,
    Column("rank", "most frequent rank", TEXT, text=_most),
)


def outlier_tables(groups: pd.DataFrame, device: str) -> list[Table]:
    """Return the table of groups with outliers, the largest share first; none if all may be chance."""
    found = groups[groups["num_outliers"] > 0]
    if not ((found["share_ratio"] > COSTLY_RATIO) | found["has_most_outliers"].fillna(False).astype(bool)).any():
        return []
    caption = f"Outlier iterations{_first_of(len(found))}"
    return [Table.of_columns(caption, OUTLIER_COLUMNS, found.head(MOST_ROWS), device, ("stragglers",))]


def _margin(campaign: dict) -> float:
    margin = versus_of(campaign)["margin"]
    return MARGIN if margin is None else margin


TABLES = {
    "stragglers": TableSpec(STRAGGLERS, lambda campaign, tables: stragglers_table(tables["waits"], _margin(campaign))),
    "straggler_hosts": TableSpec(
        STRAGGLER_HOSTS, lambda campaign, tables: straggler_hosts_table(tables["waits"], _margin(campaign))
    ),
}
TOPIC = Topic("stragglers", "Stragglers", TABLES, section, findings, part_of="stability", kinds=KINDS)
