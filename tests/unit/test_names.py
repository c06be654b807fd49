"""Names of cells: what they contain, what they omit, and that no two cells of a campaign share one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typed import typed

from regatta.core.benchmarks import benchmark_names, load_benchmark, normalize
from regatta.core.names import cell_names
from regatta.model.frozen import names_by_id


def step(**changes: object) -> dict:
    """Return the fields of a training step."""
    cell = {"benchmark": "train_step", "model": "resnet50", "strategy": "ddp", "bucket_cap_mb": 25, "batch_size": 8}
    cell |= {"nodes": 8, "gpus_per_node": 4, "stack": "host", "backend": "nccl", "device": "cuda", "compile": False}
    return cell | changes


def full(*cells: dict) -> list[str]:
    return [name.full for name in cell_names(list(cells))]


def test_a_name_says_subject_and_shape_and_what_varies(wording):
    wording(full(step()))
    cells = step(), step(bucket_cap_mb=1), step(bucket_cap_mb=1, stack="bound")
    wording(full(*cells))
    wording(full(step(nodes=1, gpus_per_node=1, device="cpu"), step(device="cpu")))


def test_a_flag_is_said_either_way(wording):
    wording(full(step(), step(compile=True)))


def test_what_varies_in_one_benchmark_is_not_said_of_another(wording):
    call = {"benchmark": "collective", "operation": "all_reduce", "algorithm": "torch", "dtype": "fp32"}
    call |= {"nodes": 1, "gpus_per_node": 4, "stack": "host", "backend": "nccl", "device": "cuda"}
    names = full(step(), step(dtype="bf16"), call | {"message_bytes": 4096}, call | {"message_bytes": 1536})
    wording(names[1:])


def test_what_varies_only_between_subjects_is_not_said():
    small = {"model": "lm_small", "batch_size": 16}
    names = full(
        step(dtype="fp32"),
        step(dtype="bf16"),
        step(**small),
        step(**small, compile=True),
        step(**small, compile=True, nodes=1),
    )
    assert names[0] == "ResNet-50 \N{MIDDLE DOT} 8\N{MULTIPLICATION SIGN}4 GPUs \N{MIDDLE DOT} fp32"
    assert [name.split(" \N{MIDDLE DOT} ")[2:] for name in names[1:]] == [
        ["bf16"],
        ["no compile"],
        ["compile"],
        ["compile"],
    ]


def test_values_that_rounding_would_make_one_are_said_in_full(wording):
    call = {"benchmark": "collective", "operation": "all_reduce", "nodes": 1, "gpus_per_node": 4, "device": "cpu"}
    names = full(*(call | {"message_bytes": num} for num in (1234567, 1234568)))
    wording(names)


def test_a_label_has_where_the_cell_runs_in_its_second_line(wording):
    name, _ = cell_names([step(), step(stack="bound", bucket_cap_mb=1)])
    wording(name.label(*name.series, "shape", "stack"))
    wording(name.without("stack").full)


VALUES = {
    "batch_size": st.integers(1, 10**9),
    "bucket_cap_mb": st.floats(1e-6, 1e6),
    "data_folder": st.sampled_from([None, "/a", "/b · c", "none"]),
}


def value_of(name: str, rule: dict) -> st.SearchStrategy:
    items = rule["items"]
    if name in VALUES:
        return VALUES[name]
    if "enum" in items:
        return st.sampled_from(items["enum"])
    if rule.get("x-unit") == "bytes":
        return st.integers(1, 10**12)
    return st.booleans() if items["type"] == "boolean" else st.integers(1, 10**6)


@st.composite
def campaigns(draw) -> dict:
    """Return a campaign of a few values on each of some axes of some benchmarks."""
    specs = {}
    stacks = draw(st.lists(st.sampled_from(["host", "ddp", "bf16", "batch 8", "gloo"]), min_size=1, unique=True))
    for name in draw(st.lists(st.sampled_from(benchmark_names()), min_size=1, max_size=3, unique=True)):
        benchmark = load_benchmark(name)
        for _ in range(draw(st.integers(1, 8))):
            given_values = {axis: draw(value_of(axis, rule)) for axis, rule in benchmark.parameters.items()}
            spec = {
                "benchmark": name,
                "version": 1,
                "nodes": draw(st.integers(1, 3)),
                "gpus_per_node": draw(st.integers(1, 3)),
                "backend": draw(st.sampled_from(["gloo", "nccl"])),
                "device": "cpu",
                "stack": {"name": draw(st.sampled_from(stacks))},
                "parameters": normalize(benchmark, given_values),
                "sampling": None,
            }
            specs[repr(spec)] = spec
    return {"cells": [{"id": key, "spec": spec} for key, spec in specs.items()], "skipped": []}


@settings(max_examples=100)
@given(campaigns())
def test_no_two_cells_of_a_campaign_share_a_name(campaign):
    names = [name.full for name in names_by_id(map(typed, campaign["cells"])).values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("fields", [{"dtype": None}, {"batch_size": None}])
def test_imported_cells_that_lack_a_field_are_told_apart(fields):
    names = full(step(dtype="fp32"), step(dtype="fp32") | fields)
    assert len(set(names)) == 2
