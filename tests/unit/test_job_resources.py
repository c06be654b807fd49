"""The resources that a batch requests from Slurm, checked against what the executor makes of them."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regatta.campaign.load import fill_defaults
from regatta.core.schemas import load_schema
from regatta.launchers.slurm_resources import (
    longest_planned_minutes,
    sbatch_options,
    shape_resources,
    site_resources,
    walltime_minutes,
)

NO_GRES = {"gres": "", "tasks_per_gpu": 0}
NEEDED = {"schema": 1, "name": "c", "scheduler": "slurm", "num_nodes": 4, "gpus_per_node": 4}


def cluster(**changes) -> dict:
    return fill_defaults(NEEDED | changes, load_schema("cluster"))


@pytest.mark.parametrize(
    ("nodes", "gpus", "expected"),
    [
        # mpi jobs of the executor need 2 tasks at least: 1x1 has two of half the cores
        (1, 1, {"nodes": 1, "tasks": 2, "tasks_per_node": 0, "cpus_per_task": 9} | NO_GRES),
        (1, 4, {"nodes": 1, "tasks": 0, "tasks_per_node": 4, "cpus_per_task": 18} | NO_GRES),
        (2, 1, {"nodes": 2, "tasks": 2, "tasks_per_node": 0, "cpus_per_task": 18} | NO_GRES),
        (2, 4, {"nodes": 2, "tasks": 0, "tasks_per_node": 4, "cpus_per_task": 18} | NO_GRES),
    ],
)
def test_tasks_of_each_shape(nodes, gpus, expected):
    assert shape_resources(cluster(cpus_per_rank=18), nodes, gpus, "cuda") == expected


@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 128))
def test_the_cores_asked_for_are_enough_for_the_ranks_and_tasks_is_never_one(nodes, gpus, cpus):
    found = shape_resources(cluster(cpus_per_rank=cpus), nodes, gpus, "cpu")
    assert (found["tasks"] == 0) != (found["tasks_per_node"] == 0)
    tasks = found["tasks"] or found["tasks_per_node"] * nodes
    assert tasks >= 2
    assert tasks * found["cpus_per_task"] >= nodes * gpus * cpus


def test_gpus_are_asked_for_only_where_the_campaign_computes_on_them():
    assert "--gpus-per-node=4" in sbatch_options(cluster(), 2, 4, "cuda")
    assert "gpu" not in sbatch_options(cluster(), 2, 4, "cpu")
    assert shape_resources(cluster(gpu_request="gres"), 2, 4, "cuda")["gres"] == "gpu:4"
    assert "gpu" not in sbatch_options(cluster(gpu_request="gres"), 2, 4, "cuda")
    assert "gpu" not in sbatch_options(cluster(gpu_request="none"), 2, 4, "cuda")


def test_only_what_the_cluster_file_sets_is_asked_for():
    assert site_resources(cluster()) == {"mem_mb": 0}
    requested = site_resources(
        cluster(partition="gpu", account="p", qos="q", constraint="a&b", memory_mb_per_node=1000)
    )
    assert requested == {
        "slurm_partition": "gpu",
        "slurm_account": "p",
        "qos": "q",
        "constraint": "a&b",
        "mem_mb": 1000,
    }


def test_nodes_of_a_failed_start_are_avoided_only_where_others_are_left():
    assert "--exclude=n1,n2" in sbatch_options(cluster(), 2, 1, "cpu", ["n2", "n1"])
    assert "--exclude" not in sbatch_options(cluster(), 3, 1, "cpu", ["n2", "n1"])


def test_the_cluster_files_exclusion_is_kept_and_counts():
    """Of four nodes: Slurm would keep the last of two options alone."""
    site = cluster(sbatch=["-x n4"])
    assert shlex.split(sbatch_options(site, 2, 1, "cpu", ["n1"])) == ["--exclusive", "--exclude=n4,n1"]
    assert shlex.split(sbatch_options(site, 3, 1, "cpu", ["n1"])) == ["--exclusive", "-x n4"]


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), max_size=4))
def test_options_survive_a_shell_as_they_are(values):
    options = [f"--x={value}" for value in values]
    words = shlex.split(sbatch_options(cluster(sbatch=options), 1, 1, "cpu"))
    assert words == ["--exclusive", *options]


@given(st.integers(10, 5000))
def test_a_batch_of_the_longest_planned_length_gets_its_time_limit(minutes):
    site = cluster(max_walltime_minutes=minutes)
    assert walltime_minutes(site, longest_planned_minutes(site), 1) <= minutes
    assert walltime_minutes(cluster(max_walltime_minutes=10**6), longest_planned_minutes(site), 1) <= minutes + 1


@pytest.mark.parametrize(("planned", "attempt", "expected"), [(0.1, 1, 6), (10, 1, 20), (10, 2, 40), (10, 9, 60)])
def test_the_walltime_grows_with_each_attempt_up_to_the_clusters(planned, attempt, expected):
    assert walltime_minutes(cluster(max_walltime_minutes=60), planned, attempt) == expected
