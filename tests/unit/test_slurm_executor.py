"""The executor for Slurm submits jobs, learns of every job's end, and never loses one."""

import asyncio
import logging
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

from regatta.launchers import slurm_executor
from regatta.launchers import slurm_queue as queue
from regatta.store.jobs import note_job

BATCH = "n02g04-0123456789ab"
PREFLIGHT = "preflight-0123456789ab"
OPTIONS = "--partition=gpu --nodes=2 '--mail-user=x y'"


class Queue:
    """Plays Slurm: the answers of sbatch, one after the other, then the states of jobs; None: no answer."""

    def __init__(self):
        self.submissions: list = []
        self.states: list = []
        self.lines: list[list[str]] = []
        self.canceled: list[str] = []
        self.queued: list | None = []  # jobs in the queue, of which sbatch may have reported no id

    def submit(self, line, script):
        self.lines.append(line)
        answer = self.submissions.pop(0)
        if callable(answer):
            answer = answer()
        if not isinstance(answer, str):
            return answer
        is_ok = answer.split(";")[0].isdigit()
        return SimpleNamespace(returncode=int(not is_ok), stdout=answer if is_ok else "", stderr=answer)

    def live_jobs(self, campaign, folder):
        assert (campaign, folder) == ("c", Path.cwd())
        return self.queued

    def ask(self, line):
        self.canceled += line[1:]

    def states_and_reasons(self):
        states = self.states.pop(0)
        return states and {job: (state, "") if isinstance(state, str) else state for job, state in states.items()}


@pytest.fixture
def slurm(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = Queue()
    for name in ("submit", "ask", "live_jobs", "states_and_reasons"):
        monkeypatch.setattr(queue, name, getattr(found, name))
    return found


@pytest.fixture
def executor(slurm):
    """Return an executor without the thread that calls it, which notes what it reports to Snakemake."""
    found = object.__new__(slurm_executor.Executor)
    found.logger, found.format_job_exec = logging.getLogger("executor"), lambda job: "python -m snakemake"
    found.active_jobs, found.wait, found.lock = [], True, threading.Lock()
    found.ended = []
    found.report_job_submission = lambda info, register_job: found.active_jobs.append(info)
    found.report_job_success = lambda info: found.ended.append((info.external_jobid, "ok"))
    found.report_job_error = lambda info, text: found.ended.append((info.external_jobid, text))
    found.__post_init__()
    return found


def a_job(name=BATCH, attempt=1, runtime=60, logs=(), output=("manifest.json",), most_jobs=0):
    key = "preflight" if name == PREFLIGHT else "batch"
    return SimpleNamespace(
        name="preflight" if name == PREFLIGHT else "measure",
        wildcards=SimpleNamespace(campaign="c", **{key: name}),
        attempt=attempt,
        restart_times=2,
        resources={"runtime": runtime, "longest": 60, "most_jobs": most_jobs, "options": OPTIONS},
        log=list(logs),
        output=list(output),
    )


def check(executor):
    """Check the active jobs once; returns the ids of those that go on, None for one that still waits."""

    async def left():
        return [info async for info in executor.check_active_jobs(active)]

    active = list(executor.active_jobs)
    executor.active_jobs[:] = asyncio.run(left())
    return [info.external_jobid for info in executor.active_jobs]


def run(executor, slurm, job, number="7", state="RUNNING"):
    """Submit a job that Slurm accepts."""
    executor.run_job(job)
    slurm.submissions.append(number)
    slurm.states.append(
        {info.external_jobid: "RUNNING" for info in executor.active_jobs} | {number.split(";")[0]: state}
    )
    return check(executor)


def test_snakemake_finds_the_package_on_the_path_and_it_starts_the_executor(monkeypatch):
    monkeypatch.syspath_prepend(slurm_executor.__file__.partition("scripts/")[0] + "plugins")
    monkeypatch.setattr(ExecutorPluginRegistry, "_instance", None)
    plugin = ExecutorPluginRegistry().get_plugin("regatta-slurm")
    assert plugin.common_settings.non_local_exec
    monkeypatch.setattr(slurm_executor.Executor, "__init__", lambda *arguments: None)
    assert type(plugin.executor(None, None)) is slurm_executor.Executor
    monkeypatch.setitem(sys.modules, "regatta.launchers.slurm_executor", None)  # a workflow without Regatta's rules
    with pytest.raises(WorkflowError):
        plugin.executor(None, None)


def test_a_job_is_submitted_with_its_options_name_and_comment(executor, slurm, tmp_path):
    assert run(executor, slurm, a_job(), "7;cluster") == ["7"]
    [line] = slurm.lines
    assert line[:2] == ["sbatch", "--parsable"]
    assert line[-3:] == ["--partition=gpu", "--nodes=2", "--mail-user=x y"]
    assert {"--job-name=regatta-c-2x4", f"--comment=rule_measure_wildcards_c_{BATCH}", f"--chdir={tmp_path}"} <= {*line}
    assert slurm_executor.job_name(a_job(PREFLIGHT)) == "regatta-c-preflight"


@pytest.mark.parametrize("option", ["--comment=my project", "--com=p"])
def test_with_a_comment_of_the_user_a_job_is_known_by_its_name(executor, slurm, option):
    job = a_job()
    job.resources["options"] = shlex.join([option])
    run(executor, slurm, job)
    [line] = slurm.lines
    assert f"--job-name=rule_measure_wildcards_c_{BATCH}" in line
    assert [word for word in line if word.startswith("--com")] == [option]


@pytest.mark.parametrize("option", ["--comment=", "--com="])
def test_an_empty_comment_is_none_for_sites_that_forbid_comments(executor, slurm, option):
    job = a_job()
    job.resources["options"] = shlex.join(["--nodes=2", option])
    run(executor, slurm, job)
    [line] = slurm.lines
    assert f"--job-name=rule_measure_wildcards_c_{BATCH}" in line
    assert not any(word.startswith("--com") for word in line)
    assert line[-1] == "--nodes=2"


@pytest.mark.parametrize(
    "text", ["Submitted batch job 7\n", "Submitted batch job 7 on cluster blue\n", "Welcome to blue!\n\n7;blue\n"]
)
def test_the_job_s_id_is_read_from_the_output_of_a_site_s_wrapper(executor, slurm, text):
    executor.run_job(a_job())
    slurm.submissions.append(SimpleNamespace(returncode=0, stdout=text, stderr=""))
    slurm.states.append({"7": "RUNNING"})
    assert check(executor) == ["7"]


def test_a_job_of_which_sbatch_printed_no_id_is_looked_for(executor, slurm, monkeypatch, caplog):
    monkeypatch.setattr(slurm_executor, "SUBMIT_SECONDS", (0.0, 0.0))
    executor.run_job(a_job())
    slurm.submissions.append(SimpleNamespace(returncode=0, stdout="", stderr="queued\n"))
    assert check(executor) == [None]
    slurm.queued = [queue.Job("7", "PENDING", BATCH)]
    slurm.states.append({"7": "RUNNING"})
    assert check(executor) == ["7"]
    assert len(slurm.lines) == 1
    assert "queued" in caplog.text


WAITING = "import signal, time; signal.signal(15, lambda *_: exit(42)); print(1, flush=True); time.sleep(60)"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_script_of_a_job_passes_on_a_signal_and_has_the_status_of_its_command(shell, tmp_path):
    def start(*command):
        script = slurm_executor.SCRIPT.format(command=shlex.join(command))
        (tmp_path / "script").write_text(script)
        return subprocess.Popen([shell, tmp_path / "script"], stdout=subprocess.PIPE, start_new_session=True)

    assert [start("sh", "-c", f"exit {status}").wait(60) for status in (0, 3)] == [0, 3]
    assert start("/no/such/program").wait(60) == 127
    waiting = start(sys.executable, "-c", WAITING)
    assert waiting.stdout.readline() == b"1\n"
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(60) == 42


# States.


def test_ends_are_reported_and_running_jobs_go_on(executor, slurm):
    for number in "123":
        run(executor, slurm, a_job(), number)
    slurm.states.append({"1": "COMPLETED", "2": "NODE_FAIL", "3": "RUNNING"})
    assert check(executor) == ["3"]
    assert executor.ended[0] == ("1", "ok")
    assert executor.ended[1][0] == "2"
    assert "NODE_FAIL" in executor.ended[1][1]
    assert list(executor.live) == ["3"]


def test_a_controller_that_does_not_answer_is_asked_again_and_named_once(executor, slurm, caplog):
    run(executor, slurm, a_job())
    slurm.states += [None, None, {"7": "RUNNING"}, {"7": "COMPLETED"}]
    assert [check(executor) for _ in range(4)] == [["7"], ["7"], ["7"], []]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert executor.ended == [("7", "ok")]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_job_that_slurm_has_forgotten_is_judged_by_its_output(executor, slurm, tmp_path, is_there):
    """Also one that slurmctld forgot before it was seen: it crashed within five seconds of the submission."""
    run(executor, slurm, a_job())
    if is_there:
        (tmp_path / "manifest.json").touch()
    slurm.states.append({})
    assert check(executor) == []
    assert (executor.ended == [("7", "ok")]) == is_there


@pytest.mark.parametrize(
    ("reason", "is_final"),
    [
        ("PartitionConfig", True),
        ("QOSMaxGRESPerJob", True),
        ("QOSMaxGRESPerNode", True),
        ("QOSMaxCpuPerJobLimit", True),
        ("QOSMaxMemoryPerJob", True),
        ("QOSMinGRES", True),
        ("AssocMaxGRESPerJob", True),
        ("AssocMaxCPUMinutesPerJobLimit", True),
        ("DependencyNeverSatisfied", True),
        ("Priority", False),
        ("QOSMaxJobsPerUserLimit", False),
        ("QOSMaxGRESPerUser", False),
        ("AssocGrpGRES", False),
        ("ReqNodeNotAvail, UnavailableNodes:n1", False),
    ],
)
def test_which_reasons_mean_that_a_job_never_starts(executor, slurm, caplog, reason, is_final):
    run(executor, slurm, a_job())
    slurm.states.append({"7": ("PENDING", reason)})
    assert check(executor) == ["7"]
    assert [record.levelname for record in caplog.records if record.levelname == "ERROR"] == ["ERROR"] * is_final


def test_a_job_that_will_never_start_is_named_once(executor, slurm, caplog):
    run(executor, slurm, a_job(), "7")
    run(executor, slurm, a_job(), "8")
    waiting = {"7": ("PENDING", "PartitionConfig"), "8": ("PENDING", "Priority")}
    slurm.states += [waiting, waiting]
    assert [check(executor), check(executor)] == [["7", "8"], ["7", "8"]]
    assert [record.message[:5] for record in caplog.records if record.levelname == "ERROR"] == ["Job 7"]


def test_no_more_jobs_are_in_the_queue_than_the_cluster_file_allows(executor, slurm):
    run(executor, slurm, a_job(most_jobs=1))
    executor.run_job(a_job(most_jobs=1))
    slurm.submissions.append("8")
    slurm.states += [{"7": "RUNNING"}, {"7": "COMPLETED"}, {"8": "RUNNING"}]
    assert [sorted(check(executor), key=str) for _ in range(3)] == [["7", None], [None], ["8"]]


# Submissions that Slurm rejects.

POLICY = "sbatch: error: {}\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


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
def test_a_submission_above_a_limit_on_jobs_is_repeated(executor, slurm, monkeypatch, reason, is_repeated):
    monkeypatch.setattr(slurm_executor, "SUBMIT_SECONDS", (0.0, 0.0))
    job = a_job()
    executor.run_job(job)
    slurm.submissions += [POLICY.format(reason), "7"]
    slurm.states.append({"7": "RUNNING"})
    assert check(executor) == ([None] if is_repeated else [])
    assert check(executor) == (["7"] if is_repeated else [])
    assert (job.attempt > job.restart_times) != is_repeated
    assert bool(executor.ended) != is_repeated


def test_a_full_controller_is_asked_again_after_a_delay_that_doubles(executor, slurm, monkeypatch, caplog):
    now = [0.0]
    monkeypatch.setattr(slurm_executor.time, "monotonic", lambda: now[0])
    executor.run_job(a_job())
    slurm.submissions += ["sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying"] * 3
    for now[0], num_submissions in ((0, 1), (9, 1), (10, 2), (29, 2), (30, 3)):
        assert check(executor) == [None]
        assert len(slurm.lines) == num_submissions
    assert len(caplog.records) == 1


ZERO_BYTES = "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received"


def test_a_job_that_was_submitted_in_spite_of_an_error_is_not_submitted_again(executor, slurm, monkeypatch):
    monkeypatch.setattr(slurm_executor, "SUBMIT_SECONDS", (0.0, 0.0))
    executor.run_job(a_job())
    slurm.submissions.append(ZERO_BYTES)
    assert check(executor) == [None]
    slurm.queued = None  # squeue does not answer: nothing is known, and nothing is submitted
    assert check(executor) == [None]
    slurm.queued = [
        queue.Job("6", "RUNNING", None),
        queue.Job("7", "PENDING", BATCH),
        queue.Job("8", "PENDING", PREFLIGHT),
    ]
    slurm.states += [{"7": "RUNNING"}, {"7": "COMPLETED"}]
    assert [check(executor), check(executor)] == [["7"], []]
    assert executor.ended == [("7", "ok")]
    assert len(slurm.lines) == 1


def test_an_interrupt_also_cancels_a_job_that_was_submitted_in_spite_of_an_error(executor, slurm):
    executor.run_job(a_job())
    slurm.submissions.append(ZERO_BYTES)
    check(executor)
    slurm.queued = [queue.Job("7", "PENDING", BATCH)]
    executor.cancel_jobs([])
    assert slurm.canceled == ["7"]


def test_errors_in_a_row_are_named_and_final_after_two_hours(executor, slurm, monkeypatch, caplog):
    now = [0.0]
    monkeypatch.setattr(slurm_executor.time, "monotonic", lambda: now[0])
    jobs = [a_job(), a_job(PREFLIGHT)]
    for job in jobs:
        executor.run_job(job)
    texts = ["Socket timed out on send/recv operation", "Connection refused", "Connection refused"]
    slurm.submissions += [f"sbatch: error: Batch job submission failed: {text}" for text in texts]
    for now[0] in (0, 3600, 7199):
        assert check(executor) == [None, None]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    slurm.submissions += ["sbatch: error: Batch job submission failed: Message receive failure"] * 2
    now[0] = 7400
    assert check(executor) == []
    assert ["Message receive failure" in text for _, text in executor.ended] == [True, True]
    assert [job.attempt > job.restart_times for job in jobs] == [True, True]


@pytest.mark.parametrize(("is_own", "num_hours"), [(True, 9), (False, 2)])
def test_waiting_for_the_ends_of_the_run_s_jobs_is_not_limited(executor, slurm, monkeypatch, is_own, num_hours):
    now = [0.0]
    monkeypatch.setattr(slurm_executor.time, "monotonic", lambda: now[0])
    if is_own:
        run(executor, slurm, a_job(PREFLIGHT))
    executor.run_job(a_job())
    for hour in range(10):
        now[0] = hour * 3600
        slurm.submissions.append(POLICY.format("QOSMaxSubmitJobPerUserLimit"))
        slurm.states.append({"7": "RUNNING"})
        if None not in check(executor):
            break
    assert hour == num_hours
    assert bool(executor.ended) != is_own


def test_a_rejected_job_is_explained_by_the_words_of_sbatch_and_not_repeated(executor, slurm):
    words = "Batch job submission failed: Invalid account or account/partition combination specified"
    job = a_job()
    executor.run_job(job)
    slurm.submissions.append(f"sbatch: error: {words}")
    assert check(executor) == []
    assert words in executor.ended[0][1]
    assert job.attempt > job.restart_times


# The end of a run.


def test_an_interrupt_cancels_all_jobs_that_have_not_ended(executor, slurm):
    """Also while states are queried, when the list of active jobs is empty, and one whose submission is under way."""
    for number in "678":
        run(executor, slurm, a_job(), number)
    slurm.states.append({"6": "COMPLETED", "7": "FAILED", "8": "RUNNING"})
    check(executor)

    def interrupted():
        executor.cancel_jobs([])
        assert slurm.canceled == ["8"]
        return "9"

    executor.run_job(a_job())
    slurm.submissions.append(interrupted)
    slurm.states.append({"8": "RUNNING", "9": "RUNNING"})
    check(executor)
    assert slurm.canceled == ["8", "9"]
    executor.run_job(a_job())
    slurm.states.append({})
    check(executor)
    assert len(slurm.lines) == 4  # nothing is submitted any more


def test_the_pause_between_queries_ends_with_the_run_and_for_a_new_job(executor, monkeypatch):
    monkeypatch.setattr(slurm_executor, "STOP_SECONDS", 0.01)
    executor.next_seconds_between_status_checks = 3600
    executor.wait = False
    asyncio.run(executor.sleep())  # returns
    executor.wait = True
    executor.run_job(a_job())
    asyncio.run(executor.sleep())


# Preemption.


def preempt(executor, slurm, tmp_path, number, num_records=None, state="PREEMPTED"):
    """Have the running job preempted, and the next one submitted, as 1 + number; returns what goes on."""
    if num_records is not None:
        folder = tmp_path / "results/c/batches" / BATCH
        folder.mkdir(parents=True, exist_ok=True)
        note_job(folder, "stopped", str(number), [], "SIGTERM: PREEMPTED", num_records)
    slurm.states.append({str(number): state})
    left = check(executor)
    if left == [None]:
        slurm.submissions.append(str(number + 1))
        slurm.states.append({str(number + 1): "RUNNING"})
        left = check(executor)
    return left


def test_a_preempted_job_is_submitted_again_five_times_without_new_records(executor, slurm, tmp_path):
    job = a_job()
    run(executor, slurm, job, "1")
    for number in range(1, 6):
        assert preempt(executor, slurm, tmp_path, number, 0) == [str(number + 1)]
    assert (executor.ended, job.attempt) == ([], 1)
    assert preempt(executor, slurm, tmp_path, 6, 0) == []
    assert executor.ended[0][0] == "6"
    assert job.attempt <= job.restart_times  # from now on by Snakemake, as one of its retries


def test_new_records_begin_the_count_of_preemptions_again(executor, slurm, tmp_path):
    run(executor, slurm, a_job(), "1")
    for number in range(1, 15):
        num_records = 3 if number in (5, 9) else 0
        state = "FAILED" if number == 7 else "PREEMPTED"  # it ended within the grace period
        assert preempt(executor, slurm, tmp_path, number, num_records, state) == [str(number + 1)]
    assert preempt(executor, slurm, tmp_path, 15, 0) == []


def test_a_preempted_job_that_left_no_note_is_submitted_again_but_not_on_a_full_disk(
    executor, slurm, tmp_path, monkeypatch
):
    (tmp_path / "results/c").mkdir(parents=True)
    run(executor, slurm, a_job(PREFLIGHT), "1")
    assert preempt(executor, slurm, tmp_path, 1) == ["2"]
    monkeypatch.setattr("regatta.store.jobs.MIN_FREE_BYTES", 2**80)
    assert preempt(executor, slurm, tmp_path, 2) == []


# Why a job failed, and whether it is submitted again.


def fail(executor, slurm, job, state="FAILED"):
    run(executor, slurm, job)
    slurm.states.append({"7": state})
    check(executor)
    return executor.ended[-1][1], job.attempt > job.restart_times


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
def test_a_job_that_would_fail_again_is_not_repeated(executor, slurm, tmp_path, cause, num_records, runtime, is_final):
    folder = tmp_path / "results/c/batches" / BATCH
    folder.mkdir(parents=True)
    note_job(folder, "stopped", "6", [], "of an earlier job: no space left on the disk")
    note_job(folder, "stopped", "7", [], cause, num_records)
    said, has_ended = fail(executor, slurm, a_job(runtime=runtime))
    assert has_ended == is_final
    assert ("Not resubmitted" in said) == is_final
    assert said.startswith(f"{BATCH}: ")
    assert cause in said or "max_walltime_minutes = 60" in said


def test_a_preflight_that_reaches_the_longest_time_limit_is_not_repeated(executor, slurm):
    said, has_ended = fail(executor, slurm, a_job(PREFLIGHT), "TIMEOUT")
    assert has_ended
    assert "max_walltime_minutes = 60" in said
    said, has_ended = fail(executor, slurm, a_job(), "TIMEOUT")
    assert not has_ended
    assert "Slurm reports TIMEOUT" in said


def test_a_preflight_that_ends_shortly_before_its_longest_time_limit_is_not_repeated(executor, slurm, tmp_path):
    folder = tmp_path / "results/c/preflight" / PREFLIGHT
    folder.mkdir(parents=True)
    note_job(folder, "stopped", "7", [], "SIGTERM: TIMEOUT", 0)
    assert fail(executor, slurm, a_job(PREFLIGHT), "FAILED")[1]


def test_a_job_without_a_note_is_explained_by_its_log(executor, slurm, tmp_path, monkeypatch):
    log = tmp_path / "preflight.log"
    log.write_text("first\na node failed during the preflight: n1\n\n")
    monkeypatch.setattr(slurm_executor, "CLOCK_SECONDS", -60)  # the log is older than the job
    assert "Slurm reports FAILED" in fail(executor, slurm, a_job(PREFLIGHT, logs=[log]))[0]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert executor._last_line([log], "7") == "a node failed during the preflight: n1"


def test_a_full_disk_ends_the_retries_even_if_no_job_could_note_it(executor, slurm, tmp_path, monkeypatch):
    (tmp_path / "results/c").mkdir(parents=True)
    monkeypatch.setattr("regatta.store.jobs.MIN_FREE_BYTES", 2**80)
    assert fail(executor, slurm, a_job())[1]
