"""Rebuild tables and report of a campaign from its store, complete or not, also while it runs.

python workflow/scripts/rebuild_report.py results/laptop
python workflow/scripts/rebuild_report.py config/my.yaml

Needs no GPU and no Snakemake.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from regatta.campaign.load import results_folder
from regatta.core.errors import UserError, run_script
from regatta.run.preflight import latest_preflight

SCRIPTS = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign", type=Path, help="results folder, or campaign file")
    folder = results_folder(parser.parse_args().campaign)
    frozen = sorted(folder.glob("campaign.*.json"))
    if len(frozen) != 1:
        raise UserError(f"{folder}: {len(frozen)} files campaign.<digest>.json instead of one. Run the campaign first.")
    # Use an equals sign, because the folder's name may begin with a dash.
    campaign, measurements = f"--campaign={frozen[0]}", f"--measurements={folder / 'measurements.csv'}"
    tables, launches = folder / "tables", f"--launches={folder / 'launches'}"
    preflight = [f"--preflight={path}" for path in latest_preflight(folder)]
    steps = [
        ["collect.py", launches, f"--out={folder / 'measurements.csv'}", f"--problems={folder / 'problems.json'}"],
        ["analyse.py", measurements, f"--out-dir={tables}"],
        ["report.py", measurements, f"--tables={tables}", launches, f"--out={folder / 'report.html'}", *preflight],
    ]
    for script, *arguments in steps:
        done = subprocess.run([sys.executable, str(SCRIPTS / script), campaign, *arguments])
        if done.returncode:
            sys.exit(done.returncode)
    print(folder / "report.html")


if __name__ == "__main__":
    run_script(main)
