"""Frozen campaigns and their cells: the same JSON comes back, and each field is where the rules of a campaign find it."""

import json
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from campaign_files import matrix, small
from hypothesis import given
from hypothesis import strategies as st
from synthetic import cluster_campaign, laptop_campaign
from synthetic_sweep import sweep_campaign

from regatta.campaign.expansion import cell_id
from regatta.core.names import cell_names
from regatta.model.frozen import Cell, FrozenCampaign, FrozenCell

GOLDEN = Path(__file__).parents[1] / "golden"
CAMPAIGNS = {
    "laptop": laptop_campaign,
    "cluster": cluster_campaign,
    "sweep": lambda: sweep_campaign(["n1", "n2", "n3"]),
    "golden": lambda: json.loads((GOLDEN / "campaign.json").read_text(encoding="utf-8")),
}
VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
UNKNOWN = st.dictionaries(st.text(min_size=1, max_size=8).map("x-{}".format) | st.just("other"), VALUES, max_size=3)


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_campaign_comes_back_as_it_was_stored(name):
    content = CAMPAIGNS[name]()
    found = FrozenCampaign.from_json(content)
    assert found.to_json() == content
    assert [cell.id for cell in found.all_cells] == [c["id"] for c in (*content["cells"], *content["skipped"])]


@given(UNKNOWN, UNKNOWN, UNKNOWN, st.sets(st.sampled_from(["schema", "seed", "isolation"])))
def test_unknown_fields_are_kept_and_absent_ones_stay_absent(of_campaign, of_cell, of_spec, absent):
    content = {name: value for name, value in laptop_campaign().items() if name not in absent} | of_campaign
    first = content["cells"][0]
    content["cells"][0] = {**first, **of_cell, "spec": first["spec"] | of_spec}
    assert FrozenCampaign.from_json(json.loads(json.dumps(content))).to_json() == content


def test_the_id_of_a_planned_cell_is_the_hash_of_the_spec_that_comes_back(tmp_path):
    for cell in matrix(tmp_path, small()).cells:
        stored = json.loads(json.dumps(cell.frozen().to_json()))
        assert cell_id(FrozenCell.from_json(stored).to_json()["spec"]) == cell.id


def test_each_field_of_a_cell_is_found_by_its_name():
    cell = FrozenCampaign.from_json(laptop_campaign()).cells[1]
    assert (cell.shape, cell.world_size, cell.stack.name, cell.hosts) == ((1, 1), 1, "host", ())
    assert {name: cell.field(name) for name in ("stack", "world_size", "device", "model", "operation")} == {
        "stack": "host",
        "world_size": 1,
        "device": "cpu",
        "model": "resnet18",
        "operation": None,
    }
    assert cell.fields.keys() == {*cell.spec, *cell.parameters} - {"parameters"}
    assert cell.fields["stack"] == "host"


def test_a_cell_of_an_import_with_fewer_launches_counts_them():
    content = laptop_campaign()
    content["cells"][0]["repeats"] = 2
    campaign = FrozenCampaign.from_json(content)
    assert [campaign.repeats_of(cell) for cell in campaign.cells[:2]] == [2, 3]


def test_names_of_cells_are_those_of_their_fields():
    campaign = FrozenCampaign.from_json(cluster_campaign())
    expected = [name.full for name in cell_names([cell.fields for cell in campaign.all_cells])]
    assert [name.full for name in campaign.cell_names.values()] == expected


def test_a_cell_cannot_be_changed_and_needs_its_whole_spec():
    cell = FrozenCampaign.from_json(laptop_campaign()).cells[0]
    with pytest.raises(FrozenInstanceError):
        cell.nodes = 2
    with pytest.raises(KeyError, match="backend"):
        Cell("x", {name: value for name, value in cell.spec.items() if name != "backend"})
