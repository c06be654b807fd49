"""Print the results of a program's output in an import format as JSON, for regatta.core.readers.

python workflow/scripts/read_output.py OUTPUT FORMAT NODES GPUS_PER_NODE PROCESSES_PER_NODE
"""

import json
import sys
from pathlib import Path

from regatta.core.errors import run_script
from regatta.formats.base import Options
from regatta.formats.program_output import read_results


def main() -> None:
    output, name, *numbers = sys.argv[1:]
    nodes, gpus_per_node, processes_per_node = map(int, numbers)
    results = read_results(Path(output), name, Options(nodes, gpus_per_node), Options(nodes, processes_per_node))
    print(json.dumps(results))


if __name__ == "__main__":
    run_script(main)
