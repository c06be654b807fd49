"""A stack that fails the preflight costs almost nothing, and is tried again once it is fixed."""

import json
import signal
import time

from drills import UNTIL_MEASURED, campaign, fake_campaign, submitted
from slurm import send_signal, wait_until


def nodes_of_jobs(site) -> dict[str, str]:
    """Return how many nodes each job of Regatta's had, by its comment: also those that have ended."""
    listed = site.cluster.run(["squeue", "--noheader", "--states=all", "--format=%k|%D|%l"]).stdout
    rows = [line.split("|") for line in listed.splitlines() if line.startswith("rule_")]
    return {comment.split("_")[1]: f"{nodes} {limit}" for comment, nodes, limit in rows}


def test_a_batch_whose_stacks_all_fail_the_preflight_asks_for_one_node_and_five_minutes(site):
    python = site.host_folder / "python of the stack"
    stack = {"kind": "host", "python": f"{site.folder}/{python.name}"}
    python.write_text("#!/bin/sh\necho no Python >&2\nexit 3\n")
    python.chmod(0o755)
    site.write(campaign({"host": stack}, repeats=1))
    done = site.snakemake(check=False)
    assert done.returncode == 4
    # Before the batch's job has ended, and again with the outcome.
    at_once = done.stderr.partition("stack host failed the preflight and is excluded: ")
    assert "no Python" in at_once[2]
    assert "measurements planned" in at_once[2]
    assert site.records() == []
    assert nodes_of_jobs(site)["preflight"].startswith("2 ")
    assert nodes_of_jobs(site)["measure"] == "1 5:00"
    assert "no Python" in (site.results / "measurements.csv").read_text()
    [preflight] = site.results.glob("preflight/*.json")
    assert [stack["verdict"]["ok"] for stack in json.loads(preflight.read_text())["stacks"]] == [False]
    python.write_text(f'#!/bin/sh\nexec {site.folder}/tests/cluster/fake_ranks.py "$@"\n')
    site.snakemake(*UNTIL_MEASURED)
    assert site.statuses() == {"ok": 4}


def test_what_can_never_start_is_told_before_anything_is_submitted(site):
    for asked, words in (
        ({"partition": "gpu"}, ["partition = 'gpu' does not exist. Choose from: main, short"]),
        (
            {"partition": "short", "cpus_per_rank": 72},
            [
                "max_walltime_minutes = 10, but partition short limits jobs to 1 min.",
                "a shape needs 144 cores on a node (gpus_per_node x cpus_per_rank)",
            ],
        ),
    ):
        site.write(fake_campaign(site), **asked)
        plan = site.snakemake("plan")
        assert "config/clusters/drill.yaml: " in plan.stderr
        assert [text for text in words if text not in plan.stderr] == []
        done = site.snakemake(check=False)
        assert done.returncode == 2
        assert [text for text in words if text not in done.stderr] == []
        assert "Traceback" not in done.stderr
        assert site.cluster.squeue() == {}


def test_a_kill_of_a_snakemake_whose_job_waits_cancels_the_job(site):
    """Snakemake itself would wait for it, for ever if the job cannot start."""
    site.write(fake_campaign(site, repeats=1))
    nodes = ["scontrol", "update", "NodeName=n1,n2"]
    site.cluster.run([*nodes, "State=DRAIN", "Reason=test"], as_root=True)
    running = site.popen(is_quick=False)
    wait_until(lambda: submitted(site.output(), "preflight"), 240, "a job submitted")
    time.sleep(1)  # Snakemake prints that before it adds the job to those that it would cancel
    assert list(site.cluster.squeue().values()) == ["PENDING"]
    send_signal(running, signal.SIGTERM)
    assert running.wait(300) == 4
    assert site.cluster.squeue() == {}
    site.cluster.run([*nodes, "State=RESUME"], as_root=True)
