"""Time saved by launches of many cells: 12 all-reduce sizes x 2 repeats as a campaign, and as a shell loop of torchrun calls.

Both run the same 24 measurements on 2 ranks with the same sampling; the campaign's time includes its plan, tables and report.
"""

import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT, campaign, run

SIZES = [4096 * 2**i for i in range(12)]
SAMPLING = {"min_seconds": 0.05, "max_seconds": 0.1, "min_samples": 5, "max_warmup_seconds": 0.05}


def main() -> None:
    entry = {"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": SIZES}}
    data = campaign("startup", [entry], sampling=SAMPLING, repeats=2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begin = time.monotonic()
        run(folder, data)
        campaign_s = time.monotonic() - begin
        commands = frozen_commands(folder / "results" / "startup") * data["repeats"]
    loop_s = time_loop(commands)
    print(f"campaign of {len(commands)} measurements: {campaign_s:.1f} s, whole run with report")
    print(f"shell loop of {len(commands)} torchrun calls: {loop_s:.1f} s")
    print(f"ratio: {campaign_s / loop_s:.3f} (goal: at most 0.25)")


def frozen_commands(results: Path) -> list[str]:
    """Return the line that each cell's record would give to repeat it by hand."""
    frozen = json.loads(next(results.glob("campaign.*.json")).read_text())
    return [cell["command"] for cell in frozen["cells"]]


def time_loop(commands: list[str]) -> float:
    begin = time.monotonic()
    for command in commands:
        _, *arguments = shlex.split(command)
        line = [sys.executable, "-m", "torch.distributed.run", *arguments]
        subprocess.run(line, cwd=ROOT, check=True, capture_output=True)
    return time.monotonic() - begin


if __name__ == "__main__":
    main()
