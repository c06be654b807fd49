"""Shared helpers of `make bench`: campaigns in a separate folder, timed commands, and figures with goals."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import yaml

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "workflow" / "scripts"
sys.path.insert(0, str(SCRIPTS))  # the driver's modules, for whoever imports this one first
COLLECTED = "REGATTA_FIGURES"  # names the file to which figures are appended; set by run_all.py


@dataclass(frozen=True)
class Figure:
    """A measured value and its goal: at most, or at least, `goal`. value is None where it could not be measured."""

    name: str
    value: float | None
    unit: str
    goal: float
    is_minimum: bool = False

    @property
    def is_met(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.goal if self.is_minimum else self.value <= self.goal


def report(*figures: Figure) -> None:
    """Print figures, and append them to the table of `make bench`."""
    for figure in figures:
        print(f"{figure.name}: {show(figure.value, figure.unit)} ({show_goal(figure)})", flush=True)
    if path := os.environ.get(COLLECTED):
        with open(path, "a") as file:
            file.writelines(json.dumps(asdict(figure)) + "\n" for figure in figures)


def is_full(description: str, text: str) -> bool:
    """Return whether a simulation runs with --full."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help=text)
    return parser.parse_args().full


def print_missed(missed: list[str]) -> int:
    """Print which goals were missed; return the exit status."""
    print("; ".join(["Missed", *missed]) if missed else "All goals are met.")
    return int(bool(missed))


def mean_interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean of ratios, and the ends of its 95 % t interval."""
    from scipy.stats import ttest_1samp

    logs = np.log(ratios)
    return tuple(np.exp([logs.mean(), *ttest_1samp(logs, 0).confidence_interval()]).tolist())


def print_head(*names: object) -> None:
    """Print the first two lines of a table in Markdown."""
    print(f"| {' | '.join(map(str, names))} |\n|{'---|' * len(names)}", flush=True)


def show(value: float | None, unit: str) -> str:
    """Return a value with three significant digits and its unit."""
    if value is None:
        return "not measured"
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}".rstrip(".")
    return f"{text} {unit}".strip()


def show_goal(figure: Figure) -> str:
    return f"{'at least' if figure.is_minimum else 'at most'} {figure.goal:g} {figure.unit}".strip()


def campaign(name: str, benchmarks: list[dict], **changes) -> dict:
    """Return a campaign for this machine on 1x2, all else as `changes` say."""
    base = {
        "schema": 1,
        "name": name,
        "cluster": "local",
        "device": "cpu",
        "backend": ["gloo"],
        "stacks": {"host": {"kind": "host"}},
        "shapes": [{"nodes": [1], "gpus_per_node": [2]}],
        "repeats": 1,
        "benchmarks": benchmarks,
    }
    return base | changes


def snakemake_line(folder: Path, data: dict, *arguments: str) -> list[str]:
    """Write a campaign into `folder`, and return the line that runs it there."""
    path = folder / f"{data['name']}.yaml"
    path.write_text(yaml.safe_dump(data))
    head = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
    return [*head, "--profile", str(ROOT / "profiles" / "local"), *arguments, "--configfile", str(path)]


def run(folder: Path, data: dict) -> None:
    """Run Snakemake on a campaign in `folder`. Ends this program if it fails."""
    line = snakemake_line(folder, data)
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(line)} failed:\n{done.stdout}{done.stderr}")


def clone(folder: Path) -> Path:
    """Clone the last commit of this repository into a folder, for what writes results or configuration."""
    path = folder / "regatta"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(path)], check=True)
    return path


@dataclass(frozen=True)
class Cost:
    """What a command took. peak_mb: memory of its largest process."""

    seconds: float
    cpu_s: float
    peak_mb: float


def timed(line: list[object], folder: Path = ROOT, passes: tuple[int, ...] = (0,)) -> Cost:
    """Run a command and return its cost. Ends this program if it fails. passes: statuses that are no failure."""
    begin, line = time.monotonic(), [str(word) for word in line]
    process = subprocess.Popen(line, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - begin
    if os.waitstatus_to_exitcode(status) not in passes:
        sys.exit(f"{' '.join(line)} failed")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6)
