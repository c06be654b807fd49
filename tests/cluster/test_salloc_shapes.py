"""Allocations of the user: shapes smaller than the allocation, and one batch at a time in it."""

import itertools
import json
import subprocess
import time

import pytest
from drills import UNTIL_MEASURED, Site, campaign, fake_campaign
from slurm import wait_until

NUM_NODES = 4
ALL_REDUCE = {"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": [4096]}}
STEP = {
    "benchmark": "train_step",
    "parameters": {"model": ["lm_tiny"], "context_length": [16], "batch_size": [1], "strategy": ["none", "ddp"]},
}
SHAPES = [(1, 1), (1, 2), (3, 1), (4, 1)]


def local_line(site: Site, file: str = "campaign.yaml", cores: str = "8") -> list[str]:
    head = [site.cluster.python, "-m", "snakemake", "--profile", "profiles/local", "--cores", cores]
    return [*head, *UNTIL_MEASURED, "--configfile", file]


def spans(site: Site, *names: str) -> list[tuple[str, str, str]]:
    """Return (first second, last second, batch) of each launch in the stores of some campaigns, in their order."""
    found = []
    for name in names:
        for path in (site.host_folder / "results" / name / "launches").glob("*.jsonl"):
            lines = [json.loads(text) for text in path.read_text().splitlines()]
            found.append((lines[0]["time_utc"], lines[-1]["time_utc"], f"{name}/{lines[0]['batch']}"))
    return sorted(found)


def assert_one_batch_at_a_time(site: Site, num_batches: int, *names: str) -> None:
    found = spans(site, *names)
    assert len({batch for _, _, batch in found}) == num_batches
    order = [batch for _, _, batch in found]
    assert sum(a != b for a, b in itertools.pairwise(order)) == num_batches - 1, found
    for (_, end, batch), (begin, _, other) in itertools.pairwise(found):
        assert end <= begin or batch == other, found


def test_shapes_smaller_than_the_allocation_measure_on_its_first_nodes(site):
    """Real ranks: a step that lands on other nodes than those where they meet would hang."""
    # The nodes share this machine's cores: threads that spin while they wait take them from other nodes' ranks.
    stack = {"kind": "host", "python": site.cluster.python, "env": {"OMP_WAIT_POLICY": "passive"}}
    shapes = [{"nodes": [nodes], "gpus_per_node": [gpus]} for nodes, gpus in SHAPES]
    changes = {"shapes": shapes, "benchmarks": [ALL_REDUCE, STEP], "repeats": 1}
    site.write(campaign({"host": stack}, **changes), num_nodes=4)
    done = site.cluster.run(
        ["salloc", "--nodes=4", "--ntasks-per-node=2", *local_line(site)], cwd=site.folder, timeout=560
    )
    assert set(site.statuses()) == {"ok"}, done.stderr + site.logs()
    hosts = {}
    for line in site.lines():
        if line["kind"] == "launch":
            hosts[line["nodes"], line["gpus_per_node"]] = [h["host"] for h in line["environment"]["hosts"]]
    assert hosts == {(nodes, gpus): [f"n{i + 1}" for i in range(nodes)] for nodes, gpus in SHAPES}
    assert {record["other_ranks"] for record in site.records()} == {0}
    assert_one_batch_at_a_time(site, len(SHAPES), "drill")


def test_two_shapes_in_one_allocation_are_measured_one_after_the_other(site):
    shapes = [{"nodes": [2], "gpus_per_node": [1, 2]}]
    site.write(fake_campaign(site, {"FAKE_CELL_SECONDS": "1"}, shapes=shapes, repeats=1), num_nodes=4)
    site.cluster.run(["salloc", "--nodes=4", "--ntasks-per-node=2", *local_line(site)], cwd=site.folder, timeout=240)
    assert site.statuses() == {"ok": 8}
    assert_one_batch_at_a_time(site, 2, "drill")


@pytest.mark.parametrize("other_folder", [False, True])
def test_two_snakemakes_in_one_allocation_take_turns(site, other_folder):
    """In one folder by the lock of the job, in two by the job's steps."""
    limits = {"cell_seconds": 400, "launch_start_seconds": 240}
    for name, env in (("first", site.hold()), ("second", {})):
        made = fake_campaign(site, env, name=name, repeats=1, limits=limits)
        site.write(made, num_nodes=4).rename(site.host_folder / f"{name}.yaml")
    second = "second" if other_folder else "."
    copy = f"mkdir {second}; cp -r config containers profiles workflow tests Snakefile second.yaml {second}/; sleep 1"
    lines = [" ".join(local_line(site, f"{name}.yaml")) for name in ("first", "second")]
    script = f"{copy if other_folder else ':'}; {lines[0]} & (sleep 4; cd {second}; {lines[1]}) & wait"
    line = ["salloc", "--nodes=4", "--ntasks-per-node=2", "bash", "-c", script]
    with (site.host_folder / "salloc.out").open("w") as output:
        salloc = site.cluster.popen(line, cwd=site.folder, stdout=output, stderr=subprocess.STDOUT)
    wait_until(lambda: list(site.host_folder.glob("results/first/launches/*.jsonl")), 240, "the first measuring")
    planned = site.host_folder / second / "results" / "second"
    wait_until(lambda: list(planned.glob("batches/*/batch.json")), 240, "the second planned")
    time.sleep(5)
    assert not list(planned.glob("launches/*"))
    site.release()
    assert salloc.wait(300) == 0
    if other_folder:
        planned.rename(site.host_folder / "results/second")
    assert len(spans(site, "first", "second")) == 2
    assert_one_batch_at_a_time(site, 2, "first", "second")
