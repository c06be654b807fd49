"""Stragglers of random campaigns: suspects and lags, found again in the launch files with plain loops."""

import json
import math
import random

import pytest
from synthetic import analyse, edit_records, lines_of
from synthetic_waits import write_waits
from test_brute_force import median

from regatta.topics.slow_places import stragglers

SEEDS = range(14)
SHAPES = ((1, 2), (1, 4), (2, 2), (2, 4), (4, 2), (4, 1), (3, 2))


def tail(num, total, chance):
    """Return the chance of `num` hits or more of `total`."""
    return sum(math.comb(total, i) * chance**i * (1 - chance) ** (total - i) for i in range(num, total + 1))


def last_of(lateness):
    """Return in how many iterations each row is last alone. lateness: a row for each rank or host."""
    iterations = list(zip(*lateness, strict=True))
    return [
        sum(values[i] == max(values) and values.count(max(values)) == 1 for values in iterations)
        for i in range(len(lateness))
    ]


def suspect_of(lateness, slowest):
    """Return (place, lag / iteration) of the row that is last more often than chance explains, or None.

    All rows are of the same number of ranks.
    """
    num, iterations, last = len(lateness), list(zip(*lateness, strict=True)), last_of(lateness)
    who = max(range(num), key=lambda i: last[i])
    if num * tail(last[who], len(iterations), 1 / num) >= 0.05:
        return None
    lags = [values[who] - median([value for i, value in enumerate(values) if i != who]) for values in iterations]
    ratio = median(lags) / median(slowest)
    return (who, ratio) if ratio > 0.01 else None


def launches_of(folder, shape):
    """Return for each launch: quantity -> (lags in its records of ranks, of hosts, counts of last ranks, suspects)."""
    (nodes, gpus), found = shape, []
    for path in sorted((folder / "launches").glob("*.jsonl")):
        records = [line for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == "record"]
        launch = {}
        for record in records:
            is_step = record["spec"]["benchmark"] == "train_step"
            times = record["parts_ns"]["no_sync"] if is_step else record["samples_ns"]
            lateness = times if is_step else [[-value for value in rank] for rank in times]
            hosts = [[max(v) for v in zip(*lateness[n * gpus : n * gpus + gpus], strict=True)] for n in range(nodes)]
            slowest = [max(values) for values in zip(*record["samples_ns"], strict=True)]
            found_of = launch.setdefault("compute" if is_step else "in_collective", ([], [], [], []))
            of_ranks, of_hosts, last, suspects = found_of
            last.append(last_of(lateness))
            of_ranks.append(lags_of(lateness, slowest))
            of_hosts.append(lags_of(hosts, slowest) if nodes > 1 else [])
            suspects.append(suspect_of(lateness, slowest))
        found.append(launch)
    return found


def coarsen(folder, unit_ns=2000):
    """Round the times of collectives, so that ranks often arrive together."""
    for record in edit_records(folder):
        if record["spec"]["benchmark"] == "collective":
            record["samples_ns"] = [[round(ns / unit_ns) * unit_ns for ns in rank] for rank in record["samples_ns"]]


def lags_of(lateness, slowest):
    """Return how much later each row is than the median of the others, over the iteration."""
    iterations = list(zip(*lateness, strict=True))
    typical = [median(values) for values in iterations]
    medians = [median([v - t for v, t in zip(row, typical, strict=True)]) for row in lateness]
    others = [medians[:who] + medians[who + 1 :] for who in range(len(medians))]
    return [(one - median(rest)) / median(slowest) for one, rest in zip(medians, others, strict=True)]


def mean_lags(launches, place, num):
    """Return (quantity, number) -> lag of a rank (place 0) or host (place 1): median of records, mean of launches."""
    return {
        (quantity, who): sum(median([lags[who] for lags in launch[quantity][place]]) for launch in launches)
        / len(launches)
        for quantity in ("compute", "in_collective")
        for who in range(num)
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_persistent_ranks_and_hosts(tmp_path, seed):
    rng = random.Random(seed)
    shape, repeats = rng.choice(SHAPES), rng.choice([2, 4, 6, 8, 10])
    nodes, gpus = shape
    late = {rank: rng.choice([0.002, 0.03, 0.1]) for rank in rng.sample(range(nodes * gpus), rng.choice([0, 1, 1, 2]))}
    if rng.random() < 0.4:
        host = rng.randrange(nodes)
        late = dict.fromkeys(range(host * gpus, host * gpus + gpus), 0.05)
    folder = write_waits(tmp_path / "r", shape, late, repeats, seed)
    if seed % 2:
        coarsen(folder)
    data, launches = analyse(folder), launches_of(folder, shape)
    for row in data.tables["stragglers"].itertuples():
        assert row.num_last == sum(last[row.rank] for launch in launches for last in launch[row.quantity][2])
        of_records = [found for launch in launches for found in launch[row.quantity][3]]
        assert row.num_suspect_records == sum(found is not None and found[0] == row.rank for found in of_records)
    all_hosts = mean_lags(launches, 1, nodes) if nodes > 1 else {}
    all_hosts = {(quantity, f"node{number:03d}"): lag for (quantity, number), lag in all_hosts.items()}
    tables, slow = (data.tables["stragglers"], data.tables["straggler_hosts"]), []
    expected_lags = mean_lags(launches, 0, nodes * gpus), all_hosts
    for table, name, expected in zip(tables, ("rank", "host"), expected_lags, strict=True):
        shown = {(row.quantity, getattr(row, name)): row for row in table.itertuples()}
        assert {key: row.lag_ratio for key, row in shown.items()} == pytest.approx(expected, rel=1e-6, abs=1e-9)
        for row in shown.values():
            is_judged = len(launches) >= 3
            assert (not math.isnan(row.p_adjusted)) == is_judged if isinstance(row.p_adjusted, float) else not is_judged
            is_slow = is_judged and row.p_adjusted <= 0.01 and row.lag_low_ratio > 0.05
            assert row.is_persistent == is_slow == (row.verdict == "slow")
        slow.append({key: row.lag_ratio for key, row in shown.items() if row.is_persistent})
    ranks, hosts = slow
    planted = {rank for rank, share in late.items() if share >= 0.05}
    assert {rank for _, rank in ranks} <= planted
    elsewhere = {key: lag for key, lag in ranks.items() if f"node{key[1] // gpus:03d}" not in {h for _, h in hosts}}
    worst = [pytest.approx(max(lags.values()), rel=1e-6) for lags in (hosts, elsewhere) if lags]
    found = [finding.values for finding in stragglers(data) if finding.kind.startswith("straggler")]
    assert [values["lag_ratio"].estimate for values in found] == worst
    straggler = lines_of(data)["confidence"].values["straggler"]
    if not ranks and not hosts:
        assert straggler is None
        return
    (quantity, who), lag = max((hosts or ranks).items(), key=lambda item: item[1])
    assert (straggler["quantity"], straggler["host"] if hosts else straggler["rank"]) == (quantity, who)
    assert straggler["lag_ratio"] == pytest.approx(lag, rel=1e-6)
