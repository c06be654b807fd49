"""Ranks that cannot start, and invalid requests: rejected or recorded, and never run."""

import json

from drills import UNTIL_MEASURED, campaign, change_srun, fake_campaign, report_says


def test_srun_giving_fewer_tasks_than_asked_is_a_failure_of_placement(site):
    path = change_srun(site, {"--nodes=2": "--nodes=1", "--ntasks=4": "--ntasks=2"})
    python = site.cluster.python
    site.write(campaign({"host": {"kind": "host", "python": python}}, repeats=1))
    done = site.cluster.run(["env", path, *site.line()], cwd=site.folder, timeout=200, check=False)
    assert done.returncode == 4
    held = json.loads(next(site.results.glob("preflight/*.json")).read_text())["stacks"][0]["verdict"]
    assert not held["ok"]
    assert "2 found, 4" in str(held["problems"])
    assert site.records() == []
    report_says(site, "drill", "world size: 2 found, 4 expected (2 x 2 ranks)")


def test_a_missing_image_is_told_before_anything_is_submitted(site):
    stack = {"kind": "contained", "image": "/shared/no such.sif"}
    site.write(campaign({"contained": stack}))
    done = site.snakemake(check=False)
    assert done.returncode == 2
    assert "campaign.yaml:10: stacks.contained.image " in done.stderr
    assert "Traceback" not in done.stderr
    assert not (site.host_folder / "results" / "drill" / "batches").exists()
    assert site.cluster.squeue() == {}


def test_hostile_values_reach_neither_a_shell_nor_a_job(site):
    hostile = "$(touch /shared/pwned); `touch /shared/pwned` 'a\" b"
    shapes = [{"nodes": [2], "gpus_per_node": [1]}]
    site.write(
        fake_campaign(site, {"HOSTILE": hostile, "OMP_PROC_BIND": hostile}, repeats=1, shapes=shapes),
        sbatch=[f"--mail-user={hostile}"],
    )
    site.snakemake(*UNTIL_MEASURED)
    assert site.statuses() == {"ok": 4}
    header = next(line for line in site.lines() if line["kind"] == "launch")
    assert header["environment"]["variables"]["OMP_PROC_BIND"] == hostile
    in_a_word = "$(touch${IFS}/shared/pwned);`touch${IFS}/shared/pwned`'a\""  # a constraint has no spaces
    site.write(fake_campaign(site, repeats=2), constraint=in_a_word, partition="main")
    done = site.snakemake("--retries", "0", check=False)
    assert done.returncode == 4  # other variables, other cells
    assert not (site.cluster.shared / "pwned").exists()


def test_pretend_gpus_are_asked_for_and_a_rank_without_one_says_so(site):
    stack = {"kind": "host", "python": site.cluster.python}
    shapes = [{"nodes": [1], "gpus_per_node": [2]}]
    site.write(campaign({"host": stack}, device="cuda", backend=["nccl"], shapes=shapes, repeats=1))
    assert site.snakemake(timeout=200, check=False).returncode == 4
    verdict = json.loads(next(site.results.glob("preflight/*.json")).read_text())["stacks"][0]["verdict"]
    assert "CUDA_VISIBLE_DEVICES='0,1'" in str(verdict["problems"])
    report_says(site, "drill", verdict["problems"][0])
