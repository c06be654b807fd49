"""Stragglers: ranks and hosts that the others wait for in launch after launch. Definitions: docs/metrics.md.

The launch is the unit: the lag of each rank and host behind the median of the others is tested like a node of a sweep.
Outliers are attributed by a binomial test.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pandas as pd

from regatta.core import moderation
from regatta.core.moderation import FALSE_DISCOVERIES, MIN_LAUNCHES
from regatta.core.text import UNKNOWN, is_unknown, shape
from regatta.kit.columns import FLAG, TEXT, WHOLE, Column, Columns, in_file
from regatta.store.csv_files import CELL, OUTLIERS, OUTLIERS_OF_RANK, QUANTITY, WAITS, make_table
from regatta.topics.base import grouped, plain_rows
from regatta.topics.comparison.tables import MARGIN

MOST_OF_RECORDS = 0.5  # a rank that is suspect in more of a launch's records is the launch's suspect
MOST_OF_BLAMED = 0.5  # share of outliers of single ranks or hosts; a larger share identifies the cause
_OF_HOSTS = ("num_outliers_of_any_host", "num_outliers_of_host")
_OUTLIERS = tuple(column.name for column in (*OUTLIERS, OUTLIERS_OF_RANK))
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
_HAS_MOST = "whether it caused more than half of the outliers of single ranks (a host: and of single hosts): see below"
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
    *OUTLIERS,
    OUTLIERS_OF_RANK,
    *in_file(FLAG, _HAS_MOST, "has_most_outliers"),
)
STRAGGLER_HOSTS = Columns(
    Column("host", "host", TEXT, table="late", help="the host"),
    *_JUDGED,
    Column("num_expected_launches", help="expected number of launches in which the host is the suspect by chance"),
    *in_file(TEXT, "its suspect ranks, with their records", "ranks"),
    OUTLIERS[0],
    *in_file(WHOLE, "outliers of one host or rank, and those of this host and its ranks", *_OF_HOSTS),
    *in_file(FLAG, _HAS_MOST, "has_most_outliers"),
)


def stragglers_table(waits: pd.DataFrame, margin: float = MARGIN) -> pd.DataFrame:
    """Return one row for each rank of each examined shape, stack and quantity. hosts: those on which it ran.

    margin: lag, as a share of the iteration, up to which a rank is not slow.
    """
    rows, lags = [], []
    for key, launches in grouped(_launch_rows(waits), (*PLACE, "quantity", "rank")).items():
        lags.append([row["lag_ratio"] for row in launches])
        hosts = sorted({row["host"] for row in launches if row["host"] is not None})
        judged = _summed(launches)
        place = dict(zip((*PLACE, "quantity", "rank"), key, strict=True))
        outliers = {name: _sum(row[name] for row in launches) for name in _OUTLIERS}
        rows.append(place | {"hosts": " ".join(hosts) or None} | judged | outliers)
    shares = [[1 / row["world_size"]] * (row["num_outliers_one_rank"] or 0) for row in rows]
    return make_table(_judged(rows, lags, shares, "num_outliers_of_rank", margin), STRAGGLERS)


def straggler_hosts_table(waits: pd.DataFrame, margin: float = MARGIN) -> pd.DataFrame:
    """Return one row for each host and quantity, over all shapes and stacks of several hosts.

    ranks: those that were suspect there, with the number of records.
    """
    rows, lags, chances = [], [], []
    launches = grouped(_launch_rows(waits), ("launch", "quantity"))
    several = [row for ranks in launches.values() if len({row["host"] for row in ranks} - {None}) > 1 for row in ranks]
    for (host, quantity), found in grouped([r for r in several if r["host"] is not None], ("host", "quantity")).items():
        of_launches = list(grouped(found, ("launch",)).values())
        shares = [len(ranks) / ranks[0]["world_size"] for ranks in of_launches]
        joined = [_joined(ranks) for ranks in of_launches]
        suspects = Counter(row["rank"] for row in found for _ in range(row["num_suspect"]))
        ranks = ", ".join(f"{rank} ({num})" for rank, num in sorted(suspects.items())) or None
        expected = {"num_expected_launches": sum(shares), "ranks": ranks}
        outliers = {name: _sum(row[name] for row in joined) for name in ("num_iterations_checked", *_OF_HOSTS)}
        rows.append({"host": host, "quantity": quantity} | _summed(joined) | expected | outliers)
        lags.append([row["lag_ratio"] for row in joined])
        chances.append([s for s, row in zip(shares, joined, strict=True) for _ in range(row[_OF_HOSTS[0]] or 0)])
    rows = _judged(rows, lags, chances, "num_outliers_of_host", margin)
    return make_table(sorted(rows, key=lambda row: (row["host"], row["quantity"])), STRAGGLER_HOSTS)


def _launch_rows(waits: pd.DataFrame) -> list[dict]:
    """Return the rows of waits.csv with `is_suspect`: whether the rank is the suspect of its launch."""
    rows = plain_rows(waits.sort_values([*PLACE, "quantity", "rank", "launch"], kind="stable"), tuple(WAITS))
    return [row | {"is_suspect": row["num_suspect"] > MOST_OF_RECORDS * row["num_records"]} for row in rows]


def _joined(ranks: list[dict]) -> dict:
    """Return a host's row of one launch, from its rows by rank."""
    first = ranks[0]
    row = first | {"num_last": sum(rank["num_last"] for rank in ranks), "num_suspect": first["num_host_suspect"]}
    row |= {name: first[f"host_{name}"] for name in ("lag_s", "lag_ratio")}
    row["num_outliers_of_any_host"] = _sum(first[f"num_outliers_one_{kind}"] for kind in ("host", "rank"))
    row["num_outliers_of_host"] = _sum(
        [first["num_outliers_of_host"], *(rank["num_outliers_of_rank"] for rank in ranks)]
    )
    return row | {"is_suspect": row["num_suspect"] > MOST_OF_RECORDS * first["num_records"]}


def _summed(launches: list[dict]) -> dict:
    """Return how often this rank or host was the suspect, and its lag in seconds.

    launch, line: the record with quantiles in the launch where it lags most.
    """
    suspect = [row for row in launches if row["is_suspect"]]
    row = {"num_launches": len(launches), "num_suspect_launches": len(suspect)}
    row |= {name: sum(launch[name] for launch in launches) for name in ("num_records", "num_iterations", "num_last")}
    row |= {"num_suspect_records": sum(launch["num_suspect"] for launch in launches)}
    row |= {"last_ratio": row["num_last"] / row["num_iterations"]}
    known = [launch["lag_s"] for launch in launches if launch["lag_s"] is not None]
    row |= {"lag_s": float(np.mean(known)) if known else None}
    shown = [launch for launch in launches if launch["line"] is not None and launch["lag_ratio"] is not None]
    worst = max(shown, key=lambda launch: (launch["is_suspect"], launch["lag_ratio"]), default={})
    return row | {name: worst.get(name) for name in ("launch", "line")}


def judged_lags(rows: list[dict], lags: list[list[float | None]], groups: list[str], margin: float) -> list[dict]:
    """Add the mean lag over launches with its interval, p corrected over the table, and the verdict. lags: by launch.

    slow: the whole interval is beyond the margin, and p is at most FALSE_DISCOVERIES.
    """
    if not rows:
        return rows
    values = np.full((len(rows), max(map(len, lags))), np.nan)
    for place, of_row in enumerate(lags):
        values[place, : len(of_row)] = np.array(of_row, float)
    found = moderation.paired_contrasts(values, np.zeros(values.shape), np.array(groups))
    adjusted = moderation.adjust_for_number(found.p_value)
    words = moderation.words(found, adjusted, np.full(len(rows), margin))
    numbers = zip(found.shift, found.half_width, found.p_value, adjusted, found.num, words, strict=True)
    return [row | _columns(*found) for row, found in zip(rows, numbers, strict=True)]


def _columns(lag: float, half: float, p_value: float, p_adjusted: float, num: int, word: str) -> dict:
    if not num:
        return {"is_persistent": False}
    row = {"lag_ratio": float(lag), "verdict": "slow" if word == "slower" else "inconclusive"}
    row |= {"is_persistent": word == "slower"}
    if num < MIN_LAUNCHES:
        return row
    row |= {"lag_low_ratio": float(lag - half), "lag_high_ratio": float(lag + half)}
    row |= {"verdict": {"slower": "slow", "equivalent": "within the margin"}.get(word, word)}
    return row | {"p_value": float(p_value), "p_adjusted": float(p_adjusted)}


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _judged(rows: list[dict], lags: list, shares: list[list[float]], column: str, margin: float) -> list[dict]:
    """Add the verdicts on lags, and whether each caused more than half of the outliers of single ones, beyond chance.

    shares: by row and outlier, the chance that it is this one's if all were alike. column: outliers of this one.
    """
    for row, of_row in zip(rows, shares, strict=True):
        if (num := row[column]) is not None:
            chance = len(rows) * chance_of_so_many(num, of_row)
            row["has_most_outliers"] = num > MOST_OF_BLAMED * len(of_row) and chance < FALSE_DISCOVERIES
    return judged_lags(rows, lags, [row["quantity"] for row in rows], margin)


def chance_of_so_many(num: int, shares: list[float]) -> float:
    """Return the chance of `num` hits or more among launches, each hit with its chance in `shares`."""
    if len(set(shares)) == 1:
        from scipy.special import bdtrc  # a tenth of a second, which only campaigns of several ranks need

        return float(bdtrc(num - 1, len(shares), shares[0])) if num else 1.0
    chances = np.ones(1)  # probabilities of 0, 1, 2, ... hits
    for share in shares:
        chances = np.convolve(chances, [1 - share, share])
    return float(min(chances[num:].sum(), 1.0)) if num else 1.0
