"""The three kinds of stack with real torch ranks: what they measure, what they say of themselves, what holds them back."""

import contextlib
import csv
import hashlib
import json
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from drills import CHECKOUT, SAMPLING, Site, campaign
from slurm import wait_until

QUOTED = 'it\'s "quoted"'
WRAPPER = """#!/bin/bash
set -euo pipefail
[ "$(cat "$QUOTED_FOLDER/proof")" = "seen from the image" ]
export LD_PRELOAD=/host/lib/libfabric.so.1 FI_LOG_PREFIX="it's \\"quoted\\""
exec "$@"
"""
COMPILED = {
    "PYTHONPYCACHEPREFIX": "/tmp/pycache"
}  # the image has no compiled files: each rank would take a second longer
KINDS = ["host", "contained", "bind_mounted"]
COLLECTIVE = {
    "benchmark": "collective",
    "parameters": {"operation": ["all_reduce"], "message_bytes": [1024, 16384]},
}
TRAIN_STEP = {
    "benchmark": "train_step",
    "parameters": {"model": ["lm_tiny"], "context_length": [16], "batch_size": [2], "strategy": ["none"]},
}


@pytest.fixture
def stacks(site, cpu_image) -> dict[str, dict]:
    """Return a stack of each kind. The last has folders of the host with a blank and with quotes in their names, and in
    one of them a library that the wrapper has all ranks load as libfabric: a copy of one that the image itself brings."""
    libraries, quoted = site.host_folder / "host libs", site.host_folder / QUOTED
    libraries.mkdir()
    quoted.mkdir()
    (quoted / "proof").write_text("seen from the image\n")
    make_wrapper(site, WRAPPER)
    copy = f'cp --dereference /lib/*-linux-gnu/libuuid.so.1 "{site.folder}/host libs/libfabric.so.1"'
    site.cluster.run(["apptainer", "exec", "--bind", "/shared", cpu_image, "sh", "-euc", copy])
    return {
        "host": {"kind": "host", "python": site.cluster.python},
        "contained": {"kind": "contained", "image": cpu_image, "env": COMPILED},
        "bind_mounted": {
            "kind": "bind-mounted",
            "image": cpu_image,
            "binds": [f"{site.folder}/host libs:/host/lib:ro", f"{site.folder}/{QUOTED}"],
            "wrapper": f"{site.folder}/wrap it.sh",
            "env": {"QUOTED_FOLDER": f"{site.folder}/{QUOTED}"} | COMPILED,
            "required_host_libraries": ["libfabric"],
        },
    }


def make_wrapper(site: Site, text: str) -> Path:
    wrapper = site.host_folder / "wrap it.sh"
    wrapper.write_text(text)
    wrapper.chmod(0o755)
    site.own()
    return wrapper


def fake_in_image(site: Site) -> str:
    """Return the path of fake ranks that run with an image's Python: with the first line that make_site changes."""
    name = "tests/cluster/fake_in_image.py"
    shutil.copy(CHECKOUT / "tests/cluster/fake_ranks.py", site.host_folder / name)
    site.own()
    return f"{site.folder}/{name}"


def submitted(done: subprocess.CompletedProcess) -> int:
    return done.stderr.count("has been submitted with SLURM jobid")


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


def launches(site: Site) -> list[dict]:
    return [line for line in site.lines() if line["kind"] == "launch"]


def test_every_kind_of_stack_measures_on_every_shape_and_one_that_fell_back_is_held_back(site, stacks, cpu_image):
    """The last stack is the same image without the bind: its ranks would run, but without the host's library."""
    stacks["fallen_back"] = stacks["contained"] | {"required_host_libraries": ["libfabric"]}
    shapes = [{"nodes": [1], "gpus_per_node": [1, 2]}, {"nodes": [2], "gpus_per_node": [1, 4]}]
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
    done = site.snakemake(timeout=500, check=False)
    assert done.returncode == 3  # one stack is held back
    assert submitted(done) == 5  # the preflight, and a batch of each shape
    check_records(site)
    check_launches(site, cpu_image)
    check_preflight(site, cpu_image)
    check_held_stack(site)

    # A record's own line, called in an allocation, repeats its cell: blanks and quotes get through a shell, too.
    commands = {(r["spec"]["stack"]["name"], r["spec"]["gpus_per_node"]): r["command"] for r in site.records()}
    line = ["salloc", "--nodes=1", "--ntasks=2", "bash", "-c", commands["bind_mounted", 2]]
    assert "all_reduce" in site.cluster.run(line, cwd=site.folder).stdout


def check_records(site: Site) -> None:
    """Two sizes on three shapes and three stacks; one rank, which has nobody to talk to, trains on three stacks."""
    records = site.records()
    assert len(records) == 2 * 3 * 3 + 3
    assert {(record["status"], record["cause"]) for record in records} == {("ok", None)}
    trained = {r["spec"]["stack"]["name"]: r for r in records if r["spec"]["benchmark"] == "train_step"}
    assert set(trained) == set(KINDS)
    assert {record["spec"]["nodes"] * record["spec"]["gpus_per_node"] for record in trained.values()} == {1}


def check_launches(site: Site, cpu_image: str) -> None:
    """Where the ranks were, and what they were started in."""
    planned = [(nodes, gpus, stack) for nodes, gpus in [(1, 1), (1, 2), (2, 1), (2, 4)] for stack in KINDS]
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
    assert {len(found["seen"]["ranks"]) for found in seen.values()} == {8}
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
    cause = "libfabric is not loaded on any rank, required from the host."
    assert preflight(site)["fallen_back"]["verdict"]["problems"][0].startswith(cause)
    with (site.results / "measurements.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["stack"] == "fallen_back" and row["status"] != "skipped"]
    assert [row["status"] for row in rows] == ["not_measured"] * 7  # two sizes on three shapes, and the training step
    assert all(cause in row["cause"] for row in rows), rows
    assert "1 of 4 stacks failed the preflight: fallen_back." in site.report()
    assert cause in site.report()


def test_stacks_take_turns_in_one_job(site, stacks):
    """A B C, then C B A, on the same nodes. What the ranks do is played, in the image and on the host."""
    stacks["host"]["python"] = f"{site.folder}/tests/cluster/fake_ranks.py"
    for name in ("contained", "bind_mounted"):
        stacks[name]["python"] = fake_in_image(site)
    del stacks["bind_mounted"]["required_host_libraries"]
    site.write(campaign(stacks))
    assert submitted(site.snakemake()) == 2  # the preflight, and one batch
    assert site.statuses() == {"ok": 24}  # four cells, three stacks, two repeats
    begun = sorted(site.results.glob("launches/*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    stacks_in_turn = [json.loads(path.read_text().splitlines()[0])["stack"] for path in begun]
    assert stacks_in_turn == ["host", "contained", "bind_mounted", "bind_mounted", "contained", "host"]


def test_what_changes_while_a_job_waits_is_not_measured_under_the_old_id(site, cpu_image):
    """The wrapper is edited while the batch's job waits; then, with the batch planned anew, the image is replaced while
    the preflight's job waits."""
    wrapper = make_wrapper(site, '#!/bin/sh\nexec "$@"\n')
    image = site.host_folder / "an image.sif"
    shutil.copy(site.cluster.state / "images" / "cpu.sif", image)
    stack = {
        "kind": "contained",
        "image": f"{site.folder}/an image.sif",
        "python": fake_in_image(site),
        "wrapper": f"{site.folder}/wrap it.sh",
    }
    site.write(campaign({"changing": stack}, repeats=1, shapes=[{"nodes": [1], "gpus_per_node": [2]}]))
    remedy = "Run the same line again: it plans anew, with what is there now."
    site.snakemake("--until", "preflight")

    with waiting(site, exit_status=4):  # the next run plans anew, and no job is submitted again for it
        make_wrapper(site, '#!/bin/sh\nexport OMP_EDITED=1\nexec "$@"\n')
    edited = f"stack changing: {stack['wrapper']} was edited after the cells were planned. {remedy}"
    assert said_in_jobs(site, edited) == 1
    assert site.lines() == []

    other = uuid.uuid4()
    with waiting(site, exit_status=4), image.open("r+b") as file:
        file.seek(48)  # of a SIF file's header: the UUID
        file.write(other.bytes)
    replaced = f"stack changing: {stack['image']} is another image than the one that was planned. {remedy}"
    assert said_in_jobs(site, replaced) == 2  # first in the preflight's, which holds the stack back from the batch
    assert replaced in site.report()
    assert replaced in (site.results / "measurements.csv").read_text()
    assert site.lines() == []

    assert submitted(site.snakemake()) == 2  # the preflight has to look at it anew, too
    assert site.statuses() == {"ok": 4}
    [line] = launches(site)
    assert line["environment"]["variables"]["OMP_EDITED"] == "1"
    spec = site.records()[0]["spec"]["stack"]
    assert spec["wrapper_sha256"] == hashlib.sha256(wrapper.read_bytes()).hexdigest()
    assert spec["image_id"] == str(other)


@contextlib.contextmanager
def waiting(site: Site, exit_status: int) -> Iterator[None]:
    """Run the campaign to its end, with its first job waiting behind another until the block is left."""
    line = ["sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap", "sleep 60"]
    blocker = site.cluster.run(line).stdout.strip()
    snakemake = site.popen("--retries", "0")
    wait_until(lambda: len(site.cluster.squeue()) == 2, 60, "a job behind the one that has the nodes")
    yield
    site.cluster.run(["scancel", blocker])
    assert snakemake.wait(90) == exit_status


def said_in_jobs(site: Site, words: str) -> int:
    """Return how many of the jobs' outputs hold these words."""
    outputs = [path.read_text() for path in site.host_folder.glob(".snakemake/slurm_logs/**/*.log")]
    assert not any("Traceback" in output for output in outputs)
    return sum(words in output for output in outputs)
