"""Compare a campaign with an earlier one, or show cells over several campaigns.

Exit status: 0 no cell is slower, 1 a cell is slower, 2 error.

python workflow/scripts/compare.py results/before results/after --margin 0.05 --html compared.html
python workflow/scripts/compare.py --history results/january results/may results/june --html history.html

Each is a results folder, or a file of another benchmark that import_results.py reads (docs/formats.md). Cells are
matched by their specification and the name of their stack. Definitions: docs/metrics.md. Needs no GPU.
"""

import argparse
import sys
import tempfile
import traceback
from pathlib import Path

from regatta.compare.campaigns import compare_campaigns, history_of_cells, read_campaign, read_imported
from regatta.compare.output import comparison_page, comparison_text, history_page, history_text
from regatta.core.errors import USER_ERROR, UserError, run_script
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
            for path in args.campaigns
        ]
    if args.history:
        history = history_of_cells(campaigns)
        text, table, page = history_text(history, args.margin, args.all), history.table, lambda: history_page(history)
    else:
        found = compare_campaigns(*campaigns, args.margin)
        text, table, page = comparison_text(found, args.all), found.comparisons, lambda: comparison_page(found)
    if args.csv:
        write_csv(table, args.csv)
    if args.html:
        write_text(args.html, page())
    print(text, end="")
    if not args.history and found.comparisons["verdict"].isna().all():
        raise UserError("nothing could be compared: no cell has a valid launch on both sides. See the lists above.")
    sys.exit(0 if args.history or not found.num("slower") else 1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sides = "BASE and TEST: results folders, or files to import"
    parser.add_argument("campaigns", type=Path, nargs="+", metavar="CAMPAIGN", help=sides)
    parser.add_argument("--history", action="store_true", help="compare the cells of two or more campaigns over time")
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
    parser.add_argument("--gpus-per-node", type=int, help="GPUs per node, if missing or wrong in a file")
    parser.add_argument("--nodes", type=int, help="number of nodes, if missing in a file")
    parser.add_argument("--incomplete", action="store_true", help="accept excerpts and truncated files")
    args = parser.parse_args()
    if len(args.campaigns) != 2 and not (args.history and len(args.campaigns) > 2):
        parser.error(f"{len(args.campaigns)} given; specify BASE and TEST, or --history and two or more campaigns")
    for name in ("nodes", "gpus_per_node"):
        if (number := getattr(args, name)) is not None and number < 1:
            parser.error(f"--{name.replace('_', '-')} {number}: must be at least 1")
    return args


if __name__ == "__main__":
    try:
        run_script(main)
    except Exception:  # status 1 means that a cell is slower
        traceback.print_exc()
        sys.exit(USER_ERROR)
