"""How often one of several equal settings is excluded from those that may be the best, and how often a slow one is.

    python benchmarks/best_settings_errors.py [--full]

Bucket sizes, strategies or algorithms, measured in the same launches: 60 % of the variance is common to all settings of
a launch, scatter 2 %. Settings (or rows) differ in their scatter: standard deviation of its logarithm 0.5. One setting
is then made 5 % slower. Simulated launches and options: coverage.py.
"""

import sys

import coverage
import numpy as np
from common import is_full, print_head, print_missed
from coverage import tailed

from regatta.core.best_settings import BestSettings, best_settings
from regatta.core.moderation import FALSE_DISCOVERIES, adjust_for_number

SETTINGS, LAUNCHES, ROWS = (2, 3, 4, 6), (2, 3, 5, 10), (1, 6, 20)
SCATTER, SHARE, SPREAD, SLOWER = 0.02, 0.6, 0.5, 0.05
MOST, QUICK, FULL = 6, 120, 10_000  # excluded, % of rows; rows per entry
MOST_CLAIMS = 1.5  # campaigns with a false sentence, %: with a false verdict as well, within the limits of coverage.py


def simulated(random: np.random.Generator, shape: tuple[int, ...], of_settings: bool) -> np.ndarray:
    """Return log times of (campaigns, rows, settings, launches)."""
    num, rows, settings, launches = shape
    scatters = SCATTER * np.exp(SPREAD * random.standard_normal((num, rows, settings if of_settings else 1, 1)))
    common, alone = tailed(random, (num, rows, 1, launches)), tailed(random, shape)
    return scatters * (SHARE**0.5 * common + (1 - SHARE) ** 0.5 * alone)


def judged(logs: np.ndarray) -> list[BestSettings]:
    """Return the settings of campaigns, in parts."""
    parts = [logs[begin : begin + coverage.CHUNK] for begin in range(0, len(logs), coverage.CHUNK)]
    return [best_settings(part) for part in parts]


def excluded(found: list[BestSettings]) -> np.ndarray:
    """Return which settings are excluded."""
    return np.concatenate([~part.may_be_best for part in found])


def claims(found: list[BestSettings]) -> np.ndarray:
    """Return of which rows a sentence on all rows of the campaign takes a setting for slower."""
    return np.concatenate([adjust_for_number(part.p_value) <= FALSE_DISCOVERIES for part in found])


def main() -> int:
    num_rows = FULL if is_full(__doc__, f"{FULL:,} rows per entry instead of {QUICK}") else QUICK
    print(
        "Rows that exclude one of equal settings / campaigns whose sentence names one / rows that exclude one that is"
    )
    print("5 % slower / rows of which the sentence names it, %\n")
    columns = (f"{launches} launches" for launches in LAUNCHES)
    print_head("rows of a campaign, settings, scatter differs by", *columns)
    missed = []
    for of_settings in (False, True):
        for rows in ROWS:
            for settings in SETTINGS:
                cells = []
                for launches in LAUNCHES:
                    shape = (max(num_rows // rows, 20), rows, settings, launches)
                    logs = simulated(np.random.default_rng(coverage.SEED), shape, of_settings)
                    equal = judged(logs)
                    wrong, claimed = 100 * excluded(equal).any(-1).mean(), 100 * claims(equal).any(-1).mean()
                    logs[:, :, 0] += np.log1p(SLOWER)
                    found = judged(logs[: max(QUICK // rows, 20)])
                    slower = excluded(found)[..., 0]
                    rates = slower.mean(), (slower & claims(found)).mean()
                    cells.append(f"{wrong:.1f} / {claimed:.1f} / {100 * rates[0]:.0f} / {100 * rates[1]:.0f}")
                    for rate, most, num in ((wrong, MOST, num_rows), (claimed, MOST_CLAIMS, len(logs))):
                        if rate > most + 300 * (most / 100 / num) ** 0.5:  # 3 standard errors
                            missed.append(f"{rows} rows, {settings} settings, {launches} launches: {rate:.1f}")
                by = "setting" if of_settings else "row"
                print(f"| {rows}, {settings}, {by} | {' | '.join(cells)} |", flush=True)
    return print_missed(missed)


if __name__ == "__main__":
    sys.exit(main())
