"""How often a stationary launch is called drifting, a drift is found, and the interval of a launch's median is right.

    python benchmarks/launch_errors.py [--full]

Samples are a first-order autoregression with a lag-1 correlation. Goals: drift in at most 1 % of stationary launches
(2 % without --full); at correlations of 0 to 0.8 an interval, where there is one, holds the truth in at least 90 %, and
the median effective sample size is at most 1.1 times the right one.
"""

import math
import sys

import numpy as np
from common import is_full, print_head, print_missed

from regatta.core import statistics

SEED = 1
CORRELATIONS, NUMS = (0, 0.5, 0.8, 0.95), (20, 40, 60, 100, 300, 1000)
SCATTER, DRIFT = 0.02, 0.05
WIDE = 0.1  # scatter that makes any change exceed DRIFT_RATIO
MOST_TIMES, LEAST_COVERED, MOST_KNOWN = 1.1, 90, 0.8


def main() -> int:
    num_launches = 5000 if is_full(__doc__, "the tables of decision 7") else 600
    random, missed = np.random.default_rng(SEED), []
    most_flagged = 1 if num_launches > 1000 else 2
    print("In %: stationary launches called drifting / launches that drift by 5 % (scatter 2 %) found;")
    print("intervals of the median that hold it / launches with one; effective sample size, median / right")
    print_head("correlation", *(f"{num} samples" for num in NUMS))
    for rho in CORRELATIONS:
        cells = []
        for num in NUMS:
            launches = autoregressive(random, rho, (num_launches, num))
            flagged, found = (
                share([statistics.drift(samples).is_flagged for samples in many])
                for many in (1 + WIDE * launches, 1 + SCATTER * launches + DRIFT * np.arange(num) / (num - 1))
            )
            intervals = list(filter(None, map(statistics.median_interval, launches)))
            covered = share([low <= 0 <= high for low, high in intervals]) if intervals else math.nan
            effective = float(np.median([statistics.effective_samples(samples) for samples in launches]))
            right = num * (1 - rho) / (1 + rho)
            known = 100 * len(intervals) / num_launches
            cells.append(f"{flagged:.1f} / {found:.0f}; {covered:.0f} / {known:.0f}; {effective:.3g} / {right:.3g}")
            is_wrong = covered < LEAST_COVERED or effective > MOST_TIMES * right + 1
            if flagged > most_flagged or (rho <= MOST_KNOWN and is_wrong):
                missed.append(f"{rho}, {num} samples")
        print(f"| {rho} | {' | '.join(cells)} |", flush=True)
    return print_missed(missed)


def autoregressive(random: np.random.Generator, rho: float, shape: tuple[int, int]) -> np.ndarray:
    """Return samples with mean 0 and variance 1, (launches, samples)."""
    samples = random.standard_normal(shape)
    for i in range(1, shape[1]):
        samples[:, i] = rho * samples[:, i - 1] + math.sqrt(1 - rho**2) * samples[:, i]
    return samples


def share(values: list[bool]) -> float:
    return 100 * float(np.mean(values))


if __name__ == "__main__":
    sys.exit(main())
