"""Write measurements.csv from the store: one row for each planned cell and repeat. Definitions: docs/metrics.md.

Also write epochs.csv and ranks.csv (one row per epoch and per rank of each training run), waits.csv (stragglers), and
launches.csv and jobs.csv (times of launches and jobs).
"""

from pathlib import Path

from regatta.core.errors import run_script, script_parser
from regatta.store.collect import read_store, summaries_beside, write_collected
from regatta.store.frozen_files import read_frozen_campaign
from regatta.store.launch_files import check_launches, write_json


def main() -> None:
    parser = script_parser(__doc__, has_log=True)
    parser.add_argument("--campaign", type=Path, required=True, help="frozen campaign, campaign.<digest>.json")
    parser.add_argument("--launches", type=Path, required=True, help="folder of launch files (the store)")
    parser.add_argument("--out", type=Path, required=True, help="measurements.csv; the other files go beside it")
    parser.add_argument(
        "--problems", type=Path, help="excluded records with reasons (default: problems.json beside --out)"
    )
    args = parser.parse_args()
    check_launches(args.launches, args.campaign)
    campaign, summaries = read_frozen_campaign(args.campaign), summaries_beside(args.launches)
    collected, problems = read_store(campaign, args.launches, summaries)
    write_json(args.problems or args.out.with_name("problems.json"), problems)
    write_collected(collected, args.out)


if __name__ == "__main__":
    run_script(main)
