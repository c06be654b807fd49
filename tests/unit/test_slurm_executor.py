"""The executor is told of every job's end, and never loses one."""

import asyncio
import logging

import pytest

from regatta.slurm import executor


@pytest.fixture
def ask(monkeypatch):
    """Return a function that asks once; what Slurm answers, one after the other, is given to it."""
    monkeypatch.setattr(executor, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(executor, "_seen", set())

    def once(*answers):
        replies = iter(answers)

        async def reply(command, logger):
            return next(replies)

        monkeypatch.setattr(executor, "_ask", reply)
        return asyncio.run(executor.query_job_status("squeue", logging.getLogger()))

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
