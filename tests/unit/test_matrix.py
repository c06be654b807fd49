"""Cells and their ids: what changes an id, what never does, and which cells cannot run."""

import copy
import hashlib
import itertools
import math
import random
import re

import pytest
from campaign_files import SLURM, cells, changed, collectives, load, matrix, pin_versions, small, stack
from hypothesis import given
from hypothesis import strategies as st

from regatta.campaign.expansion import canonical_json, content_hash, expand
from regatta.core.errors import UserError

TRAIN = {"model": ["resnet18"], "batch_size": [8], "strategy": ["ddp"]}
AXES = {
    "model": ["resnet18", "resnet50", "vgg11"],
    "image_size": [32, 64, 224],
    "batch_size": [1, 8, 32],
    "dtype": ["fp32", "bf16"],
    "strategy": ["none", "ddp"],
    "bucket_cap_mb": [1, 0.5, 25],
    "gradient_as_bucket_view": [True, False],
    "optimizer": ["sgd", "adamw"],
}


def train(parameters: dict, **changes) -> dict:
    return small(benchmarks=[{"benchmark": "train_step", "parameters": parameters}]) | changes


def ids(folder, data) -> list[str]:
    found = matrix(folder, data)
    return [cell.id for cell in found.cells] + [cell.id for cell, _ in found.skipped]


def folder(tmp_path_factory):
    return tmp_path_factory.getbasetemp()


def axes():
    """Some values of some axes, in any order; required axes always."""
    some = {name: st.lists(st.sampled_from(values), min_size=1, unique=True) for name, values in AXES.items()}
    required = {name: some.pop(name) for name in ("model", "batch_size", "strategy")}
    return st.fixed_dictionaries(required, optional=some)


def test_the_id_of_a_cell_is_pinned(tmp_path, monkeypatch):
    """If this fails, every store loses its history. Do that on purpose only, and say so in the change log."""
    pin_versions(monkeypatch)
    [cell] = cells(tmp_path, collectives("4KiB"))
    assert cell.id == "collective-all_reduce-4096-n01g02-host-7f06bdf79102"
    text = (
        '{"backend":"gloo","benchmark":"collective","cluster":"tiny","device":"cpu","gpus_per_node":2,"nodes":1,'
        '"parameters":{"algorithm":"torch","dtype":"fp32","message_bytes":4096,"operation":"all_reduce"},'
        '"sampling":{"max_samples":100000,"max_seconds":10,"max_warmup_seconds":5,"min_samples":10,"min_seconds":1,'
        '"target_precision":0.01,"windows_ratio":0.3},"stack":{"env":{},"kind":"host","name":"host","python":null},'
        '"version":1}'
    )
    assert canonical_json(cell.spec) == text
    assert cell.id.endswith(hashlib.sha256(text.encode()).hexdigest()[:12])


def test_slugs_name_what_distinguishes_cells(tmp_path, monkeypatch):
    pin_versions(monkeypatch)
    slugs = [cell.id.rpartition("-")[0] for cell in cells(tmp_path, small())]
    assert slugs == [
        "train_step-resnet18-none-n01g01-host",
        "train_step-resnet18-ddp-1-n01g01-host",
        "train_step-resnet18-ddp-25-n01g01-host",
        "train_step-resnet18-ddp-1-n01g02-host",
        "train_step-resnet18-ddp-25-n01g02-host",
        "collective-all_reduce-4096-n01g02-host",
        "collective-all_reduce-1048576-n01g02-host",
    ]


@given(axes(), st.randoms())
def test_the_order_of_keys_and_values_never_matters(tmp_path_factory, parameters, rng):
    data = train(parameters, stacks={"a": {"kind": "host"}, "b": {"kind": "host", "env": {"X": 1, "Y": 2}}})
    mixed = shuffled(data, rng)
    assert sorted(ids(folder(tmp_path_factory), data)) == sorted(ids(folder(tmp_path_factory), mixed))


def shuffled(value, rng: random.Random):
    if isinstance(value, dict):
        items = [(key, shuffled(v, rng)) for key, v in value.items()]
        rng.shuffle(items)
        return dict(items)
    if isinstance(value, list):
        return rng.sample([shuffled(v, rng) for v in value], len(value))
    return value


@given(axes(), st.data())
def test_another_value_never_changes_the_id_of_other_cells(tmp_path_factory, parameters, data):
    axis = data.draw(st.sampled_from(sorted(parameters)))
    values = parameters[axis]
    fewer = values[: data.draw(st.integers(1, len(values)))]
    before = set(ids(folder(tmp_path_factory), train(parameters | {axis: fewer})))
    after = set(ids(folder(tmp_path_factory), train(parameters)))
    assert before <= after


@given(axes())
def test_cells_are_distinct_and_as_many_as_their_parameters_make(tmp_path_factory, parameters):
    found = ids(folder(tmp_path_factory), train(parameters))
    assert len(found) == len(set(found))
    counts = {name: len(parameters.get(name, [None])) for name in AXES}
    wrapped = counts["bucket_cap_mb"] * counts["gradient_as_bucket_view"]
    strategies = sum({"none": 1, "ddp": wrapped}[s] for s in parameters["strategy"])
    num_shapes = 2
    assert len(found) == num_shapes * strategies * math.prod(
        counts[name] for name in ("model", "image_size", "batch_size", "dtype", "optimizer")
    )


@pytest.mark.parametrize(("one", "other"), [("4KiB", 4096), ("4 KiB", "4096B"), ("1MB", 1000000), ("1GiB", 2**30)])
def test_a_size_is_the_same_cell_in_any_spelling(tmp_path, one, other):
    assert ids(tmp_path, collectives(one)) == ids(tmp_path, collectives(other))


def test_a_size_given_twice_in_two_spellings_is_one_cell(tmp_path):
    assert len(cells(tmp_path, collectives("4KiB", 4096))) == 1


def test_a_whole_float_is_the_same_cell_as_the_integer(tmp_path):
    one = changed("[1, 25]", "[25]")
    other = changed("[1, 25]", "[25.0]")
    assert [c.id for c in expand(load(tmp_path, one)).cells] == [c.id for c in expand(load(tmp_path, other)).cells]


def test_a_default_written_out_is_the_same_cell(tmp_path):
    data = train(
        TRAIN | {"image_size": [224], "dtype": ["fp32"], "bucket_cap_mb": [25], "gradient_as_bucket_view": [False]}
    )
    data |= {"sampling": {"max_seconds": 10}, "stacks": {"host": {"kind": "host", "env": {}, "python": None}}}
    assert ids(tmp_path, data) == ids(tmp_path, train(TRAIN))


def test_parameters_without_effect_are_null_and_make_no_cells(tmp_path):
    shape = [{"nodes": [1], "gpus_per_node": [1]}]
    parameters = TRAIN | {"strategy": ["none"], "bucket_cap_mb": [1, 5, 25], "gradient_as_bucket_view": [True, False]}
    [cell] = cells(tmp_path, train(parameters, shapes=shape))
    assert cell.spec["parameters"]["bucket_cap_mb"] is None
    assert cell.spec["parameters"]["gradient_as_bucket_view"] is None
    assert cell.spec["parameters"]["image_size"] == 224


def leaves(spec: dict, path=()):
    for key, value in spec.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


def test_every_field_of_the_spec_changes_the_id(tmp_path):
    spec = cells(tmp_path, train(TRAIN, stacks={"host": {"kind": "host", "env": {"A": "1"}}}))[0].spec
    hashes = {content_hash(spec)}
    paths = list(leaves(spec))
    assert len(paths) == 7 + 4 + 13 + 7  # the cell's own, stack, parameters, sampling
    for path in paths:
        other = copy.deepcopy(spec)
        inner = other
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = "something else"
        hashes.add(content_hash(other))
    assert len(hashes) == 1 + len(paths)


def test_a_cell_carries_its_stack_as_launches_need_it(tmp_path):
    [cell] = cells(tmp_path, collectives(4096))
    assert cell.stack_entry == stack()
    assert cell.spec["stack"] == {"name": "host", "kind": "host", "python": None, "env": {}}


def test_on_slurm_srun_s_options_are_part_of_a_cell(tmp_path):
    [cell] = matrix(tmp_path, collectives(4096), SLURM).cells
    assert cell.spec["stack"] == {"name": "host", "kind": "host", "python": None, "env": {}, "srun": []}


CHANGES_THE_NUMBER = {
    "device": {"device": "cuda"},
    "backend": {"backend": ["nccl"]},
    "stack's name": {"stacks": {"other": {"kind": "host"}}},
    "python": {"stacks": {"host": {"kind": "host", "python": "/usr/bin/python3"}}},
    "env": {"stacks": {"host": {"kind": "host", "env": {"A": "1"}}}},
    "sampling": {"sampling": {"target_precision": 0.02}},
    "shape": {"shapes": [{"nodes": [1], "gpus_per_node": [3]}]},
}


@pytest.mark.parametrize("change", CHANGES_THE_NUMBER.values(), ids=list(CHANGES_THE_NUMBER))
def test_what_can_change_the_number_changes_the_id(tmp_path, change):
    assert set(ids(tmp_path, collectives(4096))).isdisjoint(ids(tmp_path, collectives(4096) | change))


def test_what_cannot_change_the_number_leaves_the_id(tmp_path):
    limits = {"cell_seconds": 1, "launch_start_seconds": 2, "max_batch_minutes": 3}
    change = {"repeats": 7, "seed": 2, "isolation": "process", "limits": limits, "baseline": {"nodes": 2}}
    change |= {"description": "Other words", "name": "other"}
    assert ids(tmp_path, collectives(4096)) == ids(tmp_path, collectives(4096) | change)


def test_the_windows_ratio_changes_only_ids_of_benchmarks_with_windows(tmp_path):
    norms = {"benchmark": "sync_batchnorm", "parameters": {"implementation": ["own"], "batch_size": [4], "hidden": [8]}}
    data = collectives(4096)
    data["benchmarks"].append(norms)
    before, after = (cells(tmp_path, data | {"sampling": {"windows_ratio": ratio}}) for ratio in (0.3, 0.5))
    kept = {cell.id for cell in before} & {cell.id for cell in after}
    assert kept == {cell.id for cell in before if cell.spec["benchmark"] == "sync_batchnorm"}
    assert len(kept) == len(before) - 1


def test_a_deadline_of_one_entry_leaves_the_id_and_is_the_cell_s_limit(tmp_path):
    data = collectives(4096)
    data["benchmarks"][0]["cell_seconds"] = 7
    [cell] = cells(tmp_path, data)
    assert cell.id == cells(tmp_path, collectives(4096))[0].id
    assert cell.limit_seconds == 7.0


def test_a_new_version_of_a_benchmark_changes_the_id(tmp_path, monkeypatch):
    pin_versions(monkeypatch, 1)
    first = ids(tmp_path, collectives(4096))
    pin_versions(monkeypatch, 2)
    assert set(first).isdisjoint(ids(tmp_path, collectives(4096)))


def test_facts_of_the_cluster_leave_the_id_but_its_name_changes_it(tmp_path):
    first = [cell.id for cell in matrix(tmp_path, collectives(4096)).cells]
    assert [cell.id for cell in matrix(tmp_path, collectives(4096), {"num_nodes": 5}).cells] == first
    (tmp_path / "clusters" / "other.yaml").write_text(
        "schema: 1\nname: other\nscheduler: none\nnum_nodes: 1\ngpus_per_node: 0\n"
    )
    assert ids(tmp_path, collectives(4096, cluster="other")) != first


def operations(operation: str, *sizes: int | str, **changes) -> dict:
    """Return a campaign of one operation on 2 ranks."""
    data = collectives(*sizes, **changes)
    data["benchmarks"][0]["parameters"]["operation"] = [operation]
    return data


def of(benchmark: str, parameters: dict) -> dict:
    """Return a campaign of one benchmark on 1 rank."""
    entry = {"benchmark": benchmark, "parameters": parameters}
    return collectives(4) | {"benchmarks": [entry], "shapes": [{"nodes": [1], "gpus_per_node": [1]}]}


RANKS = {number: [{"nodes": [1], "gpus_per_node": [number]}] for number in (1, 2, 3)}
NORM = {"implementation": ["torch"], "hidden": [8], "batch_size": [4]}
RUN = {"epochs": [1], "strategy": ["own"]}
SKIPPED = {  # a campaign whose only cell cannot run, and facts of its cluster
    "training without DDP on 3 ranks": (train(TRAIN | {"strategy": ["none"]}, shapes=RANKS[3]), {}),
    "collective on 1 rank": (collectives(4096, shapes=RANKS[1]), {}),
    "nccl on a CPU": (collectives(4096, backend=["nccl"]), {}),
    "cuda without a GPU": (collectives(4096, device="cuda"), {}),
    "a part of an element": (collectives(4098), {}),
    "unequal parts": (operations("all_gather", 4096, shapes=RANKS[3]), {}),
    "gloo on a GPU": (operations("reduce_scatter", 4096, device="cuda"), {"gpus_per_node": 2}),
    "fsdp, channels last": (train(TRAIN | {"strategy": ["fsdp"], "channels_last": [True]}, shapes=RANKS[2]), {}),
    "torch's SyncBatchNorm": (of("sync_batchnorm", NORM), {}),
    "a norm of 1 sample": (of("sync_batchnorm", NORM | {"implementation": ["own"], "batch_size": [1]}), {}),
    "cifar100 without a folder": (of("train_run", RUN | {"data": ["cifar100"]}), {}),
    "training with torch's SyncBatchNorm": (of("train_run", RUN | {"norm": ["torch_sync"]}), {}),
    "excluded": (collectives(4096, exclude=[{"when": {"world_size": 2}, "reason": "one\n  two"}]), {}),
}


@pytest.mark.parametrize("name", SKIPPED)
def test_a_cell_that_cannot_run_is_skipped_with_its_reason(tmp_path, name, wording):
    found = matrix(tmp_path, *SKIPPED[name])
    assert found.cells == []
    [(_, why)] = found.skipped
    wording(why)


def test_an_element_of_bf16_has_two_bytes(tmp_path):
    data = collectives(4098)
    data["benchmarks"][0]["parameters"]["dtype"] = ["fp32", "bf16"]
    found = matrix(tmp_path, data)
    assert [cell.spec["parameters"]["dtype"] for cell in found.cells] == ["bf16"]
    assert len(found.skipped) == 1


def test_a_barrier_has_no_size_so_that_all_sizes_are_one_cell(tmp_path):
    [cell] = cells(tmp_path, operations("barrier", 3, 4096))
    assert cell.spec["parameters"] == {"operation": "barrier", "message_bytes": None, "dtype": None, "algorithm": None}
    assert cell.id.rpartition("-")[0] == "collective-barrier-n01g02-host"


def test_only_an_all_reduce_has_an_algorithm(tmp_path):
    data = collectives(4096)
    data["benchmarks"][0]["parameters"] |= {"operation": ["all_reduce", "broadcast"], "algorithm": ["torch", "ring"]}
    found = [cell.spec["parameters"] for cell in cells(tmp_path, data)]
    assert [(own["operation"], own["algorithm"]) for own in found] == [
        ("all_reduce", "torch"), ("all_reduce", "ring"), ("broadcast", None),
    ]  # fmt: skip


def test_gloo_reduces_and_broadcasts_on_a_gpu_and_waits_at_a_barrier(tmp_path):
    for operation in ("all_reduce", "broadcast", "barrier"):
        assert len(matrix(tmp_path, operations(operation, 4096, device="cuda"), {"gpus_per_node": 2}).cells) == 1


def test_a_cell_is_excluded_by_the_first_rule_whose_fields_all_match(tmp_path):
    rules = [
        {"when": {"benchmark": "train_step", "bucket_cap_mb": [5, 25], "world_size": 2}, "reason": "first"},
        {"when": {"bucket_cap_mb": 25}, "reason": "second"},
        {"when": {"message_bytes": "4KiB"}, "reason": "third"},
    ]
    found = matrix(tmp_path, small(exclude=rules))
    reasons = {cell.id.rpartition("-")[0]: reason for cell, reason in found.skipped if reason.startswith("excluded")}
    assert reasons == {
        "train_step-resnet18-ddp-25-n01g02-host": "excluded: first",
        "train_step-resnet18-ddp-25-n01g01-host": "excluded: second",
        "collective-all_reduce-4096-n01g02-host": "excluded: third",
    }
    assert len(found.cells) == 7 - 3
    assert found.notes == []


def test_a_rule_without_effect_is_noted_with_its_line(tmp_path):
    rules = [{"when": {"stack": "host", "nodes": 9}, "reason": "a"}, {"when": {"message_bytes": "huge"}, "reason": "b"}]
    found = matrix(tmp_path, small(exclude=rules))
    assert len(found.cells) == 7
    lines = (tmp_path / "campaign.yaml").read_text().splitlines()
    first = lines.index("exclude:") + 2  # `- when:` of the first rule
    places = [(first, "exclude[0]"), (first + 5 - 1, "exclude[1]")]
    for note, (number, key) in zip(found.notes, places, strict=True):
        assert note.startswith(f"{tmp_path}/campaign.yaml:{number}: {key} ")


def test_a_rule_that_only_matches_what_cannot_run_is_noted(tmp_path):
    rule = {"when": {"strategy": "none", "world_size": 2}, "reason": "cannot run anyway"}
    found = matrix(tmp_path, small(exclude=[rule]))
    assert not any(rule["reason"] in reason for _, reason in found.skipped)
    assert len(found.notes) == 1


def test_fields_of_a_cell_are_found_by_the_names_that_rules_use(tmp_path):
    cell = cells(tmp_path, collectives(4096))[0]
    names = ("world_size", "stack", "backend", "message_bytes", "model")
    assert [cell.field(name) for name in names] == [2, "host", "gloo", 4096, None]


def test_shapes_given_twice_are_one(tmp_path):
    shape = {"nodes": [1], "gpus_per_node": [2]}
    assert len(cells(tmp_path, collectives(4096, shapes=[shape, shape]))) == 1


def test_all_axes_are_crossed(tmp_path):
    stacks = {"a": {"kind": "host"}, "b": {"kind": "host"}}
    shapes = [{"nodes": [1], "gpus_per_node": [2, 3]}, {"nodes": [1], "gpus_per_node": [4]}]
    found = cells(tmp_path, collectives(4096, 8192, stacks=stacks, shapes=shapes))
    points = {(c.spec["gpus_per_node"], c.spec["stack"]["name"], c.spec["parameters"]["message_bytes"]) for c in found}
    assert points == set(itertools.product([2, 3, 4], ["a", "b"], [4096, 8192]))
    assert len(found) == 12


def test_a_baseline_that_no_cell_is_is_noted(tmp_path):
    found = matrix(tmp_path, small(baseline={"strategy": "none", "nodes": 1, "gpus_per_node": 2}))
    assert any("`baseline`" in note for note in found.notes)


def test_a_product_of_axes_above_the_limit_is_refused_before_any_cell_is_made(tmp_path):
    parameters = {"model": ["resnet18"], "batch_size": list(range(1, 501)), "image_size": list(range(32, 532))}
    entry = {"benchmark": "train_step", "parameters": parameters | {"strategy": ["ddp"], "bucket_cap_mb": [1, 5, 25]}}
    with pytest.raises(UserError) as caught:
        matrix(tmp_path, small(benchmarks=[entry]))
    assert "1,500,000 cells (" in str(caught.value)
    assert re.search(r"campaign\.yaml:\d+: benchmarks\[0\] ", str(caught.value))
