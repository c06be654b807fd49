"""Run a campaign from a Slurm job instead of a login session: the job runs Snakemake, which submits the batches.

python workflow/scripts/submit.py config/my.yaml --profile profiles/slurm
python workflow/scripts/submit.py config/my.yaml --sbatch=--partition=serial --sbatch=--time=2-00:00:00 plan

The job needs one core, and sbatch must be allowed on compute nodes. It uses partition, account, QOS and reservation of
the cluster file; --sbatch options override them. Two minutes before its time limit, it stops the campaign, which
cancels the batches; submit it again to continue. All other arguments are passed to run_campaign.py.
"""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from regatta.campaign.load import load_campaign
from regatta.core.errors import UserError, run_script
from regatta.launchers.slurm_queue import environment

FROM_CLUSTER = ("partition", "account", "qos", "reservation")
SECONDS_TO_STOP = 120
ELSEWHERE = "Select another partition, such as --sbatch=--partition=serial, or run the campaign on a login node."
# Snakemake and srun would act on the variables of this job. SLURM_CONF and SLURM_CLUSTERS stay.
SCRIPT = """#!/bin/bash
for name in "${{!SLURM_@}}" "${{!SLURMD_@}}"; do
    case $name in SLURM_CONF | SLURM_CLUSTERS) ;; *) unset "$name" ;; esac
done
cd -- {folder} && exec {command}
"""


def sbatch_line(name: str, cluster: dict, log: Path, options: list[str]) -> list[str]:
    """Return the sbatch line of the job. options: from the user; they override the others."""
    given = [f"--{key}={cluster[key]}" for key in FROM_CLUSTER if cluster[key] is not None]
    minutes = cluster["max_walltime_minutes"]
    given += [f"--time={minutes}"] if minutes is not None else []
    fixed = [f"--job-name=regatta-{name}", "--ntasks=1", "--cpus-per-task=1", f"--signal=B:TERM@{SECONDS_TO_STOP}"]
    return ["sbatch", "--parsable", f"--output={log}", *fixed, *given, *options]


def check_room(cluster: dict, shapes: list[tuple[int, int]], options: list[str], is_sweep: bool) -> None:
    """Raise UserError if this job would occupy a node that a batch needs: the batch would never start."""
    if is_sweep and cluster["exclusive"] and not _is_elsewhere(options):
        raise UserError(f"A sweep waits for its nodes, and this job could occupy one of them. {ELSEWHERE}")
    largest = max((nodes for nodes, _ in shapes), default=0)
    if cluster["exclusive"] and largest >= cluster["num_nodes"] and not _is_elsewhere(options):
        raise UserError(
            f"A shape needs all {cluster['num_nodes']} nodes of cluster {cluster['name']}; this job would occupy one."
            f" {ELSEWHERE}"
        )


def _is_elsewhere(options: list[str]) -> bool:
    """Return whether options of sbatch select other nodes than those of the batches."""
    return any(option.startswith(("--partition=", "-p", "--exclude=", "-x", "--nodelist=", "-w")) for option in options)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("campaign", type=Path, help="campaign file")
    parser.add_argument("--profile", default="profiles/slurm", help="Snakemake profile (default: profiles/slurm)")
    parser.add_argument("--sbatch", action="append", default=[], metavar="OPTION", help="option of sbatch, repeatable")
    known, others = parser.parse_known_args()
    campaign = load_campaign(known.campaign)
    if campaign.cluster["scheduler"] != "slurm":
        raise UserError(
            f"Cluster {campaign.cluster['name']} does not use Slurm. Start the campaign with make campaign."
        )
    for cluster, shapes in campaign.places():
        if cluster["partition"] == campaign.cluster["partition"]:  # else on nodes of another type
            check_room(cluster, shapes, known.sbatch, campaign.data["sweep"] is not None)
    logs = Path("results") / campaign.name / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    script = Path(__file__).with_name("run_campaign.py").resolve()
    line = [sys.executable, script, known.campaign, "--profile", known.profile, *others]
    text = SCRIPT.format(folder=shlex.quote(str(Path.cwd())), command=shlex.join(map(str, line)))
    sbatch = sbatch_line(campaign.name, campaign.cluster, logs.resolve() / "driver-%j.log", known.sbatch)
    try:
        done = subprocess.run(sbatch, input=text, text=True, capture_output=True, env=environment())
    except FileNotFoundError:
        raise UserError("sbatch was not found. Run this on a login node of the cluster.") from None
    if done.returncode:
        raise UserError(f"sbatch failed: {done.stderr.strip() or f'exit status {done.returncode}'}")
    job = done.stdout.strip().partition(";")[0]
    watch = f"make watch CONFIG={shlex.quote(str(known.campaign))}"
    print(f"Job {job} runs the campaign. Log: {logs}/driver-{job}.log. Progress: {watch}")
    print(f"To stop it and still get a report: scancel --batch --signal=TERM {job}")


if __name__ == "__main__":
    run_script(main)
