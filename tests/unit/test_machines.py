"""Warnings on machines that no measurement's status shows."""

import pytest
from synthetic import CLUSTER, analyse, collective_cell, make_campaign, make_header, write_results
from synthetic_stacks import write_stacks

from regatta.topics.failures import groups_of
from regatta.topics.machines import machine_warnings
from regatta.topics.timeline import overlaps


def headers_of(data, gpus, device="cuda"):
    cells = [collective_cell(4096, 1, 2, device=device)]
    return [make_header(data.campaign, f"b-l{i:03d}-a00", i, cells, "2026-11-21T03:00:00Z", gpus=g) for i, g in enumerate(gpus)]  # fmt: skip


@pytest.mark.parametrize(
    ("gpus", "device", "num"),
    [
        ([[{"name": "H200"}, {"name": "H200"}]], "cuda", None),
        ([[{"name": "H200"}], [{"name": None}], [{}], []], "cuda", 3),
        ([[{"name": "H200"}, {"name": ""}]], "cuda", 1),
        ([[], []], "cpu", None),
    ],
)
def test_a_launch_on_gpus_without_a_name_is_a_warning(tmp_path, gpus, device, num):
    campaign = make_campaign([collective_cell(4096, 1, 2, device=device)], device=device, repeats=1)
    data = analyse(write_results(tmp_path / "r", campaign, CLUSTER))
    data.headers[:] = headers_of(data, gpus, device)
    found = [advice.values for advice in machine_warnings(data) if advice.found.startswith("Unknown GPU model")]
    assert found == ([] if num is None else [{"num": num, "num_launches": len(gpus)}])


def test_unknown_versions_of_launches_on_gpus_are_a_warning(tmp_path):
    campaign = make_campaign([collective_cell(4096, 1, 2, device="cuda")], device="cuda", repeats=1)
    data = analyse(write_results(tmp_path / "r", campaign, CLUSTER))
    data.headers[:] = headers_of(data, [[{"name": "H200"}]] * 3)
    known = {"cuda": "13.0", "nccl": "2.27.5", "driver": "580.65"}
    for header, versions in zip(data.headers, (known, known | {"nccl": None}, known | {"nccl": None}), strict=True):
        header["environment"] |= versions
    unknown = [advice.values for advice in machine_warnings(data) if advice.found.startswith("Unknown versions")]
    assert unknown == [{"num": {"NCCL": 2}, "num_launches": 3}]
    data.campaign["imported"] = True
    assert not [advice for advice in machine_warnings(data) if advice.found.startswith("Unknown versions")]


def test_the_campaign_of_two_stacks_is_consistent(tmp_path):
    """Causes name hosts of their launches, launches follow each other, and commands are those of a Slurm cluster."""
    data = analyse(write_stacks(tmp_path / "r"))
    assert overlaps(data.tables["timeline"]) == []
    assert not any(group["strangers"] for group in groups_of(data))
    for row in data.tables["failures"].itertuples():
        assert f"srun --nodes={row.cell.split('-n')[-1][:2].lstrip('0')} " in row.command
    starts = data.tables["allocations"]["start_s"].tolist()
    assert starts == sorted(starts)
