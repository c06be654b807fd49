"""From records of train_run to epochs, runs, ranks and their section: numbers computed by hand, and broken records."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import analyse, lines_of, make_campaign, make_header, report_data, write_lines
from synthetic_training import run_cell, run_record
from typed import cell_row, collect, make_tables, read_collected

from regatta.core.benchmarks import load_benchmark
from regatta.store.collect import write_collected
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.store.records import number, problem_of, training_of
from regatta.tables.cells import columns_with, rows_of
from regatta.topics.training_runs import (
    TOPIC,
    findings,
    section,
)

T = "2026-11-21T03:00:00Z"
OWN, DDP, ALONE = run_cell("own"), run_cell("ddp"), run_cell("none", gpus=1)


def write_store(folder, cells, records, repeats=3):
    """Write a results folder. records: in launches by their repeat and shape. Returns the campaign."""
    campaign = make_campaign(cells, repeats=repeats)
    (folder / "launches").mkdir(parents=True)
    (folder / "campaign.0123456789ab.json").write_text(json.dumps(campaign))
    launches = {}
    for record in records:
        spec = record["spec"]
        launches.setdefault((record["repeat"], spec["gpus_per_node"], spec["stack"]["name"]), []).append(record)
    for number_, ((repeat, _, _), own) in enumerate(sorted(launches.items(), key=lambda pair: pair[0])):
        name = f"n01g02-0123456789ab-l{number_:03d}-a00"
        lines = [make_header(campaign, name, repeat, [{"id": r["cell"], "spec": r["spec"]} for r in own], T), *own]
        write_lines(folder / "launches" / f"{name}.jsonl", lines)
    return campaign


def tables_of(folder, cells, records, repeats=3):
    """Return (tables, what was collected, problems), through the files."""
    campaign = write_store(folder, cells, records, repeats)
    collected, problems = collect(campaign, folder / "launches")
    write_collected(collected, folder / "measurements.csv")
    collected = read_collected(campaign, folder / "measurements.csv")
    return make_tables(campaign, collected), collected, problems


def test_epochs_have_the_slowest_rank_and_what_was_learnt(tmp_path):
    _, collected, _ = tables_of(tmp_path, [OWN], [run_record(OWN, 0, T)])
    rows = collected["epochs"].to_dict("records")
    assert [row["epoch"] for row in rows] == [1, 2]
    assert [row["epoch_s"] for row in rows] == [1.01, 2.01]  # rank 1 takes 10 ms longer
    assert [row["train_s"] for row in rows] == [0.8, 1.6]
    assert [row["test_s"] for row in rows] == [0.21, 0.41]
    assert [row["train_loss"] for row in rows] == [4.5, 4.0]
    assert [row["test_loss"] for row in rows] == [4.6, 4.2]
    assert [row["accuracy_ratio"] for row in rows] == [0.05, 0.1]
    assert {row["train_samples"] for row in rows} == {1920}
    assert {(row["cell"], row["repeat"], row["line"]) for row in rows} == {(OWN["id"], 0, 2)}


def test_ranks_keep_their_own_time_memory_and_accuracy(tmp_path):
    tables, collected, _ = tables_of(tmp_path, [OWN], [run_record(OWN, repeat, T) for repeat in (0, 1)])
    rows = collected["ranks"].to_dict("records")
    assert [(row["repeat"], row["rank"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [row["total_s"] for row in rows[:2]] == pytest.approx([3.0, 3.02])
    assert [row["accuracy_ratio"] for row in rows[:2]] == pytest.approx([0.1, 0.11])
    assert [row["peak_allocated_bytes"] for row in rows[:2]] == [170_099_200, 170_098_688]
    shown = tables["training_ranks"].to_dict("records")
    assert [(row["rank"], row["num_launches"]) for row in shown] == [(0, 2), (1, 2)]
    assert [row["total_s"] for row in shown] == pytest.approx([3.0, 3.02])
    assert (shown[1]["total_low_s"], shown[1]["total_high_s"]) == pytest.approx((3.02, 3.02))


def test_a_run_has_means_over_launches_with_their_range(tmp_path):
    ends = [0.10, 0.30]
    records = [run_record(OWN, repeat, T, accuracy=[0.05, end]) for repeat, end in enumerate(ends)]
    records[1]["samples_ns"] = [[4 * 10**9, 6 * 10**9], [1, 1]]
    tables, _, _ = tables_of(tmp_path, [OWN, DDP], records)
    done, planned = sorted(
        rows_of(tables["cells"], "train_run").to_dict("records"), key=lambda row: -row["num_launches"]
    )
    assert (done["num_launches"], done["num_planned"], done["interval"]) == (2, 3, "range")
    assert done["accuracy_ratio"] == pytest.approx(0.2)
    assert (done["accuracy_low_ratio"], done["accuracy_high_ratio"]) == pytest.approx((0.10, 0.30))
    # 1.01 + 2.01 s, and 4 + 6 s.
    assert (done["total_s"], done["total_low_s"], done["total_high_s"]) == pytest.approx((30.2**0.5, 3.02, 10.0))
    assert (done["epoch_train_s"], done["epoch_test_s"]) == pytest.approx((1.2, 0.31))
    assert done["training_run_throughput_samples_per_s"] == pytest.approx(1920 / 1.2)
    assert (done["train_loss"], done["test_loss"]) == (4.0, 4.2)
    assert (done["peak_allocated_bytes"], done["peak_rss_bytes"]) == (170_099_200, 800_000_001)
    assert (planned["cell"], planned["num_launches"], planned["interval"]) == (DDP["id"], 0, "none")
    assert rows_of(tables["cells"], "train_run").set_index("cell").loc[DDP["id"], ["total_s", "test_loss"]].isna().all()


def test_only_the_record_that_counts_has_epochs(tmp_path):
    failed = run_record(DDP, 0, T) | {"status": "failed", "phase": "check", "cause": "no"}
    old, new = run_record(OWN, 0, T), run_record(OWN, 0, T, train_loss=[1.0, 1.0])
    _, collected, problems = tables_of(tmp_path, [OWN, DDP], [failed, old, new])
    assert collected["epochs"]["train_loss"].tolist() == [1.0, 1.0]
    assert set(collected["ranks"]["cell"]) == {OWN["id"]}
    assert len(problems["superseded"]) == 1


def test_losses_are_compared_to_the_last_digit_and_so_written(tmp_path):
    next_loss = 4.633754539489746 + 8.9e-16
    assert f"{next_loss:.9g}" == f"{4.633754539489746:.9g}"
    assert next_loss != 4.633754539489746
    records = [
        run_record(OWN, 0, T, test_loss=[4.633754539489746, 4.0]),
        run_record(OWN, 1, T, test_loss=[next_loss, 4.0]),
        run_record(DDP, 0, T, test_loss=[4.633754539489746, 4.0]),
        run_record(DDP, 1, T, test_loss=[4.633754539489746, 4.0]),
        run_record(ALONE, 0, T),
    ]
    tables, _, _ = tables_of(tmp_path, [OWN, DDP, ALONE], records)
    same = rows_of(tables["cells"], "train_run").set_index("cell")["has_same_losses"]
    assert not same[OWN["id"]]
    assert same[DDP["id"]]
    assert same.isna()[ALONE["id"]]


@pytest.mark.parametrize(("device", "num"), [("cpu", 1), ("cuda", 0)])
def test_other_losses_of_the_same_training_are_warned_of_on_a_cpu_alone(device, num):
    row = {"cell": OWN["id"], "benchmark": "train_run", "device": device, "has_same_losses": False}
    runs = make_table(
        [row, row | {"cell": DDP["id"], "has_same_losses": True}, row | {"has_same_losses": None}],
        columns_with([load_benchmark("train_run")]),
    )
    campaign, rows = (
        make_campaign([OWN, DDP], repeats=6),
        [cell_row(cell) | {"status": "failed"} for cell in (OWN, DDP)],
    )
    found = findings(report_data(campaign, make_table(rows, MEASUREMENTS), cells=runs))
    found = [finding for finding in found if finding.kind == "different_losses"]
    assert [(f.values, f.cells) for f in found] == [({"num": 1, "num_known": 2}, (OWN["id"],))] * num


BROKEN = [
    ({"train_loss": [4.5]}, "values.train_loss: expected 2 values, one per epoch; found 1"),
    ({"test_loss": None}, "values.test_loss: is not a list with a number for each epoch"),
    ({"test_loss": [4.5, "low"]}, "values.test_loss = 'low': is not a number"),
    ({"test_loss": [4.5, True]}, "values.test_loss = True: is not a number"),
    ({"test_loss": [4.5, [4.4]]}, "values.test_loss = [4.4]: is not a number"),
    ({"test_loss": [4.5, float("nan")]}, "values.test_loss = nan: is not a number"),
    ({"train_loss": [4.5, 10**400]}, "values.train_loss = inf: is not a number"),
    ({"accuracy": [0.1, 1.5]}, "values.accuracy = 1.5: is outside 0 to 1"),
    ({"accuracy": {"1": 0.1}}, "values: "),
    ({"accuracy_by_rank": [[0.1, 0.1]]}, "values.accuracy_by_rank: is not a list with a list for each of 2 epochs"),
    ({"accuracy_by_rank": [[0.1, 0.1], [0.1]]}, "values.accuracy_by_rank: expected 2 values, one per rank; found 1"),
    ({"accuracy_by_rank": [0.1, 0.2]}, "values.accuracy_by_rank: is not a list with a number for each rank"),
    ({"train_samples_per_epoch": 19.5}, "values.train_samples_per_epoch = 19.5: is not an integer of at least 0"),
    ({"train_samples_per_epoch": -1}, "values.train_samples_per_epoch = -1: is not an integer of at least 0"),
]


@pytest.mark.parametrize(("values", "words"), BROKEN, ids=[f"{i}" for i in range(len(BROKEN))])
def test_a_damaged_record_is_refused_with_its_reason(tmp_path, values, words):
    record = run_record(OWN, 0, T, **values)
    tables, collected, problems = tables_of(tmp_path, [OWN], [record], repeats=1)
    assert len(collected["epochs"]) == len(collected["ranks"]) == 0
    assert rows_of(tables["cells"], "train_run")["num_launches"].tolist() == [0]
    [problem] = problems["invalid"]
    assert words in problem["problem"] or words == "values: "
    assert collected["measurements"]["status"].tolist() == ["not_measured"]
    assert problem_of(json.loads(json.dumps(record))) is not None  # and it is measured again


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("samples_ns", [[1, 2, 3], [1, 2, 3]], "has 3 timed epochs; the cell has 2"),
        ("parts_ns", {"train": [[1], [1]]}, "parts_ns.train: has 1 epochs; the cell has 2"),
        ("parts_ns", [1], "parts_ns is not a mapping of names"),
        ("memory", {"peak_rss_bytes": [1]}, "memory.peak_rss_bytes: has 1 ranks; the shape has 2"),
        ("values", None, "values.train_loss: is not a list with a number for each epoch"),
    ],
)
def test_lists_that_do_not_fit_the_cell_are_refused(field, value, words):
    assert problem_of(run_record(OWN, 0, T) | {field: value}) == words


def test_unknown_stays_unknown(tmp_path):
    record = run_record(OWN, 0, T, train_loss=[None, None], train_samples_per_epoch=None)
    record |= {"samples_ns": None, "slowest_rank_samples_ns": [10**9, 10**9], "parts_ns": None, "memory": None}
    tables, collected, _ = tables_of(tmp_path, [OWN], [record])
    row = rows_of(tables["cells"], "train_run").iloc[0]
    assert row["total_s"] == 2.0
    assert row[["train_loss", "epoch_train_s", "training_run_throughput_samples_per_s", "peak_rss_bytes"]].isna().all()
    assert collected["ranks"][["total_s", "peak_allocated_bytes"]].isna().all(axis=None)
    assert [figure.id for figure in section(analyse(tmp_path)).figures] == ["accuracy-1", "test-loss-1", "epoch-time-1"]


def test_another_benchmark_and_a_failed_training_have_no_rows():
    record = run_record(OWN, 0, T)
    assert training_of(record, OWN["spec"] | {"benchmark": "train_step"})["epochs"] == []
    assert training_of(record | {"status": "failed", "values": None}, OWN["spec"])["ranks"] == []


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_a_malformed_list_becomes_a_list_of_numbers_or_is_refused(value):
    for name in ("train_loss", "accuracy", "accuracy_by_rank", "train_samples_per_epoch"):
        try:
            found = training_of(run_record(OWN, 0, T, **{name: value}), OWN["spec"])
        except ValueError:
            continue
        assert {name: len(rows) for name, rows in found.items()} == {"epochs": 2, "ranks": 2}


@given(st.integers(-(2**1000), 2**1000) | st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_itself(value):
    assert number(value, "x") == float(value)


def test_the_finding_lists_the_runs_that_may_be_as_fast_and_names_no_slowest(tmp_path):
    """Totals in seconds: ddp 3.00, custom 3.01, which is within noise of it; one rank 3.6. Another number of epochs: no rank."""
    other = run_cell("ddp", epochs=3)
    factors = {OWN["id"]: 1.004, DDP["id"]: 1.0, ALONE["id"]: 1.2, other["id"]: 1.0}
    records = [run_record(cell, repeat, T) for cell in (OWN, DDP, ALONE, other) for repeat in range(3)]
    for record in records:
        factor = factors[record["cell"]] * (1 + 0.01 * (record["repeat"] == (record["cell"] == OWN["id"])))
        record["samples_ns"] = [[int(factor * ns) for ns in rank] for rank in record["samples_ns"]]
    cells = [OWN, DDP, ALONE, other]
    write_store(tmp_path, cells, records)
    data = analyse(tmp_path)
    _, first, second = findings(data)
    assert first.cells == (DDP["id"],)
    assert (first.values["num_candidates"], len(first.values["near"])) == (3, 1)
    assert "custom all-reduce" in first.values["near"][0]
    assert (first.values["compared"], first.values["fastest"], len(first.values["near"])) == (3, "ddp", 1)
    assert second.values["num_candidates"] == 1
    assert second.values["compared"] is None
    line = lines_of(data)["training_runs"]
    assert line.values["total_s"] == first.values["total"].estimate
    assert TOPIC.kinds[0].name in line.id
