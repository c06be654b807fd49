"""Stragglers: planted ones are found with the planted numbers, and without one nothing is reported."""

import json

import numpy as np
import pytest
from synthetic import analyse, make_campaign, report_data, write_lines
from synthetic_waits import inside, late_times, write_waits
from typed import collect, header

from regatta.core import moderation
from regatta.store import waits as store_waits
from regatta.store.csv_files import MEASUREMENTS, WAITS, make_table
from regatta.store.frozen_files import read_frozen
from regatta.store.summaries import hosts_by_rank
from regatta.tables.places import straggler_hosts_table, stragglers_table
from regatta.topics.catalog import render
from regatta.topics.failures import FAILURES
from regatta.topics.slow_places import section, stragglers


def spec_of(num_ranks, benchmark="collective", device="cpu", **parameters):
    parameters = {"operation": "all_reduce", "strategy": "ddp"} | parameters
    return {"benchmark": benchmark, "device": device, "nodes": 1, "gpus_per_node": num_ranks, "parameters": parameters}


def waits_of(record, spec, hosts=None):
    num_ranks = spec["nodes"] * spec["gpus_per_node"]
    return store_waits.waits_of(record, spec, hosts or ["n1"] * num_ranks)


def record_of(samples_ns, **fields):
    return {"status": "ok", "samples_ns": samples_ns, "parts_ns": None} | fields


def tables_of(folder):
    collected, problems = collect(read_frozen(folder / "campaign.0123456789ab.json"), folder / "launches")
    waits = collected["waits"]
    return waits, stragglers_table(waits), straggler_hosts_table(waits), problems


def persistent(table):
    return table[table["is_persistent"]]


def test_the_last_rank_of_a_collective_is_the_one_that_spends_least_time_in_it():
    samples = [[130, 130, 130, 130, 130, 130, 130, 100], [100] * 7 + [130], [120] * 8]
    waits = waits_of(record_of(samples), spec_of(3))
    assert (waits.quantity, waits.num_iterations, waits.num_last) == ("in_collective", 8, [1, 7, 0])
    # Binomial: 8 x (1/3)^7 x (2/3) + (1/3)^8 = 17/6561, times 3 ranks is 0.0078. The others' median is 125, or 110.
    assert waits.suspect == (1, pytest.approx(25 / 130))
    assert waits.quantiles_s[2] == pytest.approx((120e-9, 120e-9, 120e-9))


def test_the_last_rank_of_a_step_without_exchange_is_the_slowest_and_the_lag_a_share_of_the_whole_step():
    parts = {"no_sync": [[100] * 6, [108] * 6]}
    record = record_of([[200] * 9, [200] * 9], parts_ns=parts)
    waits = waits_of(record, spec_of(2, "train_step"))
    assert (waits.quantity, waits.num_last) == ("compute", [0, 6])
    assert waits.suspect == (1, pytest.approx(8 / 200))


def test_the_last_host_of_a_step_is_behind_the_slowest_of_the_others():
    times = [[100] * 6, [90] * 6, [120] * 6, [119] * 6, [104, 105] * 3, [105, 104] * 3]
    of_steps = spec_of(6, "train_step")
    waits = waits_of(record_of([[200] * 9] * 6, parts_ns={"no_sync": times}), of_steps, ["a", "a", "b", "b", "c", "c"])
    # Each host arrives with its last rank: a 100, b 120, c 105.
    assert waits.last_host == {
        "last_host": "b",
        "last_host_lag_s": pytest.approx(15e-9),
        "last_host_ratio": pytest.approx(120 / 102.5),
    }
    assert waits_of(record_of([[200] * 9] * 6, parts_ns={"no_sync": times}), of_steps).last_host is None  # one host
    assert waits_of(record_of(times), spec_of(6), ["a", "a", "b", "b", "c", "c"]).last_host is None  # no step


def test_two_ranks_need_six_iterations_all_alike():
    of_five, of_six = (record_of([[100] * num, [130] * num]) for num in (5, 6))
    assert waits_of(of_five, spec_of(2)).suspect is None  # 2 / 2^5 = 0.063
    assert waits_of(of_six, spec_of(2)).suspect[0] == 0  # 2 / 2^6 = 0.031


def test_a_host_is_suspect_whose_ranks_take_turns_at_being_last():
    samples = [[200] * 12, [190] * 12, [150, 140] * 6, [140, 150] * 6]
    waits = waits_of(record_of(samples), spec_of(4), ["a", "a", "b", "b"])
    assert waits.num_last == [0, 0, 6, 6]
    assert waits.suspect is None  # 6 of 12 by a chance of 1/4: 0.054, times 4
    # 12 of 12 by a chance of 1/2, times 2 hosts: 0.0005. The last rank of b has 140, that of a 190.
    assert waits.suspect_host == ("b", pytest.approx(50 / 200))
    assert waits.quantiles_s is not None


def test_hosts_of_one_rank_each_are_named_in_any_order():
    waits = waits_of(record_of([[200] * 12, [100] * 12, [190] * 12]), spec_of(3), ["c", "b", "a"])
    assert (waits.suspect, waits.suspect_host) == ((1, pytest.approx(95 / 200)), ("b", pytest.approx(95 / 200)))
    assert waits.host_lags_s == waits.lags_s


def test_where_ranks_are_on_one_host_or_nobody_knows_where_no_host_is_suspect():
    samples = [[200] * 12, [100] * 12]
    assert waits_of(record_of(samples), spec_of(2), ["a", "a"]).suspect_host is None
    assert waits_of(record_of(samples), spec_of(2), [None, None]).suspect_host is None
    assert waits_of(record_of(samples), spec_of(2), [None, "b"]).suspect_host is None


def test_a_rank_that_is_last_always_and_by_a_hair_is_no_suspect():
    hair, more = (record_of([[10000 - lag] * 40, [10000] * 40]) for lag in (100, 101))
    assert waits_of(hair, spec_of(2)).suspect is None
    assert waits_of(more, spec_of(2)).suspect[0] == 0


@pytest.mark.parametrize(
    ("record", "spec"),
    [
        (record_of([[5, 5]]), spec_of(1)),
        (record_of([[5], [4]], status="failed"), spec_of(2)),
        (record_of(None), spec_of(2)),
        (record_of([[5], [4]]), spec_of(2, operation="broadcast")),
        (record_of([[5], [4]]), spec_of(2, "train_step")),
        (record_of([[5], [4]], parts_ns={"no_sync": [[5], [4]]}), spec_of(2, "train_step", strategy="fsdp")),
        (record_of([[5], [4]], parts_ns={"host_wait": [[5], [4]]}), spec_of(2, "train_step", device="cuda")),
        (record_of([[5], [4]]), spec_of(2, "train_run")),
    ],
)
def test_what_cannot_tell_is_not_looked_at(record, spec):
    assert waits_of(record, spec) is None


def test_the_wait_of_hosts_is_looked_at_on_a_cpu_for_want_of_better():
    record = record_of([[900] * 8, [900] * 8], parts_ns={"host_wait": [[0] * 8, [90] * 8]})
    waits = waits_of(record, spec_of(2, "train_step", strategy="bucketed"))
    assert (waits.quantity, waits.suspect) == ("host_wait", (0, pytest.approx(0.1)))


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ([[5, 5], [4]], "different numbers"),
        ([[5.5], [4.0]], "integer"),
        ([[5], [4], [3]], "has 3 ranks; the shape has 2"),
        ("no list", "not a list of values"),
        ([[], []], "not a list of values"),
    ],
)
def test_damaged_times_are_refused(samples, says):
    with pytest.raises(ValueError, match=says):
        waits_of(record_of(samples), spec_of(2))


@pytest.mark.parametrize(
    "environment",
    [
        None,
        {},
        {"hosts": None},
        {"hosts": ["a"]},
        {"hosts": [{"host": 1, "ranks": [0]}, {"host": "a", "ranks": ["x", 7, -1]}]},
    ],
)
def test_hosts_that_the_launch_does_not_tell_are_unknown(environment):
    assert hosts_by_rank(header(environment), 2) == [None, None]


def test_hosts_are_those_of_the_first_line():
    hosts = [{"host": "a", "ranks": [1]}, {"host": "b", "ranks": [0]}]
    assert hosts_by_rank(header({"hosts": hosts}), 3) == ["b", "a", None]
    hosts = [{"host": "a\ud800\nb", "ranks": [0]}]
    assert hosts_by_rank(header({"hosts": hosts}), 1) == ["a\N{REPLACEMENT CHARACTER} b"]


def test_a_slow_rank_is_found_with_its_host_in_both_quantities(tmp_path):
    waits, stragglers, hosts, problems = tables_of(write_waits(tmp_path / "r", (2, 4), {3: 0.06}))
    assert problems["invalid"] == []
    assert len(waits) == 6 * 2 * 8
    found = persistent(stragglers)
    assert found[["rank", "hosts", "quantity"]].to_numpy().tolist() == [
        [3, "node000", "compute"],
        [3, "node000", "in_collective"],
    ]
    collective = found.iloc[1]
    assert (collective["num_suspect_launches"], collective["num_launches"], collective["num_records"]) == (6, 6, 12)
    assert collective["num_last"] / collective["num_iterations"] > 0.9
    assert collective["verdict"] == "slow"
    assert 0.05 < collective["lag_low_ratio"] < collective["lag_ratio"] < collective["lag_high_ratio"] < 0.07
    assert collective["p_adjusted"] < 0.01
    # Planted: 6 % of the call, and the mean scatter of 1 % over its median ln 2 % on either side.
    assert collective["lag_s"] == pytest.approx(0.06 * 200e-6, rel=0.1)
    assert found.iloc[0]["lag_s"] == pytest.approx(0.06 * 40e-3, rel=0.1)
    # Its last rank makes the host late, by less: the last of four healthy ranks has scatter too.
    assert set(hosts.loc[hosts["lag_ratio"] > 0.03, "host"]) == {"node000"}


def test_a_slow_host_is_found_where_no_rank_of_it_is_worse_than_the_others(tmp_path):
    _, stragglers, hosts, _ = tables_of(write_waits(tmp_path / "r", (8, 4), dict.fromkeys((8, 9, 10, 11), 0.08)))
    found = persistent(hosts)
    assert found[["host", "quantity", "num_suspect_launches"]].to_numpy().tolist() == [
        ["node002", "compute", 6],
        ["node002", "in_collective", 6],
    ]
    row = hosts[(hosts["host"] == "node002") & (hosts["quantity"] == "in_collective")].iloc[0]
    assert row["num_expected_launches"] == pytest.approx(6 / 8)
    assert row["num_last"] / row["num_iterations"] > 0.9
    assert row["lag_ratio"] == pytest.approx(0.08, abs=0.01)
    assert row["lag_low_ratio"] > 0.05
    assert row["num_suspect_records"] == 12
    assert set(stragglers.loc[stragglers["num_suspect_launches"] > 0, "hosts"]) == {"node002"}


def test_a_slow_rank_is_found_in_three_launches(tmp_path):
    """The binomial test needed 6 launches of 4 ranks: 3 of 3 are (1/4)^3, times 8 rows."""
    _, stragglers, _, _ = tables_of(write_waits(tmp_path / "r", (1, 4), {2: 0.2}, repeats=3))
    found = persistent(stragglers)
    assert sorted(zip(found["rank"], found["quantity"], strict=True)) == [(2, "compute"), (2, "in_collective")]
    assert found["lag_ratio"].tolist() == pytest.approx([0.2, 0.2 / 1.2], abs=0.01)  # a call takes 20 % longer


def test_the_lag_and_its_interval_by_hand(monkeypatch):
    """Lags of 0.10, 0.11 and 0.12 on three launches: 0.11 +- 4.303 x 0.01 / sqrt(3) without moderation."""
    monkeypatch.setattr(moderation, "moderate", lambda variance, freedom, *_, **__: (variance, freedom))
    rows = [
        row | {"lag_ratio": sign * lag, "lag_s": sign * lag * 1e-3}
        for number, lag in enumerate((0.10, 0.11, 0.12))
        for row, sign in zip(rows_of(f"launch {number}", two_ranks(), 2), (1, -1), strict=True)
    ]
    table = stragglers_table(make_table(rows, WAITS))
    half = 4.302653 * 0.01 / 3**0.5
    assert table["lag_ratio"].tolist() == pytest.approx([0.11, -0.11])
    assert table["lag_low_ratio"].tolist() == pytest.approx([0.11 - half, -0.11 - half])
    assert table["lag_s"].tolist() == pytest.approx([1.1e-4, -1.1e-4])
    assert table["verdict"].tolist() == ["slow", "faster"]
    assert stragglers_table(make_table(rows, WAITS), margin=0.2)["is_persistent"].tolist() == [False, False]


def two_ranks():
    return waits_of(record_of([[100] * 20, [150] * 20]), spec_of(2))


def test_without_a_slow_rank_nothing_is_said_in_99_of_100_campaigns():
    """Launches in which one rank is slow by chance are there too: any rank, another in each launch."""
    rng = np.random.default_rng(7)
    num_wrong = 0
    for campaign in range(200):
        world_size = (2, 4, 8)[campaign % 3]
        rows = []
        for launch in range(6):
            late = {int(rng.integers(world_size)): 20_000.0} if launch % 2 else {}
            samples = inside(late_times(rng, world_size, 30, 3000, late))
            waits = waits_of(record_of(samples), spec_of(world_size))
            rows += rows_of(f"launch {launch}", waits, world_size)
        num_wrong += bool(stragglers_table(make_table(rows, WAITS))["is_persistent"].any())
    assert num_wrong <= 2


def rows_of(launch, waits, world_size):
    """Return the rows of waits.csv of a launch with one record."""
    common = {"launch": launch, "repeat": 0, "stack": "host", "device": "cpu", "nodes": 1, "gpus_per_node": world_size}
    common |= {"world_size": world_size, "cell": "c", "line": 3}
    return store_waits.wait_rows([(common, vars(waits))])


@pytest.mark.parametrize(("num_launches", "verdict"), [(2, "inconclusive"), (3, "slow")])
def test_a_verdict_takes_three_launches(num_launches, verdict):
    rows = [row for number in range(num_launches) for row in rows_of(f"launch {number}", two_ranks(), 2)]
    table = stragglers_table(make_table(rows, WAITS))
    assert table["verdict"].tolist()[0] == verdict
    assert table["p_value"].isna().tolist() == [num_launches < 3] * 2
    assert table["lag_ratio"].tolist() == pytest.approx([1 / 3, -1 / 3])  # 50 of 150 ns


def test_a_rank_that_is_suspect_in_half_of_the_records_is_not_that_of_the_launch():
    waits = waits_of(record_of([[100] * 20, [150] * 20]), spec_of(2))
    rows = [row | {"num_records": 2} for number in range(8) for row in rows_of(f"launch {number}", waits, 2)]
    assert stragglers_table(make_table(rows, WAITS))["num_suspect_launches"].tolist() == [0, 0]


def findings_of(waits, **tables):
    data = report_data(
        make_campaign([]), make_table([], MEASUREMENTS), waits=waits, stragglers=stragglers_table(waits), **tables
    )
    return {finding.kind: finding.values for finding in stragglers(data) if "straggler" in finding.kind}


def test_without_a_straggler_the_report_says_how_many_measurements_could_show_one():
    alike = waits_of(record_of([[100] * 20, [100] * 20]), spec_of(2))
    few, enough = (
        make_table([row for n in range(num) for row in rows_of(f"launch {n}", alike, 2)], WAITS) for num in (2, 3)
    )
    assert findings_of(make_table([], WAITS)) == {}
    assert findings_of(few)["no_straggler"]["num_checked"] == 0
    assert findings_of(enough)["no_straggler"]["num_checked"] == 3


def test_beside_a_node_with_failures_the_report_does_not_say_that_none_is_slow():
    alike = waits_of(record_of([[100] * 20, [100] * 20]), spec_of(2))
    waits = make_table([row for n in range(3) for row in rows_of(f"launch {n}", alike, 2)], WAITS)
    of_node, of_none = (make_table([{"cause": cause}], FAILURES) for cause in ("rank 1 on n2: killed", "out of time"))
    assert findings_of(waits, failures=of_node) == {}
    assert list(findings_of(waits, failures=of_none)) == ["no_straggler"]
    problems = {"corrupt": [], "invalid": [], "blamed_nodes": [{"text": "n2"}]}
    assert findings_of(waits, problems=problems) == {}


def test_a_later_record_takes_the_place_of_an_earlier_one(tmp_path):
    folder = write_waits(tmp_path / "r", (2, 4), {3: 0.06}, repeats=1)
    path = next((folder / "launches").glob("*.jsonl"))
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    again = lines[1] | {"samples_ns": np.full((8, 60), 5000).tolist()}
    write_lines(path, [*lines[:-1], again])
    waits, _, _, _ = tables_of(folder)
    own = waits[(waits["quantity"] == "in_collective") & (waits["rank"] == 3)].iloc[0]
    assert (own["num_records"], own["num_suspect"], own["line"]) == (2, 1, 3)


def test_the_report_names_the_rank_with_its_cells_and_draws_the_record(tmp_path):
    data = analyse(write_waits(tmp_path / "r", (2, 4), {3: 0.06}))
    (slow,) = (finding for finding in stragglers(data) if finding.kind.startswith("straggler"))
    assert (slow.kind, slow.values["rank"], slow.values["num_suspect_launches"]) == ("straggler_rank", 3, 6)
    assert 0.05 < slow.values["lag_ratio"].low < slow.values["lag_ratio"].high < 0.08
    assert slow.words["who"].startswith("rank 3")
    assert set(slow.cells) == set(data.names)
    page = render(data)
    assert 'id="rank-times"' in page


def test_a_slow_node_is_one_finding_with_its_cells_and_without_its_ranks(tmp_path):
    """Rank 6 of another node is a finding too, and the node comes first: operators replace nodes."""
    late = dict.fromkeys((8, 9, 10, 11), 0.08) | {6: 0.12}
    data = analyse(write_waits(tmp_path / "r", (8, 4), late))
    found = [one for one in data.findings if one.anchor == "warnings" and one.kind.startswith("straggler")]
    assert [(finding.kind, finding.values["host"], finding.values["rank"]) for finding in found] == [
        ("straggler_host", "node001", None)
    ]


@pytest.mark.parametrize(
    ("late", "marked"), [(dict.fromkeys((8, 9, 10, 11), 0.08), [8, 9, 10, 11]), ({6: 0.12}, [4, 5, 6, 7])]
)
def test_all_ranks_of_a_slow_node_are_marked(late, marked, tmp_path):
    data = analyse(write_waits(tmp_path / "r", (8, 4), late))
    slow = data.tables["straggler_hosts"].query("is_persistent")["host"]
    assert set(slow) == {f"node{marked[0] // 4:03d}"}
    [figure] = section(data).figures
    assert [rank for rank, word in enumerate(figure.chart.frame["series"]) if word == "straggler"] == marked


def test_the_report_of_a_store_that_changed_since_has_no_strip(tmp_path):
    folder = write_waits(tmp_path / "r", (2, 4), {3: 0.06})
    data = analyse(folder)
    assert len(section(data).figures) == 1
    for path in (folder / "launches").glob("*.jsonl"):
        path.write_text("rubbish\n", encoding="utf-8")
    assert section(data).figures == ()
