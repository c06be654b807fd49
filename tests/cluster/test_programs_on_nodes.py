"""Programs as sites have them: HPL, STREAM and RandomAccess of hpcc, NetPIPE, fio and timeit, as jobs of a real Slurm."""

import csv
import shutil

import pytest
from drills import CHECKOUT, SAMPLING, TRAIN_STEP, Site, campaign, script_entry
from stacks import COMPILED

HPCC = """#!/bin/sh
set -e
mpirun --map-by :OVERSUBSCRIBE -n "$1" hpcc
cat hpccoutf.txt
"""
EXAMPLE = "/usr/share/doc/hpcc/examples/_hpccinf.txt"
LARGER = {"better": "larger"}


def program(name: str, command: list[str], read: dict, **more) -> dict:
    return {"benchmark": "program", "name": name, "command": command, "read": read} | more


HPL = {"hpl": {"match": r"^HPL_Tflops=(\S+)", "unit": "Tflop/s"} | LARGER}
HPCC_RATES = HPL | {
    "stream": {"match": r"^StarSTREAM_Triad=(\S+)", "unit": "GB/s"} | LARGER,
    "random_access": {"match": r"^MPIRandomAccess_GUPs=(\S+)", "unit": "Gupdates/s"} | LARGER,
}


def hpcc(site: Site, read: dict) -> dict:
    """Return an entry for hpcc, which starts its ranks itself: OpenMPI needs PMIx, which this srun lacks."""
    return program(
        *("hpcc", [f"{site.folder}/hpcc.sh", "{world_size}"], read),
        ranks="one",
        files={"hpccinf.txt": f"{site.folder}/hpccinf.txt.in"},
        parameters={"n": [200], "nb": [32]},
        check={"match": "Success=1", "reject": "FAILED"},
    )


def prepare(site: Site) -> None:
    """Write hpcc's wrapper and input, with the sizes as templates, on a grid of one row of processes."""
    (site.host_folder / "hpcc.sh").write_text(HPCC)
    (site.host_folder / "hpcc.sh").chmod(0o755)
    lines = site.cluster.run(["cat", EXAMPLE]).stdout.splitlines()
    values = {5: "{n}", 7: "{nb}", 10: "1", 11: "{world_size}"}
    text = "\n".join(f"{values[number]} x" if number in values else line for number, line in enumerate(lines))
    (site.host_folder / "hpccinf.txt.in").write_text(text + "\n")
    site.own()


def rates(site: Site) -> dict[tuple[str, str], tuple[float, str]]:
    with (site.results / "cells.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["reported"]]
    names = [row["reported_quantity"].partition(" ")[0] for row in rows]
    return {(name, row["stack"]): (float(row["reported"]), row["unit"]) for name, row in zip(names, rows, strict=True)}


@pytest.mark.timeout(900)
def test_programs_of_sites_are_measured_by_what_they_print(site: Site):
    prepare(site)
    bandwidth = {"match": r"WRITE: bw=(?P<value>[\d.]+)(?P<unit>[KMG]iB/s)", "unit": "MiB/s"} | LARGER
    loop = {"match": r"([\d.e+]+) nsec per loop", "unit": "ns", "better": "smaller"}
    entries = [
        hpcc(site, HPCC_RATES),
        program("fio", ["fio", "--name=x", "--rw=write", "--size=16M", "--bs=1M"], {"fio": bandwidth}, ranks="one"),
        program("timeit", ["python3", "-m", "timeit", "-n", "1000", "-u", "nsec", "sum(range(100))"], {"timeit": loop}),
    ]
    entries[-1]["ranks"] = "one"
    stacks = {"host": {"kind": "host", "python": site.cluster.python}}
    site.write(campaign(stacks, shapes=[{"nodes": [1], "gpus_per_node": [2]}], repeats=1, benchmarks=entries))
    site.snakemake(timeout=800)
    assert [(record["cell"], record["cause"]) for record in site.records() if record["status"] != "ok"] == []
    assert len(list(site.results.glob("launches/*.jsonl"))) == 3  # one launch of hpcc for its three rates
    found = {name: of for (name, _), of in rates(site).items()}
    assert {name: unit for name, (_, unit) in found.items()} == {
        "hpl": "Tflop/s",
        "stream": "GB/s",
        "random_access": "Gupdates/s",
        "fio": "MiB/s",
        "timeit": "ns",
    }
    assert 0.00001 < found["hpl"][0] < 0.5
    assert 0.5 < found["stream"][0] < 1000
    assert 50 < found["timeit"][0] < 100_000


@pytest.mark.timeout(900)
def test_an_mpi_program_on_two_nodes_is_connected_by_srun(site: Site):
    """NetPIPE with MPICH, one process on each node: without a connection, each would be a program of one rank."""
    site.own()
    read = {"bandwidth": {"match": r"1024 bytes +\d+ times --> +([\d.]+) Mbps", "unit": "Mbit/s"} | LARGER}
    command = ["NPmpich2", "-l", "1024", "-u", "1024", "-p", "0", "-o", "np.out"]
    entry = program("netpipe", command, read, ranks=1, check={"match": "Now starting the main loop"})
    stacks = {"host": {"kind": "host", "python": site.cluster.python, "srun": ["--mpi=pmi2"]}}
    site.write(campaign(stacks, shapes=[{"nodes": [2], "gpus_per_node": [1]}], repeats=1, benchmarks=[entry]))
    site.snakemake(timeout=800)
    assert [(record["status"], record["cause"]) for record in site.records()] == [("ok", None)]
    assert 1 < rates(site)["bandwidth", "host"][0] < 1e6


PRINTS = """#!/usr/bin/env python3
import os, sys, time
rank = int(os.environ["SLURM_PROCID"])
for step in range(20):
    if rank == 0 or sys.argv[1] == "both":
        print("step", step, "took", f"{step + 1}.5 ms", "x" * 3000 + f" end {step}.25 s", flush=True)
    else:
        print("noise of", rank, "3 ms", file=sys.stderr, flush=True)
    time.sleep(0.01)
print("last", end="")
"""


@pytest.mark.timeout(900)
def test_srun_labels_lines_by_rank_and_lines_that_it_divides_are_whole(site: Site):
    """Four ranks on two nodes. The second number of each line is behind 3,000 characters."""
    (site.host_folder / "prints.py").write_text(PRINTS)
    (site.host_folder / "prints.py").chmod(0o755)
    site.own()
    lower = {"unit": "ms", "better": "smaller", "expected": 20}
    read = {"step": {"samples": r"took ([\d.]+) ms"} | lower, "end": {"samples": r"end ([\d.]+) s"} | lower}
    read["end"]["unit"] = "s"
    entries = [program(mode, [f"{site.folder}/prints.py", mode], read) for mode in ("alone", "both")]
    stacks = {"host": {"kind": "host", "python": site.cluster.python}}
    shapes = [{"nodes": [2], "gpus_per_node": [2]}]
    site.write(campaign(stacks, shapes=shapes, repeats=1, benchmarks=entries))
    site.snakemake(timeout=800, check=False)
    found = {}
    for record in site.records():
        ((name, _),) = record["spec"]["program"]["read"].items()
        found[record["spec"]["parameters"]["program"], name] = record
    assert found["alone", "step"]["slowest_rank_samples_ns"] == [round(1e6 * (step + 1.5)) for step in range(20)]
    assert found["alone", "end"]["slowest_rank_samples_ns"] == [round(1e9 * (step + 0.25)) for step in range(20)]
    assert {(r["status"], "on 4 ranks:" in r["cause"]) for (mode, _), r in found.items() if mode == "both"} == {
        ("failed", True)
    }
    for log in site.results.glob("batches/*/logs/*.log"):
        first, *lines = log.read_text().splitlines()
        assert first.endswith("(srun --label)")
        assert sum(line[3:] == "last" for line in lines) == 4


@pytest.mark.timeout(1200)
def test_one_campaign_mixes_all_ways_to_measure_on_host_and_image(site: Site, cpu_image):
    prepare(site)
    for example in ("script/train.py", "own/my_step.py"):
        shutil.copy(CHECKOUT / "examples" / example, site.host_folder)
    site.own()
    script = script_entry(f"{site.folder}/train.py")
    stacks = {
        "host": {"kind": "host", "python": site.cluster.python},
        "contained": {"kind": "contained", "image": cpu_image, "env": COMPILED, "binds": [site.folder]},
    }
    own = {"benchmark": "./my_step.py", "parameters": {"size": [128], "dtype": ["fp32"]}}
    entries = [TRAIN_STEP, script, own, hpcc(site, HPL)]
    shapes, sampling = [{"nodes": [1], "gpus_per_node": [2]}], SAMPLING | {"min_samples": 3}
    data = campaign(stacks, shapes=shapes, repeats=2, benchmarks=entries, sampling=sampling, versus="stack")
    site.write(data, env={"OMP_NUM_THREADS": 1})
    site.snakemake(timeout=1000)
    assert [(record["cell"], record["cause"]) for record in site.records() if record["status"] != "ok"] == []
    with (site.results / "tables" / "comparisons.csv").open(encoding="utf-8") as file:
        compared = {row["benchmark"]: row for row in csv.DictReader(file)}
    assert set(compared) == {"train_step", "script", "program", "my_step"}
    assert all(float(row["time_ratio"]) > 0 for row in compared.values())
    assert {stack for _, stack in rates(site)} == {"host", "contained"}
