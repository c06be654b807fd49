"""The values for the rules and the end of a run, with a small substitute for Snakemake's workflow object."""

import ctypes
import json
import math
import os
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import yaml
from campaign_files import fake_sif, small
from snakemake.settings.types import ResourceSettings
from synthetic_run import IDS, A, Folder, launches

from regatta.campaign.load import load_campaign
from regatta.core.errors import INCOMPLETE, NOTHING_MEASURED, UNEXPECTED_ERROR, USER_ERROR
from regatta.core.files import hold
from regatta.launchers import LAUNCHERS
from regatta.launchers import slurm_queue as queue
from regatta.launchers.base import end_with_parent
from regatta.run import run_lines
from regatta.run.run_lines import print_progress
from regatta.workflow import Session

PR_GET_PDEATHSIG = 2  # linux/prctl.h
SLURM = {"schema": 1, "name": "tiny", "scheduler": "slurm", "num_nodes": 2, "gpus_per_node": 2, "partition": "p"}
LOCAL = {"schema": 1, "name": "tiny", "scheduler": "none", "num_nodes": 1, "gpus_per_node": 0}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder to call Snakemake in, with a cluster file; and the signal handlers as they were."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(load_campaign, "__defaults__", (tmp_path / "clusters",))
    monkeypatch.setattr(queue, "answer", lambda line, seconds=0: None)
    monkeypatch.setattr(run_lines, "busy_text", lambda: None)  # other tests run beside these
    for name in ("SLURM_JOB_ID", "SLURM_CONF"):
        monkeypatch.delenv(name, raising=False)
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    before = dict(os.environ)
    handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield tmp_path
    release()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    os.environ.clear()
    os.environ.update(before)


HELD = []  # locks of the sessions of a test, which last as long as their process


def release() -> None:
    while HELD:
        HELD.pop().close()


def session(data=None, cluster=LOCAL, arguments=(), targets=("all",), *, is_alone=True, **changes) -> Session:
    """Return the session of one call. is_alone: the session before it has ended. changes: of the workflow object."""
    if is_alone:
        release()
    os.makedirs("clusters", exist_ok=True)
    with open("clusters/tiny.yaml", "w") as file:
        yaml.safe_dump(cluster, file)
    with open("campaign.yaml", "w") as file:
        yaml.safe_dump(data or small(), file, sort_keys=False)
    config = SimpleNamespace(configfiles=["campaign.yaml"], config={})
    dag = SimpleNamespace(targets=set(targets), forcerun=set(), until=set(), omit_from=set())
    fields = {"is_main_process": True, "local_exec": True, "dryrun": False, "touch": False, "nodes": None}
    fields |= {"config_settings": config, "dag_settings": dag, "scheduler": SimpleNamespace(failed=set())}
    names = SimpleNamespace(is_main_snakefile=lambda: True, avail_rulename=lambda name: name)
    fields |= {"modifier": names, "resource_settings": ResourceSettings(), "async_run": None}
    made = Session(SimpleNamespace(**fields | changes), ["snakemake", *arguments], {})
    HELD.extend([made.lock] if made.lock else [])
    return made


def files(folder) -> dict:
    """Return the content and the time of each file of a folder."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def status_of(call, *arguments) -> int:
    with pytest.raises(SystemExit) as ended:
        call(*arguments)
    return ended.value.code


def test_a_campaign_is_planned_and_the_files_of_its_batches_are_named():
    found = session()
    assert found.prices
    assert found.manifests() == sorted(f"results/small/batches/{batch}/manifest.json" for batch in found.prices)
    assert found.workflow.config_settings.configfiles == []  # jobs read what was frozen


def test_a_local_run_asks_for_no_resources_and_a_job_of_slurm_for_its_shape():
    assert session().batch_resources() == {}
    data = small(shapes=[{"nodes": [2], "gpus_per_node": [2]}])
    found = session(data, SLURM, ["-n"], local_exec=False)
    resources = found.batch_resources()
    wildcards = SimpleNamespace(batch=next(iter(found.prices)))
    requested = {key: value(wildcards, attempt=1) for key, value in resources.items()}
    assert requested["nodes"] == 2
    assert {"--partition=p", "--nodes=2", "--ntasks-per-node=2"} <= {*requested["options"].split()}
    assert requested["longest"] == found.plan.campaign.cluster["max_walltime_minutes"]
    assert resources["runtime"](wildcards, attempt=2) == 2 * requested["runtime"]
    [planned] = found.plan.preflights
    wildcards = SimpleNamespace(preflight=planned.id)
    preflight = {key: value(wildcards, attempt=1) for key, value in found.preflight_resources().items()}
    assert preflight["nodes"] == 2
    assert planned.minutes == found.plan.campaign.data["limits"]["launch_start_seconds"] / 60 + 1
    assert preflight["runtime"] == math.ceil(planned.minutes * 1.5) + 5


def test_a_job_on_a_node_plans_nothing():
    found = session(is_main_process=False)
    assert found.plan is None
    assert found.batch_resources() == {"mpi": "srun"}
    assert (str(found.results), found.prices, found.manifests()) == ("results/none", {}, [])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config_settings": SimpleNamespace(configfiles=["a", "b"], config={})}, "a campaign is one file"),
        ({"config_settings": SimpleNamespace(configfiles=["a"], config={"x": 1})}, "--config (x) has no effect"),
        ({"config_settings": SimpleNamespace(configfiles=["none.yaml"], config={})}, "none.yaml"),
    ],
)
def test_what_cannot_be_planned_ends_with_a_message(changes, message, capsys):
    assert status_of(lambda: session(**changes)) == USER_ERROR
    assert message in capsys.readouterr().err


def test_a_results_folder_whose_path_is_not_utf_8_is_refused_and_a_campaign_file_is_not(
    folder, monkeypatch, capsys, wording
):
    odd = os.fsdecode(b"d\xe9")
    settings = SimpleNamespace(configfiles=[f"{odd}.yaml"], config={})
    session()
    os.rename("campaign.yaml", f"{odd}.yaml")
    assert session(config_settings=settings).plan.frozen_campaign.parent.name == "small"
    os.mkdir(odd)
    monkeypatch.chdir(folder / odd)
    monkeypatch.setattr(load_campaign, "__defaults__", (folder / odd / "clusters",))
    assert status_of(session) == USER_ERROR
    wording(capsys.readouterr().err)
    assert not (folder / odd / "results").exists()


@pytest.mark.parametrize(
    ("cluster", "is_local", "message"),
    [(LOCAL, False, "has scheduler none: it has no jobs to submit"), (SLURM, True, "Use --profile profiles/slurm")],
)
def test_the_wrong_profile_is_refused(cluster, is_local, message, capsys):
    found = session(cluster=cluster, arguments=["-n"], local_exec=is_local)
    assert status_of(found.prepare) == USER_ERROR
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("cluster", "is_local"), [(LOCAL, True), (SLURM, False)])
def test_a_campaign_that_runs_already_is_refused_before_it_is_planned(
    folder, monkeypatch, cluster, is_local, capsys, wording
):
    planned = []
    monkeypatch.setattr("regatta.workflow.plan_campaign", lambda *_, **__: planned.append(1))
    with hold(folder / "results" / "small" / ".lock", ""):
        before = files(folder / "results")
        assert status_of(lambda: session(cluster=cluster, local_exec=is_local)) == USER_ERROR
        assert (files(folder / "results"), planned) == (before, [])
    wording(capsys.readouterr().err)


def test_a_run_holds_the_lock_forgets_the_last_gate_and_stops_at_sigterm(monkeypatch):
    monkeypatch.setattr("regatta.workflow.end_jobs", lambda stop, closing: None)
    found = session()
    found.results.mkdir(parents=True, exist_ok=True)
    found.gate_files[0].write_text("ok")
    found.prepare()
    assert not found.gate_files[0].exists()
    assert status_of(lambda: session(is_alone=False)) == USER_ERROR
    assert session(arguments=["plan"], targets=["plan"], is_alone=False).plan  # nothing runs in a plan
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)  # a second one changes nothing
    assert found.is_stopping.is_set()


@pytest.mark.parametrize(
    ("cluster", "changes", "num"),
    [
        (LOCAL, {}, 1),
        (LOCAL, {"dryrun": True}, 0),
        (LOCAL, {"targets": {"plan"}}, 0),
        (SLURM, {"local_exec": False, "arguments": ("-n",)}, 0),
    ],
)
def test_a_busy_machine_is_warned_of_once_before_a_local_run(monkeypatch, capsys, cluster, changes, num):
    busy = "This machine is busy."
    monkeypatch.setattr(run_lines, "busy_text", lambda: busy)
    data = small() if cluster is LOCAL else small(shapes=[{"nodes": [2], "gpus_per_node": [2]}])
    monkeypatch.setattr(Session, "_lock_campaign", lambda *arguments: None)
    session(data, cluster, **changes).prepare()
    assert capsys.readouterr().err.count(busy) == num


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal at the end of a parent is Linux's")
@pytest.mark.parametrize(
    ("cluster", "is_local", "given", "kept"),
    [
        (LOCAL, True, signal.SIGTERM, signal.SIGTERM),  # as run_campaign.py does
        (SLURM, False, signal.SIGTERM, 0),
        (SLURM, False, signal.SIGKILL, signal.SIGKILL),  # set by another parent, such as the init of a container
    ],
)
def test_a_local_run_ends_with_run_campaign_and_one_with_jobs_goes_on(monkeypatch, cluster, is_local, given, kept):
    for name in ("regatta.workflow.end_jobs", "regatta.workflow.print_progress"):
        monkeypatch.setattr(name, lambda *_: None)
    monkeypatch.setattr(LAUNCHERS["slurm"].queue, "wait_for_jobs", lambda campaign, folder: None)
    end_with_parent(given)
    try:
        session(cluster=cluster, local_exec=is_local).prepare()
        number = ctypes.c_int()
        ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(number), 0, 0, 0)
        assert number.value == kept
    finally:
        end_with_parent(0)


def test_measure_is_forced_from_the_command_line_alone(capsys):
    found = session()
    found.workflow.dag_settings.forcerun = {"measure"}
    assert status_of(found.prepare) == USER_ERROR
    assert session(arguments=["--forcerun", "measure"]).is_retry


def test_a_plan_lists_a_missing_image_and_a_run_refuses_it_with_the_same_words(capsys, wording):
    data = small(stacks={"a": {"kind": "contained", "image": "none.sif", "runtime": "apptainer"}})
    assert status_of(lambda: session(data, SLURM, local_exec=False)) == USER_ERROR
    refusal = capsys.readouterr().err
    wording(refusal)
    planned = session(data, SLURM, ["plan"], targets=["plan"])
    planned.prepare()
    assert [missing.text for missing in planned.plan.campaign.missing] == refusal.splitlines()
    fake_sif(planned.plan.campaign.file.path.absolute().parent / "none.sif")
    assert session(data, SLURM, ["-n"], local_exec=False).plan.campaign.missing == ()


def test_a_plan_beside_another_target_is_refused(capsys, wording):
    assert status_of(lambda: session(arguments=["plan", "all"], targets=["plan", "all"])) == USER_ERROR
    wording(capsys.readouterr().err)


def test_a_run_without_results_ends_with_its_status(capsys):
    found = session()
    assert status_of(found.close) == NOTHING_MEASURED
    assert "nothing was measured" in capsys.readouterr().err
    part = session(targets=["measure"])
    assert part.close() is None


def test_a_failed_run_ends_with_the_report_of_what_there_is(monkeypatch, capsys):
    monkeypatch.setattr("regatta.workflow.subprocess.run", lambda line, **_: SimpleNamespace(returncode=0))
    found = session()
    assert status_of(found.close_failed, "x.log") == NOTHING_MEASURED
    assert "Snakemake's log: x.log" in capsys.readouterr().err
    found = session(scheduler=SimpleNamespace(failed=[SimpleNamespace(rules=["collect", "measure"])]))
    assert status_of(found.close_failed, "x.log") == UNEXPECTED_ERROR
    assert "rule collect failed" in capsys.readouterr().err


def test_a_gate_that_failed_has_the_last_word(capsys):
    found = session(targets=["gate"])
    found.results.mkdir(parents=True, exist_ok=True)
    found.gate_files[0].write_text("gate: failed\n")
    assert status_of(found.close_failed, "x.log") == UNEXPECTED_ERROR
    assert capsys.readouterr().out == "gate: failed\n"


def test_a_baseline_campaign_is_checked_before_anything_is_measured(monkeypatch, capsys, wording):
    monkeypatch.setattr("regatta.workflow.end_jobs", lambda stop, closing: None)
    found = session(small(gate={"baseline_campaign": "small"}), targets=["gate"])
    assert status_of(found.prepare) == USER_ERROR
    wording(capsys.readouterr().err)


def test_some_missing_records_are_an_incomplete_run(monkeypatch):
    monkeypatch.setattr("regatta.workflow.run_status", lambda *arguments: (INCOMPLETE, "1 of 2"))
    assert status_of(session().close) == INCOMPLETE


def test_lines_are_printed_while_jobs_run(monkeypatch):
    started = []
    monkeypatch.setattr("regatta.workflow.end_jobs", lambda stop, closing: None)
    monkeypatch.setattr(
        "regatta.workflow.print_progress", lambda results, stop, closing, _: started.append(str(results))
    )

    def starts(cluster=LOCAL, **changes) -> bool:
        started.clear()
        found = session(cluster=cluster, **changes)
        found.prepare()
        deadline = time.monotonic() + 0.2
        while not started and time.monotonic() < deadline:
            time.sleep(0.01)
        return started == ["results/small"]

    monkeypatch.setattr(LAUNCHERS["slurm"].queue, "wait_for_jobs", lambda campaign, folder: None)
    assert starts()
    assert starts(SLURM, local_exec=False)
    assert not starts(targets=["plan"], arguments=["plan"])
    assert not starts(dryrun=True)


def test_a_line_is_printed_after_each_change_until_the_run_closes(folder, monkeypatch, capfd):
    monkeypatch.setattr("regatta.run.run_lines.PROGRESS_SECONDS", 0.02)
    stop, closing = threading.Event(), threading.Event()
    results, made = folder / "results" / "laptop", Folder(folder / "new")
    thread = threading.Thread(target=print_progress, args=(results, stop, closing))
    thread.start()
    time.sleep(0.1)  # nothing is frozen yet
    made.batch(A, launches(0, 1, 2))
    results.parent.mkdir()
    for num in (1, 2):
        made.launch(f"{A}-l00{num}-a00", num, (IDS[0], "ok"))
        if num == 1:
            made.path = made.path.rename(results)
        text, deadline = "", time.monotonic() + 20
        while not text.endswith("\n") and time.monotonic() < deadline:
            time.sleep(0.01)
            text += capfd.readouterr().err
        line = f"laptop: {num} of 12 measurements ({num} ok), 0 batches running, 0 queued, no run is active\n"
        assert text == line
    time.sleep(0.1)
    assert capfd.readouterr().err == ""
    closing.set()
    thread.join(10)
    assert not thread.is_alive()


def test_no_line_is_printed_after_a_signal_or_without_a_reader(folder, monkeypatch, capfd):
    monkeypatch.setattr("regatta.run.run_lines.PROGRESS_SECONDS", 0.01)
    Folder(folder / "results" / "laptop")
    stop = threading.Event()
    stop.set()
    print_progress(folder / "results" / "laptop", stop, threading.Event())
    assert capfd.readouterr().err == ""
    read, write = os.pipe()
    os.close(read)
    monkeypatch.setattr("sys.stderr", SimpleNamespace(fileno=lambda: write))
    print_progress(folder / "results" / "laptop", threading.Event(), threading.Event())  # returns
    os.close(write)


def test_a_stack_that_fails_the_preflight_is_announced_at_once(folder, monkeypatch, capfd, wording):
    monkeypatch.setattr("regatta.run.run_lines.PREFLIGHT_SECONDS", 0.02)
    results = folder / "results" / "laptop"
    (results / "preflight").mkdir(parents=True)

    def write(name, stacks):
        entries = [
            {"stack": s, "verdict": {"ok": not problems, "problems": problems}} for s, problems in stacks.items()
        ]
        draft = results / "draft"
        draft.write_text(json.dumps({"stacks": entries}))
        draft.replace(results / "preflight" / f"preflight-{name}.json")

    write("0" * 12, {"old": ["of an earlier run"]})
    stop, closing = threading.Event(), threading.Event()
    thread = threading.Thread(target=print_progress, args=(results, stop, closing, True))
    thread.start()
    time.sleep(0.1)
    write("1" * 12, {"works": [], "broken": ["no such\nimage"]})
    text, deadline = "", time.monotonic() + 20
    while not text and time.monotonic() < deadline:
        time.sleep(0.02)
        text += capfd.readouterr().err
    closing.set()
    thread.join(10)
    wording(text)
