"""Write index.html: all campaigns of a results folder, and the history of their key figures.

python workflow/scripts/index_results.py
python workflow/scripts/index_results.py /path/to/results

Reads reports and tables, not the store. Needs no GPU and no Snakemake.
"""

from pathlib import Path

from regatta.compare.index import write_index
from regatta.core.errors import run_script, script_parser


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("results", nargs="?", default="results", help="folder of results folders (default: results)")
    results = parser.parse_args().results
    if not results:
        parser.error("the folder is an empty string; specify one such as results")
    print(write_index(Path(results)))


if __name__ == "__main__":
    run_script(main)
