"""Export the results of a campaign in the format of another program: docs/formats.md.

python workflow/scripts/export_results.py results/laptop --format pytorch-json --out laptop.json --where stack=host
python workflow/scripts/export_results.py results/laptop --format suite-json --out 'laptop_{world_size}.json'
python workflow/scripts/export_results.py results/laptop --format csv --out laptop.csv
"""

import argparse
import json
import sys
from pathlib import Path

from regatta.core.errors import UserError, run_script
from regatta.formats import FORMATS
from regatta.formats.base import Format, ResultsFolder, export_notes, read_results_folder
from regatta.formats.tidy_csv import CSV
from regatta.store.launch_files import is_stdout, write_text

WRITTEN = {kind.name: kind for kind in FORMATS if kind.write}
WORLD_SIZE = "{world_size}"


def texts(folder: ResultsFolder, kind: Format, out: str) -> dict[str, str]:
    """Return path -> content. If the path contains {world_size}, a list has one file for each."""
    if kind is not CSV:
        folder.one_value(folder.cells, "hosts")  # of a sweep: these formats would pool its nodes
    made = kind.write(folder)
    if WORLD_SIZE in out and not isinstance(made, list):
        raise UserError(f"--out {out}: only suite-json is written by world size. Remove {WORLD_SIZE}.")
    if isinstance(made, str):
        return {out: made}
    if WORLD_SIZE in out:
        return {out.replace(WORLD_SIZE, str(report["world_size"])): as_json(report) for report in made}
    return {out: as_json(made[0] if isinstance(made, list) and len(made) == 1 else made)}


def as_json(value: object) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def condition(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"'{text}' is not KEY=VALUE, such as stack=host")
    return key, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="results folder of one campaign, with its tables")
    parser.add_argument("--format", required=True, choices=tuple(WRITTEN), help="format of the file")
    parser.add_argument("--out", required=True, help="file to write")
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
    for path, text in texts(folder, kind, args.out).items():
        write_text(Path(path), text)
        if not is_stdout(Path(path)):
            print(path)
    for note in export_notes(folder, kind):
        print(f"note: {note}", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)
