"""Passed, failed or undecided, as gate.py and compare.py decide it on two results folders: status, text, JUnit file."""

import math
import re
import xml.etree.ElementTree as ET

import pytest
from comparison_results import write_folder
from synthetic import collective_cell

import warm_start

A, B = collective_cell(4096, 1, 2), collective_cell(65536, 1, 2)
SLURM = {"schema": 1, "name": "big", "scheduler": "slurm", "num_nodes": 8, "gpus_per_node": 4}
T_4 = 2.7764451  # 97.5 % quantile of t with 4 degrees of freedom: 3 launches per side
SLOWER = (1.28, 1.32)


def launches(low, high):
    """Return launches of base and test, of which gate and compare.py make the interval [low, high].

    Logarithms -s, 0, s on both sides have the standard error s sqrt(2/3).
    """
    s = math.log(high / low) / 2 / (T_4 * (2 / 3) ** 0.5)
    base = [math.exp(factor * s) for factor in (-1, 0, 1)]
    return base, [math.sqrt(low * high) * time for time in base]


def folders_of(folder, cells, cluster=SLURM, num=3):
    """Write the results of two campaigns. cells: a cell -> (low, high) of its ratio."""
    times = [(cell, *launches(*ends)) for cell, ends in cells]
    sides = ("before", [(c, base[:num]) for c, base, _ in times]), ("after", [(c, test[:num]) for c, _, test in times])
    return [write_folder(folder / name, side, cluster=cluster, repeats=num) for name, side in sides]


def gate(before, after, *options):
    words = ["--campaign", next(after.glob("campaign.*.json")), "--measurements", after / "measurements.csv"]
    words += ["--baseline", before, *(f"--out-{name}={after}/gate.{name}" for name in ("text", "junit", "html"))]
    done = warm_start.script("gate.py", *words, *options)
    assert done.stdout == (after / "gate.text").read_text()
    return done.returncode, done.stdout, failures_of(after / "gate.junit")


def failures_of(path):
    cases = ET.parse(path).getroot().iter("testcase")
    return {case.get("name"): failure.get("type") for case in cases if (failure := case.find("failure")) is not None}


def numbers(text):
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


NAME_A, NAME_B = "collective-all_reduce-4096-n01g02-host", "collective-all_reduce-65536-n01g02-host"
WIDE, WIDE_BELOW, NARROW = (0.835, 3.058), (0.90, 1.25), (0.99, 1.01)  # estimates 1.598, 1.061, 1


@pytest.mark.parametrize(
    ("cells", "policy", "status", "result", "failures"),
    [
        ([(A, WIDE)], "likely", 5, "undecided", {NAME_A: "undecided"}),
        ([(A, WIDE)], "fail", 5, "undecided", {NAME_A: "undecided"}),
        ([(A, WIDE)], "pass", 0, "passed", {}),
        ([(A, WIDE_BELOW)], "likely", 0, "passed", {}),
        ([(A, WIDE_BELOW)], "fail", 5, "undecided", {NAME_A: "undecided"}),
        ([(A, NARROW)], "fail", 0, "passed", {}),
        ([(A, (0.5, 1.1))], "fail", 0, "passed", {}),  # wide, but below the threshold
        ([(A, SLOWER)], "pass", 1, "failed", {NAME_A: "regression"}),
    ],
)
def test_a_cell_is_passed_failed_or_undecided(tmp_path, cells, policy, status, result, failures):
    code, text, found = gate(*folders_of(tmp_path, cells), f"--undecided={policy}")
    assert (code, text.split(": ")[1], found) == (status, result, failures)
    is_open = cells[0][1] in (WIDE, WIDE_BELOW)
    assert ("no regression" in text) is (not is_open and status == 0)
    assert ("undecided" in text.splitlines()[0]) is is_open


def test_likely_is_the_default(tmp_path):
    assert gate(*folders_of(tmp_path / "wide", [(A, WIDE)]))[0] == 5
    assert gate(*folders_of(tmp_path / "below", [(A, WIDE_BELOW)]))[0] == 0


def test_a_failure_outweighs_undecided_cells_and_both_are_listed(tmp_path, wording):
    """Two launches: cells are screened. One is beyond 1.139 in all of them; the other by its estimate, 1.195, alone."""
    before = write_folder(tmp_path / "before", [(A, [1.0, 1.01]), (B, [1.0, 1.4])], cluster=SLURM)
    after = write_folder(tmp_path / "after", [(A, [1.3, 1.31]), (B, [1.25, 1.6])], cluster=SLURM)
    code, text, failures = gate(before, after)
    assert (code, failures) == (1, {NAME_A: "regression", NAME_B: "undecided"})
    assert text.count(": undecided: ") == 1
    wording(text)


def test_one_launch_decides_nothing_unless_it_is_beyond_the_threshold(tmp_path):
    code, text, failures = gate(*folders_of(tmp_path, [(A, NARROW)], num=1))
    assert (code, failures, "no regression" in text) == (0, {}, False)
    assert gate(tmp_path / "before", tmp_path / "after", "--undecided=fail")[0] == 5
    assert gate(*folders_of(tmp_path / "slower", [(A, SLOWER)], num=1))[2] == {NAME_A: "regression"}


@pytest.mark.parametrize(
    ("cluster", "options", "expected"),
    [
        (SLURM, [], [13.9, 5, 8.5]),  # 1.05 x 1.085 = 1.13925
        (None, [], [5]),
        (SLURM, ["--allocation-variation=0"], [5]),
        (None, ["--allocation-variation=0.02"], [7.1, 5, 2]),  # 1.05 x 1.02 = 1.071
        (SLURM, ["--margin=0.2"], [30.2, 20, 8.5]),
    ],
)
def test_the_number_that_decides_comes_first(tmp_path, cluster, options, expected):
    """With scheduler none and nothing set, a note says what is then not covered."""
    local = {"schema": 1, "name": "here", "scheduler": "none", "num_nodes": 1, "gpus_per_node": 0}
    before, after = folders_of(tmp_path, [(A, NARROW)], cluster=cluster or local)
    _, text, _ = gate(before, after, *options)
    assert numbers(text.splitlines()[1]) == expected
    assert f"beyond {expected[0]:g} %" in text.splitlines()[0]
    assert ("drift" in text) is (cluster is None and not options)
    page = (after / "gate.html").read_text().partition("<strong>Passed</strong>")[2].partition("<a ")[0]
    assert numbers(page)[-len(expected) :] == expected


def test_a_cell_below_the_threshold_is_settled_and_needs_no_more_launches(tmp_path, wording):
    """[1.092, 1.116] is beyond the margin of 1.05, and below 1.139."""
    before, after = folders_of(tmp_path, [(A, (1.092, 1.116))])
    code, text, _ = gate(before, after)
    case = next(ET.parse(after / "gate.junit").getroot().iter("testcase"))
    answers = (after / "gate.html").read_text().partition('class="answers"')[2].partition("</ul>")[0]
    assert (code, "no regression" in text) == (0, True)
    for found in (text, answers, case.findtext("system-out")):
        assert "needs" not in found
        assert "may or may" not in found
    wording([text, case.findtext("system-out")])


def compare(*folders):
    done = warm_start.script("compare.py", *folders)
    return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("A gate would decide")]


@pytest.mark.parametrize(
    ("ends", "num", "of_gate", "of_compare", "differ"),
    [
        ((1.092, 1.116), 3, 0, 1, True),  # beyond the margin, below the threshold
        (SLOWER, 3, 1, 1, False),
        (NARROW, 3, 0, 0, False),
        (SLOWER, 2, 1, 0, True),  # only a gate screens
        (WIDE, 3, 5, 0, True),
        (WIDE_BELOW, 3, 0, 0, False),
    ],
)
def test_compare_and_gate_agree_or_both_say_why(tmp_path, ends, num, of_gate, of_compare, differ, wording):
    folders = folders_of(tmp_path, [(A, ends)], num=num)
    status, text, _ = gate(*folders)
    found, notes = compare(*folders)
    assert (status, found) == (of_gate, of_compare)
    why = [line for line in text.splitlines() if "compare.py" in line]
    assert (len(notes), len(why)) == (differ, differ)
    wording([*notes, *why])


def test_testcases_have_no_hash_unless_two_would_have_one_name(tmp_path):
    """An upgrade changes the hashes, and a CI system follows a test by its name."""
    twins = [A | {"id": f"{NAME_A}-{digest}"} for digest in ("0" * 12, "f" * 12)]
    twins[1] = twins[1] | {"spec": A["spec"] | {"device": "cuda"}}
    before, after = folders_of(tmp_path, [(cell, NARROW) for cell in (*twins, B)])
    gate(before, after)
    names = [case.get("name") for case in ET.parse(after / "gate.junit").getroot().iter("testcase")]
    assert names == [twins[0]["id"], twins[1]["id"], NAME_B]


def test_campaigns_are_compared_by_name_or_folder(tmp_path, monkeypatch, wording):
    folders = folders_of(tmp_path / "results", [(A, SLOWER)])
    monkeypatch.chdir(tmp_path)
    for words in (folders, ("before", "after"), ("results/before", "after")):
        done = warm_start.script("compare.py", *words)
        assert (done.returncode, done.stdout.count("1 slower")) == (1, 1)
    done = warm_start.script("compare.py", "", "after")
    assert (done.returncode, done.stdout) == (2, "")
    wording(done.stderr)
