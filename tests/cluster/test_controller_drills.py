"""Slurm does not answer, or Snakemake is gone, while jobs wait and run: none is lost, and none is submitted twice."""

import re
import time

from drills import NUM_RECORDS, UNTIL_MEASURED, fake_campaign, held_campaign, submitted
from slurm import wait_until


def test_a_controller_that_is_away_for_a_while_ends_neither_the_job_nor_the_run(site):
    """The first launch ends meanwhile, and the second is to begin; Snakemake asks for the job's state in vain."""
    site.write(held_campaign(site))
    site.pass_preflight()
    snakemake = site.popen(*UNTIL_MEASURED)
    site.wait_until_held()
    site.cluster.stop_controller()
    site.release()
    wait_until(lambda: len(site.records()) == NUM_RECORDS / 2, 60)
    time.sleep(25)  # srun gives up after five, and Snakemake asks every second
    assert snakemake.poll() is None
    site.cluster.start_controller()
    assert snakemake.wait(300) == 0
    assert site.statuses() == {"ok": NUM_RECORDS}
    assert len(set(site.slots())) == NUM_RECORDS
    assert submitted(site.output()) == 1
    assert site.jobs() == []


def test_kill_9_of_snakemake_leaves_a_waiting_job_that_the_next_run_does_not_submit_again(site):
    site.write(fake_campaign(site))
    site.pass_preflight()
    first, blocker = site.popen_behind_a_job()
    [job] = site.cluster.squeue().keys() - {blocker}
    first.kill()
    first.wait()
    before = len(site.output())
    second = site.popen()
    wait_until(lambda: re.search(rf"\b{job}\b", site.output()[before:]), 240, f"job {job} named")
    assert set(site.cluster.squeue()) == {blocker, job}
    site.cluster.run(["scancel", blocker])
    assert second.wait(300) == 0
    assert submitted(site.output()) <= 1  # the first may have been killed before it said so
    assert site.statuses() == {"ok": NUM_RECORDS}
    assert len(set(site.slots())) == NUM_RECORDS
    assert "<html" in site.report()


def test_a_job_lost_by_the_controller_is_resubmitted(site):
    """The last of this file: job ids start again, and the nodes may still run the lost job with one of them."""
    site.write(fake_campaign(site))
    site.pass_preflight()
    snakemake = site.popen(*UNTIL_MEASURED, "--retries", "1")
    wait_until(lambda: "RUNNING" in site.cluster.squeue().values(), 90, "a job")
    site.cluster.stop_controller()
    site.cluster.forget_jobs()
    site.cluster.start_controller()
    assert snakemake.wait(300) == 0
    assert submitted(site.output()) == 2
    assert len(set(site.slots())) == NUM_RECORDS
