"""Compare a campaign with an earlier one, or several campaigns with the first.

Exit status: 0 no cell is slower, 1 a cell of the last campaign is slower, 2 error.

python workflow/scripts/compare.py results/before results/after --margin 0.05 --html compared.html
python workflow/scripts/compare.py results/v1 results/v2 results/v3 --html history.html

Each is a results folder or its name in results, or a file of another benchmark that import_results.py reads
(docs/formats.md). Cells are matched by their specification and the name of their stack. Definitions: docs/metrics.md.
Needs no GPU. make compare A=before B=after does the same.
"""

import argparse
import sys
import tempfile
import traceback
from pathlib import Path

import pandas as pd

from regatta.compare.campaigns import check_common_cells, compare_campaigns, read_campaign, read_imported
from regatta.compare.comparison_output import comparison_page, comparison_text
from regatta.core.errors import USER_ERROR, UserError, positive, run_script, script_parser
from regatta.core.verdicts import margin_option
from regatta.formats.base import Options
from regatta.store.csv_files import write_csv
from regatta.store.launch_files import write_text


def main() -> None:
    args = arguments()
    options = Options(args.nodes, args.gpus_per_node, is_incomplete=args.incomplete)
    with tempfile.TemporaryDirectory() as scratch:
        campaigns = [
            read_imported(path, args.stack, options, Path(scratch)) if path.is_file() else read_campaign(path)
            for path in map(results_of, (args.base, *args.test))
        ]
    compared = [compare_campaigns(campaigns[0], other, args.margin) for other in campaigns[1:]]
    for of in compared:
        check_common_cells(of)
    found = compared[-1]
    if args.csv:
        write_csv(pd.concat([of.comparisons for of in compared], ignore_index=True), args.csv)
    if args.html:
        write_text(args.html, comparison_page(compared, args.html))
    print(comparison_text(compared, args.all), end="")
    if found.comparisons["verdict"].isna().all():
        raise UserError("nothing could be compared: no cell has a valid launch on both sides. See the lists above.")
    sys.exit(1 if found.num("slower") else 0)


def results_of(name: str) -> Path:
    """Return a folder or file; a name that is neither is that of a folder in results."""
    if not name:
        raise UserError("A campaign name is empty. Usage: make compare A=before B=after.")
    path, named = Path(name), Path("results", name)
    return named if not path.exists() and named.is_dir() else path


def arguments() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("base", metavar="BASE", help="results folder or its name, or a file to import")
    parser.add_argument("test", metavar="TEST", nargs="+", help="one or more, each compared with BASE")
    parser.add_argument(
        "--margin",
        type=margin_option,
        default=0.05,
        help="largest relative difference that still counts as equivalent (default: 0.05)",
    )
    parser.add_argument("--all", action="store_true", help="show all rows, including those within the margin")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write an HTML page to FILE")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write all rows as CSV to FILE")
    parser.add_argument("--stack", help="name of the measured software, if missing in a file")
    parser.add_argument("--gpus-per-node", type=positive, help="GPUs per node, if missing or wrong in a file")
    parser.add_argument("--nodes", type=positive, help="number of nodes, if missing in a file")
    parser.add_argument("--incomplete", action="store_true", help="accept excerpts and truncated files")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        run_script(main, is_short=True, status_if_killed=USER_ERROR)  # status 1 means that a cell is slower
    except Exception:
        traceback.print_exc()
        sys.exit(USER_ERROR)
