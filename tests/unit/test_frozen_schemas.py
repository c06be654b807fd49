"""Frozen files that were damaged, edited or written by another version: one message each, for any content."""

import copy
import json

import jsonschema
import pytest
from campaign_files import collectives, load
from hypothesis import given
from hypothesis import strategies as st
from synthetic import laptop_campaign

from regatta.campaign.expansion import expand
from regatta.core.errors import UserError
from regatta.core.schemas import SCHEMAS, load_schema
from regatta.model.launches import JobEvent
from regatta.plan.batches import Price, make_batches
from regatta.store.csv_files import CELL, FLAG, REAL, TEXT, WHOLE
from regatta.store.frozen_files import frozen_schema, mismatch, read_frozen
from regatta.store.jobs import hosts_to_avoid, jobs_of_batch, noted_jobs, open_job

SCHEMA = frozen_schema()
KINDS = SCHEMA["x-kinds"]
DEEP = "[" * 100_000
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


def written(folder, name, value):
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def manifest(**changes):
    return {"schema": 1, "held": {}} | changes


def problems(**changes):
    lists = ("corrupt", "invalid", "superseded", "beyond_repeats", "not_planned")
    return {"schema": 1} | {name: [] for name in lists} | changes


RECORD = {"cell": "a", "repeat": 0, "launch": "b", "line": 3}


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (manifest(), "manifest", None),
        (manifest(more=1), "manifest", None),
        (manifest(held={"host": "it broke"}), "manifest", None),
        (manifest(held={"host": 7}), "manifest", "held.host = 7 is not a string"),
        (manifest(held={"host": None}), "manifest", "held.host = null is not a string"),
        (manifest(held=[]), "manifest", "held = [] is not a mapping (key: value) (Cause by stack that was not started)"),
        (manifest(schema=True), "manifest", "schema = true is not an integer (Version of this format)"),
        ({}, "manifest", "the file lacks held"),
        ([], "manifest", "the file = [] is not a mapping (key: value)"),
        (problems(interrupted=[]), "problems", None),
        (problems(corrupt={}), "problems", "corrupt = {} is not a list, as in [a, b]"),
        (problems(corrupt=["a", {}]), "problems", "corrupt[1] = {} is not a string"),
        (problems(superseded=[RECORD]), "problems", "superseded[0] lacks status, by"),
        (problems(superseded=[RECORD | {"line": 3.0, "status": "ok", "by": "c"}]), "problems", "superseded[0].line = 3.0 is not an integer"),
        (problems(beyond_repeats=[RECORD | {"line": True}]), "problems", "beyond_repeats[0].line = true is not an integer"),
    ],
)  # fmt: skip
def test_a_mismatch_is_told_with_its_place_and_value(value, kind, expected):
    assert mismatch(value, kind) == expected


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("repeats", 0, "repeats = 0 is out of range: it must be at least 1 (Launches of each cell)"),
        ("repeats", 10**7 + 1, "repeats = 10000001 is out of range: it must be at most 10000000 (Launches of each cell)"),
        ("repeats", None, "repeats = null is not an integer (Launches of each cell)"),
        ("repeats", 1.0, "repeats = 1.0 is not an integer (Launches of each cell)"),
        ("description", None, None),
        ("description", 5, "description = 5 is not a string or null"),
        ("device", ["x"], "device = ['x'] is not a string"),
        ("baseline", {"nodes": []}, "baseline.nodes = [] is not a string or a number or true or false or null"),
        ("repeats", "x" * 99, f"repeats = '{'x' * 76}... is not an integer (Launches of each cell)"),
        ("versus", {"axis": "stack", "margin": float("nan")}, "versus.margin = nan is not a number or null"),
        ("versus", {"axis": "stack", "margin": float("inf")}, "versus.margin = inf is out of range: it must be at most 1e+300"),
        ("versus", {"axis": "stack", "margin": -0.1}, "versus.margin = -0.1 is out of range: it must be at least 0"),
    ],
)  # fmt: skip
def test_a_number_is_held_to_what_its_readers_can_count_to(key, value, expected):
    assert mismatch(laptop_campaign() | {key: value}, "campaign") == expected


def test_of_several_errors_the_first_by_place_is_reported_in_any_order_of_names(wording):
    held = {f"s{n}": n for n in range(9)}
    wording(mismatch(manifest(held=held), "manifest"))
    wording(mismatch(manifest(held=dict(reversed(held.items()))), "manifest"))


def test_one_part_of_a_file_is_held_against_its_part_of_the_schema(wording):
    batch = {"launches": [{"repeat": 0, "stack": "host", "cells": ["a", 5]}]}
    wording(mismatch(batch, "batch", "launches"))
    assert mismatch({"launches": []}, "batch", "launches") is None
    wording(mismatch({}, "batch", "launches"))


@given(JSON)
def test_no_value_makes_the_check_itself_fail(value):
    for kind in KINDS:
        assert isinstance(mismatch(value, kind), str)


def test_the_schemas_are_schemas():
    for path in SCHEMAS.rglob("*.yaml"):
        jsonschema.Draft202012Validator.check_schema(load_schema(str(path.relative_to(SCHEMAS).with_suffix(""))))


def test_the_page_of_contracts_names_each_file_that_has_a_schema():
    page = (SCHEMAS.parents[1] / "docs" / "contracts.md").read_text(encoding="utf-8")
    sentence = page.partition("`workflow/schemas/frozen.yaml`")[2].partition("\n\n")[0]
    assert [kind for kind in KINDS if kind not in sentence] == []


@pytest.mark.parametrize("levels", [100, 400, 700, 900, 960, 980, 990])
def test_a_value_of_any_depth_is_told(tmp_path, levels, wording):
    text = json.dumps(laptop_campaign())[:-1] + ', "repeats": ' + "[" * levels + "]" * levels + "}"
    with wording.raises(UserError):
        read_frozen(written(tmp_path, "campaign.0123456789ab.json", text))


def test_what_the_ranks_of_a_stack_saw_is_no_preflight_regardless_of_its_name(tmp_path):
    seen = {"schema": 1, "stack": "preflight", "backends": []}
    assert read_frozen(written(tmp_path, "preflight-00.seen.json", seen)) == seen


@pytest.mark.parametrize("name", ["campaign.0123456789ab.json", "batch.json", "manifest.json", "request.json"])
@pytest.mark.parametrize("text", [DEEP, '{"a":' * 100_000, "", "5", "null", "[]", "{}", '{"schema": 1}', "\ufeff{}"])
def test_a_file_of_nothing_that_is_expected_is_told_as_damaged(tmp_path, name, text, wording):
    with wording.raises(UserError):
        read_frozen(written(tmp_path, name, text))


@pytest.mark.parametrize("schema", [2, 0, "1", None, [], {"a": 1}])
def test_another_version_of_the_schema_is_told_as_such(tmp_path, schema, wording):
    with wording.raises(UserError):
        read_frozen(written(tmp_path, "batch.json", {"schema": schema}))


def frozen_batch(folder):
    campaign = load(folder, collectives(4, 8, repeats=1))
    pairs = [(cell, 0) for cell in expand(campaign).cells]
    return make_batches(campaign, pairs, Price(lambda cell: 5.0, 10.0), folder / "results")[0].content


def test_a_launch_that_names_what_its_batch_does_not_hold_is_told(tmp_path, wording):
    batch = frozen_batch(tmp_path)
    assert read_frozen(written(tmp_path, "batch.json", batch)) == batch
    for key, value in (("stack", "gone"), ("cells", ["gone"])):
        other = copy.deepcopy(batch)
        other["launches"][0][key] = value
        with wording.raises(UserError):
            read_frozen(written(tmp_path, "batch.json", other))


def test_each_parameter_has_the_type_of_its_column():
    parts = SCHEMA["$defs"]
    found = parts["spec"]["properties"]["parameters"]["properties"]
    kinds = {WHOLE: "size_or_unknown", FLAG: "flag_or_unknown", REAL: "number_or_unknown"}
    of_the_shape = ("nodes", "gpus_per_node", "world_size")
    expected = {name: kinds[kind] for name, kind in CELL.items() if kind != TEXT and name not in of_the_shape}
    assert found == {name: parts[part] for name, part in expected.items()}


@pytest.mark.parametrize("versus", [5, "stack", [], {}, {"axis": []}, {"axis": "stack", "margin": "x"}])
def test_an_axis_of_comparison_of_another_kind_is_told(tmp_path, versus, wording):
    campaign = laptop_campaign() | {"versus": versus}
    with wording.raises(UserError):
        read_frozen(written(tmp_path, "campaign.0123456789ab.json", campaign))


@pytest.mark.parametrize(("kind", "value", "shown"), [("cells", None, "null"), ("skipped", 7, "7")])
def test_a_cell_without_the_name_of_its_model_is_told(tmp_path, kind, value, shown, wording):
    campaign = laptop_campaign()
    parameters = campaign[kind][0]["spec"]["parameters"]
    parameters["model"] = value
    with wording.raises(UserError, shown=f"{kind}[0].spec.parameters.model = {shown}"):
        read_frozen(written(tmp_path, "campaign.0123456789ab.json", campaign))
    del parameters["model"]
    with pytest.raises(UserError, match=rf"is damaged \({kind}\[0\].spec.parameters lacks model\)"):
        read_frozen(written(tmp_path, "campaign.0123456789ab.json", campaign))


@pytest.mark.parametrize(
    ("benchmark", "name"), [("collective", "operation"), ("sync_batchnorm", "implementation"), ("train_run", None)]
)
def test_a_cell_lacks_what_names_it_by_its_benchmark(benchmark, name):
    campaign = laptop_campaign()
    campaign["cells"][0]["spec"] |= {"benchmark": benchmark, "parameters": {}}
    assert mismatch(campaign, "campaign") == (name and f"cells[0].spec.parameters lacks {name}")


JUNK = [
    DEEP, "5", "[]", "{}", '{"kind": [], "hosts": [], "cause": 5}', '{"kind": "no_start", "hosts": 5, "cause": ""}',
    '{"kind": "no_start", "hosts": ["n2", 5, null], "cause": [], "job": {}}', "\udcff", '"kind"',
]  # fmt: skip


def test_junk_among_the_notes_of_jobs_costs_only_itself(tmp_path):
    good = json.dumps({"kind": "no_start", "job": "7", "hosts": ["n1"], "cause": "x", "time_utc": "..."})
    text = "\n".join([*JUNK, good, *JUNK, '{"kind": "started", "hosts": [], "cause": ""}'])
    (tmp_path / "jobs.jsonl").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert hosts_to_avoid(tmp_path) == ["n1", "n2"]
    assert [entry.job for entry in jobs_of_batch(tmp_path)] == [None, "7", None]
    assert open_job(noted_jobs(tmp_path)) == JobEvent("started", None, [], "", "")
