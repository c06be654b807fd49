"""Snakemake's Slurm executor learns of every job's end, and never loses one."""

import asyncio
import inspect
import logging
import math
from types import SimpleNamespace

import pytest
import snakemake_executor_plugin_slurm as executor

from regatta.launchers import slurm_queue as queue


@pytest.fixture
def ask(monkeypatch):
    """Return a function that queries once. Slurm's answers are its arguments, one after the other."""
    monkeypatch.setattr(queue, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(queue, "answer", lambda line, seconds: None)
    queries = queue.StatusQueries(None, None)

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
    queries = queue.StatusQueries(None, None)
    for _ in range(2):
        queries.log_jobs_that_cannot_start({"7", "8"}, logging.getLogger())
    [said] = [record.message for record in caplog.records]
    assert said.startswith("Job 7 can never start (PartitionConfig;")


def test_a_controller_that_does_not_answer_does_not_make_the_executor_ask_sacct():
    answers = iter([None, 300, None, 20])
    queries = queue.StatusQueries(None, lambda: next(answers))
    assert [queries.min_job_age() for _ in range(4)] == [math.inf, 300, 300, 20]


def test_the_executor_calls_the_replaced_queries(monkeypatch):
    """It has these names, and calls them: a new version of it that does not must be noticed."""
    for name in ("query_job_status", "get_min_job_age"):
        monkeypatch.setattr(executor, name, getattr(executor, name))
    monkeypatch.setattr(executor.Executor, "report_job_submission", lambda self, job_info: None)
    queue.patch_status_queries()
    executor.Executor.report_job_submission(None, SimpleNamespace(external_jobid="7"))
    queries = executor.query_job_status.__self__
    assert queries.submitted_jobs == {"7"}
    assert "self.report_job_submission" in inspect.getsource(executor.Executor._report_job_submission_threadsafe)
    check = inspect.getsource(executor.Executor.check_active_jobs)
    assert "await query_job_status(" in check
    assert "get_min_job_age()" in check
    assert executor.query_job_status.__func__ is queue.StatusQueries.job_status
    assert executor.get_min_job_age.__func__ is queue.StatusQueries.min_job_age
