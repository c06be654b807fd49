"""The three kinds of stack with real torch ranks: their results, their provenance, and why some are not started."""

import csv
import json

import pytest
from drills import SAMPLING, Site, campaign
from stacks import QUOTED, launches, make_stacks, submitted

KINDS = ["host", "contained", "bind_mounted"]
COLLECTIVE = {"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": [1024, 16384]}}
TRAIN_STEP = {
    "benchmark": "train_step",
    "parameters": {"model": ["lm_tiny"], "context_length": [16], "batch_size": [2], "strategy": ["none"]},
}


def preflight(site: Site) -> dict[str, dict]:
    """Return what the preflight found of each stack, by its name."""
    [path] = site.results.glob("preflight/*.json")
    return {stack["stack"]: stack for stack in json.loads(path.read_text())["stacks"]}


def origins(stack: dict, library: str) -> set[str]:
    """Return from where the ranks of a stack have loaded a library, one text if all have it from the same place."""
    found = set()
    for rank in stack["seen"]["ranks"]:
        of_rank = {lib["origin"] for lib in rank["libraries"] if lib["name"].startswith(f"{library}.so")}
        found.add(" and ".join(sorted(of_rank)) or "not loaded")
    return found


@pytest.mark.timeout(1200)  # 35 starts of torch
def test_every_kind_of_stack_measures_on_every_shape_and_one_that_fell_back_is_held_back(site, cpu_image):
    """The last stack is the same image without the bind: its ranks would run, but without the host's library."""
    stacks = make_stacks(site, cpu_image)
    stacks["fallen_back"] = stacks["contained"] | {"required_host_libraries": ["libfabric"]}
    shapes = [{"nodes": [1], "gpus_per_node": [1]}, {"nodes": [2], "gpus_per_node": [2]}]
    site.write(
        campaign(
            stacks,
            shapes=shapes,
            repeats=1,
            benchmarks=[COLLECTIVE, TRAIN_STEP],
            sampling=SAMPLING | {"min_samples": 3},
        ),
        env={"OMP_NUM_THREADS": 1},  # ranks of other tests may want the cores, too
    )
    done = site.snakemake(timeout=1000, check=False)
    assert done.returncode == 3  # one stack failed the preflight
    assert submitted(done) == 3  # the preflight, and a batch of each shape
    check_records(site)
    check_launches(site, cpu_image)
    check_preflight(site, cpu_image)
    check_held_stack(site)

    # A record's own line, called in an allocation, repeats its cell: blanks and quotes get through a shell, too.
    commands = {(r["spec"]["stack"]["name"], r["spec"]["gpus_per_node"]): r["command"] for r in site.records()}
    line = ["salloc", "--nodes=2", "--ntasks-per-node=2", "bash", "-c", commands["bind_mounted", 2]]
    assert "all_reduce" in site.cluster.run(line, cwd=site.folder).stdout


def check_records(site: Site) -> None:
    """Two sizes on three stacks; one rank, which has nobody to talk to, trains on three stacks."""
    records = site.records()
    assert len(records) == 2 * 3 + 3
    assert {(record["status"], record["cause"]) for record in records} == {("ok", None)}
    trained = {r["spec"]["stack"]["name"]: r for r in records if r["spec"]["benchmark"] == "train_step"}
    assert set(trained) == set(KINDS)
    assert {record["spec"]["nodes"] * record["spec"]["gpus_per_node"] for record in trained.values()} == {1}


def check_launches(site: Site, cpu_image: str) -> None:
    """Where the ranks were, and what they were started in."""
    planned = [(nodes, gpus, stack) for nodes, gpus in [(1, 1), (2, 2)] for stack in KINDS]
    begun = launches(site)
    assert sorted((line["nodes"], line["gpus_per_node"], line["stack"]) for line in begun) == sorted(planned)
    for line in begun:
        placed = {host["host"]: host["ranks"] for host in line["environment"]["hosts"]}
        ranks = list(range(line["gpus_per_node"]))
        if line["nodes"] == 2:
            assert placed == {"n1": ranks, "n2": [rank + len(ranks) for rank in ranks]}
        else:
            assert placed in ({"n1": ranks}, {"n2": ranks})
        variables = line["environment"]["variables"]
        assert variables.get("APPTAINER_CONTAINER") == (None if line["stack"] == "host" else cpu_image)
        is_wrapped = line["stack"] == "bind_mounted"
        assert variables.get("FI_LOG_PREFIX") == (QUOTED if is_wrapped else None)
        assert variables.get("LD_PRELOAD") == ("/host/lib/libfabric.so.1" if is_wrapped else None)


def check_preflight(site: Site, cpu_image: str) -> None:
    """Who the images are, and from where the libraries."""
    header = site.cluster.run(["apptainer", "sif", "header", cpu_image]).stdout
    shown = next(line.split()[1] for line in header.splitlines() if line.startswith("ID:"))
    images = {"host": None, "contained": shown, "bind_mounted": shown}
    specs = [record["spec"]["stack"] for record in site.records()]
    assert {spec["name"]: spec.get("image_id") for spec in specs} == images
    seen = preflight(site)
    assert {stack: found["image_id"] for stack, found in seen.items()} == images | {"fallen_back": shown}
    assert {stack: found["verdict"]["ok"] for stack, found in seen.items()} == {
        "host": True,
        "contained": True,
        "bind_mounted": True,
        "fallen_back": False,
    }
    assert {len(found["seen"]["ranks"]) for found in seen.values()} == {4}
    assert {stack: origins(found, "libtorch_cpu") for stack, found in seen.items()} == {
        "host": {"host"},
        "contained": {"image"},
        "bind_mounted": {"image"},
        "fallen_back": {"image"},
    }
    assert {stack: origins(found, "libfabric") for stack, found in seen.items()} == {
        "host": {"not loaded"},
        "contained": {"not loaded"},
        "bind_mounted": {"host"},
        "fallen_back": {"not loaded"},
    }


def check_held_stack(site: Site) -> None:
    cause = preflight(site)["fallen_back"]["verdict"]["problems"][0].partition(". ")[0]
    assert "libfabric" in cause
    with (site.results / "measurements.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["stack"] == "fallen_back" and row["status"] != "skipped"]
    assert [row["status"] for row in rows] == ["not_measured"] * 3  # two sizes, and the training step
    assert all(cause in row["cause"] for row in rows), rows
    assert cause in site.report()
