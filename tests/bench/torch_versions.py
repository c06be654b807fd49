"""Run every program of the ranks once with several versions of torch, and print a table for docs/figures.md.

  python tests/bench/torch_versions.py 2.4.1 2.8.0            in an environment for each, deleted afterwards
  python tests/bench/torch_versions.py --keep 2.4.1           kept in /var/tmp/regatta-torch/2.4.1, and used again
  python tests/bench/torch_versions.py --python .venv/bin/python3     in an existing environment

This program needs the driver's packages, to freeze the campaign; the environments get torch, torchvision and numpy. Each
is about 5 GB and is downloaded from the package registry in a minute. On an idle machine with two cores, the ranks take
two minutes.
Exit codes: 0 if all works but what KNOWN lists, else 1.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "workflow" / "scripts" / "bench"
CAMPAIGN = ROOT / "config" / "campaigns" / "cpu" / "first-gpu-run.yaml"
RESULTS = "cpu-first-gpu-run"
ENVIRONMENTS = Path("/var/tmp/regatta-torch")
TORCHVISION_AHEAD = 15  # torch 2.4 and torchvision 0.19 are one pair, and so on
NUM_GROUPS = 300
MEASURE_MINUTES = 15

# Causes that are right: an older torch lacks it, or the registry has no torchvision for a new one yet.
KNOWN = (
    r"ValueError: strategy = 'fsdp': fully_shard needs a GPU before torch ",
    r"RuntimeError: torchvision is not installed in this environment",
)

GROUPS = f"""
import sys
sys.path.insert(0, {str(BENCH)!r})
import torch
import torch.distributed as dist
from harness import peers, process
ranks, store = peers.Ranks(0, 1, 0, torch.device("cpu")), dist.HashStore()
for number in range({NUM_GROUPS}):
    peers.begin_group(ranks, "gloo", store, f"group/{{number}}")
    assert peers.gather_rows([number], ranks) == [[number]]
    assert peers.largest_over_ranks([1, 2], ranks) == [1, 2]
    peers.end_group()
    if number % 10 == 0:
        process.release_memory()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="torch version, such as 2.4.1")
    parser.add_argument("--python", type=Path, action="append", default=[], help="an interpreter with torch")
    parser.add_argument(
        "--folder", type=Path, default=ENVIRONMENTS, help="folder for the environments (default: %(default)s)"
    )
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    options = parser.parse_args()
    if not options.versions and not options.python:
        parser.error("name a version of torch, or --python")
    rows = []
    for version in options.versions:
        folder = options.folder / version
        python, seconds, problem = make_environment(folder, version)
        rows.append({"torch": version, "problems": [problem]} if problem else try_torch(python))
        rows[-1]["install_s"] = seconds
        print(f"torch {version}: {json.dumps(rows[-1])}", file=sys.stderr, flush=True)
        if not options.keep:
            shutil.rmtree(folder)
    rows += [try_torch(python) for python in options.python]
    print(table(rows))
    sys.exit(1 if any(row["problems"] for row in rows) else 0)


def make_environment(folder: Path, version: str) -> tuple[Path, float | None, str | None]:
    """Make an environment with a version of torch. Returns its Python, the seconds, and what went wrong or None."""
    python, begin = folder / "bin" / "python3", time.monotonic()
    if (folder / "complete").exists():
        return python, None, None
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pair = f"torchvision==0.{int(version.split('.')[1]) + TORCHVISION_AHEAD}.*"
    for packages in ([f"torch=={version}", "numpy", pair], [f"torch=={version}", "numpy"]):
        line = [str(python), "-m", "pip", "install", "--quiet", "--no-input", *packages]
        # The constraints of a site may end before the newest version.
        done = subprocess.run(line, env=os.environ | {"PIP_CONSTRAINT": os.devnull}, capture_output=True, text=True)
        if done.returncode == 0:
            break
    else:
        return python, None, f"not installed: {last_line(done.stderr)}"
    (folder / "complete").touch()
    return python, round(time.monotonic() - begin, 1), None


def try_torch(python: Path) -> dict:
    """Run all programs with one interpreter. Returns the row of the table."""
    with tempfile.TemporaryDirectory(prefix="torch-versions-") as name:
        folder, begin = Path(name), time.monotonic()
        python = python.absolute()
        problems = [
            *run(python, ["-c", GROUPS], f"{NUM_GROUPS} process groups"),
            *run(python, ranks("preflight.py", "--request", write_preflight(folder)), "preflight.py"),
            *run(python, ranks("collective.py", "--message-bytes", "4096", "--max-seconds", "0.1"), "collective.py"),
        ]
        records, more = measure(python, folder)
        return {
            **versions_of(python),
            "ok": sum(record["status"] == "ok" for record in records),
            "known": sum(is_known(record) for record in records),
            "total": len(records),
            "problems": problems + more,
            "run_s": round(time.monotonic() - begin),
        }


def ranks(program: str, *arguments: str) -> list[str]:
    return [str(BENCH / "start_ranks.py"), "--nproc-per-node=2", str(BENCH / program), *arguments]


def run(python: Path, arguments: list[str], name: str) -> list[str]:
    """Run a program; return what went wrong."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    try:
        done = subprocess.run([python, *arguments], env=environment, capture_output=True, text=True, timeout=240)
    except subprocess.TimeoutExpired:
        return [f"{name}: hangs"]
    return [f"{name}: {last_line(done.stderr)}"] if done.returncode else []


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("start_ranks: ")]
    return lines[-1] if lines else "no output"


def write_preflight(folder: Path) -> str:
    """Write the request of a preflight with gloo on two ranks; return its path."""
    request = {"schema": 1, "stack": "host", "launch": "host-00", "nodes": 1, "gpus_per_node": 2, "device": "cpu"}
    request |= {"backends": ["gloo"], "start_timeout_seconds": 60, "out_file": str(folder / "seen.json")}
    request |= {"error_dir": str(folder / "errors"), "image": None, "image_id": None, "argv": []}
    (folder / "preflight.json").write_text(json.dumps(request))
    return str(folder / "preflight.json")


def measure(python: Path, folder: Path) -> tuple[list[dict], list[str]]:
    """Freeze the campaign, and measure it with the interpreter. Returns its records, and the causes of failures."""
    line = [sys.executable, str(ROOT / "workflow" / "scripts" / "freeze.py"), "--campaign", str(CAMPAIGN)]
    subprocess.run([*line, "--results", str(folder)], check=True)
    line = ["timeout", "--preserve-status", f"{MEASURE_MINUTES}m", python, BENCH / "run_batches.py", folder / RESULTS]
    subprocess.run(line, check=False, stdout=sys.stderr)
    launches = sorted((folder / RESULTS / "launches").glob("*.jsonl"))
    lines = [json.loads(text) for path in launches for text in path.read_text().splitlines()]
    records = [line for line in lines if line["kind"] == "record"]
    planned = json.loads(next((folder / RESULTS).glob("campaign.*.json")).read_text())["cells"]
    failed = [record for record in records if record["status"] != "ok" and not is_known(record)]
    causes = [f"{record['cell']}: {record['status']}: {record['cause']}" for record in failed]
    for log in sorted((folder / RESULTS).glob("batches/*/logs/*.log")) if causes else ():
        print(f"{log.name}:\n{log.read_text(errors='replace')[-6000:]}", file=sys.stderr)
    missing = len(planned) - len(records)
    return records, causes + ([f"{missing} cells without a record"] if missing else [])


def is_known(record: dict) -> bool:
    return record["status"] == "failed" and any(re.search(pattern, record["cause"]) for pattern in KNOWN)


def versions_of(python: Path) -> dict[str, str]:
    """Return the versions of Python, torch and torchvision."""
    found = {}
    for name, code in (("python", "platform"), ("torch", "torch"), ("torchvision", "torchvision")):
        wanted = "platform.python_version()" if name == "python" else f"{name}.__version__"
        done = subprocess.run([python, "-c", f"import {code}; print({wanted})"], capture_output=True, text=True)
        found[name] = done.stdout.strip() if done.returncode == 0 else "none"
    return found


def table(rows: list[dict]) -> str:
    """Return the rows as Markdown."""
    lines = ["| torch | torchvision | Python | cells ok | programs |", "|---|---|---|---|---|"]
    for row in rows:
        of_all = f"{row['ok']} of {row['total']}" if "total" in row else "n/a"
        known = f" ({row['known']} lack what they need)" if row.get("known") else ""
        outcome = "; ".join(row["problems"]) or "all ran"
        lines.append(
            f"| {row['torch']} | {row.get('torchvision', 'n/a')} | {row.get('python', 'n/a')} | {of_all}{known} | {outcome} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
