"""Seconds of `make campaign` in a clone of this repository: the default campaign, and again when nothing is left to do.

Printed with them is the precision that was reached: the variation of a cell's launches, without which a shorter time
would say nothing.
"""

import sys
import tempfile
from pathlib import Path

import pandas
from common import Figure, clone, report, timed

ROUNDS = 3


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = clone(Path(name))
        line = ["make", "campaign", f"VENV={sys.prefix}", "ARGS="]  # `make bench` passes its own ARGS on
        first_s = timed(line, folder).seconds
        print_precision(folder / "results" / "laptop" / "measurements.csv")
        again_s = min(timed(line, folder).seconds for _ in range(ROUNDS))
    report(
        Figure("default campaign, whole run", first_s, "s", 120),
        Figure("make campaign, nothing to do", again_s, "s", 4),
    )


def print_precision(measurements: Path) -> None:
    """Print the median over cells of half the range of the launches' primary times, relative to the middle one."""
    rows = pandas.read_csv(measurements).query("status == 'ok'")
    medians = rows["window_step_s"].fillna(rows["p50_s"]).groupby(rows["cell"])
    half_range = (medians.max() - medians.min()) / 2 / medians.median()
    print(f"between-launch variation: ±{half_range.median():.1%} (median half-range over {len(half_range)} cells)")


if __name__ == "__main__":
    main()
