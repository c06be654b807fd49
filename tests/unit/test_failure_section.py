"""Failures grouped by cause: what counts as one cause, and which part of its log is shown."""

from pathlib import Path

import pytest
from synthetic import make_campaign, report_data
from synthetic_failures import CAUSES

from regatta.core.text import PHASE_WORDS
from regatta.kit.columns import TEXT
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.tables.times import TIMELINE
from regatta.topics.failures import (
    FAILURES,
    PLACE,
    STATUSES,
    TOPIC,
    failure_groups,
    failures_table,
    findings,
    skipped_groups,
)

OOM = "RuntimeError: you tried to allocate {} bytes"


def failures(*rows, **columns):
    """Return rows of failures.csv with their place. columns: a value for each row."""
    names = ("cell", "repeat", "status", "phase", "cause", "log")
    found = [dict(zip(names, row, strict=True)) for row in rows]
    for name, values in columns.items():
        found = [row | {name: value} for row, value in zip(found, values, strict=True)]
    more = {name: MEASUREMENTS[name] for name in PLACE} | dict.fromkeys(("subject", "hosts"), TEXT)
    return make_table(found, FAILURES | more)


def test_causes_that_differ_in_their_numbers_are_one():
    table = failures(
        ("a-8", 0, "out_of_memory", "setup", OOM.format(8), None),
        ("a-16", 0, "out_of_memory", "setup", OOM.format(16), None),
        ("a-16", 1, "out_of_memory", "setup", OOM.format(16), None),
        ("b", 0, "out_of_memory", "warmup", OOM.format(16), None),
    )
    groups = failure_groups(table)
    assert [(g["phase"], g["cause"], g["num_messages"], len(g["items"])) for g in groups] == [
        ("setup", OOM.format(16), 2, 3),
        ("warmup", OOM.format(16), 1, 1),
    ]


@pytest.mark.parametrize(
    ("causes", "cause", "num_messages", "hosts", "where"),
    [
        (
            ("rank 3 on host n1: Connection reset", "rank 5 on host n2: Connection reset"),
            *("Connection reset", 1, [("n1", 1), ("n2", 1)], ["rank 3 on host n1", "rank 5 on host n2"]),
        ),
        (
            [f"rank {rank} on n5 was killed by SIGSEGV" for rank in (17, 3, 4)],
            *("rank 17 on n5 was killed by SIGSEGV", 3, [("n5", 3)], [None] * 3),
        ),
        (
            [f"rank 3 on {host} was killed by SIGSEGV" for host in ("n10", "n7", "n10")],
            *("rank 3 on n10 was killed by SIGSEGV", 1, [("n7", 1), ("n10", 2)], [None] * 3),
        ),
        (
            [f"Slurm ended the job: a node failed ({host})" for host in ("n6", "gpu-a")],
            *("Slurm ended the job: a node failed (gpu-a)", 1, [("gpu-a", 1), ("n6", 1)], [None] * 2),
        ),
    ],
)
def test_ranks_hosts_and_numbers_make_no_other_cause(causes, cause, num_messages, hosts, where):
    rows = [("a", repeat, "failed", "measure", text, None) for repeat, text in enumerate(causes)]
    [group] = failure_groups(failures(*rows))
    assert (group["cause"], group["num_messages"], group["hosts"]) == (cause, num_messages, hosts)
    assert [item["where"] for item in group["items"]] == where


def test_a_group_has_its_shapes_stacks_and_the_hosts_of_its_launches_if_no_cause_names_one():
    rows = [(cell, repeat, "timeout", None, "late", None) for cell, repeat in (("a", 0), ("a", 1), ("b", 0))]
    places = {"nodes": (16, 2, 2), "gpus_per_node": (4, 4, 4), "stack": ("bound", "host", "host")}
    [group] = failure_groups(failures(*rows, **places, hosts=("n10, n2", "n2", None)))
    assert (group["shapes"], group["stacks"]) == (["2×4", "16×4"], ["bound", "host"])
    assert (group["hosts"], group["launch_hosts"]) == ([], ["n2", "n10"])
    [named] = failure_groups(failures(("a", 0, "failed", None, "rank 1 on n7: no", None), hosts=["n2, n7"]))
    assert named["hosts"] == [("n7", 1)]


def test_a_command_is_listed_once_for_each_cell():
    rows = [(cell, repeat, "failed", None, "x", None) for cell in ("a", "b") for repeat in (0, 2)]
    [group] = failure_groups(failures(*rows, command=("run a", "run a", "run b", "run b")))
    found = {cell: [(run["command"], run["repeat"]) for run in runs] for (cell,), runs in group["cells"].items()}
    assert found == {cell: [(f"run {cell}", 0), (f"run {cell}", 2)] for cell in ("a", "b")}


def test_a_planned_repeat_that_was_not_started_is_a_measurement_and_no_skipped_cell():
    cause = "not started: the first 3 cells of stack bound failed with the same error: rank 0 on n1: NCCL error"
    table = failures(("a", 1, "skipped", None, cause, None), ("b", 0, "failed", None, "x", None), ("c", None, "skipped", None, "r", None))  # fmt: skip
    assert [(g["status"], g["cause"], len(g["items"])) for g in failure_groups(table)] == [
        ("failed", "x", 1), ("not_started", cause, 1),
    ]  # fmt: skip
    assert skipped_groups(table) == [("r", ["c"])]


def test_the_last_lines_of_the_first_log_that_is_there_are_shown(tmp_path):
    (tmp_path / "logs").mkdir()
    text = "".join(f"line {i}\n" for i in range(5000)) + "Traceback\x1b[0m\n\nRuntimeError: \xff\n"
    (tmp_path / "logs" / "b.log").write_bytes(text.encode("latin-1"))
    table = failures(("a", 0, "failed", None, "x", "logs/gone.log"), ("a", 1, "failed", None, "x", "logs/b.log"))
    [group] = failure_groups(table, tmp_path)
    log, lines = group["excerpt"]
    assert log == "logs/b.log"
    assert lines[0] == "line 4972"
    assert lines[-2:] == ["Traceback\N{REPLACEMENT CHARACTER}[0m", "RuntimeError: \N{REPLACEMENT CHARACTER}"]
    assert failure_groups(table)[0]["excerpt"] is None


def test_the_excerpt_is_the_traceback_of_the_cause_not_the_end_of_the_log(tmp_path):
    golden = Path(__file__).resolve().parents[1] / "golden" / "start_ranks_raised.log"
    (tmp_path / "a.log").write_bytes(golden.read_bytes())
    cause = "rank 1 on n1: RuntimeError: bucket 3 of 7 is empty"
    [group] = failure_groups(failures(("a", 0, "failed", "setup", cause, "a.log")), tmp_path)
    assert cause.endswith(group["excerpt"][1][-1].removeprefix("[rank1]: "))


def test_skipped_cells_are_grouped_by_their_reason():
    rows = [("c-10", None, "skipped", None, "r", None), ("c-2", None, "skipped", None, "r", None)]
    assert skipped_groups(failures(*rows)) == [("r", ["c-2", "c-10"])]
    assert failure_groups(failures(*rows)) == []


def test_the_frozen_page_of_failures_has_every_status_and_phase():
    """tests/golden/pages/failures.txt and tables/failures have their causes, places, counts and logs."""
    assert {status for status, _, _ in CAUSES} == set(STATUSES) - {"ok", "not_started", "not_measured"}
    assert {phase for _, phase, _ in CAUSES} == {None, *PHASE_WORDS}


def test_jobs_without_an_id_and_avoided_nodes_are_findings():
    job = {"batch": "b", "job": None, "kind": "no_start", "hosts": [], "cause": "no srun"}
    problems = {"interrupted": [job], "blamed_nodes": [{"host": "n6", "text": "n6: 2 failures"}]}
    data = report_data(make_campaign([]), make_table([], MEASUREMENTS), problems=problems)
    found = {finding.kind: finding for finding in findings(data)}
    assert found["interrupted"].values == job
    assert found["avoided_node"].values["host"] == "n6"
    assert all(TOPIC.stated(finding).text for finding in found.values())


def timed_launch(name, duration_s, num_ok, num_failed):
    counts = {"num_ok": num_ok, "num_failed": num_failed}
    return {"launch": name, "nodes": 2, "gpus_per_node": 4, "duration_s": duration_s} | counts


def timed_record(launch, status, elapsed_s):
    return {"cell": "c", "repeat": 0, "launch": launch, "status": status, "elapsed_s": elapsed_s, "world_size": 8}


def test_the_time_lost_is_that_of_launches_without_a_record_and_of_failed_records_of_others():
    launches = [timed_launch("a", 900.0, 0, 3), timed_launch("b", 450.0, 0, 0), timed_launch("c", 60.0, 2, 2)]
    launches.append(timed_launch("d", None, 0, 1))
    records = [timed_record("a", "failed", 100.0), timed_record("c", "ok", 20.0), timed_record("c", "timeout", 45.0)]
    records += [timed_record("c", "failed", None), timed_record(None, "not_measured", None)]
    measurements = make_table(records, MEASUREMENTS)
    tables = {"timeline": make_table(launches, TIMELINE), "failures": failures_table(measurements)}
    data = report_data(make_campaign([], device="cuda"), measurements, **tables)
    # (900 + 450) s x 8 GPUs = 3 GPU hours, one launch unknown; 45 s x 8 GPUs = 0.1 GPU hours, one record unknown.
    [line] = [finding.values for finding in findings(data) if finding.kind == "failed"]
    assert (line["lost_hours"], line["num_lost_unknown"]) == (pytest.approx(3.1), 2)


def test_time_lost_of_unknown_length_is_not_zero():
    timeline = make_table([timed_launch("d", None, 0, 1)], TIMELINE)
    data = report_data(make_campaign([], device="cuda"), make_table([], MEASUREMENTS), timeline=timeline)
    [line] = [finding.values for finding in findings(data)]
    assert (line["lost_hours"], line["num_lost_unknown"]) == (None, 1)
    [line] = [finding.values for finding in findings(report_data(make_campaign([]), make_table([], MEASUREMENTS)))]
    assert (line["lost_hours"], line["num_lost_unknown"]) == (None, 0)
