"""Mend two ways in which Snakemake's Slurm executor, up to 2.8, waits for ever for a job that is gone.

It knows no PREEMPTED among the ends of a job, and it loses its jobs when the status command fails five times in a row, as
during a restart of slurmctld. A job that Slurm has forgotten counts as failed too: it is submitted again, and its supervisor
goes on from the store. To be deleted when the executor does all this.
"""

import asyncio
import logging

import snakemake_executor_plugin_slurm as executor

RETRY_SECONDS = 10.0
LOST = ("PREEMPTED", "REVOKED")

_ask = executor.query_job_status
_seen: set[str] = set()


def mend_status_queries() -> None:
    """Put this module's query in the place of the executor's. Called once, in the process that submits."""
    executor.query_job_status = query_job_status


async def query_job_status(command: str, logger: logging.Logger) -> tuple[dict[str, str], float]:
    """Return the states of all jobs by their id, and the seconds that it took; waits for Slurm as long as it takes."""
    states, seconds = await _ask(command, logger)
    while states is None:
        logger.warning("Slurm does not say how the jobs are; asking again.")
        await asyncio.sleep(RETRY_SECONDS)
        states, seconds = await _ask(command, logger)
    known = {job: "FAILED" if state in LOST else state for job, state in states.items()}
    known |= dict.fromkeys(_seen - known.keys(), "FAILED")
    _seen.update(known)
    return known, seconds
