"""How often a sweep or a table of stragglers calls a healthy member slow, and finds a slow one: simulated times.

Each node is compared with the median of the others in the same repeat; margin 5 %. Times have a tail to the slow side.
Scatter of nodes: standard deviation of its logarithm. Healthy nodes may differ by a fixed factor each. A rank's lag is
that behind the median of the others in each launch.
"""

import sys

import coverage
import numpy as np
from common import print_missed
from coverage import tailed

from regatta.core import moderation
from regatta.tables import places

MARGIN, NUM_SWEEPS = 0.05, 1000
# name: nodes, repeats, scatter, scatter of nodes, differences of healthy nodes, slow node, least found, %
SWEEPS = {
    "20 % among 32 nodes, 3 repeats, scatter 1 %": (32, 3, 0.01, 0.0, 0.0, 1.20, 95),
    "the same, nodes differ in scatter": (32, 3, 0.01, 0.5, 0.0, 1.20, 90),
    "8 % among 100 nodes, 6 repeats, scatter 2 %": (100, 6, 0.02, 0.0, 0.0, 1.08, 90),
    "the same, 8 %, nodes differ in scatter": (100, 6, 0.02, 0.5, 0.0, 1.08, 70),
    "8 % among 100, 6 repeats, scatter 0.5 %": (100, 6, 0.005, 0.0, 0.0, 1.08, 99),
    "8 % among 100, 6 repeats, scatter 5 %": (100, 6, 0.05, 0.0, 0.0, 1.08, 0),
    "the same, 0.5 %, healthy nodes differ by 1 %": (100, 6, 0.005, 0.0, 0.01, 1.08, 90),
    "none slow, 32 nodes, 3 repeats, scatter 10 %": (32, 3, 0.10, 0.5, 0.0, 1.0, 0),
}


def judged(logs: np.ndarray) -> np.ndarray:
    """Return the verdict on each node. logs: (sweeps, nodes, repeats)."""
    differences = logs - moderation.median_of_others(logs)
    contrasts = moderation.paired_contrasts(differences, logs, np.full(logs.shape[1], "train_step"))
    return moderation.words(contrasts, moderation.adjust_for_number(contrasts.p_value), np.log1p(MARGIN))


# ranks, launches, scatter, differences of healthy ranks, late rank. Scatter of ranks is log-normal (0.5).
STRAGGLERS = (
    *((ranks, launches, 0.02, 0.0, 0.2) for ranks, launches in ((2, 3), (4, 3), (8, 3), (32, 3), (8, 6), (8, 10))),
    *((8, launches, 0.01, 0.0, 0.1) for launches in (3, 6, 10)),
    *((ranks, launches, 0.005, 0.01, 0.1) for ranks, launches in ((8, 3), (32, 3), (8, 6), (8, 10))),
    *((8, launches, 0.005, 0.01, 0.0) for launches in (3, 6, 10)),
    *((ranks, launches, 0.01, 0.0, 0.0) for ranks, launches in ((2, 3), (8, 3), (32, 3), (8, 10))),
)
NUM_TABLES = 400


def lags(random: np.random.Generator, ranks: int, launches: int, scatter: float, differ: float, late: float):
    """Return the lags of (ranks, launches); rank 0 is the late one."""
    times = scatter * np.exp(0.5 * random.standard_normal((ranks, 1))) * tailed(random, (ranks, launches))
    times += differ * random.standard_normal((ranks, 1))
    times[0] += late
    return np.array([one - np.median(np.delete(times, who, 0), 0) for who, one in enumerate(times)])


def stragglers() -> list[str]:
    print("\n| ranks, launches, scatter, healthy ranks differ by, lag | found, % | healthy called slow |")
    print("|---|---|---|")
    missed = []
    for case in STRAGGLERS:
        random, slow = np.random.default_rng(coverage.SEED), []
        for _ in range(NUM_TABLES):
            found = lags(random, *case)
            rows = places.judged(found, places.LAG, ["compute"] * len(found), [""] * len(found), MARGIN)
            slow.append([row["verdict"] == "slower" for row in rows])
        slow, first = 100 * np.array(slow), int(case[-1] > 0)
        right, wrong = f"{slow[:, 0].mean():.0f}" if first else "", slow[:, first:].max(-1).mean()
        print(f"| {', '.join(f'{number:g}' for number in case)} | {right} | {wrong:.1f} |", flush=True)
        if wrong > 1 + 300 * (0.01 / NUM_TABLES) ** 0.5:  # 3 standard errors
            missed.append(f"stragglers {case}")
    return missed


def main() -> int:
    print("| sweep | slow node found, % | sweeps that call a healthy node slow, % |\n|---|---|---|")
    missed = []
    for name, (nodes, repeats, scatter, spread, different, slow, least) in SWEEPS.items():
        random, found, wrong = np.random.default_rng(coverage.SEED), 0, 0
        for _ in range(0, NUM_SWEEPS, coverage.CHUNK):
            shape = (coverage.CHUNK, nodes, 1)
            of_nodes = scatter * np.exp(spread * random.standard_normal(shape))
            logs = of_nodes * tailed(random, (coverage.CHUNK, nodes, repeats)) + different * random.standard_normal(
                shape
            )
            logs[:, 0] += np.log(slow)
            is_slow = judged(logs) == "slower"
            found, wrong = found + is_slow[:, 0].sum() * (slow > 1), wrong + is_slow[:, slow > 1 :].any(-1).sum()
        shares = 100 * found / NUM_SWEEPS, 100 * wrong / NUM_SWEEPS
        print(f"| {name} | {shares[0]:.1f} | {shares[1]:.1f} |", flush=True)
        if shares[0] < least or shares[1] > 1:
            missed.append(name)
    missed += stragglers()
    return print_missed(missed)


if __name__ == "__main__":
    sys.exit(main())
