"""Executors of Snakemake other than Regatta's, and Snakemake's options for resources, on a substitute for Slurm."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import fake_slurm
import pytest
import yaml
from campaigns import QUICK_REPORT, ROOT, fake_campaign, record_lines, snakemake, write_campaign

import warm_start

SITE = {"schema": 1, "name": "site", "scheduler": "slurm", "num_nodes": 4, "gpus_per_node": 2, "cpus_per_rank": 3}
PARENT = """
configfile: "campaign.yaml"

module regatta:
    snakefile: "ROOT/workflow/Snakefile"
    config: config

use rule * from regatta as regatta_*

rule count:
    input: rules.regatta_analyse.output.measurements
    output: "rows.txt"
    threads: 2
    resources: slurm_account="others", runtime=7, slurm_extra="--nice=5"
    shell: "grep -c ,ok, {input} > {output}"
"""
FAKE_RANKS = ROOT / "tests" / "cluster" / "fake_ranks.py"
PLUGINS = ROOT / "workflow" / "plugins"


@pytest.fixture
def site(tmp_path) -> dict[str, str]:
    return fake_slurm.install(tmp_path)


def run(folder: Path, variables: dict[str, str], *words: str, cluster: dict | None = None, **changes):
    """Run a campaign of 2×2 ranks on the cluster, and return the process that has ended."""
    (folder / "site.yaml").write_text(yaml.safe_dump(SITE | (cluster or {})))
    shapes = [{"nodes": [2], "gpus_per_node": [2]}]
    stacks = {"host": {"kind": "host", "python": str(FAKE_RANKS)}}
    campaign = fake_campaign(cluster="./site.yaml", shapes=shapes, repeats=1, stacks=stacks, **changes)
    path = write_campaign(folder, campaign)
    line = [
        sys.executable,
        "-m",
        "snakemake",
        "--snakefile",
        str(ROOT / "Snakefile"),
        *words,
        "--configfile",
        str(path),
    ]
    paths = [
        *([PLUGINS] if "cluster-generic" not in words else []),
        *filter(None, [QUICK_REPORT["PYTHONPATH"], os.environ.get("PYTHONPATH")]),
    ]
    environment = os.environ | QUICK_REPORT | variables | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)


@pytest.mark.slow
def test_a_campaign_runs_with_cluster_generic(tmp_path, site):
    if importlib.util.find_spec("snakemake_executor_plugin_cluster_generic") is None:
        pytest.skip("needs snakemake-executor-plugin-cluster-generic")
    submit = "sbatch --cpus={threads} --tasks-per-node={resources.tasks_per_node} {resources.options}"
    words = ["--executor", "cluster-generic", "--cluster-generic-submit-cmd", submit, "--jobs", "4"]
    done = run(tmp_path, site, *words, cluster={"sbatch": ["--wckey=a b"]})
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = fake_slurm.requests(tmp_path)
    assert len(jobs) == 2  # the preflight and the batch
    assert not [option for options in jobs for option in options if option.startswith("--signal")]  # only Regatta's own
    for options in jobs:
        assert {"--cpus=3", "--tasks-per-node=2", "--nodes=2", "--ntasks-per-node=2", "--wckey=a b"} <= {*options}
    records = record_lines(tmp_path / "results" / "small")
    assert {record["status"] for record in records} == {"ok"}
    assert len(records) > 0


@pytest.mark.slow
def test_set_resources_beat_the_cluster_file_and_it_beats_default_resources_of_a_users_profile(tmp_path, site):
    mine = tmp_path / "mine"
    mine.mkdir()
    defaults = {"slurm_partition": "low", "slurm_account": "me", "qos": "low", "runtime": 9, "mem_mb": 7, "nodes": 9}
    profile = {"default-resources": defaults, "set-resources": {"measure": {"constraint": "ib&a100"}}}
    (mine / "config.yaml").write_text(yaml.safe_dump(profile))
    words = ["--profile", str(ROOT / "profiles" / "slurm"), "--profile", str(mine)]
    words += ["--seconds-between-status-checks", "1", "--latency-wait", "5"]
    done = run(tmp_path, site, *words, cluster={"partition": "p", "qos": "q", "constraint": "v100"})
    assert done.returncode == 0, done.stdout + done.stderr
    preflight, batch = ({*options} for options in fake_slurm.requests(tmp_path))
    assert {"--partition=p", "--account=me", "--qos=q", "--nodes=2", "--constraint=v100"} <= preflight
    assert {"--partition=p", "--account=me", "--qos=q", "--nodes=2", "--constraint=ib&a100"} <= batch
    assert not {"--time=9", "--mem=7", "--nodes=9"} & (preflight | batch)
    # Another run, of what is new: options of the command line replace those of a profile.
    path = tmp_path / "more"
    (path / "jobs").mkdir(parents=True)
    site |= {"FAKE_SLURM": str(path / "jobs")}
    words += ["--set-resources", "measure:runtime=2h", "measure:slurm_partition=high", "measure:slurm_account=them"]
    words += ["measure:qos=high", "preflight:runtime=attempt*11", "--forcerun", "preflight"]
    done = run(tmp_path, site, *words, cluster={"partition": "p", "qos": "q"}, name="other")
    assert done.returncode == 0, done.stdout + done.stderr
    preflight, batch = ({*options} for options in fake_slurm.requests(path))
    assert {"--time=11", "--partition=p", "--account=me", "--qos=q"} <= preflight
    assert {"--time=120", "--partition=high", "--account=them", "--qos=high"} <= batch


@pytest.mark.slow
def test_regattas_executor_also_submits_the_rules_of_a_workflow_of_which_it_is_a_module(tmp_path, site):
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(SITE | {"account": "us", "max_walltime_minutes": 100}))
    shapes, stacks = [{"nodes": [2], "gpus_per_node": [2]}], {"host": {"kind": "host", "python": str(FAKE_RANKS)}}
    campaign = fake_campaign(cluster="./site.yaml", shapes=shapes, stacks=stacks, repeats=1)
    (tmp_path / "campaign.yaml").write_text(yaml.safe_dump(campaign))
    (tmp_path / "Snakefile").write_text(PARENT.replace("ROOT", str(ROOT)))
    words = ["--profile", str(ROOT / "profiles" / "slurm"), "--seconds-between-status-checks", "1", "rows.txt"]
    environment = os.environ | QUICK_REPORT | site | {"PYTHONPATH": f"{PLUGINS}:{QUICK_REPORT['PYTHONPATH']}"}
    line = [sys.executable, "-m", "snakemake", *words, "--latency-wait", "5", "--retries", "0"]
    line += ["--set-resources", "regatta_measure:runtime=20"]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    preflight, batch, own = ({*options} for options in fake_slurm.requests(tmp_path))
    assert {"--account=us", "--nodes=2", "--ntasks-per-node=2", "--job-name=regatta-small-preflight"} <= preflight
    assert {"--account=us", "--time=20", "--signal=B:TERM@60", "--job-name=regatta-small-2x2"} <= batch
    assert {"--account=others", "--time=7", "--cpus-per-task=2", "--nice=5"} <= own
    num_ok = len(record_lines(tmp_path / "results" / "small"))
    assert (tmp_path / "rows.txt").read_text().strip() == str(num_ok)


def run_as_module(folder: Path, variables: dict[str, str], more: str = "", profile: str = "local"):
    (folder / "site.yaml").write_text(yaml.safe_dump(SITE))
    shapes, stacks = [{"nodes": [2], "gpus_per_node": [2]}], {"host": {"kind": "host", "python": str(FAKE_RANKS)}}
    write_campaign(folder, fake_campaign(cluster="./site.yaml", shapes=shapes, stacks=stacks, repeats=1))
    (folder / "Snakefile").write_text(PARENT.replace("ROOT", str(ROOT)).replace("\nrule count", f"{more}\nrule count"))
    words = ["--profile", str(ROOT / "profiles" / profile), "rows.txt"]
    environment = os.environ | QUICK_REPORT | variables
    environment["PYTHONPATH"] = f"{PLUGINS}:{QUICK_REPORT['PYTHONPATH']}"
    return warm_start.run([sys.executable, "-m", "snakemake", *words], cwd=folder, env=environment)


def test_a_module_does_not_measure_on_a_login_node(tmp_path, site, wording):
    done = run_as_module(tmp_path, site)
    assert done.returncode == 1, done.stdout + done.stderr
    wording.lines(done.stderr, "scheduler slurm")
    assert not list((tmp_path / "results" / "small").glob("preflight/*/*.log"))
    assert not record_lines(tmp_path / "results" / "small")


def test_a_changed_rule_cannot_lose_the_nodes_that_its_ranks_need(tmp_path, site, wording):
    changed = "\nuse rule measure from regatta as regatta_measure with:\n    resources: slurm_account='me'\n"
    done = run_as_module(tmp_path, site, changed, "slurm")
    assert done.returncode == 2, done.stdout + done.stderr
    wording.lines(done.stderr, "resources")
    assert not fake_slurm.requests(tmp_path)


REFUSED = "nodes=3 tasks=4 tasks_per_node=4 ntasks=4 mpi=srun gpu=1 gpus=1 gpus_per_node=1 gres=gpu:1 mem_mb=5 mem=5MB "
REFUSED += "mem_mb_per_cpu=5 cpus_per_task=2 slurm_extra=--nice options=--nodes=3 longest=5 most_jobs=5"


@pytest.mark.parametrize("given", REFUSED.split())
def test_what_decides_the_ranks_cannot_be_set_by_set_resources(tmp_path, given):
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(SITE))
    path = write_campaign(tmp_path, fake_campaign(cluster="./site.yaml"))
    for rule in ("measure", "preflight"):
        done = snakemake(tmp_path, path, "-n", "--set-resources", f"{rule}:{given}")
        name = given.partition("=")[0]
        assert done.returncode == 2
        assert f"--set-resources {rule}:{name} is" in done.stderr.replace("mem_mb is", f"{name} is")
        assert not (tmp_path / "results").exists()


def test_what_a_user_reads_of_resources_without_effect(tmp_path, wording):
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(SITE))
    path = write_campaign(tmp_path, fake_campaign(cluster="./site.yaml"))
    done = snakemake(tmp_path, path, "-n", "--set-resources", "measure:nodes=3")
    wording(done.stderr)
    done = snakemake(tmp_path, path, "-n", "--set-threads", "measure=7")
    assert done.returncode == 2
    wording.lines(done.stderr, "--set-threads")
    done = snakemake(tmp_path, path, "-n", "--default-resources", "nodes=3", "slurm_account=me", "mem_mb=5")
    assert done.returncode == 0
    wording.lines(done.stdout + done.stderr, "--default-resources")
