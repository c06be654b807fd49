"""run_launch with a benchmark that fails as its parameters request, and with host names that a test can choose.

Started like run_launch.py itself; the shipped programs contain no test code.
"""

import os
import sys
import time
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "bench"))

import run_launch


def build(parameters: dict, ranks):
    from harness.timing import Workload

    fault = parameters["fault"]
    is_culprit = ranks.rank == 1
    if fault == "raise in setup" and is_culprit:
        raise ValueError("this model cannot be built")

    def iterate() -> None:
        if fault == "raise in iteration" and is_culprit:
            raise RuntimeError("something broke\nand more")
        if fault == "out of memory" and is_culprit:
            raise MemoryError("8 EiB wanted")
        if fault == "hang" and is_culprit:
            time.sleep(600)
        time.sleep(0.001)

    return Workload(
        iterate=iterate,
        check=lambda: {"is_right": not (fault == "wrong result" and is_culprit)},
        check_before=lambda: {"is_right": not (fault == "wrong from the start" and is_culprit)},
    )


sys.modules["fault"] = types.SimpleNamespace(VERSION=1, build=build)

if "FAKE_HOSTS" in os.environ:
    from harness import placement

    placement.host_name = lambda: os.environ["FAKE_HOSTS"].split(",")[int(os.environ["RANK"])]

if __name__ == "__main__":
    run_launch.main()
