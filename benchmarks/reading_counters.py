"""Cost of the counters beside each cell (`host_load`): launches with and without them, and one reading.

Launches alternate; each measures the same cells. Printed: the ratio of a cell's times with and without, as the median
over pairs of launches and cells with a 95 % interval, and the time of one reading of a rank that reads its host.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import SCRIPTS, Figure, mean_interval, report

BENCH = SCRIPTS / "bench"
sys.path.insert(0, str(BENCH))

NUM_PAIRS = 8
NUM_READINGS = 300
SAMPLING = {"target_precision": 1e-6, "min_seconds": 0.4, "max_seconds": 0.4, "min_samples": 6}
SAMPLING |= {"max_samples": 100_000, "max_warmup_seconds": 0.2, "windows_ratio": 0.3}
SIZES = (4096, 65536, 1 << 20)
# Launches without counters: the same program with a monitor that reads nothing.
WITHOUT = """\
import sys
sys.path.insert(0, {bench!r})
from harness import host_load
class Monitor:
    def __init__(self, *arguments): pass
    def read_gpu(self): pass
    def row(self): return [0]
host_load.Monitor, host_load.record_field = Monitor, lambda rows: None
import run_launch
run_launch.main()
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "without.py").write_text(WITHOUT.format(bench=str(BENCH)))
        programs = {"with": BENCH / "run_launch.py", "without": folder / "without.py"}
        ratios: dict[int, list[float]] = {size: [] for size in SIZES}
        for pair in range(NUM_PAIRS):
            order = ("with", "without") if pair % 2 else ("without", "with")
            times = {kind: launch(folder, programs[kind], f"{kind}-{pair}") for kind in order}
            for size in SIZES:
                ratios[size].append(times["with"][size] / times["without"][size])
    middle, low, high = mean_interval([statistics.median(of_pair) for of_pair in zip(*ratios.values(), strict=True)])
    print(f"cell time with / without counters: {middle:.3f}, 95 % interval [{low:.3f}, {high:.3f}], {NUM_PAIRS} pairs")
    for size, found in ratios.items():
        print(f"  all-reduce {size:>9,} B: {statistics.median(found):.3f} ({min(found):.3f} to {max(found):.3f})")
    excess = max(0.0, low - 1, 1 - high)
    report(
        Figure("counters on / off: distance of the 95 % interval from 1", 100 * excess, "%", 0.5),
        Figure("counters: one reading of a host", 1e6 * reading_seconds(), "µs", 2000),
    )


def launch(folder: Path, program: Path, name: str) -> dict[int, float]:
    """Run a launch of two ranks. Returns the median of the slowest rank's samples by message size."""
    cells = [{"id": str(size), "spec": spec(size), "command": ""} for size in SIZES]
    request = {"schema": 1, "campaign": "c", "batch": "b", "launch": name, "repeat": 0, "stack": "host", "nodes": 1}
    request |= {"gpus_per_node": 2, "device": "cpu", "start_timeout_seconds": 60, "argv": [], "git": None}
    request |= {"store_file": str(folder / f"{name}.jsonl"), "error_dir": str(folder), "cells": cells}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(request))
    line = [sys.executable, str(BENCH / "start_ranks.py"), "--nproc-per-node=2", str(program), "--request", str(path)]
    subprocess.run(line, check=True, capture_output=True)
    records = [json.loads(text) for text in Path(request["store_file"]).read_text().splitlines()]
    records = [record for record in records if record["kind"] == "record"]
    found = {int(record["cell"]): list(map(max, *record["samples_ns"])) for record in records}
    return {size: statistics.median(samples) for size, samples in found.items()}


def spec(message_bytes: int) -> dict:
    parameters = {"operation": "all_reduce", "message_bytes": message_bytes, "dtype": "fp32", "algorithm": "torch"}
    version = next(line for line in (BENCH / "collective.py").read_text().splitlines() if line.startswith("VERSION"))
    known = {"benchmark": "collective", "version": int(version.split()[-1]), "cluster": "local", "device": "cpu"}
    return known | {"backend": "gloo", "nodes": 1, "gpus_per_node": 2, "parameters": parameters, "sampling": SAMPLING}


def reading_seconds() -> float:
    """Return the median time of one reading with the cores of this process."""
    from harness import host_load

    monitor, times = host_load.Monitor(True, sorted(os.sched_getaffinity(0)), None), []
    for _ in range(NUM_READINGS):
        begin = time.perf_counter()
        monitor.row()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


if __name__ == "__main__":
    main()
