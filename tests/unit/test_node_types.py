"""Kinds of nodes in one cluster file: what a campaign that selects one asks of Slurm, and what stays as it was."""

import shlex

import pytest
from campaign_files import SLURM, TEXT, changed, collectives, load, matrix, message

from regatta.launchers import LAUNCHERS, launch_argv
from regatta.launchers.base import Geometry
from regatta.plan.page import plan_text
from regatta.plan.plan import plan_campaign, write_frozen

STACKS = {"a": {"kind": "host", "python": "/bin/ls"}}
TYPES = {
    "h100": {"partition": "hopper", "constraint": "nvlink", "gpus_per_node": 8, "num_nodes": 2}
    | {"cpus_per_rank": 12, "memory_mb_per_node": 0},
    "cpu": {"partition": "cpu", "gpus_per_node": 0},
}
SITE = SLURM | {"partition": "main", "node_types": TYPES}
HOST = "{kind: host, python: /bin/ls}"


def campaign(folder, node_type=None, **changes):
    return load(folder, collectives(4096, stacks=STACKS, node_type=node_type, **changes), SITE)


def test_the_keys_of_a_node_type_reach_sbatch_and_srun(tmp_path):
    site = campaign(tmp_path, "h100").cluster
    launcher = LAUNCHERS["slurm"]
    words = shlex.split(launcher.job_words(site, 2, 8, "cuda", 1))
    assert {"--partition=hopper", "--constraint=nvlink", "--mem=0", "--cpus-per-task=12"} <= set(words)
    resources = launcher.site_resources(site)
    assert (resources["slurm_partition"], resources["constraint"]) == ("hopper", "nvlink")
    assert launcher.submit_variables(site) == {"SBATCH_MEM_PER_NODE": "0"}
    stack = campaign(tmp_path, "h100").data["stacks"]["a"]
    assert "--cpus-per-task=12" in launch_argv(Geometry(site, 2, 8, "cuda"), stack, ["x.py"])


def test_without_a_node_type_nothing_changes(tmp_path):
    plain = load(tmp_path, collectives(4096, stacks=STACKS), SLURM | {"partition": "main"})
    ids = [cell.id for cell in matrix(tmp_path, collectives(4096, stacks=STACKS), SLURM).cells]
    of_none = campaign(tmp_path)
    assert of_none.job_cluster == plain.job_cluster
    assert [cell.id for cell in matrix(tmp_path, collectives(4096, stacks=STACKS), SITE).cells] == ids


def test_a_node_type_is_part_of_the_id_and_one_changed_field(tmp_path):
    results = tmp_path / "results"
    write_frozen(plan_campaign(campaign(tmp_path), results))
    plan = plan_campaign(campaign(tmp_path, "cpu"), results)
    assert {p.reason for p in plan.cells} == {'changed: node_type null -> "cpu"'}
    assert {p.cell.spec["node_type"] for p in plan.cells} == {"cpu"}
    assert "cluster tiny, node type cpu" in plan_text(plan)
    assert plan.batches[0].frame["cluster"]["partition"] == "cpu"
    assert plan.preflight.content["cluster"]["partition"] == "cpu"


def test_shapes_are_limited_by_the_node_type(folder):
    text = changed("[1, 2]}", "[8]}", TEXT).replace("{kind: host}", HOST).replace("device: cpu", "device: cuda")
    text = text.replace("[gloo]", "[nccl]").replace("cluster: tiny", "cluster: tiny\nnode_type: h100")
    assert load(folder, text, SITE).cluster["gpus_per_node"] == 8
    said = message(folder, text.replace("node_type: h100\n", ""), SITE)
    assert "shapes[0].gpus_per_node[0] = 8 is out of range: it must be at most 4" in said
    skipped = matrix(folder, collectives(4096, stacks=STACKS, device="cuda", node_type="cpu"), SITE).skipped
    assert "device cuda needs a GPU" in skipped[0][1]


@pytest.mark.parametrize(
    ("name", "site", "words"),
    [
        ("h10", SITE, ["node_type = 'h10'", "Did you mean 'h100'?", "clusters/tiny.yaml"]),
        ("h100", SLURM, ["node_type = 'h100'", "The file has none"]),
    ],
)
def test_an_unknown_node_type_is_reported_with_file_and_line(folder, name, site, words):
    text = TEXT.replace("{kind: host}", HOST).replace("cluster: tiny", f"cluster: tiny\nnode_type: {name}")
    said = message(folder, text, site)
    assert said.startswith("campaign.yaml:4: ")
    assert [word for word in words if word not in said] == []


@pytest.mark.parametrize(
    ("types", "place"),
    [
        ({"h100": {"partitions": "x"}}, "unknown key 'partitions' in node_types.h100"),
        ({"h100": {"gpus_per_node": "many"}}, "node_types.h100.gpus_per_node = 'many'"),
        ({"h100": {}}, "node_types.h100 = {} is empty"),
        ({"h 100": {"partition": "x"}}, "the name 'h 100' in node_types"),
    ],
)
def test_an_invalid_node_type_is_reported_with_the_clusters_file(folder, types, place):
    said = message(folder, TEXT.replace("{kind: host}", HOST), SLURM | {"node_types": types})
    assert said.startswith("clusters/tiny.yaml:")
    assert place in said


def test_node_types_need_a_scheduler(folder):
    said = message(folder, TEXT, {"node_types": TYPES})
    assert "node_types has no effect with scheduler: none" in said
