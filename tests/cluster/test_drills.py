"""Common cluster failures, provoked for real: no measurement is lost, and the report names the cause."""

import json
import re
import subprocess

from drills import NUM_RECORDS, UNTIL_MEASURED, fake_campaign, held_campaign, report_says, wrap_srun
from slurm import wait_until

from warm_start import was_idle


def test_one_job_per_batch_and_one_step_per_launch(site):
    site.write(fake_campaign(site))
    done = site.snakemake()
    assert site.statuses() == {"ok": NUM_RECORDS}
    assert done.stderr.count(": Slurm job ") == 2  # the preflight and the batch
    steps = [line for line in site.lines() if line["kind"] == "launch"]
    assert len(steps) == 2  # one stack x two repeats
    assert "<html" in site.report()
    again = site.snakemake()
    assert was_idle(again)


def test_hung_killed_and_early_ending_ranks_become_records(site):
    """One launch after the other ends: a rank that exits early, one that is killed, one that hangs, one that raises."""
    env = {
        "FAKE_RANK_FAULTS": json.dumps({"all_reduce-1024-": "die", "all_reduce-4096-": "exit_early"}),
        "FAKE_FAULTS": json.dumps({"all_reduce-16384-": "oom", "all_reduce-65536-": "hang"}),
    }
    limits = {"cell_seconds": 6, "launch_start_seconds": 60}
    benchmarks = fake_campaign(site)["benchmarks"]
    benchmarks[0]["parameters"]["message_bytes"].append(262144)
    site.write(fake_campaign(site, env, repeats=1, limits=limits, benchmarks=benchmarks))
    site.snakemake()
    causes = {record["cell"].split("-")[2]: (record["status"], record["cause"]) for record in site.records()}
    statuses = {size: status for size, (status, _) in causes.items()}
    assert statuses == {
        "1024": "failed",
        "4096": "timeout",
        "16384": "out_of_memory",
        "65536": "timeout",
        "262144": "ok",
    }
    assert re.search(r" on n1\b.*SIGKILL", causes["1024"][1])
    assert re.search(r"\b6 s\b.*cell_seconds", causes["4096"][1])
    assert causes["65536"] == causes["4096"]
    assert causes["262144"][1] is None
    report_says(site, "drill", causes["1024"][1])
    report_says(site, "drill", causes["4096"][1].partition(";")[0])
    report_says(site, "drill", "RuntimeError: can't allocate memory")
    assert site.cluster.run(["squeue", "--noheader", "--steps"]).stdout == ""


def test_a_node_killed_in_the_middle_of_a_launch_is_named_and_the_batch_goes_on(site):
    site.write(held_campaign(site))  # as ranks hang whose peer is gone
    site.pass_preflight()
    snakemake = site.popen()
    kept = site.wait_until_held()
    site.cluster.kill_node("n2")
    wait_until(lambda: any(line["kind"] == "stopped" for line in site.lines()), 60, "a line that says why it stopped")
    site.release()
    site.cluster.start_node("n2")
    assert snakemake.wait(300) == 0
    stopped = [line["signal"] for line in site.lines() if line["kind"] == "stopped"]
    assert "NODE_FAIL" in stopped[0]
    failures = [record for record in site.records() if record["status"] == "node_failure"]
    assert len(failures) == 1
    ok = [(r["cell"], r["repeat"]) for r in site.records() if r["status"] == "ok"]
    assert len(ok) == len(set(ok)) == NUM_RECORDS
    assert set(kept) <= set(ok)
    report_says(site, "drill", "SIGTERM: NODE_FAIL")


def test_a_node_that_does_not_answer_ends_in_another_try_and_not_in_a_hang(site):
    """The node is away from the moment before srun starts the ranks until the batch has noted it and Slurm calls it down."""
    site.write(fake_campaign(site, repeats=1, limits={"cell_seconds": 20, "launch_start_seconds": 15}))
    site.pass_preflight()
    site.hold()
    path = wrap_srun(site, f"touch {site.folder}/at_srun\nwhile [ -e {site.folder}/hold ]; do sleep 0.1; done\n")
    site.own()
    snakemake = site.popen(path=path)
    wait_until(lambda: (site.host_folder / "at_srun").exists(), 240, "the first launch")
    site.cluster.link("n2", "down")
    try:
        site.release()
        wait_until(site.jobs, 120, "the end of the job")
        wait_until(lambda: site.cluster.node_state("n2") == "down*", 120, "n2 is down")
    finally:
        site.cluster.link("n2", "up")
    assert snakemake.wait(400) == 0
    ok = [(r["cell"], r["repeat"]) for r in site.records() if r["status"] == "ok"]
    assert len(ok) == len(set(ok)) == 4
    assert site.jobs()
    for job in site.jobs():
        report_says(site, "drill", job["cause"])


def test_a_full_disk_is_told_and_the_store_stays_readable(site):
    site.write(fake_campaign(site))
    small = site.cluster.state / "small"
    subprocess.run(["rm", "-rf", str(small / "results")], check=True)
    (site.host_folder / "results").symlink_to("../../small/results")  # as the nodes see it, and the host
    (small / "results").mkdir()
    subprocess.run(["chown", "--reference", str(site.cluster.shared), str(small / "results")], check=True)
    site.pass_preflight()
    filler = small / "filler"
    try:
        subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=1M"], capture_output=True)
        with filler.open("r+b") as file:
            file.truncate(filler.stat().st_size - 2 * 2**20)
        done = site.snakemake("--retries", "0", check=False)
        assert done.returncode == 4
        logs = "".join(p.read_text() for p in site.host_folder.glob(".snakemake/slurm_logs/rule_measure/**/*.log"))
        assert "no space left" in logs
    finally:
        filler.unlink(missing_ok=True)
    report_says(site, "drill", "no space left on the disk")
    site.snakemake(*UNTIL_MEASURED)
    results = small / "results" / "drill"
    kinds = [json.loads(line)["kind"] for p in results.glob("launches/*.jsonl") for line in p.read_text().splitlines()]
    assert kinds.count("record") == NUM_RECORDS
    subprocess.run(["rm", "-rf", str(small / "results")], check=True)
