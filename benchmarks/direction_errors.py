"""How often a campaign with a true difference is said to depend on the cell, after a chance cell. Seeded, unpaired.

Some cells are 10 % slower, the others equal. Detected: one or two cells are 10 % faster instead.
"""

import sys

import numpy as np
from common import Figure, print_head, report
from coverage import CHUNK, NUM_CELLS, SEED, Setup, levels, simulated

from regatta.core import moderation
from regatta.core.verdicts import has_both_directions, settled_direction

NUM, EFFECT = 500, 0.10
SHARES, LAUNCHES = (0.0, 0.6, 0.9), (3, 5, 10)
MOST_FALSE = 2.5  # percent


def rate(num_slower: int, num_faster: int, share: float, launches: int) -> float:
    """Return percent of campaigns with significant cells in both directions."""
    random, found = np.random.default_rng(SEED), []
    effect = np.zeros(NUM_CELLS)
    effect[:num_slower], effect[num_slower : num_slower + num_faster] = np.log1p(EFFECT), -np.log1p(EFFECT)
    setup, groups = Setup(share=share), np.full(NUM_CELLS, "benchmark")
    for _ in range(0, NUM, CHUNK):
        base, test = (simulated(random, setup, CHUNK, 0.02, launches)[0] + levels(setup)[:, None] for _ in range(2))
        contrasts = moderation.unpaired_contrasts(base, test + effect[:, None], groups)
        adjusted = moderation.adjust_for_number(contrasts.p_value)
        ends = (np.exp(contrasts.shift + sign * contrasts.half_width) for sign in (-1, 1))
        for low, high, p_adjusted, p_value in zip(*ends, adjusted, contrasts.p_value, strict=True):
            directions = [settled_direction(*row) for row in zip(low, high, p_adjusted, strict=True)]
            found.append(has_both_directions(directions, p_value.tolist()))
    return 100 * float(np.mean(found))


def main() -> None:
    worst = 0.0
    print("Percent of campaigns with both directions, with 3, 5 and 10 launches\n")
    print_head("slower, faster cells of 50", *(f"share {share:g}" for share in SHARES))
    for num_slower, num_faster in ((10, 0), (25, 0), (40, 0), (25, 1), (25, 2)):
        texts = []
        for share in SHARES:
            of_launches = [rate(num_slower, num_faster, share, launches) for launches in LAUNCHES]
            texts.append(", ".join(f"{percent:.1f}" for percent in of_launches))
            worst = worst if num_faster else max(worst, *of_launches)
        print(f"| {num_slower}, {num_faster} | {' | '.join(texts)} |", flush=True)
    report(Figure("Campaigns with one true direction said to depend on the cell, worst case", worst, "%", MOST_FALSE))


if __name__ == "__main__":
    sys.exit(main())
