"""Snakemake's Slurm executor learns of every job's end, and never loses one."""

import asyncio
import inspect
import logging
import math
import re
from types import SimpleNamespace

import pytest
import snakemake_executor_plugin_slurm as executor

from regatta.launchers import slurm_executor as adapted
from regatta.launchers import slurm_queue as queue
from regatta.store.jobs import note_job


@pytest.fixture
def ask(monkeypatch):
    """Return a function that queries once. Slurm's answers are its arguments, one after the other."""
    monkeypatch.setattr(adapted, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(queue, "answer", lambda line, seconds: None)
    queries = adapted.StatusQueries(None, None)

    def once(*answers, command="squeue", submitted_meanwhile=()):
        replies = iter(answers)

        async def reply(command, logger):
            queries.submitted_jobs.update(submitted_meanwhile)
            return next(replies)

        queries.query = reply
        return asyncio.run(queries.job_status(command, logging.getLogger()))

    once.queries = queries
    return once


def test_a_preempted_job_has_failed_and_others_are_as_slurm_says(ask):
    states, seconds = ask(({"1": "PREEMPTED", "2": "RUNNING", "3": "COMPLETED"}, 0.1))
    assert states == {"1": "FAILED", "2": "RUNNING", "3": "COMPLETED"}
    assert seconds == 0.1


def test_a_query_that_fails_is_asked_again(ask):
    assert ask((None, None), (None, None), ({"1": "RUNNING"}, 0.1))[0] == {"1": "RUNNING"}


def test_a_job_that_slurm_has_forgotten_has_failed(ask):
    ask(({"1": "RUNNING", "2": "PENDING"}, 0.1))
    assert ask(({"2": "RUNNING"}, 0.1))[0] == {"1": "FAILED", "2": "RUNNING"}


def test_a_job_that_slurm_forgot_before_it_was_seen_has_failed(ask):
    """slurmctld crashed within five seconds of its submission."""
    ask.queries.submitted_jobs.add("1")
    assert ask(({}, 0.1), command="squeue --me")[0] == {"1": "FAILED"}


def test_a_job_submitted_during_a_query_has_not_failed(ask):
    assert ask(({}, 0.1), submitted_meanwhile=["1"])[0] == {}


def test_a_job_that_sacct_does_not_list_yet_has_not_failed(ask):
    ask.queries.submitted_jobs.add("1")
    assert ask(({}, 0.1), command="sacct -X")[0] == {}


def test_a_job_that_will_never_start_is_named_once(monkeypatch, caplog):
    text = "7|PartitionConfig\n8|Priority\n9|PartitionTimeLimit"
    monkeypatch.setattr(queue, "answer", lambda line, seconds: text)
    queries = adapted.StatusQueries(None, None)
    for _ in range(2):
        queries.log_jobs_that_cannot_start({"7", "8"}, logging.getLogger())
    [said] = [record.message for record in caplog.records]
    assert said.startswith("Job 7 ")
    assert "(PartitionConfig;" in said


def test_a_controller_that_does_not_answer_does_not_make_the_executor_ask_sacct():
    answers = iter([None, 300, None, 20])
    queries = adapted.StatusQueries(None, lambda: next(answers))
    assert [queries.min_job_age() for _ in range(4)] == [math.inf, 300, 300, 20]


@pytest.fixture
def patched(monkeypatch):
    """Patch the executor for one test; returns its class."""
    for name in ("query_job_status", "get_min_job_age", "get_submit_command"):
        monkeypatch.setattr(executor, name, getattr(executor, name))
    for name in ("_report_job_error_threadsafe", "cancel_jobs", "report_job_success"):
        monkeypatch.setattr(executor.Executor, name, getattr(executor.Executor, name))
    monkeypatch.setattr(executor.Executor, "_report_job_submission_threadsafe", lambda self, job_info: None)
    monkeypatch.setattr(executor.Executor, "report_job_error", lambda self, job_info, msg, **_: said.append(msg))
    monkeypatch.setattr(adapted, "SUBMIT_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(adapted, "executor_logger", lambda: logging.getLogger("unused"))
    said: list[str] = []
    adapted.patch_executor("c", 60)
    executor.Executor.said = said
    yield executor.Executor
    del executor.Executor.said, executor.Executor.report_refused


def a_job(attempt=1, runtime=60, logs=(), **wildcards):
    wildcards = SimpleNamespace(campaign="c", **(wildcards or {"batch": "n02g04-0123456789ab"}))
    return SimpleNamespace(
        wildcards=wildcards, attempt=attempt, restart_times=2, resources={"runtime": runtime}, log=list(logs)
    )


def test_the_executor_calls_the_replaced_queries(patched):
    """It has these names, and calls them: a new version of it that does not must be noticed."""
    patched._report_job_submission_threadsafe(None, SimpleNamespace(external_jobid="7"))
    queries = executor.query_job_status.__self__
    assert queries.submitted_jobs == {"7"}
    check = inspect.getsource(patched.check_active_jobs)
    assert "await query_job_status(" in check
    assert "get_min_job_age()" in check
    assert "self.report_job_error(" in check
    assert "self.report_job_success(" in check
    assert executor.query_job_status.__func__ is adapted.StatusQueries.job_status
    assert executor.get_min_job_age.__func__ is adapted.StatusQueries.min_job_age
    run = inspect.getsource(patched.run_job)
    assert "get_submit_command(" in run
    assert "self._report_job_error_threadsafe(" in run
    assert "self._job_submission_executor.submit(self.run_job, job)" in inspect.getsource(patched._submit_job)
    assert "self._report_job_submission_threadsafe(" in run


# Names of jobs.


def test_jobs_are_named_by_campaign_and_shape_and_found_by_these_names(patched):
    class Resources(dict):
        __getattr__ = dict.__getitem__

    resources = Resources(mpi="srun", tasks=2, nodes=2, cpus_per_task=1, runtime=5)
    for wildcards in ({"batch": "n02g04-0123456789ab"}, {"preflight": "preflight-0123456789ab"}):
        job = a_job(**wildcards)
        job.resources, job.threads = resources, 1
        params = {"run_uuid": "3f0e-uuid", "slurm_logfile": "log", "comment_str": "rule_measure", "account": ""}
        line = executor.get_submit_command(job, params | {"partition": "", "workdir": None})
        name = "regatta-c-2x4" if "batch" in wildcards else "regatta-c-preflight"
        assert f"--job-name {name} " in line
        assert "--comment rule_measure" in line  # by which a later run finds its jobs
    queries = executor.query_job_status.__self__
    command = adapted.with_names(executor.query_job_status_squeue("3f0e-uuid"), queries.names)
    assert command.endswith("--name regatta-c-2x4,regatta-c-preflight")
    assert "3f0e-uuid" not in adapted.with_names(executor.query_job_status_sacct("3f0e-uuid"), queries.names)


# Submissions that Slurm refuses.

REFUSED = (
    "SLURM sbatch failed. The error message was 'sbatch: error: {}\nsbatch: error: Batch job submission failed: {}'."
)
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    ("reason", "is_repeated"),
    [
        ("QOSMaxSubmitJobPerUserLimit", True),
        ("AssocMaxSubmitJobLimit", True),
        ("AssocMaxJobsLimit", True),
        ("QOSMaxWallDurationPerJobLimit", False),
        ("QOSMaxNodePerJobLimit", False),
        ("AssocGrpSubmitJobsLimit", True),
    ],
)
def test_a_submission_above_a_limit_on_jobs_is_repeated(patched, reason, is_repeated):
    message = REFUSED.format(reason, POLICY) + "\n    sbatch call:\n  sbatch -p InvalidName"
    assert submit(patched, message) == (["again"], []) if is_repeated else ([], [message])


def submit(patched, message):
    again, failed = [], []
    this = SimpleNamespace(
        logger=logging.getLogger(),
        run_job=lambda job: again.append("again"),
        _job_submission_executor=SimpleNamespace(submit=lambda call, job: call(job)),
        report_refused=lambda info, msg: failed.append(msg),
    )
    patched._report_job_error_threadsafe(this, SimpleNamespace(job=a_job(), external_jobid=None), message)
    return again, failed


def test_a_full_controller_is_asked_again_and_a_wrong_account_is_not(patched):
    full = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying"
    assert submit(patched, full) == (["again"], [])
    wrong = REFUSED.format("", "Invalid account or account/partition combination specified")
    assert submit(patched, wrong) == ([], [wrong])


def test_an_interrupt_cancels_all_jobs_that_have_not_ended(patched, monkeypatch):
    """Also while the executor asks for their states, when its own list is empty, and those submitted meanwhile."""
    canceled = []
    monkeypatch.setattr(executor, "cancel_slurm_jobs", lambda jobs, *_: canceled.extend(j.external_jobid for j in jobs))
    this = SimpleNamespace(
        _submitted_job_clusters=set(),
        logger=None,
        workflow=SimpleNamespace(scheduler=SimpleNamespace(finish_callback=lambda job: None)),
    )
    jobs = [SimpleNamespace(job=a_job(), external_jobid=name) for name in "6789"]
    for job_info in jobs[:3]:
        patched._report_job_submission_threadsafe(this, job_info)
    patched.report_job_success(this, jobs[0])
    patched.report_job_error(this, jobs[1], "failed")
    patched.cancel_jobs(this, [])
    assert canceled == ["8"]
    patched._report_job_submission_threadsafe(this, jobs[3])
    assert canceled == ["8", "9"]


def test_a_run_that_ends_does_not_submit_again(patched, monkeypatch):
    monkeypatch.setattr(executor, "cancel_slurm_jobs", lambda *_: None)
    patched.cancel_jobs(SimpleNamespace(_submitted_job_clusters=set(), logger=None), [])
    assert submit(patched, REFUSED.format("AssocMaxSubmitJobLimit", POLICY))[0] == []


# Why a job failed, and whether it is submitted again.


def fail(patched, job, external="7", message="Detailed failure reason unavailable"):
    patched.report_job_error(None, SimpleNamespace(job=job, external_jobid=external), message)
    return patched.said[-1], job.attempt > job.restart_times


@pytest.mark.parametrize(
    ("cause", "num_records", "runtime", "is_final"),
    [
        ("SIGTERM: TIMEOUT", 0, 60, True),
        ("SIGTERM: TIMEOUT", 0, 30, False),  # the next job is longer
        ("SIGTERM: TIMEOUT", 3, 60, False),  # the next job continues
        ("SIGTERM: CANCELLED", 0, 60, False),
        ("results/c: no space left on the disk. Completed measurements are kept.", 0, 6, True),
        ("no rank started on n1", None, 60, False),
    ],
)
def test_a_job_that_would_fail_again_is_not_repeated(
    patched, tmp_path, monkeypatch, cause, num_records, runtime, is_final
):
    monkeypatch.chdir(tmp_path)
    job = a_job(runtime=runtime)
    folder = tmp_path / "results/c/batches" / job.wildcards.batch
    folder.mkdir(parents=True)
    note_job(folder, "stopped", "6", [], "of an earlier job: no space left on the disk")
    note_job(folder, "stopped", "7", [], cause, num_records)
    said, has_ended = fail(patched, job)
    assert has_ended == is_final
    assert ("Not resubmitted" in said) == is_final
    assert job.wildcards.batch in said
    assert "Detailed" not in said
    assert cause in said or "max_walltime_minutes = 60" in said


def test_a_preflight_that_reaches_the_longest_time_limit_is_not_repeated(patched, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = "SLURM-job '7' failed, SLURM status is: 'TIMEOUT'. Detailed failure reason unavailable"
    said, has_ended = fail(patched, a_job(preflight="preflight-0123456789ab"), message=message)
    assert has_ended
    assert "max_walltime_minutes = 60" in said
    said, has_ended = fail(patched, a_job(), message=message)
    assert not has_ended
    assert "Slurm reports TIMEOUT" in said
    assert "Detailed" not in said


def test_the_executor_stops_within_its_pause(monkeypatch):
    monkeypatch.setattr(adapted, "STOP_SECONDS", 0.01)
    adapted.patch_sleep()
    this = object.__new__(executor.Executor)
    this.wait, pauses = False, []

    async def pause(self):
        pauses.append("began")
        await asyncio.sleep(3600)

    monkeypatch.setattr(executor.RemoteExecutor, "sleep", pause)
    asyncio.run(this.sleep())  # returns
    this.wait = True

    async def short(self):
        pauses.append("over")

    monkeypatch.setattr(executor.RemoteExecutor, "sleep", short)
    asyncio.run(this.sleep())
    assert pauses[-1] == "over"
    del executor.Executor.sleep


def test_messages_that_need_no_action_are_dropped_and_the_executor_still_prints_them():
    source = inspect.getsource(executor) + inspect.getsource(executor.get_account)
    flat = "".join(re.split(r'"\s*f?"', source))
    assert [text for text in adapted.NOISE if text not in flat] == []
    record = logging.makeLogRecord({"msg": "No SLURM account given, trying to guess."})
    assert not adapted.is_no_noise(record)
    record.msg = "Guessed SLURM account: p"
    assert adapted.is_no_noise(record)


def test_a_rejected_job_is_explained_by_the_words_of_sbatch_and_not_repeated(patched, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "Batch job submission failed: No partition specified or system default partition"
    message = f"SLURM sbatch failed. The error message was 'sbatch: error: {words}'.\n    sbatch call:\n  sbatch --x"
    said, has_ended = fail(patched, a_job(), None, message)
    assert words in said
    assert "sbatch call" not in said
    assert has_ended


def test_a_job_without_a_note_is_explained_by_its_log(patched, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "preflight.log"
    log.write_text("first\na node failed during the preflight: n1\n\n")
    job = a_job(logs=[log], preflight="preflight-0123456789ab")
    older = fail(patched, job)
    patched._report_job_submission_threadsafe(None, SimpleNamespace(external_jobid="7"))
    assert fail(patched, job) == (f"preflight-0123456789ab: {log.read_text().split(chr(10))[1]} ", False)
    assert older != fail(patched, job)


def test_a_full_disk_ends_the_retries_even_if_no_job_could_note_it(patched, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results/c").mkdir(parents=True)
    monkeypatch.setattr(adapted, "MIN_FREE_BYTES", 2**80)
    assert fail(patched, a_job())[1]
