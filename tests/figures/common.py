"""Run campaigns for the figures of `make bench`, in a separate folder."""

import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


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


def run(folder: Path, data: dict, *arguments: str) -> subprocess.CompletedProcess:
    """Run Snakemake on a campaign in `folder`. Raises CalledProcessError if it fails."""
    path = folder / f"{data['name']}.yaml"
    path.write_text(yaml.safe_dump(data))
    head = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
    line = [*head, "--profile", str(ROOT / "profiles" / "local"), *arguments, "--configfile", str(path)]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(line)} failed:\n{done.stdout}{done.stderr}")
    return done
