"""Whether many cells in one launch affect each other: the same cells with `isolation: launch` and `isolation: process`.

Launches of the two alternate in time (each run raises `repeats` by one, and measures only what is missing).
Printed for each cell: median over launches of the launch's median, the range over launches, the ratio of the medians.
"""

import statistics
import tempfile
from pathlib import Path

import pandas
from common import campaign, run, spread

REPEATS = 5
SAMPLING = {"min_seconds": 0.5, "max_seconds": 1.0, "max_warmup_seconds": 0.5}
CELLS = [
    {
        "benchmark": "collective",
        "parameters": {"operation": ["all_reduce"], "message_bytes": ["64KiB", "1MiB", "16MiB"]},
    },
    {
        "benchmark": "train_step",
        "parameters": {
            "model": ["resnet18", "squeezenet1_1"],
            "image_size": [64],
            "batch_size": [8],
            "strategy": ["ddp"],
            "bucket_cap_mb": [25],
        },
    },
]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for repeats in range(1, REPEATS + 1):
            for isolation in ("launch", "process") if repeats % 2 else ("process", "launch"):
                run(folder, campaign(isolation, CELLS, isolation=isolation, sampling=SAMPLING, repeats=repeats))
        packed, isolated = (launch_medians(folder / "results" / kind) for kind in ("launch", "process"))
    print(f"{'cell':<58} {'packed ms [range]':>28} {'isolated ms [range]':>28} {'ratio':>6}  ranges overlap")
    num_agree = 0
    for cell in sorted(packed):
        a, b = packed[cell], isolated[cell]
        ratio = statistics.median(a) / statistics.median(b)
        agree = max(min(a), min(b)) <= min(max(a), max(b))
        num_agree += agree
        print(f"{cell:<58} {spread(a):>28} {spread(b):>28} {ratio:>6.3f}  {'yes' if agree else 'no'}")
    print(f"{num_agree} of {len(packed)} cells agree within their ranges over {REPEATS} launches")


def launch_medians(results: Path) -> dict[str, list[float]]:
    """Return for each cell the median milliseconds of each launch."""
    table = pandas.read_csv(results / "measurements.csv")
    table = table[table["status"] == "ok"]
    return {cell: list(1e3 * rows["p50_s"]) for cell, rows in table.groupby("cell")}


if __name__ == "__main__":
    main()
