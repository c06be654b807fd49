"""Snakemake's executor for Slurm: one job per batch or preflight, submitted by sbatch, watched by squeue.

It has only the public interface of snakemake_interface_executor_plugins. Snakemake finds it by the package in
workflow/plugins.
"""

import itertools
import math
import re
import time
from asyncio import sleep as pause
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from regatta.core.text import one_line
from regatta.launchers import slurm_queue as queue
from regatta.launchers.slurm_errors import NO_ID, ErrorKind, kind_of_error
from regatta.launchers.slurm_plugin import options_of
from regatta.model.launches import JobEvent
from regatta.store.jobs import NO_SPACE_LEFT, is_full, jobs_of_batch

# Slurm's --signal=B:TERM reaches only the shell, which passes it on to its process group: Snakemake and the supervisor,
# but not srun. The shell must survive it: otherwise, Slurm would kill the supervisor.
SCRIPT = """#!/bin/sh
trap 'trap "" TERM; kill -s TERM 0; is_stopped=1' TERM
{command} &
wait $!
status=$?
[ -z "$is_stopped" ] || {{ wait $!; status=$?; }}  # the signal interrupted the first
exit $status
"""
COMMENT = re.compile("--com[a-z]*=")  # an option of the user, possibly abbreviated; if empty, jobs have no comment
# The last line that sbatch prints with --parsable, or without it, as wrappers of sites may do.
SUBMITTED = re.compile(r"^(?:Submitted batch job )?(\d+)(?:;.*| on cluster .*)?$", re.MULTILINE)
MAX_PREEMPTIONS = 5  # of a batch, in a row and without a new record; further ones are failed attempts
GRES_ERROR = re.compile(r"\(gres\)|\bGRES\b|Trackable RESource|\bTRES\b")
GRES_REMEDY = " Correct gpu_request, gpu_type or gres in the cluster file: sinfo -o '%P %G' lists what nodes have."
FORGOTTEN = ("no such job", "")  # state and reason of a job that Slurm does not list
LOGS = Path(".snakemake/slurm_logs")
SUBMIT_SECONDS = (10.0, 120.0)  # first and longest delay after a rejected submission; it doubles each time
STOP_SECONDS = 0.2
CLOCK_SECONDS = 5.0
MAX_CAUSE = 300
COLOR = re.compile(r"\x1b\[[\d;]*m")
RETRY_HOURS = 2  # how long submission is retried while sbatch fails with temporary errors
# Reasons for which a job waits until its request is changed (squeue(1), JOB REASON CODES).
CANNOT_START = re.compile(
    "PartitionNodeLimit|PartitionTimeLimit|PartitionConfig|BadConstraints|InvalidAccount|InvalidQOS|AccountNotAllowed|"
    r"QOSNotAllowed|DependencyNeverSatisfied|(?:Assoc|QOS)Max\w+Per(?:Job|Node)(?:Limit)?|QOSMin\w+"
)


class Executor(RemoteExecutor):
    """Submits and watches jobs in the thread of RemoteExecutor, so that a busy controller does not delay Snakemake.

    live: the jobs in the queue, by Slurm's id. While states are queried, `active_jobs` is empty.
    """

    def __post_init__(self) -> None:
        self.live: dict[str, SubmittedJobInfo] = {}
        self.submitted_s: dict[str, float] = {}
        # Rejections in a row; time of the first one; time of the next try.
        self.num_refused, self.first_refused_s, self.retry_s = 0, 0.0, 0.0
        self.refused: dict[str, JobExecutorInterface] = {}  # by batch: sbatch failed, but may have submitted the job
        self.errors: set[str] = set()  # of sbatch, since the last submission
        self.preemptions: dict[str, int] = {}  # by batch: in a row, without a new record
        self.has_new_jobs, self.is_closing, self.is_answering = False, False, True
        self.logged: set[tuple[str, str]] = set()

    def run_job(self, job: JobExecutorInterface) -> None:
        self.report_job_submission(SubmittedJobInfo(job), register_job=False)
        self.has_new_jobs = True

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncIterator[SubmittedJobInfo]:
        """Submit new jobs, report those that have ended, and yield the others."""
        self.has_new_jobs = False
        for job_info in active_jobs:
            if job_info.external_jobid is None and self._must_wait(job_info):
                yield job_info
        submitted = [job_info for job_info in active_jobs if job_info.external_jobid in self.live]
        states = self._states() if submitted else {}
        for job_info in submitted:
            if states is None or not self._has_ended(job_info, *states.get(job_info.external_jobid, FORGOTTEN)):
                yield job_info

    async def sleep(self) -> None:
        """Wait until the next query or submission, or the end of the run."""
        next_s = time.monotonic() + self.next_seconds_between_status_checks
        while self.wait and not self.has_new_jobs and time.monotonic() < next_s:
            await pause(STOP_SECONDS)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        self.is_closing = True
        found = [self._in_queue(job) or [] for job in self.refused.values()]
        if jobs := [*self.live, *itertools.chain(*found)]:
            queue.ask(["scancel", *jobs])

    # Submission.

    def _must_wait(self, job_info: SubmittedJobInfo) -> bool:
        """Submit a job. Returns whether it still waits: enough are in the queue, Slurm rejects it, or the run ends."""
        job = job_info.job
        is_enough = 0 < job.resources.get("most_jobs", 0) <= len(self.live)
        if is_enough or self.is_closing or time.monotonic() < self.retry_s:
            return True
        log = LOGS / f"rule_{job.name}" / f"{name_of(job)}-%j.log"
        if name_of(job) in self.refused:
            found = self._in_queue(job)
            if found is None:
                return self._is_refused_for_now(job_info, "squeue does not respond", "temporary")
            if found:
                self._note_submission(job_info, found[0], log)
                return False
        log.parent.mkdir(parents=True, exist_ok=True)
        line = ["sbatch", "--parsable", "--export=ALL", "--no-requeue", f"--chdir={Path.cwd()}", f"--output={log}"]
        options = options_of(job.resources)
        identity = f"rule_{job.name}_wildcards_{campaign_of(job)}_{name_of(job)}"  # a later run knows it by this
        name = identity if any(map(COMMENT.match, options)) else job_name(job)
        options = [option for option in options if not COMMENT.fullmatch(option)]
        line += [f"--job-name={name}", *([f"--comment={identity}"] if name != identity else []), *options]
        done = queue.submit(line, SCRIPT.format(command=self.format_job_exec(job)))
        found = SUBMITTED.findall(done.stdout) if done.returncode == 0 else []
        if not found:
            texts = [NO_ID if done.returncode == 0 else "", done.stderr or done.stdout]
            message = ": ".join(filter(None, texts))
            return self._is_refused_for_now(job_info, message, kind_of_error(message))
        self._note_submission(job_info, found[-1], log)
        if self.is_closing:  # since its sbatch began
            queue.ask(["scancel", found[-1]])
        return False

    def _note_submission(self, job_info: SubmittedJobInfo, external: str, log: Path) -> None:
        job_info.external_jobid, name = external, name_of(job_info.job)
        self.num_refused, self.submitted_s[external] = 0, time.time()
        self.refused.pop(name, None)
        self.errors.clear()
        self.live[external] = job_info
        self.logger.info(f"{name}: Slurm job {external} (log: {str(log).replace('%j', external)})")

    def _in_queue(self, job: JobExecutorInterface) -> list[str] | None:
        """Return the queued jobs of a batch whose ids sbatch has not reported; None if squeue does not answer."""
        jobs, known = queue.live_jobs(campaign_of(job), Path.cwd()), self.submitted_s
        return jobs and [found.id for found in jobs if found.batch == name_of(job) and found.id not in known]

    def _is_refused_for_now(self, job_info: SubmittedJobInfo, message: str, kind: ErrorKind) -> bool:
        """Return whether a rejected job is submitted again later; otherwise, report its failure."""
        lines = COLOR.sub("", message).replace("sbatch: error: ", "").splitlines()
        error = " ".join(line for line in lines if re.search(r"\w", line)).strip().removesuffix(".")
        error = one_line(error if len(error) <= MAX_CAUSE else f"...{error[3 - MAX_CAUSE :]}")  # the last line decides
        now = time.monotonic()
        if kind == "permanent":
            self.num_refused = 0
            text = f"Slurm rejected the job: {error}. Not resubmitted.{GRES_REMEDY if GRES_ERROR.search(error) else ''}"
            self._fail(job_info, text, is_final=True)
            return False
        if self.num_refused == 0 or (kind == "limit" and self.live):  # jobs that end make room
            self.first_refused_s = now
        if now >= self.first_refused_s + RETRY_HOURS * 3600:
            why = f"Slurm has rejected jobs for {RETRY_HOURS} h; last error: {error}"
            self._fail(job_info, f"{why}. Not resubmitted: run the same command again later.", is_final=True)
            return False
        self.refused[name_of(job_info.job)] = job_info.job
        first, longest = SUBMIT_SECONDS
        self.retry_s = now + min(longest, first * 2**self.num_refused)
        if error not in self.errors:
            self.errors.add(error)
            remedy = " To limit the jobs in the queue, set max_jobs in the cluster file." if kind == "limit" else ""
            self.logger.warning(
                f"Slurm rejects jobs for now: {error}. Regatta retries at least every {longest:g} s, for at most"
                f" {RETRY_HOURS} h.{remedy}"
            )
        self.num_refused = min(self.num_refused + 1, 10)
        return True

    # States.

    def _states(self) -> dict[str, tuple[str, str]] | None:
        """Return state and reason of this user's jobs by id, also of those that ended a short time ago; None if Slurm
        does not answer."""
        states = queue.states_and_reasons()
        if states is None and self.is_answering:
            self.logger.warning("Slurm does not respond to the job status query; retrying.")
        self.is_answering = states is not None
        return states

    def _has_ended(self, job_info: SubmittedJobInfo, state: str, reason: str) -> bool:
        """Return whether a job has ended, and report it. A job that Slurm has forgotten is judged by its output."""
        job, external = job_info.job, job_info.external_jobid
        if state in queue.LIVE:
            if state == "PENDING" and CANNOT_START.fullmatch(reason) and (external, reason) not in self.logged:
                self.logged.add((external, reason))
                self.logger.error(
                    f"Job {external} can never start ({reason}; see scontrol show job {external}). Correct the cluster"
                    " file: partition, account, qos, constraint, num_nodes, gpus_per_node, cpus_per_rank,"
                    " memory_mb_per_node, max_walltime_minutes."
                    " Ctrl-C cancels the job."
                )
            return False
        if state == "COMPLETED" or (state == FORGOTTEN[0] and all(Path(path).exists() for path in job.output)):
            del self.live[external]
            self.report_job_success(job_info)
        elif self._is_preempted(job_info, state):
            del self.live[external]
            job_info.external_jobid, self.has_new_jobs = None, True
            return False
        else:
            self._fail(job_info, *self._explain(job, external, state))
        return True

    def _is_preempted(self, job_info: SubmittedJobInfo, state: str) -> bool:
        """Return whether a preempted job is resubmitted, without counting as one of Snakemake's attempts."""
        job, external, results = job_info.job, job_info.external_jobid, self._results(job_info.job)
        name, note = name_of(job), self._note(job, external)
        if (state != "PREEMPTED" and not (note and note.cause.endswith(": PREEMPTED"))) or is_full(results):
            return False
        num = self.preemptions[name] = 0 if note and note.num_records else self.preemptions.get(name, 0) + 1
        if num > MAX_PREEMPTIONS:
            return False
        without = f" ({num} of at most {MAX_PREEMPTIONS} times without a new record)" if num else ""
        self.logger.info(f"{name}: Slurm preempted job {external}. The job is resubmitted{without}.")
        return True

    def _results(self, job: JobExecutorInterface) -> Path:
        return Path("results") / campaign_of(job)

    def _note(self, job: JobExecutorInterface, external: str) -> JobEvent | None:
        """Return how a job ended, if it recorded that."""
        name = name_of(job)
        folder = self._results(job) / ("preflight" if name.startswith("preflight") else "batches") / name
        return next((event for event in jobs_of_batch(folder)[::-1] if event.job == external), None)

    def _fail(self, job_info: SubmittedJobInfo, text: str, is_final: bool) -> None:
        """Report that a job failed. is_final: it would fail again."""
        self.live.pop(job_info.external_jobid, None)
        if is_final:
            job_info.job.attempt = job_info.job.restart_times + 1  # Snakemake restarts it while attempts are left
        self.report_job_error(job_info, f"{name_of(job_info.job)}: {text} ")

    def _explain(self, job: JobExecutorInterface, external: str, state: str) -> tuple[str, bool]:
        """Return why a job failed, and whether it would fail again for the same reason."""
        name, results, note = name_of(job), self._results(job), self._note(job, external)
        cause = note.cause if note else self._last_line(job.log, external)
        cause = cause or f"Slurm reports {state}; the job left no message."
        if is_full(results) or NO_SPACE_LEFT in cause:
            return f"{cause} Not resubmitted: no space is left on the disk.", True
        longest = job.resources.get("longest", math.inf)
        is_late = note.is_late and note.num_records == 0 if note else state == "TIMEOUT"
        has_progress = note is None and name.startswith("n")  # a batch may have records; a preflight begins anew
        if is_late and job.resources.get("runtime", 0) >= longest and not has_progress:
            why = f"nothing was recorded within max_walltime_minutes = {longest:g}"
            return f"time limit reached. Not resubmitted: {why}.", True
        return cause, False

    def _last_line(self, logs: Iterable[str], external: str) -> str | None:
        """Return what a job last printed, if it has printed anything since it was submitted."""
        for log in map(Path, logs):
            try:
                if log.stat().st_mtime > self.submitted_s[external] - CLOCK_SECONDS:
                    lines = log.read_text(errors="replace").split("\n")
                    return next((one_line(line, MAX_CAUSE) for line in lines[::-1] if line.strip()), None)
            except OSError:
                continue
        return None


def name_of(job: JobExecutorInterface) -> str:
    """Return the batch or preflight that a job is for; of another workflow's rule, its name and number."""
    of_regatta = getattr(job.wildcards, "batch", None) or getattr(job.wildcards, "preflight", None)
    return of_regatta if campaign_of(job) and of_regatta else f"{job.name}-{job.jobid}"


def campaign_of(job: JobExecutorInterface) -> str:
    """Return the campaign of a job; empty for a rule of another workflow, of which Regatta is a module."""
    return "" if job.resources.get("options") is None else job.wildcards.campaign


def job_name(job: JobExecutorInterface) -> str:
    """Return a job's name: regatta-<campaign>-2x4, or regatta-<campaign>-preflight."""
    found = re.match(r"n(\d+)g(\d+)-", name_of(job))
    kind = f"{int(found[1])}x{int(found[2])}" if found else "preflight"
    return f"regatta-{campaign_of(job)}-{kind}" if campaign_of(job) else name_of(job)
