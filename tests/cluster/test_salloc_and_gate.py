"""Batches within an allocation of the user, what is rejected there, and the gate in a cluster's CI."""

import json
import shutil
import subprocess
import xml.etree.ElementTree as ET

from drills import Site, campaign, fake_campaign
from slurm import CHECKOUT


def locally(site: Site, *words: str) -> list[str]:
    line = [site.cluster.python, "-m", "snakemake", "--profile", "profiles/local"]
    return [*line, *words, "--configfile", "campaign.yaml"]


def all_jobs(site: Site) -> set[str]:
    """Return the jobs that the controller knows of, also those that have ended."""
    return set(site.cluster.run(["squeue", "--noheader", "--states=all", "--format=%i"]).stdout.split())


def assert_nothing_was_started(site: Site, before: set[str]) -> None:
    for name in ("batches", "preflight", "launches"):
        assert not (site.results / name).exists(), name
    assert all_jobs(site) == before


def submitted(done: subprocess.CompletedProcess, what: str) -> int:
    """Return how often Snakemake submitted a job of a rule."""
    lines = done.stderr.splitlines()
    return sum(": Slurm job " in line and f"/rule_{what}/" in line for line in lines)


def cells_judged(site: Site) -> int:
    return len(list(ET.parse(site.results / "gate.junit.xml").getroot().iter("testcase")))


def failures(site: Site) -> dict[str, str]:
    """Return the cells that fail the gate, by what gate.junit.xml says of them."""
    cases = ET.parse(site.results / "gate.junit.xml").getroot().iter("testcase")
    told = {case.get("name"): case.find("failure") for case in cases}
    return {name: failure.get("message") for name, failure in told.items() if failure is not None}


def test_inside_an_allocation_all_is_measured_there_and_passes_the_gate(site):
    site.write(fake_campaign(site))
    before = all_jobs(site)
    held = ["salloc", "--nodes=2", "--ntasks-per-node=2"]
    done = site.cluster.run([*held, *locally(site, "gate")], cwd=site.folder)
    assert site.statuses() == {"ok": 8}  # four cells, two repeats
    assert len(all_jobs(site) - before) == 1  # salloc's own
    assert "has been submitted" not in done.stderr
    starts = [line["argv"] for line in site.lines() if line["kind"] == "launch"]
    assert [argv[:4] for argv in starts] == [["srun", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2"]] * 2
    verdicts = [
        json.loads(path.read_text())["stacks"][0]["verdict"]["ok"] for path in site.results.glob("preflight/*.json")
    ]
    assert verdicts == [True]
    assert "<html" in site.report()
    assert done.stdout.endswith((site.results / "gate.txt").read_text())
    assert cells_judged(site) == 4
    assert failures(site) == {}


def test_the_lines_of_the_documentation_lead_from_an_allocation_to_a_report(site):
    """docs/cluster.md, Inside an existing allocation: entered as there, into the shell of the login node."""
    section = (CHECKOUT / "docs" / "cluster.md").read_text().split("\n## Inside an existing allocation\n")[1]
    lines = section.split("```\n")[1]
    assert [line.split()[0] for line in lines.splitlines()] == ["salloc", "make", "exit"]
    site.write(fake_campaign(site)).rename(site.host_folder / "my.yaml")
    for name in ("Makefile", "Snakefile"):
        shutil.copy(CHECKOUT / name, site.host_folder)
    shutil.copytree(CHECKOUT / "requirements", site.host_folder / "requirements")
    site.own()
    before = all_jobs(site)
    environment = {"VENV": str(site.cluster.environment), "SHELL": "/bin/bash"}
    done = site.cluster.run(["bash"], cwd=site.folder, env=environment, stdin=lines, timeout=400)
    assert len(all_jobs(site) - before) == 1  # salloc's own
    assert site.statuses() == {"ok": 8}
    assert "<html" in site.report()
    assert done.stdout.endswith("Report: results/drill/report.html\n"), done.stdout
    assert site.cluster.squeue() == {}


def test_without_an_allocation_the_same_line_is_refused(site):
    site.write(fake_campaign(site))
    before = all_jobs(site)
    done = site.cluster.run(locally(site), cwd=site.folder, check=False)
    assert done.returncode == 2
    assert "--profile profiles/slurm" in done.stderr
    assert "Traceback" not in done.stderr
    assert_nothing_was_started(site, before)


def test_an_allocation_that_is_too_small_is_told_before_anything_starts(site):
    site.write(fake_campaign(site))
    done = site.cluster.run(["salloc", "--nodes=1", *locally(site)], cwd=site.folder, check=False)
    assert done.returncode == 2
    assert "shape 2x2 needs" in done.stderr
    assert "Traceback" not in done.stderr
    assert site.records() == []


def test_a_campaign_for_one_machine_is_not_submitted(site):
    stack = {"kind": "host", "python": site.cluster.python}
    site.write(campaign({"host": stack}, cluster="local", shapes=[{"nodes": [1], "gpus_per_node": [2]}]))
    before = all_jobs(site)
    done = site.snakemake(check=False)
    assert done.returncode == 2
    assert "--profile profiles/local" in done.stderr
    assert "Traceback" not in done.stderr
    assert_nothing_was_started(site, before)


def test_the_gate_fails_for_a_failed_cell_that_is_not_measured_again(site):
    """One cell's check fails in both repeats; a rank that dies in another ends its launch."""
    faults = {"all_reduce-4096-": "check", "all_reduce-16384-": "raise"}
    site.write(fake_campaign(site, {"FAKE_FAULTS": json.dumps(faults)}))
    done = site.snakemake("gate", check=False)
    assert done.returncode == 1
    assert (submitted(done, "preflight"), submitted(done, "measure")) == (1, 1)
    assert site.statuses() == {"ok": 4, "failed": 4}
    text = (site.results / "gate.txt").read_text()
    assert cells_judged(site) == 4
    assert done.stdout.endswith(text)
    messages = {name.split("-")[2]: message.split(": ") for name, message in failures(site).items()}
    assert set(messages) == {"4096", "16384"}
    assert messages["4096"][1].startswith("loss_is_finite ")
    assert messages["16384"][1:3] == ["rank 0 on fake", "ValueError"]
    assert "<html" in site.report()
    again = site.snakemake("gate", check=False)
    assert again.returncode == 1
    assert "has been submitted" not in again.stderr
    assert again.stdout.endswith(text)
