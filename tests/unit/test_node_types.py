"""Kinds of nodes in one cluster file: what a campaign that selects one asks of Slurm, and what stays as it was."""

import json

import pytest
from campaign_files import SLURM, TEXT, changed, collectives, load, matrix, message

from regatta.campaign.expansion import expand
from regatta.campaign.load import for_jobs
from regatta.launchers import LAUNCHERS, launch_argv
from regatta.launchers.base import Geometry
from regatta.plan.plan import plan_campaign, plan_json, write_frozen
from regatta.plan.plan_page import job_requests, plan_text, render
from regatta.run.preflight import latest_preflight

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
    words = launcher.jobs.options(Geometry(site, 2, 8, "cuda"), 1)
    assert {"--partition=hopper", "--constraint=nvlink", "--mem=0", "--cpus-per-task=12"} <= set(words)
    stack = campaign(tmp_path, "h100").data["stacks"]["a"]
    assert "--cpus-per-task=12" in launch_argv(Geometry(site, 2, 8, "cuda"), stack, ["x.py"])


def test_without_a_node_type_nothing_changes(tmp_path):
    plain = load(tmp_path, collectives(4096, stacks=STACKS), SLURM | {"partition": "main"})
    ids = [cell.id for cell in matrix(tmp_path, collectives(4096, stacks=STACKS), SLURM).cells]
    of_none = campaign(tmp_path)
    assert for_jobs(of_none.cluster) == for_jobs(plain.cluster)
    assert [cell.id for cell in matrix(tmp_path, collectives(4096, stacks=STACKS), SITE).cells] == ids


def test_a_node_type_is_part_of_the_id_and_one_changed_field(tmp_path, wording):
    results = tmp_path / "results"
    write_frozen(plan_campaign(campaign(tmp_path), results))
    plan = plan_campaign(campaign(tmp_path, "cpu"), results)
    wording({p.reason for p in plan.cells})
    assert {p.cell.spec["node_type"] for p in plan.cells} == {"cpu"}
    wording.lines(plan_text(plan), "cluster tiny, node")
    assert plan.batches[0].frame["cluster"]["partition"] == "cpu"
    assert plan.preflights[0].cluster["partition"] == "cpu"


def test_shapes_are_limited_by_the_node_type(folder, wording):
    text = changed("[1, 2]}", "[8]}", TEXT).replace("{kind: host}", HOST).replace("device: cpu", "device: cuda")
    text = text.replace("[gloo]", "[nccl]").replace("cluster: tiny", "cluster: tiny\nnode_type: h100")
    assert load(folder, text, SITE).cluster["gpus_per_node"] == 8
    said = message(folder, text.replace("node_type: h100\n", ""), SITE)
    wording(said)
    skipped = matrix(folder, collectives(4096, stacks=STACKS, device="cuda", node_type="cpu"), SITE).skipped
    wording(skipped[0][1])


@pytest.mark.parametrize(
    ("name", "site", "words"),
    [
        ("h10", SITE, ["node_type = 'h10'", "Did you mean 'h100'?", "cluster tiny"]),
        ("h100", SLURM, ["node_type = 'h100'", "The file defines none"]),
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


def test_node_types_need_a_scheduler(folder, wording):
    said = message(folder, TEXT, {"node_types": TYPES})
    wording(said)


# Stacks on different kinds of nodes.

ALL_MEMORY = {"memory_mb_per_node": 0}
BOTH = {"old": STACKS["a"], "new": STACKS["a"] | {"node_type": "h100"}, "also_new": STACKS["a"] | {"node_type": "h100"}}


def two_kinds(folder, **changes):
    shapes = [{"nodes": [1, 4], "gpus_per_node": [2]}]
    return load(folder, collectives(4096, shapes=shapes, stacks=BOTH, **changes), SITE | ALL_MEMORY)


def test_stacks_on_the_same_kind_of_nodes_share_a_job_and_others_do_not(tmp_path, wording):
    plan = plan_campaign(two_kinds(tmp_path), tmp_path / "results")
    found = {
        (batch.shape, batch.cluster.get("node_type")): {la.stack for la in batch.launches} for batch in plan.batches
    }
    assert found == {((1, 2), None): {"old"}, ((1, 2), "h100"): {"new", "also_new"}, ((4, 2), None): {"old"}}
    wording({reason for _, reason in plan.matrix.skipped})
    assert {p.cell.spec["stack"]["name"]: p.cell.spec.get("node_type") for p in plan.cells} == {
        "old": None,
        "new": "h100",
        "also_new": "h100",
    }


def test_each_kind_of_nodes_has_its_preflight_and_its_jobs_its_request(tmp_path, wording):
    plan = plan_campaign(two_kinds(tmp_path), tmp_path / "results")
    by_kind = {p.cluster.get("node_type"): p for p in plan.preflights}
    assert {kind: set(p.stacks) for kind, p in by_kind.items()} == {
        None: {"old"},
        "h100": {"new", "also_new"},
    }
    for batch in plan.batches:
        assert batch.frame["preflight"] == by_kind[batch.cluster.get("node_type")].id
    requests = job_requests(plan)
    assert list(requests) == [(1, 2, ""), (1, 2, " (h100)"), (4, 2, "")]
    assert "--partition=main" in requests[1, 2, ""]
    assert "--partition=hopper" in requests[1, 2, " (h100)"]
    wording.lines(plan_text(plan), "jobs of 1x2")
    lines = plan_json(plan)["stacks"]
    assert "--cpus-per-task=12" in lines["new"]
    assert "--cpus-per-task" not in lines["old"]
    assert [p["node_type"] for p in plan_json(plan)["preflights"]] == [None, "h100"]
    assert "h100" in render(plan)


def test_a_stack_without_a_node_type_keeps_its_ids_beside_one_that_has_one(tmp_path):
    alone = load(tmp_path, collectives(4096, stacks={"old": STACKS["a"]}), SLURM | {"partition": "main"})
    both = load(tmp_path, collectives(4096, stacks=BOTH), SITE | ALL_MEMORY)
    ids = {cell.id for cell in expand(alone).cells}
    assert ids <= {cell.id for cell in expand(both).cells}


def test_the_memory_of_node_types_is_all_or_not(folder, wording):
    types = TYPES | {"cpu": TYPES["cpu"] | {"memory_mb_per_node": 1000}}
    stacks = {"a": STACKS["a"] | {"node_type": "h100"}, "b": STACKS["a"] | {"node_type": "cpu"}}
    said = message(folder, json.dumps(collectives(4096, stacks=stacks)), SITE | {"node_types": types})
    wording(said)
    two_kinds_of_default = {"a": STACKS["a"] | {"node_type": "h100"}}
    load(folder, collectives(4096, stacks=two_kinds_of_default), SITE)


def test_an_unknown_node_type_of_a_stack_is_reported_with_its_line(folder, wording):
    text = TEXT.replace("{kind: host}", "{kind: host, python: /bin/ls, node_type: h10}")
    said = message(folder, text, SITE)
    wording(said)


# Shapes on different kinds of nodes.

SHAPES = [
    {"nodes": [1, 2], "gpus_per_node": [2]},
    {"nodes": [1], "gpus_per_node": [4, 8], "node_type": "h100"},
    {"nodes": [2], "gpus_per_node": [2], "node_type": "cpu"},
]


def shapes_of(folder, shapes=SHAPES, stacks=STACKS, **changes):
    """Return the (stack, node type, nodes, GPUs per node) of all cells."""
    data = collectives(4096, shapes=shapes, stacks=stacks, **changes)
    cells = matrix(folder, data, SITE | ALL_MEMORY).cells
    return [(c.spec["stack"]["name"], c.node_type, *c.shape) for c in cells]


def test_a_stack_is_copied_for_each_node_type_that_shapes_name(folder):
    assert shapes_of(folder) == [
        ("a", None, 1, 2),
        ("a", None, 2, 2),
        ("a-cpu", "cpu", 2, 2),
        ("a-h100", "h100", 1, 4),
        ("a-h100", "h100", 1, 8),
    ]


def test_a_stack_of_a_node_type_keeps_its_name_and_gets_the_shapes_of_its_type_and_of_none(folder):
    stacks = {"a": STACKS["a"], "new": STACKS["a"] | {"node_type": "h100"}}
    found = shapes_of(folder, stacks=stacks)
    assert [of for of in found if of[0] == "new"] == [
        ("new", "h100", *shape) for shape in ((1, 2), (2, 2), (1, 4), (1, 8))
    ]
    assert ("a-h100", "h100", 1, 8) in found


def test_without_a_shape_of_its_own_type_a_stack_is_measured_only_as_copies(folder):
    assert shapes_of(folder, SHAPES[2:]) == [("a-cpu", "cpu", 2, 2)]
    # The campaign's type needs no copy.
    assert shapes_of(folder, SHAPES[2:], node_type="cpu") == [("a", "cpu", 2, 2)]
    assert shapes_of(folder, SHAPES[1:], node_type="cpu") == [
        ("a-h100", "h100", 1, 4),
        ("a-h100", "h100", 1, 8),
        ("a", "cpu", 2, 2),
    ]


def test_shapes_with_a_node_type_leave_other_cells_their_ids(folder):
    plain = matrix(folder, collectives(4096, shapes=SHAPES[:1], stacks=STACKS), SITE).cells
    both = matrix(folder, collectives(4096, shapes=SHAPES, stacks=STACKS), SITE | ALL_MEMORY).cells
    assert {cell.id for cell in plain} == {cell.id for cell in both if cell.node_type is None}


def test_jobs_and_preflights_of_shapes_with_node_types(folder):
    data = collectives(4096, shapes=SHAPES, stacks=STACKS)
    plan = plan_campaign(load(folder, data, SITE | ALL_MEMORY), folder / "results")
    assert list(job_requests(plan)) == [(1, 2, ""), (1, 4, " (h100)"), (1, 8, " (h100)"), (2, 2, ""), (2, 2, " (cpu)")]
    sizes = {p.cluster.get("node_type"): p.gpus_per_node for p in plan.preflights}
    assert sizes == {None: 2, "h100": 8, "cpu": 2}
    places = {cluster.get("node_type"): shapes for cluster, shapes in plan.campaign.places()}
    assert places == {None: [(1, 2), (2, 2)], "h100": [(1, 4), (1, 8)], "cpu": [(2, 2)]}


def test_errors_about_node_types_of_shapes_name_the_line(folder, wording):
    shape = "  - {nodes: [1], gpus_per_node: [2], node_type: h10}"
    text = TEXT.replace("{kind: host}", HOST).replace("repeats:", f"{shape}\nrepeats:")
    said = message(folder, text, SITE)
    wording(said)
    text = text.replace("h10}", "cpu}").replace("  - {nodes: [1], gpus_per_node: [1, 2]}\n", "")
    text = text.replace(HOST, "{kind: host, python: /bin/ls, node_type: h100}")
    said = message(folder, text, SITE | ALL_MEMORY)


def test_a_reference_is_a_copy_and_is_checked_only_if_the_node_types_are_right(folder):
    text = TEXT.replace("{kind: host}", HOST).replace("[1, 2]}", "[2], node_type: cpu}")
    text += "versus: {axis: stack, reference: host}\n"
    assert "host-cpu" in message(folder, text, SITE | ALL_MEMORY)
    load(folder, text.replace("reference: host", "reference: host-cpu"), SITE | ALL_MEMORY)
    said = message(folder, text.replace("node_type: cpu", "node_type: cpus"), SITE)
    assert "versus" not in said


def test_errors_of_a_copied_stack_name_the_line_of_the_original(folder):
    shape = "  - {nodes: [1], gpus_per_node: [2], node_type: cpu}"
    text = TEXT.replace("{kind: host}", "{kind: host, python: /missing}").replace("repeats:", f"{shape}\nrepeats:")
    assert message(folder, text, SITE | ALL_MEMORY).count("campaign.yaml:7: stacks.host") == 1


def test_the_last_preflight_of_each_kind_of_nodes_is_in_the_report(tmp_path):
    for name, kind in (("a", None), ("b", "h100"), ("c", None)):
        folder = tmp_path / "preflight" / f"preflight-{name}"
        folder.mkdir(parents=True)
        cluster = {} if kind is None else {"node_type": kind}
        (folder / "request.json").write_text(json.dumps({"cluster": cluster}))
        folder.with_name(f"{folder.name}.json").write_text("{}")
    assert [path[-6:] for path in latest_preflight(tmp_path)] == ["b.json", "c.json"]
