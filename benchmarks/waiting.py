"""Processor time that Snakemake with Regatta takes on a login node while 1,000 batches wait in Slurm's queue.

Slurm's commands are shell scripts that answer from a file: every job that is submitted stays pending. Only Snakemake's
own process is counted, not these scripts.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import yaml
from common import Figure, campaign, clone, report

NUM_BATCHES = 1_000
SECONDS = 60
SUBMISSION_SECONDS = 900
SITE = {"schema": 1, "name": "full", "scheduler": "slurm", "num_nodes": NUM_BATCHES + 1, "gpus_per_node": 1}
PROGRAMS = {
    "sbatch": """\
for word; do case $word in --comment=*) comment=${word#--comment=} ;; esac; done
exec 9>>"$QUEUE.lock"; flock 9
job=$(($(wc -l <"$QUEUE") + 1000))
echo "$job|PENDING|regatta|$PWD|$comment" >>"$QUEUE"
echo "$job"
""",
    "squeue": """\
case "$*" in
*%Z*) cat "$QUEUE" ;;
*%r*) awk -F '|' '{print $1 "|Priority"}' "$QUEUE" ;;
*) awk -F '|' '{print $1 "|" $2}' "$QUEUE" ;;
esac
""",
    "scontrol": 'case "$*" in *config*) echo "MinJobAge = 300 sec" ;; '
    '*ping*) echo "Slurmctld(primary) is UP" ;; esac\n',
    "sacct": "exit 1\n",
    "sacctmgr": "exit 1\n",
    "scancel": "exit 0\n",
    "sinfo": "exit 0\n",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        queue, environment = make_slurm(Path(name))
        snakemake = start(clone(Path(name)), environment)
        try:
            begin = time.monotonic()
            while len(queue.read_text().splitlines()) < NUM_BATCHES:
                if snakemake.poll() is not None or time.monotonic() > begin + SUBMISSION_SECONDS:
                    sys.exit(
                        f"{len(queue.read_text().splitlines())} of {NUM_BATCHES} batches submitted: submission stalled"
                    )
                time.sleep(0.5)
            print(f"{NUM_BATCHES} batches submitted after {time.monotonic() - begin:.0f} s", flush=True)
            time.sleep(SECONDS / 4)
            busy, begin = cpu_seconds(snakemake.pid), time.monotonic()
            time.sleep(SECONDS)
            share = (cpu_seconds(snakemake.pid) - busy) / (time.monotonic() - begin)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(snakemake.pid, signal.SIGKILL)
            snakemake.wait()
    report(Figure(f"Snakemake's share of a core while {NUM_BATCHES:,} batches wait", 100 * share, "%", 5))


def make_slurm(folder: Path) -> tuple[Path, dict[str, str]]:
    """Write Slurm's commands, and return the file that is their queue and the environment in which they are found."""
    queue, programs = folder / "queue", folder / "bin"
    queue.touch()
    programs.mkdir()
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}")
        (programs / name).chmod(0o755)
    variables = {"PATH": f"{programs}:{os.environ['PATH']}", "QUEUE": str(queue), "PYTHONPATH": "workflow/plugins"}
    return queue, os.environ | variables


def start(folder: Path, environment: dict[str, str]) -> subprocess.Popen:
    """Start a campaign of one batch per number of nodes, whose preflight has passed, in a clone of this repository."""
    (folder / "config/clusters/full.yaml").write_text(yaml.safe_dump(SITE))
    entry = {"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": ["1MiB"]}}
    shapes = [{"nodes": list(range(2, NUM_BATCHES + 2)), "gpus_per_node": [1]}]
    stacks = {"host": {"kind": "host", "python": sys.executable}}
    data = campaign("waiting", [entry], shapes=shapes, cluster="full", stacks=stacks)
    path = folder / "campaign.yaml"
    path.write_text(yaml.safe_dump(data))
    freeze = [sys.executable, "workflow/scripts/freeze.py", "--campaign", str(path)]
    subprocess.run(freeze, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    for request in folder.glob("results/waiting/preflight/*/request.json"):
        passed = [{"stack": name, "verdict": {"ok": True, "problems": []}} for name in stacks]
        asked = json.loads(request.read_text())
        result = {key: asked[key] for key in ("nodes", "gpus_per_node", "backends")} | {"stacks": passed}
        request.parent.with_suffix(".json").write_text(json.dumps(result))
    line = [sys.executable, "-m", "snakemake", "--configfile", str(path), "--profile", "profiles/slurm"]
    line += ["--jobs", str(NUM_BATCHES)]
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    return subprocess.Popen(line, cwd=folder, env=environment, **options)


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process, without those that it started."""
    return sum(psutil.Process(pid).cpu_times()[:2])


if __name__ == "__main__":
    main()
