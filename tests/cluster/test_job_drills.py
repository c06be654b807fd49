"""What ends jobs and the Snakemake that submitted them, done for real: nothing measured is lost, nothing is measured twice."""

import signal

from drills import NUM_RECORDS, SLOW, fake_campaign, report_says
from slurm import send_signal, wait_until


def test_scancel_keeps_what_was_measured_and_the_next_run_resumes(site):
    site.write(fake_campaign(site, SLOW))
    snakemake = site.popen("--retries", "0")
    wait_until(lambda: len(site.records()) >= 2, 90)
    job = next(iter(site.cluster.squeue()))
    site.cluster.run(["scancel", job])
    assert snakemake.wait(90) == 3
    assert [line["signal"] for line in site.lines() if line["kind"] == "stopped"] == ["SIGTERM: CANCELLED"]
    report_says(site, "drill", "its job ended before it was measured: SIGTERM: CANCELLED")
    kept = site.slots()
    assert 2 <= len(kept) < NUM_RECORDS
    site.snakemake()
    assert len(site.slots()) == len(set(site.slots())) == NUM_RECORDS
    report_says(site, "drill", "SIGTERM: CANCELLED")


def test_a_walltime_that_is_reached_keeps_what_was_measured_and_the_job_is_submitted_again(site):
    site.write(fake_campaign(site, {"FAKE_CELL_SECONDS": "12"}), max_walltime_minutes=1)
    site.snakemake(timeout=400)
    stopped = [line["signal"] for line in site.lines() if line["kind"] == "stopped"]
    assert set(stopped) == {"SIGTERM: TIMEOUT"}
    assert site.statuses() == {"ok": NUM_RECORDS}
    assert len(set(site.slots())) == NUM_RECORDS
    report_says(site, "drill", "SIGTERM: TIMEOUT")


def test_kill_9_of_snakemake_leaves_a_job_that_the_next_run_waits_for(site):
    site.write(fake_campaign(site, SLOW))
    snakemake = site.popen()
    wait_until(lambda: len(site.records()) >= 1, 90)
    snakemake.kill()
    snakemake.wait()
    jobs = set(site.cluster.squeue())
    assert len(jobs) == 1
    done = site.snakemake()
    assert f"jobs of an earlier run are still in the queue: {jobs.pop()}" in done.stderr
    assert "has been submitted" not in done.stderr
    assert site.statuses() == {"ok": NUM_RECORDS}
    assert len(set(site.slots())) == NUM_RECORDS
    assert "<html" in site.report()


def test_a_second_snakemake_on_the_campaign_is_told_so(site):
    site.write(fake_campaign(site, SLOW))
    first = site.popen()
    wait_until(lambda: len(site.records()) >= 1, 90)
    second = site.snakemake(check=False)
    assert second.returncode == 2
    assert "results/drill: another Snakemake is running this campaign" in second.stderr
    assert first.wait(120) == 0
    assert site.statuses() == {"ok": NUM_RECORDS}


def test_a_campaign_edited_while_its_jobs_wait_changes_nothing_for_them(site):
    path = site.write(fake_campaign(site))
    site.snakemake("--until", "preflight")
    blocker = site.cluster.submit("--nodes=2", seconds=60)
    snakemake = site.popen()
    wait_until(lambda: len(site.cluster.squeue()) == 2, 60, "the batch's job behind the one that has the nodes")
    planned = path.read_text()
    path.write_text("schema: 1\nname: [broken\n")
    site.cluster.run(["scancel", blocker])
    assert snakemake.wait(120) == 0
    assert site.statuses() == {"ok": NUM_RECORDS}
    path.write_text(planned)
    assert "Nothing to be done" in site.snakemake().stderr


def test_ctrl_c_cancels_the_jobs_and_reports_what_there_is(site):
    site.write(fake_campaign(site, SLOW))
    snakemake = site.popen()
    wait_until(lambda: len(site.records()) >= 2, 90)
    send_signal(snakemake, signal.SIGINT)
    assert snakemake.wait(60) == 3
    wait_until(lambda: not site.cluster.squeue(), 30)
    report_says(site, "drill", "SIGTERM: CANCELLED")
    kept = site.slots()
    site.snakemake()
    assert set(kept) <= set(site.slots())
    assert len(site.slots()) == len(set(site.slots())) == NUM_RECORDS
