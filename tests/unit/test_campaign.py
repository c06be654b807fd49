"""The campaign file: each error has its exact message, and valid values are kept unchanged."""

import shlex

import pytest
import yaml
from campaign_files import CLUSTER, TEXT, changed, collectives, load, message, small
from hypothesis import given
from hypothesis import strategies as st

from regatta.campaign import load as loading
from regatta.campaign.expansion import expand
from regatta.campaign.load import file_schema
from regatta.core.schemas import load_schema

# What is replaced in the small campaign, and by what.
ERRORS = {
    "an unknown key": ("repeats: 3", "repeats: 3\nrepeat: 4"),
    "an unknown parameter": ("batch_size: [8]", "batch_size: [8]\n      bucket_cap: [25]"),
    "a key that is like no other": ("repeats: 3", "repeats: 3\nxyzzy: 4"),
    "a missing key": ("repeats: 3\n", ""),
    "two missing keys": ("shapes:\n  - {nodes: [1], gpus_per_node: [1, 2]}\nrepeats: 3\n", ""),
    "another version": ("schema: 1", "schema: 2"),
    "a version in quotes": ("schema: 1", "schema: '1'"),
    "a wrong type": ("repeats: 3", "repeats: three"),
    "a number in quotes": ("repeats: 3", "repeats: '3'"),
    "a number out of range": ("repeats: 3", "repeats: 0"),
    "more allocations than launches": ("repeats: 3", "repeats: 3\nallocations: 4"),
    "no allocation": ("repeats: 3", "repeats: 3\nallocations: 0"),
    "a value that is no list": ("batch_size: [8]", "batch_size: 8"),
    "a truth value that is no list": ("batch_size: [8]", "batch_size: [8]\n      gradient_as_bucket_view: yes"),
    "an axis without values": ("batch_size: [8]", "batch_size: []"),
    "no stack": ("stacks:\n  host: {kind: host}", "stacks: {}"),
    "a value twice": ("batch_size: [8]", "batch_size: [8, 16, 8]"),
    "a value twice in two spellings": ("bucket_cap_mb: [1, 25]", "bucket_cap_mb: [25, 25.0]"),
    "a key twice": ("repeats: 3", "repeats: 3\nrepeats: 5"),
    "a model that torchvision does not have": ("[resnet18]", "[resnet18, resnet-50]"),
    "a model that is a shell command": ("[resnet18]", "[x; rm -rf ~]"),
    "an unknown benchmark": ("benchmark: train_step", "benchmark: trainstep"),
    "a benchmark that is a path": ("benchmark: train_step", "benchmark: ../../etc/passwd"),
    "a size in a unit that is none": ("[4KiB, 1MiB]", "[4KiB, 1 Mib]"),
    "a size with a line break": ("[4KiB, 1MiB]", '["4KiB\\n"]'),
    "a shape with more nodes than the cluster": ("nodes: [1]", "nodes: [1, 2]"),
    "a cluster that has no file": ("cluster: tiny", "cluster: tyny"),
    "a cluster that is a path": ("cluster: tiny", "cluster: ../clusters/tiny"),
    "an unknown field in exclude": ("repeats: 3", "repeats: 3\nexclude:\n  - when: {world_siz: 2}\n    reason: known"),
    "an exclude rule without a reason": ("repeats: 3", "repeats: 3\nexclude:\n  - {when: {nodes: 1}}"),
    "an unknown field in baseline": ("repeats: 3", "repeats: 3\nbaseline: {strategi: none}"),
    "least above most": ("repeats: 3", "repeats: 3\nsampling:\n  min_seconds: 2.5\n  max_seconds: 1"),
    "least above the default of most": ("repeats: 3", "repeats: 3\nsampling: {min_seconds: 20}"),
    "most below the default of least": (
        "repeats: 3",
        "repeats: 3\nsampling:\n  target_precision: 0.1\n  max_samples: 5",
    ),
    "a number that YAML reads as a text": ("repeats: 3", "repeats: 3\nsampling: {target_precision: 1e-3}"),
    "a small number, whose remedy must not be a text again": (
        "repeats: 3",
        "repeats: 3\nsampling: {target_precision: 1e-7}",
    ),
    "nan as a text": ("repeats: 3", "repeats: 3\nsampling: {target_precision: nan}"),
    "not a number": ("repeats: 3", "repeats: 3\nsampling: {target_precision: .nan}"),
    "a name that is a path": ("name: small", "name: ../small"),
    "a name with a line break": ("name: small", 'name: "small\\n"'),
    "a stack's name with a dash": ("host: {kind: host}", "ho-st: {kind: host}"),
    "a kind of stack that is none": ("{kind: host}", "{kind: bind_mounted}"),
    "an unknown key of a stack": ("{kind: host}", "{kind: host, bind: [/a]}"),
    "a variable's name with an equals sign": ("{kind: host}", "{kind: host, env: {A=B: 1}}"),
    "a variable that YAML reads as a truth value": ("{kind: host}", "{kind: host, env: {NCCL_NET: off}}"),
    "a variable that no process can be given": ("{kind: host}", '{kind: host, env: {A: "x\\0y"}}'),
}


@pytest.mark.parametrize(("old", "new"), ERRORS.values(), ids=list(ERRORS))
def test_each_error_is_reported_with_file_line_value_and_remedy(tmp_path, old, new, wording):
    wording(message(tmp_path, changed(old, new)))


def test_all_errors_are_reported_together_in_the_order_of_the_file(tmp_path):
    text = changed("name: small", "name: small\nnam: small")  # line 3
    text = changed("cluster: tiny", "cluster: tyny", text)  # 4
    text = changed("repeats: 3", "repeats: 0\nsampling: {min_seconds: 20}", text)  # 11, 12
    text = changed("batch_size: [8]", "batch_size: [0]", text)  # 17
    text = changed("[4KiB, 1MiB]", "[]\nbaseline: {node: 1}", text)  # 23, 24
    lines = message(tmp_path, text).splitlines()
    assert [line.split(" ")[0] for line in lines] == [f"campaign.yaml:{n}:" for n in (3, 4, 11, 12, 17, 23, 24)]


def test_a_broken_list_of_benchmarks_does_not_hide_other_errors(tmp_path):
    text = TEXT[: TEXT.index("benchmarks:")] + "benchmarks: train_step\nbaseline: {node: 1}\n"
    lines = message(tmp_path, changed("nodes: [1]", "nodes: [2]", text)).splitlines()
    assert [line.split(" ")[0] for line in lines] == [f"campaign.yaml:{n}:" for n in (9, 11, 12)]


def test_more_than_ten_errors_are_counted(tmp_path, wording):
    keys = "".join(f"unknown{i}: 1\n" for i in range(12))
    lines = message(tmp_path, TEXT + keys).splitlines()
    assert len(lines) == 11
    wording(lines[-1])


CLUSTER_ERRORS = [{"num_nodes": 0}, {"name": "other"}, {"gpus_per_node": "four"}, {"gpus_per_node": -1}]


@pytest.mark.parametrize("cluster", CLUSTER_ERRORS, ids=str)
def test_an_error_in_the_cluster_file_is_reported_with_that_file(tmp_path, cluster, wording):
    wording(message(tmp_path, TEXT, cluster))


def test_gpus_are_held_against_the_cluster_only_where_the_campaign_uses_them(tmp_path, wording):
    gpus = {"shapes": [{"nodes": [1], "gpus_per_node": [8]}]}
    assert load(tmp_path, small(**gpus), {"gpus_per_node": 4}).data["device"] == "cpu"
    wording(message(tmp_path, small(**gpus, device="cuda", backend=["nccl"]), {"gpus_per_node": 4}))


def test_detected_gpus_are_those_of_the_driver_folder(tmp_path, monkeypatch):
    folder = tmp_path / "gpus"
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (folder / name).mkdir(parents=True)
    monkeypatch.setattr(loading, "GPU_FOLDER", folder)
    assert load(tmp_path, small(), {"gpus_per_node": "detect"}).cluster["gpus_per_node"] == 2
    monkeypatch.setattr(loading, "GPU_FOLDER", tmp_path / "none")
    assert load(tmp_path, small(), {"gpus_per_node": "detect"}).cluster["gpus_per_node"] == 0


def test_defaults_are_filled_in_at_every_level(tmp_path):
    """Those that are not here are in config/README.md, which test_config_readme.py holds against the schema."""
    loaded = load(tmp_path, small(sampling={"min_seconds": 0.5}, limits={"cell_seconds": 9}))
    data, stack = loaded.data, loaded.data["stacks"]["host"]
    assert (data["sampling"]["min_seconds"], data["sampling"]["max_seconds"]) == (0.5, 10.0)
    assert data["limits"] == {"cell_seconds": 9, "launch_start_seconds": 300, "max_batch_minutes": 60}
    assert (stack["env"], stack["srun"], stack["image_id"], stack["gpu_request"]) == ({}, [], None, "gpus-per-node")
    assert data["baseline"] == {"strategy": "none", "nodes": 1, "gpus_per_node": 1}
    assert (data["seed"], data["isolation"], data["exclude"], data["description"]) == (1, "launch", [], "")
    assert loaded.cluster | CLUSTER == loaded.cluster
    assert (loaded.cluster["exclusive"], loaded.cluster["srun"], loaded.cluster["max_jobs"]) == (True, [], None)


def test_a_campaign_never_changes_the_schema_s_defaults(tmp_path):
    load_schema.cache_clear()
    before = yaml.safe_dump(file_schema("campaign"))
    load(tmp_path, small(sampling={"min_seconds": 0.5}, stacks={"a": {"kind": "host", "env": {"X": 1}}}))
    load(tmp_path, small())
    assert yaml.safe_dump(file_schema("campaign")) == before


def test_variables_arrive_as_they_are_written(tmp_path):
    text = changed("{kind: host}", "{kind: host, env: {A: 1.10, B: 010, C: 1_000, D: 0x1F, E: 2.0, F: ' x '}}")
    env = load(tmp_path, text).data["stacks"]["host"]["env"]
    assert env == {"A": "1.10", "B": "010", "C": "1_000", "D": "0x1F", "E": "2.0", "F": " x "}


@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=30))
def test_no_variable_is_changed_or_read_by_a_shell(tmp_path_factory, value):
    hostile = f"'\"$(touch x) `y`; #\n{value}"
    data = small(stacks={"host": {"kind": "host", "env": {"HOSTILE": hostile}}})
    cell = expand(load(tmp_path_factory.getbasetemp(), data)).cells[0]
    assert cell.spec["stack"]["env"] == {"HOSTILE": hostile}
    words = shlex.split(cell.command)
    assert words[:3] == ["env", f"HOSTILE={hostile}", "torchrun"]


def test_exclude_may_name_a_size_as_the_axis_does(tmp_path):
    rule = {"when": {"message_bytes": ["1MiB", 4096]}, "reason": "known"}
    loaded = load(tmp_path, collectives("4KiB", "1MiB", exclude=[rule]))
    assert loaded.data["exclude"][0]["when"] == {"message_bytes": [1048576, 4096]}


def test_a_baseline_value_that_no_cell_can_have_is_refused(tmp_path, wording):
    wording(message(tmp_path, small(baseline={"strategy": "nonee", "nodes": 0})))


@pytest.mark.parametrize("name", ["index.html", "compare", "README.md"])
def test_a_name_that_the_results_folder_needs_for_a_file_is_refused(tmp_path, name, wording):
    wording(message(tmp_path, changed("name: small", f"name: {name}")))
    for allowed in (f"{name}s", f"my-{name}", "README", "index"):
        assert load(tmp_path, small(name=allowed)).name == allowed
