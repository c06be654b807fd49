"""Launches and nodes that were slow in most of their cells: ratios by hand, their place in the report, chance."""

import math
import random

import numpy as np
import pytest
from comparison_results import cell_of
from planted import plant
from scipy import stats
from synthetic import LAPTOP, analyse, edit_records, make_campaign, write_results

from regatta.kit.kinds import FAIR, LOW, NOTE, filled
from regatta.store.csv_files import MEASUREMENTS, make_table, plain_rows
from regatta.tables.slow_launches import SLOW_LAUNCHES, p_of_each, slow_launches_table
from regatta.topics.slow_places import LAUNCHES as TOPIC
from regatta.topics.slow_places import slow_launches as findings
from regatta.topics.summary import answer_json
from regatta.topics.warnings_section import warnings

SIZES = (1024, 4096, 16384, 65536, 262144, 1048576)
CELLS = [cell_of("host", size) for size in SIZES]


def table_of(times: dict[tuple[str, str, str], list[float]], **load) -> list[dict]:
    """Return rows of the table. times: (launch, hosts, cell letters) -> seconds; load: launch -> ratio of others."""
    rows = []
    for (launch, hosts, cells), seconds in times.items():
        for cell, value in zip(cells, seconds, strict=True):
            row = {"cell": cell, "status": "ok", "launch": launch, "repeat": int(launch[-1]), "p50_s": value}
            row |= {"nodes": 1, "gpus_per_node": 2, "stack": "host", "hosts": hosts}
            if launch in load:
                row |= {"other_processes_ratio": load[launch], "loaded_host": hosts.split(", ")[0]}
            rows.append(row)
    return plain_rows(slow_launches_table(make_table(rows, MEASUREMENTS)), tuple(SLOW_LAUNCHES))


def test_ratios_are_to_the_median_of_the_cell_s_other_launches():
    first, second, third = table_of(
        {("l0", "n", "abcd"): [4, 8, 6, 1], ("l1", "n", "abcd"): [1, 1, 2, 1], ("l2", "n", "abcd"): [1, 3, 2, 1]},
        l0=0.71, l1=0.02,
    )  # fmt: skip
    # a: 4/1, b: 8/2, c: 6/2, d: 1/1
    assert (first["num_cells"], first["num_slow"], first["is_slow"]) == (4, 3, True)
    assert (first["low_ratio"], first["high_ratio"], first["median_ratio"]) == (3, 4, 3.5)
    assert (first["other_processes_ratio"], second["other_processes_ratio"]) == (0.71, 0.02)
    assert third["other_processes_ratio"] is None
    # a: 1/2.5, b: 1/5.5, c: 2/4, d: 1/1
    assert (second["num_slow"], second["is_slow"], second["median_ratio"]) == (0, False, 0.45)
    assert second["low_ratio"] is None
    assert [row["launch"] for row in (first, second, third)] == ["l0", "l1", "l2"]


@pytest.mark.parametrize(
    ("slow", "is_slow"),
    [([2, 2, 2], True), ([2, 2, 1], False), ([2, 2], False), ([2, 2, 2, 1, 1], True), ([2, 2, 2, 1, 1, 1], False),
     ([1.35, 1.35, 1.35], False), ([1.36, 1.36, 1.06], True), ([1.36, 1.36, 1.05], False)],
)  # fmt: skip
def test_slow_is_beyond_the_margin_in_more_than_half_and_three_cells_and_without_a_test_beyond_the_factor(
    slow, is_slow
):
    cells = "abcdef"[: len(slow)]
    others = {(f"l{i}", "n", cells): [1 + scatter] * len(slow) for i, scatter in ((1, 0.01), (2, -0.01))}
    found = table_of({("l0", "n", cells): slow} | others)
    assert [row["is_slow"] for row in found] == [is_slow, False, False]


@pytest.mark.parametrize(
    ("scatter", "slow", "is_slow"), [(0.01, 1.2, True), (0.01, 1.04, False), (0.06, 1.2, False), (0.06, 1.36, True)]
)
def test_a_launch_unlike_the_others_is_slow_from_the_margin(scatter, slow, is_slow):
    """Of five launches; the others scatter by 1 or 6 %, the same in all cells."""
    factors = [slow, *(1 + scatter * step for step in (-1, -0.5, 0.5, 1))]
    found = table_of({(f"l{i}", "n", "abcd"): [factor] * 4 for i, factor in enumerate(factors)})
    assert [row["is_slow"] for row in found] == [is_slow, *[False] * 4]
    assert found[0]["num_slow"] == (4 if slow > 1.05 else 0)


def test_the_p_of_each_launch_is_that_of_a_t_test_against_the_others():
    values = np.array([0.3, 0.01, -0.02, 0.02, -0.01])
    [first, *_] = p_of_each(values)
    error = values[1:].std(ddof=1) * (1 + 1 / 4) ** 0.5  # of a further value
    assert first == pytest.approx(2 * stats.t.sf((0.3 - values[1:].mean()) / error, 3))
    assert p_of_each(values[None])[0].tolist() == p_of_each(values).tolist()
    assert p_of_each(np.array([1.0, 0, 0])).tolist() == pytest.approx([0, 2 / 3, 2 / 3], abs=1e-6)


def test_of_two_launches_neither_is_compared():
    assert table_of({("l0", "n", "abc"): [9, 9, 9], ("l1", "n", "abc"): [1, 1, 1]}) == []


def test_a_node_is_compared_with_launches_on_others():
    times = {(f"l{i}", hosts, "abc"): [value] * 3 for i, (hosts, value) in enumerate(
        [("n1, n2", 1.0), ("n1, n3", 2.0), ("n3, n2", 3.0), ("n1, n2", 1.0)])}  # fmt: skip
    found = {row["host"]: row for row in table_of(times, l1=0.4, l2=0.6) if row["host"]}
    # n3: median of 2, 3 over median of 1, 1. n1 and n2 have one launch without them: not compared.
    assert found.keys() == {"n3"}
    assert (found["n3"]["is_slow"], found["n3"]["median_ratio"], found["n3"]["num_cells"]) == (True, 2.5, 3)
    assert found["n3"]["other_processes_ratio"] == 0.6  # of l2, where n3 was the host with the most


def write(folder, slow: dict[int, float], load: dict[int, float] | None = None, repeats: int = 3, **of_load: int):
    """Write results of some launches. slow: repeat -> factor in all but the last cell; load: ratio of others.

    of_load: further counters of the host.
    """
    write_results(folder, make_campaign(CELLS, repeats=repeats), LAPTOP)
    for record in edit_records(folder):
        factor = slow.get(record["repeat"], 1) if record["cell"] != CELLS[0]["id"] else 1
        for times, key in ((record, "samples_ns"), (record["windows"], "elapsed_ns")):
            times[key] = [[int(factor * ns) for ns in row] for row in times[key]]
        if load:
            times = {"num_cores": 2, "elapsed_ns": 10**9, "ranks_cpu_ns": 5 * 10**8}
            times["busy_ns"] = 5 * 10**8 + int(2e9 * load[record["repeat"]])
            record["host_load"] = {"hosts": [{"rank": 0, **times, **of_load, "unknown": {}}], "gpus": []}
    return folder


def read(data) -> dict:
    return {line["id"]: line for line in answer_json(data)["lines"]}


def test_a_slow_launch_is_named_first_with_the_load(tmp_path):
    folder = write(tmp_path / "r", {0: 5.0}, {0: 0.71, 1: 0.02, 2: 0.03})
    data = analyse(folder)
    table = plain_rows(data.tables["slow_launches"], tuple(SLOW_LAUNCHES))
    [row] = [row for row in table if row["is_slow"]]
    assert (row["repeat"], row["num_slow"], row["num_cells"], row["other_processes_ratio"]) == (0, 5, 6, 0.71)
    assert 4.5 < row["low_ratio"] <= row["high_ratio"] < 5.5
    line = read(data)["confidence"]
    [slow] = line["values"]["slow_launches"]
    assert (slow["name"], slow["num_slow"], slow["num_cells"]) == ("launch 1", 5, 6)
    [finding] = findings(data)
    assert (finding.kind, TOPIC.stated(finding).rank) == ("slow_launch", LOW)
    assert finding.words["other_processes_ratio"].estimate == 0.71
    assert set(finding.cells) == {cell["id"] for cell in CELLS}
    assert warnings(data)[0].values == slow == finding.values


@pytest.mark.parametrize(
    ("steal_ns", "throttled_ns", "said"),
    [(0, 0, []), (5 * 10**6, 10**6, []), (8 * 10**8, 5 * 10**6, ["steal: 40 %."]), (1, 10**9, ["limit): 50 %."])],
)  # fmt: skip
def test_what_the_machine_took_is_named_from_5_percent(tmp_path, steal_ns, throttled_ns, said):
    """Of 2 cores for 1 s: 0.25 % is in the table, and not in the warning."""
    folder = write(
        tmp_path / "r", {0: 5.0}, dict.fromkeys(range(3), 0.02), steal_ns=steal_ns, throttled_ns=throttled_ns
    )
    data = analyse(folder)
    [row] = [row for row in plain_rows(data.tables["slow_launches"], tuple(SLOW_LAUNCHES)) if row["is_slow"]]
    assert (row["steal_ratio"], row["throttled_ratio"]) == (round(steal_ns / 2e9, 4), round(throttled_ns / 2e9, 4))
    [finding] = findings(data)
    text = TOPIC.stated(finding).text
    assert [words for words in ("steal: 40 %.", "limit): 50 %.") if words in text] == said
    assert text.count("CPU steal") + text.count("cgroup") == len(said)


def test_without_counters_it_is_named_without_the_load(tmp_path):
    folder = write(tmp_path / "r", {1: 4.0})
    data = analyse(folder)
    line = read(data)["confidence"]
    [slow] = line["values"]["slow_launches"]
    assert (slow["name"], slow["num_slow"], slow["other_processes_ratio"]) == ("launch 2", 5, None)


def test_slow_launches_are_named_by_effect_with_the_step_that_excludes_them(tmp_path):
    data = analyse(write(tmp_path / "r", {1: 4.0, 3: 9.0}, repeats=7))
    found = findings(data)
    assert [finding.values["repeat"] for finding in found] == [3, 1]
    kind = TOPIC.stated(found[0]).declared
    assert "launch 4" in filled(kind.next_step, found[0].values)
    assert "[n7]" in filled(TOPIC.kinds[0].next_step, {"name": "node n7", "exclude": "n7"})


@pytest.mark.parametrize(
    ("load", "num"), [({0: 0.6, 1: 0.5, 2: 0.7}, 18), ({0: 0.6, 1: 0.1, 2: 0.2}, 6), ({0: 0.2, 1: 0.25, 2: 0.1}, 0)]
)
def test_a_machine_that_is_busy_in_all_launches_is_named_although_none_is_slower(tmp_path, load, num):
    data = analyse(write(tmp_path / "r", {}, load))
    values = read(data)["confidence"]["values"]
    assert "slow_launches" not in values
    assert values.get("loaded_measurements", {}).get("num", 0) == num
    if num:
        assert values["loaded_measurements"]["other_processes_ratio"] == 0.6
        assert [TOPIC.stated(finding).rank for finding in findings(data)] == [FAIR]


def test_measurements_on_a_busy_machine_are_counted_outside_slow_launches(tmp_path):
    data = analyse(write(tmp_path / "r", {0: 5.0}, {0: 0.71, 1: 0.6, 2: 0.03}))
    line = read(data)["confidence"]
    assert line["values"]["loaded_measurements"] == {
        "num": 6, "num_ok": 12, "num_in_slow_launches": 6, "other_processes_ratio": 0.6
    }  # fmt: skip


def test_timeouts_on_a_busy_machine_are_named_in_the_line_on_failures(tmp_path):
    late = {(CELLS[i]["id"], 0): ("timeout", None, f"no record within 60 s; cell {i}") for i in range(3)}
    folder = tmp_path / "r"
    write_results(folder, make_campaign(CELLS), LAPTOP, late)
    times = {"num_cores": 2, "elapsed_ns": 60 * 10**9, "ranks_cpu_ns": 20 * 10**9, "busy_ns": 110 * 10**9}
    for record in edit_records(folder):
        if record["status"] == "timeout" and record["cell"] != CELLS[2]["id"]:
            record["host_load"] = {"hosts": [{"rank": 0, **times, "unknown": {}}], "gpus": []}
    data = analyse(folder)
    line = read(data)["failed"]
    assert line["values"]["loaded_timeouts"] == {"num": 2, "num_timeouts": 3, "other_processes_ratio": 0.75}
    assert [TOPIC.stated(finding).rank for finding in findings(data)] == [NOTE]


@pytest.mark.parametrize("num_launches", [3, 5, 10])
@pytest.mark.parametrize("is_common", [False, True])
def test_where_nothing_differs_at_most_one_campaign_in_a_hundred_names_a_launch(num_launches, is_common):
    """Variation of 8 %, per cell, or the same in all cells of a launch. The rates: docs/metrics.md."""
    rng, times = random.Random(7), {}
    for campaign in range(200):
        for i in range(num_launches):
            shared = rng.gauss(0, 0.08)
            cells = tuple(f"{campaign}{cell}" for cell in "abc")
            scatter = [shared if is_common else rng.gauss(0, 0.08) for _ in cells]
            times[f"{campaign}-l{i}", "n", cells] = [math.exp(one) for one in scatter]
    found = [row for row in table_of(times) if row["launch"]]
    assert len(found) == 200 * num_launches
    assert len({row["launch"].split("-")[0] for row in found if row["is_slow"]}) <= 2


def test_a_slow_node_is_named_with_its_slow_launches(tmp_path):
    """Of seven launches, three are on n7, of which two are slow."""
    campaign = make_campaign(CELLS, repeats=7, allocations=7)
    nodes = {"nodes": lambda _, allocation: ["n7" if allocation > 3 else "n9"]}
    folder = plant(tmp_path / "r", campaign, lambda _, repeat, __: 0.01 * (4 if repeat > 4 else 1), **nodes)
    names = [one.values["name"] for one in findings(analyse(folder)) if one.kind == "slow_node"]
    assert names == ["node n7, launches 6 and 7"]
