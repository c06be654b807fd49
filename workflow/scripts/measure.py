"""Measure one batch: run its launches, write their records to the store, and finally the batch's manifest.

python workflow/scripts/measure.py --batch results/laptop/batches/n01g02-1a2b3c4d5e6f
"""

import subprocess
import sys
from pathlib import Path

from regatta.core.errors import add_parent_option, run_script, script_parser
from regatta.core.files import ROOT
from regatta.run.supervise import Stopped, supervise


def git_state() -> dict:
    """Return `{"commit": hash, "is_dirty": bool}`, both None outside a git checkout.

    Dirty: a tracked file that affects the numbers was edited. Campaign and cluster files are stored with the results.
    """
    # The checkout may belong to another user, whose code runs here anyway.
    line = ["git", "-c", f"safe.directory={ROOT}", "--no-optional-locks", "-C", str(ROOT)]
    line += ["status", "--porcelain=v2", "--branch", "--untracked-files=no", "--"]
    line += ["workflow", "Snakefile", "requirements"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "is_dirty": None}
    head, *others = done.stdout.splitlines()  # "# branch.oid COMMIT", other headers, changes
    return {"commit": head.split()[2], "is_dirty": any(not line.startswith("#") for line in others)}


def main() -> None:
    parser = script_parser(__doc__, has_log=True)
    add_parent_option(parser)
    parser.add_argument("--batch", type=Path, required=True, help="folder of a frozen batch")
    options = parser.parse_args()
    folder = options.batch
    try:
        manifest = supervise(folder, git_state(), options.parent)
    except Stopped as stop:
        remedy = "Completed measurements are kept; the same command resumes."
        print(f"{folder.name}: stopped ({stop}). {remedy}", file=sys.stderr)
        sys.exit(stop.exit_code)
    for cause in manifest["held"].values():
        print(f"{folder.name}: not started: {cause}", file=sys.stderr)
    print(f"{folder.name}: " + ", ".join(f"{count} {status}" for status, count in sorted(manifest["counts"].items())))


if __name__ == "__main__":
    run_script(main)
