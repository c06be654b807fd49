"""The report of an acceptance sweep: nodes and pairs against the median one, by hand and by brute force."""

import math
import re
import statistics
from dataclasses import replace

import pandas as pd
import pytest
from drawn import texts_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import analyse, analyse_files, collective_cell, edit_launches, lines_of, report_data
from synthetic_sweep import FAULTS, MORE, SLOWDOWNS, sweep_campaign, write_sweep
from typed import sweep_nodes_table, sweep_pairs_table, typed

from regatta.compare.campaign_history import measured_twice
from regatta.compare.campaigns import compare_campaigns, read_campaign
from regatta.compare.comparison_output import comparison_text
from regatta.kit.kinds import filled
from regatta.report.explore import data_block
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.store.nodes import blame_nodes
from regatta.topics import catalog, machines
from regatta.topics import sweep_section as sweep
from regatta.topics.summary import confidence


def measured(campaign: dict, seconds: dict) -> pd.DataFrame:
    """Return measurements.csv of a sweep of one cell per node or pair. seconds: nodes -> one time per repeat, or None."""
    rows = []
    for cell in campaign["cells"]:
        for repeat, time in enumerate(seconds[tuple(cell["spec"]["hosts"])]):
            row = {"cell": cell["id"], "repeat": repeat, "launch": f"batch-l{repeat:03d}-a00"}
            rows.append(row | {"status": "ok" if time else "failed", "p50_s": time})
    return make_table(rows, MEASUREMENTS)


def one_cell(names: list[str], over: str = "nodes", repeats: int = 2) -> dict:
    campaign = sweep_campaign(names, over, repeats, messages=(1024,))
    cells = [cell for cell in campaign["cells"] if cell["spec"]["benchmark"] == "collective"]
    return campaign | {"cells": cells}


def outside(data) -> list:
    """Return the findings on single nodes and pairs."""
    return [finding for finding in sweep.findings(data) if "hosts" in finding.values and "noun" in finding.values]


def lead_of(data) -> str:
    """Return the template that words the summary of a sweep."""
    [finding] = [finding for finding in sweep.findings(data) if finding.kind == "nodes"]
    values = finding.values | finding.words
    return next(text for text in sweep.TOPIC.stated(finding).declared.lead if filled(text, values))


def by_hosts(table: pd.DataFrame, column: str) -> dict:
    return dict(zip(table["hosts"], table[column], strict=True))


def test_the_ratio_is_the_geometric_mean_over_repeats_of_that_to_the_median_of_all_below_four_nodes(tmp_path):
    """Medians by repeat: 11 and 12. Ratios: n1 10/11, 12/12; n2 11/11, 11/12; n10 22/11, 24/12."""
    campaign = one_cell(["n1", "n2", "n10"])
    times = {("n1",): [10, 12], ("n2",): [11, 11], ("n10",): [22, 24]}
    table = sweep_nodes_table(campaign, measured(campaign, times))
    assert list(table["hosts"]) == ["n1", "n2", "n10"]
    expected = {"n1": math.sqrt(10 / 11), "n2": math.sqrt(11 / 12), "n10": 2}
    assert by_hosts(table, "time_ratio") == pytest.approx(expected)
    assert by_hosts(table, "place") == {"n1": 1, "n2": 2, "n10": 3}
    assert by_hosts(table, "time_s") == pytest.approx({"n1": 120**0.5, "n2": 11, "n10": 528**0.5})
    assert (table["interval"].unique(), table["verdict"].unique()) == (["range"], ["inconclusive"])  # two repeats
    assert (by_hosts(table, "time_low_ratio")["n1"], by_hosts(table, "time_high_ratio")["n1"]) == pytest.approx(
        (10 / 11, 1)
    )
    assert sweep_pairs_table(campaign, measured(campaign, times)).empty


def test_a_repeat_with_one_result_is_not_compared(tmp_path):
    """Its median would be that result: a ratio of 1, which says nothing. The median of two is their geometric mean."""
    campaign = one_cell(["n1", "n2"], repeats=3)
    table = sweep_nodes_table(campaign, measured(campaign, {("n1",): [30, 30, 30], ("n2",): [10, None, None]}))
    assert by_hosts(table, "time_ratio") == pytest.approx({"n1": math.sqrt(3), "n2": math.sqrt(1 / 3)})
    assert by_hosts(table, "num_launches") == {"n1": 3, "n2": 1}
    alone = sweep_nodes_table(campaign, measured(campaign, {("n1",): [30, 30, 30], ("n2",): [None, None, None]}))
    assert by_hosts(alone, "time_s")["n1"] == pytest.approx(30)
    pair = one_cell(["n1", "n2"], "pairs")
    of_pair = sweep_nodes_table(pair, measured(pair, {("n1", "n2"): [30, 30]}))
    for rows in (alone, of_pair):
        assert rows[["time_ratio", "verdict", "p_value", "place"]].isna().all(axis=None)

    data = analyse(write_sweep(tmp_path / "one", sweep_campaign(["n1"], messages=(1024,))))
    [rows] = sweep.tables_of(data).values()
    assert sweep.counts_of(data, rows)["inconclusive"] == ["n1"]
    [matrix] = sweep.section(data).content["matrices"]
    assert {square.state for square in matrix.squares} == {"inconclusive"}
    assert [finding.kind for finding in sweep.findings(data)] == ["nodes"]


def test_shapes_with_different_numbers_of_gpus_are_different_workloads(tmp_path):
    names = ["n1", "n2", "n3"]
    campaign = sweep_campaign(names, messages=(1024,))
    for name in names:
        cell = collective_cell(1024, 1, 2, **MORE)
        cell["spec"]["hosts"] = [name]
        campaign["cells"].append(cell | {"id": f"{cell['id']}-{name}"})
    data = analyse(write_sweep(tmp_path / "shapes", campaign, {("n2", "collective"): 1.2}))
    [rows] = sweep.tables_of(data).values()
    assert rows.groupby(["hosts", "workload"]).size().max() == 1
    assert rows["workload"].nunique() == 3
    [finding] = outside(data)
    assert (finding.values["num"], finding.values["num_workloads"]) == (2, 3)
    [matrix] = sweep.section(data).content["matrices"]
    assert len(matrix.columns) == 3


def test_a_node_of_pairs_has_the_median_over_its_pairs():
    """Pairs take 10, 20 and 30. Medians over the pairs of a node: 15, 20, 25; the median node takes 20."""
    campaign = one_cell(["n1", "n2", "n3"], "pairs", 1)
    table = measured(campaign, {("n1", "n2"): [10], ("n1", "n3"): [20], ("n2", "n3"): [30]})
    nodes, pairs = sweep_nodes_table(campaign, table), sweep_pairs_table(campaign, table)
    assert by_hosts(nodes, "time_ratio") == pytest.approx({"n1": 0.75, "n2": 1, "n3": 1.25})
    assert (nodes["num_pairs"].tolist(), nodes["cell"].isna().all()) == ([2, 2, 2], True)
    assert by_hosts(pairs, "time_ratio") == pytest.approx({"n1, n2": 0.5, "n1, n3": 1, "n2, n3": 1.5})


@given(st.data())
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
def test_ratios_are_those_of_brute_force(data):
    over, num = data.draw(st.sampled_from(["nodes", "pairs"])), data.draw(st.integers(2, 6))
    campaign = one_cell([f"n{i}" for i in range(num)], over, 3)
    time = st.none() | st.floats(0.001, 10)
    times = {tuple(c["spec"]["hosts"]): data.draw(st.lists(time, min_size=3, max_size=3)) for c in campaign["cells"]}
    make = {"nodes": sweep_nodes_table, "pairs": sweep_pairs_table}[over]
    for row in make(campaign, measured(campaign, times)).itertuples():
        known = [[math.log(of[repeat]) for of in times.values() if of[repeat]] for repeat in range(3)]
        own, logs = times[tuple(row.hosts.split(", "))], []
        for mine, of_repeat in zip(own, known, strict=True):
            if mine and len(of_repeat) > 1:
                if len(of_repeat) > 3:
                    of_repeat.remove(math.log(mine))
                logs.append(math.log(mine) - statistics.median(of_repeat))
        assert row.num_launches == sum(time is not None for time in own)
        assert pd.isna(row.time_ratio) == (not logs)
        if logs:
            assert math.log(row.time_ratio) == pytest.approx(statistics.mean(logs), abs=1e-9)


@pytest.fixture(scope="module")
def of_nodes(tmp_path_factory):
    names = [f"n{i}" for i in range(1, 25)]
    return analyse(write_sweep(tmp_path_factory.mktemp("sweep") / "nodes", sweep_campaign(names), SLOWDOWNS, FAULTS))


@pytest.fixture(scope="module")
def of_pairs(tmp_path_factory):
    campaign = sweep_campaign([f"n{i}" for i in range(1, 21)], "pairs", messages=(2**28,))
    return analyse(write_sweep(tmp_path_factory.mktemp("sweep") / "pairs", campaign, SLOWDOWNS, FAULTS))


def test_slow_and_failed_nodes_are_named_and_the_others_are_not(of_nodes):
    groups = sweep.counts_of(of_nodes, sweep.tables_of(of_nodes)["node"])
    assert {name: hosts for name, hosts in groups.items() if name != "equivalent" and hosts} == {
        "failed": ["n9"],
        "slower": ["n5", "n17"],
    }
    assert len(groups["equivalent"]) == 21
    slowest, second = outside(of_nodes)
    assert (slowest.values["verdict"], second.values["verdict"]) == ("slower", "slower")
    assert (slowest.values["hosts"], slowest.values["num"], slowest.values["workload"]) == ("n5", 1, "ResNet-50")
    assert (second.values["hosts"], second.values["num"], second.values["num_workloads"]) == ("n17", 3, 3)
    assert 1.07 < second.values["low"] < second.values["ratio"] < second.values["high"] < 1.10
    assert (second.words["name"], second.words["several"]) == ("n17", 3)
    line = lines_of(of_nodes)["nodes"]
    assert (line.values["num_slower"], line.values["num_nodes"]) == (2, 24)
    assert line.values["nodes"]["failed"] == ["n9"]
    line_of_nodes = sweep.findings(of_nodes)[0]
    stated = sweep.TOPIC.stated(line_of_nodes)
    assert "[n9, n5, n17]" in stated.next_step
    assert stated.mark == "failed"
    assert (line_of_nodes.values["num_checked"], line_of_nodes.values["num_planned"]) == (23 * 18, 24 * 18)
    assert re.findall(r"(n\d+) (?:failed|([\d.]+) %)", stated.statement[0]) == [
        ("n9", ""),
        ("n5", "30.1"),
        ("n17", "8.2"),
    ]


def test_that_no_node_is_slow_is_never_said_without_the_failed_ones(tmp_path):
    """n2 fails three of six launches: the other four nodes are within the margin."""
    names = [f"n{number}" for number in range(1, 6)]
    faults = {("n2", repeat): FAULTS["n9", 0] for repeat in range(3)}
    data = analyse(write_sweep(tmp_path / "sweep", sweep_campaign(names, messages=(2**28,)), {}, faults))
    finding = sweep.findings(data)[0]
    assert finding.words["exclude"] == "n2"
    assert (finding.values["num_settled"], finding.values["num_checked"], finding.values["num_planned"]) == (4, 48, 60)
    assert "n2" in sweep.TOPIC.stated(finding).statement[0]


def test_a_healthy_node_that_is_avoided_is_readmitted(tmp_path):
    folder = write_sweep(tmp_path / "sweep", sweep_campaign(["n1", "n2", "n3", "n4"]), {("n3", ""): 1.3})
    for host in ("n2", "n3"):
        blame_nodes(folder, [host], "batch", "7", "it failed")
    data = analyse(folder)
    assert sweep.TOPIC.stated(sweep.findings(data)[0]).mark == "slow"
    [finding] = [finding for finding in sweep.findings(data) if finding.kind == "healthy_avoided"]
    assert (finding.values["hosts"], finding.values["num"]) == ("n2", 1)
    assert f"results/{data.campaign.name} n2" in sweep.TOPIC.stated(finding).next_step


def test_nodes_are_called_good_if_all_have_a_verdict(tmp_path):
    data = analyse(write_sweep(tmp_path / "sweep", sweep_campaign(["n1", "n2", "n3", "n4"], messages=(2**28,))))
    assert sweep.TOPIC.stated(sweep.findings(data)[0]).mark == "no slow node"


@pytest.mark.parametrize(("repeats", "faults"), [(1, {}), (2, {("n1", r): FAULTS["n9", 0] for r in range(2)})])
def test_too_few_launches_are_no_clean_bill_of_health(repeats, faults, tmp_path):
    data = analyse(write_sweep(tmp_path / "sweep", sweep_campaign(["n1", "n2", "n3"], repeats=repeats), {}, faults))
    line = lines_of(data)["nodes"]
    assert "{num_settled}" not in lead_of(data)
    assert line.values["nodes"]["equivalent"] == []
    assert sweep.TOPIC.stated(sweep.findings(data)[0]).mark == ("failed" if faults else "uncertain")


def test_an_inconclusive_node_is_named_with_its_effect_the_largest_first(tmp_path):
    """Two repeats cannot settle anything: n5 takes 1.2 and n2 1.04 times as long as the median of the others."""
    names = [f"n{number}" for number in range(1, 7)]
    times = {(name,): [10.0, 10.0] for name in names} | {("n5",): [12.0, 12.0], ("n2",): [10.3, 10.5]}
    campaign = one_cell(names)
    data = analyse(write_sweep(tmp_path / "sweep", campaign))
    data.tables["sweep_nodes"] = sweep_nodes_table(campaign, measured(campaign, times))
    line = lines_of(data)["nodes"]
    uncertain = line.values["inconclusive"]
    assert [effect["hosts"] for effect in uncertain[:2]] == ["n5", "n2"]
    assert uncertain[0]["ratio"] == pytest.approx(1.2)
    assert uncertain[1]["ratio"] == pytest.approx(math.sqrt(1.03 * 1.05))
    assert (uncertain[1]["low"], uncertain[1]["high"]) == pytest.approx((1.03, 1.05))
    texts = sweep.findings(data)[0].words["uncertain"]
    assert [text.split()[:2] for text in texts[:2]] == [["n5", "20.0"], ["n2", "4.0"]]


def test_an_inconclusive_node_with_a_settled_direction_is_a_finding(tmp_path):
    """6 % slower, margin 5 %: at six repeats with 0.4 % scatter the direction is settled, with 2 % of scatter neither."""
    names = [f"n{number}" for number in range(1, 13)]
    data = analyse(write_sweep(tmp_path / "sweep", sweep_campaign(names, messages=(2**28,)), {("n7", ""): 1.05}))
    found = [finding.values for finding in outside(data)]
    assert [(values["hosts"], values["verdict"]) for values in found] == [("n7", "inconclusive")]
    assert found[0]["low"] < 1.05 < found[0]["high"]
    assert found[0]["ratio"] == pytest.approx(1.05, abs=0.005)


def test_each_slow_link_has_its_own_share_of_the_bandwidth(tmp_path):
    """Calls that take 2 and 4 times as long have 50 and 25 % of it."""
    campaign = sweep_campaign([f"n{number}" for number in range(1, 9)], "pairs", messages=(2**28,))
    slow = {("n1, n2", ""): 4, ("n3, n4", ""): 2}
    lead = lines_of(analyse(write_sweep(tmp_path / "sweep", campaign, slow)))["nodes"].lead
    found = re.findall(r"link (\S+) \S+ % slower \((\d+) % of", lead)
    assert [(name, int(share)) for name, share in found] == [("n1\N{EN DASH}n2", 25), ("n3\N{EN DASH}n4", 50)]


def test_nodes_that_the_plan_skipped_are_listed_with_the_reason(tmp_path):
    campaign = sweep_campaign(["n1", "n2", "n3"], repeats=2)
    down = [cell for cell in campaign["cells"] if cell["spec"]["hosts"] == ["n2"]]
    campaign["cells"] = [cell for cell in campaign["cells"] if cell not in down]
    campaign["skipped"] = [cell | {"reason": "node n2 is drained (bad DIMM)"} for cell in down]
    data = analyse(write_sweep(tmp_path / "sweep", campaign))
    line = lines_of(data)["nodes"]
    assert line.values["skipped"] == {"n2": campaign["skipped"][0]["reason"]}
    assert line.values["num_nodes"] == 2


def test_a_figure_has_a_mark_for_each_node_and_those_that_failed_are_on_top_and_named(of_nodes, drawing):
    figure = sweep.section(of_nodes).headlines[0]
    hosts, frame, texts = (
        {", ".join(cell.hosts) for cell in of_nodes.campaign.cells},
        figure.chart.frame,
        texts_of(figure.svg),
    )
    limits, ranked = frame[frame["cell"] == ""], frame[frame["cell"] != ""]
    assert len(ranked) == len(figure.table.rows) == len(hosts)
    assert ranked["series"].tolist()[-2:] == ["slower", "failed"]
    assert (ranked["x"].tolist()[-1], ranked["y"].isna().tolist()[-2:]) == (1, [False, True])
    assert {"n5", "n9", "failed", "10"} <= {*texts}
    assert figure.table.rows[0][0] == "n9"
    assert limits["series"].tolist() == ["5 % margin", "\N{MINUS SIGN}4.8 % margin"]
    assert figure.svg.count(f'data-cell="{ranked["cell"].iloc[-1]}"') == 1


@pytest.fixture(scope="module")
def of_many(tmp_path_factory):
    """30 nodes, of which n11 to n15 are 20 to 24 % slower, and n9 and n19 fail."""
    slow = {(f"n{number}", ""): 1.2 + (number - 11) / 100 for number in range(11, 16)}
    faults = {(host, repeat): fault for (_, repeat), fault in FAULTS.items() for host in ("n9", "n19")}
    campaign = sweep_campaign([f"n{i}" for i in range(1, 31)], messages=(2**28,))
    return analyse(write_sweep(tmp_path_factory.mktemp("sweep") / "many", campaign, slow, faults))


def test_of_many_nodes_the_failed_ones_and_the_slowest_are_named_beside_their_marks(of_many, drawing):
    figure = sweep.section(of_many).headlines[0]
    texts = texts_of(figure.svg)
    named = {text.split(" +")[0]: float(text.split(" +")[1]) for text in texts if re.match(r"n\d+ \+", text)}
    assert named == pytest.approx({"n15": 24, "n14": 23, "n13": 22}, abs=1)
    assert "and 2 more" in texts
    assert [re.findall(r"n\d+", text) for text in texts if "failed: " in text] == [["n9", "n19"]]


def test_the_first_figure_has_the_workload_of_the_summary_and_the_contents_count_failed_nodes(of_nodes):
    section, line = sweep.section(of_nodes), lines_of(of_nodes)["nodes"]
    [largest] = line.values["largest"]
    assert largest["workload"] == "ResNet-50"
    assert section.headlines[0].title == "Nodes: ResNet-50"
    assert section.state[0].split(", ") == ["1 failed", "2 slower"]


def test_a_node_that_was_not_measured_has_no_result_in_the_figure():
    campaign = one_cell(["n1", "n2", "n3", "n4", "n5"], repeats=3)
    times = {(f"n{n}",): [1.0, 1.01, 1.02] for n in range(1, 5)} | {("n5",): []}
    table = sweep_nodes_table(typed(campaign), measured(campaign, times))
    data = report_data(campaign, measured(campaign, times), sweep_nodes=table, sweep_pairs=table[:0])
    frame = sweep.section(data).headlines[0].chart.frame
    assert frame.loc[frame["x"].notna(), "series"].tolist()[4:] == ["no result"]


def test_a_pair_is_a_finding_only_if_none_of_its_nodes_explains_it(of_pairs):
    tables = sweep.tables_of(of_pairs)
    groups = sweep.counts_of(of_pairs, tables["node"])
    assert (groups["slower"], groups["failed"], groups["missing"]) == (["n17"], ["n9"], [])
    slower = tables["pair"].query("verdict == 'slower'")["hosts"]
    assert len(slower) == 19  # the 18 others of n17, and n3 with n7
    found = [(f.values["noun"], f.values["hosts"]) for f in outside(of_pairs)]
    assert found == [("node", "n17"), ("pair", "n3, n7")]
    [matrix] = sweep.section(of_pairs).content["matrices"][1:]
    squares = {(square.row, square.column): square for square in matrix.squares}
    one, other = squares["n3", "n7"], squares["n7", "n3"]
    assert (one.text, one.state, one.level, one.note) == (other.text, other.state, other.level, other.note)
    assert (one.state, squares.get(("n3", "n3")), squares["n9", "n1"].state) == ("slower above", None, "failed")


def test_a_slow_link_is_in_the_first_figure_the_first_line_and_the_contents(of_pairs, drawing):
    """n17 takes 8 % longer, and n3 with n7 takes 50 % longer."""
    section, statement = sweep.section(of_pairs), sweep.TOPIC.stated(sweep.findings(of_pairs)[0]).statement
    figure = section.headlines[0]
    [link] = figure.chart.frame.query("series == 'slow link'").to_dict("records")
    assert (link["y"], dict(figure.chart.x.ticks)[link["x"]]) == (pytest.approx(50, abs=1), "n3\N{EN DASH}n7")
    named = f"{link['y']:.1f}"
    assert {"n3\N{EN DASH}n7", f"+{named} slow link"} <= {*texts_of(figure.svg)}
    assert re.findall(r"(n\d+)\W(n\d+) ([\d.]+) %", statement[0]) == [("n3", "n7", named)]
    assert section.state[0].split(", ") == ["1 failed", "2 slower"]
    assert figure.table.rows[1][0] == "n3, n7"


@pytest.mark.parametrize("name", ["of_nodes", "of_pairs"])
def test_beside_slow_nodes_is_the_precision_of_verdicts_and_no_good_confidence(name, request):
    data = request.getfixturevalue(name)
    line = confidence(data)
    assert (line.mark, line.statement[0].partition(":")[0]) == ("measured", "Precision")
    rows = sweep.tables_of(data)[name[3:-1]].query("interval == 'interval'")
    half = (rows["time_high_ratio"] / rows["time_low_ratio"]).astype(float) ** 0.5 - 1
    assert float(re.search(r"[\d.]+", line.statement[0])[0]) == pytest.approx(100 * half.median(), abs=0.051)


def test_one_node_has_no_precision(tmp_path):
    data = analyse(write_sweep(tmp_path / "sweep", sweep_campaign(["n1"], messages=(1024,))))
    assert confidence(data).mark == "uncertain"


def test_topics_that_would_pool_nodes_have_no_tables_and_no_sections(of_nodes):
    with_rows = {name for name in catalog.TABLES if len(of_nodes.tables[name])}
    of_all = {"sweep_nodes", "slow_launches", "failures", "timeline", "allocations"}
    assert with_rows == of_all & with_rows
    assert {"sweep_nodes", "failures"} <= with_rows
    shown = catalog.sections(of_nodes)
    assert [section.id for section in shown] == ["sweep", "stability", "failures", "timeline"]


def test_other_campaigns_have_no_such_section(of_nodes):
    campaign = replace(of_nodes.campaign, sweep=None, cells=())
    assert sweep_nodes_table(campaign, of_nodes.measurements).empty
    assert catalog.topics_of(typed(campaign)) == list(catalog.TOPICS)


def test_names_and_numbers_of_cells_distinguish_nodes(of_nodes):
    names = of_nodes.campaign.cell_names
    assert len({name.full for name in names.values()}) == len(names) == 72
    cell = next(cell for cell in of_nodes.campaign.cells if cell.hosts == ("n17",))
    assert names[cell.id].parts["hosts"] == "n17"
    block = data_block(of_nodes)
    place = block["cells"]["id"].index(cell.id)
    assert 7 < block["cells"]["difference_percent"][place] < 10
    assert len(block["facets"]["hosts"]["values"]) == 24


def test_the_warning_names_nodes_unlike_the_others_and_none_if_all_are_alike(tmp_path):
    names = ["n1", "n2", "n3", "n4"]
    folder = write_sweep(tmp_path / "sweep", sweep_campaign(names, repeats=2))
    assert not [f for f in machines.findings(analyse(folder)) if f.kind == "unlike_nodes"]
    for header, *_ in edit_launches(folder):
        if header["environment"]["hosts"][0]["host"] == "n3":
            header["environment"]["hosts"][0]["num_cores"] = 71
    [unlike] = [f for f in machines.findings(analyse(folder)) if f.kind == "unlike_nodes"]
    assert unlike.values == {"num": 1, "nodes": ["n3"]}


def test_two_sweeps_are_compared_node_by_node(tmp_path):
    names = ["n1", "n2", "n3"]
    before = write_sweep(tmp_path / "before", sweep_campaign(names))
    after = write_sweep(tmp_path / "after", sweep_campaign(names), {("n2", ""): 1.5})
    for folder in (before, after):
        analyse_files(folder)
    found = compare_campaigns(read_campaign(before), read_campaign(after), 0.05)
    assert len(found.comparisons) == 9
    slower = found.comparisons.query("verdict == 'slower'")
    assert {cell.rpartition("-")[0].rpartition("-")[2] for cell in slower["cell"]} == {"n2"}
    assert (slower["reference"] == slower["cell"]).all()
    assert sum("n2" in line for line in comparison_text([found]).splitlines()) >= 3
    assert len(measured_twice([read_campaign(before), read_campaign(after)])) == 9
