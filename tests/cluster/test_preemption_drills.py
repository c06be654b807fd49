"""Jobs are preempted for real: their measurements are kept, and the batch resumes when nodes are free."""

import subprocess

import pytest
from drills import NUM_RECORDS, Site, held_campaign, report_says, submitted
from slurm import wait_until


def begin(site: Site, **facts: object) -> tuple[subprocess.Popen, list[tuple[str, int]]]:
    """Start a campaign; returns its Snakemake and what the batch's job has measured when it is held."""
    site.write(held_campaign(site), **facts)
    site.pass_preflight()
    snakemake = site.popen("--retries", "0")
    return snakemake, site.wait_until_held()


def assert_all_was_measured_once(site: Site, kept: list[tuple[str, int]]) -> None:
    assert set(kept) <= set(site.slots())
    assert len(site.slots()) == len(set(site.slots())) == len(site.records()) == NUM_RECORDS


@pytest.mark.parametrize("partition", ["main", "requeued", "graced"])
def test_a_preempted_job_is_submitted_again_and_goes_on(site, partition):
    """main's jobs are canceled; those of `requeued` would be put back by Slurm, had they not asked it not to. Slurm reports
    those of `graced` as running when it ends their steps. None of this is a retry."""
    snakemake, kept = begin(site, partition=partition)
    site.cluster.submit("--partition=urgent", "--nodes=1", seconds=3)
    wait_until(site.stops, 60, "the job preempted")
    site.release()
    assert snakemake.wait(300) == 0
    assert {stop.rpartition(": ")[2] for stop in site.stops()} == {"PREEMPTED"}
    assert [(job["kind"], job["hosts"]) for job in site.jobs()] == [("stopped", [])]
    assert_all_was_measured_once(site, kept)
    assert submitted(site.output()) == 2
    report_says(site, "drill", ": PREEMPTED")


def test_a_job_that_is_requeued_by_hand_goes_on_under_its_id(site):
    """Slurm refuses, for the job has asked it to; an administrator can do it all the same."""
    snakemake, kept = begin(site)
    [job] = site.cluster.squeue()
    refused = site.cluster.run(["scontrol", "requeue", job], check=False)
    assert refused.returncode != 0
    assert site.cluster.squeue()[job] == "RUNNING"
    site.cluster.run(["scontrol", "update", f"jobid={job}", "requeue=1"], as_root=True)
    site.cluster.run(["scontrol", "requeue", job], as_root=True)
    wait_until(lambda: site.cluster.squeue().get(job) == "PENDING", 60, "the job waiting again")
    site.release()
    site.cluster.run(["scontrol", "update", f"jobid={job}", "starttime=now"], as_root=True)  # Slurm waits two minutes
    assert snakemake.wait(300) == 0
    assert site.stops() == ["SIGTERM: REQUEUED"]
    assert_all_was_measured_once(site, kept)
    assert submitted(site.output()) == 1
    report_says(site, "drill", "SIGTERM: REQUEUED")
