"""Who waited for whom in each launch: the rows of waits.csv, one for each launch, quantity and rank.

A launch is told as a whole, since its records share processes and hosts: a campaign of 25,000 records of 32 ranks would
otherwise have 800,000 rows, most of which say that nothing is the matter.
"""

from collections import Counter

import numpy as np

from regatta.analysis.tables import SPIKES
from regatta.store.spikes import ALL_RANKS, ONE_HOST, ONE_RANK
from regatta.store.waits import Suspect, Waits

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
