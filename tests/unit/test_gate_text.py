"""The files of a gate: its text, its JUnit file, and the command line that writes both."""

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from gate_results import CELL, CLUSTER, TIMES, gate_of, results_of, text_of
from synthetic import LAPTOP, Machine, analyse_files, collective_cell, make_campaign, train_cell, write_results
from typed import judge

import warm_start
from regatta.compare.campaigns import read_campaign
from regatta.compare.gate_files import junit
from regatta.core.errors import UserError
from regatta.store.csv_files import MEASUREMENTS, read_csv

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"


def test_the_text_names_the_worst_first_and_says_how_many_more(wording):
    sizes = [16 * 2**i for i in range(12)]
    many = [collective_cell(size, 1, 2) for size in sizes]
    factors = [2.0 + i / 10 for i in range(5)] + [0.5, 0.6, 0.7, 0.8, 1.0, 1.0, 1.0]
    now = [(cell, [factor] * 6) for cell, factor in zip(many, factors, strict=True)]
    before = [(cell, [1.0] * 6) for cell in many]
    wording(text_of(gate_of(now, before)))


def test_the_text_stays_within_twenty_lines_and_a_long_cause_is_cut():
    many = [collective_cell(16 * 2**i, 1, 2) for i in range(40)]
    failed = [(cell, ["failed", 1.0, 1.0]) for cell in many[:10]]
    slower = [(cell, [2.0, 2.1, 2.2]) for cell in many[10:20]]
    faster = [(cell, [0.5, 0.51, 0.52]) for cell in many[20:30]]
    unclear = [(cell, [0.5, 1.0, 2.0]) for cell in many[30:]]
    before = [(cell, TIMES) for cell in many[5:]] + [(collective_cell(8, 1, 2), TIMES)]
    campaign, measurements = results_of(failed + slower + faster + unclear, cluster=CLUSTER | {"name": "b"})
    measurements["cause"] = measurements["cause"].str.replace("it broke", "it broke " * 100)
    text = text_of(judge(campaign, measurements, results_of(before, name="old")))
    assert len(text.splitlines()) <= 20
    assert max(map(len, text.splitlines())) < 300
    assert re.findall(r"and (\d+) more (.*)", text) == [("7", "not ok"), ("7", "slower"), ("8", "undecided")]
    assert "\n  faster: 10 of " in text


def test_a_cell_whose_direction_is_settled_says_by_how_much_it_is_slower():
    before = [1.000 + 0.002 * i for i in range(10)]
    gate = gate_of([(CELL, [1.055 * value for value in before])], [(CELL, before)])
    (cell,) = gate.with_verdict("inconclusive")
    assert 1 < cell.compared.time_low_ratio < 1.05 < cell.compared.time_high_ratio
    line = next(line for line in text_of(gate).splitlines() if f"{cell.id}: undecided: " in line)
    by = re.search(r"(\S+)–(\S+) % slower; may or may not exceed", line)
    assert [float(end) for end in by.groups()] == [
        pytest.approx(100 * (end - 1), abs=0.05)
        for end in (cell.compared.time_low_ratio, cell.compared.time_high_ratio)
    ]
    assert "inconclusive" not in line
    assert "inconclusive" not in junit(gate)


def planted_below(slower):
    """Return a gate on 12 sizes on 2 and on 32 ranks. slower: cell -> true slowdown."""
    shapes = ((1, 2), (8, 4))
    cells = [collective_cell(16 * 2**i, *shape) for shape in shapes for i in range(12)]
    before = [(cell, [1.0, 1.002, 0.998, 1.001, 0.999]) for cell in cells]
    now = [
        (cell, [time * (1 + slower(cell["spec"], i)) for time in launches]) for i, (cell, launches) in enumerate(before)
    ]
    return gate_of(now, before)


def test_cells_that_are_slower_below_the_margin_are_counted_with_the_place_that_they_share():
    """Planted: 1 to 3.2 % on 8×4, nothing elsewhere; such a gate passes."""
    gate = planted_below(lambda spec, i: 0.01 + 0.002 * (i - 12) if spec["nodes"] == 8 else 0)
    [line] = [line for line in text_of(gate).splitlines() if "significant but below" in line]
    assert (gate.result, re.findall(r"[\d.]+", line)) == ("passed", ["12", "24", "1.0", "3.2", "5", "8", "4"])
    assert line.endswith(": 8×4")


def test_without_a_place_that_they_share_the_largest_is_named_and_what_fails_is_not_counted():
    gate = planted_below(lambda _, i: {0: 0.02, 5: 0.03, 20: 0.2}.get(i, 0))
    [line] = [line for line in text_of(gate).splitlines() if "significant but below" in line]
    assert (gate.result, re.findall(r"[\d.]+", line)[:4]) == ("failed", ["2", "24", "2.0", "3.0"])
    assert collective_cell(16 * 2**5, 1, 2)["id"] in line
    assert "significant but below" not in text_of(planted_below(lambda *_: 0))


# What the schema of Jenkins' xUnit plugin (junit-10.xsd) allows, as far as it is used here: attributes, then children.
JUNIT = {
    "testsuites": ({"name", "tests", "failures", "errors", "time"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors", "time", "skipped"}, {"testcase"}),
    "testcase": ({"classname", "name", "time"}, {"failure", "skipped", "system-out"}),
    "failure": ({"type", "message"}, set()),
    "skipped": ({"type", "message"}, set()),
    "system-out": (set(), set()),
}


def checked_junit(gate):
    """Parse the JUnit file of a gate, hold it against the schema and its own counts, and return its testcases."""
    root = ET.fromstring(junit(gate).encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        attributes, children = JUNIT[element.tag]
        assert set(element.attrib) <= attributes
        assert {child.tag for child in element} <= children
        assert len({child.tag for child in element}) == len(element) or element.tag in ("testsuites", "testsuite")
    cases = root.findall("testsuite/testcase")
    for element in (root, root.find("testsuite")):
        assert int(element.get("tests")) == len(cases)
        assert int(element.get("failures")) == len(root.findall(".//failure"))
        assert math.isfinite(float(element.get("time")))
    assert int(root.find("testsuite").get("skipped")) == len(root.findall(".//skipped"))
    assert len({case.get("name") for case in cases}) == len(cases)
    assert bool(root.findall(".//failure")) is (gate.result != "passed")
    return {case.get("name"): case for case in cases}


def test_the_junit_file_has_one_testcase_for_each_cell_with_its_time_and_what_became_of_it(wording):
    slow, failed, skipped = (collective_cell(size, 1, 2) for size in (16, 64, 256))
    now = [(CELL, TIMES), (slow, [2.0, 2.1, 2.2]), (failed, [1.0, "timeout", 1.0])]
    gate = gate_of(now, [(CELL, TIMES), (slow, TIMES)], skipped=[skipped])
    cases = checked_junit(gate)
    names = [f"collective-all_reduce-{size}-n01g02-host" for size in (16, 64, 256, 4096)]
    assert list(cases) == names
    assert {case.get("classname") for case in cases.values()} == {"laptop.collective"}
    assert cases[names[3]].get("time") == "7.500"  # three launches of 2.5 s
    assert cases[names[3]].findtext("system-out").startswith("equivalent: ratio 1.000")
    regression, failure = cases[names[0]].find("failure"), cases[names[1]].find("failure")
    assert regression.get("type") == "regression"
    assert "ratio 2.078" in regression.get("message")  # (2 x 2.1 x 2.2 / 1.0302) ** (1 / 3)
    wording([failure.get("type"), failure.get("message"), failure.text])
    assert cases[names[2]].find("skipped").get("message") == "not of interest"
    assert cases[names[2]].get("time") is None


def test_a_problem_of_no_single_cell_is_a_testcase_too():
    cases = checked_junit(judge(*results_of([])))
    [case] = cases.values()
    assert case.find("failure").get("type") == "problem"


def test_the_junit_file_is_xml_for_any_cause():
    campaign, measurements = results_of([(CELL, ["failed"])])
    measurements["cause"] = "\x1b[31m <b>&\x00\ufffe \ud800 ]]> é 😀\n\"'"
    [case] = checked_junit(judge(campaign, measurements)).values()
    assert "[31m <b>&" in case.find("failure").get("message")
    assert "]]> é 😀" in case.find("failure").text


@pytest.fixture
def folders(tmp_path):
    """Two results folders of one campaign, of which the second was measured on a machine half as fast."""
    campaign = make_campaign([CELL, train_cell("resnet18", 1, 2)])
    slow = Machine({"resnet18": 0.23}, {"resnet18": 46.8e6}, 0.62, 1.2e-4, 1.05e9, 0.012)
    for name, machine in (("old", LAPTOP), ("new", slow)):
        analyse_files(write_results(tmp_path / "results" / name, campaign | {"name": name}, machine))
    return tmp_path / "results"


def run_gate(results, *arguments):
    words = ["--campaign", next(results.glob("campaign.*.json"))]
    words += ["--measurements", results / "measurements.csv", *arguments]
    words += ["--out-text", results / "gate.txt", "--out-junit", results / "gate.junit.xml"]
    words += ["--out-html", results / "gate.html"]
    return warm_start.script("gate.py", *words)


def test_the_command_line_writes_its_files_before_it_exits(folders):
    passed = run_gate(folders / "new")
    assert (passed.returncode, passed.stdout.splitlines()[0]) == (0, "gate: passed: 2 cells ok")
    assert not (folders / "new" / "gate.html").exists()  # nothing is compared
    failed = run_gate(folders / "new", "--baseline", folders / "old")
    assert failed.returncode == 1
    assert failed.stdout == (folders / "new" / "gate.txt").read_text()
    root = ET.parse(folders / "new" / "gate.junit.xml").getroot()
    assert root.get("failures") == "2"
    page = (folders / "new" / "gate.html").read_text(encoding="utf-8")
    assert "<strong>Failed</strong>" in page
    assert page.count('<a href="#cells&amp;status=slower">2</a>') == 1
    assert run_gate(folders / "new", "--baseline", folders / "old", "--margin", "3").returncode == 0
    assert run_gate(folders / "old", "--baseline", folders / "new").returncode == 0


def test_a_baseline_campaign_without_results_is_told_with_the_nearest_name(folders, wording):
    with wording.raises(UserError):
        read_campaign(folders / "odl")
    done = run_gate(folders / "new", "--baseline", folders / "odl")
    assert (done.returncode, "Traceback" in done.stderr, done.stdout) == (2, False, "")
    (folders / "old" / "measurements.csv").unlink()
    with pytest.raises(UserError, match=r"contains no measurements\.csv"):
        read_campaign(folders / "old")


@pytest.mark.parametrize("name", ["plan.json", "copy.json"])
def test_a_file_that_is_no_campaign_is_a_user_error(folders, tmp_path, name):
    (tmp_path / name).write_text('{"schema": 1}')
    done = run_gate(folders / "new", "--campaign", tmp_path / name)
    assert (done.returncode, "Traceback" in done.stderr, done.stdout) == (2, False, "")
    assert name in done.stderr


def test_a_measurements_file_without_a_column_is_a_user_error(folders):
    path = folders / "old" / "measurements.csv"
    read_csv(path, MEASUREMENTS).drop(columns="repeat").to_csv(path, index=False)
    with pytest.raises(UserError, match=r"measurements\.csv: .*make report"):
        read_campaign(folders / "old")
