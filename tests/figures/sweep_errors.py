"""How often a sweep blames a healthy node, and finds one that is 8 % slower: simulated times, the code of the report.

100 nodes, 6 repeats, margin 5 %; times are lognormal. Prints the share of sweeps with a wrongly blamed node, and of those
that find the slow one.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts"))
from regatta.core.verdicts import compare_launches, judge_all

NUM_NODES, NUM_REPEATS, MARGIN, SLOW = 100, 6, 0.05, 1.08
NUM_SWEEPS = 200


def words(times: np.ndarray) -> list[str]:
    """Return the verdict on each node. times: (nodes, repeats)."""
    medians = np.median(times, axis=0).tolist()
    compared = [compare_launches(medians, of_node.tolist(), is_paired=True) for of_node in times]
    return [verdict.word for verdict in judge_all(compared, MARGIN)]


def main() -> None:
    print(
        "| variation between launches (%) | sweeps that blame a healthy node (%) | that find the slow one (%) |\n|---|---|---|"
    )
    for scatter in (0.005, 0.01, 0.02, 0.05):
        rng = np.random.default_rng(1)
        num_wrong = num_found = 0
        for _ in range(NUM_SWEEPS):
            times = np.exp(rng.normal(0, scatter, (NUM_NODES, NUM_REPEATS)))
            times[0] *= SLOW
            found = words(times)
            num_found += found[0] == "slower"
            num_wrong += any(word in ("slower", "faster") for word in found[1:])
        print(f"| {100 * scatter:g} | {100 * num_wrong / NUM_SWEEPS:.1f} | {100 * num_found / NUM_SWEEPS:.1f} |")


if __name__ == "__main__":
    main()
