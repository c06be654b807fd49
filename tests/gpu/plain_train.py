"""Compare train_step with a plain training loop timed by CUDA events: the same model, batch, optimizer and precision.

  python3 tests/gpu/plain_train.py                      alternate both, and print the ratio of their step times
  python3 tests/gpu/plain_train.py --once --json FILE   only the plain loop, once

Both run in separate processes, in turns (plain, train_step, train_step, plain, ...). train_step's time is that of its
pipelined windows, the plain loop's that of CUDA events around as many steps. The interval of the ratio is a 95 % t
interval of the logarithm over the pairs. Needs torch and torchvision; on a CPU (--device cpu) the clock replaces events.
Exit codes: 0, also if they differ; 1 if one of them failed.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "bench"
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # two-sided, by degrees of freedom from 1
WARMUP_STEPS = 10
NUM_WINDOWS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--pairs", type=int, default=3, choices=range(2, 11), metavar="2..10")
    parser.add_argument(
        "--seconds", type=float, default=1.5, help="measuring time per run, in seconds (default: %(default)s)"
    )
    parser.add_argument("--once", action="store_true", help="run the plain loop in this process")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    write(options, plain_step(options) if options.once else compare(options))


def write(options: argparse.Namespace, result: dict) -> None:
    """Print the result, and write it to the file of the command line."""
    print(json.dumps(result), flush=True)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def plain_step(options: argparse.Namespace) -> dict:
    """Return the time of a step of the plain loop, in milliseconds, for each window."""
    import torch
    import torchvision

    device = torch.device(options.device)
    torch.manual_seed(1)
    model = torchvision.models.get_model(options.model, weights=None, num_classes=1000).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(options.batch_size, 3, options.image_size, options.image_size, device=device)
    labels = torch.randint(1000, (options.batch_size,), device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=options.dtype == "bf16"):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    timed = window_on_gpu if options.device == "cuda" else window_on_cpu
    timed(step, WARMUP_STEPS)
    once = timed(step, 2)
    num_steps = max(2, round(options.seconds * 1e3 / NUM_WINDOWS / once))
    windows = [timed(step, num_steps) for _ in range(NUM_WINDOWS)]
    return {"step_ms": windows, "steps_per_window": num_steps, "torch": torch.__version__}


def window_on_gpu(step, num_steps: int) -> float:
    """Return milliseconds per step by CUDA events."""
    import torch

    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(num_steps):
        step()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / num_steps


def window_on_cpu(step, num_steps: int) -> float:
    begin = time.perf_counter()
    for _ in range(num_steps):
        step()
    return (time.perf_counter() - begin) * 1e3 / num_steps


def compare(options: argparse.Namespace) -> dict:
    """Run both in turns. Returns their times in milliseconds by pair, and the ratio train_step / plain.

    From the second pair on, the result is written after each, in case the time is up.
    """
    plain, train_step, result = [], [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for pair in range(options.pairs):
            turn = [(plain, run_plain), (train_step, run_train_step)]
            for times, run in turn if pair % 2 == 0 else turn[::-1]:
                times.append(run(options, folder / f"{pair}-{run.__name__}.json"))
            if pair:
                low, ratio, high = ratio_interval(plain, train_step)
                result = {"plain_ms": plain, "train_step_ms": train_step, "ratio": ratio, "low": low, "high": high}
                write(options, result)
    text = f"train_step / plain loop = {ratio:.4f} (95 % interval {low:.4f} to {high:.4f}, {options.pairs} pairs)"
    print(f"{options.model}, batch size {options.batch_size}, {options.dtype}, {options.device}: {text}")
    return result


def ratio_interval(plain: list[float], train_step: list[float]) -> tuple[float, float, float]:
    """Return the ratio train_step / plain with its 95 % interval: (low, ratio, high)."""
    logs = [math.log(mine / theirs) for theirs, mine in zip(plain, train_step, strict=True)]
    mean, half = statistics.fmean(logs), T_95[len(logs) - 2] * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean - half), math.exp(mean), math.exp(mean + half)


def shared_options(options: argparse.Namespace) -> list[str]:
    names = ("device", "model", "image_size", "batch_size", "dtype")
    return [word for name in names for word in (f"--{name.replace('_', '-')}", str(getattr(options, name)))]


def run_plain(options: argparse.Namespace, path: Path) -> float:
    """Return milliseconds per step of the plain loop, in a separate process."""
    line = [sys.executable, __file__, "--once", "--seconds", str(options.seconds), "--json", str(path)]
    run([*line, *shared_options(options)])
    return statistics.median(json.loads(path.read_text())["step_ms"])


def run_train_step(options: argparse.Namespace, path: Path) -> float:
    """Return milliseconds per step in train_step's windows, in a separate process."""
    line = [sys.executable, str(BENCH / "train_step.py"), "--strategy", "none", "--json", str(path)]
    line += ["--min-seconds", "0.2", "--max-seconds", "0.5", "--max-warmup-seconds", "2"]
    run([*line, "--windows-ratio", str(options.seconds / 0.5), *shared_options(options)])
    windows = json.loads(path.read_text())["windows"]
    return statistics.median(windows["elapsed_ns"][0]) / windows["steps_per_window"] / 1e6


def run(line: list[str]) -> None:
    own = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(line)} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
