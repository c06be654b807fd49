"""Slurm container plugins, with a stand-in for them: their stacks run beside others on the same nodes, errors are
reported, and nothing is measured outside the image."""

import csv
import hashlib
import json
import shutil
from pathlib import Path

import pytest
from drills import SAMPLING, UNTIL_MEASURED, Site, campaign
from stacks import COMPILED, fake_in_image, launches, make_wrapper, submitted
from test_stack_jobs import said_in_jobs
from test_stacks import COLLECTIVE, origins, preflight

MOUNT = "/user-environment"


def pyxis(image: str, **changes) -> dict:
    return {"kind": "contained", "runtime": "pyxis", "image": image} | changes


def environment_file(site: Site, image: str) -> str:
    """Write an EDF that is based on another one; returns its path on the nodes."""
    (site.host_folder / "base.toml").write_text(f'image = "{image}"\nmounts = ["/small:/small"]\n')
    (site.host_folder / "image.toml").write_text(f'base_environment = ["{site.folder}/base.toml"]\n')
    site.own()
    return f"{site.folder}/image.toml"


@pytest.mark.timeout(1200)  # 30 starts of torch
def test_host_apptainer_and_plugins_are_compared_on_the_same_nodes(site, cpu_image, cpu_squashfs):
    """The stand-in overwrites RANK and LOCAL_RANK, as Pyxis does in images with PYTORCH_VERSION."""
    env = {"OMP_NUM_THREADS": "1"} | COMPILED
    stacks = {
        "host": {"kind": "host", "python": site.cluster.python, "env": {"OMP_NUM_THREADS": "1"}},
        "apptainer": {"kind": "contained", "image": cpu_image, "env": env},
        "pyxis": pyxis(cpu_squashfs, env=env),
        "engine": {"kind": "contained", "runtime": "ce", "image": environment_file(site, cpu_squashfs), "env": env},
        "uenv": {"kind": "contained", "runtime": "uenv", "image": cpu_squashfs, "python": site.cluster.python}
        | {"env": {"OMP_NUM_THREADS": "1"}},
    }
    sampling = SAMPLING | {"min_samples": 3}
    shapes = [{"nodes": [2], "gpus_per_node": [1]}]
    site.write(campaign(stacks, shapes=shapes, repeats=2, benchmarks=[COLLECTIVE], sampling=sampling))
    done = site.snakemake(timeout=1000)
    assert submitted(done) == 2  # the preflight, and one batch
    records = site.records()
    assert {(record["status"], record["cause"]) for record in records} == {("ok", None)}
    assert len(records) == 2 * 2 * len(stacks)  # sizes, repeats
    started = {line["stack"]: line for line in launches(site)}
    places = {json.dumps([host["host"] for host in line["environment"]["hosts"]]) for line in started.values()}
    assert places == {'["n1", "n2"]'}
    assert {line["environment"]["threads_per_rank"] for line in started.values()} == {1}
    digest = hashlib.sha256((site.cluster.state / "images" / "cpu.sqsh").read_bytes()).hexdigest()
    specs = {record["spec"]["stack"]["name"]: record["spec"]["stack"] for record in records}
    assert specs["pyxis"]["image_id"] == specs["uenv"]["image_id"] == digest
    assert len({spec.get("image_id") for spec in specs.values()}) == 4
    preflights = preflight(site)
    inside = {"host": {"host"}, "uenv": {"host"}} | {name: {"image"} for name in ("apptainer", "pyxis", "engine")}
    assert {name: origins(found, "libtorch_cpu") for name, found in preflights.items()} == inside


def fake_stack(site: Site, image: str, **changes) -> dict:
    """Return a stack whose fake ranks run with the image's Python."""
    return pyxis(image, python=fake_in_image(site), **changes)


def write_fake(site: Site, stack: dict, **changes) -> None:
    shape = {"nodes": [2], "gpus_per_node": [1]}
    site.write(campaign({"inside": stack}, repeats=1, shapes=[shape], **changes), node_folders=["/opt"])


def not_measured(site: Site) -> set[str]:
    """Return the causes in measurements.csv. Fails if a row was measured."""
    with (site.results / "measurements.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert {row["status"] for row in rows} <= {"not_measured", "failed"}
    return {row["cause"] for row in rows}


FAULTS = {
    "image": ("mount --bind /var/empty /images", "umount /images", "/images/cpu.sqsh"),
    "plugin": ("mount --bind /dev/null $PLUGSTACK", "umount $PLUGSTACK", "not in the image"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_node_that_cannot_start_the_image_is_reported(site, cpu_squashfs, fault):
    """Slurm starts the tasks of a node without the plugin on the host, where this wrapper finds a Python as well."""
    make_wrapper(site, f'#!/bin/sh\nPATH=$PATH:{Path(site.cluster.python).parent} exec "$@"\n')
    write_fake(site, pyxis(cpu_squashfs, wrapper=f"{site.folder}/wrap it.sh"))
    inject, restore, expected = FAULTS[fault]
    run_on(site, "n2", inject)
    try:
        site.snakemake("--retries", "0", check=False)
    finally:
        run_on(site, "n2", restore)
    [cause] = not_measured(site)
    assert expected in cause
    assert "n2" in cause
    assert site.lines() == []
    assert expected in site.report()


def run_on(site: Site, node: str, command: str) -> None:
    """Run a command on a node as root, $PLUGSTACK being the file that lists plugins."""
    head = "PLUGSTACK=$(dirname $SLURM_CONF)/plugstack.conf; mkdir -p /var/empty; "
    site.cluster.run(["sh", "-euc", head + command], node=node, as_root=True)


def test_a_missing_plugin_is_reported(site, cpu_squashfs):
    write_fake(site, fake_stack(site, cpu_squashfs))
    for node in ("n1", "n2"):
        run_on(site, node, FAULTS["plugin"][0])
    try:
        site.snakemake("--retries", "0", check=False)
    finally:
        for node in ("n1", "n2"):
            run_on(site, node, FAULTS["plugin"][1])
    [cause] = not_measured(site)
    assert "unrecognized option --container-image" in cause
    assert site.lines() == []


def test_a_missing_bind_source_is_reported(site, cpu_squashfs):
    write_fake(site, fake_stack(site, cpu_squashfs, binds=["/opt/no/such:/x"]))
    site.snakemake("--retries", "0", check=False)
    [cause] = not_measured(site)
    assert "/opt/no/such" in cause
    assert site.lines() == []


def test_an_image_or_environment_file_that_changes_while_a_job_waits_is_not_measured(site, cpu_squashfs):
    image = site.host_folder / "an image.sqsh"
    shutil.copy(site.cluster.state / "images" / "cpu.sqsh", image)
    path = environment_file(site, f"{site.folder}/an image.sqsh")
    stacks = {
        "engine": {"kind": "contained", "runtime": "ce", "image": path, "python": fake_in_image(site)},
        "inside": fake_stack(site, f"{site.folder}/an image.sqsh"),
    }
    site.write(campaign(stacks, repeats=1, shapes=[{"nodes": [1], "gpus_per_node": [2]}]))
    site.pass_preflight()
    snakemake, blocker = site.popen_behind_a_job()
    (site.host_folder / "base.toml").write_text(f'image = "{site.folder}/an image.sqsh"\n')  # without the mount
    with image.open("r+b") as file:
        file.seek(8)  # creation time in the superblock
        file.write(b"\1\2\3\4")
    site.cluster.run(["scancel", blocker])
    assert snakemake.wait(300) == 4
    assert said_in_jobs(site, "image.toml changed") == 1
    assert site.lines() == []
    ids = {stack["image_id"] for stack in json.loads(frozen(site))["stacks"].values()}

    assert submitted(site.snakemake(*UNTIL_MEASURED)) == 2
    assert set(site.statuses()) == {"ok"}
    assert not ids & {record["spec"]["stack"]["image_id"] for record in site.records()}


def frozen(site: Site) -> str:
    [path] = site.results.glob("batches/*/batch.json")
    return path.read_text()


def test_a_program_runs_in_its_image_and_keeps_the_campaigns_variables(site, cpu_squashfs):
    """The image sets the same variable; without --container-env, its value wins."""
    (site.cluster.state / "images" / "cpu.sqsh.env").write_text("OF_CAMPAIGN=1\nOF_IMAGE=2\n")
    command = "test -e /usr/local/lib/python3*/dist-packages/torch && echo value=$OF_CAMPAIGN$OF_IMAGE$LC_ALL"
    read = {"value": {"match": r"value=(\d+)C.UTF-8", "unit": "s", "better": "smaller"}}
    entry = {"benchmark": "program", "name": "shell", "command": ["sh", "-c", command], "read": read, "ranks": "one"}
    write_fake(site, pyxis(cpu_squashfs, env={"OF_CAMPAIGN": "7"}), benchmarks=[entry])
    try:
        site.snakemake(*UNTIL_MEASURED)
    finally:
        (site.cluster.state / "images" / "cpu.sqsh.env").unlink()
    [record] = site.records()
    assert (record["status"], record["cause"]) == ("ok", None)
    assert record["slowest_rank_samples_ns"] == [72_000_000_000]


def test_the_image_of_an_allocation_does_not_reach_a_stack_of_the_host(site, cpu_squashfs):
    """salloc passes options of plugins to each step by variables. The image has no Python at this path."""
    stack = {"kind": "host", "python": f"{site.folder}/tests/cluster/fake_ranks.py"}
    site.write(campaign({"host": stack}, repeats=1, shapes=[{"nodes": [2], "gpus_per_node": [1]}]))
    line = f"{site.cluster.python} workflow/scripts/freeze.py --campaign campaign.yaml && exec {site.cluster.python}"
    line += " workflow/scripts/preflight.py --folder results/drill/preflight/preflight-*"
    salloc = ["salloc", "--quiet", f"--container-image={cpu_squashfs}", "--nodes=2", "--ntasks-per-node=2"]
    site.cluster.run([*salloc, "sh", "-c", line], cwd=site.folder)
    assert preflight(site)["host"]["verdict"]["ok"]
