"""Whether many cells in one launch affect each other: the same cells with `isolation: launch` and `isolation: process`.

Launches of the two alternate in time (each run raises `repeats` by one, and measures only what is missing).
Printed for each cell: median over launches of the launch's median, the range over launches, the ratio of the medians.
"""

import tempfile
from pathlib import Path

import pandas
from common import campaign, run

REPEATS = 5
SAMPLING = {"min_seconds": 0.5, "max_seconds": 1.0, "max_warmup_seconds": 0.5}
CALLS = {"operation": ["all_reduce"], "message_bytes": ["64KiB", "1MiB", "16MiB"]}
STEPS = {"model": ["resnet18", "squeezenet1_1"], "image_size": [64], "batch_size": [8]}
STEPS |= {"strategy": ["ddp"], "bucket_cap_mb": [25]}
CELLS = [{"benchmark": "collective", "parameters": CALLS}, {"benchmark": "train_step", "parameters": STEPS}]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for repeats in range(1, REPEATS + 1):
            for isolation in ("launch", "process") if repeats % 2 else ("process", "launch"):
                run(folder, campaign(isolation, CELLS, isolation=isolation, sampling=SAMPLING, repeats=repeats))
        packed, isolated = (launch_times(folder / "results" / kind) for kind in ("launch", "process"))
    found = packed.join(isolated, lsuffix=" packed", rsuffix=" isolated")
    found["ratio"] = packed["median"] / isolated["median"]
    found["ranges overlap"] = (packed["min"] <= isolated["max"]) & (isolated["min"] <= packed["max"])
    print(found.round(3).to_string())
    print(f"{found['ranges overlap'].sum()} of {len(found)} cells agree within their ranges over {REPEATS} launches")


def launch_times(results: Path) -> pandas.DataFrame:
    """Return for each cell the median and the range of the launches' median milliseconds."""
    rows = pandas.read_csv(results / "measurements.csv").query("status == 'ok'")
    return 1e3 * rows.groupby("cell")["p50_s"].agg(["median", "min", "max"])


if __name__ == "__main__":
    main()
