"""Cost of large campaigns before anything runs: seconds and memory of `snakemake -n` and `plan`, size of plan.html."""

import shutil
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT, Figure, campaign, report, snakemake_line, timed

sys.path.insert(0, str(ROOT / "tests" / "browser"))

from chromium import Chromium

SHAPES = [{"nodes": [1], "gpus_per_node": [2, 3, 4, 5, 6, 7, 8, 9]}]
ROUNDS = 3


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure(folder, "10,000", 1_250, seconds=3, megabytes=200)
        large = measure(folder, "100,000", 12_500, seconds=20, megabytes=600)
        cost = timed(snakemake_line(folder, large, "plan"), folder)
        print(f"snakemake plan, 100,000 cells: {cost.seconds:.1f} s, {cost.peak_mb:.0f} MB")
        page = folder / "results" / large["name"] / "plan.html"
        size_mb = page.stat().st_size / 1e6
        opened = seconds_to_open(page)
    report(
        Figure("plan.html of 100,000 cells", size_mb, "MB", 3),
        Figure("plan.html of 100,000 cells, shown in Chromium after", opened, "s", 1),
    )


def measure(folder: Path, num_cells: str, num_sizes: int, seconds: float, megabytes: float) -> dict:
    """Time `snakemake -n` of 8 shapes x num_sizes message sizes, the fastest of some rounds. Return the campaign."""
    entry = {"benchmark": "collective", "parameters": {"operation": ["all_reduce"]}}
    entry["parameters"]["message_bytes"] = [4 * i for i in range(1, num_sizes + 1)]
    data = campaign(f"cells-{num_sizes}", [entry], shapes=SHAPES, repeats=5)
    line = snakemake_line(folder, data, "-n")
    found = [timed(line, folder) for _ in range(ROUNDS)]
    report(
        Figure(f"snakemake -n, {num_cells} cells", min(cost.seconds for cost in found), "s", seconds),
        Figure(f"snakemake -n, {num_cells} cells, memory", max(cost.peak_mb for cost in found), "MB", megabytes),
    )
    return data


def seconds_to_open(page: Path) -> float | None:
    """Return the seconds until Chromium has painted a page; None without Chromium."""
    program = shutil.which("chromium")
    if program is None:
        return None
    with Chromium(program) as browser:
        begin = time.monotonic()
        browser.open(page, 1440)
        browser.evaluate("new Promise(shown => requestAnimationFrame(() => requestAnimationFrame(shown)))")
        return time.monotonic() - begin


if __name__ == "__main__":
    main()
