"""Which rank or host of a record the others wait for, and which iterations are outliers. Definitions: docs/metrics.md.

Synchronized step times are equal on all ranks. What identifies the last rank: the time inside a collective that no rank
leaves before all have arrived, of which the last one spends least; and the time of a step without synchronization.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regatta.core.statistics import outer_fences
from regatta.store.csv_files import OF_LAUNCH, OUTLIERS
from regatta.store.records import slowest_rank, whole_times

# No rank can leave one of these before every rank has arrived.
ALL_WAIT = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
# The timed quantity, and whether the last rank is the one with its longest time.
IN_COLLECTIVE, COMPUTE, HOST_WAIT = "in_collective", "compute", "host_wait"
IS_LAST_LONGEST = {IN_COLLECTIVE: False, COMPUTE: True, HOST_WAIT: False}

SUSPECT_P = 0.05  # p of a record, over its ranks or hosts; six iterations of two ranks can reach it
LAG_RATIO = 0.01  # share of the iteration; smaller lags are negligible
QUANTILES = (0.05, 0.5, 0.95)
ALL_RANKS, ONE_HOST, ONE_RANK = "all_ranks", "one_host", "one_rank"
MOST_OF_EXCESS = 0.5  # share of an outlier's excess that is common to all ranks, or gone without one of them


@dataclass(frozen=True)
class Suspect:
    """The rank (number) or host (name) that was last more often than chance explains, and by more than LAG_RATIO.

    lag_s: median over iterations of its delay behind the median of the other ranks (or hosts, each by its last rank);
    lag_ratio: the lag divided by the median of the slowest rank's iterations.
    """

    who: int | str
    lag_s: float
    lag_ratio: float


@dataclass(frozen=True)
class Outlier:
    """An iteration far longer than the others of its record.

    excess_ratio: how much longer than the median iteration it is, over that. kind: its class, None if unknown.
    who: the rank's number or the host's name, if the class is one of these.
    """

    iteration: int
    excess_ratio: float
    kind: str | None = None
    who: int | str | None = None


@dataclass(frozen=True)
class Waits:
    """Waiting of ranks for each other in one record.

    num_last: iterations in which each rank was last alone; ties do not count. hosts: one per rank, None if unknown.
    lags_s: how much later each rank is than the median of the others; negative if earlier. host_lags_s: the same of
    hosts, each by its last rank; empty with a single host. iteration_s: median of the slowest rank's iterations.
    suspect, suspect_host: None if there is none; suspect_host also with a single host. quantiles_s: for each rank
    those of QUANTILES; None without a suspect. outliers: None if the record is too short, or does not contain whole
    iterations.
    """

    quantity: str
    num_iterations: int
    num_last: tuple[int, ...]
    hosts: tuple[str | None, ...]
    lags_s: tuple[float, ...]
    host_lags_s: dict[str, float]
    iteration_s: float
    suspect: Suspect | None = None
    suspect_host: Suspect | None = None
    quantiles_s: tuple[tuple[float, ...], ...] | None = None
    outliers: tuple[Outlier, ...] | None = None


def waits_of(record: dict, spec: dict, hosts: list[str | None]) -> Waits | None:
    """Return who waited for whom in a valid ok record; None with a single rank, or if its times do not show it.

    hosts: one per rank. Raises ValueError if the record's times break the contract.
    """
    quantity, times = waiting_times(record, spec)
    if times is None:
        return None
    lateness = times.astype(float) if IS_LAST_LONGEST[quantity] else -times.astype(float)
    num_ranks = len(times)
    iteration_ns = float(np.median(slowest_rank(record, num_ranks)))
    rank = _suspect(range(num_ranks), lateness, np.full(num_ranks, 1 / num_ranks), iteration_ns)
    host = quantiles = None
    host_lags_s: dict[str, float] = {}
    if None not in hosts and len(set(hosts)) > 1:
        names = sorted(set(hosts))
        places = [np.flatnonzero(np.array(hosts) == name) for name in names]
        last = np.stack([lateness[ranks].max(axis=0) for ranks in places])  # a host arrives with its last rank
        host = _suspect(names, last, np.array([len(ranks) / num_ranks for ranks in places]), iteration_ns)
        host_lags_s = dict(zip(names, lags_s(last), strict=True))
    if rank or host:
        quantiles = tuple(map(tuple, (np.quantile(times, QUANTILES, axis=1).T * 1e-9).tolist()))
    outliers = outliers_of(quantity, times, record.get("samples_ns"), hosts)
    num_last = tuple(_num_last(lateness).tolist())
    lags = tuple(lags_s(lateness)), host_lags_s, iteration_ns * 1e-9
    return Waits(quantity, times.shape[1], num_last, tuple(hosts), *lags, rank, host, quantiles, outliers)


def lags_s(lateness_ns: np.ndarray) -> list[float]:
    """Return how much later each rank or host is than the median of the others, in seconds.

    Medians over iterations are compared, after removing what all share in an iteration. A median of the others in each
    iteration would take seconds to compute.
    """
    medians = np.median(lateness_ns - np.median(lateness_ns, axis=0), axis=1)
    return [1e-9 * float(one - np.median(np.delete(medians, who))) for who, one in enumerate(medians)]


def waiting_times(record: dict, spec: dict) -> tuple[str, np.ndarray | None]:
    """Return the quantity of an ok record that shows who was last, and its nanoseconds (ranks, iterations), or None.

    Raises ValueError if they break the contract.
    """
    num_ranks = spec["nodes"] * spec["gpus_per_node"]
    quantity, values = _quantity(record, spec)
    if record["status"] != "ok" or num_ranks < 2 or values is None:
        return quantity, None
    return quantity, whole_times(values, quantity, num_ranks, least=0)


def _quantity(record: dict, spec: dict) -> tuple[str, list | None]:
    """Return the quantity that shows who was last, and its times by rank and iteration, or None.

    A step without synchronization is each rank's computation, except for fsdp, which still gathers parameters. On a GPU
    the host does not wait for the synchronization.
    """
    if spec["benchmark"] == "collective":
        is_symmetric = spec["parameters"]["operation"] in ALL_WAIT
        return IN_COLLECTIVE, record.get("samples_ns") if is_symmetric else None
    parts = record.get("parts_ns") or {}
    if spec["benchmark"] != "train_step":
        return COMPUTE, None
    if spec["parameters"]["strategy"] != "fsdp" and parts.get("no_sync") is not None:
        return COMPUTE, parts["no_sync"]
    return HOST_WAIT, parts.get("host_wait") if spec["device"] == "cpu" else None


def _num_last(lateness: np.ndarray) -> np.ndarray:
    is_last = lateness == lateness.max(axis=0)
    return (is_last & (is_last.sum(axis=0) == 1)).sum(axis=1)


def _suspect(names: Sequence, lateness: np.ndarray, shares: np.ndarray, iteration_ns: float) -> Suspect | None:
    """Return the rank or host that was last more often than its share, and lagged; None if there is none.

    lateness: a row for each name. The test is binomial; p is multiplied by the number of names.
    """
    from scipy.special import bdtrc  # a tenth of a second, which only records of several ranks need

    num_last = _num_last(lateness)
    chances = bdtrc(num_last - 1, lateness.shape[1], shares)
    most = int(np.lexsort((-num_last / shares, chances))[0])
    if len(names) * chances[most] >= SUSPECT_P:
        return None
    lag_ns = float(np.median(lateness[most] - np.median(np.delete(lateness, most, axis=0), axis=0)))
    lag_ratio = lag_ns / iteration_ns
    return Suspect(names[most], lag_ns * 1e-9, lag_ratio) if lag_ratio > LAG_RATIO else None


# Outliers are classified as in nccl-tests: the whole system's, or one straggler's.


def outliers_of(
    quantity: str, times: np.ndarray, samples_ns: object, hosts: Sequence[str | None]
) -> tuple[Outlier, ...] | None:
    """Return the iterations beyond the upper outer fence of their record; None if there are too few, or not whole.

    times: from `waiting_times`. samples_ns: the record's, needed if these are only some of its iterations.
    Raises ValueError if they break the contract.
    """
    whole, computed = times, None
    if quantity == HOST_WAIT:
        if samples_ns is None:
            return None
        whole = whole_times(samples_ns, "samples_ns", len(times))[:, -times.shape[1] :]
        if whole.shape != times.shape:
            return None
        computed = _from_medians(whole - times)
    slowest = whole.max(axis=0)
    if (fences := outer_fences(slowest)) is None:
        return None
    median = float(np.median(slowest))
    classes = _Classes(_from_medians(times), tuple(hosts), IS_LAST_LONGEST[quantity], computed)
    excesses = {at: float(slowest[at]) - median for at in np.flatnonzero(slowest > fences[1]).tolist()}
    return tuple(
        Outlier(at, excess / median, *classes.of(at, MOST_OF_EXCESS * excess)) for at, excess in excesses.items()
    )


def _from_medians(times: np.ndarray) -> np.ndarray:
    """Return the distance of each rank from its median: some are always first or last."""
    return times - np.median(times, axis=1, keepdims=True)


@dataclass(frozen=True)
class _Classes:
    """Classifies outliers. apart: (ranks, iterations), distances from each rank's median of the waiting times.

    computed: the same of what each rank computed, if the waiting times are a part of the iterations.
    """

    apart: np.ndarray
    hosts: tuple[str | None, ...]
    is_last_longest: bool
    computed: np.ndarray | None

    def of(self, at: int, most: float) -> tuple[str | None, int | str | None]:
        """Return class and culprit of the outlier in iteration `at`. most: limit of its excess, same unit as times."""
        common = [self.apart] if self.computed is None else [self.apart, self.computed]
        if any(_rise(times.min(axis=0), at) > most for times in common):
            return ALL_RANKS, None
        if not self.is_last_longest and (late := self._left_late(at, most)) is not None:
            return ONE_RANK, late
        column = self.apart[:, at]
        last = np.flatnonzero(column == (column.max() if self.is_last_longest else column.min())).tolist()
        if len(last) == 1 and self._is_of(np.arange(len(column)) == last[0], at, most):
            return ONE_RANK, last[0]
        hosts = {self.hosts[rank] for rank in last}
        if len(hosts) == 1 and None not in self.hosts and len(set(self.hosts)) > 1:
            host = hosts.pop()
            if self._is_of(np.array(self.hosts) == host, at, most):
                return ONE_HOST, host
        return None, None

    def _is_of(self, is_culprit: np.ndarray, at: int, most: float) -> bool:
        """Return whether these ranks alone are the cause: others waited for them, or computed no longer than usual."""
        others = self.apart[~is_culprit]
        if self.is_last_longest:
            return _rise(others.max(axis=0), at) <= most
        return _rise(others.min(axis=0), at) > most

    def _left_late(self, at: int, most: float) -> int | None:
        """Return the rank that alone was long in a call and that all others waited for in the next one, or None.

        It was delayed after the call was over, and so late for the next. This call alone would blame another rank.
        """
        is_long = self.apart[:, at] > most
        if is_long.sum() != 1 or at + 1 == self.apart.shape[1]:
            return None
        return int(np.argmax(is_long)) if np.array_equal(self.apart[:, at + 1] > most, ~is_long) else None


def _rise(times: np.ndarray, at: int) -> float:
    return float(times[at] - np.median(times))


# The rows of waits.csv: one for each launch, quantity and rank.


def wait_rows(records: list[tuple[dict, Waits]]) -> list[dict]:
    """Return the rows of the records, each given with its row of measurements.csv, in the order of launches."""
    groups: dict[tuple, list[tuple[dict, Waits]]] = {}
    for row, waits in records:
        groups.setdefault((row["launch"], waits.quantity, len(waits.hosts)), []).append((row, waits))
    return [line for key in sorted(groups) for line in _rows(groups[key])]


def rows_of_json(records: list[tuple[dict, dict]]) -> list[dict]:
    """Return `wait_rows` of records whose Waits have been read from a summary (store/summaries.py)."""
    return wait_rows([(row, _from_json(values)) for row, values in records])


def _from_json(values: dict) -> Waits:
    suspects = {name: values[name] and Suspect(**values[name]) for name in ("suspect", "suspect_host")}
    outliers = values["outliers"]
    found = None if outliers is None else tuple(Outlier(**outlier) for outlier in outliers)
    return Waits(**values | suspects | {"hosts": tuple(values["hosts"]), "outliers": found})


def _rows(records: list[tuple[dict, Waits]]) -> list[dict]:
    """Return the rows of one launch and quantity."""
    row, first = records[0]
    of_records = [waits for _, waits in records]
    common = {name: row[name] for name in OF_LAUNCH} | {"quantity": first.quantity, "num_records": len(records)}
    common |= {"num_iterations": sum(waits.num_iterations for waits in of_records)} | _outlier_counts(of_records)
    blamed = Counter(outlier.who for waits in of_records for outlier in waits.outliers or ())  # ranks and hosts
    is_known = common["num_outliers"] is not None
    shown, quantiles_s = _shown(records)
    return [
        common
        | {"rank": rank, "host": host, "num_last": sum(waits.num_last[rank] for waits in of_records)}
        | {"num_outliers_of_rank": blamed[rank] if is_known else None}
        | {"num_outliers_of_host": blamed[host] if is_known and host is not None else None}
        | {"num_suspect": _num_suspect([waits.suspect for waits in of_records], rank)}
        | {"num_host_suspect": _num_suspect([waits.suspect_host for waits in of_records], host)}
        | _lags([(waits.lags_s[rank], waits.iteration_s) for waits in of_records], "")
        | _lags([(waits.host_lags_s.get(host), waits.iteration_s) for waits in of_records], "host_")
        | {name: shown.get(name) for name in ("cell", "line")}
        | dict(zip(("p5_s", "p50_s", "p95_s"), quantiles_s[rank] if quantiles_s else (None,) * 3, strict=True))
        for rank, host in enumerate(first.hosts)
    ]


def _outlier_counts(records: list[Waits]) -> dict:
    """Return the outliers by class and their cost in median iterations; None if no record could be checked."""
    checked = [waits for waits in records if waits.outliers is not None]
    if not checked:
        return {column.name: None for column in OUTLIERS}
    outliers = [outlier for waits in checked for outlier in waits.outliers]
    num = Counter(outlier.kind for outlier in outliers)
    return {
        "num_iterations_checked": sum(waits.num_iterations for waits in checked),
        "num_outliers": len(outliers),
        **{f"num_outliers_{kind}": num[kind] for kind in (ALL_RANKS, ONE_HOST, ONE_RANK)},
        "outlier_cost_iterations": float(sum(outlier.excess_ratio for outlier in outliers)),
    }


def _num_suspect(suspects: list[Suspect | None], who: int | str | None) -> int:
    return sum(suspect is not None and suspect.who == who for suspect in suspects)


def _lags(lags: list[tuple[float | None, float]], prefix: str) -> dict:
    """Return the median lag over records, in seconds and relative to the iteration. lags: (lag, iteration)."""
    known = [(lag, lag / iteration) for lag, iteration in lags if lag is not None]
    medians = [float(np.median(values)) for values in zip(*known, strict=True)] or [None, None]
    return {f"{prefix}lag_s": medians[0], f"{prefix}lag_ratio": medians[1]}


def _shown(records: list[tuple[dict, Waits]]) -> tuple[dict, tuple | None]:
    """Return the row and quantiles of the record in which the most frequent suspect lags most: a rank, else a host."""
    for name in ("suspect", "suspect_host"):
        found = [(row, waits, getattr(waits, name)) for row, waits in records if getattr(waits, name) is not None]
        if found:
            num = Counter(suspect.who for *_, suspect in found)
            most = min(num, key=lambda who: (-num[who], who))
            row, waits, _ = max((f for f in found if f[2].who == most), key=lambda f: f[2].lag_ratio)
            return row, waits.quantiles_s
    return {}, None
