"""Failures grouped by cause: what counts as one cause, and which part of its log is shown."""

import html
import re
from pathlib import Path

import pytest
from synthetic import make_campaign, make_report, report_data
from synthetic_failures import CAUSES, LOG, write_failing

from regatta.core.text import PHASE_WORDS, status_text
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.topics.failures import (
    FAILURES,
    PLACE,
    STATUSES,
    failure_groups,
    failures_table,
    findings,
    skipped_groups,
)
from regatta.topics.timeline import TIMELINE

OOM = "RuntimeError: you tried to allocate {} bytes"


def failures(*rows, **columns):
    """Return rows of failures.csv with their place. columns: a value for each row."""
    names = ("cell", "repeat", "status", "phase", "cause", "log")
    found = [dict(zip(names, row, strict=True)) for row in rows]
    for name, values in columns.items():
        found = [row | {name: value} for row, value in zip(found, values, strict=True)]
    return make_table(found, FAILURES | {name: MEASUREMENTS[name] for name in PLACE})


def test_causes_that_differ_in_their_numbers_are_one():
    table = failures(
        ("a-8", 0, "out_of_memory", "setup", OOM.format(8), None),
        ("a-16", 0, "out_of_memory", "setup", OOM.format(16), None),
        ("a-16", 1, "out_of_memory", "setup", OOM.format(16), None),
        ("b", 0, "out_of_memory", "warmup", OOM.format(16), None),
    )
    groups = failure_groups(table)
    assert [(g["phase"], g["cause"], g["messages"], len(g["items"])) for g in groups] == [
        ("setup", OOM.format(16), "2 messages, identical except for numbers (most frequent shown)", 3),
        ("warmup", OOM.format(16), "", 1),
    ]  # fmt: skip


def test_the_reporting_rank_is_separated_from_the_cause():
    table = failures(
        ("a", 0, "failed", "measure", "rank 3 on host n1: Connection reset", None),
        ("a", 1, "failed", "measure", "rank 5 on host n2: Connection reset", None),
    )
    [group] = failure_groups(table)
    assert (group["cause"], group["hosts"]) == ("Connection reset", [("n1", 1), ("n2", 1)])
    assert [item["where"] for item in group["items"]] == ["rank 3 on host n1", "rank 5 on host n2"]


def killed(*ends):
    """Return the one group of measurements that ranks on hosts ended."""
    table = failures(*(
        ("a", i, "failed", "measure", f"rank {rank} on {host} was killed by SIGSEGV", None) for i, (rank, host) in enumerate(ends)
    ))  # fmt: skip
    [group] = failure_groups(table)
    return group


def test_wordings_that_are_equally_common_have_no_most_frequent_one_and_share_their_host():
    group = killed((17, "n5"), (3, "n5"), (4, "n5"))
    assert (group["messages"], group["hosts"]) == ("3 messages, identical except for numbers (one shown)", [("n5", 3)])
    assert killed((17, "n5"))["messages"] == ""


def test_a_host_is_no_number_and_two_of_them_are_one_group_that_lists_both():
    group = killed((3, "n10"), (3, "n7"), (3, "n10"))
    assert group["hosts"] == [("n7", 1), ("n10", 2)]
    assert group["cause"] == "rank 3 on n10 was killed by SIGSEGV"
    table = failures(
        ("a", 0, "node_failure", None, "Slurm ended the job: a node failed (n6)", None),
        ("a", 1, "node_failure", None, "Slurm ended the job: a node failed (gpu-a)", None),
    )
    [group] = failure_groups(table)
    assert group["hosts"] == [("gpu-a", 1), ("n6", 1)]


def test_a_group_has_its_shapes_stacks_and_the_hosts_of_its_launches_if_no_cause_names_one():
    rows = [
        ("a", 0, "timeout", None, "late", None),
        ("a", 1, "timeout", None, "late", None),
        ("b", 0, "timeout", None, "late", None),
    ]
    places = {"nodes": (16, 2, 2), "gpus_per_node": (4, 4, 4), "stack": ("bound", "host", "host")}
    table = failures(*rows, **places, launch=("l1", "l2", None))
    [group] = failure_groups(table, hosts={"l1": ["n10", "n2"], "l2": ["n2"], "l3": ["n3"]})
    assert (group["shapes"], group["stacks"]) == (["2×4", "16×4"], ["bound", "host"])
    assert (group["hosts"], group["launch_hosts"]) == ([], ["n2", "n10"])
    [named] = failure_groups(
        failures(("a", 0, "failed", None, "rank 1 on n7: no", None), launch=["l1"]), None, {"l1": ["n2"]}
    )
    assert (named["hosts"], named["launch_hosts"], named["strangers"]) == ([("n7", 1)], [], ["n7"])
    cause = ("a", 0, "failed", None, "rank 1 on n7: no", None)
    [named] = failure_groups(failures(cause, launch=["l1"]), None, {"l1": ["n2.site.org", "n7.site.org"]})
    assert named["strangers"] == []


def test_a_command_is_listed_once_for_each_cell():
    rows = [(cell, repeat, "failed", None, "x", None) for cell in ("a", "b") for repeat in (0, 2)]
    [group] = failure_groups(failures(*rows, command=("run a", "run a", "run b", "run b")))
    assert [(cell["cell"], cell["command"], [run["repeat"] for run in cell["runs"]]) for cell in group["cells"]] == [
        ("a", "run a", [0, 2]),
        ("b", "run b", [0, 2]),
    ]


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
    assert group["excerpt"][1][-1] == "[rank1]: RuntimeError: bucket 3 of 7 is empty"


def test_skipped_cells_are_grouped_by_their_reason():
    rows = [("c-10", None, "skipped", None, "r", None), ("c-2", None, "skipped", None, "r", None)]
    assert skipped_groups(failures(*rows)) == [("r", ["c-2", "c-10"])]
    assert failure_groups(failures(*rows)) == []


def test_every_class_of_failure_is_shown_with_its_phase_its_cause_and_its_log(tmp_path):
    page = html.unescape(make_report(write_failing(tmp_path / "night")).read_text(encoding="utf-8"))
    section = page.partition('<section id="failures"')[2].partition("</section>")[0]
    shown = re.findall(r'<span class="bad">\S ([^<]+)</span></td><td[^>]*>(\d+)</td>', section)
    causes = {(status, phase) for status, phase, _ in CAUSES} - {("skipped", None)}
    assert {text for text, _ in shown} == {status_text(*cause) for cause in causes} | {"not started", "not measured"}
    assert {status for status, _ in causes} == set(STATUSES) - {"ok", "skipped", "not_started", "not_measured"}
    assert {phase for _, phase in causes} == {None, *PHASE_WORDS}
    assert sum(int(num) for _, num in shown) == 13 + 8 + 3
    num_ok, num_planned = map(int, re.search(r"(\d+) of (\d+) measurements ok · 1 cell skipped", page).groups())
    assert num_planned - num_ok == 13 + 8 + 3
    assert "9 messages, identical except for numbers (one shown)" in section
    assert re.search(
        ">9</td><td[^>]*>(ResNet-[0-9]+|, )+</td><td[^>]*>1×4, 2×4, 8×4</td><td[^>]*>all on n5<br>", section
    )
    for _, _, cause in CAUSES[:5] + CAUSES[6:]:
        assert re.sub(r"^rank \d+ on \w+: ", "", cause) in section
    *of_rank, of_launcher = LOG.splitlines()
    assert of_rank[-1] in section
    assert of_launcher not in section
    assert "job 4711: stopped (n6): SIGTERM: Slurm's time limit" in section
    assert "1 cell: message_bytes x ranks does not fit in 94.99 GiB" in section


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
