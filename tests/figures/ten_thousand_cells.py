"""Cost of a campaign of 10,000 cells before anything runs: seconds and peak memory of `snakemake -n` and of a plan."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from common import ROOT, campaign


def main() -> None:
    sizes = [4 * i for i in range(1, 1251)]
    entry = {"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": sizes}}
    shapes = [{"nodes": [1], "gpus_per_node": [2, 3, 4, 5, 6, 7, 8, 9]}]
    data = campaign("ten-thousand", [entry], shapes=shapes, repeats=5)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "campaign.yaml"
        path.write_text(yaml.safe_dump(data))
        snakemake = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
        options = ["--profile", str(ROOT / "profiles" / "local"), "--configfile", str(path)]
        show("snakemake -n", [*snakemake, "-n", *options], name)
        plan = [sys.executable, str(ROOT / "workflow" / "scripts" / "plan.py"), "--campaign", str(path)]
        show("plan.py", plan, name)
        show("snakemake plan", [*snakemake, "plan", *options], name)
        first_line = (Path(name) / "results" / "ten-thousand" / "plan.txt").read_text().splitlines()[1]
        print(f"plan: {first_line} (goals: each under 10 s, snakemake -n under 500 MB)")


def show(title: str, line: list[str], folder: str) -> None:
    """Run a command and print its wall time and the peak resident memory of its largest process."""
    begin = time.monotonic()
    process = subprocess.Popen(line, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - begin
    if status:
        sys.exit(f"{' '.join(line)} failed")
    print(f"{title}: {seconds:.1f} s, peak {usage.ru_maxrss * 1024 / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
