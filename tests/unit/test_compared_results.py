"""Results that a user's benchmark declares with a direction: compared like a time, in families of their own."""

import json
import re
import xml.etree.ElementTree as ET

import pytest
from synthetic import analyse, analyse_files, edit_records, make_campaign, make_cell, write_results
from synthetic_own import OF_STEP, StepMachine

import warm_start
from regatta.core.benchmarks import declare
from regatta.topics.comparison import comparison_section
from regatta.topics.summary import answer_json

RESULTS = {"rate_gb_per_s": {"label": "Rate", "better": "larger"}, "loss": {"label": "Loss", "better": "smaller"}}


@pytest.fixture(autouse=True)
def declared(monkeypatch):
    """The name of the benchmark is known, as after reading its campaign."""
    monkeypatch.setattr("regatta.core.benchmarks._custom", {})
    declare({"my_step": OF_STEP})


VERSUS = {"axis": "mode", "reference": "fast", "margin": None}


def campaign_of(folder, values, results=RESULTS, versus=None, late=False):
    """Write a campaign of my_step, whose modes take equally long. values: of a record, from mode, size and repeat.

    late: modes are stacks, of which exact is measured last.
    """
    cells = [
        make_cell("my_step", 1, gpus, {"size": size, "mode": "fast" if late else mode}, stack=mode if late else "host")
        for size in (1, 2, 3)
        for mode in ("fast", "exact")
        for gpus in (1, 2)
    ]
    benchmarks = {"my_step": OF_STEP | {"results": results}}
    campaign = make_campaign(cells, name="own", repeats=5, benchmarks=benchmarks, versus=versus or VERSUS)
    for record in edit_records(write_results(folder, campaign, StepMachine({}, {}, 1, 0, 1, 0.002, {}))):
        parameters = record["spec"]["parameters"]
        found = values(parameters["mode"], parameters["size"], record["repeat"])
        record["values"] = {name: value for name, value in found.items() if name in results}
    return analyse(folder)


def noise(size, repeat):
    return 1 + 0.002 * ((7 * size + 3 * repeat) % 5 - 2)


def planted(mode, size, repeat):
    """In mode exact, the rate is 10 % higher, and the loss 20 % higher."""
    is_exact = mode == "exact"
    rate, loss = 100 * size * (1.1 if is_exact else 1), 0.5 * (1.2 if is_exact else 1)
    return {"rate_gb_per_s": rate * noise(size, repeat), "loss": loss * noise(size, repeat + 1)}


def rows_of(data, result=None):
    rows = data.tables["comparisons"]
    return rows[rows["result"].isna() if result is None else (rows["result"] == result).fillna(False)]


def test_a_result_that_is_10_percent_better_is_no_longer_beside_an_equal_mode(tmp_path):
    data = campaign_of(tmp_path / "r", planted, {"rate_gb_per_s": RESULTS["rate_gb_per_s"]})
    assert set(rows_of(data)["verdict"]) == {"equivalent"}
    rates = rows_of(data, "rate_gb_per_s")
    assert len(rates) == 6
    assert set(rates["verdict"]) == {"faster"}
    assert rates["time_ratio"].tolist() == pytest.approx([1 / 1.1] * 6, rel=1e-9)  # as a time: less is better
    assert (rates["result_mean"] / rates["reference_result_mean"]).tolist() == pytest.approx([1.1] * 6)
    [lead] = [line["lead"] for line in answer_json(data)["lines"] if line["id"] == "comparison"]
    assert "use mode exact" in lead
    assert "10 % worse" in lead
    assert "slower" not in lead


def test_of_results_that_contradict_each_other_none_is_chosen(tmp_path):
    data = campaign_of(tmp_path / "r", planted)
    losses = rows_of(data, "loss")
    assert set(losses["verdict"]) == {"slower"}
    assert losses["time_ratio"].tolist() == pytest.approx([1.2] * 6, rel=1e-9)
    assert losses["time_s"].isna().all()
    [found, *_] = comparison_section.findings(data)
    assert found.words["choice"].startswith("depends")
    outcomes = {part.get("result"): (part["outcome"], part["chosen"]) for part in found.values["parts"]}
    assert outcomes == {
        None: ("equal", None),
        "rate_gb_per_s": ("slower", "mode exact"),
        "loss": ("slower", "mode fast"),
    }


def test_results_change_no_row_of_times_nor_each_other(tmp_path):
    data = campaign_of(tmp_path / "both", planted)
    without = campaign_of(tmp_path / "none", planted, {"loss": {"label": "Loss"}})
    assert len(without.tables["comparisons"]) == 6  # without a direction
    assert rows_of(data).equals(without.tables["comparisons"])
    alone = campaign_of(tmp_path / "one", planted, {"loss": RESULTS["loss"]})
    numbers = ["time_ratio", "time_low_ratio", "time_high_ratio", "p_value", "p_adjusted", "launches_needed"]
    assert rows_of(data, "loss")[numbers].equals(rows_of(alone, "loss")[numbers].set_axis(rows_of(data, "loss").index))


def test_a_result_without_logarithm_or_not_measured_is_unknown(tmp_path):
    """A loss of 0 in one launch of size 2; no rate of size 3."""

    def values(mode, size, repeat):
        found = planted(mode, size, repeat)
        found |= {"loss": 0.0} if (size, repeat, mode) == (2, 0, "fast") else {}
        return found | ({"rate_gb_per_s": None} if size == 3 else {})

    data = campaign_of(tmp_path / "r", values)
    losses, rates = rows_of(data, "loss"), rows_of(data, "rate_gb_per_s")
    assert losses["verdict"].isna().tolist() == [size == 2 for size in losses["size"]]
    assert rates["verdict"].isna().tolist() == [size == 3 for size in rates["size"]]
    assert len(rows_of(data)) == len(losses) == len(rates) == 6


def test_the_margin_holds_for_results_too(tmp_path):
    data = campaign_of(tmp_path / "r", planted, versus=VERSUS | {"margin": 0.3})
    assert set(data.tables["comparisons"]["verdict"]) == {"equivalent"}


def test_the_page_names_the_result_wherever_it_shows_one(tmp_path):
    data = campaign_of(tmp_path / "r", planted)
    section = comparison_section.section(data)
    names = [matrix.caption for matrix in section.content["matrices"]]
    assert [re.sub(r":.*", "", name) for name in names][1:] == ["Rate (GB/s)", "Loss"]
    labels = [row[0] for row in section.tables[0].rows]
    assert sum(label.startswith("Rate (GB/s)") for label in labels) == 6
    assert sum(label.startswith("Loss") for label in labels) == 6
    assert {row[1] for row in section.tables[0].rows} == {"worse", "better", "equivalent"}
    [loss] = {tuple(row[2:5]) for row in section.tables[0].rows if row[0].startswith("Loss")}
    assert loss == ("0.600", "0.500", "1.200")  # compared, reference, ratio


def test_a_pair_whose_sides_did_not_alternate_counts_once(tmp_path):
    """The launches of one stack follow those of the other."""
    found = []
    for name, results in (("times", {}), ("results", RESULTS)):
        data = campaign_of(tmp_path / name, planted, results, VERSUS | {"axis": "stack", "reference": None}, late=True)
        blocks = [finding for finding in comparison_section.findings(data) if finding.kind == "not_interleaved"]
        found += [(finding.values["num"], finding.values["num_pairs"]) for finding in blocks]
    assert found == [(6, 6), (6, 6)]


@pytest.mark.parametrize(("num", "least", "status", "text"), [(3, 90, 0, "["), (3, 110, 1, "["), (2, 90, 0, "(")])
def test_a_reference_of_a_gate_holds_for_a_result_and_counts_its_launches(tmp_path, num, least, status, text):
    """The rate of 100 GB/s was recorded in some of five launches: with two, its ends are a range."""

    def values(mode, size, repeat):
        return planted(mode, size, repeat) if repeat < num else {"loss": 0.5}

    folder = tmp_path / "r"
    campaign_of(folder, values)
    analyse_files(folder)
    [frozen] = folder.glob("campaign.*.json")
    reference = {"when": {"size": 1, "mode": "fast"}, "metric": "rate_gb_per_s", "least": least}
    frozen.write_text(json.dumps(json.loads(frozen.read_text()) | {"references": [reference]}))
    words = ["--campaign", frozen, "--measurements", folder / "measurements.csv"]
    words += [f"--out-{name}={folder}/gate.{name}" for name in ("text", "junit")]
    done = warm_start.script("gate.py", *words)
    assert done.returncode == status, done.stdout + done.stderr
    cases = [case for case in ET.parse(folder / "gate.junit").iter("testcase") if ": " in case.get("name")]
    assert len(cases) == 2  # shapes
    assert all(re.search(rf": [\d.]+ \{text}.*n = {num}$", "".join(case.itertext()).strip()) for case in cases)
    assert ("without an interval" in done.stdout) is (num < 3)
