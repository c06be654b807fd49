"""Compute the tables of the report, tables/*.csv, from the files of collect.py. Definitions: docs/metrics.md.

With --launches, do first what collect.py does.
"""

from pathlib import Path

from regatta.core.errors import run_script, script_parser
from regatta.store.collect import read_collected
from regatta.store.frozen_files import read_frozen_campaign
from regatta.store.launch_files import check_launches
from regatta.topics.catalog import make_tables, write_from_store, write_tables


def main() -> None:
    parser = script_parser(__doc__, has_log=True)
    parser.add_argument("--campaign", type=Path, required=True, help="frozen campaign, campaign.<digest>.json")
    parser.add_argument("--launches", type=Path, help="folder of launch files (the store), to collect from it first")
    parser.add_argument(
        "--measurements", type=Path, required=True, help="measurements.csv, beside the other files of collect.py"
    )
    parser.add_argument(
        "--problems", type=Path, help="with --launches: excluded records (default: problems.json beside --measurements)"
    )
    parser.add_argument("--out-dir", type=Path, required=True, help="folder of the tables")
    args = parser.parse_args()
    campaign = read_frozen_campaign(args.campaign)
    if args.launches:
        check_launches(args.launches, args.campaign)
        problems = args.problems or args.measurements.with_name("problems.json")
        write_from_store(campaign, args.launches, args.measurements, problems)
    write_tables(make_tables(campaign, read_collected(campaign, args.measurements)), args.out_dir)


if __name__ == "__main__":
    run_script(main, is_short=True)
