"""What goes wrong on clusters, done for real: nothing measured is lost, and the report names the cause."""

import json
import subprocess
import time

from drills import NUM_RECORDS, campaign, change_srun, fake_campaign, report_says
from slurm import wait_until


def test_one_job_per_batch_and_one_step_per_launch(site):
    site.write(fake_campaign(site))
    done = site.snakemake()
    assert site.statuses() == {"ok": NUM_RECORDS}
    assert done.stderr.count("has been submitted with SLURM jobid") == 2  # the preflight and the batch
    steps = [line for line in site.lines() if line["kind"] == "launch"]
    assert len(steps) == 2  # one stack x two repeats
    assert "<html" in site.report()
    again = site.snakemake()
    assert "Nothing to be done" in again.stderr + again.stdout


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
    assert causes["1024"] == ("failed", "rank 1 on n1 was killed by SIGKILL")
    assert causes["4096"] == ("timeout", "no record within 6 s (cell_seconds); the log holds the ranks' stacks")
    assert causes["16384"][0] == "out_of_memory"
    assert causes["65536"] == causes["4096"]
    assert causes["262144"] == ("ok", None)
    report_says(site, "drill", "rank 1 on n1 was killed by SIGKILL")
    report_says(site, "drill", "no record within 6 s (cell_seconds)")
    report_says(site, "drill", "RuntimeError: can't allocate memory")
    assert site.cluster.run(["squeue", "--noheader", "--steps"]).stdout == ""


def test_a_node_killed_in_the_middle_of_a_launch_is_named_and_the_batch_goes_on(site):
    hang = site.host_folder / "hang"  # as ranks do whose peer is gone
    site.write(fake_campaign(site, {"FAKE_CELL_SECONDS": "1", "FAKE_HANG_FILE": f"{site.folder}/hang"}))
    snakemake = site.popen()
    wait_until(lambda: len(site.records()) >= 2, 90)
    hang.touch()
    kept = site.slots()
    site.cluster.kill_node("n2")
    wait_until(lambda: any(line["kind"] == "stopped" for line in site.lines()), 60, "a line that says why it stopped")
    hang.unlink()
    site.cluster.start_node("n2")
    assert snakemake.wait(180) == 0
    stopped = [line["signal"] for line in site.lines() if line["kind"] == "stopped"]
    assert "NODE_FAIL" in stopped[0]
    failures = [record for record in site.records() if record["status"] == "node_failure"]
    assert [record["cause"] for record in failures] == ["Slurm ended the job: a node failed"]
    ok = [(r["cell"], r["repeat"]) for r in site.records() if r["status"] == "ok"]
    assert len(ok) == len(set(ok)) == NUM_RECORDS
    assert set(kept) <= set(ok)
    report_says(site, "drill", "SIGTERM: NODE_FAIL")


def test_a_node_that_does_not_answer_ends_in_another_try_and_not_in_a_hang(site):
    site.write(fake_campaign(site, repeats=1, limits={"cell_seconds": 20, "launch_start_seconds": 8}))
    site.snakemake("--until", "preflight")
    snakemake = site.popen()
    wait_until(lambda: "RUNNING" in site.cluster.squeue().values(), 60)
    site.cluster.link("n2", "down")
    time.sleep(25)  # the time that Slurm takes to call the node down
    site.cluster.link("n2", "up")
    assert snakemake.wait(240) == 0
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
    site.snakemake("--until", "preflight")
    filler = small / "filler"
    try:
        subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=1M"], capture_output=True)
        with filler.open("r+b") as file:
            file.truncate(filler.stat().st_size - 2 * 2**20)
        done = site.snakemake("--retries", "0", check=False)
        assert done.returncode == 4
        logs = "".join(p.read_text() for p in site.host_folder.glob(".snakemake/slurm_logs/rule_measure/**/*.log"))
        assert "no space left on the disk. What was measured is kept" in logs
    finally:
        filler.unlink(missing_ok=True)
    report_says(site, "drill", "no space left on the disk. What was measured is kept")
    site.snakemake()
    results = small / "results" / "drill"
    kinds = [json.loads(line)["kind"] for p in results.glob("launches/*.jsonl") for line in p.read_text().splitlines()]
    assert kinds.count("record") == NUM_RECORDS
    subprocess.run(["rm", "-rf", str(small / "results")], check=True)


def test_srun_giving_fewer_tasks_than_asked_is_a_failure_of_placement(site):
    path = change_srun(site, {"--nodes=2": "--nodes=1", "--ntasks=4": "--ntasks=2"})
    python = site.cluster.python
    site.write(campaign({"host": {"kind": "host", "python": python}}, repeats=1))
    done = site.cluster.run(["env", path, *site.line()], cwd=site.folder, timeout=200, check=False)
    assert done.returncode == 4
    held = json.loads(next(site.results.glob("preflight/*.json")).read_text())["stacks"][0]["verdict"]
    assert not held["ok"]
    assert "world size 2 found, 4 expected (2 nodes x 2 ranks)" in str(held["problems"])
    assert site.records() == []
    report_says(site, "drill", "world size 2 found, 4 expected (2 nodes x 2 ranks)")


def test_a_missing_image_is_told_before_anything_is_submitted(site):
    stack = {"kind": "contained", "image": "/shared/no such.sif"}
    site.write(campaign({"contained": stack}))
    done = site.snakemake(check=False)
    assert done.returncode == 2
    assert "campaign.yaml:10: stacks.contained.image = '/shared/no such.sif' cannot be read" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (site.host_folder / "results" / "drill" / "batches").exists()
    assert site.cluster.squeue() == {}


def test_hostile_values_reach_neither_a_shell_nor_a_job(site):
    hostile = "$(touch /shared/pwned); `touch /shared/pwned` 'a\" b"
    site.write(
        fake_campaign(site, {"HOSTILE": hostile, "OMP_PROC_BIND": hostile}, repeats=1),
        sbatch=[f"--mail-user={hostile}"],
    )
    site.snakemake()
    assert site.statuses() == {"ok": 4}
    header = next(line for line in site.lines() if line["kind"] == "launch")
    assert header["environment"]["variables"]["OMP_PROC_BIND"] == hostile
    site.write(fake_campaign(site, repeats=2), constraint=hostile, partition="main")
    done = site.snakemake("--retries", "0", check=False)
    assert done.returncode == 4  # other variables, other cells
    assert not (site.cluster.shared / "pwned").exists()


def test_pretend_gpus_are_asked_for_and_a_rank_without_one_says_so(site):
    stack = {"kind": "host", "python": site.cluster.python}
    shapes = [{"nodes": [1], "gpus_per_node": [2]}]
    site.write(campaign({"host": stack}, device="cuda", backend=["nccl"], shapes=shapes, repeats=1))
    assert site.snakemake(timeout=200, check=False).returncode == 4
    verdict = json.loads(next(site.results.glob("preflight/*.json")).read_text())["stacks"][0]["verdict"]
    assert "CUDA_VISIBLE_DEVICES='0,1'" in str(verdict["problems"])
    report_says(site, "drill", verdict["problems"][0])
