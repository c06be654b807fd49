"""How often a gate fails, or calls cells faster, only because two allocations differ; and what it still finds.

    python benchmarks/allocation_errors.py             quick, for `make bench`
    python benchmarks/allocation_errors.py --full      the table of docs/decisions/0007-intervals-and-verdicts.md

50 cells, scatter between launches 2 %, margin 5 %. Each allocation has a level (normal; standard deviation 0 to 3 %),
common to all its cells. Harder cases: half of the variance, or all of it, is of each cell. The code is the gate's.
"""

import sys
from dataclasses import replace

import coverage
import numpy as np
from common import is_full, print_head, print_missed
from coverage import CHUNK, MARGIN, NUM_CELLS, SCATTER, SEED, levels, simulated

from regatta.compare.gate_rules import ALLOCATION_VARIATION
from regatta.core import moderation
from regatta.core.moderation import Contrasts

VARIATIONS = (0.0, 0.01, 0.02, 0.03)
STRUCTURES = {"level of the allocation": 0.0, "half of each cell": 0.5, "all of each cell": 1.0}
# name: base and test, and the allowance beyond the margin where allocations are not the unit. A side is its number of
# allocations and the launches of a cell in each; of several numbers, cells have one after the other.
DESIGNS = {
    "1 and 1 of 3 launches, margin alone": ((1, 3), (1, 3), 0.0),
    "1 and 1 of 3 launches": ((1, 3), (1, 3), ALLOCATION_VARIATION),
    "1 and 1 of 10 launches": ((1, 10), (1, 10), ALLOCATION_VARIATION),
    "3 and 1 of 3 launches": ((3, 3), (1, 3), ALLOCATION_VARIATION),
    "2 and 2 of 3 launches": ((2, 3), (2, 3), ALLOCATION_VARIATION),
    "3 and 3 of 1 launch": ((3, 1), (3, 1), ALLOCATION_VARIATION),
    "3 and 3 of 3 launches": ((3, 3), (3, 3), ALLOCATION_VARIATION),
    "5 and 5 of 1 launch": ((5, 1), (5, 1), ALLOCATION_VARIATION),
    "1 and 1 of 3 or 5 launches": ((1, 3, 5), (1, 3, 5), ALLOCATION_VARIATION),
    "1 of 3 or 5 and 1 of 5 or 3": ((1, 3, 5), (1, 5, 3), ALLOCATION_VARIATION),
    "1 of 2 and 1 of 10, screened": ((1, 2), (1, 10), ALLOCATION_VARIATION),
    "1 of 10 and 1 of 2 or 10": ((1, 10), (1, 2, 10), ALLOCATION_VARIATION),
    "3 of 3 and 1 of 2 or 5": ((3, 3), (1, 2, 5), ALLOCATION_VARIATION),
    "10 of 1 and 2 of 3": ((10, 1), (2, 3), ALLOCATION_VARIATION),
    "5 of 5 and 3 of 1": ((5, 5), (3, 1), ALLOCATION_VARIATION),
    "10 of 5 and 3 of 1 or 2": ((10, 5), (3, 1, 2), ALLOCATION_VARIATION),
}
EFFECTS = (0.10, 0.15, 0.20)  # of 10 cells
MOST_FALSE = 2.0  # percent of gates, each way


def side(random: np.random.Generator, num: int, design: tuple[int, ...], variation: float, alone: float):
    """Return log times of (campaigns, cells, allocations x launches), NaN where a cell has fewer launches.

    alone: share of the variance of each cell.
    """
    allocations, *launches = design
    most = max(launches)
    logs = simulated(random, coverage.Setup(), num, SCATTER, allocations * most)[0] + levels(coverage.Setup())[:, None]
    common = random.standard_normal((num, 1, allocations)) * (1 - alone) ** 0.5
    of_cells = random.standard_normal((num, NUM_CELLS, allocations)) * alone**0.5
    is_missing = np.arange(allocations * most) % most >= np.resize(launches, NUM_CELLS)[:, None]
    return np.where(is_missing, np.nan, logs + np.repeat(variation * (common + of_cells), most, -1))


def words(design: tuple, variation: float, alone: float, effect: float, num: int) -> np.ndarray:
    """Return the verdicts on (campaigns, cells), of which the first 10 are slower by `effect`."""
    random, found = np.random.default_rng(SEED), []
    *sides, allowance = design
    truth = np.where(np.arange(NUM_CELLS) < 10, np.log1p(effect), 0)[:, None]
    for _ in range(0, num, CHUNK):
        base, test = (side(random, CHUNK, of, variation, alone) for of in sides)
        found.append(judged(base, test + truth, [of[0] for of in sides], allowance))
    return np.concatenate(found)


def judged(base: np.ndarray, test: np.ndarray, allocations: list[int], allowance: float) -> np.ndarray:
    """Return the verdicts of `compare_all` on (campaigns, cells, allocations x launches), screening cells with few."""
    num = np.minimum(*(np.isfinite(of[0]).sum(-1) for of in (base, test)))  # launches of each cell
    is_by_allocation, limit = (num >= moderation.MIN_LAUNCHES) & (max(allocations) > 1), np.log1p([MARGIN, allowance])
    parts = []
    for at in filter(np.any, (is_by_allocation, ~is_by_allocation)):
        sides, groups = (base[:, at], test[:, at]), np.full(at.sum(), "benchmark")
        if is_by_allocation[at][0]:
            pairs = zip(sides, allocations, strict=True)
            means = (np.nanmean(of.reshape(*of.shape[:2], number, -1), -1) for of, number in pairs)
            part = moderation.allocation_contrasts(*means, groups, sides)
        else:
            part = moderation.unpaired_contrasts(*sides, groups)
        parts.append(np.array(np.broadcast_arrays(*vars(part).values())))
    order = np.argsort(np.argsort(~is_by_allocation, stable=True))
    contrasts = Contrasts(*np.concatenate(parts, -1)[..., order])
    adjusted, allowances = moderation.adjust_for_number(contrasts.p_value), np.where(is_by_allocation, 0, limit[1])
    found = moderation.words(contrasts, adjusted, limit[0], allowances)
    gaps = np.nanmin(test, -1) - np.nanmax(base, -1), np.nanmin(base, -1) - np.nanmax(test, -1)
    screened = np.select([gap > limit.sum() for gap in gaps], ["slower", "faster"], "inconclusive")
    return np.where(num < moderation.MIN_LAUNCHES, screened, found)


def paired(allocations: int, share: float, num: int) -> tuple[float, float, float]:
    """Return false campaigns, coverage and found cells, in percent, where stacks are compared within allocations.

    Of a cell, the difference of two stacks varies by 2 % between allocations. share: of this, common to all cells.
    """
    random, groups, sums = np.random.default_rng(SEED), np.full(NUM_CELLS, "benchmark"), np.zeros(3)
    slower = np.where(np.arange(NUM_CELLS) < 10, np.log1p(EFFECTS[0]), 0)
    for _ in range(0, num, CHUNK):
        gaps = simulated(random, coverage.Setup(share=share), CHUNK, SCATTER, allocations)[0]
        level = np.broadcast_to(levels(coverage.Setup())[:, None], gaps.shape)
        found = replace(moderation.paired_contrasts(gaps, level, groups), least=2)
        is_false = moderation.adjust_for_number(found.p_value) <= moderation.FALSE_DISCOVERIES
        held = np.abs(found.shift) <= found.half_width
        p_value = replace(found, shift=found.shift + slower).p_value
        is_found = moderation.adjust_for_number(p_value)[:, :10] <= moderation.FALSE_DISCOVERIES
        sums += CHUNK * np.array([is_false.any(-1).mean(), held.mean(), is_found.mean()])
    return tuple(100 * sums / num)


def main() -> int:
    num, missed = 2_000 if is_full(__doc__, "2,000 gates per entry instead of 100") else 100, []
    slack = 300 * (MOST_FALSE / 100 * (1 - MOST_FALSE / 100) / num) ** 0.5
    heads = [f"{100 * variation:g} %" for variation in VARIATIONS]
    for structure, alone in STRUCTURES.items():
        print(f"\nVariation between allocations: {structure}. Percent of gates with a cell slower / faster\n")
        print_head("allocations", *heads)
        for name, design in DESIGNS.items():
            rates = []
            for variation in VARIATIONS:
                found = words(design, variation, alone, 0.0, num)
                rates.append([100 * float((found == word).any(-1).mean()) for word in ("slower", "faster")])
            print(f"| {name} | {' | '.join(f'{slower:.1f} / {faster:.1f}' for slower, faster in rates)} |", flush=True)
            is_goal = name != next(iter(DESIGNS))
            missed += [name for rate in rates if is_goal and max(rate) > MOST_FALSE + slack]
    print("\nPercent of 10 slower cells found, level of the allocation 0 / 1 / 2 / 3 %\n")
    print_head("allocations", *(f"{100 * effect:g} % slower" for effect in EFFECTS))
    for name, design in DESIGNS.items():
        rows = [
            [
                100 * float((words(design, variation, 0.0, effect, num // 4)[:, :10] == "slower").mean())
                for variation in VARIATIONS
            ]
            for effect in EFFECTS
        ]
        print(f"| {name} | {' | '.join(' / '.join(f'{rate:.0f}' for rate in row) for row in rows)} |", flush=True)
    print("\nPaired within a campaign: false campaigns / coverage / found, 10 cells 10 % slower, by share\n")
    shares = [0.0, 0.6, 0.9]
    print_head("allocations", *shares)
    for allocations in (2, 3, 5):
        rates = [paired(allocations, share, num) for share in shares]
        texts = (" / ".join(f"{rate:.1f}" for rate in of_share) for of_share in rates)
        print(f"| {allocations} | {' | '.join(texts)} |", flush=True)
    return print_missed(missed)


if __name__ == "__main__":
    sys.exit(main())
