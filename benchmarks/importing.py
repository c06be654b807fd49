"""Cost of an import: a CSV of 20,001 rows, in units of the time that Python needs to import pandas on this machine.

The rows are all-reduces of 2,000 message sizes, each measured in ten launches or eleven. Commands alternate; each is
the fastest of three rounds.
"""

import sys
import tempfile
from pathlib import Path

from common import SCRIPTS, Figure, report, timed

NUM_ROWS, NUM_SIZES, NUM_ROUNDS = 20_001, 2_000, 3
HEAD = "benchmark,operation,message_bytes,nodes,gpus_per_node,backend,device,seconds\n"


def main() -> None:
    units, imports = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "many.csv").write_text(HEAD + "".join(map(row, range(NUM_ROWS))))
        for number in range(NUM_ROUNDS):
            units.append(timed([sys.executable, "-c", "import pandas"], folder).seconds)
            line = [sys.executable, SCRIPTS / "import_results.py", "many.csv", "--campaign", f"c{number}"]
            imports.append(timed(line, folder))
    unit, taken = min(units), min(cost.seconds for cost in imports)
    print(f"import pandas: {unit:.2f} s; import of {NUM_ROWS:,} rows: {taken:.2f} s")
    report(
        Figure(f"import of a CSV of {NUM_ROWS:,} rows / import of pandas", taken / unit, "", 5),
        Figure(f"import of a CSV of {NUM_ROWS:,} rows, memory", max(cost.peak_mb for cost in imports), "MB", 1000),
    )


def row(number: int) -> str:
    seconds = 1e-5 * (1 + number * 7919 % 1000 / 5000)
    return f"collective,all_reduce,{4 + 4 * (number % NUM_SIZES)},2,4,nccl,cuda,{seconds:.9f}\n"


if __name__ == "__main__":
    main()
