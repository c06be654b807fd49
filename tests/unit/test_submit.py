"""`make submit`: what reaches sbatch, and what the job finds in its environment."""

import functools
import json
import os
import subprocess
import sys

import pytest
import yaml
from campaign_files import CLUSTER, SLURM, program

import submit
from regatta.campaign.load import load_campaign
from regatta.core.errors import UserError

SBATCH = f"""exec {sys.executable} -c '
import json, os, sys
json.dump([sys.argv[1:], sys.stdin.read()], open("sbatch.json", "w"))
open("clusters", "w").write(os.environ.get("SLURM_CLUSTERS", ""))
print("4711;cluster")
' "$@"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with a campaign of one node on a cluster of two, and with an sbatch that keeps its input."""
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "sbatch", SBATCH)
    clusters = tmp_path / "config" / "clusters"
    clusters.mkdir(parents=True)
    cluster = CLUSTER | SLURM | {"name": "tiny", "num_nodes": 2, "partition": "gpu", "max_walltime_minutes": 90}
    (clusters / "tiny.yaml").write_text(yaml.safe_dump(cluster))
    campaign = {
        "schema": 1, "name": "night", "cluster": "tiny", "device": "cpu", "backend": ["gloo"],
        "stacks": {"host": {"kind": "host", "python": sys.executable}},
        "shapes": [{"nodes": [1], "gpus_per_node": [2]}], "repeats": 1,
        "benchmarks": [{"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": [4096]}}],
    }  # fmt: skip
    (tmp_path / "my campaign.yaml").write_text(yaml.safe_dump(campaign))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(submit, "load_campaign", functools.partial(load_campaign, clusters=clusters))
    return tmp_path


@pytest.fixture
def run(monkeypatch):
    def main(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["submit.py", "my campaign.yaml", *arguments])
        submit.main()

    return main


def test_the_job_runs_the_campaign_with_the_place_of_the_cluster_file(folder, run, capsys, wording):
    run("--sbatch=--partition=serial", "--sbatch=--mem=4G", "plan")
    options, script = json.loads((folder / "sbatch.json").read_text())
    assert options[:2] == ["--parsable", f"--output={folder}/results/night/logs/driver-%j.log"]
    assert {"--job-name=regatta-night", "--ntasks=1", "--time=90", "--signal=B:TERM@120"} <= set(options)
    assert [option for option in options if option.startswith("--partition")] == [
        "--partition=gpu",
        "--partition=serial",
    ]
    assert options[-1] == "--mem=4G"
    wording(script.splitlines()[-1])
    printed = capsys.readouterr().out
    assert "results/night/logs/driver-4711.log" in printed
    assert "CONFIG='my campaign.yaml'" in printed
    assert (folder / "results" / "night" / "logs").is_dir()


def test_the_job_starts_the_run_without_the_variables_of_its_own_allocation(folder, run):
    run()
    _, script = json.loads((folder / "sbatch.json").read_text())
    head, _, _ = script.rpartition("exec ")
    slurm = {"SLURM_JOB_ID": "4711", "SLURM_CONF": "/etc/slurm.conf", "SLURM_NTASKS": "1", "SLURMD_NODENAME": "n1"}
    shown = subprocess.run(["bash", "-c", f"{head} env"], env=slurm, capture_output=True, text=True, check=True).stdout
    assert {line.partition("=")[0] for line in shown.splitlines() if "SLURM" in line} == {"SLURM_CONF"}
    assert f"PWD={folder}" in shown.splitlines()


def test_the_job_is_submitted_to_the_cluster_of_the_cluster_file(folder, run):
    path = folder / "config" / "clusters" / "tiny.yaml"
    path.write_text(path.read_text() + "clusters: blue\n")
    run()
    assert (folder / "clusters").read_text() == "blue"
    path.write_text(path.read_text().replace("clusters: blue\n", ""))
    run()
    assert (folder / "clusters").read_text() == ""


def test_a_job_that_would_hold_a_node_of_a_batch_is_refused(wording):
    cluster = {"exclusive": True, "num_nodes": 2, "name": "tiny"}
    with wording.raises(UserError):
        submit.check_room(cluster, [(1, 2), (2, 2)], ["--mem=4G"], False)
    submit.check_room(cluster, [(1, 2), (2, 2)], ["--partition=serial"], False)
    submit.check_room(cluster | {"exclusive": False}, [(1, 2), (2, 2)], [], False)
    submit.check_room(cluster, [(1, 2)], [], False)


def test_shapes_on_other_nodes_than_the_driver_do_not_matter(folder, run):
    path = folder / "config" / "clusters" / "tiny.yaml"
    types = {"big": {"partition": "big", "num_nodes": 8}}
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"exclusive": True, "node_types": types}))
    campaign = folder / "my campaign.yaml"
    shapes = [{"nodes": [8], "gpus_per_node": [2], "node_type": "big"}]
    campaign.write_text(yaml.safe_dump(yaml.safe_load(campaign.read_text()) | {"shapes": shapes}))
    run()
    assert (folder / "sbatch.json").exists()


def test_a_sweep_is_not_submitted_to_its_own_nodes():
    """Its job would wait for the node that the driver occupies until the driver's time is over."""
    cluster = {"exclusive": True, "num_nodes": 9, "name": "tiny"}
    with pytest.raises(UserError, match="--sbatch=--partition"):
        submit.check_room(cluster, [(1, 2)], [], True)
    submit.check_room(cluster, [(1, 2)], ["--partition=serial"], True)
    submit.check_room(cluster, [(1, 2)], ["--exclude=n[1-2]"], True)
    submit.check_room(cluster | {"exclusive": False}, [(1, 2)], [], True)


def test_what_sbatch_says_and_a_cluster_without_slurm_are_errors_of_the_user(folder, run, wording):
    program(folder / "bin" / "sbatch", "echo 'sbatch: error: invalid partition' >&2; exit 1\n")
    with pytest.raises(UserError, match="invalid partition"):
        run()
    (folder / "config" / "clusters" / "tiny.yaml").write_text(yaml.safe_dump(CLUSTER | {"gpus_per_node": 1}))
    with wording.raises(UserError):
        run()
