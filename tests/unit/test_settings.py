"""Settings that may be the best: a row computed by hand, blocks, undecided cells, and sentences on several rows."""

import math

import numpy as np
import pytest
import scipy.stats
from synthetic import LAPTOP, analyse, collective_cell, edit_records, make_campaign, write_results

from regatta.core import best_settings as core
from regatta.tables.settings import Setting, compare_settings, highest_cost
from regatta.topics import communication


@pytest.fixture
def plain(monkeypatch):
    """Without moderation: variances and degrees of freedom are those of the row."""
    monkeypatch.setattr(core, "moderate", lambda variance, freedom, *_, **__: (variance, freedom))


def launches(*logs, batch="batch"):
    """Return repeat -> (batch, seconds)."""
    return {repeat: (batch, math.exp(log)) for repeat, log in enumerate(logs)}


def test_three_settings_in_three_launches_by_hand(plain):
    """Without the launch's level, which is 0, 1 and 2, the deviations of a are 0, 0.02, -0.02, and of b the opposite.

    The row: 4 x 0.02^2 = 0.0016 on 2 x 2 degrees of freedom, so 0.0004 for a launch. Pair a, b: differences of
    deviations 0, 0.04, -0.04, so 0.0016, above 2 x 0.0004, on 2 degrees of freedom. With c: 0.0004, below.
    """
    a, b, c = (0.00, 1.02, 1.98), (0.10, 1.08, 2.12), (1.0, 2.0, 3.0)
    times = {"a": launches(*a), "b": launches(*b), "c": launches(*c)}
    found = compare_settings([["a", "b", "c"]], times)
    constant = scipy.stats.studentized_range.ppf(0.95, 3, 2)
    wide, narrow = (constant * math.sqrt(variance / 2 / 3) for variance in (0.0016, 0.0008))
    assert [found[cell].cost for cell in "abc"] == pytest.approx([0, math.expm1(0.1), math.e - 1], rel=1e-9)
    assert found["a"].low == 0
    assert found["a"].high == pytest.approx(math.expm1(max(0, wide - 0.1)), rel=1e-9)
    assert found["b"].low == pytest.approx(math.expm1(max(0, 0.1 - wide)), rel=1e-9)
    assert found["b"].high == pytest.approx(math.expm1(0.1 + wide), rel=1e-9)
    assert found["c"].low == pytest.approx(math.expm1(max(1 - narrow, 0.9 - narrow)), rel=1e-9)
    assert found["c"].high == pytest.approx(math.expm1(1 + narrow), rel=1e-9)
    assert [found[cell].may_be_best for cell in "abc"] == [True, True, False]


def test_the_level_of_a_launch_is_removed_only_if_launches_are_of_one_batch():
    """Launches of 0, 1 and 2 (log time): the 5 % between the settings show only within a launch."""
    random = np.random.default_rng(1)
    noise = 0.001 * random.standard_normal((2, 3))
    levels = np.array([0.0, 1.0, 2.0])
    together = {"a": launches(*(levels + noise[0])), "b": launches(*(levels + 0.05 + noise[1]))}
    apart = {"a": together["a"], "b": {repeat: (math.nan, seconds) for repeat, (_, seconds) in together["b"].items()}}
    assert compare_settings([["a", "b"]], together)["b"].may_be_best is False
    assert compare_settings([["a", "b"]], apart)["b"].may_be_best is True


def test_one_launch_is_undecided_and_equal_times_may_all_be_best():
    times = {"a": launches(0.0, 0.1), "b": launches(0.0, 0.1), "c": launches(-1.0)}
    found = compare_settings([["a", "b", "c"]], times)
    assert (found["c"].may_be_best, found["c"].cost, found["c"].num_settings) == (None, None, 3)
    assert [found[cell].may_be_best for cell in "ab"] == [True, True]
    assert found["a"].cost == found["b"].cost == 0


def test_a_single_setting_is_no_row_and_two_with_one_launch_each_are_undecided():
    assert compare_settings([["a"], []], {"a": launches(0.0, 0.1)}) == {}
    found = compare_settings([["a", "b"]], {"a": launches(0.0), "b": launches(1.0)})
    assert {setting.may_be_best for setting in found.values()} == {None}


def test_a_missing_launch_leaves_the_others_in_blocks():
    random = np.random.default_rng(2)
    levels, noise = np.array([0.0, 1.0, 2.0, 3.0]), 0.001 * random.standard_normal((2, 4))
    times = {"a": launches(*(levels + noise[0])), "b": launches(*(levels + 0.05 + noise[1]))}
    del times["b"][3]
    found = compare_settings([["a", "b"]], times)
    assert found["b"].cost == pytest.approx(math.expm1(np.mean(0.05 + noise[1][:3] - noise[0][:3])), rel=1e-9)
    assert found["b"].may_be_best is False


def test_a_setting_with_2_of_10_launches_leaves_the_others_all_of_theirs(plain):
    """c has 2 launches, so a and b have 10 each and their 5 % are significant. In the 2 common ones they differ by 0."""
    random = np.random.default_rng(4)
    noise = 0.01 * random.standard_normal((3, 10))
    noise[1, 2:] += 0.0625
    noise[1, :2] = noise[0, :2]
    times = {name: launches(*of_cell) for name, of_cell in zip("abc", noise, strict=True)}
    times["c"] = {repeat: times["c"][repeat] for repeat in (0, 1)}
    found = compare_settings([["a", "b", "c"]], times)
    means = [noise[0].mean(), noise[1].mean(), noise[2, :2].mean()]
    assert found["b"].cost == pytest.approx(math.expm1(means[1] - min(means)), rel=1e-9)
    assert (found["b"].may_be_best, found["c"].may_be_best) == (False, True)


def test_a_cost_that_one_row_in_twenty_shows_by_chance_is_not_named():
    """One of 20 rows is excluded at p just below 1 %: not after Benjamini and Hochberg."""
    random = np.random.default_rng(3)
    rows, times = [], {}
    for row in range(20):
        cells = [f"{row}{side}" for side in "ab"]
        logs = 0.02 * random.standard_normal((2, 12))
        if row == 0:
            logs -= logs.mean(-1, keepdims=True)
            logs[1] += 0.03
        rows.append(cells)
        times |= {cell: launches(*of_cell) for cell, of_cell in zip(cells, logs, strict=True)}
    alone, together = (compare_settings(part, times)["0b"] for part in (rows[:1], rows))
    assert alone.may_be_best is False
    assert together.may_be_best is False
    assert together.p_adjusted > 0.01 >= alone.p_adjusted
    assert (alone.is_costly, together.is_costly) == (True, False)


@pytest.mark.parametrize(("p_adjusted", "is_named"), [(0.01, True), (0.011, False), (0.05, False)])
def test_sentences_name_a_cost_only_at_the_rate_of_comparisons(p_adjusted, is_named):
    assert Setting(2, 0.05, 0.01, 0.1, False, p_adjusted).is_costly is is_named


@pytest.mark.parametrize("num", [2, 3])
def test_equal_settings_in_five_launches_are_named_in_one_percent_of_campaigns(num):
    """Of a campaign with one row, whose cells vary differently. At 5 %, the summary was false in 5 %."""
    random = np.random.default_rng(11)
    scatters = 0.02 * np.exp(0.5 * random.standard_normal((1000, 1, num, 1)))
    p_value = core.best_settings(scatters * random.standard_normal((1000, 1, num, 5))).p_value
    named = [Setting(num, may_be_best=False, p_adjusted=p).is_costly for p in p_value[:, 0]]
    assert np.mean(named) <= 0.01 + 3 * (0.01 / 1000) ** 0.5


def test_the_finding_on_collectives_lists_the_algorithms_that_may_be_as_fast(tmp_path):
    """ring is the fastest, butterfly within noise of it, torch 30 % slower; halving_doubling has one launch."""
    factors = {"ring": 1.0, "butterfly": 1.004, "torch": 1.3, "halving_doubling": 1.0}
    cells = [collective_cell(size, 1, 4, algorithm=name) for name in factors for size in (4096, 2**20)]
    cells += [collective_cell(2**20, 1, 4, "all_gather")]
    folder = write_results(tmp_path / "r", make_campaign(cells, repeats=3), LAPTOP)
    for record in edit_records(folder):
        algorithm = record["spec"]["parameters"]["algorithm"]
        call = int(1e6 * factors.get(algorithm, 1) * (1 + 0.01 * (record["repeat"] == (algorithm == "ring"))))
        record["windows"] = {"steps_per_window": 1, "elapsed_ns": [[call] * 4 for _ in record["samples_ns"]]}
        if algorithm == "halving_doubling" and record["repeat"]:
            record |= {"status": "failed", "phase": "measure", "cause": "boom"}
    data = analyse(folder)
    _, finding = communication.findings(data)
    assert "ring" in data.names[finding.cells[0]]
    assert sorted(finding.values["near"]) == ["butterfly", "halving_doubling"]
    assert finding.values["num_candidates"] == 8
    assert (finding.words["compared"], finding.words["shapes"]) == (8, ["1×4"])


def test_settings_are_equal_only_if_the_highest_end_of_their_intervals_is_small():
    """That no difference was shown does not make them equal."""
    small, large = Setting(2, 0.01, 0.0, 0.0201, True, 1.0), Setting(2, 0.2, 0.0, 0.452, True, 1.0)
    assert highest_cost(["a"], {"a": small, "b": large}) == {"equal": "2.1 %"}  # rounded up
    assert highest_cost(["a", "b"], {"a": small, "b": large}) == {"upper": "46 %"}
    assert highest_cost(["a"], {"a": Setting(2)}) == {}


@pytest.mark.parametrize(("freedom", "q"), [(2, 8), (4, 40), (10, 15), (10, 40), (40, 15)])
def test_the_tail_of_two_settings_is_that_of_students_t(freedom, q):
    expected = 2 * scipy.stats.t.sf(q / math.sqrt(2), freedom)  # the range of two values is sqrt(2) |t|
    assert core.exceeding(q, 2, freedom) == pytest.approx(expected, rel=1e-9)
