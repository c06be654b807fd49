"""Rebuild tables and report of a campaign from its store, complete or not, also while it runs.

python workflow/scripts/rebuild_report.py results/laptop
python workflow/scripts/rebuild_report.py config/my.yaml

Needs no GPU and no Snakemake.
"""

import sys
from pathlib import Path

from regatta.campaign.load import results_folder
from regatta.core.errors import UserError, run_script, script_parser
from regatta.run.preflight import latest_preflight
from regatta.store.collect import read_collected
from regatta.store.frozen_files import read_frozen_campaign
from regatta.store.launch_files import read_json
from regatta.topics.catalog import make_tables, read_report_data, write_from_store, write_report, write_tables


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("campaign", type=Path, help="results folder, or campaign file")
    folder = results_folder(parser.parse_args().campaign)
    frozen = sorted(folder.glob("campaign.*.json"))
    if len(frozen) != 1:
        raise UserError(
            f"{folder}: {len(frozen)} files campaign.<digest>.json instead of one. Run the campaign: it keeps only"
            " the current one. Completed measurements are not repeated."
        )
    rebuild(folder, frozen[0])
    print(folder / "report.html")


def rebuild(folder: Path, frozen: Path) -> None:
    """Run collect.py, analyse.py and report.py in this process; each reads what the one before it wrote."""
    campaign, launches, tables = read_frozen_campaign(frozen), folder / "launches", folder / "tables"
    measurements, problems = folder / "measurements.csv", folder / "problems.json"
    write_from_store(campaign, launches, measurements, problems)
    for problem in read_json(problems)["corrupt"]:
        print(f"{launches}: {problem}", file=sys.stderr)
    write_tables(make_tables(campaign, read_collected(campaign, measurements)), tables)
    preflights = [*map(Path, latest_preflight(folder))]
    write_report(read_report_data(frozen, measurements, problems, tables, launches, preflights), folder / "report.html")


if __name__ == "__main__":
    run_script(main)
