"""Export the results of a campaign in the format of another program: docs/formats.md.

python workflow/scripts/export_results.py results/laptop --format pytorch-json --out laptop.json --where stack=host
python workflow/scripts/export_results.py results/laptop --format csv --out laptop.csv
"""

import argparse
import json
import sys
from pathlib import Path

from regatta.core.errors import run_script, script_parser
from regatta.formats import FORMATS
from regatta.formats.base import Format
from regatta.formats.results_folder import ResultsFolder, export_notes, read_results_folder
from regatta.formats.tidy_csv import CSV
from regatta.store.launch_files import is_stdout, write_text

WRITTEN = {kind.name: kind for kind in FORMATS if kind.write}


def text_of(folder: ResultsFolder, kind: Format) -> str:
    """Return the content of the file."""
    if kind is not CSV:
        folder.one_value(folder.cells, "hosts")  # of a sweep: these formats would pool its nodes
    made = kind.write(folder)
    return made if isinstance(made, str) else as_json(made)


def as_json(value: object) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def condition(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"'{text}' is not KEY=VALUE, such as stack=host")
    return key, value


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("results", type=Path, help="results folder of one campaign, with its tables")
    parser.add_argument("--format", required=True, choices=tuple(WRITTEN), help="format of the file")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument(
        "--where",
        type=condition,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only cells in which this field has this value",
    )
    args = parser.parse_args()
    kind = WRITTEN[args.format]
    folder = read_results_folder(args.results, dict(args.where))
    write_text(args.out, text_of(folder, kind))
    if not is_stdout(args.out):
        print(args.out)
    for note in export_notes(folder, kind):
        print(f"note: {note}", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)
