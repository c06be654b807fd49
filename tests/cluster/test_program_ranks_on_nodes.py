"""Programs that start their ranks themselves, as jobs of a real Slurm: mpirun and torchrun on two nodes, and cores."""

import csv

import pytest
import yaml
from drills import CHECKOUT, Site, campaign
from stacks import COMPILED

TRAIN = """
import os, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(1000)
for step in range(3):
    begin = time.perf_counter()
    dist.all_reduce(x)
    if dist.get_rank() == 0:
        print(f"ranks {dist.get_world_size()} took {1e3 * (time.perf_counter() - begin):.6f} ms", flush=True)
dist.destroy_process_group()
"""
STEPS = {"step": {"samples": r"took ([\d.]+) ms", "unit": "ms", "better": "smaller"}}
CORES = {"cores": {"match": r"cores (\d+)", "unit": "operations/s", "better": "larger"}}
RANKS = {"ranks": r"ranks (\d+)"}
# Each rank prints its node; of four, two are on each.
MPI = """#!/bin/sh
echo cores "$(nproc)"
"$1" -n "$2" uname -n > hosts || exit 1
echo ranks "$(wc -l < hosts)" on "$(sort hosts | uniq -c | sort | tr -s ' \\n' ' ')"
"""
ON_BOTH = {"match": "on +2 n1 2 n2"}


@pytest.fixture(scope="module", autouse=True)
def pinned(cluster) -> None:
    """Have Slurm pin tasks to their cores, as sites do; the other files only claim cores."""
    path = cluster.state / "root" / "etc" / "regatta-cluster" / "slurm.conf"
    path.write_text(path.read_text().replace("TaskPlugin=task/none", "TaskPlugin=task/affinity"))
    cluster.run(["scontrol", "reconfigure"], as_root=True)
    shown = cluster.run(["scontrol", "show", "config"]).stdout
    assert [line.split()[-1] for line in shown.splitlines() if line.startswith("TaskPlugin ")] == ["task/affinity"]


def program(name: str, ranks: object, command: list[str], read: dict, **more) -> dict:
    return {"benchmark": "program", "name": name, "ranks": ranks, "command": command, "read": read} | more


def prepare(site: Site) -> dict:
    """Write the programs. Return the stack of the host, whose python3 has torch."""
    (site.host_folder / "train.py").write_text(TRAIN)
    (site.host_folder / "mpi.sh").write_text(MPI)
    (site.host_folder / "mpi.sh").chmod(0o755)
    site.own()
    path = f"{site.cluster.environment}/bin:/usr/local/bin:/usr/bin:/bin"
    return {"kind": "host", "python": site.cluster.python, "env": {"PATH": path, "GLOO_SOCKET_IFNAME": "eth0"}}


def reported(site: Site) -> dict[str, float]:
    with (site.results / "cells.csv").open(encoding="utf-8") as file:
        return {row["program"]: float(row["reported"]) for row in csv.DictReader(file) if row["reported"]}


def failures(site: Site) -> list[tuple]:
    records = site.records()
    assert records
    return [(record["cell"], record["status"], record["cause"]) for record in records if record["status"] != "ok"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("cpus_per_rank", [1, None])
def test_a_program_that_starts_ranks_has_the_cores_of_all_and_mpirun_starts_them_on_two_nodes(
    site: Site, cpus_per_rank
):
    """Two cores, which every machine has. Without cpus_per_rank, a step has all of its job: also one for each rank."""
    stack, mpi = prepare(site), f"{site.folder}/mpi.sh"
    cores = ["sh", "-c", '[ "$NODE_RANK" != 0 ] || [ "$SLURM_LOCALID" = 1 ] || echo cores $(nproc)']
    check = RANKS | ON_BOTH
    entries = [
        program("openmpi", "one", [mpi, "mpirun", "{world_size}"], CORES, check=check),
        program("mpich", "one", [mpi, "mpirun.mpich", "{world_size}"], CORES, check=check),
        program("node", "node", cores, CORES),
        program("number", 1, cores, CORES),
        program("gpu", "gpu", cores, CORES),
    ]
    data = campaign({"host": stack}, shapes=[{"nodes": [2], "gpus_per_node": [2]}], repeats=1, benchmarks=entries)
    site.write(data, cpus_per_rank=cpus_per_rank)
    site.snakemake(timeout=800)
    assert failures(site) == []
    found = reported(site)
    assert found == {"gpu": 1, "openmpi": 2, "mpich": 2, "node": 2, "number": 2}


@pytest.mark.timeout(1200)
def test_torchrun_of_the_docs_starts_ranks_on_two_nodes_on_the_host_and_in_an_image(site: Site, cpu_image):
    (example,) = [block for block in yaml_blocks(CHECKOUT / "docs" / "cluster.md") if "torchrun" in str(block)]
    (entry,) = example["benchmarks"]
    words = ["python3", "-m", "torch.distributed.run", *entry["command"][1:-1], f"{site.folder}/train.py"]
    plain = program("plain", "gpu", ["python3", f"{site.folder}/train.py"], STEPS, check=RANKS)
    stacks = {"host": prepare(site)}
    env = COMPILED | {"GLOO_SOCKET_IFNAME": "eth0"}
    stacks["contained"] = {"kind": "contained", "image": cpu_image, "env": env, "binds": [site.folder]}
    entries = [entry | {"command": words}, plain]
    site.write(campaign(stacks, shapes=example["shapes"], repeats=1, benchmarks=entries))
    site.snakemake(timeout=1000)
    assert failures(site) == []
    assert {record["sampling"]["num_iterations"] for record in site.records()} == {3}
    assert len(site.records()) == 4


def yaml_blocks(path) -> list[dict]:
    parts = path.read_text(encoding="utf-8").split("```yaml\n")[1:]
    return [yaml.safe_load(part.partition("```")[0]) for part in parts]
