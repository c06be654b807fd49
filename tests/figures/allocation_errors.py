"""How often a gate fails, or calls cells faster, only because two allocations differ; and what it still finds.

    python tests/figures/allocation_errors.py             quick, for `make bench`
    python tests/figures/allocation_errors.py --full      the table of docs/decisions/0007-intervals-and-verdicts.md

50 cells, scatter between launches 2 %, margin 5 %. Each allocation has a level (normal; standard deviation 0 to 3 %),
common to all its cells. Harder cases: half of the variance, or all of it, is of each cell. The code is the gate's.
"""

import argparse
import sys
from dataclasses import replace

import coverage
import numpy as np
from coverage import CHUNK, MARGIN, NUM_CELLS, SCATTER, SEED, levels, simulated

from regatta.compare.gate import ALLOCATION_VARIATION
from regatta.core import moderation

VARIATIONS = (0.0, 0.01, 0.02, 0.03)
STRUCTURES = {"level of the allocation": 0.0, "half of each cell": 0.5, "all of each cell": 1.0}
# name: allocations of base and test, launches in each, and what verdicts must exceed beyond the margin
DESIGNS = {
    "1 and 1 of 3 launches, margin alone": (1, 1, 3, 0.0),
    "1 and 1 of 3 launches": (1, 1, 3, ALLOCATION_VARIATION),
    "1 and 1 of 10 launches": (1, 1, 10, ALLOCATION_VARIATION),
    "3 and 1 of 3 launches": (3, 1, 3, 0.0),
    "2 and 2 of 3 launches": (2, 2, 3, 0.0),
    "3 and 3 of 1 launch": (3, 3, 1, 0.0),
    "3 and 3 of 3 launches": (3, 3, 3, 0.0),
    "5 and 5 of 1 launch": (5, 5, 1, 0.0),
}
EFFECTS = (0.10, 0.15, 0.20)  # of 10 cells
MOST_FALSE = 2.0  # percent of gates, each way


def side(random: np.random.Generator, num: int, allocations: int, launches: int, variation: float, alone: float):
    """Return log times of (campaigns, cells, allocations x launches). alone: share of the variance of each cell."""
    logs = (
        simulated(random, coverage.Setup(), num, SCATTER, allocations * launches)[0] + levels(coverage.Setup())[:, None]
    )
    common = random.standard_normal((num, 1, allocations)) * (1 - alone) ** 0.5
    of_cells = random.standard_normal((num, NUM_CELLS, allocations)) * alone**0.5
    return logs + np.repeat(variation * (common + of_cells), launches, -1)


def words(design: tuple, variation: float, alone: float, effect: float, num: int) -> np.ndarray:
    """Return the verdicts on (campaigns, cells), of which the first 10 are slower by `effect`."""
    random, found, groups = np.random.default_rng(SEED), [], np.full(NUM_CELLS, "benchmark")
    *allocations, launches, allowance = design
    truth = np.where(np.arange(NUM_CELLS) < 10, np.log1p(effect), 0)[:, None]
    for _ in range(0, num, CHUNK):
        base, test = (side(random, CHUNK, of_side, launches, variation, alone) for of_side in allocations)
        test = test + truth
        if max(allocations) > 1:
            means = (of.reshape(*of.shape[:2], -1, launches).mean(-1) for of in (base, test))
            contrasts = moderation.allocation_contrasts(*means, groups, (base, test))
        else:
            contrasts = moderation.unpaired_contrasts(base, test, groups)
        adjusted = moderation.adjust_for_number(contrasts.p_value)
        found.append(moderation.words(contrasts, adjusted, np.log1p(MARGIN), np.log1p(allowance)))
    return np.concatenate(found)


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="2,000 gates per entry instead of 100")
    num, missed = 2_000 if parser.parse_args().full else 100, []
    slack = 300 * (MOST_FALSE / 100 * (1 - MOST_FALSE / 100) / num) ** 0.5
    heads = [f"{100 * variation:g} %" for variation in VARIATIONS]
    for structure, alone in STRUCTURES.items():
        print(f"\nVariation between allocations: {structure}. Percent of gates with a cell slower / faster\n")
        print(f"| allocations | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
        for name, design in DESIGNS.items():
            rates = []
            for variation in VARIATIONS:
                found = words(design, variation, alone, 0.0, num)
                rates.append([100 * float((found == word).any(-1).mean()) for word in ("slower", "faster")])
            print(f"| {name} | {' | '.join(f'{slower:.1f} / {faster:.1f}' for slower, faster in rates)} |", flush=True)
            is_goal = name != next(iter(DESIGNS))
            missed += [name for rate in rates if is_goal and max(rate) > MOST_FALSE + slack]
    print("\nPercent of 10 slower cells found, level of the allocation 0 / 1 / 2 / 3 %\n")
    print(
        f"| allocations | {' | '.join(f'{100 * effect:g} % slower' for effect in EFFECTS)} |\n|---|{'---|' * len(EFFECTS)}"
    )
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
    print(f"| allocations | {' | '.join(map(str, shares))} |\n|---|{'---|' * len(shares)}")
    for allocations in (2, 3, 5):
        rates = [paired(allocations, share, num) for share in shares]
        texts = (" / ".join(f"{rate:.1f}" for rate in of_share) for of_share in rates)
        print(f"| {allocations} | {' | '.join(texts)} |", flush=True)
    print("; ".join(["Missed", *missed]) if missed else "All goals are met.")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
