"""Launches in the drawer: pipelined and synchronized times, hosts, other results on them, and commands."""

import re
import shlex

from synthetic import collective_cell, make_campaign, report_data, train_cell
from synthetic_training import run_cell
from test_data_block import data_of

from regatta.report.cell_launches import (
    OtherResults,
    axis_of,
    launch_files,
    other_results,
    printable,
)
from regatta.report.explore import data_block
from regatta.report.page import cell_time_text
from regatta.store.csv_files import LAUNCHES, MEASUREMENTS, make_table
from regatta.tables.times import hosts_by_launch


def results(*rows, **hosts):
    """Return other_results of (launch, status, cause) rows. hosts: those of each launch, as launches.csv lists them."""
    table = [{"launch": launch, "status": status, "cause": cause} for launch, status, cause in rows]
    launches = [{"launch": launch, "hosts": listed} for launch, listed in hosts.items()]
    return other_results(make_table(table, MEASUREMENTS), hosts_by_launch(make_table(launches, LAUNCHES)))


def test_other_measurements_on_the_same_hosts_are_counted():
    found = results(
        ("a", "failed", "boom"),
        ("a", "ok", None),
        ("b", "ok", None),
        ("b", "failed", "boom"),
        ("c", "ok", None),
        (None, "not_measured", "no record"),
        ("b", "skipped", "not started: the first 3 cells failed"),
        a="n1, n2",
        b="n1, n2",
        c="n1, n3",
    )
    assert found == {0: OtherResults(2, 3), 3: OtherResults(2, 3)}
    assert "2 of 3" in found[0].text


def test_a_host_that_the_cause_names_is_compared_with_those_of_the_launch():
    rows = [
        ("a", "failed", "rank 3 on n2: RuntimeError: boom"),
        ("b", "ok", None),
        ("b", "failed", "srun: error: n9: task 3: Killed"),
        ("c", "failed", "a node failed (n2.cluster)"),
        ("d", "failed", "boom"),
    ]
    found = results(*rows, a="n1, n2", b="n2, n3", c="n2, n1", d="n4")
    assert found[0] == OtherResults(1, 3, host="n2")
    assert found[2] == OtherResults(1, 1, stranger="n9")
    assert found[3] == OtherResults(1, 3, host="n2")
    assert found[4] == OtherResults(0, 0)
    assert "n9" in found[2].text


def test_addresses_and_domains_are_not_confused_with_hosts():
    row = ("a", "failed", "rank 0 on 10.0.0.1: boom")
    assert results(row, a="10.0.0.2")[0].stranger == "10.0.0.1"
    row = ("a", "failed", "rank 0 on n1: boom")
    assert results(row, a="n1.cluster")[0].host == "n1.cluster"


def test_launches_without_recorded_hosts_say_nothing_about_others():
    assert results(("a", "failed", "boom"), a=None) == {}


def test_the_command_that_ran_is_that_of_the_launch_file_and_not_cut():
    argv = ["srun", "--nodes=2", "apptainer", "run", "--bind", "/a b:/c", "x.sif", *["--long"] * 300]
    found = launch_files(["l0", "l%"], [{"launch": "l0", "argv": argv}, {"launch": "l%", "argv": None}])
    assert found["addresses"] == ["launches/l0.jsonl", "launches/l%25.jsonl"]
    assert found["argv"][1] is None
    assert shlex.split(found["argv"][0])[:7] == argv[:7]
    assert found["argv"][0].count("--long") == 300


def test_a_text_that_is_cut_says_so_and_control_characters_are_replaced():
    assert printable("a\x1b[31m\ud800  b") == "a\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}  b"
    assert printable("x" * 30, 10).partition(" [cut")[0] == "x" * 10


def test_the_command_by_hand_has_more_than_a_thousand_characters():
    cell = train_cell("resnet18", 1, 2)
    cell["command"] = "torchrun " + "x" * 5000 + " end"
    assert data_block(data_of([(cell, [{}])]))["cells"]["command"] == [cell["command"]]


def test_a_launch_has_its_pipelined_time_beside_the_quantiles_of_its_samples():
    cell = train_cell("resnet18", 1, 2)
    launches = [{"p50_s": 0.12, "window_step_s": 0.1}, {"p50_s": 0.13, "window_step_s": None}]
    block = data_block(data_of([(cell, launches)]))
    assert block["launches"]["window"] == [1000, None]
    assert block["launches"]["p50"] == [200, 1300]
    notes = {column["key"]: column.get("note", "") for column in block["columns"]}
    assert notes["step_ms"].startswith("pipelined")
    assert notes["step_p50_ms"].startswith("synchronized")


def test_the_variation_between_launches_is_that_of_pipelined_times_and_calls_also_have_that_of_their_latency():
    step, call = train_cell("resnet18", 1, 2), collective_cell(4096, 1, 2)
    block = data_block(
        data_of(
            [
                (step, [{"window_step_s": s, "p50_s": 1.0} for s in (0.1, 0.2, 0.3)]),
                (call, [{"p50_s": p, "window_step_s": w} for p, w in ((1e-4, 5e-5), (1.1e-4, 5e-5), (1.2e-4, 1e-4))]),
            ]
        )
    )
    # (0.3 - 0.1) / 0.2; of pipelined calls (100 - 50) / 50, of blocking ones (120 - 100) / 110.
    assert block["cells"]["range_percent"] == [100, 100]
    assert block["cells"]["blocking_range_percent"] == [None, 18.1818]


def test_the_range_of_training_runs_is_that_of_their_total_time():
    run = run_cell("none", gpus=1)  # of two epochs
    launches = [
        {"p50_s": total / 2, "mean_s": total / 2, "total_s": total, "accuracy_ratio": 0.5} for total in (5.0, 6.0)
    ]
    block = data_block(data_of([(run, launches)]))
    assert block["cells"]["total_s"] == [5.47723]  # root of 5 x 6
    assert block["cells"]["range_percent"] == [18.1818]  # (6 - 5) / 5.5


def test_collectives_have_their_peak_memory():
    cell = collective_cell(4096, 1, 2)
    launches = [{"p50_s": 1e-4, "peak_rss_bytes": 2**30}, {"p50_s": 1e-4, "peak_rss_bytes": 2**29}]
    launches.append({"status": "failed", "phase": "measure", "cause": "boom", "peak_rss_bytes": 2**31})
    assert data_block(data_of([(cell, launches)]))["cells"]["peak_rss_mib"] == [1024]


def test_the_table_lists_failed_cells_first_then_others_in_natural_order():
    one = train_cell("resnet18", 1, 1, "none", stack="b")
    two, four = (train_cell("resnet18", 1, gpus, stack="b") for gpus in (2, 4))
    bad = train_cell("resnet18", 1, 8, stack="b")
    calls = [collective_cell(size, 1, 2, stack=stack) for size, stack in ((2**20, "b"), (2**14, "b"), (2**20, "a"))]
    gone = train_cell("resnet18", 1, 2, "none", stack="a") | {"reason": "needs 1 rank"}
    launches = [(one, [{"window_step_s": 0.1}]), (four, [{"window_step_s": 0.11}]), (two, [{"window_step_s": 0.2}])]
    launches += [(bad, [{"status": "failed", "phase": "setup", "cause": "boom"}])]
    launches += [(call, [{"p50_s": 1e-4}]) for call in calls]
    block = data_block(data_of(launches, [gone]))
    # Failed; each alone on its shape, so in the order of their names; by operation, stack and size; skipped.
    assert block["order"] == [3, 0, 2, 1, 6, 5, 4, 7]


def test_every_definition_belongs_to_a_column():
    block = data_block(data_of([(collective_cell(4096, 1, 2), [{"p50_s": 1e-4}])]))
    defined = {column["key"] for column in block["columns"] if "help" in column}
    assert "call" in defined
    assert "step_ms" not in defined


def test_a_stack_has_its_image_and_binds_in_one_line():
    cell = train_cell("resnet18", 1, 2, stack="bound")
    cell["spec"]["stack"] |= {"kind": "bind-mounted", "image_id": "3f2a", "binds": ["/opt/lib:/host/lib", "$TMPDIR"]}
    block = data_block(data_of([(cell, [{}])]))
    text = block["words"][block["cells"]["stack_facts"][0]]
    assert text.split("; ") == ["bound (bind-mounted)", "image 3f2a", "binds /opt/lib:/host/lib, $TMPDIR"]


def test_a_campaign_without_launches_has_no_files():
    block = data_block(report_data(make_campaign([]), make_table([], MEASUREMENTS)))
    assert block["files"] == {"names": [], "addresses": [], "argv": []}
    assert block["launches"]["window"] == []


def cell_time(*launches):
    measured = [{"launch": "a", "elapsed_s": 900.0, "world_size": 4}, {"launch": "b", "world_size": 4}]
    rows = [dict(zip(("launch", "cells_s", "warmup_s", "measuring_s"), launch, strict=True)) for launch in launches]
    table = make_table([row | {"nodes": 2, "gpus_per_node": 2} for row in rows], LAUNCHES)
    return cell_time_text(make_table(measured, MEASUREMENTS), table, "cuda")


def test_the_cell_time_is_split_where_the_launches_have_the_same_records():
    # 900 s x 4 GPUs = 1 hour; a launch of another campaign does not count.
    split = cell_time(("a", 900.0, 90.0, 540.0), ("other", 50.0, 0.0, 50.0))
    assert re.findall(r"[\d.]+", split) == ["1.00", "60", "10", "30"]
    for whole in (cell_time(("a", 950.0, 90.0, 540.0)), cell_time()):  # with a superseded record; of an old store
        assert re.findall(r"[\d.]+", whole) == ["1.00"]


def test_the_axis_of_launches_is_from_the_least_to_the_largest_time():
    first = {"window": 9, "min": 10, "p50": 12, "p75": 13, "max": 20}
    second = {"min": 11, "p50": 14, "p75": 15, "p90": 16, "max": 18}
    assert axis_of([first, {"p50": None}, second]) == (10, 20)
    assert axis_of([{"p50": 5}, {"p50": 7}]) == (5, 7)
    assert axis_of([{}]) == (None, None)


def test_the_axis_of_a_far_outlier_ends_at_the_last_percentile():
    assert axis_of([{"min": 10, "p50": 12, "p75": 13, "p95": 14, "max": 1000}]) == (10, 14)


def test_times_are_four_figures_in_steps_of_the_least_median_and_each_is_the_change_from_the_one_before():
    cell = collective_cell(4096, 1, 2)
    launches = [
        {"window_step_s": 9.9, "min_s": 9.99987, "p50_s": 10.07, "max_s": 12345.6},
        {"p50_s": None, "status": "failed"},
        {"min_s": 123.44, "p50_s": 1000.0, "max_s": 1000.0},
    ]
    block = data_block(data_of([(cell, launches)]))
    assert [block["cells"][key] for key in ("time_unit", "decimals", "low", "high")] == [["s"], [2], [1000], [100000]]
    assert block["times"][block["cells"]["times"][0]] == [
        ("window", "pipelined"),
        *((of, of) for of in ("min", "p50", "max")),
    ]
    times = [[block["launches"][name][launch] for name in ("window", "min", "p50", "max")] for launch in range(3)]
    assert times == [[990, 10, 7, 1233993], [None] * 4, [None, 12340, 87660, 0]]


def test_one_launch_does_not_take_digits_from_the_others():
    block = data_block(data_of([(collective_cell(4096, 1, 2), [{"p50_s": 1000.0}, {"p50_s": 1.2345}])]))
    assert (block["cells"]["decimals"], block["launches"]["p50"]) == ([3], [1_000_000, 1234])
