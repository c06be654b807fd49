"""Patch Snakemake's Slurm executor (2.8): job names, status queries, rejected submissions, and why a job ended."""

import asyncio
import contextlib
import logging
import math
import re
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from regatta.core.text import one_line
from regatta.launchers.slurm_queue import ask
from regatta.store.jobs import NO_SPACE_LEFT, jobs_of_batch

RETRY_SECONDS = 10.0
SUBMIT_SECONDS = (10.0, 120.0)  # first and longest delay after a rejected submission; it doubles each time
STOP_SECONDS = 0.2
MIN_FREE_BYTES = 4 * 2**20
CLOCK_SECONDS = 5.0
MAX_CAUSE = 300
# Messages of the executor that a user cannot act on: the cluster file sets the memory of jobs, and the executor's guess
# of an account always fails, because it passes a pipe to sacct as arguments.
NOISE = (
    "No job memory information",
    "No SLURM account given, trying to guess",
    "No account was given, not able to get a SLURM account via sacct",
    "Unable to guess SLURM account",
)
LOST = ("PREEMPTED", "REVOKED")
# Transient errors of sbatch: limits on the number of jobs, and a busy controller.
TEMPORARY = re.compile(
    r"MaxSubmitJob|MaxJobs|GrpSubmitJobs|job submit limit|temporarily unable to accept job|"
    r"Resource temporarily unavailable|Unable to contact slurm controller|Socket timed out|"
    r"Slurm backup controller in standby"
)
# What the executor reports if sbatch fails; sbatch's words.
REFUSED = re.compile(r"sbatch failed\. The error message was '(?:sbatch: error: )*(.*?)\.?'", re.DOTALL)
# Errors about the size of a job end with the same words, but are permanent: one of these reasons precedes them.
PERMANENT = re.compile(r"\b\w*(?:MaxWall|MaxNode|MaxCpu|MaxTRES|MaxGRES|MaxMem|MinCpu|NotAllowed|Invalid)\w*")
# Reasons for which a job waits until its request is changed (squeue(1), JOB REASON CODES).
CANNOT_START = (
    "PartitionNodeLimit PartitionTimeLimit PartitionConfig BadConstraints InvalidAccount InvalidQOS "
    "AccountNotAllowed AssocMaxNodePerJobLimit AssocMaxWallDurationPerJobLimit QOSMaxNodePerJobLimit "
    "QOSMaxWallDurationPerJobLimit QOSNotAllowed"
).split()


def job_name(campaign: str, wildcards: object) -> str:
    """Return a job's name: regatta-<campaign>-2x4, or regatta-<campaign>-preflight."""
    found = re.match(r"n(\d+)g(\d+)-", getattr(wildcards, "batch", ""))
    return f"regatta-{campaign}-{f'{int(found[1])}x{int(found[2])}' if found else 'preflight'}"


def with_names(command: str, names: Iterable[str]) -> str:
    """Return a status query for jobs of these names, instead of the UUID that the executor gives to all jobs."""
    listed = ",".join(sorted(names))
    return re.sub(r"(--name[ =])\S+", lambda found: found[1] + shlex.quote(listed), command) if listed else command


@dataclass
class StatusQueries:
    """Replace two queries of Snakemake's Slurm executor, to work around three hangs on lost jobs.

    All are in snakemake-executor-plugin-slurm 2.8.0, the newest that Regatta was tested with. Delete each workaround
    when the executor has the behavior:

    * PREEMPTED and REVOKED do not end a job (since its pull request 132). Here they are failures: Slurm does not
      requeue these jobs (slurm-no-requeue), so Snakemake must resubmit them.
    * When the status command fails `status_attempts` times in a row (issue 207, pull request 232), as during a restart
      of slurmctld, the jobs are lost. Here the query is repeated until Slurm answers.
    * When MinJobAge is unknown, sacct is queried instead of squeue, in vain without accounting (issue 38). Here it is
      assumed to be long, and a job that Slurm has forgotten counts as failed: its supervisor resumes. slurmctld
      saves its state every 5 s; a crash loses newer jobs, so a job counts as known from its submission.
    """

    query: Callable  # the executor's
    query_min_job_age: Callable  # the executor's
    last_min_job_age: float = math.inf  # until Slurm reports it
    known_jobs: set[str] = field(default_factory=set)  # returned by a query
    submitted_jobs: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)  # of submitted jobs
    logged: set[tuple[str, str]] = field(default_factory=set)

    def min_job_age(self) -> float:
        """Return for how many seconds Slurm remembers a job that has ended, as last reported."""
        found = self.query_min_job_age()
        self.last_min_job_age = self.last_min_job_age if found is None else found
        return self.last_min_job_age

    async def job_status(self, command: str, logger: logging.Logger) -> tuple[dict[str, str], float]:
        """Return the states of all jobs by id, and the seconds that the query took; wait until Slurm answers."""
        command = with_names(command, self.names)
        # squeue knows a job as soon as sbatch returns; sacct may not. Jobs submitted during the query are not expected.
        expected = self.known_jobs | (self.submitted_jobs if command.startswith("squeue") else set())
        states, seconds = await self.query(command, logger)
        while states is None:
            logger.warning("Slurm does not respond to the job status query; retrying.")
            await asyncio.sleep(RETRY_SECONDS)
            states, seconds = await self.query(command, logger)
        known = {job: "FAILED" if state in LOST else state for job, state in states.items()}
        known |= dict.fromkeys(expected - known.keys(), "FAILED")
        self.known_jobs.update(known)
        if pending := {job for job, state in known.items() if state == "PENDING"}:
            await asyncio.to_thread(self.log_jobs_that_cannot_start, pending, logger)
        return known, seconds

    def log_jobs_that_cannot_start(self, jobs: set[str], logger: logging.Logger) -> None:
        """Log once each job that can never start, and why."""
        text = ask(["squeue", "--noheader", "--me", "--states=PENDING", "--format=%i|%r"])
        for job, _, reason in (line.partition("|") for line in text.splitlines()):
            if job in jobs and reason in CANNOT_START and (job, reason) not in self.logged:
                self.logged.add((job, reason))
                logger.error(
                    f"Job {job} can never start ({reason}; see scontrol show job {job}). Correct the cluster file:"
                    " partition, qos, constraint, num_nodes, cpus_per_rank, max_walltime_minutes."
                    " Ctrl-C cancels the job."
                )


@dataclass
class Submissions:
    """The jobs of one run: how they are named, and what is done when a submission is rejected or a job fails."""

    campaign: str
    queries: StatusQueries
    max_walltime_minutes: float
    submitted_s: dict[str, float] = field(default_factory=dict)  # by job id
    live: dict[str, object] = field(default_factory=dict)  # the executor's jobs that have not ended, by job id
    num_refused: int = 0  # in a row
    is_closing: threading.Event = field(default_factory=threading.Event)

    @property
    def results(self) -> Path:
        return Path("results") / self.campaign

    def name_job(self, wildcards: object) -> str:
        name = job_name(self.campaign, wildcards)
        self.queries.names.add(name)
        return name

    def submitted(self, job_info) -> None:
        job, self.num_refused = job_info.external_jobid, 0
        self.submitted_s[job] = time.time()
        self.live[job] = job_info
        self.queries.submitted_jobs.add(job)

    def wait_if_refused(self, message: str, logger: logging.Logger) -> bool:
        """Return whether to submit a job again: after a delay, if Slurm rejected it for now. False if the run ends."""
        message = message.partition("sbatch call:")[0]
        found = TEMPORARY.search(message)
        if found is None or PERMANENT.search(message):
            return False
        first, longest = SUBMIT_SECONDS
        seconds = min(longest, first * 2**self.num_refused)
        if self.num_refused == 0:
            error = one_line(message.partition("message was")[2] or found[0], MAX_CAUSE)
            logger.warning(
                f"Slurm rejects further jobs for now: {error} Regatta retries at least every {longest:g} s."
                " To limit the jobs in the queue, set max_jobs in the cluster file."
            )
        self.num_refused = min(self.num_refused + 1, 10)
        return not self.is_closing.wait(seconds)

    def explain(self, job, external: str | None, message: str) -> tuple[str, bool]:
        """Return why a job failed, and whether it would fail again for the same reason."""
        name = getattr(job.wildcards, "batch", None) or getattr(job.wildcards, "preflight", "job")
        folder = self.results / ("preflight" if name.startswith("preflight") else "batches") / name
        note = next((n for n in jobs_of_batch(folder)[::-1] if n["job"] == external), None)
        if external is None and (refused := REFUSED.search(message)):
            return f"{name}: Slurm rejected the job: {one_line(refused[1], MAX_CAUSE)}. Not resubmitted.", True
        cause = note["cause"] if note else self._last_line(job.log, external)
        state = found[1] if (found := re.search(r"SLURM status is: '(\w+)'", message)) else None
        cause = cause or (f"Slurm reports {state}; the job left no message." if state else message)
        if is_full(self.results) or NO_SPACE_LEFT in cause:
            return f"{name}: {cause} Not resubmitted: no space is left on the disk.", True
        is_longest = job.resources.get("runtime", 0) >= self.max_walltime_minutes
        is_late = cause.endswith(": TIMEOUT") and note.get("num_records") == 0 if note else state == "TIMEOUT"
        has_progress = note is None and name.startswith("n")  # a batch may have records; a preflight begins anew
        if is_late and is_longest and not has_progress:
            why = f"nothing was recorded within max_walltime_minutes = {self.max_walltime_minutes:g}"
            return f"{name}: time limit reached. Not resubmitted: {why}.", True
        return f"{name}: {cause}", False

    def _last_line(self, logs: Iterable[str], external: str | None) -> str | None:
        """Return what a job last printed, if it has printed anything since it was submitted."""
        for log in map(Path, logs):
            try:
                if log.stat().st_mtime > self.submitted_s.get(external, math.inf) - CLOCK_SECONDS:
                    lines = log.read_text(errors="replace").split("\n")
                    return next((one_line(line, MAX_CAUSE) for line in lines[::-1] if line.strip()), None)
            except OSError:
                continue
        return None


def is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < MIN_FREE_BYTES
    except OSError:
        return False


def patch_sleep() -> None:
    """Let the executor stop at once: otherwise its last pause between queries delays the end of a run by up to 10 s."""
    executor = sys.modules.get("snakemake_executor_plugin_slurm")  # None with another executor
    if executor is None or "sleep" in vars(executor.Executor):
        return

    async def sleep(self):
        pause = asyncio.ensure_future(super(executor.Executor, self).sleep())
        while self.wait and not pause.done():
            await asyncio.wait({pause}, timeout=STOP_SECONDS)
        pause.cancel()

    executor.Executor.sleep = sleep


def executor_logger() -> logging.Logger:
    from snakemake.logging import logger

    return logger


def is_no_noise(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(NOISE)


def patch_executor(campaign: str, max_walltime_minutes: float) -> None:
    """Replace functions of the executor. Called once, in the process that submits."""
    import snakemake_executor_plugin_slurm as executor  # loads Snakemake

    queries = StatusQueries(executor.query_job_status, executor.get_min_job_age)
    executor.query_job_status, executor.get_min_job_age = queries.job_status, queries.min_job_age
    submissions = Submissions(campaign, queries, max_walltime_minutes)
    executor_logger().addFilter(is_no_noise)
    plugin, get_submit_command = executor.Executor, executor.get_submit_command
    plugin.report_refused, register = plugin._report_job_error_threadsafe, plugin._report_job_submission_threadsafe
    report_success, report_error, cancel = plugin.report_job_success, plugin.report_job_error, plugin.cancel_jobs

    def named_submit_command(job, params, *args, **options):
        return get_submit_command(job, params | {"run_uuid": submissions.name_job(job.wildcards)}, *args, **options)

    def report_job_submission(self, job_info):
        submissions.submitted(job_info)
        if submissions.is_closing.is_set():  # its sbatch ran while the other jobs were canceled
            cancel(self, [job_info])
        return register(self, job_info)

    def report_submit_error(self, job_info, msg):
        # In a thread that only submits: while it waits, no other job is submitted.
        if submissions.wait_if_refused(msg, self.logger):
            with contextlib.suppress(RuntimeError):  # the run ends: no thread is left
                return self._job_submission_executor.submit(self.run_job, job_info.job)
        return self.report_refused(job_info, msg)

    def report_job_success(self, job_info):
        submissions.live.pop(job_info.external_jobid, None)
        return report_success(self, job_info)

    def report_job_error(self, job_info, msg=None, **options):
        submissions.live.pop(job_info.external_jobid, None)
        job = job_info.job
        text, is_final = submissions.explain(job, job_info.external_jobid, msg or "unknown cause")
        if is_final:
            job.attempt = job.restart_times + 1  # Snakemake restarts a job while it has attempts left
        return report_error(self, job_info, f"{text} ", **options)

    def cancel_jobs(self, _active_jobs):
        # While the executor queries states, its list of active jobs is empty.
        submissions.is_closing.set()
        return cancel(self, list(submissions.live.values()))

    plugin._report_job_error_threadsafe = report_submit_error
    plugin._report_job_submission_threadsafe = report_job_submission
    plugin.report_job_success, plugin.report_job_error = report_job_success, report_job_error
    plugin.cancel_jobs, executor.get_submit_command = cancel_jobs, named_submit_command
