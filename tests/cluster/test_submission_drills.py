"""What happens between Snakemake and sbatch: names of jobs, limits on jobs, and an interrupt at any moment."""

import signal

from drills import NUM_RECORDS, UNTIL_MEASURED, fake_campaign, held_campaign, submitted, wrap_srun
from slurm import send_signal, wait_until

REFUSE_TWICE = """\
#!/bin/bash
echo >> {folder}/refused
case $(wc -l < {folder}/refused) in
1)
  echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2
  echo 'sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit)' >&2
  exit 1 ;;
2)
  /usr/bin/sbatch "$@" >&2
  echo 'sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received' >&2
  exit 1 ;;
esac
exec /usr/bin/sbatch "$@"
"""


def test_a_submission_is_repeated_unless_the_job_is_in_the_queue_and_jobs_have_names(site):
    """The first is above a limit. The second is submitted, but sbatch does not know."""
    site.write(held_campaign(site))
    site.pass_preflight()
    tools = site.host_folder / "bin"
    tools.mkdir()
    (tools / "sbatch").write_text(REFUSE_TWICE.format(folder=site.folder))
    (tools / "sbatch").chmod(0o755)
    site.own()
    snakemake = site.popen("--retries", "0", path=f"PATH={site.folder}/bin:/usr/bin:/bin")
    wait_until(lambda: submitted(site.output()) == 1, 120, "the job found")
    site.release()
    assert snakemake.wait(300) == 0
    output = site.output()
    assert "QOSMaxSubmitJobPerUserLimit" in output
    assert submitted(output) == 1
    assert site.statuses() == {"ok": NUM_RECORDS}
    names = site.cluster.run(["squeue", "--noheader", "--states=all", "--format=%j|%Z"]).stdout.splitlines()
    assert names.count(f"regatta-drill-2x2|{site.folder}") == 1


def test_an_interrupt_cancels_jobs_at_any_moment(site):
    """Every second the executor queries states, and has no list of active jobs meanwhile."""
    site.write(held_campaign(site))
    site.pass_preflight()
    for _ in range(2):
        snakemake = site.popen(*UNTIL_MEASURED)
        wait_until(lambda: "RUNNING" in site.cluster.squeue().values(), 120, "a job that runs")
        send_signal(snakemake, signal.SIGINT)
        snakemake.wait(120)
        wait_until(lambda: not site.cluster.squeue(), 60, "an empty queue")
    site.release()


def test_a_time_limit_without_a_record_is_not_tried_again(site):
    site.write(fake_campaign(site), max_walltime_minutes=1)
    site.pass_preflight()
    path = wrap_srun(site, "sleep 300\n")
    site.own()
    snakemake = site.popen(path=path)
    assert snakemake.wait(400) == 4
    output = site.output()
    assert submitted(output) == 1
    assert "max_walltime_minutes = 1" in output
    assert "failure reason unavailable" not in output
