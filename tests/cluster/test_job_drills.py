"""Jobs, and the Snakemake that submitted them, are ended for real: nothing measured is lost, nothing is measured twice."""

import re
import signal

from drills import NUM_HELD, NUM_RECORDS, UNTIL_MEASURED, fake_campaign, held_campaign, report_says
from slurm import send_signal, wait_until

from warm_start import was_idle


def test_scancel_keeps_what_was_measured_and_the_next_run_resumes(site):
    site.write(held_campaign(site))
    site.pass_preflight()
    snakemake = site.popen("--retries", "0")
    kept = site.wait_until_held()
    job = next(iter(site.cluster.squeue()))
    site.cluster.run(["scancel", job])
    assert snakemake.wait(300) == 3
    assert [line["signal"] for line in site.lines() if line["kind"] == "stopped"] == ["SIGTERM: CANCELLED"]
    report_says(site, "drill", "SIGTERM: CANCELLED")
    assert len(kept) == NUM_HELD
    assert site.slots() == kept
    site.release()
    site.snakemake()
    assert set(kept) <= set(site.slots())
    assert len(site.slots()) == len(set(site.slots())) == NUM_RECORDS
    report_says(site, "drill", "SIGTERM: CANCELLED")


def test_a_walltime_that_is_reached_keeps_what_was_measured_and_the_job_is_submitted_again(site):
    site.write(held_campaign(site), max_walltime_minutes=1)
    site.pass_preflight()
    snakemake = site.popen()
    kept = site.wait_until_held()
    wait_until(site.stops, 150, "the time limit")
    site.release()
    assert snakemake.wait(300) == 0
    assert set(kept) <= set(site.slots())
    stopped = [line["signal"] for line in site.lines() if line["kind"] == "stopped"]
    assert set(stopped) == {"SIGTERM: TIMEOUT"}
    assert site.statuses() == {"ok": NUM_RECORDS}
    assert len(set(site.slots())) == NUM_RECORDS
    report_says(site, "drill", "SIGTERM: TIMEOUT")


def test_a_signal_before_the_time_limit_reaches_the_supervisor_and_counts_as_the_limit(site):
    """The limit of the running job is lowered to two minutes: its signal comes one minute before, or up to one earlier.
    Slurm itself then reports FAILED: the job has ended within its limit."""
    long = {"min_seconds": 20, "max_seconds": 70}  # planned; the fake ranks take no time
    site.write(held_campaign(site, sampling=long), max_walltime_minutes=30)
    site.pass_preflight()
    snakemake = site.popen()
    kept = site.wait_until_held()
    [job] = site.cluster.squeue()
    site.cluster.run(["scontrol", "update", f"jobid={job}", "timelimit=2"], as_root=True)
    wait_until(site.stops, 120, "the signal")
    site.release()
    assert snakemake.wait(300) == 0
    assert [(event["job"], event["cause"]) for event in site.jobs()] == [(job, "SIGTERM: TIMEOUT")]
    assert site.stops() == ["SIGTERM: TIMEOUT"]
    states = site.cluster.run(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]).stdout
    assert states == "FAILED\n"
    assert set(kept) <= set(site.slots())
    assert len(site.slots()) == len(set(site.slots())) == NUM_RECORDS


def test_kill_9_of_snakemake_leaves_a_job_that_the_next_run_waits_for(site):
    site.write(held_campaign(site))
    site.pass_preflight()
    first = site.popen()
    site.wait_until_held()
    first.kill()
    first.wait()
    [job] = site.cluster.squeue()
    before = len(site.output())
    second = site.popen()
    wait_until(lambda: re.search(rf"\b{job}\b", site.output()[before:]), 240, f"job {job} named")
    site.release()
    assert second.wait(300) == 0
    assert "has been submitted" not in site.output()[before:]
    assert site.statuses() == {"ok": NUM_RECORDS}
    assert len(set(site.slots())) == NUM_RECORDS
    assert "<html" in site.report()


def test_a_second_snakemake_on_the_campaign_is_told_so(site):
    site.write(held_campaign(site))
    site.pass_preflight()
    first = site.popen(*UNTIL_MEASURED)
    site.wait_until_held()
    second = site.snakemake(check=False)
    assert second.returncode == 2
    assert "results/drill: another Snakemake" in second.stderr
    site.release()
    assert first.wait(300) == 0
    assert site.statuses() == {"ok": NUM_RECORDS}


def test_a_campaign_edited_while_its_jobs_wait_changes_nothing_for_them(site):
    path = site.write(fake_campaign(site))
    site.pass_preflight()
    snakemake, blocker = site.popen_behind_a_job()
    planned = path.read_text()
    path.write_text("schema: 1\nname: [broken\n")
    site.cluster.run(["scancel", blocker])
    assert snakemake.wait(300) == 0
    assert site.statuses() == {"ok": NUM_RECORDS}
    path.write_text(planned)
    assert was_idle(site.snakemake())


def test_ctrl_c_cancels_the_jobs_and_reports_what_there_is(site):
    site.write(held_campaign(site))
    site.pass_preflight()
    snakemake = site.popen(is_quick=False)
    kept = site.wait_until_held()
    send_signal(snakemake, signal.SIGINT)
    assert snakemake.wait(300) == 3
    wait_until(lambda: not site.cluster.squeue(), 60)
    report_says(site, "drill", "SIGTERM: CANCELLED")
    assert site.slots() == kept
    site.release()
    site.snakemake(*UNTIL_MEASURED)
    assert set(kept) <= set(site.slots())
    assert len(site.slots()) == len(set(site.slots())) == NUM_RECORDS
