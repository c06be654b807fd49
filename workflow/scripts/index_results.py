"""Write index.html: all campaigns of a results folder, and the history of their key figures.

python workflow/scripts/index_results.py
python workflow/scripts/index_results.py /path/to/results

Reads reports and tables, not the store. Needs no GPU and no Snakemake.
"""

import argparse
from pathlib import Path

from regatta.compare.index import index_page
from regatta.core.errors import run_script
from regatta.store.launch_files import write_text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "results", type=Path, nargs="?", default=Path("results"), help="folder of results folders (default: results)"
    )
    results = parser.parse_args().results
    write_text(results / "index.html", index_page(results))
    print(results / "index.html")


if __name__ == "__main__":
    run_script(main)
