"""Turn measurements.csv into tables/scaling.csv, strategies.csv, memory.csv, collectives.csv and failures.csv. Definitions:
docs/metrics.md."""

import argparse
from pathlib import Path

from regatta.analysis.collectives import collectives_table
from regatta.analysis.failures_table import failures_table
from regatta.analysis.scaling import scaling_table
from regatta.analysis.strategies import memory_table, strategies_table
from regatta.analysis.tables import MEASUREMENTS, read_csv, write_csv
from regatta.errors import run_script
from regatta.store.launch_files import read_frozen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", type=Path, required=True, help="frozen campaign, campaign.<digest>.json")
    parser.add_argument("--measurements", type=Path, required=True, help="measurements.csv")
    parser.add_argument("--out-dir", type=Path, required=True, help="folder of the tables")
    args = parser.parse_args()
    campaign, measurements = read_frozen(args.campaign), read_csv(args.measurements, MEASUREMENTS)
    write_csv(scaling_table(campaign, measurements), args.out_dir / "scaling.csv")
    write_csv(strategies_table(campaign, measurements), args.out_dir / "strategies.csv")
    write_csv(memory_table(campaign, measurements), args.out_dir / "memory.csv")
    write_csv(collectives_table(campaign, measurements), args.out_dir / "collectives.csv")
    write_csv(failures_table(measurements), args.out_dir / "failures.csv")


if __name__ == "__main__":
    run_script(main)
