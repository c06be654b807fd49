"""Real records of each program contain no field that its schema does not declare."""

import pytest
from bench_cells import BENCH, collective_cell, make_cell, train_step_cell

pytestmark = pytest.mark.torch
pytest.importorskip("yaml")

from regatta.core.benchmarks import (  # noqa: E402
    benchmark_names,
    load_benchmark,
    normalize,
    undeclared,
)

TRAIN_RUN = {
    "model": "cifar_cnn", "data": "synthetic", "data_folder": None, "epochs": 1, "batch_size": 16,
    "accumulation_steps": 1, "strategy": "own", "norm": "own_sync", "seed": 1,
}  # fmt: skip
CELLS = [
    train_step_cell(),
    train_step_cell("lm_tiny", "bucketed"),
    collective_cell("all_reduce", 4096),
    collective_cell("send_recv_pair", 4096),
    collective_cell("barrier"),
    make_cell("sync_batchnorm", {"implementation": "own", "batch_size": 4, "hidden": 8, "dtype": "fp32"}),
    make_cell("train_run", TRAIN_RUN),
]


def smallest_cell(name: str) -> dict:
    """Return a cell of a benchmark with its defaults, else with the first or smallest value of each axis."""
    benchmark, values = load_benchmark(name), {}
    for axis, rule in benchmark.parameters.items():
        items = rule["items"]["anyOf"][0] if "anyOf" in rule["items"] else rule["items"]
        values[axis] = rule.get("default", items.get("enum", [items.get("minimum")]))[0]
    return make_cell(name, normalize(benchmark, values))


CELLS += [
    smallest_cell(name)
    for name in sorted({*benchmark_names()} - {cell["spec"]["benchmark"] for cell in CELLS} - {"script", "program"})
]


def test_every_field_of_a_real_record_is_declared(run_ranks, write_request, launch_lines):
    done = run_ranks(2, BENCH / "run_launch.py", "--request", write_request(CELLS))
    assert done.returncode == 0, done.stderr
    records = [line for line in launch_lines() if line["kind"] == "record"]
    assert [record["status"] for record in records] == ["ok"] * len(CELLS)
    assert {record["spec"]["benchmark"] for record in records} == {*benchmark_names()} - {"script", "program"}
    benchmarks = [load_benchmark(record["spec"]["benchmark"]) for record in records]
    assert [undeclared(*both) for both in zip(records, benchmarks, strict=True)] == [[]] * len(records)
    has_windows = [benchmark.has_windows for benchmark in benchmarks]
    assert [record["windows"] is not None for record in records] == has_windows


def test_the_table_of_a_benchmark_by_hand_shows_all_memory(monkeypatch):
    from regatta.core.benchmarks import result_columns

    monkeypatch.syspath_prepend(str(BENCH))
    from harness.by_hand_table import MEMORY_LABELS

    assert set(MEMORY_LABELS) == set(result_columns("memory"))
