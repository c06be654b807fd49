"""Stragglers: ranks and hosts that the others wait for in launch after launch. Definitions: docs/metrics.md.

The launch is the unit. In each one rank at most is suspect, and one host. If ranks were alike, it would be any of
them, so that how often it is the same one is binomial; of a host, whose ranks may be more in one shape than in another,
Poisson binomial.
"""

from collections import Counter

import numpy as np
import pandas as pd

from regatta.analysis.rows import grouped, plain_rows
from regatta.analysis.tables import CELL, FLAG, REAL, TEXT, WAITS, WHOLE, make_table
from regatta.verdicts import FALSE_DISCOVERIES

MOST_OF_RECORDS = 0.5  # a rank that is suspect in more of a launch's records than this is the launch's suspect

_JUDGED = {
    "num_launches": WHOLE,
    "num_suspect_launches": WHOLE,
    "num_records": WHOLE,
    "num_suspect_records": WHOLE,
    "num_iterations": WHOLE,
    "num_last": WHOLE,
    "p_value": REAL,
    "p_adjusted": REAL,
    "is_persistent": FLAG,
    "lag_s": REAL,
    "lag_ratio": REAL,
    "launch": TEXT,
    "line": WHOLE,
}
_PLACE = ("nodes", "gpus_per_node", "world_size", "stack", "device")
STRAGGLERS = {**{name: CELL[name] for name in _PLACE}, "quantity": TEXT, "rank": WHOLE, "hosts": TEXT, **_JUDGED}
STRAGGLER_HOSTS = {"host": TEXT, "quantity": TEXT, **_JUDGED, "num_expected_launches": REAL, "ranks": TEXT}


def stragglers_table(waits: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each rank of each shape, stack and quantity that was looked at. hosts: where it ran."""
    rows = []
    for key, own in grouped(_launch_rows(waits), (*_PLACE, "quantity", "rank")).items():
        world_size = key[_PLACE.index("world_size")]
        hosts = sorted({row["host"] for row in own if row["host"] is not None})
        judged = _judged(own, [1 / world_size] * len(own))
        place = dict(zip((*_PLACE, "quantity", "rank"), key, strict=True))
        rows.append(place | {"hosts": " ".join(hosts) or None} | judged)
    return make_table(_corrected(rows), STRAGGLERS)


def straggler_hosts_table(waits: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each host and quantity, over all shapes and stacks of several hosts.

    ranks: those that were suspect there, with the number of records.
    """
    rows = []
    launches = grouped(_launch_rows(waits), ("launch", "quantity"))
    several = [row for own in launches.values() if len({row["host"] for row in own} - {None}) > 1 for row in own]
    for (host, quantity), own in grouped([r for r in several if r["host"] is not None], ("host", "quantity")).items():
        of_launches = list(grouped(own, ("launch",)).values())
        shares = [len(ranks) / ranks[0]["world_size"] for ranks in of_launches]
        joined = [_joined(ranks) for ranks in of_launches]
        suspects: Counter[int] = Counter()
        for row in own:
            suspects[row["rank"]] += row["num_suspect"]
        told = ", ".join(f"{rank} ({num})" for rank, num in sorted(suspects.items()) if num) or None
        expected = {"num_expected_launches": sum(shares), "ranks": told}
        rows.append({"host": host, "quantity": quantity} | _judged(joined, shares) | expected)
    rows.sort(key=lambda row: (row["host"], row["quantity"]))
    return make_table(_corrected(rows), STRAGGLER_HOSTS)


def _launch_rows(waits: pd.DataFrame) -> list[dict]:
    """Return the rows of waits.csv with `is_suspect`: whether the rank is that of its launch."""
    rows = plain_rows(waits.sort_values([*_PLACE, "quantity", "rank", "launch"], kind="stable"), tuple(WAITS))
    return [row | {"is_suspect": row["num_suspect"] > MOST_OF_RECORDS * row["num_records"]} for row in rows]


def _joined(ranks: list[dict]) -> dict:
    """Return a host's row of one launch, of its rows by rank. None of its ranks need be suspect by itself."""
    first = ranks[0]
    row = first | {"num_last": sum(rank["num_last"] for rank in ranks), "num_suspect": first["num_host_suspect"]}
    row |= {name: first[f"host_{name}"] for name in ("lag_s", "lag_ratio")}
    return row | {"is_suspect": row["num_suspect"] > MOST_OF_RECORDS * first["num_records"]}


def _judged(launches: list[dict], shares: list[float]) -> dict:
    """Return how often this rank or host was the suspect. shares: its chance in each launch if all ranks are alike.

    launch, line: the record with quantiles in the launch where it lags most.
    """
    suspect = [row for row in launches if row["is_suspect"]]
    row = {"num_launches": len(launches), "num_suspect_launches": len(suspect)}
    row |= {name: sum(own[name] for own in launches) for name in ("num_records", "num_iterations", "num_last")}
    row |= {"num_suspect_records": sum(own["num_suspect"] for own in launches)}
    row |= {"p_value": chance_of_so_many(len(suspect), shares)}
    row |= {n: float(np.median([own[n] for own in suspect])) if suspect else None for n in ("lag_s", "lag_ratio")}
    worst = max(suspect, key=lambda own: own["lag_ratio"], default={})
    return row | {name: worst.get(name) for name in ("launch", "line")}


def chance_of_so_many(num: int, shares: list[float]) -> float:
    """Return the chance of `num` hits or more among launches that are each hit with a chance of their own."""
    if len(set(shares)) == 1:
        from scipy.special import bdtrc  # a tenth of a second, which a campaign of single ranks need not wait for

        return float(bdtrc(num - 1, len(shares), shares[0])) if num else 1.0
    chances = np.ones(1)  # of 0, 1, 2, ... hits
    for share in shares:
        chances = np.convolve(chances, [1 - share, share])
    return float(min(chances[num:].sum(), 1.0)) if num else 1.0


def _corrected(rows: list[dict]) -> list[dict]:
    """Add p by Benjamini and Hochberg over the table, and whether it is beyond chance."""
    if not rows:
        return rows
    from scipy.stats import false_discovery_control

    adjusted = false_discovery_control([row["p_value"] for row in rows], method="bh").tolist()
    return [
        row | {"p_adjusted": p, "is_persistent": p < FALSE_DISCOVERIES} for row, p in zip(rows, adjusted, strict=True)
    ]
