"""How the end of a batch's job is recorded, by the job itself or by the next one; and which nodes are to blame."""

import json
import os
import signal
from types import SimpleNamespace

import pytest
from campaign_files import program

from regatta.core.errors import UserError
from regatta.launchers import LAUNCHERS, Allocation
from regatta.model.frozen import FrozenLaunch
from regatta.run import supervise
from regatta.run.batch import BatchRun, Stopped
from regatta.run.causes import Cause
from regatta.run.preflight import PreflightRun
from regatta.run.supervise import hosts_to_blame
from regatta.store.jobs import jobs_of_batch, note_job, noted_jobs, open_job
from regatta.store.launch_times import job_rows


def a_run(folder, job="17"):
    allocation = Allocation(LAUNCHERS["slurm" if job else "none"], job)
    return BatchRun(folder, None, {}, allocation)


def ends(folder):
    return [(entry.kind, entry.job, entry.cause) for entry in jobs_of_batch(folder)]


def test_a_job_that_finishes_its_batch_leaves_no_trace_of_trouble(tmp_path):
    with a_run(tmp_path).noting_end():
        assert open_job(noted_jobs(tmp_path)).job == "17"
    assert open_job(noted_jobs(tmp_path)) is None
    assert ends(tmp_path) == []


def test_the_end_of_a_job_has_its_duration_by_a_clock_that_is_never_set(tmp_path, monkeypatch):
    clock = iter([5000.0, 5004.25])
    monkeypatch.setattr("regatta.store.jobs.uptime_s", lambda: next(clock))
    monkeypatch.setattr("regatta.store.jobs.utc_now", lambda: "2026-11-21T02:00:00Z")
    with a_run(tmp_path).noting_end():
        pass
    lines = [json.loads(line) for line in (tmp_path / "jobs.jsonl").read_text().splitlines()]
    assert [line.get("elapsed_s") for line in lines] == [None, 4.25]
    (tmp_path / "jobs.jsonl").write_text(json.dumps(lines[0] | {"job": "18"}) + "\n")  # killed: of another process
    note_job(tmp_path / "other", "stopped", "18", [], "")
    assert "elapsed_s" not in json.loads((tmp_path / "other" / "jobs.jsonl").read_text())
    [row] = job_rows("b", noted_jobs(tmp_path), {})
    assert row.get("elapsed_s") is None
    (tmp_path / "jobs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [row["elapsed_s"] for row in job_rows("b", noted_jobs(tmp_path), {})] == [4.25]
    lines[1]["elapsed_s"] = -1  # damaged
    (tmp_path / "jobs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [row["elapsed_s"] for row in job_rows("b", noted_jobs(tmp_path), {})] == [None]


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (Stopped("SIGTERM", 143, "PREEMPTED"), "SIGTERM: PREEMPTED"),
        (UserError("results/x: no space left on the disk."), "results/x: no space left on the disk."),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
    ],
)
def test_a_job_that_ends_early_says_why(tmp_path, end, cause):
    with pytest.raises(type(end)), a_run(tmp_path).noting_end():
        raise end
    assert ends(tmp_path) == [("stopped", "17", cause)]


def test_an_end_that_was_noted_is_noted_once(tmp_path):
    def give_up():
        with a_run(tmp_path).noting_end():
            note_job(tmp_path, "no_start", "17", ["n2"], "no rank")
            raise UserError("no rank came up on n2")

    with pytest.raises(UserError):
        give_up()
    assert ends(tmp_path) == [("no_start", "17", "no rank")]


@pytest.mark.parametrize("has_job", [True, False])
def test_all_launches_of_a_round_note_their_end_before_any_waits_for_its_ranks(monkeypatch, has_job):
    """A scheduler kills the supervisor soon after its signal."""
    events = []
    allocation = SimpleNamespace(
        job="17" if has_job else None, state=lambda: None, state_after_signal=lambda cluster: None
    )
    allocation.stop = lambda process, hosts: events.append(("stop", process.index))
    cells = {"a": SimpleNamespace(spec={})}
    batch = SimpleNamespace(launches=[FrozenLaunch(0, "host", ["a"], 1, 1)] * 3, cells=cells, cluster={})
    run = BatchRun(None, batch, {}, allocation, parent=None)
    monkeypatch.setattr(supervise.os, "getppid", lambda: None)
    run.note_early_end = lambda stop: events.append(("job", str(stop)))

    def run_launch(launch):
        launch.watch = SimpleNamespace(update=list, current=None, clock=lambda: 0, deadline=lambda: 1)
        launch.close_stopped = lambda stop: events.append(("note", launch.index))
        process = SimpleNamespace(poll=lambda: None, index=launch.index)
        try:
            yield from supervise._follow(launch, process, None)
        finally:
            allocation.stop(process, [])

    def sleep(_):
        run.stop_signal = signal.SIGTERM

    monkeypatch.setattr(supervise, "_run_planned_launch", run_launch)
    monkeypatch.setattr(supervise.time, "sleep", sleep)
    with pytest.raises(Stopped, match="SIGTERM"):
        supervise._run_together(run.launches)
    job_ends = [("job", "SIGTERM")] * 3 if has_job else []
    assert [event for event in events if event[0] == "job"] == job_ends
    events = [event for event in events if event[0] != "job"]
    assert sorted(set(events)) == [(kind, index) for kind in ("note", "stop") for index in range(3)]
    assert [index for kind, index in events if kind == "note"] == [0, 1, 2]  # once each
    if has_job:
        assert [kind for kind, _ in events[:3]] == ["note"] * 3


@pytest.mark.parametrize(
    ("state", "said"), [("NODE_FAIL", "Slurm reports NODE_FAIL"), (None, "it was killed, or its node failed")]
)
def test_the_end_of_a_job_that_vanished_is_noted_by_the_next_one(tmp_path, monkeypatch, state, said):
    monkeypatch.setattr(LAUNCHERS["slurm"].queue, "state", {"16": state}.get)
    note_job(tmp_path, "started", "16", [], "")
    with a_run(tmp_path).noting_end():
        assert ends(tmp_path) == [("stopped", "16", f"end not recorded: {said}")]
    assert len(ends(tmp_path)) == 1


def test_without_slurm_nobody_is_asked_for_the_end_of_the_one_before(tmp_path, monkeypatch):
    monkeypatch.delattr(LAUNCHERS["slurm"].queue.__class__, "state")
    note_job(tmp_path, "started", None, [], "")
    with a_run(tmp_path, job=None).noting_end():
        pass
    [(kind, job, _)] = ends(tmp_path)
    assert (kind, job) == ("stopped", None)


@pytest.mark.parametrize(
    ("named", "blamed"),
    [
        ([{"n2"}], ["n2"]),
        ([{"n3", "n2"}, {"n1"}], ["n1", "n2", "n3"]),
        ([set(), {"n2"}], ["n2"]),
        ([set()], ["n1", "n2", "n3"]),
        ([{"somewhere"}], ["n1", "n2", "n3"]),
    ],
)
def test_nodes_that_srun_names_are_avoided_and_all_where_it_names_none(monkeypatch, tmp_path, named, blamed):
    monkeypatch.setattr(LAUNCHERS["slurm"].queue, "hosts", lambda job: ["n1", "n2", "n3"])
    causes = [Cause("failed", "launch", "x", frozenset(hosts)) for hosts in named]
    assert hosts_to_blame(a_run(tmp_path), causes) == blamed


@pytest.mark.parametrize(
    ("left", "sbatch", "cause"),
    [
        ("1:50", [], "SIGTERM: TIMEOUT"),
        ("5:00", [], "SIGTERM"),
        ("5:00", ["--signal=B:TERM@300"], "SIGTERM: TIMEOUT"),
        ("", [], "SIGTERM"),
    ],
)
def test_a_signal_before_the_time_limit_ends_a_preflight_as_the_limit_does(tmp_path, monkeypatch, left, sbatch, cause):
    """left: the job's remaining time, as squeue prints it."""
    program(tmp_path / "squeue", f"echo '{left}'\n")
    program(tmp_path / "scontrol", "echo 'JobId=7 JobState=RUNNING PreemptTime=None'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    folder = tmp_path / "preflight" / "preflight-0123456789ab"
    folder.mkdir(parents=True)
    frozen = SimpleNamespace(cluster={"sbatch": sbatch})
    run = PreflightRun(folder, frozen, Allocation(LAUNCHERS["slurm"], "7"), parent=1)
    with pytest.raises(SystemExit), run.noting_signal():
        raise SystemExit(143)
    [event] = jobs_of_batch(folder)
    assert (event.job, event.cause, event.num_records) == ("7", cause, 0)
