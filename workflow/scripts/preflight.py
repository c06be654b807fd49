"""Check the stacks before GPU hours are spent, with one short launch each. A failed stack is a result, not an error.

python workflow/scripts/preflight.py --folder results/laptop/preflight/preflight-1a2b3c4d5e6f
"""

import signal
import sys
from pathlib import Path

from regatta.core.errors import add_parent_option, run_script, script_parser
from regatta.run.preflight import run_preflight

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop_once(number: int, _frame: object) -> None:
    """End the running launch on all its nodes. Further signals must not interrupt this."""
    for other in STOPPING:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> None:
    for number in STOPPING:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, stop_once)
    parser = script_parser(__doc__, has_log=True)
    add_parent_option(parser)
    parser.add_argument("--folder", type=Path, required=True, help="folder of a frozen preflight")
    options = parser.parse_args()
    for stack in run_preflight(options.folder, options.parent)["stacks"]:
        if stack["verdict"]["ok"]:
            print(f"preflight of stack {stack['stack']}: ok")
        for problem in stack["verdict"]["problems"]:
            print(f"preflight of stack {stack['stack']}: {problem}", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)
