"""sinfo's partitions, checked against what a campaign will request."""

import math
import re
from dataclasses import replace

import pytest
from campaign_files import SLURM, collectives, load

from regatta.launchers import LAUNCHERS
from regatta.launchers import slurm_resources as partitions
from regatta.launchers.slurm_resources import Partition, minutes_of, partition_problems, read_partitions

MAIN, SHORT = Partition(True, math.inf, 4, 8), Partition(False, 60, 2, 8)
CLUSTER = {"partition": None, "max_walltime_minutes": 1440, "cpus_per_rank": None}


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [("infinite", math.inf), ("1:00", 1), ("30:30", 30.5), ("12:00:00", 720), ("2-00:00:00", 2880), ("", math.inf)],
)
def test_times_of_slurm(limit, minutes):
    assert minutes_of(limit) == minutes


def test_kinds_of_nodes_of_one_partition_are_summed(monkeypatch):
    text = "main*|infinite|3|8|1-infinite\nmain*|infinite|1|16+|1-infinite\nshort|1:00:00|2|8|1-4\nodd||||"
    monkeypatch.setattr(partitions, "answer", lambda line: text)
    assert read_partitions() == {"main": Partition(True, math.inf, 4, 16), "short": Partition(False, 60, 2, 8, 4)}


def test_a_machine_without_slurm_has_none(monkeypatch):
    monkeypatch.setattr(partitions, "answer", lambda line: None)
    assert read_partitions() == {}
    assert partition_problems(CLUSTER, [(99, 99)], {}) == []


NEVER = [
    ({"partition": "gpu"}, (1, 1)),
    ({"partition": "short"}, (1, 1)),
    ({}, (5, 1)),
    ({"cpus_per_rank": 72}, (1, 2)),
]


@pytest.mark.parametrize(("changes", "shape"), NEVER, ids=str)
def test_what_can_never_start_is_said_with_the_key_to_correct(changes, shape, wording):
    wording(partition_problems(CLUSTER | changes, [shape], {"main": MAIN, "short": SHORT}))


@pytest.mark.parametrize(("changes", "shapes"), [({}, [(4, 8), (1, 1)]), ({"partition": "short,main"}, [(4, 1)])])
def test_what_fits_one_partition_has_no_problem(changes, shapes):
    assert partition_problems(CLUSTER | changes, shapes, {"main": MAIN, "short": SHORT}) == []


def test_the_limit_of_nodes_per_job_is_that_of_the_partition(monkeypatch):
    known = {"main": replace(MAIN, num_nodes=9, max_nodes=4)}
    [problem] = partition_problems(CLUSTER, [(5, 1)], known)
    assert re.search(r"5 nodes.* main .* 4\b", problem)
    assert partition_problems(CLUSTER, [(4, 1)], known) == []
    monkeypatch.setattr(partitions, "answer", lambda line: "main*|infinite|9|8|2-4\nsmall|infinite|9|8|1")
    limits = {
        name: partitions.SlurmJobs().most_nodes(CLUSTER | {"num_nodes": 8, "partition": name})
        for name in (None, "small", "x")
    }
    assert limits == {None: 4, "small": 1, "x": 8}
    assert partitions.SlurmJobs().most_nodes(CLUSTER | {"num_nodes": 3}) == 3


def test_a_site_without_a_default_partition_is_named_unless_the_environment_has_one(monkeypatch):
    monkeypatch.delenv("SBATCH_PARTITION", raising=False)
    known = {"short": SHORT, "main": replace(MAIN, is_default=False)}
    [problem] = partition_problems(CLUSTER, [(1, 1)], known)
    assert all(word in problem for word in ("partition = null", "short", "main"))
    monkeypatch.setenv("SBATCH_PARTITION", "short")
    [problem] = partition_problems(CLUSTER, [(1, 1)], known)
    assert "max_walltime_minutes = 1440" in problem


LISTS = {  # of Slurm 26.05, of 23.02, and of a site whose srun has no list
    "MPI plugin types are...\n\tnone\n\tcray_shasta\n\tpmi2\n\tpmix\nspecific pmix plugin versions available: pmix_v4,pmix_v5\n": {
        "none",
        "cray_shasta",
        "pmi2",
        "pmix",
        "pmix_v4",
        "pmix_v5",
    },
    "srun: MPI types are...\nsrun: none\nsrun: pmi2\n": {"none", "pmi2"},
    "srun: error: something else\n": set(),
}


@pytest.mark.parametrize(("text", "types"), LISTS.items())
def test_the_mpi_types_that_srun_lists(text, types):
    assert partitions.mpi_types(text) == types


def test_srun_is_asked_once_for_its_mpi_types(monkeypatch):
    asked = []
    monkeypatch.setattr(partitions, "output", lambda line: asked.append(line) or next(iter(LISTS)))
    stacks = {"a": {"srun": ["--mpi=pmix_v3"]}, "b": {"srun": ["--mpi=pmi2", "--x"]}, "c": {"srun": []}}
    [problem] = partitions.mpi_problems(stacks)
    assert asked == [["srun", "--mpi=list"]]
    assert [word for word in ("stack a", "--mpi=pmix_v3", "pmi2", "pmix_v4") if word not in problem] == []
    assert partitions.mpi_problems({"c": stacks["c"]}) == []
    assert len(asked) == 1


def test_a_problem_of_a_node_type_names_it(folder, monkeypatch, wording):
    types = {"new": {"partition": "gpus"}, "old": {"partition": "short", "num_nodes": 9}}
    shapes = [{"nodes": [1], "gpus_per_node": [2], "node_type": "new"}]
    shapes += [{"nodes": [3], "gpus_per_node": [2], "node_type": "old"}]
    data = collectives(4096, stacks={"a": {"kind": "host", "python": "/bin/ls"}}, shapes=shapes)
    campaign = load(folder, data, SLURM | {"node_types": types, "max_walltime_minutes": 60})
    monkeypatch.setattr(partitions, "answer", lambda line: "main*|infinite|9|8|9\nshort|1:00:00|2|8|1-4")
    checks = LAUNCHERS["slurm"].checks
    wording([text for place in campaign.places() for text in checks.site_problems(*place, campaign.data["stacks"])])
