"""The whole workflow through Snakemake, with launches simulated by fake_launch.py: edits, kills, errors."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import time

import campaigns
import pytest
from campaigns import (
    REAL_REPORT,
    fake_campaign,
    record_lines,
    slots,
    snakemake,
    snakemake_line,
    start_snakemake,
    wait_until,
    write_campaign,
)

import warm_start
from regatta.store.checksums import sealed_file
from warm_start import was_idle

NUM_RECORDS = 14
SLOW = {"FAKE_CELL_SECONDS": "0.3"}


def collectives_alone(faults: dict, **changes) -> dict:
    """Return a campaign of one batch: two cells."""
    collectives = fake_campaign()["benchmarks"][1:]
    shapes = [{"nodes": [1], "gpus_per_node": [2]}]
    return fake_campaign(faults, benchmarks=collectives, shapes=shapes, **changes)


def planned_batches(output: str) -> int:
    """Return how many measure jobs a dry run lists."""
    found = re.search(r"^measure\s+(\d+)$", output, re.MULTILINE)
    return int(found[1]) if found else 0


def dry_run(folder, campaign, *arguments):
    done = snakemake(folder, campaign, "-n", *arguments)
    assert done.returncode == 0, done.stderr
    return planned_batches(done.stdout + done.stderr)


def run(folder, campaign, *arguments, **options):
    done = snakemake(folder, campaign, *arguments, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_a_campaign_ends_in_a_report_and_a_second_run_does_nothing(finished, tmp_path):
    path, results = finished
    assert len(slots(results)) == NUM_RECORDS
    pages = "report.html plan.html plan.txt answer.json plan.json measurements.csv"
    for name in [*pages.split(), "cells.csv", "tables/failures.csv"]:
        assert (results / name).stat().st_size > 0
    stamps = {p: p.stat().st_mtime_ns for p in results.rglob("*") if p.is_file() and p.name != ".lock"}
    again = run(tmp_path, path)
    assert was_idle(again)
    assert stamps == {p: p.stat().st_mtime_ns for p in results.rglob("*") if p.is_file() and p.name != ".lock"}


def test_the_launches_of_a_cell_are_spread_over_allocations_and_paired_within_each(tmp_path, wording):
    """2 shapes with 2 jobs each, of 2 launches of 2 stacks: stacks are paired within the jobs, which are the units."""
    host = fake_campaign()["stacks"]["host"]
    stacks = {"host": host, "other": host | {"env": host["env"] | {"OTHER": "1"}}}
    path = write_campaign(tmp_path, fake_campaign(stacks=stacks, repeats=4, allocations=2))
    results = tmp_path / "results" / "small"
    assert dry_run(tmp_path, path) == 4
    done = snakemake(tmp_path, path, env=REAL_REPORT)
    assert done.returncode == 0, done.stderr
    batches = [json.loads(file.read_text()) for file in results.glob("batches/*/batch.json")]
    repeats = sorted((batch["gpus_per_node"], *{launch["repeat"] for launch in batch["launches"]}) for batch in batches)
    assert repeats == [(1, 0, 1), (1, 2, 3), (2, 0, 1), (2, 2, 3)]
    assert json.loads(next(results.glob("campaign.*.json")).read_text())["allocations"] == 2
    with (results / "tables" / "comparisons.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["is_paired"], row["num_launches"]) for row in rows} == {("True", "4")}
    wording({row["test"] for row in rows})
    assert dry_run(tmp_path, path) == 0
    max(results.glob("launches/*.jsonl")).unlink()
    assert dry_run(tmp_path, path) == 1
    assert snakemake(tmp_path, path).returncode == 0
    assert len(set(slots(results))) == len(slots(results)) == 4 * 14
    assert dry_run(tmp_path, path) == 0


def test_damage_of_the_same_size_is_named_and_measured_again_by_the_same_command(finished, tmp_path):
    path, results = finished
    before = {slot: record["samples_ns"] for slot, record in zip(slots(results), ordered(results), strict=True)}
    damaged = sorted((results / "launches").glob("n01g02-*-l001-a00.jsonl"))[0]
    stamp, content = damaged.stat(), damaged.read_bytes()
    record = [line for line in content.splitlines() if b'"kind":"record"' in line][1]
    zeroed = content.replace(record, record[:20] + bytes(len(record) - 20))
    damaged.write_bytes(zeroed)
    os.utime(damaged, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    planned = run(tmp_path, path, "plan")
    assert f"({damaged.name})" in planned.stdout
    again = run(tmp_path, path)
    assert f"results/small: {damaged.name}: " in again.stderr
    assert damaged.read_bytes() == zeroed
    after = {slot: record["samples_ns"] for slot, record in zip(slots(results), ordered(results), strict=True)}
    assert after == before
    with (results / "measurements.csv").open(newline="") as file:
        assert {row["status"] for row in csv.DictReader(file) if row["repeat"]} == {"ok"}
    assert damaged.name in (results / "report.html").read_text()
    assert dry_run(tmp_path, path) == 0


def ordered(results):
    return sorted(record_lines(results), key=lambda record: (record["cell"], record["repeat"]))


def test_a_dry_run_lists_exactly_the_batches_with_something_left_and_writes_nothing(finished, tmp_path):
    """Without what Snakemake noted, and regardless of times."""
    path, results = finished
    shutil.rmtree(tmp_path / ".snakemake")
    for file in tmp_path.rglob("batch.json"):
        os.utime(file)
    assert dry_run(tmp_path, path) == 0
    shutil.rmtree(results.parent)
    assert dry_run(tmp_path, path) == 2
    assert not results.parent.exists()


def test_editing_one_value_measures_only_the_new_cells_and_reverting_measures_none(finished, tmp_path):
    path, results = finished
    first = slots(results)
    original = path.read_text()
    text = original.replace("- 65536", "- 65536\n    - 262144")
    assert text != original
    path.write_text(text)
    assert dry_run(tmp_path, path) == 1
    run(tmp_path, path)
    new = [slot for slot in slots(results) if slot not in first]
    assert len(new) == 2
    assert all("262144" in cell for cell, _ in new)
    assert "262144" in (results / "report.html").read_text()
    path.write_text(original)
    assert dry_run(tmp_path, path) == 0
    run(tmp_path, path)
    assert len(slots(results)) == NUM_RECORDS + 2
    assert "262144-n01g02" not in (results / "measurements.csv").read_text()


def test_a_bad_edit_leaves_the_results_alone_and_mending_it_measures_nothing(finished, tmp_path):
    path, results = finished
    report, before, original = (results / "report.html").read_bytes(), slots(results), path.read_text()
    path.write_text(original.replace("repeats: 2", "repeats: none"))
    assert snakemake(tmp_path, path).returncode == 2
    assert (results / "report.html").read_bytes() == report
    assert slots(results) == before
    path.write_text(original)
    assert dry_run(tmp_path, path) == 0


def test_a_report_that_runs_out_of_memory_keeps_the_previous_one(finished, tmp_path):
    """Its process is killed, also that of the partial report that follows."""
    path, results = finished
    kept = [results / name for name in ("report.html", "answer.json")]
    before = [page.read_bytes() for page in kept]
    (tmp_path / "kill").mkdir()
    kill = "import os, sys\nif any(word.endswith('report.py') for word in sys.orig_argv):\n"
    kill += "    is_read = lambda event, args: event == 'open' and str(args[0]).endswith('cells.csv')\n"
    kill += "    sys.addaudithook(lambda *event: is_read(*event) and os.kill(os.getpid(), 9))\n"
    (tmp_path / "kill" / "sitecustomize.py").write_text(kill)
    problems = results / "problems.json"
    problems.write_text(problems.read_text() + "\n")  # the report is out of date
    done = snakemake(tmp_path, path, env=REAL_REPORT | {"PYTHONPATH": str(tmp_path / "kill")})
    assert done.returncode == 1
    assert "SIGKILL" in done.stderr
    assert [page.read_bytes() for page in kept] == before


def test_what_is_deleted_is_made_again_from_the_store_and_an_edit_reaches_the_report(finished, tmp_path):
    """Both without Snakemake's metadata."""
    path, results = finished
    shutil.rmtree(tmp_path / ".snakemake")
    report = (results / "report.html").read_bytes()
    for name in ("measurements.csv", "problems.json", "cells.csv", "report.html"):
        (results / name).unlink()
    run(tmp_path, path, env=REAL_REPORT)
    assert (results / "report.html").read_bytes() == report
    shutil.rmtree(tmp_path / ".snakemake")
    path.write_text(path.read_text().replace("repeats: 2", "repeats: 1\ndescription: once is enough"))
    run(tmp_path, path)
    assert "once is enough" in (results / "report.html").read_text()
    assert len(slots(results)) == NUM_RECORDS


def test_forcerun_measure_retries_what_is_not_ok_and_only_that(tmp_path):
    path = write_campaign(tmp_path, collectives_alone({"65536": "raise"}))
    run(tmp_path, path)
    results = tmp_path / "results" / "small"
    before = slots(results)
    assert dry_run(tmp_path, path) == 0
    assert dry_run(tmp_path, path, "--forcerun", "measure") == 1
    run(tmp_path, path, "--forcerun", "measure")
    after = slots(results)
    assert sorted(set(after)) == sorted(set(before))
    assert {slot for slot in after if after.count(slot) == 2} == {slot for slot in before if "65536" in slot[0]}
    assert was_idle(run(tmp_path, path))
    run(tmp_path, path, "--forcerun", "measure")
    assert len(slots(results)) == len(before) + 4


@pytest.mark.system
def test_a_retry_counts_although_the_clock_was_ahead_before(tmp_path):
    """Also where the files themselves are newer than all that follows."""
    path = write_campaign(tmp_path, collectives_alone({"65536": "raise"}, repeats=1))
    run(tmp_path, path)
    results = tmp_path / "results" / "small"
    for file in [*results.glob("launches/*.jsonl"), *results.glob("batches/*/manifest.json")]:
        later = re.sub(r"20\d\d(-\d\d-\d\dT)", r"2036\1", file.read_text())
        if file.suffix == ".jsonl":
            lines = [json.loads(line) for line in later.splitlines()]
            kept = [{k: v for k, v in line.items() if k not in ("line", "checksum", "digest")} for line in lines]
            later = sealed_file(kept, file.stem).decode()
        file.write_text(later)
    for file in results.rglob("*"):
        os.utime(file, (2_110_000_000, 2_110_000_000))
    run(tmp_path, path, "--forcerun", "measure")
    problems = json.loads((results / "problems.json").read_text())
    superseded = {(place["cell"], place["launch"]): place["by"].partition(":")[0] for place in problems["superseded"]}
    assert len(superseded) == 1
    rows = {row["cell"]: row["launch"] for row in csv.DictReader((results / "measurements.csv").open())}
    for (cell, old), new in superseded.items():
        assert (rows[cell], rows[cell] != old) == (new, True)
    assert {place["launch"] for place in problems["after_now"]} >= {launch for _, launch in superseded}
    assert dry_run(tmp_path, path) == 0


@pytest.mark.parametrize("flags", [[], ["--replace-workflow-config"]])
def test_a_campaign_inherits_nothing_from_the_default_one(tmp_path, flags):
    campaign = fake_campaign()
    del campaign["sampling"], campaign["limits"]
    path = write_campaign(tmp_path, campaign)
    run(tmp_path, path, *flags, "plan")
    plan = json.loads((tmp_path / "results" / "small" / "plan.json").read_text())
    assert all("mobilenet" not in cell["id"] for cell in plan["cells"])
    schema_defaults = 5.0 + 1.3 * 10.0  # warm-up and sampling; the default campaign's are 1.0 and 1.5
    assert {cell["seconds_per_launch"] for cell in plan["cells"] if cell["status"] == "todo"} == {schema_defaults}
    del campaign["repeats"]
    done = snakemake(tmp_path, write_campaign(tmp_path, campaign), *flags, "-n")
    assert done.returncode == 2
    assert "lacks repeats" in done.stdout + done.stderr


def test_two_campaign_files_or_config_values_are_refused(tmp_path, wording):
    path = write_campaign(tmp_path, fake_campaign())
    done = snakemake(tmp_path, path, "-n", "--config", "repeats=5")
    assert done.returncode == 2
    wording.lines(done.stdout + done.stderr, "--config (repeats) has")
    other = write_campaign(tmp_path, fake_campaign(), "other.yaml")
    done = warm_start.run([*snakemake_line(path, "-n"), str(other)], cwd=tmp_path)
    assert done.returncode == 2
    wording.lines(done.stdout + done.stderr, "a campaign is")


def test_a_mistake_is_one_message_with_file_and_line_and_nothing_is_run(tmp_path):
    path = write_campaign(tmp_path, fake_campaign())
    path.write_text(path.read_text().replace("repeats: 2", "repeat: 2"))
    done = snakemake(tmp_path, path)
    output = done.stdout + done.stderr
    assert done.returncode == 2
    assert "unknown key 'repeat'. Did you mean 'repeats'?" in output
    assert "Traceback" not in output
    assert "common.smk" not in output  # where Regatta noticed it is not the user's business
    assert "campaign.yaml" in output
    assert not (tmp_path / "results").exists()


def test_the_default_campaign_with_a_syntax_error_is_told_with_file_and_line(tmp_path, wording):
    ignore = shutil.ignore_patterns("results", ".snakemake", ".venv", ".git", "__pycache__", "tests")
    shutil.copytree(campaigns.ROOT, tmp_path / "regatta", ignore=ignore)
    default = tmp_path / "regatta" / "config" / "config.yaml"
    default.write_text("schema: 1\nname: [laptop\ncluster: local\n")
    python, *_ = snakemake_line(default)
    line = [python, "-m", "snakemake", "--profile", "profiles/local"]
    done = subprocess.run(line, cwd=tmp_path / "regatta", capture_output=True, text=True)
    assert done.returncode == 2
    wording.lines(done.stderr, "config/config.yaml:3: not valid")
    assert "Traceback" not in done.stderr


def test_a_bad_campaign_file_is_named_with_its_line_before_snakemake_reads_it(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("schema: 1\nname: [laptop\ncluster: local\n")
    done = warm_start.script("run_campaign.py", path, "--profile", "profiles/local", "-n", cwd=campaigns.ROOT)
    assert done.returncode == 2
    assert "mine.yaml:3: not valid YAML at `cluster: local`" in done.stderr
    path.write_text(f"name: x\n__use_yte__: true\n?open('{tmp_path}/hacked', 'w').close(): 1\n")
    done = warm_start.script("run_campaign.py", path, "--profile", "profiles/local", "-n", cwd=campaigns.ROOT)
    assert done.returncode == 2
    assert "mine.yaml" in done.stderr
    assert not (tmp_path / "hacked").exists()


def test_a_second_driver_is_refused_changes_no_file_and_may_still_plan(tmp_path):
    """The first one is measuring: until then, it has already planned and frozen."""
    path, results, hang = tmp_path / "campaign.yaml", tmp_path / "results" / "small", tmp_path / "hang"
    write_campaign(tmp_path, fake_campaign(env={"FAKE_HANG_FILE": str(hang), "FAKE_CELL_SECONDS": "0.1"}))
    (results / "report.html").parent.mkdir(parents=True)
    (results / "report.html").write_text("of an earlier run")
    first = start_snakemake(tmp_path, path)
    try:
        wait_until(lambda: len(record_lines(results)) >= 2)
        hang.touch()
        time.sleep(1)
        before = files_of(results)
        driver = [sys.executable, str(campaigns.SCRIPTS / "run_campaign.py"), str(path), *snakemake_line(path)[3:]]
        for line in (driver, snakemake_line(path), snakemake_line(path, "gate")):
            second = warm_start.run(line, cwd=tmp_path, env=os.environ | campaigns.QUICK_REPORT)
            assert (second.returncode, second.stdout) == (2, "")
            assert "another Snakemake process" in second.stderr
            assert "common.smk" not in second.stderr
            assert files_of(results) == before
        assert snakemake(tmp_path, path, "plan").returncode == 0
    finally:
        hang.unlink(missing_ok=True)
    assert first.wait(200) == 0
    assert len(slots(results)) == len(set(slots(results))) == NUM_RECORDS


def files_of(folder) -> dict:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_a_record_that_cannot_be_analysed_is_measured_again(finished, tmp_path):
    path, results = finished
    victim = sorted((results / "launches").glob("n01g02-*.jsonl"))[0]
    text = victim.read_text().splitlines()
    spoiled = json.loads(text[2])
    spoiled["samples_ns"][0] = spoiled["samples_ns"][0][:-1]
    text[2] = json.dumps(spoiled)
    victim.write_text("\n".join(text) + "\n")
    for manifest in results.glob("batches/*/manifest.json"):
        manifest.unlink()
    assert dry_run(tmp_path, path) == 1
    run(tmp_path, path)
    assert (results / "measurements.csv").read_text().count(",ok,") == NUM_RECORDS


def test_kill_9_during_a_retry_loses_nothing_and_the_next_run_reports_it(tmp_path):
    path = write_campaign(tmp_path, collectives_alone({"65536": "raise"}, env=SLOW))
    run(tmp_path, path)
    results = tmp_path / "results" / "small"
    process = start_snakemake(tmp_path, path, "--forcerun", "measure")
    num_before = len(record_lines(results))
    wait_until(lambda: len(record_lines(results)) > num_before)
    process.kill()
    process.wait()
    wait_until(lambda: campaigns.processes_naming(str(results)) == [])
    run(tmp_path, path)
    superseded = json.loads((results / "problems.json").read_text())["superseded"]
    assert len(superseded) == len(record_lines(results)) - num_before
    assert was_idle(run(tmp_path, path))


def test_editing_the_campaign_while_it_runs_changes_nothing_for_what_is_frozen(tmp_path):
    path = write_campaign(tmp_path, fake_campaign(env=SLOW))
    process = start_snakemake(tmp_path, path)
    results = tmp_path / "results" / "small"
    wait_until(lambda: record_lines(results))
    path.write_text(path.read_text().replace("- 65536", "- 131072"))
    assert process.wait() == 0
    assert len(slots(results)) == NUM_RECORDS
    assert not any("131072" in cell for cell, _ in slots(results))
    assert dry_run(tmp_path, path) == 1


@pytest.mark.system
def test_a_checkout_and_a_campaign_in_a_path_with_spaces_and_quotes_work(tmp_path):
    folder = tmp_path / "it's a path; with $HOME"
    checkout = folder / "re gatta"
    ignore = shutil.ignore_patterns("results", ".snakemake", ".venv", ".git", "__pycache__", "tests")
    shutil.copytree(campaigns.ROOT, checkout, ignore=ignore)
    path = write_campaign(folder, fake_campaign(repeats=1), "my campaign.yaml")
    python, *words = snakemake_line(path)  # the interpreter may lie in the real checkout
    line = [python, *(word.replace(str(campaigns.ROOT), str(checkout)) for word in words)]
    environment = os.environ | campaigns.QUICK_REPORT
    done = subprocess.run(line, cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (checkout / "results" / "small" / "report.html").exists()
    assert len(slots(checkout / "results" / "small")) == NUM_RECORDS // 2


@pytest.mark.system
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_full_disk_stops_with_a_message_leaves_the_store_readable_and_resumes(tmp_path):
    path = write_campaign(tmp_path, fake_campaign(env=SLOW))
    results = tmp_path / "results"
    results.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(results)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount a file system")
    try:
        process = start_snakemake(tmp_path, path)
        wait_until(lambda: len(record_lines(results / "small")) >= 2)
        ballast = results / "ballast"
        subprocess.run(["dd", "if=/dev/zero", f"of={ballast}", "bs=64k"], capture_output=True)
        assert process.wait(timeout=200) == 3
        output = (tmp_path / "output").read_text()
        assert "no space left" in output.lower()
        assert not re.search(r"Traceback .*\n  File", output)
        kept = slots(results / "small")
        assert len(kept) >= 2
        ballast.unlink()
        run(tmp_path, path)
        assert len(slots(results / "small")) == len(set(slots(results / "small"))) == NUM_RECORDS
        assert set(kept) <= set(slots(results / "small"))
    finally:
        subprocess.run(["umount", "-l", str(results)], check=True)
