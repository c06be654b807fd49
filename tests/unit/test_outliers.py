"""Outliers are attributed to all ranks, one host or one rank, or left unclassified if the times do not show it."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import analyse, report_data, write_lines
from synthetic_waits import write_waits

from regatta.core.statistics import outer_fences
from regatta.store.csv_files import MEASUREMENTS, WAITS, make_table
from regatta.store.frozen_files import read_frozen
from regatta.topics.catalog import collect
from regatta.topics.stragglers.section import findings
from regatta.topics.stragglers.tables import straggler_hosts_table, stragglers_table
from regatta.topics.stragglers.waits import (
    ALL_RANKS,
    COMPUTE,
    HOST_WAIT,
    IN_COLLECTIVE,
    OF_LAUNCH,
    ONE_HOST,
    ONE_RANK,
    Outlier,
    Waits,
    outliers_of,
    wait_rows,
)

FOUR = ("a", "a", "b", "b")


def times_of(num_ranks, column, num=20, at=7, usual=100):
    """Return times (ranks, iterations), from two below `usual` to two above it, but `column` in iteration `at`."""
    times = np.tile(np.array([-2, -1, 0, 1, 2]) + usual, (num_ranks, num // 5 + 1))[:, :num]
    times[:, at] = column
    return times


def only(outliers):
    (outlier,) = outliers
    return outlier.kind, outlier.who


def test_an_outlier_lies_beyond_the_upper_outer_fence_of_its_record():
    # The quartiles are 100 and 104, so the upper fence is 104 + 3 x 4 = 116, and the median 104.
    times = np.array([[100, 104] * 10 + [116, 117]])
    assert outer_fences(times[0]) == (88, 116)
    outliers = outliers_of(COMPUTE, np.tile(times, (2, 1)), None, ["a", "a"])
    assert outliers == (Outlier(21, pytest.approx((117 - 104) / 104), ALL_RANKS),)


def test_fences_are_numpys_quartiles_and_need_eleven_samples():
    rng = np.random.default_rng(3)
    for num in (11, 12, 13, 14, 60):
        samples = rng.lognormal(size=num)
        low, high = np.quantile(samples, [0.25, 0.75])
        assert outer_fences(samples) == pytest.approx((low - 3 * (high - low), high + 3 * (high - low)))
    assert outer_fences(np.ones(10)) is None
    assert outliers_of(IN_COLLECTIVE, np.full((2, 10), 100), None, ["a", "a"]) is None
    assert outliers_of(IN_COLLECTIVE, np.full((2, 11), 100), None, ["a", "a"]) == ()


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ((400, 390, 410, 400), (ALL_RANKS, None)),  # nobody came late: the call itself took 300 more
        ((400, 100, 400, 400), (ONE_RANK, 1)),  # the others waited for rank 1
        ((400, 400, 100, 110), (ONE_HOST, "b")),
        ((400, 100, 400, 110), (None, None)),  # two ranks of two hosts
        ((260, 400, 400, 400), (ALL_RANKS, None)),  # more than half of the 300 is common to all
        ((240, 400, 400, 400), (ONE_RANK, 0)),
        ((100, 400, 100, 100), (None, None)),  # one alone was long, and the next call does not tell why
        ((100, 400, 400, 400), (ONE_RANK, 0)),
    ],
)
def test_in_a_collective_the_culprit_is_who_did_not_wait(column, expected):
    assert only(outliers_of(IN_COLLECTIVE, times_of(4, column), None, FOUR)) == expected


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ((400, 390, 410, 400), (ALL_RANKS, None)),
        ((100, 400, 100, 100), (ONE_RANK, 1)),
        ((100, 100, 400, 390), (ONE_HOST, "b")),
        ((400, 100, 100, 390), (None, None)),
        ((400, 400, 400, 100), (None, None)),  # three of four, of both hosts
        ((100, 400, 240, 100), (ONE_RANK, 1)),  # rank 2 alone would be no outlier of this size
    ],
)
def test_in_a_step_without_exchange_the_culprit_is_who_computed_longer(column, expected):
    assert only(outliers_of(COMPUTE, times_of(4, column), None, FOUR)) == expected


@pytest.mark.parametrize(
    ("wait", "step", "expected"),
    [
        ((400, 400, 400, 400), 1300, (ALL_RANKS, None)),  # all waited longer: the exchange
        ((100, 100, 100, 100), 1300, (ALL_RANKS, None)),  # all computed longer
        ((400, 400, 400, 100), 1300, (ONE_RANK, 3)),
        ((400, 400, 100, 100), 1300, (ONE_HOST, "b")),
        ((400, 100, 400, 100), 1300, (None, None)),
    ],
)
def test_of_a_step_on_cpus_the_wait_tells_and_the_step_is_as_long_on_all_ranks(wait, step, expected):
    steps = times_of(4, [step] * 4, usual=1000)
    assert only(outliers_of(HOST_WAIT, times_of(4, wait), steps.tolist(), FOUR)) == expected


def test_the_wait_belongs_to_the_last_samples_and_without_these_nothing_is_told():
    steps, waits = times_of(2, [1300, 1300], num=30, at=17, usual=1000), times_of(2, [400, 100], at=7)
    (outlier,) = outliers_of(HOST_WAIT, waits, steps.tolist(), ["a", "b"])
    assert (outlier.iteration, outlier.kind, outlier.who) == (7, ONE_RANK, 1)
    assert outliers_of(HOST_WAIT, waits, None, ["a", "b"]) is None
    assert outliers_of(HOST_WAIT, waits, steps[:, :12].tolist(), ["a", "b"]) is None
    with pytest.raises(ValueError, match="samples_ns"):
        outliers_of(HOST_WAIT, waits, [[1.5] * 20] * 2, ["a", "b"])


@pytest.mark.parametrize("hosts", [("a",) * 4, (None,) * 4, ("a", "a", "b", None)])
def test_an_outlier_of_two_ranks_is_unknown_where_no_host_can_be_told_from_others(hosts):
    assert only(outliers_of(IN_COLLECTIVE, times_of(4, (400, 400, 100, 100)), None, hosts)) == (None, None)
    assert only(outliers_of(IN_COLLECTIVE, times_of(4, (400, 400, 400, 100)), None, hosts)) == (ONE_RANK, 3)


def test_a_rank_that_leaves_late_is_named_for_its_own_outlier_and_for_the_wait_of_the_next():
    """Seen on gloo: rank 0 is held up after a call, 6 ms; in the next call the other waits 6 ms for it."""
    times = times_of(2, (700, 100))
    times[:, 8] = (100, 700)
    outliers = outliers_of(IN_COLLECTIVE, times, None, ["a", "b"])
    assert [(s.iteration, s.kind, s.who) for s in outliers] == [(7, ONE_RANK, 0), (8, ONE_RANK, 0)]
    alone = times_of(2, (700, 100))
    assert only(outliers_of(IN_COLLECTIVE, alone, None, ["a", "b"])) == (ONE_RANK, 1)  # rank 0 waited for rank 1


def test_a_rank_that_always_comes_first_or_last_is_no_culprit_for_that():
    times = times_of(4, (100, 100, 100, 100))
    times[:, 7] = (130, 130, 130, 100)
    times[0] -= 50  # rank 0 leaves first by the algorithm: here 80, still the shortest
    assert times[:, 7].tolist() == [80, 130, 130, 100]
    assert only(outliers_of(IN_COLLECTIVE, times, None, FOUR)) == (ONE_RANK, 3)


@st.composite
def records(draw):
    """Return (quantity, times, samples or None, hosts) of two to six ranks. Some times are up to 5,000 longer."""
    num_ranks, num = draw(st.integers(2, 6)), draw(st.integers(11, 24))
    quantity = draw(st.sampled_from([IN_COLLECTIVE, COMPUTE, HOST_WAIT]))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    times = rng.integers(1000, 1100, (num_ranks, num))
    times += np.where(rng.random((num_ranks, num)) < 0.1, draw(st.integers(0, 5000)), 0)
    samples = (times + rng.integers(4000, 4100, (num_ranks, num))).tolist() if quantity == HOST_WAIT else None
    hosts = draw(st.lists(st.sampled_from(["a", "b", None]), min_size=num_ranks, max_size=num_ranks))
    return quantity, times, samples, hosts


@given(records(), st.randoms(use_true_random=False))
def test_other_numbers_for_the_ranks_change_nothing_but_the_numbers(record, random):
    quantity, times, samples, hosts = record
    order = list(range(len(times)))
    random.shuffle(order)
    mixed = None if samples is None else [samples[rank] for rank in order]
    before = outliers_of(quantity, times, samples, hosts)
    after = outliers_of(quantity, times[order], mixed, [hosts[rank] for rank in order])
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        assert (old.iteration, old.excess_ratio, old.kind) == (new.iteration, new.excess_ratio, new.kind)
        assert old.who == (order[new.who] if new.kind == ONE_RANK else new.who)


@given(records(), st.integers(0, 10), st.integers(30_000, 10**7))
def test_what_is_added_to_all_ranks_in_one_iteration_makes_an_outlier_of_all_ranks(record, at, more):
    quantity, times, samples, hosts = record
    times, whole = times.copy(), None if samples is None else np.array(samples)
    if whole is None:
        times[:, at] += more
    else:
        whole[:, at] += more  # the step is longer, and nobody waits longer: all compute
    outliers = outliers_of(quantity, times, None if whole is None else whole.tolist(), hosts)
    assert [outlier.kind for outlier in outliers if outlier.iteration == at] == [ALL_RANKS]


@given(records(), st.integers(0, 10), st.integers(30_000, 10**7), st.data())
def test_what_one_rank_computes_longer_or_makes_the_others_wait_is_its_own(record, at, more, data):
    quantity, times, samples, hosts = record
    rank = data.draw(st.integers(0, len(times) - 1))
    times, whole = times.copy(), None if samples is None else np.array(samples)
    longer = np.arange(len(times)) == rank if quantity == COMPUTE else np.arange(len(times)) != rank
    times[longer, at] += more
    if whole is not None:
        whole[:, at] += more
    outliers = outliers_of(quantity, times, None if whole is None else whole.tolist(), hosts)
    assert [(outlier.kind, outlier.who) for outlier in outliers if outlier.iteration == at] == [(ONE_RANK, rank)]


def test_only_outliers_are_counted():
    rng = np.random.default_rng(5)
    for _ in range(200):
        times = rng.lognormal(7, 1, (4, 40)).astype(int)
        slowest = times.max(axis=0)
        assert len(outliers_of(IN_COLLECTIVE, times, None, FOUR)) == np.sum(slowest > outer_fences(slowest)[1])


def launch_of(number, outliers, hosts=FOUR, num_iterations=100, stack="host"):
    """Return one record of a launch as `wait_rows` takes it."""
    row = dict.fromkeys(OF_LAUNCH) | {"launch": f"l{number}", "repeat": number, "stack": stack, "device": "cpu"}
    row |= {"nodes": 2, "gpus_per_node": 2, "world_size": 4, "cell": "c", "line": 2}
    lags = (0.0,) * 4, dict.fromkeys(hosts, 0.0), 1.0
    return row, Waits(IN_COLLECTIVE, num_iterations, (0,) * 4, tuple(hosts), *lags, outliers=outliers)


def of_kinds(*kinds):
    return tuple(Outlier(7, 0.5, kind, who) for kind, who in kinds)


def tables_of(*records):
    waits = make_table(wait_rows(list(records)), WAITS)
    return stragglers_table(waits), straggler_hosts_table(waits)


MIXED = [(ALL_RANKS, None)] * 6 + [(ONE_RANK, 3), (ONE_RANK, 3), (ONE_RANK, 0), (ONE_HOST, "b"), (None, None)]


def test_counts_are_summed_up_by_launch_rank_and_host():
    rows = wait_rows([launch_of(0, of_kinds(*MIXED)), launch_of(0, ()), launch_of(0, None, num_iterations=9)])
    assert [row["num_records"] for row in rows] == [3] * 4
    assert [row["num_iterations"] for row in rows] == [209] * 4
    assert [row["num_iterations_checked"] for row in rows] == [200] * 4  # the record of 9 iterations has no fence
    counts = [[row[f"num_outliers{kind}"] for kind in ("", "_all_ranks", "_one_host", "_one_rank")] for row in rows]
    assert counts == [[11, 6, 1, 3]] * 4
    assert [row["num_outliers_of_rank"] for row in rows] == [1, 0, 0, 2]
    assert [row["num_outliers_of_host"] for row in rows] == [0, 0, 1, 1]
    assert rows[0]["outlier_cost_iterations"] == pytest.approx(11 * 0.5)


def test_where_no_record_is_long_enough_the_counts_are_unknown_and_not_none():
    rows = wait_rows([launch_of(0, None)])
    assert {
        rows[0][name]
        for name in ("num_iterations_checked", "num_outliers", "num_outliers_of_rank", "num_outliers_of_host")
    } == {None}
    stragglers, hosts = tables_of(launch_of(0, None))
    assert stragglers["num_outliers"].isna().all()
    assert stragglers["has_most_outliers"].isna().all()
    assert hosts["num_outliers_of_host"].isna().all()
    assert "outliers" not in findings_of(launch_of(0, None))


def test_a_host_has_its_own_outliers_and_those_of_its_ranks():
    stragglers, hosts = tables_of(launch_of(0, of_kinds(*MIXED)), launch_of(1, of_kinds((ONE_RANK, 2))))
    assert stragglers["num_outliers_of_rank"].tolist() == [1, 0, 1, 2]
    assert set(stragglers["num_outliers_one_rank"]) == {4}
    assert hosts["num_outliers_of_host"].tolist() == [1, 4]
    assert set(hosts["num_outliers_of_any_host"]) == {5}
    assert set(hosts["num_iterations_checked"]) == {200}


def test_one_has_most_outliers_if_more_than_half_are_its_own_and_chance_does_not_make_so_many():
    # 4 ranks, 4 rows: five of rank 3 have a chance of (1/4)^5, times 4 is 0.0039; four would have 0.0156.
    # 2 hosts, 2 rows: five on b have (1/2)^5 x 2 = 0.0625; eight would have 0.0078.
    for num, rank_has, host_has in ((4, False, False), (5, True, False), (8, True, True)):
        stragglers, hosts = tables_of(launch_of(0, of_kinds(*[(ONE_RANK, 3)] * num)))
        assert stragglers["has_most_outliers"].tolist() == [False, False, False, rank_has]
        assert hosts["has_most_outliers"].tolist() == [False, host_has]
    half = of_kinds(*[(ONE_RANK, 3)] * 20, *[(ONE_RANK, 0)] * 10, *[(ONE_RANK, 1)] * 10)
    assert not tables_of(launch_of(0, half))[0]["has_most_outliers"].any()


def findings_of(*launches):
    stragglers, hosts = tables_of(*launches)
    data = report_data({}, make_table([], MEASUREMENTS), stragglers=stragglers, straggler_hosts=hosts)
    return {finding.kind: finding for finding in findings(data)}


def test_outliers_are_counted_by_class():
    found = findings_of(launch_of(0, of_kinds(*MIXED)))
    assert list(found["outliers"].values["by_class"].values()) == [6, 1, 3, 1]
    assert (found["outliers"].values["num"], found["outliers"].values["num_iterations"]) == (11, 100)
    assert "outliers_of_one" not in found


def test_the_costliest_place_is_named_only_where_outliers_are_many_and_cost_time():
    def costs(num, excess, num_iterations=100):
        many = tuple(Outlier(7, excess, ALL_RANKS) for _ in range(num))
        values = findings_of(launch_of(0, many, num_iterations=num_iterations))["outliers"].values
        assert values["cost_ratio"] == pytest.approx(num * excess / num_iterations)
        return values.get("largest_ratio")

    assert costs(2, 1.5) == pytest.approx(0.03)
    assert costs(2, 0.4) is None  # 0.8 % of the time
    assert costs(1, 9.0) is None  # 1 % of iterations, which may be chance


def test_that_no_outlier_was_seen_is_a_finding():
    values = findings_of(launch_of(0, ()))["outliers"].values
    assert (values["num"], values["num_iterations"]) == (0, 100)


def test_the_finding_on_outliers_of_one_names_the_host_before_the_rank():
    both = findings_of(launch_of(0, of_kinds(*[(ONE_RANK, 3)] * 8)))["outliers_of_one"]
    assert both.values == {"num": 8, "num_of_one": 8}
    assert both.sources[0].file == "tables/straggler_hosts.csv"
    rank_alone = findings_of(launch_of(0, of_kinds(*[(ONE_RANK, 3)] * 5)))["outliers_of_one"]
    assert rank_alone.values == {"num": 5, "num_of_one": 5}
    assert rank_alone.sources[0].file == "tables/stragglers.csv"
    assert "outliers_of_one" not in findings_of(launch_of(0, of_kinds((ONE_RANK, 3))))
    assert "outliers_of_one" not in findings_of(launch_of(0, None))


def test_planted_outliers_go_from_the_store_to_the_report(tmp_path):
    """In each of 6 launches of 2 x 4: in the first collective 2 outliers of all ranks, and 1 in which all wait for rank 5."""
    folder = write_waits(tmp_path / "r", (2, 4), {3: 0.06})
    for path in (folder / "launches").glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        times = np.array(lines[1]["samples_ns"])
        times[:, [10, 30]] += 400_000
        times[np.arange(8) != 5, 50] += 400_000
        lines[1]["samples_ns"] = times.tolist()
        write_lines(path, lines)
    collected, _ = collect(read_frozen(folder / "campaign.0123456789ab.json"), folder / "launches")
    stragglers = stragglers_table(collected["waits"])
    calls = stragglers[(stragglers["quantity"] == IN_COLLECTIVE) & (stragglers["rank"] == 5)].iloc[0]
    assert calls["num_iterations_checked"] == 6 * 2 * 60
    assert calls["num_outliers_all_ranks"] >= 12
    assert (calls["num_outliers_of_rank"], calls["hosts"]) == (6, "node001")
    assert calls["num_outliers_one_rank"] == 8  # two are of the exponential scatter
    assert calls["outlier_cost_iterations"] == pytest.approx(6 * 3 * 2, rel=0.2)  # 400 us each, of 200 us
    found = {finding.kind: finding for finding in findings(analyse(folder))}
    assert found["outliers"].words["place"] == "2\N{MULTIPLICATION SIGN}4, contained"
    assert found["outliers_of_one"].values == {"num": 6, "num_of_one": 8}
