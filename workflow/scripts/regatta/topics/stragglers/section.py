"""The topic of stragglers: ranks and hosts that the others wait for, and outliers among iterations. docs/metrics.md."""

from collections import Counter

import pandas as pd

from regatta.core.moderation import FALSE_DISCOVERIES, MIN_LAUNCHES
from regatta.core.statistics import OUTER_FENCE
from regatta.core.text import UNKNOWN, bracket, duration, is_unknown, percent, plural, shape, three
from regatta.kit.columns import TEXT, WHOLE, Column
from regatta.report.findings import Advice, Finding, of_rows, percent_number
from regatta.report.panels import Section, Table
from regatta.store.csv_files import interval_columns
from regatta.topics.base import ReportData, TableSpec, Topic
from regatta.topics.comparison.tables import MARGIN, versus_of
from regatta.topics.stragglers.figures import straggler_figures, typical_figure, worst_of, worst_times
from regatta.topics.stragglers.tables import (
    MOST_OF_RECORDS,
    STRAGGLER_HOSTS,
    STRAGGLERS,
    place_text,
    straggler_hosts_table,
    stragglers_table,
)
from regatta.topics.stragglers.waits import COMPUTE, HOST_WAIT, IN_COLLECTIVE, LAG_RATIO, MOST_OF_EXCESS, SUSPECT_P

MOST_ROWS = 20
STRIP = "median and 5th to 95th percentile over iterations; bands are hosts; the axis does not start at 0"
ALSO_SHOWN = 5  # persistent ranks and hosts named in the lead
FINDING_RATIO = 0.01  # share of iterations and of their time; fewer or cheaper outliers are only in the section
# Behavior of the last rank, and the timed iterations.
DOES = {IN_COLLECTIVE: "arrives last", COMPUTE: "computes longest", HOST_WAIT: "waits least"}
WHAT = {IN_COLLECTIVE: "collective calls", COMPUTE: "steps without synchronization", HOST_WAIT: "steps"}
_COUNTED = STRAGGLERS.of_table("outliers")
_CLASSES = (*_COUNTED[2:], Column("unknown", "unclassified", WHOLE))  # the first two: iterations and all outliers
COUNTS = {column.name: column.label for column in _CLASSES}
CHECK = (
    "Check for other load, daemons, clocks, temperatures, memory errors, and the cable and switch port. Then measure"
    " again without this host. Outliers raise means and high percentiles; medians are barely affected."
)


def section(data: ReportData) -> Section | None:
    """Return the part on stragglers and outliers, folded if there are none; None if no record could show any."""
    stragglers, hosts, waits = (data.tables[name] for name in ("stragglers", "straggler_hosts", "waits"))
    if stragglers.empty:
        return None
    late, groups = persistent(hosts, stragglers), outlier_groups(stragglers)
    outliers, none = outlier_tables(groups, data.device), none_text(stragglers, waits)
    tables = (*late_tables(stragglers, hosts, data.device), *outliers)
    if late:
        worst = worst_of(stragglers, hosts)
        figures = tuple(straggler_figures(worst, waits, worst_times(worst, data.launches), data.names))
        lead = [sentence(finding) for finding in late[:ALSO_SHOWN] if finding not in worst_finding(late)]
        lead += [f"{len(late) - ALSO_SHOWN} more are listed in the tables."] if len(late) > ALSO_SHOWN else []
        lead += [f"Strips: {STRIP}. Diamonds: straggler. Triangles: outliers.", *outlier_texts(groups)]
        return Section("stragglers", "Stragglers", lead=" ".join(lead), figures=figures, tables=tables)
    typical = typical_figure(waits, data.ok, data.launches, data.names)
    figures, lead = (typical,) if typical else (), outlier_texts(groups)
    if outliers:
        folded = (f"Times by rank of one record: {STRIP}", figures)
        return Section("stragglers", "Stragglers", lead=" ".join([none, *lead]), tables=tables, folded=folded)
    lead += [f"Strip: one record, {STRIP}."] if typical else []
    return Section("stragglers", "Stragglers", lead=" ".join(lead), figures=figures, tables=tables, summary=none)


def findings(data: ReportData) -> list[Finding]:
    """Return the worst persistent straggler, and the outliers that cost most."""
    stragglers, hosts = data.tables["stragglers"], data.tables["straggler_hosts"]
    worst = worst_finding(persistent(hosts, stragglers))
    return worst + [_outlier_finding(row) for row in costliest(outlier_groups(stragglers)).itertuples()]


def worst_finding(late: list[Finding]) -> list[Finding]:
    """Return the finding on the host or rank with the largest lag; empty without either.

    A host with a single slow rank is reported as that rank.
    """
    ranks = [finding for finding in late if finding.kind == "straggler_rank"]
    num_slow = Counter(host for _, host in {(f.values["rank"], host) for f in ranks for host in f.values["hosts"]})
    hosts = [finding for finding in late if finding not in ranks and num_slow[finding.values["host"]] != 1]
    return (hosts or ranks or late)[:1]


def persistent(hosts: pd.DataFrame, stragglers: pd.DataFrame) -> list[Finding]:
    """Return a finding for each persistent host, then for each persistent rank, the largest lag first."""
    found = []
    for name, table in (("straggler_hosts", hosts), ("stragglers", stragglers)):
        late = table[table["is_persistent"].fillna(False).astype(bool)]
        found += [_late_finding(name, row) for row in sorted(late.itertuples(), key=lambda row: -row.lag_ratio)]
    return found


def _late_finding(table: str, row) -> Finding:
    names = ("quantity", "num_suspect_launches", "num_launches", "last_ratio", "lag_s")
    values = {name: getattr(row, name) for name in (*names, *interval_columns("lag", "ratio"))}
    source = of_rows(table, pd.DataFrame(index=[row.Index]))
    if table == "straggler_hosts":
        values |= {"host": row.host, "num_expected_launches": row.num_expected_launches}
        return Finding("straggler_host", values, (source,), anchor="stragglers")
    hosts = () if is_unknown(row.hosts) else tuple(row.hosts.split(" "))
    values |= {"rank": row.rank, "hosts": hosts, "place": place_text(row)}
    return Finding("straggler_rank", values, (source,), anchor="stragglers")


def sentence(finding: Finding) -> str:
    values = finding.values
    if finding.kind == "outliers":
        listed = _classes_text(values["by_class"])
        return (
            f"Outliers add {percent_number(values['cost_ratio'])} % to {WHAT[values['quantity']]} on {values['place']}:"
            f" {values['num']:,} of {values['num_iterations']:,} iterations ({listed})."
        )
    ends = bracket(values["lag_low_ratio"], values["lag_high_ratio"], "interval", percent_number)
    lag = f"{duration(values['lag_s'])} ({percent_number(values['lag_ratio'])} % of the iteration {ends})"
    launches = f"{values['num_suspect_launches']} of {plural(values['num_launches'], 'launch', 'launches')}"
    if finding.kind == "straggler_host":
        return (
            f"Straggler: host {values['host']}, whose rank {DOES[values['quantity']]} in {launches}"
            f" ({three(values['num_expected_launches'])} expected by chance); {lag} behind the median of the other"
            " hosts."
        )
    where = f" on {' or '.join(values['hosts'])}" if 0 < len(values["hosts"]) <= 2 else ""
    return (
        f"Straggler: rank {values['rank']}{where} {DOES[values['quantity']]} in {percent_number(values['last_ratio'])}"
        f" % of {WHAT[values['quantity']]} and {launches} on {values['place']}; {lag} behind the median of the"
        " others."
    )


def _classes_text(counts: dict[str, int]) -> str:
    """Return outliers by class: `3 on all ranks, 2 unclassified`. counts: by name in COUNTS."""
    known = {name: num for name, num in counts.items() if num}
    return ", ".join(f"{num:,} {'' if name == 'unknown' else 'on '}{COUNTS[name]}" for name, num in known.items())


def none_text(stragglers: pd.DataFrame, waits: pd.DataFrame) -> str:
    """Return the sentence without a persistent straggler: what was checked, and whether it could have been detected."""
    if stragglers.empty:
        return "No measurement on several ranks is suitable for straggler detection."
    first_ranks = waits[waits["rank"] == 0]
    shapes = waits[["nodes", "gpus_per_node"]].drop_duplicates().sort_values(["nodes", "gpus_per_node"])
    text = (
        f"No persistent straggler in {plural(int(first_ranks['num_records'].sum()), 'measurement')},"
        f" {plural(waits['launch'].nunique(), 'launch', 'launches')}"
        f" ({', '.join(shape(nodes, gpus) for nodes, gpus in shapes.itertuples(index=False))})."
    )
    if can_detect(stragglers):
        return text
    return f"{text} {plural(MIN_LAUNCHES, 'launch', 'launches')} are needed to detect one."


def can_detect(stragglers: pd.DataFrame) -> bool:
    """Return whether any row has enough launches for a verdict."""
    return bool((stragglers["num_launches"] >= MIN_LAUNCHES).any())


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
    checked = stragglers[stragglers["num_iterations_checked"].notna()].sort_values(
        "num_outliers_of_rank", ascending=False, kind="stable"
    )
    first = checked.drop_duplicates(["nodes", "gpus_per_node", "stack", "device", "quantity"])
    has_most = 2 * first["num_outliers_of_rank"] > first["num_outliers_one_rank"]
    return first.assign(
        unknown=first["num_outliers"] - first[list(COUNTS)[:-1]].sum(axis=1),
        rank=first["rank"].where(has_most),
        hosts=first["hosts"].where(has_most),
        share_ratio=first["num_outliers"] / first["num_iterations_checked"],
        cost_ratio=first["outlier_cost_iterations"] / first["num_iterations_checked"],
    ).sort_values(["share_ratio", "quantity"], ascending=[False, True], kind="stable")


def costliest(groups: pd.DataFrame) -> pd.DataFrame:
    """Return the group with the costliest outliers; no row if none costs enough to matter."""
    found = groups[(groups["share_ratio"] > FINDING_RATIO) & (groups["cost_ratio"] > FINDING_RATIO)]
    return found.sort_values("cost_ratio", ascending=False, kind="stable").head(1)


def _outlier_finding(row) -> Finding:
    values = {"quantity": row.quantity, "place": place_text(row), "cost_ratio": float(row.cost_ratio)}
    values |= {"num": int(row.num_outliers), "num_iterations": int(row.num_iterations_checked)}
    values["by_class"] = {name: int(getattr(row, name)) for name in COUNTS}
    return Finding("outliers", values, (of_rows("stragglers", pd.DataFrame(index=[row.Index])),), anchor="stragglers")


def outlier_texts(groups: pd.DataFrame) -> list[str]:
    """Return the sentences on all groups together; none if nothing was checked."""
    num_iterations, num = int(groups["num_iterations_checked"].sum()), int(groups["num_outliers"].sum())
    if not num_iterations:
        return []
    if not num:
        return [f"No outliers in {num_iterations:,} iterations."]
    listed = _classes_text({column: int(groups[column].sum()) for column in COUNTS})
    cost = groups["outlier_cost_iterations"].sum() / num_iterations
    text = (
        f"{num:,} outliers in {num_iterations:,} iterations ({percent(num / num_iterations)} %; {listed}); they add"
        f" {'less than 0.1' if cost < 0.001 else percent_number(cost)} % to the total time."
    )
    named = [row for row in groups.itertuples() if _is_named(row)]
    if not named:
        return [text]
    top = max(named, key=lambda row: row.num_outliers_of_rank)
    return [text, f"Single rank: {_most(top)} ({WHAT[top.quantity]}, {place_text(top)})."]


def _is_named(row) -> bool:
    """Return whether a rank has more outliers of single ranks than chance explains, or all of several."""
    has_all = row.num_outliers_of_rank == row.num_outliers_one_rank > 1
    return has_all or (not is_unknown(row.has_most_outliers) and bool(row.has_most_outliers))


def _most(row) -> str:
    hosts = [] if is_unknown(row.hosts) else row.hosts.split(" ")
    on = f" on {hosts[0]}" if len(hosts) == 1 else f" on {len(hosts)} hosts" if hosts else ""
    return f"rank {row.rank}{on} has {row.num_outliers_of_rank} of {row.num_outliers_one_rank}"


OUTLIER_COLUMNS = (
    Column("place", "measured", TEXT, text=lambda row: f"{WHAT[row.quantity]}, {place_text(row)}"),
    *_COUNTED[:2],
    Column("share_ratio", "outliers", shown_as="%"),
    Column("cost_ratio", "added time", shown_as="%"),
    *_CLASSES,
    Column("rank", "most frequent rank", TEXT, text=lambda row: UNKNOWN if is_unknown(row.rank) else _most(row)),
)


def outlier_tables(groups: pd.DataFrame, device: str) -> list[Table]:
    """Return the table of groups with outliers, the largest share first; none if all may be chance."""
    found = groups[groups["num_outliers"] > 0]
    if not ((found["share_ratio"] > FINDING_RATIO) | found["has_most_outliers"].fillna(False).astype(bool)).any():
        return []
    caption = f"Outlier iterations{_first_of(len(found))}"
    return [Table.of_columns(caption, OUTLIER_COLUMNS, found.head(MOST_ROWS), device, ("stragglers",))]


def warnings(data: ReportData) -> list[Advice]:
    """Return the warning on the host, else the rank, that caused most outliers of a single one."""
    for name, noun, of_all in (
        ("straggler_hosts", "host", "num_outliers_of_any_host"),
        ("stragglers", "rank", "num_outliers_one_rank"),
    ):
        column, table = f"num_outliers_of_{noun}", data.tables[name]
        found = table[table["has_most_outliers"].fillna(False).astype(bool)]
        most = found.sort_values(column, ascending=False, kind="stable").head(1)
        for row in most.itertuples():
            num, total = getattr(row, column), getattr(row, of_all)
            who = f"Host {row.host}" if noun == "host" else f"Rank {row.rank} ({place_text(row)})"
            text = f"{who} caused {num} of {plural(total, 'outlier')} attributed to one"
            text += (
                f" {'host or ' * (noun == 'host')}rank ({row.num_iterations_checked:,} {WHAT[row.quantity]} checked)."
            )
            return [Advice(text, CHECK, (of_rows(name, most),), {"num": num, "num_of_one": total})]
    return []


def methods(campaign: dict) -> list[tuple[str, str]]:
    """Return the definitions for a campaign with cells of several ranks."""
    if all(cell["spec"]["nodes"] * cell["spec"]["gpus_per_node"] < 2 for cell in campaign["cells"]):
        return []
    stragglers = (
        "The rank that all others wait for. It spends the least time in a collective that no rank can leave before all"
        " have arrived, or the most in a step without gradient synchronization. Synchronized step times cannot show"
        f" it. Suspect in a record: last in more iterations than expected by chance (binomial test, corrected p <"
        f" {SUSPECT_P:g}), and behind the median of the others by more than {100 * LAG_RATIO:g} % of the iteration."
        f" Suspect in a launch: suspect in more than {100 * MOST_OF_RECORDS:g} % of its records. Lag: median over the"
        " records of a launch, then mean over launches, against the median of the others. Slow: the whole moderated"
        f" 95 % interval of the lag is beyond the margin, and corrected p is at most {FALSE_DISCOVERIES:g}"
        " (Benjamini-Hochberg over the table), as for nodes of a sweep."
    )
    outliers = (
        f"Iterations whose slowest rank exceeds the outer fence of the record ({OUTER_FENCE} interquartile ranges above"
        f" the upper quartile). All ranks: more than {100 * MOST_OF_EXCESS:g} % of the excess over the median is common"
        " to all ranks. One rank, one host: without it, the iteration would not be an outlier; in a collective, it is"
        " the only one that did not wait. Unclassified: all others, and whole steps on GPUs. Added time: total excess"
        " over the median iteration / total time of all iterations."
    )
    return [("Stragglers", stragglers), ("Outliers", outliers)]


def _margin(campaign: dict) -> float:
    margin = versus_of(campaign)["margin"]
    return MARGIN if margin is None else margin


TABLES = {
    "stragglers": TableSpec(STRAGGLERS, lambda campaign, tables: stragglers_table(tables["waits"], _margin(campaign))),
    "straggler_hosts": TableSpec(
        STRAGGLER_HOSTS, lambda campaign, tables: straggler_hosts_table(tables["waits"], _margin(campaign))
    ),
}
TOPIC = Topic("stragglers", "Stragglers", TABLES, section, findings, sentence, warnings, methods, part_of="stability")
