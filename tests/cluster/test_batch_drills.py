"""Failures within one batch on a real Slurm: the batch is measured to its end, and the report names the cause."""

import json

from drills import campaign, change_srun, fake_campaign, report_says

FOUR_SIZES = 4


def test_a_stack_whose_first_cells_fail_alike_is_given_up_and_the_other_measured_to_its_end(site):
    works = fake_campaign(site)["stacks"]["fake"]
    fails = works | {"env": {"FAKE_FAULTS": json.dumps({"all_reduce": "raise"})}}
    site.write(campaign({"works": works, "fails": fails}))
    site.pass_preflight()
    site.snakemake()
    counts: dict[tuple[str, str], int] = {}
    for record in site.records():
        key = (record["spec"]["stack"]["name"], record["status"])
        counts[key] = counts.get(key, 0) + 1
    assert counts == {("works", "ok"): 2 * FOUR_SIZES, ("fails", "failed"): 3, ("fails", "skipped"): 5}
    report_says(site, "drill", "rank 0 on fake: ValueError")


def test_ranks_that_srun_does_not_start_in_a_batch_fail_its_cells_and_nothing_is_timed(site):
    """The preflight has passed with the real srun."""
    site.write(campaign({"host": {"kind": "host", "python": site.cluster.python}}, repeats=1))
    site.pass_preflight()
    path = change_srun(site, {"--nodes=2": "--nodes=1", "--ntasks=4": "--ntasks=2"})
    site.own()
    done = site.cluster.run(["env", path, *site.line()], cwd=site.folder, timeout=200, check=False)
    assert done.returncode == 4
    records = site.records()
    assert len(records) == FOUR_SIZES
    assert {record["status"] for record in records} <= {"placement", "skipped"}
    assert records[0]["status"] == "placement"
    assert all(record["samples_ns"] is None for record in records)
    report_says(site, "drill", "world size: 2 found, 4 expected (2 x 2 ranks)")


def test_a_rank_that_leaves_early_is_named_when_srun_ends_the_others(site):
    env = {"FAKE_RANK_FAULTS": json.dumps({"all_reduce-4096-": "exit_early"})}
    site.write(fake_campaign(site, env, repeats=1))
    site.pass_preflight()
    path = change_srun(site, {"--wait=60": "--wait=3"})
    site.own()
    site.cluster.run(["env", path, *site.line()], cwd=site.folder, timeout=200)
    causes = {record["cell"].split("-")[2]: (record["status"], record["cause"]) for record in site.records()}
    status, cause = causes.pop("4096")
    assert status == "failed"
    assert "rank 1 " in cause
    assert set(causes.values()) == {("ok", None)}
    report_says(site, "drill", cause)
