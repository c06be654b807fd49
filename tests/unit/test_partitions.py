"""sinfo's partitions, checked against what a campaign will request."""

import math

import pytest

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
    text = "main*|infinite|3|8\nmain*|infinite|1|16+\nshort|1:00:00|2|8\nodd|||"
    monkeypatch.setattr(partitions, "answer", lambda line: text)
    assert read_partitions() == {"main": Partition(True, math.inf, 4, 16), "short": Partition(False, 60, 2, 8)}


def test_a_machine_without_slurm_has_none(monkeypatch):
    monkeypatch.setattr(partitions, "answer", lambda line: None)
    assert read_partitions() == {}
    assert partition_problems(CLUSTER, [(99, 99)], {}) == []


@pytest.mark.parametrize(
    ("changes", "shapes", "expected"),
    [
        ({}, [(4, 8), (1, 1)], []),
        ({"partition": "gpu"}, [(1, 1)], ["partition = 'gpu' does not exist. Choose from: main, short."]),
        (
            {"partition": "short"},
            [(1, 1)],
            ["max_walltime_minutes = 1440, but partition short limits jobs to 60 min. Use at most that."],
        ),
        ({"partition": "short,main"}, [(4, 1)], []),
        ({}, [(5, 1)], ["num_nodes: a shape needs 5 nodes, and partition main has 4."]),
        (
            {"cpus_per_rank": 72},
            [(1, 2)],
            [
                "cpus_per_rank = 72: a shape needs 144 cores on a node (gpus_per_node x cpus_per_rank), and those of"
                " partition main have 8."
            ],
        ),
    ],
)
def test_what_can_never_start_is_said_with_the_key_to_correct(changes, shapes, expected):
    assert partition_problems(CLUSTER | changes, shapes, {"main": MAIN, "short": SHORT}) == expected
