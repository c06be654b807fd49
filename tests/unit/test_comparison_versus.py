import pytest
from campaign_files import cells, load, matrix, message, small
from comparison_results import cell_of
from synthetic import make_campaign, train_cell
from typed import alike_stacks, cell_pairs, versus_of

from regatta.campaign.load import load_campaign
from regatta.plan.plan import freeze_campaign, make_plan

TWO_STACKS = {"host": {"kind": "host"}, "again": {"kind": "host"}}


def pairs_of(planned, **versus):
    """Return the pairs of some cells as (index of reference, index of other)."""
    ids = [cell["id"] for cell in planned]
    campaign = make_campaign(planned, versus={"axis": "stack", "reference": None, "margin": None} | versus)
    return [(ids.index(pair.reference.id), ids.index(pair.other.id)) for pair in cell_pairs(campaign)]


def test_stacks_are_compared_unless_the_campaign_says_otherwise(tmp_path):
    expected = {"axis": "stack", "reference": None, "margin": None}
    assert load(tmp_path, small()).data["versus"] == expected
    assert versus_of(make_campaign([])) == expected  # frozen before there was such a key


def test_an_axis_alone_is_short_for_the_mapping_and_sizes_become_bytes(tmp_path):
    short = load(tmp_path, small(versus="bucket_cap_mb")).data["versus"]
    assert short == {"axis": "bucket_cap_mb", "reference": None, "margin": None}
    full = load(tmp_path, small(versus={"axis": "message_bytes", "reference": "4KiB", "margin": 0.02})).data["versus"]
    assert full == {"axis": "message_bytes", "reference": 4096, "margin": 0.02}


WRONG = [
    "bucket_cap",
    {"axis": "bucket_cap_mb", "reference": 2},
    {"axis": "strategy", "reference": "dpp"},
    {"axis": "nodes", "reference": True},  # to Python, true is 1
    {"axis": "stack", "reference_": "host"},
    {"margin": -1},
]


@pytest.mark.parametrize("versus", WRONG, ids=str)
def test_an_error_in_versus_is_reported_with_line_value_and_remedy(tmp_path, versus, wording):
    wording(message(tmp_path, small(versus=versus)))


def test_a_parameter_of_a_benchmark_that_the_campaign_has_not_is_no_axis_of_it(tmp_path):
    only_training = small()["benchmarks"][:1]
    text = message(tmp_path, small(versus="algorithm", benchmarks=only_training))
    assert "versus = 'algorithm'" in text
    assert "message_bytes" not in text


def test_versus_is_a_note_where_its_axis_has_one_value_and_only_if_the_file_names_it(tmp_path):
    assert matrix(tmp_path, small()).notes == []
    assert matrix(tmp_path, small(versus="strategy")).notes == []
    notes = matrix(tmp_path, small(versus="stack")).notes
    assert len(notes) == 1
    assert "stack has one value" in notes[0]
    assert "campaign.yaml:" in notes[0]


def test_versus_changes_no_cell(tmp_path):
    plain = [cell.id for cell in cells(tmp_path / "a", small(stacks=TWO_STACKS))]
    versus = {"axis": "bucket_cap_mb", "reference": 25, "margin": 0.01}
    assert [cell.id for cell in cells(tmp_path / "b", small(stacks=TWO_STACKS, versus=versus))] == plain


def test_each_cell_is_paired_with_the_same_cell_of_the_first_stack():
    planned = [cell_of("bound"), cell_of("contained"), cell_of("contained", 65536), cell_of("bound", 65536)]
    assert pairs_of(planned) == [(0, 1), (3, 2)]
    assert pairs_of(planned, reference="contained") == [(1, 0), (2, 3)]


def test_a_cell_without_counterpart_and_other_shapes_are_in_no_pair():
    planned = [cell_of("bound"), cell_of("contained", 65536), train_cell("resnet18", 1, 2, stack="contained")]
    assert pairs_of(planned) == []


def test_any_parameter_can_be_the_axis_and_all_its_other_values_are_paired_with_the_reference():
    planned = [train_cell("resnet18", 1, gpus, "ddp", bucket) for gpus in (1, 2) for bucket in (1, 25, 100)]
    assert pairs_of(planned, axis="bucket_cap_mb") == [(0, 1), (0, 2), (3, 4), (3, 5)]
    assert pairs_of(planned, axis="bucket_cap_mb", reference=25) == [(1, 0), (1, 2), (4, 3), (4, 5)]
    assert pairs_of(planned, axis="gpus_per_node") == [(0, 3), (1, 4), (2, 5)]


def test_what_has_no_effect_in_one_of_two_cells_need_not_be_equal():
    none, small_bucket, large = (
        train_cell("resnet18", 1, 1, strategy, bucket) for strategy, bucket in (("none", None), ("ddp", 1), ("ddp", 25))
    )
    assert pairs_of([none, small_bucket, large], axis="strategy") == [(0, 1), (0, 2)]


def test_stacks_that_differ_in_their_name_alone_are_alike():
    a, b, other = cell_of("contained"), cell_of("contained"), cell_of("bound")
    b["spec"]["stack"]["name"], b["id"] = "again", "b"
    found = alike_stacks(make_campaign([a, b, other]))
    assert [(pair.reference.id, pair.other.id) for pair in found] == [(a["id"], "b")]


def test_alike_stacks_are_held_against_the_reference_of_the_campaign_where_it_is_among_them():
    a, b, c = cell_of("contained"), cell_of("contained"), cell_of("contained")
    for cell, name in ((b, "again"), (c, "third")):
        cell["spec"]["stack"]["name"], cell["id"] = name, name
    versus = {"axis": "stack", "reference": "again", "margin": None}
    found = alike_stacks(make_campaign([a, b, c], versus=versus))
    assert [(pair.reference.id, pair.other.id) for pair in found] == [("again", a["id"]), ("again", "third")]


def test_the_frozen_campaign_keeps_versus(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "regatta.plan.plan.load_campaign", lambda path, **options: load_campaign(path, tmp_path / "clusters", **options)
    )
    load(tmp_path, small(versus="strategy"))
    frozen = freeze_campaign(make_plan(tmp_path / "campaign.yaml", tmp_path / "results"))
    assert frozen.versus == {"axis": "strategy", "reference": None, "margin": None}
    assert versus_of(frozen)["axis"] == "strategy"
