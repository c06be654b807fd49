"""Write measurements and tables as one self-contained report.html, and its first lines as answer.json.

The same records give the same bytes.
"""

from pathlib import Path

from regatta.core.errors import run_script, script_parser
from regatta.store.launch_files import check_launches
from regatta.topics.catalog import read_report_data, write_report


def main() -> None:
    parser = script_parser(__doc__, has_log=True)
    parser.add_argument("--campaign", type=Path, required=True, help="frozen campaign, campaign.<digest>.json")
    parser.add_argument("--measurements", type=Path, required=True, help="measurements.csv")
    parser.add_argument("--problems", type=Path, help="excluded records (default: problems.json beside --measurements)")
    parser.add_argument("--tables", type=Path, required=True, help="folder of the tables that analyse.py wrote")
    parser.add_argument("--launches", type=Path, required=True, help="folder of launch files, for their environments")
    parser.add_argument(
        "--preflight", type=Path, nargs="*", default=[], help="preflight/<id>.json (default: no section)"
    )
    parser.add_argument("--out", type=Path, required=True, help="report.html; answer.json is written beside it")
    args = parser.parse_args()
    problems = args.problems or args.measurements.with_name("problems.json")
    check_launches(args.launches, args.campaign)
    data = read_report_data(args.campaign, args.measurements, problems, args.tables, args.launches, args.preflight)
    write_report(data, args.out)


if __name__ == "__main__":
    run_script(main, is_short=True)
