"""How often a gate stops without any change, by `gate.undecided`, what it detects, and how good the plan's forecast is.

    python benchmarks/gate_errors.py             quick, for `make bench`
    python benchmarks/gate_errors.py --full      the tables of docs/decisions/0007-intervals-and-verdicts.md

Data are those of allocation_errors.py: scatter between launches 2 %, margin 5 %. Each allocation has a level, common to
all its cells, or half of its variance is of each cell. The code is the gate's; some gates are judged by both paths.
"""

import sys
from types import SimpleNamespace

import allocation_errors
import numpy as np
from common import is_full, print_head, print_missed
from coverage import CHUNK, MARGIN, SEED

from regatta.compare.forecast import forecast
from regatta.compare.gate_rules import ALLOCATION_VARIATION, FAIL, FAILED, LIKELY, outcome, stops
from regatta.core import moderation
from regatta.core.verdicts import Compared, compare_all

# Allocations of baseline and campaign, and launches of a cell in each.
DESIGNS = {
    "1 and 1 of 3 launches": (1, 3),
    "1 and 1 of 5 launches": (1, 5),
    "3 and 3 of 1 launch": (3, 1),
    "3 and 3 of 3 launches": (3, 3),
    "5 and 5 of 1 launch": (5, 1),
    "5 and 5 of 3 launches": (5, 3),
}
VARIATIONS, STRUCTURES, CELLS = (0.02, 0.03), {"level": 0.0, "half": 0.5}, (10, 50)
EFFECTS, SLOWER = (0.05, 0.10, 0.20, 0.30), ((10, 0.01), (10, 0.03), (1, 0.03))  # cells, between allocations
MOST_FAILED = 2.0  # percent of gates without any change
FORECAST_GATES, FORECAST_RATIO = 50, 1.5  # greatest ratio of forecast and undecided cells, beyond one cell


def simulated(design: tuple[int, int], variation: float, alone: float, effect: float, num: int, num_slower: int = 0):
    """Yield log times of base and test, (campaigns, 50 cells, launches); the first cells are slower by `effect`."""
    random = np.random.default_rng(SEED)
    truth = np.where(np.arange(50) < num_slower, np.log1p(effect), 0)[:, None]
    for _ in range(0, num, CHUNK):
        base, test = (allocation_errors.side(random, CHUNK, design, variation, alone) for _ in range(2))
        yield base, test + truth


def threshold(allocations: int) -> float:
    """Return the logarithm beyond which a cell can fail."""
    return np.log1p(MARGIN) + (0 if allocations > 1 else np.log1p(ALLOCATION_VARIATION))


def outcomes(base: np.ndarray, test: np.ndarray, allocations: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which of (campaigns, cells) fail, are undecided, and are undecided with an estimate beyond the limit."""
    groups, limit = np.full(base.shape[1], "benchmark"), threshold(allocations)
    if allocations > 1:
        means = (of.reshape(*of.shape[:2], allocations, -1).mean(-1) for of in (base, test))
        found = moderation.allocation_contrasts(*means, groups, (base, test))
    else:
        found = moderation.unpaired_contrasts(base, test, groups)
    adjusted = moderation.adjust_for_number(found.p_value)
    is_failed = moderation.words(found, adjusted, np.log1p(MARGIN), limit - np.log1p(MARGIN)) == "slower"
    is_undecided = ~is_failed & (found.shift + found.half_width > limit)
    return is_failed, is_undecided, is_undecided & (found.shift > limit)


def pairs_of(base: np.ndarray, test: np.ndarray, allocations: int) -> list[Compared]:
    """Return the pairs of one gate, (cells, launches)."""
    names = tuple(str(i * allocations // base.shape[-1]) for i in range(base.shape[-1]))
    sides = zip(np.exp(base).tolist(), np.exp(test).tolist(), strict=True)
    return [Compared(*of, False, "benchmark", (names, names)) for of in sides]


def judged(pairs: list[Compared]) -> list[tuple[bool, bool, bool]]:
    """Return the same as `outcomes` for one gate, by the gate's own functions."""
    rows = [
        SimpleNamespace(
            verdict=verdict.word,
            margin_ratio=pair.margin_with(MARGIN, ALLOCATION_VARIATION),
            time_ratio=verdict.ratio.mean,
            time_high_ratio=verdict.ratio.high,
        )
        for pair, verdict in zip(pairs, compare_all(pairs, MARGIN, ALLOCATION_VARIATION), strict=True)
    ]
    return [(outcome(row) == FAILED, stops(row, FAIL), stops(row, LIKELY)) for row in rows]


def stopped(design: tuple[int, int], num_cells: int, num: int, **of: float) -> tuple[float, float, float]:
    """Return the percent of gates that fail, and that stop with undecided: fail and undecided: likely."""
    parts = simulated(design, num=num, **of)
    found = [outcomes(*(side[:, :num_cells] for side in sides), design[0]) for sides in parts]
    is_failed, is_undecided, is_likely = map(np.concatenate, zip(*found, strict=True))
    rates = (is_failed, is_failed | is_undecided, is_failed | is_likely)
    return tuple(100 * float(cells.any(-1).mean()) for cells in rates)


def detected(design: tuple[int, int], num_slower: int, **of: float) -> tuple[float, float, float]:
    """Return the percent of slower cells that fail; and, of gates, that fail, and that stop with undecided: likely."""
    found = [outcomes(*sides, design[0]) for sides in simulated(design, num_slower=num_slower, **of)]
    is_failed, _, is_likely = (np.concatenate(part)[:, :num_slower] for part in zip(*found, strict=True))
    gates = (is_failed.any(-1), (is_failed | is_likely).any(-1))
    return tuple(100 * float(part.mean()) for part in (is_failed, *gates))


def forecasts(design: tuple[int, int], variation: float) -> tuple[float, float]:
    """Return the mean number of undecided cells of 50: as a plan foresees it, and as a gate finds it."""
    base, test = next(simulated(design, variation, 0.0, 0.0, CHUNK))
    limits = [float(np.expm1(threshold(design[0])))] * 50
    own = [pairs_of(side, side, design[0]) for side in base[:FORECAST_GATES]]
    of_plan = [forecast(pairs, base.shape[-1], design[0], limits).undecided for pairs in own]
    one_by_one = np.array([judged(pairs_of(*sides, design[0])) for sides in zip(base[:5], test[:5], strict=True)])
    assert (np.stack(outcomes(base, test, design[0]), -1)[:5] == one_by_one).all()
    many = [outcomes(*sides, design[0])[1] for sides in simulated(design, variation, 0.0, 0.0, 10 * CHUNK)]
    return float(np.mean(of_plan)), float(np.concatenate(many).sum(-1).mean())


def main() -> int:
    num, missed = 1_000 if is_full(__doc__, "1,000 gates per entry instead of 100") else 100, []
    slack = 300 * (MOST_FAILED / 100 * (1 - MOST_FAILED / 100) / num) ** 0.5
    print("Nothing changed. Percent of gates that fail / stop with undecided: fail / stop with undecided: likely")
    for num_cells in CELLS:
        print(f"\n{num_cells} cells, by the standard deviation between allocations\n")
        print_head("allocations", *(f"{name}: {100 * of:g} %" for name in STRUCTURES for of in VARIATIONS))
        for name, design in DESIGNS.items():
            rates = [
                stopped(design, num_cells, num, variation=variation, alone=alone, effect=0.0)
                for alone in STRUCTURES.values()
                for variation in VARIATIONS
            ]
            missed += [name for failed, *_ in rates if failed > MOST_FAILED + slack]
            texts = (" / ".join(f"{rate:.{0 if rate >= 10 else 1}f}" for rate in of) for of in rates)
            print(f"| {name} | {' | '.join(texts)} |", flush=True)
    for num_slower, variation in SLOWER:
        print(f"\n{num_slower} of 50 cells slower, {100 * variation:g} % between allocations (level). Percent of")
        print("these cells that fail; of gates that fail / that fail or stop for one of them (likely)\n")
        print_head("allocations", *(f"{100 * effect:g} % slower" for effect in EFFECTS))
        for name, design in DESIGNS.items():
            of = {"variation": variation, "alone": 0.0, "num": num // 2}
            rates = [detected(design, num_slower, effect=effect, **of) for effect in EFFECTS]
            texts = ("{:.0f}; {:.0f} / {:.0f}".format(*rate) for rate in rates)
            print(f"| {name} | {' | '.join(texts)} |", flush=True)
    print("\nUndecided cells of 50, nothing changed, level: forecast of the plan / found by the gate\n")
    print_head("allocations", *(f"{100 * variation:g} %" for variation in VARIATIONS))
    for name, design in DESIGNS.items():
        found = [forecasts(design, variation) for variation in VARIATIONS]
        print(f"| {name} | {' | '.join('{:.1f} / {:.1f}'.format(*pair) for pair in found)} |", flush=True)
        missed += [f"forecast, {name}" for a, b in found if max(a, b) > FORECAST_RATIO * min(a, b) + 1]
    return print_missed(missed)


if __name__ == "__main__":
    sys.exit(main())
