"""How often planted patterns are found, and how often a pattern is claimed where there is none.

    python benchmarks/pattern_errors.py [NUMBER]

Campaigns of 112 cells (tests/unit/planted_patterns.py), NUMBER (500) for each entry. Found: exactly the planted cells
are described. Close: at least 90 % of the described and of the planted cells are the same. First with wrong verdicts
for some cells; then of 2 sides with launches as in coverage.py, of which the cells of a shape share a part.
"""

import itertools
import random
import sys
import time
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "unit"), str(ROOT / "workflow" / "scripts")]
import numpy as np  # noqa: E402
from common import Figure, print_head, report  # noqa: E402
from coverage import LAUNCHES, SCATTER, SEED, tailed  # noqa: E402
from planted_patterns import flipped, matrix, planted, scattered  # noqa: E402

from regatta.core import moderation  # noqa: E402
from regatta.core.groups import find_groups  # noqa: E402
from regatta.core.patterns import find_pattern, find_patterns  # noqa: E402
from regatta.core.verdicts import Compared, contrasts_of  # noqa: E402

FLIPS = (0, 0.02, 0.05)
SIZES = ((3, 5), (6, 11), (12, 35), (36, 56))  # planted cells

EFFECT, LEVELS = 0.07, (0.01, 0.02, 0.03)
SETUPS = ((0.0, False), (0.6, True), (0.6, False), (0.9, True), (0.9, False))  # share of a launch, paired
PER_CAMPAIGN = 20  # launches take so many times as long


def sides(random: np.random.Generator, truth: list[bool], num: int, share: float, level: float) -> list[np.ndarray]:
    """Return times of base and test (cells, launches). level: standard deviation between allocations, by shape."""
    shape = np.unique([row["shape"] for row in matrix()], return_inverse=True)[1]
    scatter, found = SCATTER * np.exp(0.5 * random.standard_normal((len(truth), 1))), []
    for effect in (0, EFFECT):
        shared, alone = tailed(random, (shape.max() + 1, num))[shape], tailed(random, (len(truth), num))
        allocation = level * random.standard_normal((shape.max() + 1, 1))[shape]
        logs = scatter * (share**0.5 * shared + (1 - share) ** 0.5 * alone) + allocation
        found.append(np.exp(logs + np.log1p(effect) * np.array(truth)[:, None]))
    return found


def described(
    num: int, launches: int, share: float, is_paired: bool, truth_of, level: float = 0
) -> tuple[float, float]:
    """Return percent of campaigns whose slower cells are exactly described, and of those with any description."""
    generator, rng, rows, exact, claims = np.random.default_rng(SEED), random.Random(SEED), matrix(), 0, 0
    for _ in range(num):
        truth = truth_of(rng, rows)
        compared = [
            Compared(*times, is_paired, row["benchmark"], batches=(row["shape"], row["shape"]))
            for *times, row in zip(
                *map(np.ndarray.tolist, sides(generator, truth, launches, share, level)), rows, strict=True
            )
        ]
        contrasts = contrasts_of(compared)
        is_found = moderation.adjust_for_number(contrasts.p_value) <= moderation.FALSE_DISCOVERIES
        directions = np.where(is_found, np.where(contrasts.shift > 0, "slower", "faster"), "").tolist()
        groups = dict(find_groups(rows, compared, directions))
        exact += {i for of in groups.get("slower", ()) for i in of.inside} == {
            i for i, is_one in enumerate(truth) if is_one
        }
        claims += bool(groups)
    return 100 * exact / num, 100 * claims / num


def of_launches(num: int) -> float:
    """Print the rates of campaigns with launches; return the mean of those without a pattern."""
    columns = (f"share {share:g}, {'paired' if is_paired else 'unpaired'}" for share, is_paired in SETUPS)
    print(f"\n{num} campaigns per entry, cells {100 * EFFECT:g} % slower: exactly / at all described, %")
    print_head("slower cells, launches", *columns)
    kinds = {f"{num} conditions": partial(planted, num_conditions=num, least=6, most=11) for num in (1, 2)}
    kinds |= {"at random": lambda rng, rows: scattered(rng, len(rows), rng.randint(6, 35))}
    kinds |= {"none": lambda _, rows: [False] * len(rows)}
    false = []
    for (name, truth_of), launches in itertools.product(kinds.items(), LAUNCHES):
        found = [described(num, launches, *setup, truth_of) for setup in SETUPS]
        print(f"| {name}, {launches} | " + " | ".join(f"{a:.1f} / {b:.1f}" for a, b in found) + " |", flush=True)
        false += [] if "condition" in name else [claims for _, claims in found]
    levels = [described(num, 3, 0.6, False, kinds["none"], level)[1] for level in LEVELS]
    print(f"none, 3 launches, 1, 2 and 3 % between single allocations: {', '.join(f'{rate:.1f}' for rate in levels)}")
    return float(np.mean(false))


def main() -> None:
    num, rows, started, worst = int(sys.argv[1]) if len(sys.argv) > 1 else 500, matrix(), time.perf_counter(), 0.0
    print("Found / close, %")
    print_head("conditions, cells", *(f"{100 * flips:g} % flipped" for flips in FLIPS))
    claims = {flips: [] for flips in FLIPS}
    for conditions in (1, 2):
        for least, most in SIZES:
            entries = []
            for flips in FLIPS:
                rng, exact, close = random.Random(1), 0, 0
                for _ in range(num):
                    truth = planted(rng, rows, conditions, least, most)
                    found = find_pattern(rows, flipped(rng, truth, flips))
                    cells, known = set(found.inside if found else ()), {i for i, is_one in enumerate(truth) if is_one}
                    exact += cells == known
                    close += len(cells & known) >= 0.9 * max(len(cells), len(known))
                    seen = flipped(rng, scattered(rng, len(rows), len(known)), flips)
                    claims[flips].append(bool(find_patterns(rows, seen)))
                entries.append(f"{100 * exact / num:.1f} / {100 * close / num:.1f}")
            print(f"| {conditions}, {least} to {most} | " + " | ".join(entries) + " |", flush=True)
    print("\nClaimed without a pattern, %")
    print_head("affected", "rate")
    rates = {f"as many at random, {100 * flips:g} % flipped": sum(of) / len(of) for flips, of in claims.items()}
    for ratio in (0.01, 0.02, 0.03, 0.05):
        rng = random.Random(1)
        found = [bool(find_patterns(rows, flipped(rng, [False] * len(rows), ratio))) for _ in range(4 * num)]
        rates[f"{100 * ratio:g} % of the cells"] = sum(found) / len(found)
    for name, rate in rates.items():
        print(f"| {name} | {100 * rate:.2f} |")
        worst = max(worst, rate)
    report(Figure("Groups described where none is slower, mean", of_launches(num // PER_CAMPAIGN), "%", 2))
    report(Figure("Patterns claimed without one, worst case", 100 * worst, "%", 1))
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
