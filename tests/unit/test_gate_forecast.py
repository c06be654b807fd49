"""What the plan says of a gate before anything is measured: from the noise of the baseline campaign."""

import json
import math
import re

import pytest
from campaign_files import collectives
from typed import cell_row

import warm_start
from regatta.store.csv_files import MEASUREMENTS, make_table, write_csv


def campaign_file(folder, **changes):
    path = folder / f"{changes['name']}.yaml"
    path.write_text(json.dumps(collectives(4096, 65536, cluster="local") | changes))  # JSON is YAML
    return path


def gate_note(folder, deviation, script="plan.py", num=3, **changes):
    """Freeze a campaign, write its measurements, and return what the plan of another says of the gate.

    deviation: standard deviation of the logarithms of the launches, -deviation, 0 and deviation.
    """
    words = ["--results", folder / "results", "--campaign"]
    warm_start.script("freeze.py", *words, campaign_file(folder, name="before"), check=True)
    [frozen] = (folder / "results" / "before").glob("campaign.*.json")
    rows = [
        cell_row(cell)
        | {"repeat": i, "status": "ok", "p50_s": math.exp(deviation * (i - 1)), "launch": f"b-l{i:03d}-a00"}
        for cell in json.loads(frozen.read_text())["cells"]
        for i in range(num)
    ]
    write_csv(make_table(rows, MEASUREMENTS), frozen.parent / "measurements.csv")
    after = campaign_file(folder, **({"name": "after", "gate": {"baseline_campaign": "before"}} | changes))
    warm_start.script(script, *words, after, check=True)
    notes = json.loads((folder / "results" / "after" / "plan.json").read_text())["notes"]
    assert all(f"note: {note}" in (folder / "results" / "after" / "plan.txt").read_text() for note in notes)
    [note] = [note for note in notes if "gate" in note]
    return note


def numbers(text):
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


@pytest.mark.parametrize(
    ("deviation", "margin", "undecided", "likely"),
    [
        (0.001, 0.05, 0, 0),
        # SE 0.3 sqrt(2/3) = 0.245 and t(4) 2.776: the interval is ±0.68. P(t > 0.0488/0.245 - 2.776) is 0.97 for each of
        # two cells; P(t > 0.0488/0.245) is 0.43.
        (0.3, 0.05, 2, 1),
        (0.3, 10, 0, 0),
    ],
)
def test_the_plan_says_how_many_cells_would_be_undecided(tmp_path, deviation, margin, undecided, likely):
    gate = {"baseline_campaign": "before", "margin": margin}
    found = numbers(gate_note(tmp_path, deviation, gate=gate))
    assert found[:4] == [100 * margin, undecided, 2, likely]


def test_freezing_writes_the_same_note(tmp_path, wording):
    wording(gate_note(tmp_path, 0.3, script="freeze.py"))


def test_more_planned_launches_decide_more(tmp_path):
    few, many = (
        gate_note(tmp_path / str(repeats), 0.02, repeats=repeats)
        for repeats in (3, 100)
        if not (tmp_path / str(repeats)).mkdir()
    )
    assert numbers(few)[1] > numbers(many)[1]


def test_cells_that_can_only_be_screened_are_counted_apart(tmp_path, wording):
    wording(gate_note(tmp_path, 0.1, num=2))


def test_a_baseline_without_results_is_said_in_the_plan(tmp_path, wording):
    wording(gate_note(tmp_path, 0.1, gate={"baseline_campaign": "before2"}))
