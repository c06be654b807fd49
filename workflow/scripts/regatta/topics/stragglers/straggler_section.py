"""The topic of stragglers: ranks and hosts that the others repeatedly wait for.

The launch is the unit: the lag of each rank and host behind the median of the others is tested like a node of a sweep.
Definitions: docs/metrics.md.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from regatta.core import moderation
from regatta.core.moderation import FALSE_DISCOVERIES, MIN_LAUNCHES
from regatta.core.statistics import launch_table
from regatta.core.text import UNKNOWN, is_unknown, shape
from regatta.kit.columns import FLAG, TEXT, WHOLE, Column, Columns, in_file
from regatta.kit.kinds import FAIR, RESULT, Kind, Value, joined
from regatta.report.cell_launches import HOST
from regatta.report.chart import COLORS, Chart, PlotAxis, Style
from regatta.report.findings import Finding, of_rows
from regatta.report.panels import Figure, Section, Table
from regatta.store.csv_files import CELL, QUANTITY, WAITS, make_table
from regatta.store.launch_files import read_one_line
from regatta.store.waits import (
    COMPUTE,
    HOST_WAIT,
    IN_COLLECTIVE,
    LAG_RATIO,
    QUANTILES,
    SUSPECT_P,
    waiting_times,
)
from regatta.tables.pairs import MARGIN, versus_of
from regatta.topics.base import ReportData, TableSpec, Topic, grouped, once_per_report, plain_rows

MOST_OF_RECORDS = 0.5  # a rank that is suspect in more of a launch's records is the launch's suspect
VERDICTS = {"slower": "slow", "equivalent": "within the margin"}  # words of a lag
PLACE = ("nodes", "gpus_per_node", "world_size", "stack", "device")


def place_text(row) -> str:
    return f"{shape(row.nodes, row.gpus_per_node)}, {row.stack}"


def rank_text(row) -> str:
    return f"rank {row.rank} on {UNKNOWN if is_unknown(row.hosts) else row.hosts.replace(' ', ', ')}, {place_text(row)}"


def _launches_text(row) -> str:
    return f"{row.num_suspect_launches}/{row.num_launches}"


LAST = Column("last_ratio", "last in", shown_as="%", table="late", help="`num_last` / `num_iterations`")
_LAG = "mean over launches of the lag in `waits.csv`; its moderated 95 % interval from 3 launches"
_P = "two-sided p of a lag of 0, and corrected over the table (Benjamini–Hochberg)"
_VERDICT = "slow (persistent), faster (early), within the margin, or inconclusive: see below"
_RECORD = "the record with quantiles in the launch with the largest lag; shown in the report"
_LAUNCHES = "launches examined, and those in which the rank or host was the suspect"
_COUNTS = "records examined and with it as the suspect; iterations examined and with it as the last"
LAG = (
    Column("lag_s", "lag", shown_as="ms", table="late", help=_LAG),
    Column("lag_ratio", "lag", shown_as="%", interval="interval", table="late", help=_LAG),
)
_JUDGED = (
    Column("quantity", "quantity", TEXT, table="late", text=lambda row: row.quantity.replace("_", " "), help=QUANTITY),
    Column("num_launches", type=WHOLE, help=_LAUNCHES),
    Column("num_suspect_launches", "launches", WHOLE, table="late", text=_launches_text, help=_LAUNCHES),
    *in_file(WHOLE, _COUNTS, "num_records", "num_suspect_records", "num_iterations", "num_last"),
    LAST,
    *LAG,
    Column("p_value", help=_P),
    Column("p_adjusted", "corrected p", table="late", help=_P),
    Column("verdict", "verdict", TEXT, table="late", help=_VERDICT),
    Column("is_persistent", type=FLAG, help=_VERDICT),
    *in_file(TEXT, _RECORD, "launch"),
    *in_file(WHOLE, _RECORD, "line"),
)
STRAGGLERS = Columns(
    *(Column(name, type=CELL[name]) for name in PLACE),
    Column("rank", "rank", WHOLE, table="late", text=rank_text),
    *in_file(TEXT, "hosts on which the rank ran", "hosts"),
    *_JUDGED,
)
STRAGGLER_HOSTS = Columns(
    Column("host", "host", TEXT, table="late", help="the host"),
    *_JUDGED,
    Column("num_expected_launches", help="expected number of launches in which the host is the suspect by chance"),
    *in_file(TEXT, "its suspect ranks, with their records", "ranks"),
)


def stragglers_table(waits: pd.DataFrame, margin: float | None = None) -> pd.DataFrame:
    """Return one row for each rank of each examined shape, stack and quantity. hosts: those on which it ran.

    margin: lag, as a share of the iteration, up to which a rank is not slow; default: MARGIN.
    """
    keys, rows = (*PLACE, "quantity", "rank"), []
    for key, launches in grouped(_rows(waits), keys).items():
        hosts = sorted({row["host"] for row in launches} - {None})
        place = dict(zip(keys, key, strict=True)) | {"hosts": " ".join(hosts) or None}
        rows.append(place | _over_launches(launches))
    return make_table(_judged(rows, margin), STRAGGLERS)


def straggler_hosts_table(waits: pd.DataFrame, margin: float | None = None) -> pd.DataFrame:
    """Return one row for each host and quantity, over all shapes and stacks of several hosts.

    ranks: those that were suspect there, with the number of records.
    """
    several, rows = [], []
    for ranks in grouped(_rows(waits), ("launch", "quantity")).values():
        known = [row for row in ranks if row["host"] is not None]
        several += known if len({row["host"] for row in known}) > 1 else []
    for (host, quantity), ranks in sorted(grouped(several, ("host", "quantity")).items()):
        launches, suspects = grouped(ranks, ("launch",)).values(), Counter()
        for row in ranks:
            suspects[row["rank"]] += row["num_suspect"]
        names = ", ".join(f"{rank} ({num})" for rank, num in sorted(suspects.items()) if num)
        expected = sum(len(of_launch) / of_launch[0]["world_size"] for of_launch in launches)
        row = {"host": host, "quantity": quantity, "ranks": names or None, "num_expected_launches": expected}
        rows.append(row | _over_launches([_of_host(of_launch) for of_launch in launches]))
    return make_table(_judged(rows, margin), STRAGGLER_HOSTS)


def _rows(waits: pd.DataFrame) -> list[dict]:
    return plain_rows(waits.sort_values([*PLACE, "quantity", "rank", "launch"], kind="stable"), tuple(WAITS))


def _of_host(ranks: list[dict]) -> dict:
    """Return a host's row of one launch, from its rows by rank."""
    row = ranks[0] | {"num_last": sum(rank["num_last"] for rank in ranks)}
    return (
        row | {name: row[f"host_{name}"] for name in ("lag_s", "lag_ratio")} | {"num_suspect": row["num_host_suspect"]}
    )


def _over_launches(launches: list[dict]) -> dict:
    """Return how often this rank or host was the suspect, its lag in seconds, and its lags by launch.

    launch, line: the record with quantiles in the launch where it lags most.
    """
    suspect = [row for row in launches if row["num_suspect"] > MOST_OF_RECORDS * row["num_records"]]
    row = {"num_launches": len(launches), "num_suspect_launches": len(suspect)}
    row |= {name: sum(launch[name] for launch in launches) for name in ("num_records", "num_iterations", "num_last")}
    row |= {"num_suspect_records": sum(launch["num_suspect"] for launch in launches)}
    known = [launch for launch in launches if launch["lag_s"] is not None]
    row |= {"last_ratio": row["num_last"] / row["num_iterations"], "lags": [launch["lag_ratio"] for launch in known]}
    row |= {"lag_s": float(np.mean([launch["lag_s"] for launch in known])) if known else None}
    shown = [launch for launch in known if launch["line"] is not None]
    worst = max(shown, key=lambda launch: (launch in suspect, launch["lag_ratio"]), default={})
    return row | {name: worst.get(name) for name in ("launch", "line")}


def _judged(rows: list[dict], margin: float | None) -> list[dict]:
    """Return the rows with the verdicts on their lags."""
    margin = MARGIN if margin is None else margin
    lags = launch_table([dict(enumerate(row.pop("lags"))) for row in rows])
    places = [str([row.get(name) for name in PLACE]) for row in rows]  # rows of one share their launches
    judged = judged_lags(lags, [row["quantity"] for row in rows], margin, places) if rows else []
    return [row | of_row for row, of_row in zip(rows, judged, strict=True)]


def judged_lags(lags: np.ndarray, groups: list[str], margin: float, batches: list[str] | None = None) -> list[dict]:
    """Return the mean lag of each row over launches with its interval, p corrected over all rows, and the verdict.

    lags: (rows, launches), NaN where unknown. slow: the interval is beyond the margin, p is at most FALSE_DISCOVERIES.
    """
    found = moderation.paired_contrasts(lags, np.zeros(lags.shape), np.array(groups), batches=batches)
    adjusted = moderation.adjust_for_number(found.p_value)
    words = moderation.words(found, adjusted, np.full(len(lags), margin))
    half = np.where(found.num < MIN_LAUNCHES, np.nan, found.half_width)
    numbers = (found.shift, found.shift - half, found.shift + half, found.p_value, adjusted)
    names = ("lag_ratio", "lag_low_ratio", "lag_high_ratio", "p_value", "p_adjusted")
    return [
        {"is_persistent": word == "slower", "verdict": VERDICTS.get(word, word) if num else None}
        | dict(zip(names, values, strict=True))
        for word, num, *values in zip(words.tolist(), found.num, *(array.tolist() for array in numbers), strict=True)
    ]


# The section.

STRIP = (
    "One cell in one launch: median and 5th to 95th percentile over iterations. Shaded bands separate hosts. Diamonds:"
    " straggler."
)
STYLES = {"": Style(COLORS[0], "o"), "straggler": Style(COLORS[1], "D")}
# The timed quantity, and how a straggler shows in it.
SHOWS = {
    IN_COLLECTIVE: ("time in the collective", "a straggler waits least"),
    COMPUTE: ("step without synchronization", "a straggler computes longest"),
    HOST_WAIT: ("wait for synchronization", "a straggler waits least"),
}
WHAT = {IN_COLLECTIVE: "collective calls", COMPUTE: "steps without synchronization", HOST_WAIT: "steps"}


def section(data: ReportData) -> Section | None:
    """Return the part on stragglers, folded without one; None if no record could show any."""
    stragglers, hosts = data.tables["stragglers"], data.tables["straggler_hosts"]
    if stragglers.empty:
        return None
    figures = _rank_times(worst := _worst_of(stragglers, hosts), data)
    tables, summary = late_tables(stragglers, hosts, data.device), "Stragglers" if worst is None else ""
    return Section("stragglers", "Stragglers", STRIP if figures else "", figures, tables, summary=summary)


def _worst_of(stragglers: pd.DataFrame, hosts: pd.DataFrame):
    """Return the row of the persistent rank with the largest lag, falling back to the host; None without either.

    It has a record with quantiles by rank.
    """
    found = (table[table["is_persistent"] & table["line"].notna()] for table in (stragglers, hosts))
    return next((max(rows.itertuples(), key=lambda row: row.lag_ratio) for rows in found if len(rows)), None)


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
    what, reading = SHOWS[ranks["quantity"].iloc[0]]
    time = Column("time_s", what).fitted(float(ranks["p95_s"].max()))
    shown = [replace(one, shown_as=time.shown_as) if one.unit else one for one in WAITS.of_table("strip")]
    rows = ranks.assign(last_ratio=ranks["num_last"] / ranks["num_iterations"])
    title = f"{what.capitalize()}, {place_text(next(ranks.itertuples()))}"
    caption = f"{what.capitalize()} by rank, {record}; {reading}"
    table = Table.of_columns(caption, (*shown, LAST), rows, ranks["device"].iloc[0])
    hosts, (value, low, high) = (
        ranks["host"].fillna(UNKNOWN).tolist(),
        time.factor * ranks[["p50_s", "p5_s", "p95_s"]].T.to_numpy(float),
    )
    series = ["straggler" if is_slow else "" for is_slow in is_late]
    marks = {"cell": "", "series": series, "x": range(len(ranks)), "y": value, "low": low, "high": high, "group": hosts}
    names = PlotAxis.of_categories("rank", [f"{rank} \N{MIDDLE DOT} {host}" for rank, host in enumerate(hosts)])
    strip = Chart("rows", pd.DataFrame(marks), names, PlotAxis(time.heading("")), styles=STYLES, record=record)
    return Figure("rank-times", title, strip, table, "waits")


WHERE = "Slow {who}, in {num_cells:cell} on {places}: lag {lag_ratio}."
LATE = "Last in {what}, in {num_suspect_launches} of {num_launches:launch/launches}, by {lag_s:number} (mean)."
CHECK = "Check for load, clocks, temperatures, memory errors, cable and switch port. Measure again without this node."
KINDS = (
    *(
        Kind(name, FAIR, WHERE, (LATE, "Also slow: {others}."), CHECK, step, "straggler")
        for name, step in (
            ("straggler_host", "exclude slow {slow}: `exclude_nodes: [{exclude}]`"),
            ("straggler_rank", "check {who}"),
        )
    ),
    Kind(
        *("no_straggler", RESULT),
        lead=(
            "No straggler detected: {num_checked} of {num_ok:measurement} can detect one.",
            f"Stragglers are not detectable with fewer than {MIN_LAUNCHES} launches.",
        ),
        term="Stragglers",
        help="A rank or node that all others wait for: it spends the least time in a collective that no rank can leave"
        " before all have arrived, or the most in a step without gradient synchronization. Lag: time behind the median"
        " of the others, as a share of the iteration; median over the records of a launch, then mean over launches."
        f" Slow: the 95 % CI (moderated) is beyond the margin, and corrected p is at most {FALSE_DISCOVERIES:g}."
        f" This takes {MIN_LAUNCHES} launches. Slow in a record: last in more iterations than expected by chance"
        f" (binomial test, corrected p < {SUSPECT_P:g}), with a lag above {100 * LAG_RATIO:g} %; in a launch: in more"
        f" than {100 * MOST_OF_RECORDS:g} % of its records.",
    ),
)


@once_per_report
def findings(data: ReportData) -> list[Finding]:
    """Return slow nodes, slow ranks on other nodes, or that neither was found."""
    hosts, stragglers = data.tables["straggler_hosts"], data.tables["stragglers"]
    slow_hosts, slow_ranks = (table[table["is_persistent"]] for table in (hosts, stragglers))
    slow_ranks = slow_ranks[~slow_ranks["hosts"].isin(slow_hosts["host"])]
    found = [
        *_late("straggler_host", slow_hosts, "straggler_hosts", ["host"], data),
        *_late("straggler_rank", slow_ranks, "stragglers", [*PLACE, "rank"], data),
    ]
    places = stragglers.drop_duplicates([*PLACE, "quantity"])
    has_failed_node = any(map(HOST.search, data.tables["failures"]["cause"].dropna()))
    if not (found or places.empty or has_failed_node or data.problems.get("blamed_nodes")):
        num_checked = int(places.loc[places["num_launches"] >= MIN_LAUNCHES, "num_records"].sum())
        values, source = {"num_checked": num_checked, "num_ok": len(data.ok)}, of_rows("stragglers", places)
        found.append(Finding("no_straggler", values, (source,), anchor="stability"))
    return found


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
    who, *others = dict.fromkeys(f"node {row.host}" if keys == ["host"] else rank_text(row) for row in rows)
    words = {"who": who, "others": others, "slow": joined([who, *others]), "what": WHAT[rows[0].quantity]}
    words["exclude"] = ", ".join(dict.fromkeys(slow["host"])) if keys == ["host"] else None
    launches = data.tables["waits"].merge(slow[keys].drop_duplicates())["launch"]
    ran = data.ok.loc[data.ok["launch"].isin(launches), ["cell", "nodes", "gpus_per_node"]].drop_duplicates()
    cells, shapes = tuple(ran["cell"].unique()), sorted({(row.nodes, row.gpus_per_node) for row in ran.itertuples()})
    values["num_cells"], words["places"] = len(cells), joined([shape(*of) for of in shapes])
    return [Finding(kind, values, (of_rows(table, slow),), cells, "warnings", words)]


def late_tables(stragglers: pd.DataFrame, hosts: pd.DataFrame, device: str) -> tuple[Table, ...]:
    """Return the ranks, and the hosts if there are several, that were the suspect of a launch."""
    found = []
    tables = (("Rank", stragglers, STRAGGLERS, "stragglers"), ("Host", hosts, STRAGGLER_HOSTS, "straggler_hosts"))
    for noun, table, columns, name in tables:
        rows = table[(table["num_suspect_launches"] > 0) | table["is_persistent"]].assign(interval="interval")
        if len(rows):
            rows = rows.sort_values("lag_ratio", ascending=False, kind="stable")
            caption = f"{noun}s that were last most often"
            found.append(Table.of_columns(caption, columns.of_table("late"), rows, device, (name,)))
    return tuple(found)


def _spec(columns: Columns, make: Callable[[pd.DataFrame, float | None], pd.DataFrame]) -> TableSpec:
    return TableSpec(columns, lambda campaign, tables: make(tables["waits"], versus_of(campaign)["margin"]))


TABLES = {
    "stragglers": _spec(STRAGGLERS, stragglers_table),
    "straggler_hosts": _spec(STRAGGLER_HOSTS, straggler_hosts_table),
}
TOPIC = Topic("stragglers", "Stragglers", TABLES, section, findings, part_of="stability", is_judge=True, kinds=KINDS)
