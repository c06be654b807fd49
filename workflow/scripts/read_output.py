"""Print the results of a program's output in an import format as JSON, for regatta.core.readers.

python workflow/scripts/read_output.py OUTPUT FORMAT NODES GPUS_PER_NODE PROCESSES_PER_NODE [PLUGIN ...]
"""

import argparse
import json
from pathlib import Path

from regatta.core.errors import run_script
from regatta.formats import add_formats
from regatta.formats.base import Options
from regatta.formats.program_output import read_results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("format")
    for name in ("nodes", "gpus_per_node", "processes_per_node"):
        parser.add_argument(name, type=int)
    parser.add_argument("plugins", type=Path, nargs="*")
    args = parser.parse_args()
    for path in args.plugins:
        add_formats(path)
    of_gpus, of_processes = (Options(args.nodes, num) for num in (args.gpus_per_node, args.processes_per_node))
    print(json.dumps(read_results(args.output, args.format, of_gpus, of_processes)))


if __name__ == "__main__":
    run_script(main)
