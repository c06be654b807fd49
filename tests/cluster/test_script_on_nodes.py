"""A user's training script, and a program, on two nodes through srun, on the host and in an image."""

import csv
import shutil

import pytest
from drills import CHECKOUT, SAMPLING, TRAIN_STEP, Site, campaign, script_entry
from stacks import COMPILED

SCRIPT = "my code/train.py"  # a blank in its path


@pytest.mark.timeout(900)
def test_an_unchanged_script_is_measured_on_two_nodes_on_each_stack(site: Site, cpu_image):
    code = site.host_folder / "my code"
    code.mkdir()
    shutil.copy(CHECKOUT / "examples/script/train.py", code)
    site.own()
    script = script_entry(f"{site.folder}/{SCRIPT}")
    stacks = {
        "host": {"kind": "host", "python": site.cluster.python},
        "contained": {"kind": "contained", "image": cpu_image, "env": COMPILED},
    }
    changes = {"shapes": [{"nodes": [2], "gpus_per_node": [2]}], "repeats": 1, "benchmarks": [TRAIN_STEP, script]}
    site.write(campaign(stacks, **changes, sampling=SAMPLING | {"min_samples": 3}), env={"OMP_NUM_THREADS": 1})
    site.snakemake(timeout=800)
    records = site.records()
    measured = {(r["spec"]["benchmark"], r["spec"]["stack"]["name"]): r for r in records}
    assert set(measured) == {(name, stack) for name in ("script", "train_step") for stack in stacks}
    assert {(r["status"], r["cause"]) for r in records} == {("ok", None)}
    for stack in stacks:
        assert [len(row) for row in measured["script", stack]["samples_ns"]] == [12] * 4
    hosts = [[h["host"] for h in line["environment"]["hosts"]] for line in site.lines() if line["kind"] == "launch"]
    assert hosts == [["n1", "n2"]] * 4
    with (site.host_folder / "results" / "drill" / "cells.csv").open(encoding="utf-8") as file:
        assert [row["script"] for row in csv.DictReader(file) if row["benchmark"] == "script"] == ["train.py"] * 2


def test_a_program_is_measured_on_two_nodes_on_each_stack(site: Site, cpu_image):
    """One number, of rank 0; on a node more than planned, the placement would fail."""
    code = site.host_folder / "my code"
    code.mkdir()
    (code / "rate.sh").write_text("#!/bin/sh\n[ $SLURM_PROCID -gt 0 ] || echo rate: 250 of $SLURM_NTASKS\n")
    (code / "rate.sh").chmod(0o755)
    site.own()
    program = {
        "benchmark": "program",
        "name": "rate",
        "command": [f"{site.folder}/my code/rate.sh"],
        "read": {"rate": {"match": r"rate: (\d+)", "unit": "operations/s", "better": "larger"}},
        "check": {"match": "of 4"},
    }
    stacks = {
        "host": {"kind": "host", "python": site.cluster.python},
        "contained": {"kind": "contained", "image": cpu_image, "binds": [site.folder]},
    }
    changes = {"shapes": [{"nodes": [2], "gpus_per_node": [2]}], "repeats": 1, "benchmarks": [program]}
    site.write(campaign(stacks, **changes))
    site.snakemake(timeout=400)
    records = {record["spec"]["stack"]["name"]: record for record in site.records()}
    assert {name: (r["status"], r["cause"]) for name, r in records.items()} == dict.fromkeys(stacks, ("ok", None))
    assert [record["slowest_rank_samples_ns"] for record in records.values()] == [[4 * 10**12]] * 2  # 10^6 / 250 s
