"""How often healthy hosts are named for failures, and a failing one is found, by simulation. Seeded.

Campaigns of 6 cells and 3 repeats: a sweep of 16 nodes; 4 allocations of 4 nodes, each with other launches of the same
cells; and 8 nodes that all launches share. Without a bad host, each measurement fails with the same probability, or
those of 2 cells always; causes name the host of rank 0, or of a random rank. A bad host fails the launches on it.
"""

import numpy as np
from common import Figure, report

from regatta.topics.failing_hosts import Run, failing_hosts

CELLS, REPEATS, NUM = 6, 3, 400
DESIGNS = {
    "sweep of 16 nodes": [(f"n{i}",) for i in range(16)],
    "4 allocations of 4 nodes": [tuple(f"n{4 * i + j}" for j in range(4)) for i in range(4)],
    "8 nodes, all launches": [tuple(f"n{i}" for i in range(8))],
}
BAD = "n2"


def campaign(random: np.random.Generator, places: list[tuple[str, ...]], rate: float, never: int, names_first: bool):
    """Return the measurements of a campaign whose first `never` cells fit nowhere."""
    for hosts in places:
        for cell in range(CELLS):
            for _ in range(REPEATS):
                place = 0 if names_first else int(random.integers(len(hosts)))
                is_failed = cell < never or random.random() < rate
                yield Run(str(cell), hosts, is_failed, hosts[place] if is_failed else None, place)


def with_bad(runs: list[Run], random: np.random.Generator, rate: float) -> list[Run]:
    """Return the measurements with a host that fails those on it, and that causes name."""
    return [
        Run(run.workload, run.hosts, True, BAD, run.hosts.index(BAD))
        if BAD in run.hosts and random.random() < rate
        else run
        for run in runs
    ]


def main() -> None:
    random, worst = np.random.default_rng(1), 0.0
    print("Campaigns that name a healthy host (%), no bad host\n")
    for name, places in DESIGNS.items():
        for rate, never in ((0.02, 0), (0.1, 0), (0.3, 0), (0.0, 2), (0.05, 2)):
            for names_first in (True, False):
                runs = (list(campaign(random, places, rate, never, names_first)) for _ in range(NUM))
                percent = 100 * np.mean([bool(failing_hosts(of_campaign)) for of_campaign in runs])
                worst = max(worst, percent)
                who = "rank 0" if names_first else "any rank"
                print(
                    f"{name}; {100 * rate:g} % fail, {never} cells never fit; causes name {who}: {percent:.1f}",
                    flush=True,
                )
    print("\nA bad host fails 30, 60 and 100 % of its measurements, 2 % fail anyway: named; with others (%)\n")
    for name, places in DESIGNS.items():
        texts = []
        for rate in (0.3, 0.6, 1.0):
            named = [
                set(failing_hosts(with_bad(list(campaign(random, places, 0.02, 0, False)), random, rate)))
                for _ in range(NUM // 2)
            ]
            alone, others = (
                100 * np.mean([of(hosts) for hosts in named])
                for of in (lambda hosts: BAD in hosts, lambda hosts: bool(hosts - {BAD}))
            )
            texts.append(f"{alone:.0f}; {others:.0f}")
        print(f"{name}: {', '.join(texts)}", flush=True)
    report(Figure("Healthy hosts named for failures, worst case", worst, "%", 2))


if __name__ == "__main__":
    main()
