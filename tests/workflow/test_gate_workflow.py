"""`snakemake ... gate` with launches simulated by fake_launch.py: exit status, files, closing lines."""

import json
import re
import shutil
import xml.etree.ElementTree as ET

import pytest
from campaigns import fake_campaign, slots, snakemake, write_campaign

from regatta.store.csv_files import MEASUREMENTS, read_csv, write_csv

SLOWED = "train_step-resnet18-ddp-25-n01g02"


def gate_lines(done):
    """Return the gate's text as the terminal shows it; everything else of Snakemake goes elsewhere."""
    lines = done.stdout.splitlines()
    assert sum(line.startswith("gate: ") for line in lines) == 1, done.stdout + done.stderr
    return lines[next(i for i, line in enumerate(lines) if line.startswith("gate: ")) :]


def headline(done):
    """Return the verdict of the gate's first line, and its numbers."""
    _, verdict, counts = gate_lines(done)[0].split(": ")
    counts += gate_lines(done)[1] if "fails a cell" in gate_lines(done)[1] else ""
    return verdict, [float(number) for number in re.findall(r"\d+(?:\.\d+)?", counts)]


def failures(results):
    root = ET.parse(results / "gate.junit.xml").getroot()
    return {
        case.get("name"): case.find("failure").get("type")
        for case in root.iter("testcase")
        if len(case) and case.find("failure") is not None
    }


@pytest.fixture(scope="module")
def measured_before(tmp_path_factory):
    """The results of a campaign measured before an upgrade."""
    folder = tmp_path_factory.mktemp("before")
    assert snakemake(folder, write_campaign(folder, fake_campaign(name="before"))).returncode == 0
    return folder / "results"


@pytest.fixture
def upgraded(measured_before, tmp_path):
    """The results before an upgrade, and the same campaign to be measured after it: other ids, the same stack's name."""
    shutil.copytree(measured_before, tmp_path / "results")
    gate = {"baseline_campaign": "before", "margin": 0.2}  # the times of the fake differ a little with the ids
    return write_campaign(tmp_path, fake_campaign(env={"IMAGE": "upgraded"}, name="after", gate=gate), "after.yaml")


def slow_down(results, factor, repeats=(0, 1)):
    """Make the measurements of a campaign say that one cell was faster, so that it is slower by `factor` after it."""
    table = read_csv(results / "measurements.csv", MEASUREMENTS)
    is_slowed = table["cell"].str.startswith(SLOWED) & table["repeat"].isin(repeats)
    table.loc[is_slowed, ["p50_s", "window_step_s"]] /= factor
    write_csv(table, results / "measurements.csv")


def test_a_gate_passes_and_always_runs_and_all_does_not_hold_it(finished, tmp_path):
    path, results = finished
    listed = snakemake(tmp_path, path, "-n")
    assert "Evaluate the gate" not in listed.stdout + listed.stderr
    done = snakemake(tmp_path, path, "gate")
    assert done.returncode == 0, done.stderr
    assert gate_lines(done) == (results / "gate.txt").read_text().splitlines()
    assert headline(done) == ("passed", [7])
    assert (results / "report.html").exists()
    assert failures(results) == {}
    again = snakemake(tmp_path, path, "gate")
    assert again.returncode == 0
    assert gate_lines(again) == gate_lines(done)
    assert len(slots(results)) == 14
    assert "gate: " not in snakemake(tmp_path, path, "plan").stdout


def test_a_failed_cell_fails_the_gate_which_is_written_and_has_the_last_word(tmp_path, wording):
    path = write_campaign(tmp_path, fake_campaign({"65536": "raise"}))
    results = tmp_path / "results" / "small"
    assert snakemake(tmp_path, path).returncode == 0
    done = snakemake(tmp_path, path, "--retries", "2", "gate")
    assert done.returncode == 1
    wording.lines(done.stderr, "Evaluate the gate")
    assert gate_lines(done) == (results / "gate.txt").read_text().splitlines()
    assert headline(done) == ("failed", [1])
    wording(gate_lines(done)[1])
    assert list(failures(results).values()) == ["not ok"]
    assert "Partial report" not in done.stderr  # the report is as new as the gate


def test_a_gate_compares_over_an_upgrade_and_fails_for_what_got_slower(upgraded, tmp_path):
    results = tmp_path / "results"
    passed = snakemake(tmp_path, upgraded, "gate")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert headline(passed) == (
        "passed",
        [7, 20, 7, 20],
    )  # cells that are ok; threshold in percent; compared; threshold
    assert "'before'" in gate_lines(passed)[0]
    ids = [{cell for cell, _ in slots(results / name)} for name in ("before", "after")]
    assert ids[0].isdisjoint(ids[1])
    slow_down(results / "before", factor=2)
    done = snakemake(tmp_path, upgraded, "gate")
    assert done.returncode == 1
    assert headline(done) == ("failed", [7, 1, 20, 7, 20])  # the second: regressions
    assert "'before'" in gate_lines(done)[0]
    assert gate_lines(done)[2].startswith(f"  {SLOWED}")
    assert ": slower: ratio " in gate_lines(done)[2]
    assert failures(results / "after") == {f"{SLOWED}-host": "regression"}
    assert len(slots(results / "after")) == 14
    slow_down(results / "before", factor=0.5)
    slow_down(results / "before", factor=4, repeats=[0])  # one launch of two: by half, or not at all
    done = snakemake(tmp_path, upgraded, "gate")
    assert (done.returncode, headline(done)[0]) == (5, "undecided")
    assert failures(results / "after") == {f"{SLOWED}-host": "undecided"}
    upgraded.write_text(upgraded.read_text().replace("margin: 0.2", "margin: 0.2\n  undecided: pass"))
    done = snakemake(tmp_path, upgraded, "gate")
    assert (done.returncode, headline(done)[0], failures(results / "after")) == (0, "passed", {})


@pytest.mark.parametrize(
    ("name", "told"), [("before2", "Did you mean 'before'?"), ("after", "is this campaign itself")]
)
def test_a_baseline_campaign_without_results_is_told_before_anything_is_measured(upgraded, tmp_path, name, told):
    upgraded.write_text(upgraded.read_text().replace("baseline_campaign: before", f"baseline_campaign: {name}"))
    done = snakemake(tmp_path, upgraded, "gate")
    assert done.returncode == 2
    assert told in done.stderr
    assert "after.yaml:" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "results" / "after" / "launches").exists()


def test_a_run_that_does_not_reach_the_gate_leaves_no_old_one_behind(finished, tmp_path):
    path, results = finished
    assert snakemake(tmp_path, path, "gate").returncode == 0
    assert (results / "gate.txt").exists()
    path = write_campaign(tmp_path, fake_campaign({"65536": "no_space"}))
    done = snakemake(tmp_path, path, "gate")
    assert done.returncode == 3
    assert "gate: " not in done.stdout
    assert "Partial report" in done.stderr
    assert not (results / "gate.txt").exists()
    assert not (results / "gate.junit.xml").exists()


def test_references_reach_the_gate_as_written_without_a_baseline_and_change_no_cell(finished, tmp_path):
    """Also 500 that as JSON exceed an argument of execve, 128 KiB on Linux. What no cell has is refused before."""
    path, results = finished
    when, hostile = {"benchmark": "collective", "stack": ["host"]}, "a'b {wildcards} $(touch hacked) <&\"\\n%s"
    campaign = path.read_text()
    long = when | {"message_bytes": [4096, 65536] * 20}
    for bounds, status, verdict in (
        ([{"most": 1000 + n} for n in range(500)], 0, "passed"),
        ([{"least": 1000}], 1, "failed"),
    ):
        gate = {
            "references": [{"when": long if len(bounds) > 1 else when, "metric": "latency_s", **of} for of in bounds]
        }
        assert len(json.dumps(gate)) > 2**17 or len(bounds) == 1
        path.write_text(f"{campaign}\ngate: {json.dumps(gate)}\n")
        done = snakemake(tmp_path, path, "gate")
        assert (done.returncode, gate_lines(done)[0].split(": ")[1]) == (status, verdict), done.stderr
        assert len(slots(results)) == 14
    found = failures(results)
    assert sorted(found.values()) == ["reference", "reference"]
    assert all(name.endswith(": latency_s at least 1000") for name in found)
    assert not list(tmp_path.rglob("hacked"))
    path.write_text(f"{campaign}\ngate: {json.dumps(gate).replace('latency_s', 'step_s')}\n")
    refused = snakemake(tmp_path, path, "plan")
    assert (refused.returncode, "Choose from: " in refused.stderr + refused.stdout) == (2, True)
    when["stack"].append(hostile)
    path.write_text(f"{campaign}\ngate: {json.dumps(gate)}\n")
    assert snakemake(tmp_path, path, "gate").returncode == 2
    assert not list(tmp_path.rglob("hacked"))
