"""Show the progress of a running campaign: batches, measurements, failures, rate, time and GPU hours left.

python workflow/scripts/watch.py results/laptop
python workflow/scripts/watch.py config/my.yaml --once

Reads the results folder and the job queue only; nothing is written, and the run is not disturbed. Ctrl-C ends it. It
exits when every planned measurement has a record and no batch is queued or running.
"""

import argparse
import sys
import time
from pathlib import Path

from regatta.campaign.load import results_folder
from regatta.core.errors import UserError, run_script, script_parser
from regatta.run.run_state import RunState, RunWatcher, state_text


def seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 86400:
        raise ValueError(text)
    return value


def print_lines(watcher: RunWatcher, every_s: float) -> RunState:
    """Print a line whenever the state has changed, for a log or a pipe."""
    while True:
        state, line = watcher.next_line(time.time())
        if line:
            print(line, flush=True)
        if state.is_complete:
            return state
        time.sleep(every_s)


def show(watcher: RunWatcher, arguments: argparse.Namespace) -> None:
    if not sys.stdout.isatty() and not arguments.once:
        print_lines(watcher, arguments.every)
        return
    try:
        from rich.console import Console

        from regatta.run.live_view import follow, view
    except ModuleNotFoundError as error:
        remedy = "Install it (make env-driver), or pipe the output: the lines do not need it."
        raise UserError(f"The Python package {error.name} is not installed in {sys.prefix}. {remedy}") from None
    console = Console()
    if arguments.once:
        console.print(view(watcher.state(time.time()), console.height))
    else:
        print(state_text(follow(lambda: watcher.state(time.time()), console, arguments.every)))


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("campaign", type=Path, help="results folder, or campaign file")
    parser.add_argument("--once", action="store_true", help="print one view and end")
    parser.add_argument("--every", type=seconds, default=5.0, metavar="SECONDS", help="between refreshes (default: 5)")
    arguments = parser.parse_args()
    try:
        show(RunWatcher(results_folder(arguments.campaign)), arguments)
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    run_script(main)
