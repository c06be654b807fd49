"""Hosts on which cells fail more often than the same cells on other hosts. docs/metrics.md.

A cause names the host of the rank that reports it: the first one for an error of all ranks. That alone is no evidence.
"""

import functools
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

CHANCE = 0.01  # maximum p, corrected for the number of hosts
MOST_TESTED = 16  # hosts per step, those with most failures beyond the expected ones
MOST_TOLD = 4  # hosts that always ran together; a longer list would not locate a fault


@dataclass(frozen=True)
class Run:
    """A measurement that was made. workload: equal for cells that differ only in their hosts.

    hosts: in the order of ranks. named: the host that its cause names, and at which place of `hosts`.
    """

    workload: str
    hosts: tuple[str, ...]
    is_failed: bool
    named: str | None = None
    place: int | None = None


def failing_hosts(runs: Iterable[Run]) -> dict[str, int]:
    """Return hosts with more failures than others with the same cells, and how many. runs: ok, or failed by one cause.

    The most significant host first; its runs are then left out. Hosts that always ran together are named together.
    """
    left, found = [run for run in runs if run.hosts], {}
    num_tests = 2 * len({host for run in left for host in run.hosts})
    while failed := Counter(host for run in left if run.is_failed for host in run.hosts):
        by_run, by_place = _p_by_run(left), _p_by_place(left)
        p_values = {host: min(by_run.get(host, 1), by_place.get(host, 1)) for host in by_run | by_place}
        host = min(p_values, key=p_values.get, default=None)
        if host is None or p_values[host] * num_tests > CHANCE:
            break
        together = [other for other in failed if all((other in run.hosts) == (host in run.hosts) for run in left)]
        named = min(together, key=lambda other: by_place.get(other, 1))
        if by_place.get(named, 1) * len(together) <= CHANCE:
            found[named] = sum(run.named == named for run in left if run.is_failed)
        elif len(together) <= MOST_TOLD:
            found |= {other: failed[other] for other in together}
        left = [run for run in left if host not in run.hosts]
    return found


def _p_by_run(runs: list[Run]) -> dict[str, float]:
    """Return p of each host with failures, by Fisher's exact test: conditional on the failures of each workload."""
    totals, of_hosts = Counter(), defaultdict(Counter)
    for run in runs:
        totals[run.workload, run.is_failed] += 1
        of_hosts[run.workload].update((host, run.is_failed) for host in run.hosts)
    tables, excess = defaultdict(Counter), Counter()  # tables: (runs, failed, runs of the host) of workloads, by host
    observed = Counter()
    for workload, of_host in of_hosts.items():
        bad, good = totals[workload, True], totals[workload, False]
        for host in {host for host, _ in of_host} if bad and good else ():
            num_bad, num = of_host[host, True], of_host[host, True] + of_host[host, False]
            if num < bad + good:
                tables[host][bad + good, bad, num] += 1
                observed[host] += num_bad
                excess[host] += num_bad - num * bad / (bad + good)
    tested = [host for host, more in excess.most_common(MOST_TESTED) if more > 0]
    return {host: _at_least(tables[host], observed[host]) for host in tested}


def _p_by_place(runs: list[Run]) -> dict[str, float]:
    """Return p of each host that causes name, if each host of a launch is named equally often.

    Only of workloads that were ok elsewhere or at another time. Not for the first and the last host: they have the
    ranks that report errors of all, and the ends of a pipeline.
    """
    was_ok = {run.workload for run in runs if not run.is_failed}
    tables, observed = defaultdict(Counter), Counter()
    for run in runs:
        if run.is_failed and run.workload in was_ok and run.named and 0 < run.place < len(run.hosts) - 1:
            observed[run.named] += 1
            for host in run.hosts[1:-1]:
                tables[host][len(run.hosts) - 2, 1, 1] += 1
    return {host: _at_least(tables[host], num) for host, num in observed.items()}


def _at_least(tables: Counter[tuple[int, int, int]], observed: int) -> float:
    """Return the probability of so many failures or more of a host, summed over independent workloads."""
    total = np.ones(1)
    for table, num in tables.items():
        for _ in range(num):
            total = np.convolve(total, _hypergeometric(*table))
    return float(min(total[observed:].sum(), 1))


@functools.cache
def _hypergeometric(num: int, bad: int, drawn: int) -> np.ndarray:
    """Return the probabilities of 0, 1, ... bad ones among the drawn."""
    from scipy.special import gammaln

    def log_choose(n, k):
        return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)

    k = np.arange(min(bad, drawn) + 1)
    is_possible = drawn - k <= num - bad
    rest = np.where(is_possible, drawn - k, 0)
    logs = log_choose(bad, k) + log_choose(num - bad, rest) - log_choose(num, drawn)
    return np.where(is_possible, np.exp(logs), 0)
