"""How often planted patterns are found, and how often a pattern is claimed where there is none.

    python benchmarks/pattern_errors.py [NUMBER]

Campaigns of 112 compared cells (tests/unit/planted_patterns.py), NUMBER (500) for each entry. Found: exactly the
planted cells are described. Close: at least 90 % of the described and of the planted cells are the same.
"""

import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "unit"), str(ROOT / "workflow" / "scripts")]
from common import Figure, report  # noqa: E402
from planted_patterns import (  # noqa: E402
    flipped,
    matrix,
    planted,
    scattered,
)

from regatta.core.patterns import find_pattern, find_patterns  # noqa: E402

FLIPS = (0, 0.02, 0.05)
SIZES = ((3, 5), (6, 11), (12, 35), (36, 56))  # planted cells


def main() -> None:
    num, rows, started, worst = int(sys.argv[1]) if len(sys.argv) > 1 else 500, matrix(), time.perf_counter(), 0.0
    columns = " | ".join(f"{100 * flips:g} % flipped" for flips in FLIPS)
    print(f"Found / close, %\n| conditions, cells | {columns} |")
    print("|---|" + "---|" * len(FLIPS))
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
    print("\nClaimed without a pattern, %\n| affected | rate |\n|---|---|")
    rates = {f"as many at random, {100 * flips:g} % flipped": sum(of) / len(of) for flips, of in claims.items()}
    for ratio in (0.01, 0.02, 0.03, 0.05):
        rng = random.Random(1)
        found = [bool(find_patterns(rows, flipped(rng, [False] * len(rows), ratio))) for _ in range(4 * num)]
        rates[f"{100 * ratio:g} % of the cells"] = sum(found) / len(found)
    for name, rate in rates.items():
        print(f"| {name} | {100 * rate:.2f} |")
        worst = max(worst, rate)
    report(Figure("Patterns claimed without one, worst case", 100 * worst, "%", 1))
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
