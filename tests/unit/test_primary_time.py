"""One primary time per benchmark: where pipelined windows and single samples disagree, every judgement follows it."""

import numpy as np
import pytest
from synthetic import collective_cell, make_campaign, train_cell
from synthetic_sweep import sweep_campaign
from typed import (
    call_cells,
    cell_row,
    comparisons_table,
    efficiencies_table,
    judge,
    step_cells,
    sweep_nodes_table,
)

from regatta.core.benchmarks import benchmark_names, load_benchmark
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.tables.primary_times import primary_columns, with_primary
from regatta.tables.slow_launches import slow_launches_table
from regatta.topics.base import fallback_text

NOISE = (0.99, 1.0, 1.01)  # of three launches


def rows_of(cells, windows, samples, **more):
    """Return measurements. windows, samples: seconds by cell, None where the launch has none; scattered by NOISE."""
    rows = []
    for cell, window, sample in zip(cells, windows, samples, strict=True):
        for repeat, noise in enumerate(NOISE):
            row = {"repeat": repeat, "status": "ok", "launch": f"{cell['id']}-l{repeat:03d}-a00"} | more
            row |= {"window_step_s": None if window is None else window * noise, "p50_s": sample * noise}
            rows.append(cell_row(cell) | row)
    return make_table(rows, MEASUREMENTS)


def test_each_benchmark_declares_a_primary_time_that_is_a_column_of_measurements():
    columns = {name: load_benchmark(name).schema["x-primary-time"]["column"] for name in benchmark_names()}
    assert columns == {
        "collective": "window_step_s",
        "program": "p50_s",
        "script": "window_step_s",
        "sync_batchnorm": "p50_s",
        "train_run": "mean_s",
        "train_step": "window_step_s",
    }
    assert set(columns.values()) <= MEASUREMENTS.keys()


@pytest.fixture(scope="module")
def stacks():
    """Cells of two stacks; pipelined, the second is 30 % faster, while single samples are equal."""
    cells = [collective_cell(2**size, 1, 2, stack=stack) for size in range(10, 14) for stack in ("host", "other")]
    cells += [train_cell("resnet18", 1, 2, stack=stack) for stack in ("host", "other")]
    for cell in cells[1::2]:
        cell["spec"]["stack"]["env"] = {"NCCL_PROTO": "LL"}
    windows = [1.0, 0.7] * 5
    return cells, windows, [2.0] * len(cells)


def test_the_comparison_of_stacks_follows_the_windows(stacks):
    cells, windows, samples = stacks
    campaign = make_campaign(cells, repeats=3)
    table = comparisons_table(campaign, rows_of(cells, windows, samples))
    assert table["time_ratio"].to_list() == pytest.approx([0.7] * 5)
    assert set(table["verdict"]) == {"faster"}
    assert table["time_s"].to_list() == pytest.approx([0.7 * np.exp(np.log(NOISE).mean())] * 5)


def test_the_gate_follows_the_windows(stacks):
    cells, windows, samples = stacks
    campaign = make_campaign(cells, repeats=3)
    now, before = rows_of(cells, windows[::-1], samples), rows_of(cells, windows, samples)
    gate = judge(campaign, now, (campaign | {"name": "before"}, before), 0.05)
    assert len(gate.with_verdict("slower")) == len(gate.with_verdict("faster")) == 5
    assert gate.result != "passed"


def test_a_sweep_follows_the_windows():
    names = [f"n{number}" for number in range(8)]
    campaign = sweep_campaign(names, repeats=3, messages=(1024,))
    windows = [1.3 if cell["spec"]["hosts"] == ["n3"] else 1.0 for cell in campaign["cells"]]
    table = sweep_nodes_table(campaign, rows_of(campaign["cells"], windows, [2.0] * len(windows)))
    slow = table[table["verdict"] == "slower"]
    assert slow["hosts"].to_list() == ["n3", "n3"]
    assert slow["time_ratio"].to_list() == pytest.approx([1.3, 1.3])


def test_efficiency_bandwidth_and_ranges_follow_the_windows():
    one, *two = cells = [
        train_cell("resnet18", 1, 1, "none"),
        *(train_cell("resnet18", 1, 2, bucket=b) for b in (1, 25)),
    ]
    campaign = make_campaign(cells, repeats=3)
    rows = rows_of(cells, [1.0, 1.25, 2.0], [3.0, 3.0, 3.0])
    table = step_cells(campaign, rows).set_index("cell")
    assert table.loc[[cell["id"] for cell in two], "efficiency_ratio"].to_list() == pytest.approx([0.8, 0.5])
    assert set(efficiencies_table(campaign, rows)["baseline"]) == {one["id"]}
    medians = table["median_s"].to_dict()
    assert medians == pytest.approx({cells[0]["id"]: 1.0, cells[1]["id"]: 1.25, cells[2]["id"]: 2.0})
    calls = [collective_cell(10**6, 1, 2)]
    row = call_cells(make_campaign(calls, repeats=3), rows_of(calls, [0.001], [0.003])).iloc[0]
    mean = np.exp(np.log(NOISE).mean())
    assert (row["time_s"], row["latency_s"]) == pytest.approx((0.001 * mean, 0.003 * mean))
    assert row["busbw_gb_per_s"] == pytest.approx(1 / mean)


def test_a_slow_launch_is_one_whose_windows_are_slow():
    cells = [collective_cell(2**size, 1, 2) for size in range(10, 14)]
    rows = rows_of(cells, [1.0] * 4, [1.0] * 4)
    rows["launch"] = "batch-l00" + rows["repeat"].astype(str) + "-a00"
    rows["hosts"] = "n1"
    rows.loc[rows["repeat"] == 2, "window_step_s"] *= 2
    slow = slow_launches_table(rows)
    assert slow.loc[slow["is_slow"], "repeat"].to_list() == [2]


def test_records_without_the_primary_time_fall_back_on_both_sides_of_a_comparison():
    """One campaign has windows of 0.7 s, the other none: single samples are compared, and not windows with them."""
    cells = [collective_cell(2**size, 1, 2) for size in range(10, 14)]
    campaign = make_campaign(cells, repeats=3)
    now, before = rows_of(cells, [0.7] * 4, [2.0] * 4), rows_of(cells, [None] * 4, [2.0] * 4)
    assert primary_columns(now)["collective"] == "window_step_s"
    assert primary_columns(now, before)["collective"] == "p50_s"
    assert primary_columns(now, before)["train_step"] == "window_step_s"
    assert with_primary(before)["primary_s"].to_list() == before["p50_s"].to_list()
    gate = judge(campaign, now, (campaign | {"name": "before"}, before), 0.05)
    assert [cell.compared.time_ratio for cell in gate.compared] == pytest.approx([1.0] * 4)
    assert [note for note in gate.notes if "collective: median iteration" in note] == [fallback_text(now, before)]
    assert fallback_text(before, before) == fallback_text(now, now) == ""


def test_a_file_of_an_earlier_version_without_windows_or_benchmark_is_judged_by_its_samples():
    cells = [collective_cell(1024, 1, 2)]
    old = rows_of(cells, [1.0], [2.0])[["cell", "status", "p50_s"]]
    assert with_primary(old)["primary_s"].to_list() == [2.0 * noise for noise in NOISE]
