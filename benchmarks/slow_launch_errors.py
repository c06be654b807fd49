"""False-positive rate of slow launches in simulated campaigns without one, and detection rate of a slow launch.

The variation is per cell and launch, or one factor for all cells of a launch (processes, memory, time of day).
"""

import numpy as np
from common import Figure, print_head, report

from regatta.core.moderation import FALSE_DISCOVERIES, adjust_for_number
from regatta.tables.pairs import MARGIN
from regatta.tables.slow_launches import MIN_CELLS, SLOW_FACTOR, p_of_each

LAUNCHES, CELLS, VARIATIONS = (3, 5, 10), (3, 6, 24), (0.02, 0.08, 0.2)
MOST_VARIATION = 0.08  # of the goal
NUM_CAMPAIGNS = 20_000
SLOWER = (1.1, 1.2, 1.4, 1.6)


def main() -> None:
    rng = np.random.default_rng(1)
    print(f"False-positive rate (%), {NUM_CAMPAIGNS:,} campaigns without a slow launch")
    print_head("variation (SD)", "launches", *(f"{cells} cells" for cells in CELLS))
    worst = 0.0
    for is_common in (False, True):
        for variation in VARIATIONS:
            for launches in LAUNCHES:
                found = [is_reported(rng, variation, launches, cells, is_common).any(axis=1).mean() for cells in CELLS]
                worst = max(worst, *found) if variation <= MOST_VARIATION else worst
                what = f"{100 * variation:g} % {'per launch, common to all cells' if is_common else 'per cell'}"
                print(f"| {what} | {launches} | " + " | ".join(f"{100 * share:.2f}" for share in found) + " |")
    print("\nDetection rate (%) of one launch that is slower in all 6 cells")
    print_head("variation per cell", "launches", *(f"{slower:g} ×" for slower in SLOWER))
    for variation in (0.02, MOST_VARIATION):
        for launches in LAUNCHES:
            found = [is_reported(rng, variation, launches, 6, False, slower)[:, 0].mean() for slower in SLOWER]
            print(f"| {100 * variation:g} % | {launches} | {' | '.join(f'{100 * share:.1f}' for share in found)} |")
    report(Figure("False-positive rate of slow launches, variation up to 8 %, worst case", 100 * worst, "%", 1))


def is_reported(
    rng: np.random.Generator, variation: float, launches: int, cells: int, is_common: bool, slower: float = 1
) -> np.ndarray:
    """Return for each campaign and launch whether it is reported. slower: factor of the first launch."""
    shape = (NUM_CAMPAIGNS, launches, 1 if is_common else cells)
    times = np.exp(rng.normal(0, variation, shape)) * np.ones((1, 1, cells))
    times[:, 0] *= slower
    ratios = [times[:, i] / np.median(np.delete(times, i, axis=1), axis=1) for i in range(launches)]
    ratios = np.stack(ratios, axis=1)
    medians, num_slow = np.median(ratios, axis=2), (ratios > 1 + MARGIN).sum(axis=2)
    is_unlike = adjust_for_number(p_of_each(np.log(medians))) <= FALSE_DISCOVERIES
    return (is_unlike | (medians > SLOW_FACTOR)) & (num_slow >= MIN_CELLS) & (2 * num_slow > cells)


if __name__ == "__main__":
    main()
