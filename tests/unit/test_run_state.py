"""The state of a running campaign, from folders made by hand: times are injected."""

import json
import os
import socket
from types import SimpleNamespace

import pytest
from synthetic import make_campaign
from synthetic_run import CELLS, IDS, NOW, A, B, C, Folder, launches, record, utc

from regatta.core.errors import UserError
from regatta.core.files import is_held
from regatta.core.text import span_text
from regatta.launchers import LAUNCHERS
from regatta.run.run_files import RunFiles
from regatta.run.run_state import RunWatcher, run_state, state_text


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "results" / "laptop")


def test_a_frozen_campaign_without_a_run_has_idle_batches(folder, wording):
    folder.plan(A, B)
    folder.batch(A, launches(0, 1))
    folder.batch(B, launches(2))
    state = folder.state()
    assert (state.num_planned, state.num_recorded, state.counts) == (12, 0, {})
    assert (state.num_finished, state.running, state.num_queued, state.num_idle) == (0, (), 0, 2)
    assert (state.measurements_per_hour, state.seconds_left, state.rank_hours_spent) == (None, None, None)
    assert state.rank_hours_left == pytest.approx(12 * 10 * 2 / 3600)  # plan.json: 10 s each, on two ranks
    assert state.is_run_active is False
    wording(state_text(state))


def test_a_batch_is_running_while_its_supervisor_lives_and_queued_while_a_run_is_active(folder, wording):
    folder.plan(A, B, C)
    for name, repeat in ((A, 0), (B, 1), (C, 2)):
        folder.batch(name, launches(repeat))
    folder.lock(".lock")
    folder.job(B, "started", 600)
    folder.lock(f"batches/{B}/lock")
    folder.launch(f"{B}-l000-a00", 1, (IDS[0], "ok"), (IDS[1], "failed"))
    folder.append(f"{B}-l000-a00", {"kind": "start", "cell": IDS[2]})
    folder.manifest(A, (f"{A}-l000-a00", 0, [(cell, "ok", 3.0) for cell in IDS]))
    state = folder.state()
    assert state.counts == {"ok": 5, "failed": 1}
    assert (state.num_finished, state.num_queued, state.num_idle, state.is_run_active) == (1, 1, 0, True)
    [running] = state.running
    assert (running.id, running.shape, running.num_recorded, running.num_measurements) == (B, "1\u00d72", 2, 4)
    wording(running.cell)


def test_a_supervisor_that_was_killed_is_not_running(folder, monkeypatch):
    folder.plan(A)
    folder.batch(A, launches(0, 1, 2))
    folder.job(A, "started", 600)
    assert folder.state().running == ()  # without a lock
    folder.lock(f"batches/{A}/lock", pid=2**22 + 1)
    assert folder.state().running == ()
    folder.lock(f"batches/{A}/lock")
    assert len(folder.state().running) == 1
    folder.job(A, "stopped", 10)
    assert folder.state().running == ()


def test_a_process_that_only_has_the_number_of_a_lock_s_holder_does_not_hold_it(tmp_path):
    path = tmp_path / "lock"
    assert is_held(path) is False
    path.write_text(f"{os.getpid()} on {socket.gethostname()}")
    assert is_held(path) is True
    os.utime(path, (1e9, 1e9))  # long before this process started
    assert is_held(path) is False
    path.write_text("12 on some-other-host")
    assert is_held(path) is None
    path.write_text("")
    assert is_held(path) is False


def test_the_queue_says_which_batches_run_and_wait(folder):
    folder.plan(A, B, C)
    for name, repeat in ((A, 0), (B, 1), (C, 2)):
        folder.batch(name, launches(repeat))
    state = folder.state({A: "RUNNING", "11": "RUNNING", B: "PENDING", "12": "PENDING"})
    assert ([batch.id for batch in state.running], state.num_queued, state.num_idle) == ([A], 1, 1)
    folder.lock(".lock", host="another-login-node")
    state = folder.state({A: "COMPLETING", B: "REQUEUED"})
    assert ([batch.id for batch in state.running], state.num_queued, state.num_idle) == ([A], 2, 0)
    assert state.is_run_active is None


def test_a_supervisor_on_another_host_runs_if_its_job_is_in_the_queue(folder, wording):
    folder.batch(A, launches(0, 1, 2))
    folder.job(A, "started", 600, job="77")
    folder.lock(f"batches/{A}/lock", host="n5")
    assert len(folder.state({"77": "RUNNING"}).running) == 1
    assert folder.state({"78": "RUNNING"}).running == ()
    unknown = folder.state({}, is_queue_known=False)
    assert len(unknown.running) == 1
    wording(state_text(unknown))


def test_a_later_plan_does_not_hide_the_batches_of_the_run(folder):
    folder.batch(A, launches(0, 1, 2))
    folder.plan(B)  # `make plan` during the run: never frozen
    folder.lock(".lock")
    assert (folder.state().num_queued, folder.state().num_idle) == (1, 0)


def test_batches_of_an_earlier_plan_do_not_wait_again(folder):
    """A was stopped with one measurement left, which B has taken over."""
    folder.batch(A, launches(0), frozen_ago=9000)
    folder.batch(B, [(0, IDS[:1])], frozen_ago=100)
    folder.plan(B)
    folder.lock(".lock")
    folder.launch(f"{A}-l000-a00", 0, *((cell, "ok") for cell in IDS[1:]))
    state = folder.state()
    assert (state.num_recorded, state.num_queued, state.num_idle) == (3, 1, 0)
    folder.write(".lock", "")
    assert (folder.state().num_queued, folder.state().num_idle) == (0, 1)


def test_a_retry_supersedes_the_failed_record_and_counts_as_left_until_then(folder):
    folder.batch(A, launches(0, 1, 2))
    folder.launch(f"{A}-l000-a00", 0, *((cell, "ok") for cell in IDS))
    folder.launch(f"{A}-l001-a00", 1, *((cell, "ok") for cell in IDS))
    folder.launch(f"{A}-l002-a00", 2, (IDS[0], "failed"), *((cell, "ok") for cell in IDS[1:]), ago=100)
    folder.write(f"batches/{A}/manifest.json", "{}")  # damaged: its launch files are read
    assert folder.state().counts == {"ok": 11, "failed": 1}
    assert folder.state().is_complete
    folder.batch(B, [(2, IDS[:1])], generation=2)
    assert folder.state().is_complete  # the retry was given up before it began
    folder.plan(B)
    folder.lock(".lock")
    state = folder.state()
    assert (state.counts, state.num_queued, state.is_complete) == ({"ok": 11}, 1, False)
    folder.launch(f"{B}-l000-a00", 2, (IDS[0], "ok"), ago=2000, generation=2)  # a slow clock does not matter
    state = folder.state()
    assert (state.counts, state.num_queued, state.is_complete) == ({"ok": 12}, 0, True)
    assert state.failures == ()


def test_what_is_always_measured_again_counts_as_missing(folder):
    folder.batch(A, launches(0, 1, 2))
    folder.launch(f"{A}-l000-a00", 0, (IDS[0], "node_failure"), (IDS[1], "timeout"))
    state = folder.state()
    assert state.counts == {"timeout": 1}
    assert [(group.status, group.num) for group in state.failures] == [("node_failure", 1), ("timeout", 1)]


def test_failures_with_the_same_cause_are_counted_together_the_most_common_first(folder, wording):
    folder.batch(A, launches(0, 1, 2))
    causes = ["rank 1: no file /tmp/a", "rank 2: no file /tmp/b", "rank 2: no file /tmp/b", "out of memory"]
    folder.launch(f"{A}-l000-a00", 0)
    folder.append(f"{A}-l000-a00", *(record(c, "failed", cause=t) for c, t in zip(IDS, causes, strict=True)))
    found = [(group.cause, group.num) for group in folder.state().failures]
    wording(found)


def test_rate_and_time_left_come_from_the_records_of_this_run(folder, wording):
    """A run of 1,000 s has made 4 records of 50 s each on 2 ranks: 14.4 an hour; 8 are left: 2,000 s."""
    folder.batch(A, launches(0, 1, 2))
    folder.plan(A, seconds=10.0)
    folder.lock(".lock", ago=1010)
    folder.job(A, "started", 1000)
    folder.lock(f"batches/{A}/lock")
    folder.launch(f"{A}-l000-a00", 0, *((cell, "ok", 50.0, 300) for cell in IDS))
    state = folder.state()
    assert state.measurements_per_hour == pytest.approx(14.4)
    assert state.seconds_left == pytest.approx((2000, 2000))
    assert state.rank_hours_spent == pytest.approx(1000 * 2 / 3600)
    assert state.rank_hours_left == pytest.approx(8 * 50 * 2 * (2000 / 400) / 3600)  # with the same share of overhead
    wording(state_text(state))  # fmt: skip


def test_the_time_left_ranges_over_the_ratios_of_measured_to_planned_time_of_launches(folder):
    """Each launch is planned at 40 s. One took 20 s, one 30 s, in a run of 100 s: 100 / 50 s for each second of a cell.

    The last launch is expected to take 20 to 30 s. That it has begun with a slow cell does not count yet.
    """
    folder.batch(A, launches(0, 1, 2))
    folder.plan(A, seconds=10.0)
    folder.lock(".lock", ago=100)
    folder.job(A, "started", 100)
    folder.lock(f"batches/{A}/lock")
    folder.launch(f"{A}-l000-a00", 0, (IDS[0], "ok", 2.0, 95), (IDS[1], "ok", 4.0, 90), ago=99)
    assert folder.state().seconds_left is None  # too few records
    folder.append(f"{A}-l000-a00", record(IDS[2], elapsed_s=6.0, ago=85))
    assert folder.state().seconds_left == pytest.approx([90 * 12 / 30 * 100 / 12] * 2)  # of a launch that is running
    folder.append(f"{A}-l000-a00", record(IDS[3], elapsed_s=8.0, ago=80), {"kind": "complete"})
    folder.launch(f"{A}-l001-a00", 1, *((cell, "ok", 7.5, 50) for cell in IDS), ago=75)
    folder.append(f"{A}-l001-a00", {"kind": "complete"})
    state = folder.state()
    assert state.seconds_left == pytest.approx((20 * 2, 30 * 2))
    assert state.rank_hours_left == pytest.approx(25 * 2 * (100 * 2) / (50 * 2) / 3600)
    folder.launch(f"{A}-l002-a00", 2, (IDS[0], "ok", 50.0, 0), ago=50)
    assert folder.state().seconds_left == pytest.approx((30 * 0.5 * 1, 30 * 0.75 * 1))


def test_records_of_an_earlier_run_do_not_count_for_the_rate(folder):
    folder.batch(A, launches(0, 1, 2))
    folder.job(A, "started", 9000)
    folder.job(A, "stopped", 8000)
    folder.launch(f"{A}-l000-a00", 0, *((cell, "ok", 5.0, 8500) for cell in IDS), ago=8900)
    folder.lock(".lock", ago=100)
    assert folder.state().measurements_per_hour is None
    folder.job(A, "started", 90)
    assert folder.state().seconds_left is None  # unknown before the first record
    folder.launch(f"{A}-l001-a00", 1, (IDS[0], "ok", 5.0, 45), ago=80)
    assert folder.state().measurements_per_hour == pytest.approx(3600 / 90)


def test_a_job_whose_end_is_unknown_counts_up_to_its_last_record(folder):
    folder.batch(A, launches(0, 1, 2))
    folder.job(A, "started", 9000, job="1")
    folder.launch(f"{A}-l000-a00", 0, (IDS[0], "ok", 5.0, 8400), ago=8900)
    assert folder.state().rank_hours_spent == pytest.approx(600 * 2 / 3600)  # killed, and no job since
    folder.job(A, "stopped", 100, job="1", cause="end not recorded: it was killed, or its node failed")
    folder.job(A, "started", 100, job="2")
    folder.job(A, "finished", 40, job="2")
    assert folder.state().rank_hours_spent == pytest.approx(660 * 2 / 3600)


@pytest.mark.parametrize("ago", [7200 + 40, 40 - 7200])
def test_a_clock_that_is_set_during_a_job_costs_no_hours(folder, ago):
    folder.batch(A, launches(0, 1, 2))
    folder.job(A, "started", ago)
    folder.job(A, "finished", 40, elapsed_s=90.0)
    assert folder.state().rank_hours_spent == pytest.approx(90 * 2 / 3600)
    folder.job(A, "started", -100)  # the clock was set back meanwhile
    assert folder.state().rank_hours_spent == pytest.approx(90 * 2 / 3600)


def test_a_torn_last_line_waits_for_its_end_and_each_line_is_read_once(folder):
    folder.batch(A, launches(0, 1, 2))
    folder.launch(f"{A}-l000-a00", 0, (IDS[0], "ok"))
    whole = json.dumps(record(IDS[1]))
    folder.append(f"{A}-l000-a00", whole[:30])
    files = RunFiles(folder.path)
    assert run_state(files, {}, NOW).num_recorded == 1
    folder.append(f"{A}-l000-a00", whole[30:] + "\n", "[[[no json\n", record(IDS[2]))
    files.update()
    assert run_state(files, {}, NOW).counts == {"ok": 3}
    (folder.path / "launches" / f"{A}-l000-a00.jsonl").write_text("")  # nothing is read twice
    files.update()
    assert run_state(files, {}, NOW).counts == {"ok": 3}
    assert files.measured_rank_s == 3 * 4.0 * 2


def test_a_batch_that_finishes_keeps_the_times_of_its_records_and_the_verdicts_of_its_manifest(folder):
    folder.batch(A, launches(0, 1, 2))
    name = f"{A}-l000-a00"
    folder.launch(name, 0, (IDS[0], "ok", 4.0, 30), (IDS[1], "ok", 4.0, 20))
    files = RunFiles(folder.path)
    folder.append(name, record(IDS[2], ago=10))
    folder.manifest(A, (name, 0, [(IDS[0], "ok", 4.0, 30), (IDS[1], "invalid", None), (IDS[2], "ok", 4.0, 10)]))
    files.update()
    state = run_state(files, {}, NOW)
    assert (state.counts, state.num_finished) == ({"ok": 2}, 1)
    assert [last.time_utc for last in state.last_records] == [utc(10), utc(30), utc(1000)]
    assert [last.status for last in state.last_records] == ["ok", "ok", "invalid"]
    assert files.measured_rank_s == 2 * 4.0 * 2  # each record once


def test_the_end_of_a_job_is_noted_after_the_manifest(folder):
    folder.batch(A, launches(0, 1, 2))
    folder.job(A, "started", 3600)
    files = RunFiles(folder.path)
    folder.manifest(A)
    files.update()
    folder.job(A, "finished", 1800)
    files.update()
    assert run_state(files, {}, NOW).rank_hours_spent == pytest.approx(0.5 * 2)


def test_launch_files_of_finished_batches_are_not_read(folder):
    for name, repeat in ((A, 0), (B, 1)):
        folder.batch(name, launches(repeat))
        folder.launch(f"{name}-l000-a00", repeat, (IDS[0], "failed", 4.0, 100))
        folder.manifest(name, (f"{name}-l000-a00", repeat, [(IDS[0], "ok", 4.0)]))
    assert folder.state().counts == {"ok": 2}


def test_an_edited_campaign_is_followed(folder):
    files = RunFiles(folder.path)
    (folder.path / "campaign.0123456789ab.json").unlink()
    files.update()  # the new one is being written
    assert len(files.planned) == 12
    folder.write("campaign.ba9876543210.json", make_campaign(CELLS[:1], repeats=2))
    files.update()
    assert len(files.planned) == 2


def test_repeats_of_an_imported_cell_are_its_own(tmp_path):
    folder = Folder(tmp_path / "x")
    cells = [CELLS[0] | {"repeats": 1}, CELLS[1]]
    folder.write("campaign.0123456789ab.json", make_campaign(cells))
    assert folder.state().num_planned == 4


@pytest.mark.parametrize("name", ["none", "empty"])
def test_another_folder_is_refused_with_a_remedy(tmp_path, name, wording):
    (tmp_path / "empty").mkdir()
    with wording.raises(UserError):
        RunFiles(tmp_path / name)


def test_what_others_left_in_the_folder_is_passed_over(folder):
    (folder.path / "launches" / "folder.jsonl").mkdir()
    os.mkfifo(folder.path / "launches" / "pipe.jsonl")
    (folder.path / "batches" / "notes").mkdir(parents=True)
    folder.write(f"batches/{A}/batch.json", "{")
    folder.write("plan.json", "[")
    assert folder.state().num_recorded == 0


def test_the_queue_is_asked_at_most_every_15_s_and_its_last_answer_kept(tmp_path, monkeypatch):
    folder = Folder(tmp_path / "results" / "laptop")
    campaign = make_campaign(CELLS)
    folder.write("campaign.0123456789ab.json", campaign | {"cluster": campaign["cluster"] | {"scheduler": "slurm"}})
    folder.batch(A, launches(0, 1, 2))
    asked, answers = [], [{A: "RUNNING"}, None]
    monkeypatch.setattr(
        LAUNCHERS["slurm"].queue,
        "states",
        lambda *arguments: asked.append(arguments) or answers[min(len(asked), 2) - 1],
    )
    watcher = RunWatcher(folder.path)
    assert len(watcher.state(NOW).running) == 1
    assert watcher.state(NOW + 14.9).is_queue_known
    assert asked == [("laptop", tmp_path)]
    later = watcher.state(NOW + 15)
    assert (len(asked), later.is_queue_known, len(later.running)) == (2, False, 1)


def test_nothing_is_written_into_the_results_folder(folder):
    folder.plan(A)
    folder.batch(A, launches(0, 1, 2))
    folder.job(A, "started", 10)
    folder.lock(f"batches/{A}/lock")
    folder.launch(f"{A}-l000-a00", 0, (IDS[0], "ok"))

    def files():
        return {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")}

    before = files()
    RunWatcher(folder.path).state(NOW)
    assert files() == before


def test_hostile_text_stays_on_its_line(folder):
    folder.batch(A, launches(0, 1, 2))
    folder.launch(f"{A}-l000-a00", 0)
    folder.append(f"{A}-l000-a00", record(IDS[0], "\x1b[31mred\n", cause="a\x1b]0;x\x07\nb" + "y" * 10_000))
    state = folder.state()
    assert "\x1b" not in state_text(state) + state.failures[0].cause
    assert "\n" not in state_text(state) + state.failures[0].cause
    assert len(state.failures[0].cause) <= 300


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *(((0.2, 0.3), "about 1.0 s"), ((42.4, 42.4), "about 42 s"), ((1980, 1985), "about 33 min")),
        *(
            ((600, 2940), "10\N{EN DASH}49 min"),
            ((1800, 9000), "0.50\N{EN DASH}2.5 hours"),
            ((727200,) * 2, "about 200 hours"),
        ),
    ],
)
def test_an_estimate_has_two_digits(seconds, text):
    assert span_text(*seconds) == text


def test_the_line_counts_in_thousands(folder, wording):
    state = folder.state()
    large = SimpleNamespace(**vars(state) | {"num_planned": 1212, "counts": {"ok": 1180, "failed": 2}})
    large.num_recorded, large.is_complete = 1182, False
    wording(state_text(large))


def test_a_record_with_fields_of_wrong_types_is_counted(folder):
    folder.batch(A, launches(0, 1, 2))
    folder.launch(f"{A}-l000-a00", 0)
    folder.append(f"{A}-l000-a00", record(IDS[0], "failed", cause=[1]) | {"time_utc": 3})
    state = folder.state()
    assert (state.counts, state.failures[0].cause, state.last_records[0].time_utc) == ({"failed": 1}, "[1]", utc(1000))
