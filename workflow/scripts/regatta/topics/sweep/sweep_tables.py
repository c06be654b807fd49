"""Nodes and pairs of an acceptance sweep against the median of the others: tables/sweep_nodes.csv and sweep_pairs.csv.

The compared time is the primary time of a launch. Definitions: docs/metrics.md. Statistics: regatta.core.verdicts.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
import pandas as pd

from regatta.campaign.expansion import canonical_json
from regatta.core.moderation import median_of_others
from regatta.core.statistics import fast_median, launch_table
from regatta.core.text import UNKNOWN, is_unknown, natural
from regatta.core.verdicts import Compared, judge_all
from regatta.kit.columns import CELL_ID, REAL, TEXT, WHOLE, Column, Columns, in_file
from regatta.model.frozen import Cell, FrozenCampaign
from regatta.store.collect import cell_row
from regatta.store.csv_files import CELL, columns_in, make_table
from regatta.tables.estimates import over_launches
from regatta.tables.pairs import margins_of, verdict_values
from regatta.tables.primary_times import times_by_cell
from regatta.topics.base import MAIN

# One node or pair and one workload. Columns of CELL describe the workload. `cell`: unknown for a node of a sweep of
# pairs, whose time is the median over its pairs.
JUDGED = "as in comparisons, paired by launch, moderated over all nodes; p is corrected over the table"
WORDS = {"equivalent": "within the margin"}  # verdicts that are shown in other words
RANKED = {"table": "ranking", "better": "smaller"}
TIME_HELP = (
    "primary time of ok launches, as in comparisons: geometric mean over launches; of a node in a sweep of pairs, the"
    " median over its pairs"
)
RATIO_HELP = (
    "geometric mean over launches of the ratio to the median of the other nodes or pairs in the launch of the same"
    " number; to that of all, if fewer than four"
)
SHOWN_RATIO = {"shown_as": "%", "minus": 1, "interval": "interval", "key": "difference_percent", "is_shown": True}
TIME = Column("time_s", "time", shown_as="ms", interval="interval", help=TIME_HELP, **RANKED, **MAIN)
TIME_RATIO = Column("time_ratio", "difference in time", help=RATIO_HELP, **RANKED, **SHOWN_RATIO)
FASTEST = "position by time; 1 is the fastest"
PLACE = Column("place", "place", WHOLE, **RANKED, help=FASTEST, text=lambda row: _place_text(row))
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
    *(PLACE, Column("num_places", type=WHOLE)),
)


def _place_text(row) -> str:
    return UNKNOWN if is_unknown(row.place) else f"{row.place:,}/{row.num_places:,}"


@dataclass(frozen=True)
class Member:
    """A node or a pair in the ranking of one workload. row: the columns that identify it.

    times: seconds of its ok launches by repeat.
    """

    hosts: tuple[str, ...]
    row: dict
    times: dict[int, float]


def workload_of(cell: Cell) -> str:
    """Return all fields of a cell except its nodes, as text. Cells with equal fields are ranked together."""
    return canonical_json({name: value for name, value in cell.spec.items() if name != "hosts"})


def sweep_pairs_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each cell of a sweep of pairs, measured or not; none for other campaigns."""
    pairs = _cells(campaign, measurements) if campaign.sweep == "pairs" else {}
    return _ranked(campaign, measurements, pairs, pairs)


def sweep_nodes_table(campaign: FrozenCampaign, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each node and workload of a sweep, measured or not; none for other campaigns."""
    cells = members = _cells(campaign, measurements) if campaign.sweep else {}
    if campaign.sweep == "pairs":
        members = {workload: _nodes_of_pairs(pairs) for workload, pairs in cells.items()}
    return _ranked(campaign, measurements, members, cells)


def _cells(campaign: FrozenCampaign, measurements: pd.DataFrame) -> dict[str, list[Member]]:
    """Return nodes or pairs, as they are in the cells, by workload."""
    times, found = times_by_cell(measurements), defaultdict(list)
    for cell in campaign.cells:
        of_cell = {repeat: seconds for repeat, (_, seconds) in times[cell.id].items()}
        row = cell_row(cell) | {"num_planned": campaign.repeats}
        found[workload_of(cell)].append(Member(cell.hosts, row, of_cell))
    return found


def _nodes_of_pairs(pairs: list[Member]) -> list[Member]:
    """Return the nodes of these pairs. The time of a node in a repeat is the median over its pairs."""
    of_node: dict[str, list[Member]] = defaultdict(list)
    for pair in pairs:
        for host in pair.hosts:
            of_node[host].append(pair)
    found = []
    for host, of_host in of_node.items():
        row = of_host[0].row | {"cell": None, "num_pairs": sum(bool(pair.times) for pair in of_host)}
        repeats = sorted({repeat for pair in of_host for repeat in pair.times})
        times = {n: fast_median([pair.times[n] for pair in of_host if n in pair.times]) for n in repeats}
        found.append(Member((host,), row, times))
    return found


def _ranked(
    campaign: FrozenCampaign,
    measurements: pd.DataFrame,
    members: dict[str, list[Member]],
    cells: dict[str, list[Member]],
) -> pd.DataFrame:
    """Return a row for each member, compared with the median of the others of its workload, repeat by repeat.

    A repeat in which one cell has a result is not compared. p values are corrected over the table.
    """
    margins = margins_of(campaign, times_by_cell(measurements)) if members else {}
    rows, compared, launches = [], [], []
    for workload, of_workload in members.items():
        num_results = Counter(repeat for cell in cells[workload] for repeat in cell.times)
        repeats = sorted(repeat for repeat, num in num_results.items() if num > 1)
        of_workload = sorted(of_workload, key=lambda member: [natural(host) for host in member.hosts])
        times = [[member.times.get(repeat, np.nan) for repeat in repeats] for member in of_workload]
        medians = np.exp(median_of_others(np.log(times).reshape(len(times), len(repeats)))).tolist()
        ranked = []
        for member, of_others in zip(of_workload, medians, strict=True):
            margin = margins[member.row["benchmark"]]
            row = member.row | {"hosts": ", ".join(member.hosts), "num_launches": len(member.times)}
            rows.append(row | {"margin_ratio": margin.ratio, "margin_source": margin.source})
            launches.append(member.times)
            if others := {repeat: time for repeat, time in zip(repeats, of_others, strict=True) if not np.isnan(time)}:
                own, known = [member.times[repeat] for repeat in others], (tuple(others),) * 2
                times = (list(others.values()), own)
                batch = (rows[-1]["hosts"],) * 2  # the nodes of a job; their workloads share its launches
                found = Compared(*times, True, member.row["benchmark"], repeats=known, batches=batch)
                compared.append((rows[-1], found))
                ranked.append((found.ratio.mean, rows[-1]))
        for place, (_, row) in enumerate(sorted(ranked, key=lambda pair: pair[0]), start=1):
            row |= {"place": place, "num_places": len(ranked)}
    benchmarks, hosts = ([row[name] for row in rows] for name in ("benchmark", "hosts"))
    means = over_launches(launch_table(launches), np.array(benchmarks), np.array(hosts, dtype=str))
    for row, *ends in zip(rows, *means.ends, strict=True):
        row |= dict(zip(TIME.names, ends, strict=True))
    verdicts = judge_all([found for _, found in compared], [row["margin_ratio"] for row, _ in compared])
    for (row, _), verdict in zip(compared, verdicts, strict=True):
        row |= verdict_values(verdict)
    return make_table(rows, columns_in(campaign, SWEEP))
