"""Work around three hangs of Snakemake's Slurm executor, up to 2.8, on lost jobs. Delete this when it does all this.

It does not know PREEMPTED as an end of a job. It loses its jobs when the status command fails five times in a row, as
during a restart of slurmctld; and without MinJobAge it asks sacct instead of squeue, in vain where there is no
accounting. A job that Slurm has forgotten counts as failed too: it is resubmitted, and its supervisor resumes.
"""

import asyncio
import logging
import math

import snakemake_executor_plugin_slurm as executor

from regatta.launchers.slurm_queue import answer

RETRY_SECONDS = 10.0
LOST = ("PREEMPTED", "REVOKED")
# Reasons for which a job waits until somebody changes what it asks for (squeue(1), JOB REASON CODES).
CANNOT_START = (
    "PartitionNodeLimit", "PartitionTimeLimit", "PartitionConfig", "BadConstraints", "InvalidAccount", "InvalidQOS",
    "AccountNotAllowed", "AssocMaxNodePerJobLimit", "AssocMaxWallDurationPerJobLimit", "QOSMaxNodePerJobLimit",
    "QOSMaxWallDurationPerJobLimit", "QOSNotAllowed",
)  # fmt: skip

_ask = executor.query_job_status
_ask_min_job_age = executor.get_min_job_age
_seen: set[str] = set()
_told: set[tuple[str, str]] = set()
_min_job_age = math.inf  # until Slurm has said it; a job that vanishes from squeue is noticed below


def mend_status_queries() -> None:
    """Put this module's queries in the place of the executor's. Called once, in the process that submits."""
    executor.query_job_status = query_job_status
    executor.get_min_job_age = min_job_age


def min_job_age() -> float:
    """Return for how many seconds Slurm remembers a job that has ended, as it last said."""
    global _min_job_age
    found = _ask_min_job_age()
    _min_job_age = _min_job_age if found is None else found
    return _min_job_age


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
    if "PENDING" in known.values():
        await asyncio.to_thread(tell_what_cannot_start, {job for job, s in known.items() if s == "PENDING"}, logger)
    return known, seconds


def tell_what_cannot_start(jobs: set[str], logger: logging.Logger) -> None:
    """Log once each job that can never start, and why: Slurm itself says nothing."""
    text = answer(["squeue", "--noheader", "--me", "--states=PENDING", "--format=%i|%r"]) or ""
    for job, _, reason in (line.partition("|") for line in text.splitlines()):
        if job in jobs and reason in CANNOT_START and (job, reason) not in _told:
            _told.add((job, reason))
            logger.error(
                f"Job {job} cannot start as it was asked for ({reason}; scontrol show job {job}). Correct the cluster"
                " file: partition, qos, constraint, num_nodes, cpus_per_rank, max_walltime_minutes. Ctrl-C cancels the"
                " job."
            )
