"""Work around three hangs of Snakemake's Slurm executor on lost jobs.

All are in snakemake-executor-plugin-slurm 2.8.0, the newest that Regatta was tested with. Delete each workaround when
the executor has the behavior:

* PREEMPTED and REVOKED are no end of a job (since its pull request 132). Here they are failures: Slurm does not requeue
  these jobs (slurm-no-requeue), so Snakemake must resubmit them.
* When the status command fails `status_attempts` times in a row (issue 207, pull request 232), as during a restart of
  slurmctld, the jobs are lost. Here the query is repeated until Slurm answers.
* When MinJobAge is unknown, sacct is queried instead of squeue, in vain without accounting (issue 38). Here it is
  assumed to be long, and a job that Slurm has forgotten counts as failed: its supervisor resumes.
"""

import asyncio
import logging
import math

import snakemake_executor_plugin_slurm as executor

from regatta.launchers.slurm_queue import answer

RETRY_SECONDS = 10.0
LOST = ("PREEMPTED", "REVOKED")
# Reasons for which a job waits until its request is changed (squeue(1), JOB REASON CODES).
CANNOT_START = (
    "PartitionNodeLimit", "PartitionTimeLimit", "PartitionConfig", "BadConstraints", "InvalidAccount", "InvalidQOS",
    "AccountNotAllowed", "AssocMaxNodePerJobLimit", "AssocMaxWallDurationPerJobLimit", "QOSMaxNodePerJobLimit",
    "QOSMaxWallDurationPerJobLimit", "QOSNotAllowed",
)  # fmt: skip

_query = executor.query_job_status
_query_min_job_age = executor.get_min_job_age
_known_jobs: set[str] = set()
_logged: set[tuple[str, str]] = set()
_min_job_age = math.inf  # until Slurm reports it


def patch_status_queries() -> None:
    """Replace the executor's queries by those of this module. Called once, in the process that submits."""
    executor.query_job_status = query_job_status
    executor.get_min_job_age = min_job_age


def min_job_age() -> float:
    """Return for how many seconds Slurm remembers a job that has ended, as last reported."""
    global _min_job_age
    found = _query_min_job_age()
    _min_job_age = _min_job_age if found is None else found
    return _min_job_age


async def query_job_status(command: str, logger: logging.Logger) -> tuple[dict[str, str], float]:
    """Return the states of all jobs by their id, and the seconds that it took; waits until Slurm answers."""
    states, seconds = await _query(command, logger)
    while states is None:
        logger.warning("Slurm does not answer the query for job states; retrying.")
        await asyncio.sleep(RETRY_SECONDS)
        states, seconds = await _query(command, logger)
    known = {job: "FAILED" if state in LOST else state for job, state in states.items()}
    known |= dict.fromkeys(_known_jobs - known.keys(), "FAILED")
    _known_jobs.update(known)
    if "PENDING" in known.values():
        await asyncio.to_thread(log_jobs_that_cannot_start, {job for job, s in known.items() if s == "PENDING"}, logger)
    return known, seconds


def log_jobs_that_cannot_start(jobs: set[str], logger: logging.Logger) -> None:
    """Log once each job that can never start, and why."""
    text = answer(["squeue", "--noheader", "--me", "--states=PENDING", "--format=%i|%r"]) or ""
    for job, _, reason in (line.partition("|") for line in text.splitlines()):
        if job in jobs and reason in CANNOT_START and (job, reason) not in _logged:
            _logged.add((job, reason))
            logger.error(
                f"Job {job} can never start ({reason}; scontrol show job {job}). Correct the cluster file: partition,"
                " qos, constraint, num_nodes, cpus_per_rank, max_walltime_minutes. Ctrl-C cancels the job."
            )
