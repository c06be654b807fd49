"""run_launch with a short grace period for scripts. Started like run_launch.py itself."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "bench"))

import run_launch
import script

script.GRACE_SECONDS = float(os.environ["GRACE_SECONDS"])

if __name__ == "__main__":
    run_launch.main()
