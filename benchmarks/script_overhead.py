"""A training script timed by its own loop, under Regatta and without it, in alternating launches on this machine.

  python3 benchmarks/script_overhead.py                  two gloo ranks on CPUs
  python3 benchmarks/script_overhead.py --ranks 1 --width 4096 --layers 8 --batch-size 512       on a GPU

Each of 10 rounds has three launches in changing order: alone, under Regatta, and alone again. Printed: the ratio of the
step times, Regatta / alone, and that of both launches alone (A/A), with 95 % t intervals of the logarithm over rounds.
The goal: the first interval is within 1 % of 1, or within the second.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import ROOT, SCRIPTS, Figure, mean_interval, report

BENCH = SCRIPTS / "bench"
SCRIPT = ROOT / "tests" / "gpu" / "script_checks" / "plain_ddp.py"
GOAL_PERCENT = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, metavar="COUNT")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400, help="of which the second half is timed")
    for name, default in (("width", 256), ("layers", 4), ("batch-size", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    kinds = ["alone", "regatta", "again"]
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    measured = []
    for number in range(options.rounds):
        for kind in [*kinds[number % 3 :], *kinds[: number % 3]]:
            own_s, regatta_s = launch(options, kind == "regatta")
            times[kind].append(own_s)
            measured += [regatta_s / own_s] if regatta_s else []
    found, noise = (mean_interval(np.divide(times[kind], times["alone"])) for kind in ("regatta", "again"))
    print(
        f"{options.rounds} rounds, {options.ranks} ranks, step {statistics.median(times['alone']) * 1e3:.3f} ms alone"
    )
    print("script's step time, Regatta / alone: {:.4f} (95 % interval {:.4f} to {:.4f})".format(*found))
    print("the same, alone / alone (A/A):       {:.4f} (95 % interval {:.4f} to {:.4f})".format(*noise))
    print(f"step time of Regatta / that of the script's loop, one launch: {statistics.median(measured):.4f} (median)")
    farthest, of_noise = (100 * max(abs(low - 1), abs(high - 1)) for _, low, high in (found, noise))
    goal = max(GOAL_PERCENT, of_noise)
    report(Figure("script under Regatta / alone: farthest end of the interval from 1", farthest, "%", goal))
    sys.exit(0 if farthest <= goal else 1)


def launch(options: argparse.Namespace, is_under_regatta: bool) -> tuple[float, float | None]:
    """Run the script once; return the seconds of a step by its own loop, and by Regatta if it measures."""
    with tempfile.TemporaryDirectory() as name:
        own, record = Path(name) / "own", Path(name) / "record.json"
        arguments = [f"--{key}={getattr(options, key.replace('-', '_'))}" for key in ("width", "layers", "batch-size")]
        arguments += [f"--steps={options.steps}", f"--time={own}"]
        starter, program = ["-m", "torch.distributed.run", "--standalone"], [str(SCRIPT), *arguments]
        if is_under_regatta:  # its steps end after the script has written its time
            starter, half = [str(BENCH / "start_ranks.py")], options.steps // 2
            program = [str(BENCH / "script.py"), "--script", str(SCRIPT), f"--warmup={half + 1}", "--json", str(record)]
            program += [f"--measure={options.steps + 3 - half}", "--device", device()]
            program += [f"--argument={word}" for word in arguments]
        line = [sys.executable, *starter, f"--nproc-per-node={options.ranks}", *program]
        done = subprocess.run(line, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(line)} failed:\n{done.stdout}{done.stderr}")
        return float(own.read_text().split()[0]), window_step(
            json.loads(record.read_text())
        ) if record.exists() else None


def device() -> str:
    return "cuda" if Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidia0").exists() else "cpu"


def window_step(record: dict) -> float:
    """Return the seconds of a step that Regatta measured."""
    slowest = [max(of_ranks) for of_ranks in zip(*record["windows"]["elapsed_ns"], strict=True)]
    return sum(slowest) / len(slowest) / record["windows"]["steps_per_window"] / 1e9


if __name__ == "__main__":
    main()
