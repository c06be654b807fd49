"""Slurm does not answer, or Snakemake is gone, while jobs wait and run: none is lost, and none submitted twice."""

import time

from drills import NUM_RECORDS, SLOW, fake_campaign, submitted
from slurm import wait_until


def test_a_controller_that_is_away_for_a_while_ends_neither_the_job_nor_the_run(site):
    """The first launch ends meanwhile, and the second is to begin; Snakemake asks for the job's state in vain."""
    site.write(fake_campaign(site, SLOW))
    snakemake = site.popen()
    wait_until(lambda: len(site.records()) >= 2, 120)
    site.cluster.kill_controller()
    wait_until(lambda: len(site.records()) == NUM_RECORDS / 2, 60)
    wait_until(lambda: "Slurm does not say how the jobs are; asking again." in site.output(), 90)
    time.sleep(25)  # srun gives up after five
    assert snakemake.poll() is None
    site.cluster.start_controller()
    assert snakemake.wait(180) == 0
    assert site.statuses() == {"ok": NUM_RECORDS}
    assert len(set(site.slots())) == NUM_RECORDS
    assert submitted(site.output()) == 1
    assert site.jobs() == []
    assert "<html" in site.report()


def test_kill_9_of_snakemake_leaves_a_waiting_job_that_the_next_run_does_not_submit_again(site):
    site.write(fake_campaign(site))
    site.snakemake("--until", "preflight")
    blocker = site.cluster.submit("--nodes=2")
    wait_until(lambda: site.cluster.squeue() == {blocker: "RUNNING"}, 30, "the nodes taken")
    first = site.popen()
    wait_until(lambda: "PENDING" in site.cluster.squeue().values(), 60, "the batch's job waiting")
    [job] = [job for job, state in site.cluster.squeue().items() if state == "PENDING"]
    first.kill()
    first.wait()
    second = site.popen()
    said = f"jobs of an earlier run are still in the queue: {job} ("
    wait_until(lambda: said in site.output(), 150, said)
    assert set(site.cluster.squeue()) == {blocker, job}
    site.cluster.run(["scancel", blocker])
    assert second.wait(120) == 0
    assert submitted(site.output()) <= 1  # the first may have been killed before it said so
    assert site.statuses() == {"ok": NUM_RECORDS}
    assert len(set(site.slots())) == NUM_RECORDS
    assert "<html" in site.report()
