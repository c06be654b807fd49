"""Measure a benchmark outside Regatta's tree by hand. Parameters that are not given have their defaults.

torchrun --nproc-per-node=2 workflow/scripts/bench/from_file.py my_step.py --parameters '{"size": 1024}'
"""

import json
import sys
from pathlib import Path

from harness import benchmark_file, by_hand


def add_arguments(group) -> None:
    """Add the file and its parameters to a command line (an argparse group)."""
    group.add_argument("file", type=Path, help="the benchmark")
    group.add_argument("--parameters", type=json.loads, default={}, metavar="JSON", help="name and value of each")


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    path = Path(sys.argv[1]).absolute()
    module = benchmark_file.load({"path": str(path), "files": {}})
    module.VERSION = getattr(module, "VERSION", 1)
    module.add_arguments, module.parameters_from = add_arguments, lambda arguments: arguments.parameters
    by_hand.main(path.stem, module)


if __name__ == "__main__":
    main()
