"""Which rank or host of a record the others wait for: the one that waits least itself, time after time.

Synchronised step times are equal on all ranks and cannot tell. What can: the time inside a collective that no rank
leaves before all have come, of which the last to come spends least; and the time of a step that nobody waits in.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from regatta.store.records import one_line, slowest_rank, whole_times
from regatta.store.tables import SPIKES
from regatta.topics.stragglers.spikes import ALL_RANKS, ONE_HOST, ONE_RANK, Spike, Times, find_spikes

# No rank can leave one of these before every rank has come.
ALL_WAIT = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
# What is timed, and whether the last rank is the one with the longest time of it.
IN_COLLECTIVE, COMPUTE, HOST_WAIT = "in_collective", "compute", "host_wait"
IS_LAST_LONGEST = {IN_COLLECTIVE: False, COMPUTE: True, HOST_WAIT: False}

SUSPECT_P = 0.05  # of a record, over its ranks or hosts; six iterations of two ranks can reach it
LAG_RATIO = 0.01  # of the iteration; ranks that are apart by less cost nobody anything
QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class Suspect:
    """Who was last more often than chance explains, and by more than LAG_RATIO: a rank's number, or a host's name.

    lag_s: how much later than the median of the other ranks (or hosts, each by its last rank) it came, median over
    iterations; lag_ratio: that over the median of the slowest rank's samples.
    """

    who: int | str
    lag_s: float
    lag_ratio: float


@dataclass(frozen=True)
class Waits:
    """num_last: of each rank, the iterations in which it was last by itself; where two were last, neither counts.

    hosts: of each rank, None where unknown. suspect, suspect_host: None where there is none, and of hosts where there
    are not several. quantiles_s: for each rank those of QUANTILES; None where nobody is suspect. spikes: None of a record
    that is too short for them, or that lacks the whole iterations.
    """

    quantity: str
    num_iterations: int
    num_last: tuple[int, ...]
    hosts: tuple[str | None, ...]
    suspect: Suspect | None = None
    suspect_host: Suspect | None = None
    quantiles_s: tuple[tuple[float, ...], ...] | None = None
    spikes: tuple[Spike, ...] | None = None


def waits_of(record: dict, spec: dict, hosts: list[str | None]) -> Waits | None:
    """Return who waited for whom in a valid ok record; None of one rank, and where its times cannot tell.

    hosts: of each rank. Raises ValueError if the record's times break the contract.
    """
    quantity, times = times_that_tell(record, spec)
    if times is None:
        return None
    lateness = times.astype(float) if IS_LAST_LONGEST[quantity] else -times.astype(float)
    num_ranks = len(times)

    def iteration_ns() -> float:
        return float(np.median(slowest_rank(record, num_ranks)))

    rank = _suspect(range(num_ranks), lateness, np.full(num_ranks, 1 / num_ranks), iteration_ns)
    host = quantiles = None
    if None not in hosts and len(set(hosts)) > 1:
        names = sorted(set(hosts))
        places = [np.flatnonzero(np.array(hosts) == name) for name in names]
        last = np.stack([lateness[own].max(axis=0) for own in places])  # a host comes when its last rank comes
        host = _suspect(names, last, np.array([len(own) / num_ranks for own in places]), iteration_ns)
    if rank or host:
        quantiles = tuple(map(tuple, (np.quantile(times, QUANTILES, axis=1).T * 1e-9).tolist()))
    spikes = spikes_of(quantity, times, record.get("samples_ns"), hosts)
    num_last = tuple(_num_last(lateness).tolist())
    return Waits(quantity, times.shape[1], num_last, tuple(hosts), rank, host, quantiles, spikes)


def spikes_of(
    quantity: str, times: np.ndarray, samples_ns: object, hosts: Sequence[str | None]
) -> tuple[Spike, ...] | None:
    """Return the spikes among the iterations of `times`; None where they are too few, or not known as a whole.

    times: as `times_that_tell` returns them. samples_ns: of the record, needed where these are a part of its iterations.
    Raises ValueError if they break the contract.
    """
    whole, own = times, None
    if quantity == HOST_WAIT:
        if samples_ns is None:
            return None
        whole = whole_times(samples_ns, "samples_ns", len(times))[:, -times.shape[1] :]
        if whole.shape != times.shape:
            return None
        own = whole - times
    return find_spikes(Times(times, tuple(hosts), IS_LAST_LONGEST[quantity], own), whole.max(axis=0))


def hosts_by_rank(header: dict, num_ranks: int) -> list[str | None]:
    """Return the host of each rank by the first line of a launch file; None where it does not say it as it should."""
    found: list[str | None] = [None] * num_ranks
    hosts = (header.get("environment") or {}).get("hosts")
    for host in hosts if isinstance(hosts, list) else []:
        name, ranks = (host.get("host"), host.get("ranks")) if isinstance(host, dict) else (None, None)
        if isinstance(name, str) and isinstance(ranks, list):
            told = one_line(name)
            for rank in ranks:
                if isinstance(rank, int) and 0 <= rank < num_ranks:
                    found[rank] = told
    return found


def times_that_tell(record: dict, spec: dict) -> tuple[str, np.ndarray | None]:
    """Return what of an ok record tells who was last, and its nanoseconds (ranks, iterations); None where nothing does.

    Raises ValueError if they break the contract.
    """
    num_ranks = spec["nodes"] * spec["gpus_per_node"]
    quantity, values = _quantity(record, spec)
    if record["status"] != "ok" or num_ranks < 2 or values is None:
        return quantity, None
    return quantity, whole_times(values, quantity, num_ranks, least=0)


def _quantity(record: dict, spec: dict) -> tuple[str, list | None]:
    """Return what of a record can tell, and its times by rank and iteration, None where it has none.

    A step without exchange of gradients is each rank's own computing, but for fsdp, which still gathers parameters. When
    the host waits, on a GPU it does not wait for the exchange.
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


def _suspect(
    names: Sequence[int | str], lateness: np.ndarray, shares: np.ndarray, iteration_ns: Callable[[], float]
) -> Suspect | None:
    """Return the rank or host that was last more often than its share, and lagged; None where none was.

    lateness: a row for each name. The test is binomial, its p times the number of names.
    """
    from scipy.special import bdtrc  # a tenth of a second, which only records of several ranks need

    num_last = _num_last(lateness)
    chances = bdtrc(num_last - 1, lateness.shape[1], shares)
    most = int(np.lexsort((-num_last / shares, chances))[0])
    if len(names) * chances[most] >= SUSPECT_P:
        return None
    lag_ns = float(np.median(lateness[most] - np.median(np.delete(lateness, most, axis=0), axis=0)))
    lag_ratio = lag_ns / iteration_ns()
    return Suspect(names[most], lag_ns * 1e-9, lag_ratio) if lag_ratio > LAG_RATIO else None


# Who waited for whom in each launch: the rows of waits.csv, one for each launch, quantity and rank.

OF_LAUNCH = ("launch", "repeat", "stack", "device", "nodes", "gpus_per_node", "world_size")


def wait_rows(records: list[tuple[dict, Waits]]) -> list[dict]:
    """Return the rows of the records, each given with its row of measurements.csv, in the order of launches."""
    groups: dict[tuple, list[tuple[dict, Waits]]] = {}
    for row, waits in records:
        groups.setdefault((row["launch"], waits.quantity, len(waits.hosts)), []).append((row, waits))
    return [line for key in sorted(groups) for line in _rows(groups[key])]


def _rows(records: list[tuple[dict, Waits]]) -> list[dict]:
    """Return the rows of one launch and quantity."""
    first, waits = records[0]
    common = {name: first[name] for name in OF_LAUNCH} | {"quantity": waits.quantity, "num_records": len(records)}
    common["num_iterations"] = sum(own.num_iterations for _, own in records)
    common |= _spikes([own for _, own in records])
    blamed = Counter(s.who for _, own in records for s in own.spikes or ())  # ranks are numbers, hosts are names
    is_told = common["num_spikes"] is not None
    shown, quantiles_s = _shown(records)
    return [
        common
        | {"rank": rank, "host": host, "num_last": sum(own.num_last[rank] for _, own in records)}
        | {"num_spikes_of_rank": blamed[rank] if is_told else None}
        | {"num_spikes_of_host": blamed[host] if is_told and host is not None else None}
        | _judged([own.suspect for _, own in records], rank, "")
        | _judged([own.suspect_host for _, own in records], host, "host_")
        | {name: shown.get(name) for name in ("cell", "line")}
        | dict(zip(("p5_s", "p50_s", "p95_s"), quantiles_s[rank] if quantiles_s else (None,) * 3, strict=True))
        for rank, host in enumerate(waits.hosts)
    ]


def _spikes(records: list[Waits]) -> dict:
    """Return how many spikes there were by class, and what they cost in median iterations; None where none could be seen.

    num_fenced: iterations of the records that were long enough.
    """
    looked = [own for own in records if own.spikes is not None]
    if not looked:
        return dict.fromkeys(SPIKES)
    spikes = [spike for own in looked for spike in own.spikes]
    num = Counter(spike.kind for spike in spikes)
    return {
        "num_fenced": sum(own.num_iterations for own in looked),
        "num_spikes": len(spikes),
        **{f"num_spikes_{kind}": num[kind] for kind in (ALL_RANKS, ONE_HOST, ONE_RANK)},
        "spike_cost_iterations": float(sum(spike.excess_ratio for spike in spikes)),
    }


def _judged(suspects: list[Suspect | None], who: int | str | None, prefix: str) -> dict:
    """Return in how many records a rank or host was suspect, and the medians over these of how far it lagged."""
    own = [suspect for suspect in suspects if suspect is not None and suspect.who == who]
    row = {f"num_{prefix}suspect": len(own)}
    for name in ("lag_s", "lag_ratio"):
        row[prefix + name] = float(np.median([getattr(suspect, name) for suspect in own])) if own else None
    return row


def _shown(records: list[tuple[dict, Waits]]) -> tuple[dict, tuple | None]:
    """Return the row and the quantiles of one record with a suspect: where the rank that is suspect most often lags most;
    for want of a rank the host."""
    for name in ("suspect", "suspect_host"):
        found = [(row, waits, getattr(waits, name)) for row, waits in records if getattr(waits, name) is not None]
        if found:
            num = Counter(suspect.who for *_, suspect in found)
            most = min(num, key=lambda who: (-num[who], who))
            row, waits, _ = max((f for f in found if f[2].who == most), key=lambda f: f[2].lag_ratio)
            return row, waits.quantiles_s
    return {}, None
