import copy
import csv
import io
import json
import os
import random

import jsonschema
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import (
    LAPTOP,
    collective_cell,
    make_campaign,
    make_failure,
    make_header,
    make_record,
    train_cell,
    write_laptop,
    write_results,
)
from typed import collect as collect_all

from regatta.core.schemas import load_schema
from regatta.core.text import one_line
from regatta.kit.columns import TEXT, WHOLE
from regatta.store.csv_files import MEASUREMENTS, make_table, read_csv, to_csv, write_csv
from regatta.store.records import ARRAYS, measured, violation

T0, T1 = "2026-11-21T03:00:00Z", "2026-11-21T04:00:00Z"
CELL = train_cell("resnet18", 1, 2)
OTHER = collective_cell(4096, 1, 2)
CAMPAIGN = make_campaign([CELL, OTHER], repeats=2)


def collect(campaign, launches):
    """Return measurements.csv and problems.json; no cell here is a training, of which there is more."""
    collected, problems = collect_all(campaign, launches)
    assert len(collected["epochs"]) == len(collected["ranks"]) == 0
    return collected["measurements"], problems


def record(cell=CELL, repeat=0, **changes):
    return make_record(cell, repeat, 0.1, 0.01, random.Random(1), T0) | changes


def write_launch(folder, lines, name="n01g02-0123456789ab-l000-a00", repeat=0, time_utc=T0):
    (folder / "launches").mkdir(exist_ok=True)
    header = make_header(CAMPAIGN, name, repeat, [CELL, OTHER], time_utc)
    text = "".join(json.dumps(line) + "\n" for line in [header, *lines])
    (folder / "launches" / f"{name}.jsonl").write_text(text)


def row_of(folder, cell=CELL, repeat=0, campaign=CAMPAIGN):
    table, problems = collect(campaign, folder / "launches")
    rows = table[(table["cell"] == cell["id"]) & (table["repeat"] == repeat)]
    assert len(rows) == 1
    return rows.iloc[0], problems


def test_every_planned_cell_and_repeat_is_a_row_and_so_is_what_was_skipped(tmp_path):
    skipped = train_cell("resnet18", 1, 2, "none") | {"reason": "one rank only"}
    table, _ = collect(make_campaign([CELL, OTHER], [skipped], repeats=2), tmp_path / "nothing")
    assert len(table) == 5
    assert table["status"].value_counts().to_dict() == {"not_measured": 4, "skipped": 1}
    last = table[table["status"] == "skipped"].iloc[0]
    assert (last["cause"], last.isna()["repeat"]) == ("one rank only", True)


def test_times_are_those_of_the_slowest_rank_in_each_iteration(tmp_path):
    samples = [[10_000_000, 40_000_000, 20_000_000], [30_000_000, 20_000_000, 20_000_000]]
    windows = {"steps_per_window": 4, "elapsed_ns": [[80_000_000, 120_000_000], [100_000_000, 100_000_000]]}
    write_launch(tmp_path, [record(samples_ns=samples, windows=windows)])
    row, _ = row_of(tmp_path)
    assert (row["min_s"], row["p50_s"], row["max_s"]) == pytest.approx((0.02, 0.03, 0.04))
    assert row["window_step_s"] == pytest.approx((0.1 + 0.12) / 8)
    assert row.isna()[["p50_low_s", "p75_s", "p90_s", "p99_s"]].all()
    assert (row["line"], row["position"]) == (2, 1)


def test_many_samples_are_read_from_their_maximum_over_ranks(tmp_path):
    slowest = list(range(1, 1001))
    quantiles = {"probabilities": [0, 0.5, 1], "ranks": [[1, 2, 3], [1, 2, 3]]}
    write_launch(tmp_path, [record(samples_ns=None, slowest_rank_samples_ns=slowest, rank_quantiles_ns=quantiles)])
    row, _ = row_of(tmp_path)
    assert row["p50_s"] == pytest.approx(500.5e-9)
    assert row["p99_s"] == pytest.approx(np.quantile(slowest, 0.99) * 1e-9)


def test_a_failed_record_has_its_cause_and_no_times(tmp_path, wording):
    failed = make_failure(CELL, 0, "timeout", "measure", "no record after 60 s", T0)
    write_launch(tmp_path, [failed])
    row, problems = row_of(tmp_path)
    wording((row["status"], row["phase"], row["cause"]))
    assert row.isna()[["p50_s", "window_step_s", "num_iterations"]].all()
    assert not any(problems[name] for name in ("invalid", "superseded", "corrupt"))


def test_a_wrong_result_keeps_its_samples_in_the_store_and_gives_no_time(tmp_path):
    write_launch(
        tmp_path, [record(status="failed", phase="check", cause="sum is wrong", checks={"sum_is_right": False})]
    )
    row, _ = row_of(tmp_path)
    assert (row["status"], row.isna()["p50_s"], row["num_iterations"]) == ("failed", True, 12)


def test_the_later_launch_wins_regardless_of_its_name(tmp_path):
    write_launch(tmp_path, [make_failure(CELL, 0, "failed", "init", "old", T0)], "n01g02-0123456789ab-l009-a00", 0, T0)
    write_launch(tmp_path, [record()], "n01g02-0123456789ab-l000-a01", 0, T1)
    row, problems = row_of(tmp_path)
    assert row["status"] == "ok"
    (old,) = problems["superseded"]
    assert (old["launch"], old["status"]) == ("n01g02-0123456789ab-l009-a00", "failed")
    assert old["by"] == "n01g02-0123456789ab-l000-a01:2"


def test_within_a_launch_the_later_line_wins(tmp_path):
    write_launch(tmp_path, [record(), make_failure(CELL, 0, "failed", "measure", "later", T0)])
    row, problems = row_of(tmp_path)
    assert (row["status"], row["line"]) == ("failed", 3)
    assert [place["line"] for place in problems["superseded"]] == [2]


def test_a_start_without_a_record_is_not_measured_and_says_so(tmp_path, wording):
    write_launch(tmp_path, [{"kind": "start", "cell": CELL["id"], "time_utc": T0}])
    row, _ = row_of(tmp_path)
    assert row["status"] == "not_measured"
    wording(row["cause"])


def test_records_that_the_campaign_does_not_plan_are_counted(tmp_path):
    stranger = train_cell("resnet50", 1, 2)
    write_launch(tmp_path, [record(stranger), record(stranger), record()])
    _, problems = row_of(tmp_path)
    assert problems["not_planned"] == [{"cell": stranger["id"], "num_records": 2}]


def test_repeats_beyond_the_campaign_are_told(tmp_path):
    write_launch(tmp_path, [record(repeat=2)], repeat=2)
    table, problems = collect(CAMPAIGN, tmp_path / "launches")
    assert set(table["status"]) == {"not_measured"}
    assert [place["repeat"] for place in problems["beyond_repeats"]] == [2]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"samples_ns": [[1, 2], [1]]}, "different numbers of values"),
        ({"samples_ns": [[1, 2]]}, "has 1 ranks; the shape has 2"),
        ({"samples_ns": [[], []]}, "not a list of values for each rank"),
        ({"samples_ns": [[1, -2], [1, 2]]}, "not a positive integer (nanoseconds)"),
        ({"samples_ns": [[1, 0], [1, 2]]}, "not a positive integer (nanoseconds)"),
        ({"samples_ns": [[1.5, 2], [1, 2]]}, "not a positive integer (nanoseconds)"),
        ({"samples_ns": [[None, 2], [1, 2]]}, "not a positive integer (nanoseconds)"),
        ({"samples_ns": "many"}, "not a list of values for each rank"),
        ({"samples_ns": None}, "neither samples_ns nor slowest_rank_samples_ns"),
        ({"windows": {"steps_per_window": 0, "elapsed_ns": [[1], [1]]}}, "not a positive integer"),
        ({"windows": {"elapsed_ns": [[1], [1]]}}, "lacks steps_per_window"),
        ({"windows": 7}, "lacks steps_per_window"),
        ({"status": "fine"}, "status = 'fine' is unknown."),
        ({"elapsed_ns": "long"}, "elapsed_ns = 'long' is not an integer or null"),
        ({"surprise": 1}, "unknown key 'surprise'"),
        ({"elapsed_ns": 10**30}, "is out of range: it must be at most"),
        ({"sampling": {"num_iterations": 3}}, "sampling lacks elapsed_ns"),
    ],
)
def test_a_record_that_breaks_the_contract_is_left_out_and_says_why(tmp_path, changes, says):
    write_launch(tmp_path, [record(**changes)])
    row, problems = row_of(tmp_path)
    assert row["status"] == "not_measured"
    assert says in row["cause"]
    (error,) = problems["invalid"]
    assert says in error["problem"]
    assert (error["line"], error["cell"]) == (2, CELL["id"])


def test_an_invalid_record_does_not_hide_an_earlier_valid_one(tmp_path):
    write_launch(tmp_path, [record(), record(samples_ns=[])])
    row, problems = row_of(tmp_path)
    assert (row["status"], row["line"]) == ("ok", 2)
    assert len(problems["invalid"]) == 1


def test_a_file_of_rubbish_is_a_problem_and_no_crash(tmp_path):
    (tmp_path / "launches").mkdir()
    (tmp_path / "launches" / "a.jsonl").write_bytes(b'\xff\xfe\n[1, 2]\n{"kind": 7}\n{"kind": "record"}\n\n')
    (tmp_path / "launches" / "b.jsonl").write_bytes(b"")
    header = {"kind": "launch", "repeat": "one"}
    (tmp_path / "launches" / "c.jsonl").write_text(json.dumps(header) + "\n" + json.dumps(record()) + "\n")
    table, problems = collect(CAMPAIGN, tmp_path / "launches")
    assert set(table["status"]) == {"not_measured"}
    assert {problem.partition(":")[0] for problem in problems["corrupt"]} >= {"a.jsonl"}
    assert len(problems["corrupt"]) + len(problems["invalid"]) >= 5


def test_an_unknown_key_of_the_environment_is_told_and_costs_no_record(tmp_path):
    write_launch(tmp_path, [record()])
    path = next((tmp_path / "launches").iterdir())
    path.write_text(path.read_text().replace('"python":', '"weather": "fine", "python":', 1))
    row, problems = row_of(tmp_path)
    assert row["status"] == "ok"
    assert len(problems["invalid"]) == 1


def test_the_table_survives_its_file(tmp_path):
    write_laptop(tmp_path / "laptop")
    campaign = json.loads(next((tmp_path / "laptop").glob("campaign.*.json")).read_text())
    campaign["cells"][0]["command"] = 'a "quoted", NA\nthing'
    table, _ = collect(campaign, tmp_path / "laptop" / "launches")
    write_csv(table, tmp_path / "m.csv")
    again = read_csv(tmp_path / "m.csv", MEASUREMENTS)
    assert to_csv(again) == to_csv(table)
    assert list(again.dtypes.astype(str)) == list(table.dtypes.astype(str))
    assert "25.0" not in set(to_csv(again).split(","))


def test_a_record_whose_spec_contradicts_its_cell_is_excluded_and_named(tmp_path, wording):
    line = record()
    line["spec"] = line["spec"] | {"nodes": 7}
    write_launch(tmp_path, [line])
    row, problems = row_of(tmp_path)
    assert row["status"] == "not_measured"
    [problem] = problems["invalid"]
    wording(problem["problem"])
    assert problem["cell"] == CELL["id"]


FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "-", "-a", '=HYPERLINK("x", "y")', "'=1", "''", "-1-1"]
NO_FORMULAS = ["a=1", "1-1", "-1", "-1.5e-05", "-.5", "all_reduce", "NA", " =1"]


@pytest.mark.parametrize("text", FORMULAS + NO_FORMULAS)
def test_a_text_like_a_formula_has_an_apostrophe_in_the_file_and_reads_back_unchanged(tmp_path, text):
    columns = {"text": "string", "real": "Float64"}
    write_csv(make_table([{"text": text, "real": -0.5}, {"text": None, "real": None}], columns), tmp_path / "t.csv")
    rows = list(csv.reader(io.StringIO((tmp_path / "t.csv").read_bytes().decode(), newline="")))
    assert rows[1] == [f"'{text}" if text in FORMULAS else text, "-0.5"]
    assert read_csv(tmp_path / "t.csv", columns)["text"].tolist() == [text, pd.NA]
    assert read_csv(tmp_path / "t.csv", columns)["real"].tolist() == [-0.5, pd.NA]
    assert read_csv(tmp_path / "t.csv", columns).dtypes.astype(str).to_dict() == columns


def test_the_word_na_stays_a_word(tmp_path):
    write_launch(tmp_path, [make_failure(CELL, 0, "failed", "init", "NA", T0)])
    row, _ = row_of(tmp_path)
    table, _ = collect(CAMPAIGN, tmp_path / "launches")
    write_csv(table, tmp_path / "m.csv")
    assert row["cause"] == "NA"
    assert "NA" in set(read_csv(tmp_path / "m.csv", MEASUREMENTS)["cause"].dropna())


def test_the_order_of_files_and_keys_does_not_change_a_byte(tmp_path):
    campaign = make_campaign([CELL, OTHER], repeats=2)
    write_results(tmp_path / "a", campaign, LAPTOP)
    tables = [
        to_csv(collect(c, tmp_path / "a" / "launches")[0]) for c in (campaign, campaign | {"cells": [OTHER, CELL]})
    ]
    assert tables[0] == tables[1]


def test_a_cause_is_one_line_that_can_be_written():
    unknown = "\N{REPLACEMENT CHARACTER}"
    assert one_line("a\n\tb \x00\x1b[31m \ud800") == f"a b {unknown}{unknown}[31m {unknown}"
    assert len(one_line("x" * 5000)) == 1000


def test_an_unknown_kind_is_told():
    assert violation({"kind": "weather"}) == "unknown kind 'weather'"


JUNK = [None, True, -1, 2**63, 1.5, "", "ok", [], [None, "a"], {}, {"a": None}]


@given(st.sampled_from(JUNK), st.data())
def test_what_the_compiled_schema_accepts_is_what_jsonschema_accepts(junk, data):
    lines = [
        make_header(CAMPAIGN, "b-l000-a00", 0, [CELL], T0),
        record(),
        {"kind": "stopped", "signal": "x", "time_utc": T0},
    ]
    line = copy.deepcopy(data.draw(st.sampled_from(lines)))
    part = line
    while data.draw(st.booleans()) and any(isinstance(value, dict) for value in part.values()):
        part = part[data.draw(st.sampled_from([key for key, value in part.items() if isinstance(value, dict)]))]
    key = data.draw(st.sampled_from([*(key for key in part if key != "kind"), "surprise"]))
    part[key] = junk
    known = {name: value for name, value in line.items() if name not in ARRAYS}
    schema = load_schema("record")["$defs"][line["kind"]]
    assert (violation(line) is None) == jsonschema.Draft202012Validator(schema).is_valid(known)


def test_memory_is_that_of_the_largest_rank():
    memory = {
        "parameter_bytes": 5,
        "gradient_bytes": None,
        "peak_rss_bytes": [1, 3],
        "peak_allocated_bytes": [None, None],
    }
    row, _ = measured(record(memory=memory), CELL["spec"], None)
    assert (row["peak_rss_bytes"], row["peak_allocated_bytes"], row["parameter_bytes"]) == (3, None, 5)


def write_batch(folder, name="n01g02-0123456789ab", stack="host", jobs=(), manifest=None):
    batch = folder / "batches" / name
    batch.mkdir(parents=True)
    launches = [{"repeat": r, "stack": stack, "cells": [CELL["id"], OTHER["id"]]} for r in (0, 1)]
    (batch / "batch.json").write_text(json.dumps({"launches": launches}))
    (batch / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs) + '{"torn')
    if manifest is not None:
        (batch / "manifest.json").write_text(json.dumps(manifest))


def test_cells_that_a_stopped_job_did_not_come_to_name_its_end(tmp_path, wording):
    write_launch(tmp_path, [record()])
    write_batch(tmp_path, jobs=[{"kind": "stopped", "job": "7", "hosts": [], "cause": "SIGTERM: TIMEOUT"}])
    row, _ = row_of(tmp_path, repeat=1)
    wording((row["status"], row["cause"]))
    assert row_of(tmp_path, repeat=0)[0]["status"] == "ok"


def test_a_batch_that_was_finished_later_has_no_unfinished_business(tmp_path, wording):
    stop = {"kind": "stopped", "job": "7", "hosts": [], "cause": "SIGTERM: TIMEOUT"}
    write_batch(tmp_path, jobs=[stop], manifest={"launches": []})
    wording(row_of(tmp_path)[0]["cause"])


def test_jobs_that_ended_before_their_batch_are_told_also_when_it_was_finished_later(tmp_path, wording):
    stop = {"kind": "stopped", "job": "7", "hosts": [], "cause": "SIGTERM: PREEMPTED"}
    no_start = {"kind": "no_start", "job": None, "hosts": ["n2"], "cause": "rank 2 on n2:\nExited"}
    write_batch(tmp_path, jobs=[stop, no_start], manifest={"launches": []})
    write_batch(tmp_path, name="n01g02-000000000000", jobs=[stop])
    interrupted = row_of(tmp_path)[1]["interrupted"]
    assert [entry["batch"][-4:] for entry in interrupted] == ["0000", "89ab", "89ab"]
    wording(interrupted)
    other = make_campaign([train_cell("resnet18", 1, 4)], repeats=2)
    assert collect(other, tmp_path / "launches")[1]["interrupted"] == []


def test_a_job_that_began_and_said_no_more_is_told(tmp_path, wording):
    write_batch(tmp_path, jobs=[{"kind": "started", "job": "7", "hosts": [], "cause": ""}])
    row, problems = row_of(tmp_path)
    wording(row["cause"])
    assert [(job["job"], job["kind"]) for job in problems["interrupted"]] == [("7", "stopped")]


def test_cells_of_a_stack_that_the_preflight_failed_say_so(tmp_path, wording):
    write_batch(
        tmp_path, manifest={"launches": [], "held": {"host": "stack host failed the preflight: NCCL uses Socket"}}
    )
    row, _ = row_of(tmp_path)
    wording((row["status"], row["cause"]))
    write_launch(tmp_path, [record()])  # a later run, after the mount was mended
    assert row_of(tmp_path)[0]["status"] == "ok"


def test_which_stop_is_told_goes_by_recorded_times_and_not_by_those_of_files(tmp_path, wording):
    stop = {"kind": "stopped", "job": "7", "hosts": [], "cause": "time limit", "time_utc": "2026-11-21T03:00:00Z"}
    write_batch(tmp_path, jobs=[stop | {"cause": "later", "time_utc": "2026-11-21T04:00:00Z"}])
    write_batch(tmp_path, name="n01g02-ffffffffffff", jobs=[stop])
    for name, seconds in (("n01g02-0123456789ab", 1), ("n01g02-ffffffffffff", 2)):
        os.utime(tmp_path / "batches" / name / "batch.json", (seconds, seconds))
    wording(row_of(tmp_path)[0]["cause"])


def test_hosts_are_unknown_if_no_rank_started(tmp_path):
    write_launch(tmp_path, [make_failure(CELL, 0, "failed", "launch", "the launch exited", T0)])
    path = tmp_path / "launches" / "n01g02-0123456789ab-l000-a00.jsonl"
    header, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(json.loads(header) | {"environment": None}), *rest]) + "\n")
    assert pd.isna(row_of(tmp_path)[0]["hosts"])


def test_text_is_stored_alike_with_and_without_pyarrow():
    """A column without rows raised an error where pyarrow is installed (pandas then keeps text in its arrays)."""
    assert pd.get_option("mode.string_storage") == "python"
    assert list(make_table([], {"stack": TEXT, "repeat": WHOLE})["stack"]) == []
