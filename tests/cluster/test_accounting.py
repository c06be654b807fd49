"""Accounting by slurmdbd: what a campaign is charged for. Runs on a separate cluster beside the others."""

import re
from collections.abc import Iterator

import pytest
from drills import UNTIL_MEASURED, fake_campaign, make_site
from slurm import STATE, Cluster, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def accounting(cache) -> Iterator[Cluster]:
    """Return a cluster with slurmdbd and the account `proj`; it is purged afterwards."""
    own = Cluster(STATE.with_name(STATE.name + "-accounting"))
    cache(with_accounting=True)
    own.control("purge")
    own.copy_root()
    own.up("--accounting")
    yield own
    own.control("purge")


def sacct(cluster: Cluster, *columns: str) -> list[list[str]]:
    line = ["sacct", "--noheader", "--parsable2", "--starttime=now-1hour", f"--format={','.join(columns)}"]
    return [row.split("|") for row in cluster.run(line).stdout.splitlines()]


def jobs(cluster: Cluster) -> set[str]:
    return {number.partition(".")[0] for [number] in sacct(cluster, "jobid")}


def test_one_job_per_batch_and_one_step_per_launch_are_charged_to_the_account(accounting):
    site = make_site(accounting, "charged")
    before = jobs(accounting)
    """Also if the cluster file names the cluster, and the user has a comment."""
    site.write(fake_campaign(site), account="proj", clusters="regatta", sbatch=["--comment=a|b"])
    done = site.snakemake(*UNTIL_MEASURED)
    assert site.statuses() == {"ok": 8}
    preflight, batch = re.findall(r"Slurm job (\d+)", done.stderr)
    assert jobs(accounting) - before == {preflight, batch}
    listed = accounting.run(["squeue", "--noheader", "--states=all", f"--jobs={batch}", "--format=%j %k"]).stdout
    assert re.fullmatch(r"rule_measure_wildcards_drill_n02g02-[0-9a-f]{12} a\|b\n", listed)

    def charged() -> list[list[str]]:
        rows = sacct(accounting, "jobid", "account", "user", "state", "exitcode")
        own = [row for row in rows if row[0].partition(".")[0] in (preflight, batch)]
        return [row for row in own if not row[0].endswith((".batch", ".extern"))]

    wait_until(lambda: {row[3] for row in charged()} == {"COMPLETED"}, 20, "word in the database that all has ended")
    of_jobs = [[number, "proj", "bench", "COMPLETED", "0:0"] for number in (preflight, batch)]
    # One look at the one stack; one stack x two repeats.
    of_steps = [[f"{step}", "proj", "", "COMPLETED", "0:0"] for step in (f"{preflight}.0", f"{batch}.0", f"{batch}.1")]
    assert sorted(charged()) == sorted(of_jobs + of_steps)


def test_an_account_that_is_not_there_ends_the_run_with_the_words_of_sbatch(accounting):
    site = make_site(accounting, "wrong account")
    before = jobs(accounting)
    site.write(fake_campaign(site), account="nosuch")
    done = site.snakemake(check=False)
    assert done.returncode == 4
    assert "Invalid account or account/partition combination specified" in done.stderr
    assert "Traceback" not in done.stderr
    assert jobs(accounting) == before
    assert accounting.squeue() == {}
