"""Stragglers: ranks and hosts that the others repeatedly wait for. Definitions: docs/metrics.md.

The launch is the unit: the lag of each rank and host behind the median of the others is tested like a node of a sweep.
"""

from collections import Counter

import numpy as np
import pandas as pd

from regatta.core import moderation
from regatta.core.moderation import MIN_LAUNCHES
from regatta.core.statistics import launch_table
from regatta.core.text import UNKNOWN, is_unknown, shape
from regatta.kit.columns import FLAG, TEXT, WHOLE, Column, Columns, in_file
from regatta.store.csv_files import CELL, OUTLIERS, QUANTITY, WAITS, make_table
from regatta.topics.base import grouped, plain_rows
from regatta.topics.comparison.comparison_tables import MARGIN

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
    *OUTLIERS,
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
        checked = [row for row in launches if row["num_iterations_checked"] is not None]
        outliers = {column.name: sum(row[column.name] for row in checked) for column in OUTLIERS if checked}
        place = dict(zip(keys, key, strict=True)) | {"hosts": " ".join(hosts) or None}
        rows.append(place | _over_launches(launches) | outliers)
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
    judged = judged_lags(lags, [row["quantity"] for row in rows], margin) if rows else []
    return [row | of_row for row, of_row in zip(rows, judged, strict=True)]


def judged_lags(lags: np.ndarray, groups: list[str], margin: float) -> list[dict]:
    """Return the mean lag of each row over launches with its interval, p corrected over all rows, and the verdict.

    lags: (rows, launches), NaN where unknown. slow: the whole interval is beyond the margin, and p is at most
    FALSE_DISCOVERIES.
    """
    found = moderation.paired_contrasts(lags, np.zeros(lags.shape), np.array(groups))
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
