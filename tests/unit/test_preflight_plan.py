"""When a preflight is needed, and what it examines."""

import json
from dataclasses import replace

import pytest
from campaign_files import small

from regatta.campaign.load import load_campaign
from regatta.run.preflight import failed_stacks, has_passed, latest_preflight, plan_preflight

SHAPES = [(1, 1), (4, 2), (2, 4)]


@pytest.fixture
def campaign(tmp_path):
    import yaml

    folder = tmp_path / "clusters"
    folder.mkdir()
    site = {"schema": 1, "name": "c", "scheduler": "slurm", "num_nodes": 4, "gpus_per_node": 4}
    (folder / "c.yaml").write_text(yaml.safe_dump(site))
    path = tmp_path / "campaign.yaml"
    data = small() | {"cluster": "c", "stacks": {"a": {"kind": "host"}, "b": {"kind": "host"}}}
    path.write_text(yaml.safe_dump(data))
    return load_campaign(path, folder)


def test_it_looks_at_two_nodes_at_most_and_at_the_widest_node(campaign, tmp_path):
    found = plan_preflight(campaign, SHAPES, {"a"}, tmp_path)
    assert (found.nodes, found.gpus_per_node) == (2, 4)
    assert list(found.stacks) == ["a"]
    assert plan_preflight(campaign, [(1, 2)], {"a"}, tmp_path).nodes == 1


def test_one_that_passed_stands_and_one_that_failed_is_done_anew(campaign, tmp_path):
    first = plan_preflight(campaign, SHAPES, {"a", "b"}, tmp_path)
    assert first == plan_preflight(campaign, SHAPES, {"a", "b"}, tmp_path)
    path = tmp_path / "preflight" / f"{first.id}.json"
    path.parent.mkdir()
    good, bad = {"ok": True, "problems": []}, {"ok": False, "problems": ["no network"]}
    path.write_text(json.dumps({"stacks": [{"stack": "a", "verdict": good}]}))
    assert plan_preflight(campaign, SHAPES, {"a", "b"}, tmp_path).id == first.id
    path.write_text(json.dumps({"stacks": [{"stack": "a", "verdict": good}, {"stack": "b", "verdict": bad}]}))
    assert failed_stacks(path) == {"b": "no network"}
    second = plan_preflight(campaign, SHAPES, {"a", "b"}, tmp_path)
    assert second.id != first.id
    assert second == replace(first, generation=2)
    assert latest_preflight(tmp_path) == [str(path)]


def test_nothing_left_to_do_needs_none_and_one_machine_without_containers_neither(campaign, tmp_path):
    assert plan_preflight(campaign, [], set(), tmp_path) is None
    campaign.cluster["scheduler"] = "none"
    assert plan_preflight(campaign, SHAPES, {"a"}, tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"stacks": 3}', '{"stacks": [{}]}'])
def test_a_damaged_result_fails_no_stack(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    assert failed_stacks(tmp_path / "x.json") == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"stacks": []}',
        '{"stacks": [{"stack": "a"}]}',
        '{"stacks": [{"stack": "a", "verdict": {"ok": "false"}}]}',
    ],
)
def test_a_damaged_result_passes_no_stack(tmp_path, text):
    path = tmp_path / "preflight.json"
    path.write_text(text)
    assert not has_passed(path)
    path.write_text('{"stacks": [{"stack": "a", "verdict": {"ok": true, "problems": []}}]}')
    assert has_passed(path)
