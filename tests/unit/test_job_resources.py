"""The options of sbatch for a batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regatta.campaign.load import fill_defaults
from regatta.core.schemas import load_schema
from regatta.launchers.base import Geometry
from regatta.launchers.slurm_resources import SlurmJobs

JOBS = SlurmJobs()
NEEDED = {"schema": 1, "name": "c", "scheduler": "slurm", "num_nodes": 4, "gpus_per_node": 4}


def cluster(**changes) -> dict:
    return fill_defaults(NEEDED | changes, load_schema("cluster"))


def options(site, nodes=2, gpus=4, device="cuda", blamed=(), avoid=(), attempt=1):
    return JOBS.options(Geometry(site, nodes, gpus, device), 1, [avoid, blamed], attempt)


@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 128))
def test_a_job_has_a_task_and_its_cores_for_each_rank(nodes, gpus, cpus):
    shape = {f"--nodes={nodes}", f"--ntasks-per-node={gpus}", f"--cpus-per-task={cpus}"}
    assert shape <= {*options(cluster(cpus_per_rank=cpus), nodes, gpus)}


def test_gpus_are_asked_for_only_where_the_campaign_computes_on_them():
    assert "--gpus-per-node=4" in options(cluster())
    assert "--gres=gpu:4" in options(cluster(gpu_request="gres"))
    for site, device in ((cluster(), "cpu"), (cluster(gpu_request="none"), "cuda")):
        assert not any("gpu" in option for option in options(site, device=device))
    assert "--gpus-per-node=4" not in options(cluster(gpu_request="gres"))


def test_only_what_the_cluster_file_sets_is_asked_for():
    names = ["--time", "--nodes", "--ntasks-per-node", "--cpus-per-task", "--exclusive"]
    assert [option.partition("=")[0] for option in options(cluster(), device="cpu")] == names
    given = {"partition": "gpu", "account": "p", "qos": "q", "constraint": "a&b", "reservation": "r"}
    assert options(cluster(clusters="blue"))[0] == "--clusters=blue"  # so that the plan shows it
    found = options(cluster(**given, memory_mb_per_node=0))
    assert found[:6] == ["--partition=gpu", "--account=p", "--qos=q", "--constraint=a&b", "--reservation=r", "--mem=0"]


@pytest.mark.parametrize(
    ("minutes", "sbatch", "expected"),
    [
        (15, [], ["--signal=B:TERM@60"]),
        (14, [], []),
        (60, ["--signal=USR1@300"], ["--signal=USR1@300"]),
        (60, ["--sig=B:USR1"], ["--sig=B:USR1"]),
    ],
)
def test_a_job_gets_a_signal_before_its_time_limit(monkeypatch, minutes, sbatch, expected):
    site = cluster(max_walltime_minutes=minutes, sbatch=sbatch)
    found = JOBS.options(Geometry(site, 1, 1, "cpu"), 60)
    assert [option for option in found if option.startswith("--sig")] == expected
    monkeypatch.setenv("SBATCH_SIGNAL", "USR1@120")
    found = JOBS.options(Geometry(site, 1, 1, "cpu"), 60)
    assert [option for option in found if option.startswith("--sig")] == sbatch


def test_nodes_of_a_failed_start_are_avoided_only_where_others_are_left():
    assert "--exclude=n1,n2" in options(cluster(), 2, avoid=["n2", "n1"])
    assert not any("--exclude=" in option for option in options(cluster(), 3, avoid=["n2", "n1"]))


def test_the_cluster_files_exclusion_is_kept_and_counts():
    """Of four nodes: Slurm would keep the last of two options alone."""
    site = cluster(sbatch=["-x n4"])
    assert options(site, 2, avoid=["n1"])[-2:] == ["--exclusive", "--exclude=n4,n1"]
    assert options(site, 3, avoid=["n1"])[-2:] == ["--exclusive", "-x n4"]


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), max_size=4))
def test_options_are_passed_as_they_are(values):
    values = [f"--x={value}" for value in values]
    assert JOBS.options(Geometry(cluster(sbatch=values), 1, 1, "cpu"), 1)[5:] == values


@given(st.integers(10, 5000))
def test_a_batch_of_the_longest_planned_length_gets_its_time_limit(minutes):
    site = cluster(max_walltime_minutes=minutes)
    assert JOBS.walltime_minutes(site, JOBS.longest_planned_minutes(site), 1) <= minutes
    assert (
        JOBS.walltime_minutes(cluster(max_walltime_minutes=10**6), JOBS.longest_planned_minutes(site), 1) <= minutes + 1
    )


@pytest.mark.parametrize(("planned", "attempt", "expected"), [(0.1, 1, 6), (10, 1, 20), (10, 2, 40), (10, 9, 60)])
def test_the_walltime_grows_with_each_attempt_up_to_the_clusters(planned, attempt, expected):
    assert JOBS.walltime_minutes(cluster(max_walltime_minutes=60), planned, attempt) == expected


@pytest.mark.parametrize(
    ("changes", "shape", "device", "expected"),
    [
        ({"exclusive": False}, (1, 1), "cpu", {"tasks": 2, "cpus_per_task": 1, "mem_mb": 0, "slurm_extra": ""}),
        ({"cpus_per_rank": 8, "memory_mb_per_node": 5}, (2, 1), "cpu", {"tasks": 2, "cpus_per_task": 8, "mem_mb": 5}),
        ({}, (2, 4), "cuda", {"tasks_per_node": 4, "slurm_extra": "--gpus-per-node=4 --exclusive"}),
        ({"gpu_request": "gres", "exclusive": False}, (2, 4), "cuda", {"gres": "gpu:4", "slurm_extra": ""}),
        ({"sbatch": ["--wckey=a b"]}, (1, 2), "cpu", {"slurm_extra": "--exclusive '--wckey=a b'"}),
        ({"partition": "p", "account": "a", "qos": "q"}, (1, 2), "cpu", {"slurm_extra": "--exclusive"}),
    ],
)
def test_options_are_resources_of_snakemakes_plugin_for_slurm(changes, shape, device, expected):
    site = cluster(**changes)
    geometry = Geometry(site, *shape, device)
    found = JOBS.resources(geometry, JOBS.options(geometry, 60))
    assert {"mpi": "srun", "own_options": "--signal=B:TERM@60"} | expected == {
        name: found[name] for name in ("mpi", "own_options", *expected)
    }
    assert not {"tasks", "tasks_per_node"} <= found.keys()
    assert found.keys() - {"options"} <= {*JOBS.resource_names}
