"""Four nodes, one of which cannot start ranks: the batch continues on others, and only that node is avoided."""

import json
import re

import pytest
from drills import NUM_RECORDS, UNTIL_MEASURED, fake_campaign, held_campaign, report_says, submitted

NUM_NODES = 4


@pytest.fixture
def first_nodes(cluster):
    """Have Slurm take n1 and n2 before the others."""
    cluster.run(["scontrol", "update", "nodename=n[3-4]", "weight=10"], as_root=True)


def test_a_node_on_which_no_rank_starts_is_avoided_by_the_next_job_and_the_others_are_not(site, first_nodes):
    broken = site.host_folder / "broken"
    env = {"FAKE_BROKEN_NODES": f"{site.folder}/broken"}
    site.write(fake_campaign(site, env), num_nodes=NUM_NODES)
    site.pass_preflight()
    broken.write_text("n2\n")
    done = site.snakemake()
    assert [(job["kind"], job["hosts"]) for job in site.jobs()] == [("no_start", ["n2"])]
    assert re.match(r"rank [23] on n2: ", site.jobs()[0]["cause"])
    assert submitted(done.stderr) == 2
    assert site.statuses() == {"ok": NUM_RECORDS}
    report_says(site, "drill", "libfake.so: cannot open shared object file")

    # The node is avoided by the jobs of the next run, too, until it is cleared.
    [blamed] = [json.loads(line) for line in (site.results / "nodes.jsonl").read_text().splitlines()]
    assert (blamed["host"], blamed["kind"]) == ("n2", "blamed")
    assert "libfake.so" in blamed["cause"]
    before = last_job(site)
    broken.unlink()
    site.write(fake_campaign(site, env, repeats=3), num_nodes=NUM_NODES)
    site.snakemake()
    assert jobs_after(before, site) == ["n[1,3] without n2"]
    before = last_job(site)
    assert "Avoided node: " in site.report()
    assert blamed["cause"] in site.report()
    site.cluster.run([site.cluster.python, "workflow/scripts/clear_nodes.py", "campaign.yaml", "n2"], cwd=site.folder)
    site.write(fake_campaign(site, env, repeats=4), num_nodes=NUM_NODES)
    site.snakemake(*UNTIL_MEASURED)
    assert jobs_after(before, site) == ["n[1-2] without "]


def test_nodes_that_the_cluster_file_excludes_are_in_no_job(site, first_nodes):
    before = last_job(site)
    site.write(fake_campaign(site), num_nodes=NUM_NODES, exclude_nodes=["n1", "n[3-3]"])
    site.snakemake(*UNTIL_MEASURED)
    assert site.statuses() == {"ok": NUM_RECORDS}
    # the preflight's, and the batch's
    assert jobs_after(before, site, "rule_") == ["n[2,4] without n[1,3]"] * 2
    requests = [json.loads(path.read_text()) for path in site.results.glob("batches/*/launches/*.json")]
    assert {"--exclude=n1,n[3-3]" in request["argv"] for request in requests} == {True}


def test_a_node_that_is_avoided_comes_on_top_of_those_that_the_cluster_file_excludes(site, first_nodes):
    """The cluster file excludes n1, and no rank starts on n2: n3 and n4 are left. Slurm keeps the last --exclude alone."""
    broken = site.host_folder / "broken"
    env = {"FAKE_BROKEN_NODES": f"{site.folder}/broken"}
    site.write(fake_campaign(site, env), num_nodes=NUM_NODES, sbatch=["-x n1"])
    site.pass_preflight()
    before = last_job(site)
    broken.write_text("n2\n")
    site.snakemake(*UNTIL_MEASURED)
    assert [(job["kind"], job["hosts"]) for job in site.jobs()] == [("no_start", ["n2"])]
    assert site.statuses() == {"ok": NUM_RECORDS}
    assert jobs_after(before, site) == ["n[2-3] without n1", "n[3-4] without n[1-2]"]


def listed_jobs(site, columns: str) -> list[tuple[int, str]]:
    """Return the id of each job that Slurm still knows, and some columns of squeue. It forgets jobs after MinJobAge."""
    line = ["squeue", "--noheader", "--states=all", "--sort=i", f"--format=%i {columns}"]
    rows = [row.partition(" ") for row in site.cluster.run(line).stdout.splitlines()]
    return [(int(job), shown) for job, _, shown in rows]


def last_job(site) -> int:
    return max((job for job, _ in listed_jobs(site, "")), default=0)


def jobs_after(before: int, site, rule: str = "rule_measure") -> list[str]:
    """Return the nodes of each later job that measured a batch, and those that were excluded from it."""
    rows = [row.partition("|") for job, row in listed_jobs(site, "%k|%N without %x") if job > before]
    return [nodes for comment, _, nodes in rows if comment.startswith(rule)]


def test_the_node_of_the_supervisor_vanishes_and_the_report_says_what_slurm_knows(site, first_nodes):
    """Nobody is left to note it: the next job of the batch does."""
    site.write(held_campaign(site), num_nodes=NUM_NODES)
    site.pass_preflight()
    snakemake = site.popen()
    kept = site.wait_until_held()
    site.cluster.kill_node("n1")
    site.release()
    assert snakemake.wait(300) == 0
    site.cluster.start_node("n1")
    assert set(kept) <= set(site.slots())
    assert len(site.slots()) == len(set(site.slots())) == NUM_RECORDS
    assert [job["kind"] for job in site.jobs()] == ["stopped"]
    [job] = site.jobs()
    assert "NODE_FAIL" in job["cause"]
    report_says(site, "drill", job["cause"])


@pytest.mark.parametrize("owner", ["stack", "shape"])
def test_two_node_types_have_jobs_and_preflights_in_both_partitions(site, first_nodes, owner):
    types = {"brief": {"partition": "urgent", "num_nodes": 2}}
    before = last_job(site)
    campaign = fake_campaign(site, repeats=1)
    if owner == "stack":
        other = "on_brief"
        campaign["stacks"][other] = campaign["stacks"]["fake"] | {"node_type": "brief"}
    else:
        other = "fake-brief"
        campaign["shapes"] += [shape | {"node_type": "brief"} for shape in campaign["shapes"]]
    site.write(campaign, num_nodes=NUM_NODES, node_types=types)
    site.snakemake()
    assert site.statuses() == {"ok": NUM_RECORDS}
    partitions = [partition for job, partition in listed_jobs(site, "%P") if job > before]
    assert sorted(partitions) == ["main", "main", "urgent", "urgent"]  # the preflight's job, and the batch's
    specs = [record["spec"] for record in site.records()]
    assert {(spec["stack"]["name"], spec.get("node_type")) for spec in specs} == {("fake", None), (other, "brief")}
    assert len(list(site.results.glob("preflight/*.json"))) == 2
    site.snakemake()  # nothing is left, and the report is that of both preflights
    assert other in site.report()
    assert "did not check" not in site.report()
