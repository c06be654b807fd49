"""Limits on wasted hours: a stack whose cells fail alike is stopped, and jobs whose nodes do not start are counted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regatta.run.progress import ALIKE, OF_THE_CELL, StackWatch
from regatta.store.jobs import hosts_to_avoid, jobs_of_batch, jobs_without_start, note_job, noted_jobs, open_job

STATUSES = ("ok", "failed", "timeout", "out_of_memory", "placement", "node_failure", "skipped", "invalid")
OF_THE_STACK = [status for status in STATUSES if status not in OF_THE_CELL]


def record(cell: str, status: str = "failed", cause: str | None = "no libfabric") -> tuple:
    return cell, status, None if status == "ok" else cause


def watch(*records: tuple, stack: str = "a") -> StackWatch:
    found = StackWatch()
    for entry in records:
        found.note(stack, *entry)
    return found


def test_the_third_cell_that_fails_alike_ends_a_stack():
    assert watch(record("1"), record("2")).given_up("a") is None
    assert watch(record("1"), record("2"), record("3")).given_up("a").endswith(": no libfabric")


def test_one_cell_that_is_ok_shows_that_a_stack_works():
    for place in range(5):
        records = [record(str(i)) for i in range(4)]
        records.insert(place, record("good", "ok"))
        assert watch(*records).given_up("a") is None


def test_a_cell_that_fails_in_each_repeat_is_one_cell():
    assert watch(*[record("1")] * 9, *[record("2")] * 9).given_up("a") is None


def test_a_stack_does_not_answer_for_another():
    found = watch(record("1"), record("2"), record("3"))
    assert found.given_up("b") is None
    found.note("b", *record("4"))
    assert found.given_up("b") is None


def test_failures_in_other_words_are_not_alike():
    causes = ["no libfabric", "no such model", "CUDA error"]
    assert watch(*(record(str(i), cause=cause) for i, cause in enumerate(causes))).given_up("a") is None
    assert watch(record("1", "failed"), record("2", "timeout"), record("3", "placement")).given_up("a") is None


@pytest.mark.parametrize(
    "causes",
    [
        ["rank 0 on n1: EOFError", "rank 3 on n2: EOFError", "rank 17 on n12: EOFError"],
        ["cannot open /a/b/c.so: x", "cannot open /a/d.so: x", "cannot open e/f: x"],
        [
            "no record within 30 s (cell_seconds)",
            "no record within 60 s (cell_seconds)",
            "no record within 7 s (cell_seconds)",
        ],
        [None, None, None],
    ],
)
def test_numbers_and_paths_do_not_make_failures_differ(causes):
    found = watch(*(record(str(i), cause=cause) for i, cause in enumerate(causes)))
    assert found.given_up("a").endswith(f": {causes[-1] or 'failed'}")


@pytest.mark.parametrize(
    ("status", "phase", "is_evidence"),
    [
        *(("failed", phase, False) for phase in ("setup", "warmup", "measure", "check", None)),
        *(("failed", phase, True) for phase in ("launch", "placement", "init")),
        ("timeout", None, True),
    ],
)
def test_errors_of_users_code_say_nothing_of_the_stack(status, phase, is_evidence):
    """Combinations of parameters for which a user's code raises would else keep the others from being measured."""
    found = StackWatch()
    for cell in "123":
        found.note("a", *record(cell, status), phase, is_user_code=True)
    assert (found.given_up("a") is not None) == is_evidence


@pytest.mark.parametrize("status", OF_THE_CELL)
def test_what_says_nothing_of_the_stack_never_ends_it(status):
    assert watch(*(record(str(i), status) for i in range(9))).given_up("a") is None


records = st.builds(
    record,
    st.sampled_from("1234"),
    st.sampled_from(STATUSES),
    st.sampled_from(["no libfabric", "exit code 1", "exit code 2", "other"]),
)


@given(st.lists(records, max_size=12), st.randoms(use_true_random=False))
def test_whether_a_stack_is_given_up_does_not_depend_on_the_order(found, rng):
    mixed = rng.sample(found, len(found))
    assert (watch(*found).given_up("a") is None) == (watch(*mixed).given_up("a") is None)


@given(st.lists(records, max_size=12), records)
def test_more_records_give_a_stack_up_but_only_an_ok_brings_it_back(found, one_more):
    before, after = watch(*found), watch(*found, one_more)
    if before.given_up("a") and one_more[1] != "ok":
        assert after.given_up("a")
    if one_more[1] == "ok":
        assert after.given_up("a") is None


@given(st.lists(records, max_size=12))
def test_a_stack_is_given_up_for_at_least_three_cells_that_are_not_ok(found):
    if watch(*found).given_up("a"):
        cells = {entry[0] for entry in found if entry[1] in OF_THE_STACK}
        assert len(cells) >= ALIKE
        assert all(entry[1] != "ok" for entry in found)


# ---- Jobs that ended before their batch was finished


def test_a_batch_that_never_lacked_a_node_avoids_none(tmp_path):
    assert jobs_of_batch(tmp_path) == jobs_without_start(tmp_path) == hosts_to_avoid(tmp_path) == []


def test_jobs_are_noted_in_order_and_nodes_that_did_not_start_or_failed_avoided_once_each(tmp_path):
    noted = [
        ("no_start", "17", ["n2", "n1"], "no rank came up"),
        ("stopped", "18", ["n9"], "SIGTERM: PREEMPTED"),
        ("no_start", None, ["n3", "n1"], "no rank came up"),
        ("node_failure", "20", ["n4"], "srun: error: Node failure on n4"),
    ]
    for job in noted:
        note_job(tmp_path, *job)
    jobs = jobs_of_batch(tmp_path)
    assert all(job.time_utc for job in jobs)
    assert [(job.kind, job.job, job.hosts, job.cause) for job in jobs] == noted
    assert [entry.hosts for entry in jobs_without_start(tmp_path)] == [["n2", "n1"], ["n3", "n1"]]
    assert hosts_to_avoid(tmp_path) == ["n1", "n2", "n3", "n4"]  # not n9, whose job was only stopped


def test_torn_and_foreign_lines_are_left_out(tmp_path):
    note_job(tmp_path, "no_start", "17", ["n1"], "x")
    with (tmp_path / "jobs.jsonl").open("ab") as file:
        file.write(b'3\n[]\n{"kind": "no_start"}\n{"kind": 1, "cause": 2, "hosts": null}\n\xff\xfe\n{"kind": "no_st')
    assert len(jobs_of_batch(tmp_path)) == 1
    assert hosts_to_avoid(tmp_path) == ["n1"]


def test_a_line_says_which_job_it_was_and_when(tmp_path):
    note_job(tmp_path, "stopped", "17", [], "x")
    [line] = (tmp_path / "jobs.jsonl").read_text().splitlines()
    assert json.loads(line).keys() == {"kind", "job", "hosts", "cause", "time_utc"}


def test_a_job_is_open_until_there_is_a_word_of_its_end(tmp_path):
    assert open_job(noted_jobs(tmp_path)) is None
    note_job(tmp_path, "started", "17", [], "")
    assert open_job(noted_jobs(tmp_path)).job == "17"
    assert jobs_of_batch(tmp_path) == hosts_to_avoid(tmp_path) == []
    note_job(tmp_path, "stopped", "17", [], "SIGTERM: PREEMPTED")
    assert open_job(noted_jobs(tmp_path)) is None
    note_job(tmp_path, "started", "18", [], "")
    note_job(tmp_path, "finished", "18", [], "")
    assert open_job(noted_jobs(tmp_path)) is None
    assert [job.job for job in jobs_of_batch(tmp_path)] == ["17"]
