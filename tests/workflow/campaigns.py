"""Small campaigns for tests, and helpers that run them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import yaml

import warm_start
from regatta.topics.catalog import TABLES

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "workflow" / "scripts"
FAKE = Path(__file__).resolve().parent / "fake_launch.py"

# The tables and the report take seconds; most tests look only at when they are made, and from what.
QUICK_REPORT = {
    "PYTHONPATH": str(Path(__file__).resolve().parent / "quick_report"),
    "QUICK_REPORT_TABLES": ",".join(TABLES),
}
REAL_REPORT: dict[str, str] = {}

SAMPLING = {"min_seconds": 0.02, "max_seconds": 0.05, "max_warmup_seconds": 0.05}


def fake_campaign(faults: dict | None = None, env: dict | None = None, **changes) -> dict:
    """Return a campaign of 7 cells (and 3 skipped) whose launches are played by fake_launch.py."""
    variables = {"FAKE_FAULTS": json.dumps(faults or {}), **(env or {})}
    campaign = {
        "schema": 1,
        "name": "small",
        "cluster": "local",
        "device": "cpu",
        "backend": ["gloo"],
        "stacks": {"host": {"kind": "host", "python": str(FAKE), "env": variables}},
        "shapes": [{"nodes": [1], "gpus_per_node": [1, 2]}],
        "repeats": 2,
        "sampling": SAMPLING,
        "limits": {"cell_seconds": 30, "launch_start_seconds": 30},
        "benchmarks": [
            {
                "benchmark": "train_step",
                "parameters": {
                    "model": ["resnet18"],
                    "image_size": [64],
                    "batch_size": [2],
                    "strategy": ["none", "ddp"],
                    "bucket_cap_mb": [1, 25],
                },
            },
            {"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": [4096, 65536]}},
        ],
    }
    return campaign | changes


def write_campaign(folder: Path, campaign: dict, name: str = "campaign.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(campaign, sort_keys=False))
    return path


def frozen_batches(folder: Path, campaign: dict, *flags: str) -> list[Path]:
    """Freeze a campaign in `folder`, and return the folders of its batches that are still to be measured."""
    path = write_campaign(folder, campaign)
    script(folder, "freeze.py", "--campaign", str(path), *flags)
    results = folder / "results" / campaign["name"]
    return sorted(p.parent for p in results.glob("batches/*/batch.json") if not (p.parent / "manifest.json").exists())


def script(folder: Path, name: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess:
    return warm_start.script(name, *arguments, cwd=folder, check=check)


def snakemake(
    folder: Path, campaign: Path, *arguments: str, env: dict | None = None, **options
) -> subprocess.CompletedProcess:
    """Run the workflow in `folder` with profiles/local. env: variables that are added; default: QUICK_REPORT."""
    environment = os.environ | (QUICK_REPORT if env is None else env)
    return warm_start.run(snakemake_line(campaign, *arguments), cwd=folder, env=environment, **options)


def start_snakemake(folder: Path, campaign: Path, *arguments: str, **options) -> warm_start.Running:
    """Start the same, with its output in the file `output`."""
    line = snakemake_line(campaign, *arguments)
    return warm_start.start(line, folder / "output", cwd=folder, env=os.environ | QUICK_REPORT, **options)


def snakemake_line(campaign: Path, *arguments: str) -> list[str]:
    profile = ROOT / "profiles" / "local"
    head = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--profile", str(profile)]
    return [*head, *arguments, "--configfile", str(campaign)]  # last: it takes every word that follows for a file


def lines(results: Path) -> list[dict]:
    """Return all lines of a store that parse."""
    found = []
    for path in sorted((results / "launches").glob("*.jsonl")):
        for text in path.read_text().splitlines():
            try:
                found.append(json.loads(text) | {"file": path.name})
            except ValueError:
                continue
    return found


def record_lines(results: Path) -> list[dict]:
    return [line for line in lines(results) if line["kind"] == "record"]


def slots(results: Path) -> list[tuple[str, int]]:
    return sorted((record["cell"], record["repeat"]) for record in record_lines(results))


def wait_until(condition: Callable[[], object], what: str = "end of the wait", seconds: float = 200.0) -> None:
    """Wait until a condition holds; fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {seconds:g} s"
        time.sleep(0.05)


def processes_naming(text: str) -> list[int]:
    """Return the processes, other than this one, whose command line names `text`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if text in command:
                found.append(int(entry.name))
    return found
