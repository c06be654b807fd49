"""The supervisor, with launches simulated by fake_launch.py: every way in which a launch can end."""

import json
import os
import pwd
import re
import signal
import subprocess
import sys

import campaigns
import pytest
from campaigns import fake_campaign, frozen_batches, lines, record_lines, script, slots, wait_until

from regatta.core.files import hold, hold_machine

NUM_RECORDS = 14  # (3 cells on 1x1 + 4 on 1x2) x 2 repeats


def measure_all(folder, campaign):
    """Measure every batch of a campaign; return the results folder."""
    for batch in frozen_batches(folder, campaign):
        script(folder, "measure.py", "--batch", str(batch))
    return folder / "results" / "small"


def by_status(results):
    counts = {}
    for record in record_lines(results):
        counts[record["status"]] = counts.get(record["status"], 0) + 1
    return counts


def test_every_cell_is_measured_once_in_each_repeat_and_only_the_result_is_printed(tmp_path):
    results = tmp_path / "results" / "small"
    for batch, num in zip(frozen_batches(tmp_path, fake_campaign()), (6, 8), strict=True):
        done = script(tmp_path, "measure.py", "--batch", str(batch))
        assert (done.stdout, done.stderr) == (f"{batch.name}: {num} ok\n", "")
    assert by_status(results) == {"ok": NUM_RECORDS}
    assert len(set(slots(results))) == NUM_RECORDS
    assert len(list((results / "launches").iterdir())) == 4  # 2 shapes x 2 repeats
    assert {line["generation"] for line in lines(results) if line["kind"] == "launch"} == {1}
    for manifest in results.glob("batches/*/manifest.json"):
        assert json.loads(manifest.read_text())["counts"]["ok"] in (6, 8)


@pytest.mark.parametrize(
    ("fault", "status", "phase", "cause"),
    [
        ("raise", "failed", "measure", "rank 0 on fake: ValueError: the fake cell raised"),
        ("oom", "out_of_memory", "measure", "rank 0 on fake: RuntimeError: can't allocate memory"),
        ("killed", "failed", None, "rank 0 was killed by SIGKILL"),
        ("torn", "failed", None, "rank 0 was killed by SIGKILL"),
        ("check", "failed", "check", "loss_is_finite is false"),
    ],
)
def test_a_cell_that_fails_is_recorded_with_its_cause_and_the_rest_is_measured(tmp_path, fault, status, phase, cause):
    results = measure_all(tmp_path, fake_campaign({"ddp-1-n01g02": fault}))
    assert by_status(results) == {"ok": NUM_RECORDS - 2, status: 2}
    failed = [record for record in record_lines(results) if record["status"] != "ok"]
    assert {(r["status"], r["phase"], r["cause"]) for r in failed} == {(status, phase, cause)}
    assert len(set(slots(results))) == NUM_RECORDS
    unknown = dict.fromkeys(("samples_ns", "warmup", "sampling", "windows", "memory", "checks"))
    assert all(record | unknown == record for record in failed if record["writer"] == "driver")
    assert [record["writer"] for record in failed].count("driver") == (0 if phase == "check" else 2)


def test_a_cell_that_hangs_becomes_a_timeout_and_leaves_no_process(tmp_path, wording):
    campaign = fake_campaign({"ddp-25-n01g01": "hang"}, limits={"cell_seconds": 3, "launch_start_seconds": 30})
    results = measure_all(tmp_path, campaign)
    assert by_status(results) == {"ok": NUM_RECORDS - 2, "timeout": 2}
    late = [record for record in record_lines(results) if record["status"] == "timeout"]
    load = r"; other processes used \d+ % of the CPU time"  # other tests run beside this one
    for record in late:
        wording(re.sub(load, "", record["cause"]))
        [host] = record["host_load"]["hosts"]
        assert 2.5e9 <= host["elapsed_ns"] < 60e9
        assert host["ranks_cpu_ns"] < host["elapsed_ns"]  # the fake launch sleeps
        assert host["busy_ns"] <= 1.1 * host["num_cores"] * host["elapsed_ns"]
    assert campaigns.processes_naming(str(tmp_path)) == []


def test_a_launch_that_never_starts_is_tried_twice_and_further_ones_of_its_stack_are_not(tmp_path, wording):
    results = measure_all(tmp_path, fake_campaign(env={"FAKE_LAUNCH": "no_start"}, repeats=3))
    assert by_status(results) == {"failed": 7, "skipped": 14}  # 7 cells in each repeat
    wording({(r["phase"], r["cause"]) for r in record_lines(results) if r["status"] == "failed"})
    headers = [line for line in lines(results) if line["kind"] == "launch"]
    assert {header["environment"] for header in headers} == {None}
    assert {header["launch"][-3:] for header in headers if header["repeat"] == 0} == {"a01"}
    skipped = [record for record in record_lines(results) if record["status"] == "skipped"]
    assert {record["repeat"] for record in skipped} == {1, 2}
    wording({(record["phase"], record["cause"]) for record in skipped})
    for manifest in results.glob("batches/*/manifest.json"):
        # Two tries of the first launch; of the others only what was asked for and why it was not.
        assert len(list((manifest.parent / "logs").iterdir())) == 2
        assert set(json.loads(manifest.read_text())["counts"]) == {"failed", "skipped"}


def test_a_stack_whose_python_does_not_exist_does_not_stop_another(tmp_path, wording):
    campaign = fake_campaign()
    campaign["stacks"]["broken"] = {"kind": "host", "python": "no-such-python"}
    results = measure_all(tmp_path, campaign)
    counts = {stack: {} for stack in campaign["stacks"]}
    for record in record_lines(results):
        of_stack = counts[record["spec"]["stack"]["name"]]
        of_stack[record["status"]] = of_stack.get(record["status"], 0) + 1
    assert counts == {"host": {"ok": NUM_RECORDS}, "broken": {"failed": 7, "skipped": 7}}
    wording({record["cause"] for record in record_lines(results) if record["status"] == "failed"})
    assert {line["generation"] for line in lines(results) if line["kind"] == "launch"} == {1}  # also by the driver


def test_after_three_cells_that_fail_alike_the_rest_of_a_stack_is_not_started(tmp_path):
    sizes = [4096 * 2**i for i in range(6)]
    entry = {"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": sizes}}
    shapes = [{"nodes": [1], "gpus_per_node": [2]}]
    campaign = fake_campaign({"all_reduce": "raise"}, benchmarks=[entry], shapes=shapes)
    campaign["stacks"]["good"] = {"kind": "host", "python": campaign["stacks"]["host"]["python"]}
    results = measure_all(tmp_path, campaign)
    found = {"host": [], "good": []}
    for record in record_lines(results):
        found[record["spec"]["stack"]["name"]].append((record["status"], record["cause"]))
    assert set(found["good"]) == {("ok", None)}
    assert len(found["good"]) == len(found["host"]) == 12
    failed = "rank 0 on fake: ValueError: the fake cell raised"
    assert found["host"].count(("failed", failed)) == 3
    reason = f"not started: the first 3 cells of stack host failed with the same error: {failed}"
    assert found["host"].count(("skipped", reason)) == 9


def test_a_supervisor_that_goes_on_knows_which_cells_failed_before(tmp_path):
    """Two cells failed alike when it was stopped: with the third, the stack is given up."""
    sizes = [4096 * 2**i for i in range(5)]
    entry = {"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": sizes}}
    shapes = [{"nodes": [1], "gpus_per_node": [2]}]
    campaign = fake_campaign({"all_reduce": "raise"}, benchmarks=[entry], shapes=shapes, repeats=1)
    [batch] = frozen_batches(tmp_path, campaign)
    script(tmp_path, "measure.py", "--batch", str(batch))
    results = batch.parent.parent
    assert by_status(results) == {"failed": 3, "skipped": 2}
    files = sorted((results / "launches").iterdir())
    for file in files[2:]:  # what was written after the second failure
        file.unlink()
    (batch / "manifest.json").unlink()
    script(tmp_path, "measure.py", "--batch", str(batch))
    assert by_status(results) == {"failed": 3, "skipped": 2}


def test_stacks_that_the_preflight_failed_are_held_back_without_a_record(tmp_path, wording):
    campaign = fake_campaign(repeats=1)
    campaign["stacks"]["good"] = {"kind": "host", "python": campaign["stacks"]["host"]["python"]}
    for batch in frozen_batches(tmp_path, campaign):
        frozen = json.loads((batch / "batch.json").read_text())
        results = batch.parent.parent
        verdict = {"ok": False, "problems": ["NCCL uses Socket."]}
        passed = {"ok": True, "problems": []}
        (results / "preflight").mkdir(exist_ok=True)
        stacks = [{"stack": "host", "verdict": verdict}, {"stack": "good", "verdict": passed}]
        (results / "preflight" / "preflight-1.json").write_text(json.dumps({"stacks": stacks}))
        (batch / "batch.json").write_text(json.dumps(frozen | {"preflight": "preflight-1"}))
        done = script(tmp_path, "measure.py", "--batch", str(batch))
        wording.lines(done.stderr, "not started: stack")
        manifest = json.loads((batch / "manifest.json").read_text())
        wording(manifest["held"])
        assert {launch["stack"] for launch in manifest["launches"]} == {"good"}
    assert {record["spec"]["stack"]["name"] for record in record_lines(results)} == {"good"}
    assert by_status(results) == {"ok": 7}


def test_a_script_edited_after_planning_ends_its_stack_and_the_next_plan_has_its_cells(tmp_path, wording):
    python = tmp_path / "env.sh"
    python.write_text(f'#!/bin/sh\nexec {campaigns.FAKE} "$@"\n')
    python.chmod(0o755)
    campaign = fake_campaign(repeats=1)
    good = campaign["stacks"]["host"]
    campaign["stacks"] = {"good": good, "host": good | {"python": str(python)}}
    [batch, *_] = frozen_batches(tmp_path, campaign)
    python.write_text(python.read_text().replace("exec", "export MODULES=new; exec"))
    done = script(tmp_path, "measure.py", "--batch", str(batch))
    wording.lines(done.stderr, "was edited after")
    results = batch.parent.parent
    assert {record["spec"]["stack"]["name"] for record in record_lines(results)} == {"good"}
    script(tmp_path, "plan.py", "--campaign", "campaign.yaml")
    cells = json.loads((results / "plan.json").read_text())["cells"]
    reasons = {
        cell["reason"].partition(" {")[0] for cell in cells if "-host-" in cell["id"] and cell["status"] == "todo"
    }
    assert reasons == {"changed: stack.scripts"}


def test_a_launch_that_is_silent_is_a_timeout_of_the_launch(tmp_path):
    limits = {"cell_seconds": 30, "launch_start_seconds": 0.4}
    results = measure_all(tmp_path, fake_campaign(env={"FAKE_LAUNCH": "silent"}, limits=limits, repeats=1))
    assert {(r["status"], r["phase"]) for r in record_lines(results)} == {("timeout", "launch")}


def test_a_record_that_the_analysis_refuses_is_not_measured_again_for_ever(tmp_path, wording):
    shapes = [{"nodes": [1], "gpus_per_node": [2]}]
    results = measure_all(tmp_path, fake_campaign({"all_reduce-4096-": "invalid"}, shapes=shapes, repeats=1))
    causes = {record["cause"] for record in record_lines(results) if record["writer"] == "driver"}
    wording(causes)
    [batch] = results.glob("batches/*")
    assert len(list((batch / "launches").iterdir())) == 3  # all cells, and the one twice more


def test_a_launch_that_ends_without_its_last_line_keeps_its_records(tmp_path):
    results = measure_all(tmp_path, fake_campaign(env={"FAKE_LAUNCH": "no_complete"}))
    assert by_status(results) == {"ok": NUM_RECORDS}


def test_a_full_disk_stops_the_batch_with_a_message_and_keeps_the_store_readable(tmp_path, wording):
    batch = frozen_batches(tmp_path, fake_campaign({"ddp-25": "no_space"}, repeats=1))[0]
    done = script(tmp_path, "measure.py", "--batch", str(batch), check=False)
    assert done.returncode == 2
    wording.lines(done.stderr, "cannot write the")
    wording.lines(done.stderr, "Completed measurements are")
    assert not (batch / "manifest.json").exists()
    assert all("kind" in line for line in lines(batch.parent.parent))


def test_a_supervisor_that_is_started_again_measures_only_what_is_missing(tmp_path):
    batches = frozen_batches(tmp_path, fake_campaign())
    for batch in batches:
        script(tmp_path, "measure.py", "--batch", str(batch))
    results = tmp_path / "results" / "small"
    removed = sorted((results / "launches").glob("n01g02-*-l001-a00.jsonl"))[0]
    before = slots(results)
    text = removed.read_text().splitlines()
    removed.write_text("\n".join(text[:3]) + "\n")  # header, start, record of the first cell
    for batch in batches:
        script(tmp_path, "measure.py", "--batch", str(batch))
    assert slots(results) == before
    again = json.loads((results / "launches" / removed.name.replace("-a00", "-a01")).read_text().splitlines()[0])
    assert len(again["order"]) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_ranks_and_keeps_what_was_measured(tmp_path, number):
    batch = frozen_batches(tmp_path, fake_campaign(env={"FAKE_CELL_SECONDS": "0.3"}, repeats=4))[-1]
    line = [sys.executable, str(campaigns.SCRIPTS / "measure.py"), "--batch", str(batch)]
    process = subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    results = tmp_path / "results" / "small"
    wait_until(lambda: len(record_lines(results)) >= 2)
    process.send_signal(number)
    _, message = process.communicate(timeout=100)
    assert process.returncode == 128 + number
    assert f"stopped ({number.name})" in message
    assert campaigns.processes_naming(str(tmp_path)) == []
    assert lines(results)[-1]["kind"] == "stopped"
    kept = slots(results)
    script(tmp_path, "measure.py", "--batch", str(batch))
    assert set(kept) <= set(slots(results))
    assert len(slots(results)) == len(set(slots(results))) == 16


def test_kill_9_of_the_supervisor_ends_the_ranks_and_loses_nothing(tmp_path):
    batch = frozen_batches(tmp_path, fake_campaign(env={"FAKE_CELL_SECONDS": "0.3"}, repeats=4))[-1]
    line = [sys.executable, str(campaigns.SCRIPTS / "measure.py"), "--batch", str(batch)]
    process = subprocess.Popen(line, cwd=tmp_path)
    results = tmp_path / "results" / "small"
    wait_until(lambda: len(record_lines(results)) >= 2)
    process.kill()
    process.wait()
    wait_until(lambda: campaigns.processes_naming(str(tmp_path)) == [])
    kept = slots(results)
    script(tmp_path, "measure.py", "--batch", str(batch))
    assert set(kept) <= set(slots(results))
    assert len(slots(results)) == len(set(slots(results))) == 16


def test_a_second_supervisor_on_one_batch_is_told_so(tmp_path, wording):
    batch = frozen_batches(tmp_path, fake_campaign())[0]
    with hold(batch / "lock", "taken"):  # as the first supervisor does
        second = script(tmp_path, "measure.py", "--batch", str(batch), check=False)
    assert second.returncode == 2
    wording.lines(second.stderr, "another supervisor is")


def test_batches_of_campaigns_in_any_folders_take_turns_on_the_machine(tmp_path, wording):
    batch = frozen_batches(tmp_path, fake_campaign())[0]
    line = [sys.executable, str(campaigns.SCRIPTS / "measure.py"), "--batch", str(batch)]
    with hold_machine():  # as the other campaign's supervisor does, in its folder
        process = subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        user = pwd.getpwuid(os.getuid()).pw_name
        wording.lines(process.stderr.readline(), ": waiting: another", user=f"by {user}")
        assert record_lines(tmp_path / "results" / "small") == []
    assert process.wait(timeout=100) == 0
    assert len(record_lines(tmp_path / "results" / "small")) == 6


def test_a_launch_that_ends_well_without_a_record_is_not_repeated_for_ever(tmp_path, wording):
    results = measure_all(tmp_path, fake_campaign({"ddp-1-n01g02": "forgotten"}))
    assert by_status(results) == {"ok": NUM_RECORDS - 2, "failed": 2}
    causes = {record["cause"] for record in record_lines(results) if record["status"] == "failed"}
    wording(causes)


def with_prologue(folder, text, **changes):
    """Return a campaign whose stack sources a file with this text; each run of it adds a line to the file `runs`."""
    (folder / "env.sh").write_text(f"echo once >>{folder}/runs\n{text}\n")
    campaign = fake_campaign(**changes)
    campaign["stacks"]["host"]["prologue"] = [{"source": str(folder / "env.sh")}]
    return campaign


def test_a_prologue_runs_once_per_job_and_its_variables_reach_all_launches(tmp_path):
    results = measure_all(tmp_path, with_prologue(tmp_path, "export OMP_OF_SITE=7"))
    assert by_status(results) == {"ok": NUM_RECORDS}
    headers = [line for line in lines(results) if line["kind"] == "launch"]
    assert [header["environment"]["variables"]["OMP_OF_SITE"] for header in headers] == ["7"] * 4
    assert (tmp_path / "runs").read_text() == "once\n" * 2  # one job for each of two shapes


def test_a_stack_whose_prologue_fails_is_held_back_and_another_is_measured(tmp_path, wording):
    campaign = with_prologue(tmp_path, "echo no license >&2; return 7")
    campaign["stacks"]["good"] = {key: v for key, v in campaign["stacks"]["host"].items() if key != "prologue"}
    results = measure_all(tmp_path, campaign)
    assert {record["spec"]["stack"]["name"] for record in record_lines(results)} == {"good"}
    assert by_status(results) == {"ok": NUM_RECORDS}
    for path in results.glob("batches/*/manifest.json"):
        held = json.loads(path.read_text())["held"]
        wording(held["host"])
    assert len(frozen_batches(tmp_path, campaign)) == 2  # the next plan includes it again


def test_the_preflight_names_a_prologue_that_fails_with_its_output(tmp_path, wording):
    campaign = with_prologue(tmp_path, "echo no license >&2; return 7")
    frozen_batches(tmp_path, campaign)
    [folder] = [path.parent for path in (tmp_path / "results" / "small").glob("preflight/*/request.json")]
    script(tmp_path, "preflight.py", "--folder", str(folder))
    [stack] = json.loads(folder.with_suffix(".json").read_text())["stacks"]
    [problem] = stack["verdict"]["problems"]
    assert not stack["verdict"]["ok"]
    wording(problem)
    assert "no license" in (folder.parent / folder.name / "host-00.log").read_text()


def test_a_prologue_may_provide_the_runtime_and_runs_outside_of_the_image(tmp_path):
    """The runtime is played by a script that drops the words up to the image, and its own variables."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "apptainer").write_text('#!/bin/sh\nuntil [ "${1%.sif}" != "$1" ]; do shift; done; shift\nexec "$@"\n')
    (tools / "apptainer").chmod(0o755)
    header = bytes(32) + b"SIF_MAGIC\0".ljust(16, b"\0") + bytes(range(1, 17))
    (tmp_path / "a.sif").write_bytes(header)
    campaign = with_prologue(tmp_path, f"export OMP_OF_SITE=7 PATH={tools}:$PATH")
    stack = campaign["stacks"]["host"]
    campaign["stacks"]["host"] = stack | {"kind": "contained", "image": str(tmp_path / "a.sif")}
    results = measure_all(tmp_path, campaign)
    assert by_status(results) == {"ok": NUM_RECORDS}
    headers = [line for line in lines(results) if line["kind"] == "launch"]
    assert {header["argv"][0] for header in headers} == {"apptainer"}
    assert {header["environment"]["variables"]["OMP_OF_SITE"] for header in headers} == {"7"}
