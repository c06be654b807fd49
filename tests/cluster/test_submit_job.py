"""`make submit`: a job runs the campaign, and ends its batches if it is canceled."""

import re

import pytest
from drills import NUM_RECORDS, fake_campaign, held_campaign
from slurm import wait_until

pytestmark = pytest.mark.slow


def submit(site) -> str:
    """Submit the run of a site's campaign. Returns the job."""
    script = [site.cluster.python, "workflow/scripts/submit.py", "campaign.yaml", "--profile", "profiles/slurm"]
    said = site.cluster.run([*script, "--latency-wait", "5"], cwd=site.folder).stdout
    return re.match(r"Job (\d+) ", said)[1]


def jobs(site) -> set[str]:
    return set(site.cluster.run(["squeue", "--noheader", "--format=%A"]).stdout.split())


def test_a_job_runs_the_whole_campaign(site):
    site.write(fake_campaign(site), exclusive=False)
    job = submit(site)
    wait_until(lambda: job not in jobs(site), 300, "the end of the driver's job")
    log = (site.results / "logs" / f"driver-{job}.log").read_text()
    assert "Report: results/drill/report.html" in log
    assert site.statuses() == {"ok": NUM_RECORDS}


def test_a_driver_that_is_stopped_cancels_its_batches_and_builds_the_report(site):
    site.write(held_campaign(site), exclusive=False)
    job = submit(site)
    site.wait_until_held()
    site.cluster.run(["scancel", "--batch", "--signal=TERM", job])
    wait_until(lambda: not jobs(site), 120, "the end of all jobs")
    assert "exit status 3" in (site.results / "logs" / f"driver-{job}.log").read_text()
    assert (site.results / "report.html").exists()


def test_a_canceled_driver_cancels_its_batches(site):
    site.write(held_campaign(site), exclusive=False)
    job = submit(site)
    site.wait_until_held()
    site.cluster.run(["scancel", job])
    wait_until(lambda: not jobs(site), 60, "the end of all jobs")
