"""Compute the tables of the report, tables/*.csv, from the files of collect.py. Definitions: docs/metrics.md."""

import argparse
from pathlib import Path

from regatta.core.errors import add_log_option, run_script
from regatta.store.collect import read_collected
from regatta.store.launch_files import read_frozen
from regatta.topics.catalog import make_tables, write_tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_log_option(parser)
    parser.add_argument("--campaign", type=Path, required=True, help="frozen campaign, campaign.<digest>.json")
    parser.add_argument(
        "--measurements", type=Path, required=True, help="measurements.csv, beside the other files of collect.py"
    )
    parser.add_argument("--out-dir", type=Path, required=True, help="folder of the tables")
    args = parser.parse_args()
    write_tables(make_tables(read_frozen(args.campaign, "campaign"), read_collected(args.measurements)), args.out_dir)


if __name__ == "__main__":
    run_script(main)
