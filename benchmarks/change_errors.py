"""How often the first change of a cell over campaigns is dated correctly, by its first verdict and by a change point.

    python benchmarks/change_errors.py [NUMBER]

NUMBER (200) histories of 4 campaigns for each entry, each of 30 cells that change in the second campaign. Launches as
in coverage.py; 60 % of the variance is common to all cells of a launch.
"""

import sys

import numpy as np
from common import Figure, report
from coverage import LAUNCHES, MARGIN, SEED, Setup, simulated

from regatta.core import moderation
from regatta.core.change_points import first_changes

NUM_CAMPAIGNS, EFFECTS, SETUP = 4, (0.0, 0.05, 0.07, 0.1), Setup(num_cells=30, share=0.6)
GROUPS, LEVELS = np.full(SETUP.num_cells, "benchmark"), np.linspace(-7, 0, SETUP.num_cells)[:, None]


def rates(num: int, launches: int, effect: float, num_later: int) -> list[float]:
    """Return percent of cells with a verdict, and of these with the right campaign, before and now.

    num_later: cells that change in the third campaign instead.
    """
    random, num_dated, num_right = np.random.default_rng(SEED), 0, np.zeros(2)
    changed = np.where(np.arange(SETUP.num_cells) < num_later, 2, 1)
    logs, scatters = simulated(random, SETUP, num * NUM_CAMPAIGNS, 0.02, launches)
    scale = scatters[::NUM_CAMPAIGNS].repeat(NUM_CAMPAIGNS, 0) / scatters  # a cell varies alike in all campaigns
    for of_one in (logs * scale[..., None] + LEVELS).reshape(num, NUM_CAMPAIGNS, *logs.shape[1:]):
        of_one += np.log1p(effect) * (np.arange(NUM_CAMPAIGNS)[:, None] >= changed)[..., None]
        observed = {}
        for place in range(1, NUM_CAMPAIGNS):
            pairs = moderation.unpaired_contrasts(of_one[0], of_one[place], GROUPS)
            words = moderation.words(pairs, moderation.adjust_for_number(pairs.p_value), np.log1p(MARGIN))
            for cell in np.flatnonzero(np.isin(words, ["slower", "faster"])):
                observed.setdefault(cell, (place, bool(words[cell] == "slower")))
        means, cells = [moderation.mean_intervals(logs, GROUPS) for logs in of_one], list(observed)
        values = (np.array(of).T[cells] for of in ([of.shift for of in means], [of.squared_error() for of in means]))
        dates = [list(observed.values()), first_changes(*values, list(observed.values()))]
        truth = [(changed[cell], effect > 0) for cell in cells]
        num_right += [sum(map(tuple.__eq__, found, truth)) for found in dates]
        num_dated += len(cells)
    return [100 * num_dated / num / SETUP.num_cells, *(100 * num_right / max(num_dated, 1))]


def main() -> None:
    num, worst = int(sys.argv[1]) if len(sys.argv) > 1 else 200, 100.0
    print("Percent of cells with a verdict: right campaign by first verdict / by change point\n")
    print(f"| change, cells a campaign later | {' | '.join(f'{of} launches' for of in LAUNCHES[:2])} |\n|---|---|---|")
    for effect, num_later in [*((effect, 0) for effect in EFFECTS), (0.1, 10)]:
        found = [rates(num, launches, effect, num_later) for launches in LAUNCHES[:2]]
        print(
            f"| {100 * effect:g} %, {num_later} | " + " | ".join("{:.1f}: {:.0f} / {:.1f}".format(*of) for of in found)
        )
        worst = min(worst, *(right for *_, right in found)) if effect else worst
    report(Figure("First changes with the right campaign, worst case", worst, "%", 80, is_minimum=True))


if __name__ == "__main__":
    sys.exit(main())
