"""How often independent launches are found to be correlated, by the number of batches, and what it costs. Seeded.

    python benchmarks/correlation_errors.py             quick, for `make bench`
    python benchmarks/correlation_errors.py --full      the table of docs/decisions/0007-intervals-and-verdicts.md

Launches as in coverage.py. A share of the variance is common to all cells of a launch; batches are independent. In one
cell of eight, the second stack is 7 % slower.
"""

import sys

import coverage
import numpy as np
from common import Figure, is_full, print_head, report
from coverage import CHUNK, LAUNCHES, NUM_CELLS, PAIRINGS, SCATTER, SEED, levels, tailed

from regatta.core import moderation

BATCHES, SHARES = (1, 2, 6), (0.6, 0.9)
EFFECT, EVERY = 0.07, 8  # one cell of so many is slower
MOST_WIDENED = 6  # percent, mean over the entries of a number of batches
QUICK, FULL = 50, 1_000  # campaigns per entry


def launches_of(random: np.random.Generator, batches: np.ndarray, num: int, share: float, serial: float) -> np.ndarray:
    """Return log times of (campaigns, cells, launches). serial: correlation of successive launches."""
    scatter = SCATTER * np.exp(0.5 * random.standard_normal((CHUNK, NUM_CELLS, 1)))
    common, alone = (tailed(random, (CHUNK, cells, num)) for cells in (batches.max() + 1, NUM_CELLS))
    for logs in (common, alone):
        for i in range(1, num):
            logs[..., i] = serial * logs[..., i - 1] + (1 - serial**2) ** 0.5 * logs[..., i]
    return scatter * (share**0.5 * common[:, batches] + (1 - share) ** 0.5 * alone)


def rates(num_batches: int, share: float, num: int, is_paired: bool, count: int, serial: float = 0.0) -> list[float]:
    """Return percent of campaigns that are widened, and of slower cells that are found."""
    random, batches = np.random.default_rng(SEED), np.arange(NUM_CELLS) * num_batches // NUM_CELLS
    groups, level = np.full(NUM_CELLS, "benchmark"), levels(coverage.Setup())[:, None]
    is_slower, parts = np.arange(NUM_CELLS) % EVERY == 0, []
    for _ in range(0, count, CHUNK):
        base, test = (launches_of(random, batches, num, share, serial) + level for _ in range(2))
        test = test + np.log1p(EFFECT) * is_slower[:, None]
        if is_paired:
            found = moderation.paired_contrasts(test - base, base, groups, batches=batches)
        else:
            found = moderation.unpaired_contrasts(base, test, groups, (batches, batches))
        is_found = moderation.adjust_for_number(found.p_value)[:, is_slower] <= moderation.FALSE_DISCOVERIES
        parts.append(((found.correlation > 0).mean(), is_found.mean()))
    return [100 * float(of) for of in np.mean(parts, 0)]


def main() -> None:
    count = FULL if is_full(__doc__, f"{FULL:,} campaigns per entry instead of {QUICK}") else QUICK
    print("Percent, paired / unpaired: widened by chance; 7 % slower cells that are found\n")
    print_head("batches, share", *(f"{num} launches" for num in LAUNCHES))
    by_chance = {num_batches: [] for num_batches in BATCHES}
    for num_batches in BATCHES:
        for share in SHARES:
            texts = []
            for num in LAUNCHES:
                both = [rates(num_batches, share, num, is_paired, count) for is_paired in PAIRINGS]
                by_chance[num_batches] += [widened for widened, _ in both]
                texts.append("; ".join(" / ".join(f"{rate:.0f}" for rate in of) for of in zip(*both, strict=True)))
            print(f"| {num_batches}, {share:g} | {' | '.join(texts)} |", flush=True)
    print("\nSuccessive launches correlated by 0.3, 6 batches, paired / unpaired: widened\n")
    for share in SHARES:
        for num in LAUNCHES:
            both = [rates(6, share, num, is_paired, count, 0.3) for is_paired in PAIRINGS]
            print(f"share {share:g}, {num} launches: {' / '.join(f'{of[0]:.0f}' for of in both)}", flush=True)
    worst = max(map(np.mean, by_chance.values()))
    report(Figure("Independent launches taken for correlated, 1 to 6 batches, worst case", worst, "%", MOST_WIDENED))


if __name__ == "__main__":
    sys.exit(main())
