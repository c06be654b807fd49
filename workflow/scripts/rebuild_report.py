"""Rebuild tables and report of a results folder from its store, whatever has been measured so far. Needs no GPU and no Snakemake.

python workflow/scripts/rebuild_report.py results/laptop
"""

import argparse
import subprocess
import sys
from pathlib import Path

from regatta.errors import run_script
from regatta.preflight.looks import latest_preflight

SCRIPTS = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="results folder of one campaign")
    folder = parser.parse_args().results
    frozen = sorted(folder.glob("campaign.*.json"))
    if len(frozen) != 1:
        sys.exit(f"{folder}: holds {len(frozen)} files campaign.<digest>.json instead of one. Run the campaign first.")
    campaign = ["--campaign", str(frozen[0])]
    measurements, tables, launches = folder / "measurements.csv", folder / "tables", folder / "launches"
    steps = [
        ["collect.py", "--launches", launches, "--out", measurements, "--problems", folder / "problems.json"],
        ["analyse.py", "--measurements", measurements, "--out-dir", tables],
        [
            "report.py",
            "--measurements",
            measurements,
            "--tables",
            tables,
            "--launches",
            launches,
            "--out",
            folder / "report.html",
            "--preflight",
            *latest_preflight(folder),
        ],
    ]
    for script, *arguments in steps:
        done = subprocess.run([sys.executable, str(SCRIPTS / script), *campaign, *map(str, arguments)])
        if done.returncode:
            sys.exit(done.returncode)


if __name__ == "__main__":
    run_script(main)
