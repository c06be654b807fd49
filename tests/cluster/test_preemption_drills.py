"""Jobs that lose their nodes to others, done for real: what was measured is kept, and the batch goes on when nodes are free."""

import pytest
from drills import NUM_RECORDS, SLOW, Site, fake_campaign, report_says, submitted
from slurm import wait_until


def begin(site: Site, **facts: object):
    """Start a campaign; returns its Snakemake when the batch's job has measured two cells."""
    site.write(fake_campaign(site, SLOW), **facts)
    snakemake = site.popen()
    wait_until(lambda: len(site.records()) >= 2, 120)
    return snakemake


def assert_all_was_measured_once(site: Site, kept: list[tuple[str, int]]) -> None:
    assert set(kept) <= set(site.slots())
    assert len(site.slots()) == len(set(site.slots())) == len(site.records()) == NUM_RECORDS


@pytest.mark.parametrize("partition", ["main", "requeued"])
def test_a_preempted_job_is_submitted_again_and_goes_on(site, partition):
    """main's jobs are cancelled; those of `requeued` would be put back by Slurm, had they not asked it not to."""
    snakemake = begin(site, partition=partition)
    kept = site.slots()
    site.cluster.submit("--partition=urgent", "--nodes=1", seconds=3)
    assert snakemake.wait(180) == 0
    assert site.stops() == ["SIGTERM: PREEMPTED"]
    assert [(job["kind"], job["hosts"]) for job in site.jobs()] == [("stopped", [])]
    assert_all_was_measured_once(site, kept)
    assert submitted(site.output()) == 2
    report_says(site, "drill", "SIGTERM: PREEMPTED")


def test_a_job_that_is_requeued_by_hand_goes_on_under_its_id(site):
    """Slurm refuses, for the job has asked it to; an administrator can do it all the same."""
    snakemake = begin(site)
    kept = site.slots()
    [job] = site.cluster.squeue()
    refused = site.cluster.run(["scontrol", "requeue", job], check=False)
    assert refused.returncode != 0
    assert site.cluster.squeue()[job] == "RUNNING"
    site.cluster.run(["scontrol", "update", f"jobid={job}", "requeue=1"], as_root=True)
    site.cluster.run(["scontrol", "requeue", job], as_root=True)
    wait_until(lambda: site.cluster.squeue().get(job) == "PENDING", 60, "the job waiting again")
    site.cluster.run(["scontrol", "update", f"jobid={job}", "starttime=now"], as_root=True)  # Slurm waits two minutes
    assert snakemake.wait(180) == 0
    assert site.stops() == ["SIGTERM: REQUEUED"]
    assert_all_was_measured_once(site, kept)
    assert submitted(site.output()) == 1
    report_says(site, "drill", "SIGTERM: REQUEUED")
