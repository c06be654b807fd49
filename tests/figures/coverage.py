"""Coverage of the intervals and error rates of the verdicts, by simulation with known truth. No cluster, no clock, seeded.

A simulated launch has a random level, log-normal with a tail to the slow side (an exponential part), and 40 samples
around it that are skewed and autocorrelated (autoregressive, rho 0.7); its value is their median, as in a campaign.
Intervals: goal 93 to 97 % from 6 launches up. Below 6 launches it is their range, which has no nominal coverage. The
verdicts: margin 5 %, tables of 50 cells; goal: at most 1 in 100 self-comparisons of a campaign says faster or slower.
"""

import sys

import numpy as np
from common import ROOT

sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

from regatta.compare.gate import compare_all
from regatta.core.statistics import over_launches, paired_ratio_over_launches, ratio_over_launches
from regatta.core.verdicts import compare_launches, judge_all

SEED = 1
NUM_SAMPLES, RHO = 40, 0.7
SCATTERS = {"2 %": 0.02, "20 %": 0.20}  # of the launches' levels
UNEQUAL = 4  # how many times as much the other side scatters, in the column of that name
NUM_LAUNCHES = (3, 5, 6, 7, 8, 10, 20)
NUM_CELLS, NUM_CAMPAIGNS = 50, 100
MARGIN = 0.05
GATE_SCATTERS, GATE_SLOWER = (0.02, 0.10, 0.20), (10, 15)  # of the launches' levels; percent
NUM_SIMULATED = 10_000  # of each interval: the standard error of a coverage of 95 % is 0.2 points


def main() -> int:
    random = np.random.default_rng(SEED)
    has_missed = print_coverage(random)
    print()
    has_missed |= print_same_campaigns(random)
    print()
    print_words(random)
    print()
    print_gate(np.random.default_rng(SEED))
    print("a goal is missed" if has_missed else "all goals are met")
    return int(has_missed)


def simulated(random: np.random.Generator, shape: tuple[int, ...], scatter: float | np.ndarray) -> np.ndarray:
    """Return the values of launches, one for each place of `shape`; the samples' own noise is a quarter of the scatter."""
    levels = np.exp(scatter * (0.8 * random.standard_normal(shape) + 0.6 * random.exponential(size=shape)))
    samples = random.standard_normal((*shape, NUM_SAMPLES), dtype=np.float32)
    for i in range(1, NUM_SAMPLES):
        samples[..., i] = RHO * samples[..., i - 1] + (1 - RHO**2) ** 0.5 * samples[..., i]
    return levels * (1 + 0.25 * scatter * np.median(np.exp(samples), axis=-1))


def print_coverage(random: np.random.Generator) -> bool:
    """Print the share of intervals that hold the truth, and return whether one of 6 launches or more misses the goal."""
    print("Share of 95 % intervals that hold the true value, % (3 and 5 launches: of ranges)")
    print(f"{'scatter':>7} {'launches':>8} {'median':>8} {'ratio':>8} {'ratio, unequal':>15} {'paired ratio':>13}")
    has_missed = False
    for name, scatter in SCATTERS.items():
        truth, wide = (np.median(simulated(random, (400_000,), s)) for s in (scatter, UNEQUAL * scatter))
        for num in NUM_LAUNCHES:
            a, b = simulated(random, (2, NUM_SIMULATED, num), scatter).tolist()
            c = simulated(random, (NUM_SIMULATED, num), UNEQUAL * scatter).tolist()
            shares = [
                held([over_launches(x) for x in a], truth),
                held([ratio_over_launches(x, y) for x, y in zip(a, b, strict=True)], 1),
                held([ratio_over_launches(x, y) for x, y in zip(a, c, strict=True)], truth / wide),
                held([paired_ratio_over_launches(x, y) for x, y in zip(a, b, strict=True)], 1),
            ]
            is_missed = num >= 6 and any(not 93 <= share <= 97 for share in shares)
            has_missed |= is_missed
            told = f"{name:>7} {num:>8} {shares[0]:>8.1f} {shares[1]:>8.1f} {shares[2]:>15.1f} {shares[3]:>13.1f}"
            print(told + ("  missed" if is_missed else ""))
    return has_missed


def held(spreads: list, truth: float) -> float:
    return 100 * float(np.mean([spread.low <= truth <= spread.high for spread in spreads]))


def print_same_campaigns(random: np.random.Generator) -> bool:
    """Print of how many campaigns compared with themselves a verdict is wrong, and return whether it is above the goal."""
    print(
        f"Of {NUM_CAMPAIGNS} pairs of campaigns of {NUM_CELLS} cells that do not differ: with a cell called faster or slower"
    )
    print(f"{'launches':>8} {'paired':>7} " + " ".join(f"{'scatter ' + name:>13}" for name in SCATTERS))
    most = 0
    for num in (3, 5, 10):
        for is_paired in (False, True):
            wrong = [num_wrong(random, num, scatter, is_paired) for scatter in SCATTERS.values()]
            most = max(most, *wrong)
            print(f"{num:>8} {'yes' if is_paired else 'no':>7} " + " ".join(f"{count:>13}" for count in wrong))
    return most > 1


def num_wrong(random: np.random.Generator, num: int, scatter: float, is_paired: bool) -> int:
    campaigns = simulated(random, (NUM_CAMPAIGNS, NUM_CELLS, 2, num), scatter)
    return sum(bool({"faster", "slower"} & set(words(campaign, is_paired))) for campaign in campaigns)


def print_words(random: np.random.Generator) -> None:
    """Print the verdicts on one cell in five that differs, in tables whose other cells do not."""
    print(
        f"Verdicts at a true difference, % of cells; scatter 2 %, margin {100 * MARGIN:g} %; 10 of {NUM_CELLS} cells differ"
    )
    print(f"{'launches':>8} {'slower by':>10} {'slower':>7} {'faster':>7} {'equivalent':>11} {'inconclusive':>13}")
    for num in (3, 5, 10):
        for percent in (0, 2, 5, 5.1, 10, 15):
            campaigns = simulated(random, (40, NUM_CELLS, 2, num), SCATTERS["2 %"])
            campaigns[:, :10, 1] *= 1 + percent / 100
            said = [word for campaign in campaigns for word in words(campaign, False)[:10]]
            shares = [100 * said.count(word) / len(said) for word in ("slower", "faster", "equivalent", "inconclusive")]
            told = f"{shares[0]:>7.1f} {shares[1]:>7.1f} {shares[2]:>11.1f} {shares[3]:>13.1f}"
            print(f"{num:>8} {percent:>8g} % {told}")


def print_gate(random: np.random.Generator) -> None:
    """Print how often a gate of cells that did not change fails, and which share of those that did it finds."""
    print(f"The gate, {NUM_CELLS} cells, margin {100 * MARGIN:g} %; below 6 launches cells are screened")
    print(f"{'':>8} {'% that fail, nothing being slower':>34} {'% of cells found, 10 being slower by':>38}")
    columns = [f"scatter {100 * scatter:g} %" for scatter in GATE_SCATTERS] + [f"{p} %" for p in GATE_SLOWER]
    print(f"{'launches':>8} " + " ".join(f"{column:>12}" for column in columns))
    for num in (1, 2, 3, 5, 6, 10):
        wrong, found = [], []
        for scatter in GATE_SCATTERS:
            gates = simulated(random, (NUM_CAMPAIGNS, NUM_CELLS, 2, num), scatter)
            wrong.append(100 * np.mean([bool(slower_cells(gate)) for gate in gates]))
        for percent in GATE_SLOWER:
            gates = simulated(random, (40, NUM_CELLS, 2, num), SCATTERS["2 %"])
            gates[:, :10, 1] *= 1 + percent / 100
            found.append(100 * np.mean([len([i for i in slower_cells(gate) if i < 10]) / 10 for gate in gates]))
        print(f"{num:>8} " + " ".join(f"{share:>12.1f}" for share in (*wrong, *found)))


def slower_cells(gate: np.ndarray) -> list[int]:
    """Return the places of the cells that the gate calls slower; launches of shape (cells, 2, launches), first those before."""
    comparisons = compare_all([(now, before) for before, now in gate.tolist()], MARGIN)
    return [i for i, comparison in enumerate(comparisons) if comparison.verdict == "slower"]


def words(campaign: np.ndarray, is_paired: bool) -> list[str]:
    """Return the verdicts on launches of shape (cells, 2, launches)."""
    compared = [compare_launches(base, test, is_paired) for base, test in campaign.tolist()]
    return [verdict.word for verdict in judge_all(compared, MARGIN)]


if __name__ == "__main__":
    sys.exit(main())
