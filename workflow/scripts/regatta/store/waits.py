"""Which rank or host of a record the others wait for. Definitions: docs/metrics.md.

Synchronized step times are equal on all ranks. What identifies the last rank: the time inside a collective that no rank
leaves before all have arrived, of which the last one spends least; and the time of a step without synchronization.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regatta.store.csv_files import OF_LAUNCH
from regatta.store.records import slowest_rank, whole_times

# No rank can leave one of these before every rank has arrived.
ALL_WAIT = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
# The timed quantity, and whether the last rank is the one with its longest time.
IN_COLLECTIVE, COMPUTE, HOST_WAIT = "in_collective", "compute", "host_wait"
IS_LAST_LONGEST = {IN_COLLECTIVE: False, COMPUTE: True, HOST_WAIT: False}

SUSPECT_P = 0.05  # p of a record, over its ranks or hosts; six iterations of two ranks can reach it
LAG_RATIO = 0.01  # share of the iteration; smaller lags are negligible
QUANTILES = {"p5_s": 0.05, "p50_s": 0.5, "p95_s": 0.95}

# The rank (number) or host (name) that was last more often than chance explains, and its lag: the median over
# iterations of its delay behind the median of the others, divided by the median of the slowest rank's iterations.
Suspect = tuple[int | str, float]


@dataclass(frozen=True)
class Waits:
    """Waiting of ranks for each other in one record.

    num_last: iterations in which each rank was last alone; ties do not count. hosts: one per rank, None if unknown.
    lags_s: how much later each rank is than the median of the others; negative if earlier. host_lags_s: the same of
    each rank's host, which arrives with its last rank; None with a single host. iteration_s: median of the slowest
    rank's iterations. suspect, suspect_host: None if there is none. quantiles_s: for each rank those of QUANTILES; None
    without a suspect. last_host: columns of measurements.csv, of steps without synchronization on several hosts.
    """

    quantity: str
    num_iterations: int
    num_last: Sequence[int]
    hosts: Sequence[str | None]
    lags_s: Sequence[float]
    host_lags_s: Sequence[float] | None
    iteration_s: float
    suspect: Suspect | None = None
    suspect_host: Suspect | None = None
    quantiles_s: Sequence[Sequence[float]] | None = None
    last_host: dict[str, object] | None = None


def waits_of(record: dict, spec: dict, hosts: list[str | None]) -> Waits | None:
    """Return who waited for whom in a valid ok record; None with a single rank, or if its times do not show it.

    hosts: one per rank. Raises ValueError if the record's times break the contract.
    """
    quantity, times = waiting_times(record, spec)
    if times is None:
        return None
    lateness = times.astype(float) if IS_LAST_LONGEST[quantity] else -times.astype(float)
    num_ranks, iteration_ns = len(times), float(np.median(slowest_rank(record, len(times))))
    num_last, lags, rank = _late(range(num_ranks), lateness, np.full(num_ranks, 1 / num_ranks), iteration_ns)
    host = host_lags = quantiles = last = None
    if None not in hosts and len(set(hosts)) > 1:
        names, place = np.unique(hosts, return_inverse=True)
        of_hosts = np.stack([lateness[place == index].max(axis=0) for index in range(len(names))])
        _, host_lags, host = _late(names.tolist(), of_hosts, np.bincount(place) / num_ranks, iteration_ns)
        host_lags = np.array(host_lags)[place].tolist()
        last = _last_host(names, of_hosts) if quantity == COMPUTE else None
    if rank or host:
        quantiles = (np.quantile(times, list(QUANTILES.values()), axis=1).T * 1e-9).tolist()
    values = (num_last, hosts, lags, host_lags, iteration_ns * 1e-9, rank, host, quantiles, last)
    return Waits(quantity, times.shape[1], *values)


def _last_host(names: np.ndarray, times_ns: np.ndarray) -> dict[str, object]:
    """Return the host that computes longest, by how much a step would be shorter without it, and its time relative to
    the median of the others.

    times_ns: (hosts, iterations). A step waits for the slowest of the others, which changes between iterations.
    """
    medians = np.median(times_ns, axis=1)
    last = int(medians.argmax())
    lag_ns = np.median(times_ns.max(axis=0)) - np.median(np.delete(times_ns, last, axis=0).max(axis=0))
    ratio = medians[last] / np.median(np.delete(medians, last))
    return {"last_host": str(names[last]), "last_host_lag_s": 1e-9 * float(lag_ns), "last_host_ratio": float(ratio)}


def _late(
    names: Sequence, lateness_ns: np.ndarray, shares: np.ndarray, iteration_ns: float
) -> tuple[list[int], list[float], Suspect | None]:
    """Return of each rank or host how often it was last alone and its lag in seconds, and the suspect, if there is one.

    The suspect was last more often than its share, and lagged. The test is binomial; p is multiplied by the number of
    names. lateness_ns: a row for each name. A lag is that behind the median of the others: of medians over iterations,
    after removing what all share in one. A median of the others in each iteration would take seconds to compute.
    """
    from scipy.special import bdtrc  # a tenth of a second, which only records of several ranks need

    is_last = lateness_ns == lateness_ns.max(axis=0)
    num_last = (is_last & (is_last.sum(axis=0) == 1)).sum(axis=1)
    medians = np.median(lateness_ns - np.median(lateness_ns, axis=0), axis=1)
    lags_s = [1e-9 * float(one - np.median(np.delete(medians, who))) for who, one in enumerate(medians)]
    chances = bdtrc(num_last - 1, lateness_ns.shape[1], shares)
    most, suspect = int(np.lexsort((-num_last / shares, chances))[0]), None
    if len(names) * chances[most] < SUSPECT_P:
        others = np.median(np.delete(lateness_ns, most, axis=0), axis=0)
        lag_ratio = float(np.median(lateness_ns[most] - others)) / iteration_ns
        suspect = (names[most], lag_ratio) if lag_ratio > LAG_RATIO else None
    return num_last.tolist(), lags_s, suspect


def waiting_times(record: dict, spec: dict) -> tuple[str, np.ndarray | None]:
    """Return the quantity of an ok record that shows who was last, and its nanoseconds (ranks, iterations), or None.

    A step without synchronization is each rank's computation, except for fsdp, which still gathers parameters. On a GPU
    the host does not wait for the synchronization. Raises ValueError if the times break the contract.
    """
    num_ranks, parameters = spec["nodes"] * spec["gpus_per_node"], spec["parameters"]
    parts = record.get("parts_ns") or {}
    quantity, values = COMPUTE, None
    if spec["benchmark"] == "collective":
        quantity = IN_COLLECTIVE
        values = record.get("samples_ns") if parameters["operation"] in ALL_WAIT else None
    elif spec["benchmark"] == "train_step":
        values = parts.get("no_sync") if parameters["strategy"] != "fsdp" else None
        if values is None:
            quantity, values = HOST_WAIT, parts.get("host_wait") if spec["device"] == "cpu" else None
    if record["status"] != "ok" or num_ranks < 2 or values is None:
        return quantity, None
    return quantity, whole_times(values, quantity, num_ranks, least=0)


# The rows of waits.csv: one for each launch, quantity and rank.


def wait_rows(records: list[tuple[dict, dict]]) -> list[dict]:
    """Return the rows of records, each given with its row of measurements.csv, in the order of launches.

    Its Waits have been read from a summary (store/summaries.py).
    """
    groups: dict[tuple, list[tuple[dict, Waits]]] = {}
    for row, values in records:
        waits = Waits(**values)
        groups.setdefault((row["launch"], waits.quantity, len(waits.hosts)), []).append((row, waits))
    return [line for key in sorted(groups) for line in _rows(groups[key])]


def _rows(records: list[tuple[dict, Waits]]) -> list[dict]:
    """Return the rows of one launch and quantity."""
    row, first = records[0]
    of_records = [waits for _, waits in records]
    common = {name: row[name] for name in OF_LAUNCH} | {"quantity": first.quantity, "num_records": len(records)}
    common |= {"num_iterations": sum(waits.num_iterations for waits in of_records)}
    num_suspect, num_host_suspect = (
        Counter(suspect[0] for waits in of_records if (suspect := getattr(waits, name)))
        for name in ("suspect", "suspect_host")
    )
    shown, quantiles_s = _shown(records, {"suspect": num_suspect, "suspect_host": num_host_suspect})
    num_last = np.sum([waits.num_last for waits in of_records], axis=0).tolist()
    iterations_s = np.array([[waits.iteration_s] for waits in of_records])
    lags = _medians("lag", [waits.lags_s for waits in of_records], iterations_s)
    if first.host_lags_s is not None:
        lags |= _medians("host_lag", [waits.host_lags_s for waits in of_records], iterations_s)
    return [
        common
        | {"rank": rank, "host": host, "num_last": num_last[rank]}
        | {"num_suspect": num_suspect[rank], "num_host_suspect": num_host_suspect[host]}
        | {name: values[rank] for name, values in lags.items()}
        | shown
        | dict(zip(QUANTILES, quantiles_s[rank] if quantiles_s else (), strict=False))
        for rank, host in enumerate(first.hosts)
    ]


def _medians(name: str, lags: list[Sequence[float]], iterations_s: np.ndarray) -> dict[str, list[float]]:
    """Return the median over records of the lag of each rank, in seconds and relative to the iteration."""
    both = {f"{name}_s": np.array(lags), f"{name}_ratio": np.array(lags) / iterations_s}
    return {column: np.median(values, axis=0).tolist() for column, values in both.items()}


def _shown(records: list[tuple[dict, Waits]], suspects: dict[str, Counter]) -> tuple[dict, Sequence | None]:
    """Return place and quantiles of the record in which the most frequent suspect lags most: a rank, else a host."""
    for name, num in suspects.items():
        if num:
            most = min(num, key=lambda who: (-num[who], who))
            of_most = [(row, waits) for row, waits in records if (getattr(waits, name) or [None])[0] == most]
            row, waits = max(of_most, key=lambda pair: getattr(pair[1], name)[1])
            return {"cell": row["cell"], "line": row["line"]}, waits.quantiles_s
    return {}, None
