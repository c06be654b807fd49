"""Places that are repeated, against the others of their level: nodes and pairs of a sweep, ranks, and hosts.

A node or pair is compared with the median of the others, repeat by repeat. A rank or host lags behind the others in
each launch (store/waits.py). Both are judged alike (`judged`), each table as one family. Definitions: docs/metrics.md.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pandas as pd

from regatta.campaign.expansion import canonical_json
from regatta.core import moderation
from regatta.core.moderation import MIN_LAUNCHES, adjust_for_number, median_of_others
from regatta.core.statistics import fast_median, launch_table
from regatta.core.text import UNKNOWN, is_unknown, natural, shape
from regatta.core.verdicts import NO_TEST, TEST
from regatta.kit.columns import CELL_ID, FLAG, REAL, TEXT, WHOLE, Column, Columns, in_file
from regatta.model.frozen import Cell, FrozenCampaign
from regatta.store.csv_files import CELL, QUANTITY, WAITS, cell_row, columns_in, grouped, make_table, plain_rows
from regatta.tables.estimates import KINDS, over_launches, reduced
from regatta.tables.pairs import MARGIN, margins_of
from regatta.tables.primary_times import times_by_cell


def judged(
    apart: np.ndarray,
    effect: Column,
    groups: Sequence[str],
    batches: Sequence[str],
    margins: np.ndarray | float,
    logs: np.ndarray | None = None,
) -> list[dict]:
    """Return for each place its mean effect over launches with ends, p corrected over all places, and the verdict.

    apart: how much slower it is than the others, (places, launches), NaN where unknown. batches: places with the same
    one share their launches. margins: effects that are still equivalent. logs: log times, whose variance the prior
    follows; apart and margins are then logarithms of ratios.
    """
    if not len(groups):
        return []
    levels, scale = (np.zeros(apart.shape), np.asarray) if logs is None else (logs, np.exp)
    found = moderation.paired_contrasts(apart, levels, np.array(groups), batches=np.array(batches))
    num, half, adjusted = found.num.astype(int), found.half_width, adjust_for_number(found.p_value)
    margins = np.broadcast_to(margins, num.shape)
    verdicts = moderation.words(found, adjusted, margins)
    needed = np.where(verdicts == "inconclusive", moderation.launches_needed(found, adjusted, margins), 0)
    ends = [(reduced(apart, np.min), found.shift - half), (reduced(apart, np.max), found.shift + half)]
    ends = [np.where(num < 2, np.nan, np.where(num < MIN_LAUNCHES, *end)) for end in ends]
    kinds, tests = KINDS[np.minimum(num, MIN_LAUNCHES)], np.where(num < MIN_LAUNCHES, NO_TEST, TEST[True, False])
    names = (*effect.names, "interval", "test", "p_value", "p_adjusted", "verdict", "launches_needed")
    columns = (*scale([found.shift, *ends]), kinds, tests, found.p_value, adjusted, verdicts, needed)
    return [dict(zip(names, row, strict=True)) for row in zip(*(of.tolist() for of in columns), strict=True)]


# Nodes and pairs of a sweep. One row for each, and each workload, which the columns of CELL describe. `cell`: unknown
# for a node of a sweep of pairs, whose time is the median over its pairs.

JUDGED = "as in comparisons, paired by launch, moderated over all nodes; p is corrected over the table"
WORDS = {"equivalent": "within the margin"}  # verdicts that are shown in other words
RANKED = {"table": "ranking", "better": "smaller"}
MEAN_TIME = "primary time of ok launches, as in comparisons: geometric mean over launches; of a node in a sweep of"
MEAN_TIME += " pairs, the median over its pairs"
MEAN_RATIO = "geometric mean over launches of the ratio to the median of the other nodes or pairs in the launch of the"
MEAN_RATIO += " same number; to that of all, if fewer than four"
SHOWN = {"interval": "interval", "is_shown": True}
TIME = Column("time_s", "time", shown_as="ms", help=MEAN_TIME, is_main=True, **RANKED, **SHOWN)
OF_RATIO = {"shown_as": "%", "minus": 1, "key": "difference_percent", "help": MEAN_RATIO}
TIME_RATIO = Column("time_ratio", "difference in time", **OF_RATIO, **RANKED, **SHOWN)
FASTEST = "position by time; 1 is the fastest"
POSITION = Column("place", "place", WHOLE, **RANKED, help=FASTEST, text=lambda row: _position_text(row))
VERDICT = Column(
    *("verdict", "verdict", TEXT), table="ranking", text=lambda row: WORDS.get(row.verdict, row.verdict), help=JUDGED
)
SWEEP = Columns(
    Column("hosts", "{noun}", TEXT, table="ranking", help="the node, or the two of a pair"),
    CELL_ID,
    *(Column(name, type=kind) for name, kind in CELL.items()),
    *in_file(WHOLE, "", "num_planned", "num_launches"),
    Column("num_pairs", type=WHOLE, help="of a node in a sweep of pairs: those with a result"),
    *(TIME, TIME_RATIO, *in_file(TEXT, JUDGED, "interval", "test")),
    *in_file(REAL, JUDGED, "p_value", "p_adjusted", "margin_ratio"),
    *(Column("margin_source", type=TEXT, help=JUDGED), VERDICT, Column("launches_needed", type=WHOLE, help=JUDGED)),
    *(POSITION, Column("num_places", type=WHOLE)),
)


def _position_text(row) -> str:
    return UNKNOWN if is_unknown(row.place) else f"{row.place:,}/{row.num_places:,}"


def workload_of(cell: Cell) -> str:
    """Return all fields of a cell except its nodes, as text. Cells with equal fields are ranked together."""
    return canonical_json({name: value for name, value in cell.spec.items() if name != "hosts"})


# A node or pair of one workload: its hosts, the columns that identify it, and the seconds of its ok launches by repeat.
Member = tuple[tuple[str, ...], dict, dict[int, float]]
Members = dict[str, list[Member]]  # by workload


def sweep_pairs_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each cell of a sweep of pairs, measured or not; none for other campaigns."""
    pairs = _cells(campaign, measurements) if campaign.sweep == "pairs" else {}
    return _ranked(campaign, measurements, pairs, pairs)


def sweep_nodes_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each node and workload of a sweep, measured or not; none for other campaigns."""
    cells = nodes = _cells(campaign, measurements) if campaign.sweep else {}
    if campaign.sweep == "pairs":
        nodes = {workload: _nodes_of_pairs(pairs) for workload, pairs in cells.items()}
    return _ranked(campaign, measurements, nodes, cells)


def _cells(campaign: FrozenCampaign, measurements: pd.DataFrame) -> Members:
    """Return nodes or pairs, as they are in the cells."""
    times, found = times_by_cell(measurements), defaultdict(list)
    for cell in campaign.cells:
        seconds = {repeat: seconds for repeat, (_, seconds) in times[cell.id].items()}
        found[workload_of(cell)].append((cell.hosts, cell_row(cell) | {"num_planned": campaign.repeats}, seconds))
    return found


def _nodes_of_pairs(pairs: list[Member]) -> list[Member]:
    """Return the nodes of these pairs. The time of a node in a repeat is the median over its pairs."""
    of_node, found = defaultdict(list), []
    for hosts, row, times in pairs:
        for host in hosts:
            of_node[host].append((row, times))
    for host, of_host in of_node.items():
        rows, times = zip(*of_host, strict=True)
        medians = {n: fast_median([of[n] for of in times if n in of]) for n in sorted(set().union(*times))}
        found.append(((host,), rows[0] | {"cell": None, "num_pairs": sum(map(bool, times))}, medians))
    return found


def _ranked(campaign: FrozenCampaign, measurements: pd.DataFrame, members: Members, cells: Members) -> pd.DataFrame:
    """Return a row for each member, compared with the median of the others of its workload, repeat by repeat.

    A repeat in which one cell has a result is not compared.
    """
    margins = margins_of(campaign, times_by_cell(measurements)) if members else {}
    rows, times, compared, workloads = [], [], [], []
    for number, (workload, of_workload) in enumerate(members.items()):
        num_results = Counter(repeat for _, _, of_cell in cells[workload] for repeat in of_cell)
        for hosts, row, seconds in sorted(of_workload, key=lambda member: [natural(host) for host in member[0]]):
            margin = margins[row["benchmark"]]
            row = row | {"hosts": ", ".join(hosts), "num_launches": len(seconds)}
            rows.append(row | {"margin_ratio": margin.ratio, "margin_source": margin.source})
            times.append(seconds)
            compared.append({repeat: time for repeat, time in seconds.items() if num_results[repeat] > 1})
            workloads.append(number)
    benchmarks, hosts = (np.array([row[name] for row in rows], str) for name in ("benchmark", "hosts"))
    for row, *ends in zip(rows, *over_launches(launch_table(times), benchmarks, hosts).ends, strict=True):
        row |= dict(zip(TIME.names, ends, strict=True))
    logs, workloads = np.log(launch_table(compared)), np.array(workloads)
    others = np.full(logs.shape, np.nan)
    for number in range(len(members)):
        others[workloads == number] = median_of_others(logs[workloads == number])
    known = np.flatnonzero(np.isfinite(others).any(1))
    apart, levels = (logs - others)[known], (logs + others)[known] / 2
    limits = np.log1p([rows[at]["margin_ratio"] for at in known])
    # The nodes of a job share its launches.
    verdicts = judged(apart, TIME_RATIO, benchmarks[known], hosts[known], limits, levels)
    for at, verdict in zip(known, verdicts, strict=True):
        rows[at] |= verdict
    for number in range(len(members)):
        ranked = sorted(known[workloads[known] == number], key=lambda at: rows[at]["time_ratio"])
        for place, at in enumerate(ranked, start=1):
            rows[at] |= {"place": place, "num_places": len(ranked)}
    return make_table(rows, columns_in(campaign, SWEEP))


# Ranks, and hosts over all shapes and stacks: who was last in records and launches, and by how much.

MOST_OF_RECORDS = 0.5  # a rank that is suspect in more of a launch's records is the launch's suspect
SLOW_WORDS = {"slower": "slow", "equivalent": "within the margin"}  # words of a lag
PLACE = ("nodes", "gpus_per_node", "world_size", "stack", "device")


def place_text(row) -> str:
    return f"{shape(row.nodes, row.gpus_per_node)}, {row.stack}"


def rank_text(row) -> str:
    return f"rank {row.rank} on {UNKNOWN if is_unknown(row.hosts) else row.hosts.replace(' ', ', ')}, {place_text(row)}"


OF_LAUNCHES = {"text": lambda row: f"{row.num_suspect_launches}/{row.num_launches}", "table": "late"}
LAST = Column("last_ratio", "last in", shown_as="%", table="late", help="`num_last` / `num_iterations`")
_LAG = "mean over launches of the lag in `waits.csv`; its moderated 95 % interval from 3 launches"
_P = "two-sided p of a lag of 0, and corrected over the table (Benjamini–Hochberg)"
_VERDICT = "slow (persistent), faster (early), within the margin, or inconclusive: see below"
_RECORD = "the record with quantiles in the launch with the largest lag; shown in the report"
_LAUNCHES = "launches examined, and those in which the rank or host was the suspect"
_COUNTS = "records examined and with it as the suspect; iterations examined and with it as the last"
LAG_S = Column("lag_s", "lag", shown_as="ms", table="late", help=_LAG)
LAG = Column("lag_ratio", "lag", shown_as="%", interval="interval", table="late", help=_LAG)
_JUDGED = (
    Column("quantity", "quantity", TEXT, table="late", text=lambda row: row.quantity.replace("_", " "), help=QUANTITY),
    Column("num_launches", type=WHOLE, help=_LAUNCHES),
    Column("num_suspect_launches", "launches", WHOLE, help=_LAUNCHES, **OF_LAUNCHES),
    *in_file(WHOLE, _COUNTS, "num_records", "num_suspect_records", "num_iterations", "num_last"),
    *(LAST, LAG_S, LAG),
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
        hosts = " ".join(sorted({row["host"] for row in launches} - {None}))
        rows.append(dict(zip(keys, key, strict=True)) | {"hosts": hosts or None} | _over_launches(launches))
    return _judged_lags(rows, margin, STRAGGLERS)


def straggler_hosts_table(waits: pd.DataFrame, margin: float | None = None) -> pd.DataFrame:
    """Return one row for each host and quantity, over all shapes and stacks of several hosts.

    ranks: those that were suspect there, with the number of records.
    """
    several, rows = [], []
    for ranks in grouped(_rows(waits), ("launch", "quantity")).values():
        known = [row for row in ranks if row["host"] is not None]
        several += known if len({row["host"] for row in known}) > 1 else []
    for (host, quantity), ranks in sorted(grouped(several, ("host", "quantity")).items()):
        suspects, launches, expected = Counter(), [], 0.0
        for row in ranks:
            suspects[row["rank"]] += row["num_suspect"]
        for of_launch in grouped(ranks, ("launch",)).values():
            expected += len(of_launch) / of_launch[0]["world_size"]
            of_host = {name: of_launch[0][f"host_{name}"] for name in ("lag_s", "lag_ratio")}
            of_host |= {"num_suspect": of_launch[0]["num_host_suspect"]}
            launches.append(of_launch[0] | of_host | {"num_last": sum(row["num_last"] for row in of_launch)})
        names = ", ".join(f"{rank} ({num})" for rank, num in sorted(suspects.items()) if num)
        row = {"host": host, "quantity": quantity, "ranks": names or None, "num_expected_launches": expected}
        rows.append(row | _over_launches(launches))
    return _judged_lags(rows, margin, STRAGGLER_HOSTS)


def _rows(waits: pd.DataFrame) -> list[dict]:
    return plain_rows(waits.sort_values([*PLACE, "quantity", "rank", "launch"], kind="stable"), tuple(WAITS))


def _over_launches(launches: list[dict]) -> dict:
    """Return how often this rank or host was the suspect, its lag in seconds, and its lags by launch.

    launch, line: the record with quantiles in the launch where it lags most.
    """
    suspect = [row for row in launches if row["num_suspect"] > MOST_OF_RECORDS * row["num_records"]]
    known = [row for row in launches if row["lag_s"] is not None]
    shown = [row for row in known if row["line"] is not None]
    worst = max(shown, key=lambda row: (row in suspect, row["lag_ratio"]), default={"launch": None, "line": None})
    names = ("num_records", "num_iterations", "num_last", "num_suspect")
    records, iterations, last, suspects = (sum(row[name] for row in launches) for name in names)
    return {
        "num_launches": len(launches),
        "num_suspect_launches": len(suspect),
        "num_records": records,
        "num_suspect_records": suspects,
        "num_iterations": iterations,
        "num_last": last,
        "last_ratio": last / iterations,
        "lag_s": float(np.mean([row["lag_s"] for row in known])) if known else None,
        "lags": [row["lag_ratio"] for row in known],
        **{name: worst[name] for name in ("launch", "line")},
    }


def ratios_without(measurements: pd.DataFrame, host: str) -> dict[str, float | None]:
    """Return, for each cell with an ok launch on this host, its time over that without waiting for it: geometric mean.

    Without it, a step waits for the slowest of the other hosts. A host that is not the last one costs nothing. None:
    computation was not timed in a launch on it.
    """
    times, logs = times_by_cell(measurements), defaultdict(list)
    names = ("cell", "repeat", "hosts", "last_host", "last_host_lag_s")
    for row in plain_rows(measurements[measurements["status"] == "ok"], names):
        is_on, last = host in (row["hosts"] or "").split(", "), row["last_host"]
        _, time = times[row["cell"]].get(row["repeat"], (None, np.nan))
        lag_s = row["last_host_lag_s"] if last == host else np.nan if is_on and last is None else 0
        logs[row["cell"]].append((is_on, -np.log1p(-lag_s / time) if lag_s < time else np.nan))
    means = {cell: np.exp(np.mean([log for _, log in of])) for cell, of in logs.items() if any(on for on, _ in of)}
    return {cell: None if np.isnan(mean) else float(mean) for cell, mean in means.items()}


def _judged_lags(rows: list[dict], margin: float | None, columns: Columns) -> pd.DataFrame:
    """Return the rows with the verdicts on their lags. Rows of one place share their launches."""
    lags = launch_table([dict(enumerate(row.pop("lags"))) for row in rows])
    places = [str([row.get(name) for name in PLACE]) for row in rows]
    verdicts = judged(lags, LAG, [row["quantity"] for row in rows], places, MARGIN if margin is None else margin)
    for row, verdict in zip(rows, verdicts, strict=True):
        kind, word = verdict["interval"], verdict["verdict"]
        shown = (*LAG.names, "p_value", "p_adjusted") if kind == "interval" else (LAG.name,)
        row |= {name: verdict[name] for name in shown} | {"is_persistent": word == "slower"}
        row |= {"verdict": None if kind == "none" else SLOW_WORDS.get(word, word)}
    return make_table(rows, columns)
