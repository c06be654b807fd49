"""Cost of large campaigns before anything runs: seconds and memory of `snakemake -n` and `plan`, size of plan.html."""

import shutil
import sys
import tempfile
import time
from pathlib import Path

import yaml
from common import ROOT, Figure, campaign, report, timed

sys.path.insert(0, str(ROOT / "tests" / "browser"))

from chromium import Chromium

SHAPES = [{"nodes": [1], "gpus_per_node": [2, 3, 4, 5, 6, 7, 8, 9]}]
ROUNDS = 3


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure(folder, "10,000", 1_250, "snakemake -n", seconds=3, megabytes=200)
        measure(folder, "100,000", 12_500, "snakemake -n", seconds=20, megabytes=600)
        page = make_plan(folder, "100,000")
        size_mb = page.stat().st_size / 1e6
        opened = seconds_to_open(page)
    report(
        Figure("plan.html of 100,000 cells", size_mb, "MB", 3),
        Figure("plan.html of 100,000 cells, shown in Chromium after", opened, "s", 1),
    )


def measure(folder: Path, num_cells: str, num_sizes: int, what: str, seconds: float, megabytes: float) -> None:
    """Time `snakemake -n` of 8 shapes x num_sizes message sizes, the fastest of some rounds."""
    entry = {"benchmark": "collective", "parameters": {"operation": ["all_reduce"]}}
    entry["parameters"]["message_bytes"] = [4 * i for i in range(1, num_sizes + 1)]
    data = campaign(campaign_name(num_cells), [entry], shapes=SHAPES, repeats=5)
    campaign_file(folder, num_cells).write_text(yaml.safe_dump(data))
    found = [timed(snakemake_line(folder, num_cells, "-n"), folder) for _ in range(ROUNDS)]
    report(
        Figure(f"{what}, {num_cells} cells", min(taken for taken, _ in found), "s", seconds),
        Figure(f"{what}, {num_cells} cells, memory", max(peak for _, peak in found), "MB", megabytes),
    )


def make_plan(folder: Path, num_cells: str) -> Path:
    """Write the plan of a campaign, and return its page."""
    taken, peak = timed(snakemake_line(folder, num_cells, "plan"), folder)
    print(f"snakemake plan, {num_cells} cells: {taken:.1f} s, {peak:.0f} MB")
    return folder / "results" / campaign_name(num_cells) / "plan.html"


def campaign_name(num_cells: str) -> str:
    return f"cells-{num_cells.replace(',', '')}"


def campaign_file(folder: Path, num_cells: str) -> Path:
    return folder / f"{campaign_name(num_cells)}.yaml"


def snakemake_line(folder: Path, num_cells: str, target: str) -> list[str]:
    head = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), target]
    profile = str(ROOT / "profiles" / "local")
    return [*head, "--profile", profile, "--configfile", str(campaign_file(folder, num_cells))]


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
