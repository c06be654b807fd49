"""Import results of other benchmarks into a separate campaign, for the report and comparisons.

python workflow/scripts/import_results.py benchmark-out.txt --campaign published --gpus-per-node 4

Formats are recognized by content: docs/formats.md. Files under one stack name are launches of the same software;
different software needs a different stack name. Exit status: 0 all files were imported, 2 none, 3 some; the reasons for
the others are listed.
"""

import sys
from pathlib import Path

from regatta.campaign.benchmark_files import read_benchmark_file
from regatta.core.benchmarks import declare
from regatta.core.errors import INCOMPLETE, positive, run_script, script_parser
from regatta.core.text import plural
from regatta.formats import add_formats
from regatta.formats.base import Options
from regatta.formats.importer import campaign_folder, import_files
from regatta.formats.nccl_base import PROGRAMS
from regatta.formats.refused import refused_text

OPERATIONS = [operation for operation, _ in PROGRAMS.values()]


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="result file, or job log of several runs")
    parser.add_argument(
        "--campaign", required=True, metavar="NAME", help="name of the campaign, and of its results folder"
    )
    parser.add_argument(
        "--stack",
        metavar="NAME",
        help="name of the measured software (default: the name in the file, or imported)",
    )
    parser.add_argument(
        "--gpus-per-node", type=positive, metavar="N", help="GPUs per node, if missing from the files or wrong"
    )
    parser.add_argument("--nodes", type=positive, metavar="N", help="number of nodes, if missing from the files")
    parser.add_argument("--operation", choices=OPERATIONS, help="nccl-tests operation, if missing from the files")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER", help="folder of all results")
    parser.add_argument("--incomplete", action="store_true", help="import excerpts and truncated files; mark every row")
    parser.add_argument(
        "--benchmark", type=Path, action="append", metavar="FILE", help="Python file of a benchmark in exported results"
    )
    parser.add_argument("--plugin", type=Path, action="append", metavar="FILE", help="Python file with more formats")
    args = parser.parse_args()
    for path in args.plugin or ():
        add_formats(path.absolute())
    declare({path.stem: read_benchmark_file(path.absolute()).declaration for path in args.benchmark or ()})
    options = Options(args.nodes, args.gpus_per_node, args.operation, args.incomplete)
    outcome = import_files(args.files, campaign_folder(args.results, args.campaign), args.stack, options)
    for name, kind, num in outcome.written:
        print(f"{name}: {kind}, {plural(num, 'row')}")
    for name in outcome.already_there:
        print(f"{name}: already imported; nothing changed")
    for note in dict.fromkeys(outcome.notes):
        print(f"note: {note}")
    print(f"report: make report CONFIG={outcome.folder}")
    if outcome.refused:
        num = plural(len(outcome.refused), "file")
        print(f"{refused_text(outcome.refused)}\n{num} not imported; the others were.", file=sys.stderr)
        sys.exit(INCOMPLETE)


if __name__ == "__main__":
    run_script(main, is_short=True)
