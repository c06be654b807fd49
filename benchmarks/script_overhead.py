"""A training script timed by its own loop, under Regatta and without it, in alternating launches on this machine.

  python3 benchmarks/script_overhead.py                  two gloo ranks on CPUs
  python3 benchmarks/script_overhead.py --ranks 1 --width 4096 --layers 8 --batch-size 512       on a GPU

Each of 10 rounds has three launches in changing order: alone, under Regatta, and alone again. Printed: the ratio of the
step times, Regatta / alone, and that of both launches alone (A/A), with 95 % t intervals of the logarithm over rounds.
The goal: the first interval is within 1 % of 1, or within the second. Needs torch; the rest is standard library.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "workflow" / "scripts" / "bench"
SCRIPT = ROOT / "tests" / "gpu" / "script_checks" / "plain_ddp.py"
T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 14: 2.145, 19: 2.093}
GOAL_PERCENT = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, choices=[n + 1 for n in T_95], metavar="COUNT")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400, help="of which the second half is timed")
    for name, default in (("width", 256), ("layers", 4), ("batch-size", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", type=Path, help="also write the times to this file")
    options = parser.parse_args()
    kinds = ["alone", "regatta", "again"]
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    measured = []
    for number in range(options.rounds):
        for kind in [*kinds[number % 3 :], *kinds[: number % 3]]:
            own_s, regatta_s = launch(options, kind == "regatta")
            times[kind].append(own_s)
            measured += [regatta_s / own_s] if regatta_s else []
    found, noise = ratio_interval(times["regatta"], times["alone"]), ratio_interval(times["again"], times["alone"])
    print(
        f"{options.rounds} rounds, {options.ranks} ranks, step {statistics.median(times['alone']) * 1e3:.3f} ms alone"
    )
    print("script's step time, Regatta / alone: {:.4f} (95 % interval {:.4f} to {:.4f})".format(*found))
    print("the same, alone / alone (A/A):       {:.4f} (95 % interval {:.4f} to {:.4f})".format(*noise))
    print(f"step time of Regatta / that of the script's loop, one launch: {statistics.median(measured):.4f} (median)")
    farthest, of_noise = (100 * max(abs(low - 1), abs(high - 1)) for _, low, high in (found, noise))
    if options.json:
        options.json.write_text(json.dumps({"times_s": times, "ratio": found, "noise": noise, "measured": measured}))
    if "REGATTA_FIGURES" in os.environ:  # by make bench
        from common import Figure, report

        goal = max(GOAL_PERCENT, of_noise)
        report(Figure("script under Regatta / alone: farthest end of the interval from 1", farthest, "%", goal))
    sys.exit(0 if farthest <= max(GOAL_PERCENT, of_noise) else 1)


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


def ratio_interval(numerators: list[float], denominators: list[float]) -> tuple[float, float, float]:
    """Return the geometric mean of the ratios, and the ends of its 95 % interval."""
    logs = [math.log(above / below) for above, below in zip(numerators, denominators, strict=True)]
    mean, half = statistics.fmean(logs), T_95[len(logs) - 1] * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


if __name__ == "__main__":
    main()
