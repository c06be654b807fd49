"""The lines of the page's first block: their numbers are computed here from the records, by hand or by brute force."""

import json
import math
import os
import re
import statistics
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from comparison_results import cell_of
from markupsafe import escape
from synthetic import (
    CLUSTER,
    LAPTOP,
    analyse,
    cluster_campaign,
    collective_cell,
    edit_launches,
    edit_records,
    laptop_campaign,
    lines_of,
    make_campaign,
    make_report,
    report_data,
    train_cell,
    write_laptop,
    write_results,
)
from synthetic_own import MACHINE, program_cell
from synthetic_timeline import write_nights
from synthetic_waits import write_waits

from regatta.kit.kinds import FAIR, LOW, NOTE, SUMMARY, Kind
from regatta.report.chart import Chart, PlotAxis
from regatta.report.findings import Finding, numbered, unbroken
from regatta.report.panels import Figure, Table
from regatta.run.progress import outcome_text
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.topics import buckets
from regatta.topics.base import Topic, unreliable_cells
from regatta.topics.scaling import scaling_findings as scaling
from regatta.topics.scaling.scaling_findings import loss_bars
from regatta.topics.scaling.scaling_section import above_texts, losses_figures
from regatta.topics.summary import answer_json, confidence, next_steps, subject, summary, to_do_next
from regatta.topics.warnings_section import warnings, warnings_by_cell


def answer(folder):
    return lines_of(analyse(folder))


def mark_of(data, key: str) -> str:
    """Return the mark of a line, without regard to how far it can be trusted."""
    return next(line.mark for line in (*data.findings, *summary(data)) if (line.rank, line.key) == (SUMMARY, key))


def set_step_times(folder, seconds):
    """Give the windows of each record these seconds per step. seconds: (cell, repeat) -> seconds."""
    for record in edit_records(folder):
        if record["status"] == "ok":
            step = int(1e9 * seconds(record["spec"], record["repeat"]))
            record["windows"] = {"steps_per_window": 1, "elapsed_ns": [[step] * 4 for _ in record["samples_ns"]]}
            record["samples_ns"] = [[step] * len(rank) for rank in record["samples_ns"]]


def drop_records(folder, is_lost):
    for lines in edit_launches(folder):
        lines[:] = [line for line in lines if line["kind"] != "record" or not is_lost(line)]


SHAPES = (((1, 1), "none", [None]), ((1, 1), "ddp", [1, 25]), ((1, 2), "ddp", [1, 25]), ((2, 2), "ddp", [1, 25]))


@pytest.fixture
def two_models(tmp_path):
    """resnet18 and resnet50 on 1, 2 and 4 ranks, with two buckets; two launches that differ by 2 %."""

    def seconds(spec, repeat):
        p, n = spec["parameters"], spec["nodes"] * spec["gpus_per_node"]
        base = {"resnet18": 0.010, "resnet50": 0.040}[p["model"]]
        lost = {1: 1.0, 2: 0.9, 4: {"resnet18": 0.5, "resnet50": 0.82}[p["model"]]}[n]
        return base / lost * (1.1 if p["bucket_cap_mb"] == 1 and n > 1 else 1) * (1 + 0.02 * repeat)

    cells = [
        train_cell(model, *place, strategy, bucket)
        for model in ("resnet18", "resnet50")
        for place, strategy, buckets in SHAPES
        for bucket in buckets
    ]
    folder = write_results(tmp_path / "r", make_campaign(cells, repeats=2), LAPTOP_BOTH)
    set_step_times(folder, seconds)
    return folder


LAPTOP_BOTH = type(LAPTOP)({"resnet18": 0.1, "resnet50": 0.2}, {"resnet18": 1e7, "resnet50": 1e7}, 0.9, 1e-5, 1e9)


def by_model(values):
    return {cell.split("-")[1]: value for cell, value in values.items()}


def test_the_ends_of_the_efficiency_its_losses_and_the_best_bucket_are_named_by_workload(two_models):
    data = analyse(two_models)
    lines = lines_of(data)
    line, bucket = lines["scaling"], lines["bucket"].values
    assert (mark_of(data, "scaling"), mark_of(data, "bucket")) == ("measured", "measured")
    # Best bucket, 4 ranks: step of one rank / step of four = 0.5 and 0.82 (both launches are 2 % slower alike).
    assert line.values["world_size"] == 4
    assert line.values["lowest_ratio"] == pytest.approx(0.5)
    assert line.values["highest_ratio"] == pytest.approx(0.82)
    assert line.values["lowest_low_ratio"] is line.values["highest_high_ratio"] is None  # the ends are selected
    assert "50.0 % to 82.0 %" in line.lead
    # Of the ideal: 0.1 within a node; 0.4 or 0.08 between nodes.
    assert by_model(line.values["largest_losses"]) == {"resnet18": "inter_node_ratio", "resnet50": "intra_node_ratio"}
    losses = by_model(line.values["largest_losses_ratio"])
    assert losses == {"resnet18": pytest.approx(0.4), "resnet50": pytest.approx(0.1)}
    losses_text = "losses in percentage points: intra-node 10, inter-node 8.0\N{EN DASH}40"
    assert line.text.split("; ")[:2] == ["lowest: ResNet-18, highest: ResNet-50", losses_text]
    assert line.values["without_result"] == {}
    bars = {bar.group.partition(" ")[0]: bar for bar in reversed(loss_bars(data))}  # of the largest shape
    for name, kept in (("ResNet-18", 50), ("ResNet-50", 82)):  # DDP on one rank costs nothing here
        assert bars[name].parts == pytest.approx((kept, 0, 10, 90 - kept, None))
    assert (bucket["bucket_cap_mb"], bucket["num_best"], bucket["num"]) == ([25.0], 2, 2)
    assert (bucket["worst_bucket_cap_mb"], bucket["worst_cost_ratio"]) == (1, pytest.approx(0.1))


def test_losses_have_their_range_over_workloads_and_none_is_called_the_largest(tmp_path):
    """Five models lose half of the throughput between nodes, and one three quarters within a node."""
    models = [f"model_{number}" for number in range(6)]
    cells = [train_cell(model, *place, strategy) for model in models for place, strategy, _ in SHAPES]
    machine = type(LAPTOP)(dict.fromkeys(models, 0.1), dict.fromkeys(models, 1e7), 0.9, 1e-5, 1e9)
    folder = write_results(tmp_path / "r", make_campaign(cells, repeats=2), machine)

    def seconds(spec, repeat):
        n, is_odd = spec["nodes"] * spec["gpus_per_node"], spec["parameters"]["model"] == "model_5"
        return 0.1 * ({1: 1, 2: 4, 4: 4} if is_odd else {1: 1, 2: 1, 4: 2})[n]

    set_step_times(folder, seconds)
    line = answer(folder)["scaling"]
    assert line.text.split("; ")[1] == "losses in percentage points: intra-node 75, inter-node 50"


def without(folder, is_lost):
    """Turn the records of some specs into failures."""
    for record in edit_records(folder):
        if is_lost(record["spec"]):
            record |= {"status": "failed", "phase": "measure", "cause": "boom"}


def test_a_workload_without_a_result_at_the_largest_shape_is_named(two_models):
    without(two_models, lambda spec: spec["nodes"] == 2 and spec["parameters"]["model"] == "resnet18")
    data = analyse(two_models)
    line = lines_of(data)["scaling"]
    assert mark_of(data, "scaling") == "partly measured"
    assert line.values["lowest_ratio"] == line.values["highest_ratio"] == pytest.approx(0.82)
    assert list(line.values["without_result"].values()) == [4]


def test_a_size_at_which_all_workloads_failed_is_named(two_models):
    without(two_models, lambda spec: spec["nodes"] == 2)
    line = answer(two_models)["scaling"]
    assert line.values["world_size"] == 2
    assert sorted(by_model(line.values["without_result"])) == ["resnet18", "resnet50"]
    assert set(line.values["largest_losses"].values()) == {"intra_node_ratio"}


@pytest.mark.parametrize(("loud", "num"), [(("resnet18", "resnet50"), 2), (("resnet50",), 1)])
def test_an_uncertain_efficiency_is_no_answer(two_models, loud, num):
    """Launches on four ranks that differ by half: a range far above 20 % of the efficiency."""
    set_step_times(
        two_models,
        lambda spec, repeat: 0.01 / (1 + 0.5 * repeat * (spec["nodes"] == 2 and spec["parameters"]["model"] in loud)),
    )
    data = analyse(two_models)
    line = lines_of(data)["scaling"]
    assert line.values["num_uncertain"] == num
    assert mark_of(data, "scaling") == ("uncertain" if num == 2 else "partly measured")
    if num == 2:
        assert "lowest_ratio" not in line.values
        # 1 and 1.5 times the efficiency: their geometric mean is 1.22.
        assert re.findall(r"\d+(?= %|\N{EN DASH})", line.lead) == ["120", "100", "150"]
    else:
        assert line.values["lowest_ratio"] == line.values["highest_ratio"] == pytest.approx(1)


def test_a_bucket_of_one_valid_launch_has_unknown_noise(two_models):
    """The other of two workloads is still tested: both sizes of it are within noise, or one is slower."""
    drop_records(two_models, lambda record: "-resnet18-" in record["cell"] and record["repeat"] == 1)
    [finding] = buckets.findings(analyse(two_models))
    assert (finding.values["num"], finding.words["num_untested"], finding.words["num_workloads"]) == (1, 1, 2)


@pytest.mark.parametrize(("stacks", "text"), [(("one",), "workloads"), (("one", "two"), "workload/stack pairs")])
def test_each_workload_counts_once_in_a_number_of_workloads(stacks, text):
    place = dict.fromkeys(buckets.GROUP, 1)
    groups = [
        [{**place, "model": model, "stack": stack, "bucket_cap_mb": number}]
        for number, model in enumerate(("a", "b"))
        for stack in stacks
    ]
    assert buckets.groups_text(groups) == text


def many_workloads(folder, of_launch, models=8, repeats=3, sizes=(1, 25)):
    """Write models with some bucket sizes on two ranks. of_launch: (model, bucket, repeat) -> log of step time."""
    names = [f"model_{number}" for number in range(models)]
    cells = [train_cell(name, 1, 2, "ddp", bucket) for name in names for bucket in sizes]
    machine = type(LAPTOP)(dict.fromkeys(names, 0.1), dict.fromkeys(names, 1e7), 0.9, 1e-5, 1e9)
    written = write_results(folder, make_campaign(cells, repeats=repeats), machine)

    def seconds(spec, repeat):
        parameters = spec["parameters"]
        number = names.index(parameters["model"])
        return 0.1 * math.exp(of_launch(number, parameters["bucket_cap_mb"], repeat))

    set_step_times(written, seconds)
    return written


def test_a_size_that_one_workload_in_eight_excludes_by_chance_stays_in_the_answer(tmp_path):
    """Seven differences around 0, and one of four standard errors: not significant over eight workloads."""
    noise = 0.02 * np.random.default_rng(5).standard_normal((8, 2, 3))
    noise -= noise.mean(-1, keepdims=True)

    def of_launch(number, bucket, repeat):
        return noise[number, int(bucket == 25), repeat] + SHIFT * (number == 0 and bucket == 1)

    folder = many_workloads(tmp_path / "r", of_launch)
    data = analyse(folder)
    settings = data.tables["settings"]
    assert mark_of(data, "bucket") == "uncertain"
    assert settings["may_be_best"].value_counts().to_dict() == {True: 15, False: 1}
    [finding] = buckets.findings(data)
    assert finding.values["bucket_cap_mb"] == [1.0, 25.0]
    assert (finding.values["num_best"], finding.values["num"]) == (8, 8)
    # No difference was shown, nor that there is none: the highest end of the intervals is above 5 %.
    ends = settings["cost_high_ratio"].max()
    assert finding.words["upper"] == f"{math.ceil(1000 * ends) / 10:g} %"
    assert "equal" not in finding.words


SHIFT = 0.043


def test_a_size_with_one_launch_is_undecided_and_the_others_are_compared(tmp_path):
    folder = many_workloads(tmp_path / "r", lambda _, b, r: 0.1 * (b == 1) + 1e-3 * r * (b == 25), 2, 3, (1, 25, 100))
    drop_records(folder, lambda record: "-100-" in record["cell"] and record["repeat"] > 0)
    values = answer(folder)["bucket"].values
    assert values["bucket_cap_mb"] == [25.0, 100.0]
    assert values["undecided_mb"] == [100.0]
    assert (values["worst_bucket_cap_mb"], values["num"]) == (1, 2)
    assert values["worst_cost_ratio"] == pytest.approx(math.exp(0.1 - 0.001) - 1, abs=1e-6)


def test_an_efficiency_above_110_percent_is_a_warning_on_its_baseline(two_models):
    """The baseline of ResNet-18 ran at a tenth of its speed: 500 % is no end of a range, and no loss has a row."""
    names = {"resnet18": 10, "resnet50": 1}
    is_slow = {True: names, False: dict.fromkeys(names, 1)}

    def seconds(spec, repeat):
        model = spec["parameters"]["model"]
        slowdown = is_slow[spec["parameters"]["strategy"] == "none"][model]
        return 0.01 * slowdown * (1 + 0.1 * (spec["nodes"] * spec["gpus_per_node"] > 1)) * (1 + 0.001 * repeat)

    set_step_times(two_models, seconds)
    data = analyse(two_models)
    [finding] = [one for one in scaling.findings(data) if one.kind == "baseline_suspect"]
    assert finding.values["efficiency"].estimate == pytest.approx(10 / 1.1)
    assert [data.cell_names[cell].parts["subject"] for cell in finding.cells] == ["ResNet-18"] * 2
    values = answer(two_models)["scaling"].values
    assert values["lowest_ratio"] == values["highest_ratio"] == pytest.approx(1 / 1.1)
    assert {bar.group.partition(" ")[0] for bar in loss_bars(data)} == {"ResNet-50"}
    assert finding.cells[0] in warnings_by_cell(warnings(data))


def test_a_baseline_alone_has_no_efficiency(two_models):
    """All steps with DDP failed: the baseline's 100 % of itself is not a result."""
    without(two_models, lambda spec: spec["parameters"]["strategy"] == "ddp")
    line = answer(two_models)["scaling"]
    rate = line.values["throughput_samples_per_s"]
    assert rate == pytest.approx(8 / math.sqrt(0.0100 * 0.0102))  # batches of 8 in 10.0 and 10.2 ms
    [found] = scaling.findings(analyse(two_models))
    assert (found.kind, found.words["num_workloads"]) == ("best_throughput", 2)


def test_no_part_is_the_largest_loss_where_a_part_is_unknown(two_models):
    """Without one rank with DDP, the cost of DDP and of one node are unknown; inter-node alone is not the largest."""
    without(
        two_models, lambda spec: spec["parameters"]["strategy"] == "ddp" and spec["nodes"] * spec["gpus_per_node"] == 1
    )
    line = answer(two_models)["scaling"]
    assert line.values["lowest_ratio"] == pytest.approx(0.5)
    assert line.values["largest_losses"] == {}
    assert "loss" not in line.text


def test_each_row_of_losses_has_its_shape_and_the_largest_come_first(two_models):
    without(two_models, lambda spec: spec["nodes"] == 2 and spec["parameters"]["model"] == "resnet18")
    rows = [(bar.group.partition(" ")[0], bar.label) for bar in loss_bars(analyse(two_models))]
    assert rows == [("ResNet-50", "2×2"), ("ResNet-50", "1×2"), ("ResNet-18", "1×2")]


def test_the_breakdown_has_a_bar_for_each_shape_whose_parts_sum_to_the_ideal(two_models):
    data = analyse(two_models)
    [figure] = losses_figures(data)
    sums = figure.chart.frame.groupby(["group", "y"], sort=False)["x"].sum()
    names = [(group.partition(" ")[0], shape) for group, shape in sums.index]
    assert names == [(name, of) for name in ("ResNet-18", "ResNet-50") for of in ("2×2", "1×2")]
    assert sums.tolist() == pytest.approx([100] * 4)
    assert len(figure.table.rows) == 4


@pytest.mark.parametrize(
    ("efficiency", "parts", "num"),
    [(1.0, (100, 0, None), 0), (1.004, (98, 2, -0.3), 0), (1.03, (62, 38, 0), 1), (0.6, (61.8, 40.8, -2.6), 1)],
)
def test_shares_above_the_whole_are_explained_where_they_occur(efficiency, parts, num):
    marks = pd.DataFrame({"cell": "cell", "x": parts}).astype({"x": float})
    bars = Chart("stacked", marks, PlotAxis("share"), PlotAxis("shape"))
    figure = Figure("losses", "Throughput breakdown", bars, Table("", (), ()))
    assert len(above_texts(pd.DataFrame({"efficiency_ratio": [efficiency, None]}), [figure])) == num


def test_a_shape_without_a_part_has_no_loss_there(tmp_path):
    cells = [train_cell("resnet18", 1, 1, "none"), *(train_cell("resnet18", 1, gpus) for gpus in (1, 2))]
    folder = write_results(tmp_path / "r", make_campaign(cells, repeats=2), LAPTOP)
    [bar] = loss_bars(analyse(folder))
    _, _, intra_node, inter_node, slow_node = bar.parts
    assert (inter_node, slow_node) == (None, None)
    assert intra_node > 0


def test_throughputs_of_different_workloads_are_not_compared(two_models):
    """The second workload has twice the throughput of the first on the same ranks, and is not named."""
    without(two_models, lambda spec: spec["parameters"]["strategy"] == "ddp")
    set_step_times(two_models, lambda spec, repeat: {"resnet18": 0.02, "resnet50": 0.01}[spec["parameters"]["model"]])
    line = answer(two_models)["scaling"]
    assert line.values["throughput_samples_per_s"] == pytest.approx(400)
    assert line.text.startswith("ResNet-18 ")


def test_without_a_baseline_the_highest_throughput_is_given(tmp_path):
    folder = write_results(tmp_path / "r", make_campaign([train_cell("resnet18", 1, 2)], repeats=2), LAPTOP)
    set_step_times(folder, lambda spec, repeat: 0.2)
    [finding] = scaling.findings(analyse(folder))
    assert finding.values["throughput_samples_per_s"].estimate == pytest.approx(2 * 8 / 0.2)
    assert finding.values["world_size"] == 2
    assert finding.words["missing"].startswith("baseline")


def test_failures_are_counted_and_what_they_share_is_named(tmp_path):
    campaign = cluster_campaign(repeats=2)
    shared = [
        cell["id"]
        for cell in campaign["cells"]
        if cell["spec"]["parameters"].get("model") == "resnet101"
        and cell["spec"]["stack"]["name"] == "bound"
        and cell["spec"]["nodes"] == 8
    ]
    fault = ("failed", "measure", "rank 3 on n3: RuntimeError: NCCL error")
    other = ("timeout", "measure", "no record after 60 s")
    faults = {(cell, repeat): fault for cell in shared for repeat in range(2)} | {
        (campaign["cells"][0]["id"], 0): other
    }
    folder = write_results(tmp_path / "r", campaign, CLUSTER, faults)
    data = analyse(folder)
    line = lines_of(data)["failed"]
    assert mark_of(data, "failed") == "failed"
    assert (line.values["num_failed"], line.values["num_planned"]) == (7, 2 * len(campaign["cells"]))
    assert line.values["num_of_cause"] == 6
    assert all(word in line.text for word in ("ResNet-101", "8\N{MULTIPLICATION SIGN}4", "bound"))
    assert "n3" not in line.text  # these cells failed in all launches, wherever they ran
    assert line.values["lost_hours"] == pytest.approx((6 * 1.2 * 32 + 60) / 3600)


def test_the_only_host_is_not_named_as_the_failing_one(tmp_path):
    """On one machine, nothing is left without it."""
    campaign = laptop_campaign()
    faults = {(cell["id"], 0): ("failed", "setup", "rank 0 on n1: ValueError: odd") for cell in campaign["cells"][:4]}
    line = answer(write_results(tmp_path / "r", campaign, LAPTOP, faults))["failed"]
    assert (line.values["num_of_cause"], line.values["host"]) == (4, None)


def test_failures_without_a_common_cause_are_counted_by_status(tmp_path):
    campaign = laptop_campaign()
    first, second, third = (cell["id"] for cell in campaign["cells"][:3])
    faults = {(first, 0): ("failed", "measure", "rank 3: RuntimeError: NCCL error")}
    faults |= {(second, 0): ("timeout", "measure", "no record after 60 s")}
    faults |= {(third, 1): ("timeout", "setup", "no record after 120 s")}
    line = answer(write_results(tmp_path / "r", campaign, LAPTOP, faults))["failed"]
    assert "2 timed out" in line.text
    assert line.values["num_of_cause"] == 1


@pytest.mark.parametrize(
    ("repeats", "varying", "word"),
    [(6, 0, "good"), (6, 1, "good"), (6, 2, "fair"), (6, 3, "low"), (3, 0, "good"), (2, 0, "fair"), (1, 0, "low")],
)
def test_confidence_depends_on_launches_and_on_cells_that_vary(tmp_path, repeats, varying, word):
    """Five cells, of which some vary by 20 %: one in five is good, two are fair, three low."""
    cells = [collective_cell(4096 * 4**i, 1, 2) for i in range(5)]
    folder = write_results(tmp_path / "r", make_campaign(cells, repeats=repeats), LAPTOP)
    loud = {4096 * 4**i for i in range(varying)}
    set_step_times(folder, lambda s, r: 0.01 * (1 + 0.2 * (r % 2) * (s["parameters"]["message_bytes"] in loud)))
    data = analyse(folder)
    values = lines_of(data)["confidence"].values
    assert (values["word"], values["num_varying"]) == (word, varying if repeats > 1 else 0)
    assert mark_of(data, "confidence") == word


def test_confidence_names_three_reasons_at_most_low_ones_first():
    """Two fair findings precede two low ones; a note is no reason, and its cell is reliable."""
    ranks = {"a": FAIR, "b": NOTE, "c": FAIR, "d": LOW, "e": LOW}
    kinds = tuple(Kind(name, rank, f"Kind {name}: found.") for name, rank in ranks.items())
    topic = Topic("t", "T", findings=lambda _: [Finding(name, {}, (), (name,)) for name in ranks], kinds=kinds)
    data = replace(report_data(make_campaign([]), make_table([], MEASUREMENTS)), topics=(topic,))
    line = confidence(data)
    lead, text = line.statement
    assert (lead, line.values["word"], line.values["num_varying"]) == ("Confidence: low", "low", 0)
    assert [(reason["kind"], reason["rank"]) for reason in line.values["reasons"]] == [
        *(("d", "low"), ("e", "low"), ("a", "fair"), ("c", "fair"))
    ]
    assert text.split("; ") == [*(f"kind {name}: found" for name in "dea"), "and 1 more"]
    assert unreliable_cells(data) == {"a", "c", "d", "e"}


@pytest.mark.parametrize(
    ("shape", "late", "repeats", "straggler"),
    [
        ((2, 4), {5: 0.1}, 6, "node001"),  # it arrives when its rank 5 does
        ((4, 2), {2: 0.1, 3: 0.1}, 6, "node001"),
        ((1, 4), {3: 0.1}, 6, 3),
        ((2, 4), {}, 6, None),
        ((1, 2), {1: 0.1}, 3, 1),
        ((1, 2), {1: 0.2}, 2, None),
    ],
)
def test_the_confidence_names_a_slow_node_or_rank(tmp_path, shape, late, repeats, straggler):
    line = answer(write_waits(tmp_path / "r", shape, late, repeats))["confidence"]
    found = json.loads(json.dumps(line.values["straggler"]))
    assert (found and (found["host"] or found["rank"])) == straggler
    if straggler:
        # The others wait for the late rank: 10 % of the undisturbed time, or 9 % of the lengthened one.
        assert 0.08 < found["lag_low_ratio"] < found["lag_ratio"] < found["lag_high_ratio"] < 0.12


def test_one_rank_has_no_stragglers(tmp_path):
    cells = [train_cell("resnet18", 1, 1, "none")]
    line = answer(write_results(tmp_path / "r", make_campaign(cells), LAPTOP))["confidence"]
    assert line.values["straggler"] is None


def test_the_cost_of_failures_and_idle_time_is_in_the_answer(tmp_path):
    """Launches of 40 s in four jobs; a fifth did not record its end, so its idle time is unknown."""
    data = analyse(write_nights(tmp_path / "r"))
    line = lines_of(data)["failed"]
    # 3 cells of 8 s on 8 ranks in a launch with other valid cells, 40 s on 16 ranks in a launch without any.
    lost = (3 * 8 * 8 + 40 * 16) / 3600
    assert line.values["lost_hours"] == pytest.approx(lost)
    # Seconds of jobs and of their launches: six of 40 s on 4 ranks, and so on.
    jobs = [(280, 6, 4), (280, 6, 8), (360, 4, 16), (300, 6, 8)]
    assert line.values["allocated_hours"] == pytest.approx(sum(s * ranks for s, _, ranks in jobs) / 3600)
    assert line.values["idle_hours"] == pytest.approx(sum((s - 40 * n) * ranks for s, n, ranks in jobs) / 3600)
    rows = data.tables["allocations"].dropna(subset="gpu_hours")
    measuring = (rows["measuring_s"] * rows["nodes"] * rows["gpus_per_node"]).sum() / 3600
    assert line.values["measuring_hours"] == pytest.approx(measuring)


def test_a_cost_that_was_not_recorded_is_unknown(tmp_path):
    data = analyse(write_results(tmp_path / "r", make_campaign([train_cell("resnet18", 1, 2)]), LAPTOP))
    values = lines_of(data)["failed"]
    assert mark_of(data, "failed") == "complete"
    assert [values.values[name] for name in ("lost_hours", "idle_hours", "allocated_hours")] == [None] * 3
    assert "idle" not in values.text


def test_stacks_are_compared_by_the_median_of_their_pairs(tmp_path):
    cells = [cell_of(stack, 4096 * 4**i) for stack in ("first", "second") for i in range(8)]
    for cell in cells:
        cell["spec"]["stack"]["binds"] = [cell["spec"]["stack"]["name"]]  # else A/A
    folder = write_results(tmp_path / "r", make_campaign(cells, repeats=6), LAPTOP)
    ratios = {4096 * 4**i: 1.01 + 0.01 * i for i in range(8)}

    def seconds(spec, repeat):
        ratio = ratios[spec["parameters"]["message_bytes"]] if spec["stack"]["name"] == "second" else 1
        return 0.01 * ratio * (1 + 0.0001 * repeat)

    set_step_times(folder, seconds)
    data = analyse(folder)
    line = lines_of(data)["comparison"]
    assert mark_of(data, "comparison") == "different"
    direction = line.values["direction"]
    assert (direction["num"], direction["num_pairs"], direction["is_slower"]) == (8, 8, True)
    assert direction["median_ratio"] == pytest.approx(statistics.median(ratios.values()), rel=1e-3)
    assert line.lead.startswith("Stack: use first; ")
    assert line.values["num_significant"] == {"slower": 8, "faster": 0}
    assert line.values["num_in_blocks"] == 8  # synthetic launches of a stack follow each other
    assert lines_of(data)["confidence"].values["word"] == "fair"  # six launches, and no cell varies


def test_the_lines_are_in_the_order_of_the_questions(tmp_path):
    campaign = cluster_campaign(repeats=2)
    fault = {(campaign["cells"][0]["id"], 0): ("failed", "measure", "boom")}
    data = analyse(write_results(tmp_path / "r", campaign, CLUSTER, fault))
    lines = lines_of(data)
    results = ("comparison", "bucket", "scaling", "communication")
    assert [*lines] == ["subject", *results, "failed", "confidence", "next"]
    assert lines["bucket"].values["bucket_cap_mb"] == [25.0, 100.0]
    assert "--forcerun measure" in lines["next"].values["steps"][0]
    assert mark_of(data, "next") == "to do"


def test_steps_that_change_the_same_setting_are_one(tmp_path):
    steps = next_steps(analyse(write_results(tmp_path / "r", cluster_campaign(repeats=1), CLUSTER)))
    assert [re.findall("repeats: [0-9]+", step) for step in steps if "repeats: " in step] == [["repeats: 3"]]
    failing = [node_finding("failed", "n7, n12"), node_finding("slow", "n3"), node_finding("slow", "n12")]
    measurements = make_table([], MEASUREMENTS)
    data = SimpleNamespace(
        findings=[*failing, Finding("more", {"repeats": 7}, (), declared=MORE)],
        commands=COMMANDS,
        measurements=measurements,
    )
    assert next_steps(data) == [
        "retry failed, avoid slow: `exclude_nodes: [n3, n7, n12]`, `snakemake`",
        "measure more: `repeats: 7`",
    ]


COMMANDS = {"run": "make campaign", "retry": 'make campaign ARGS="--forcerun measure"'}


@pytest.mark.parametrize(("imported", "command"), [((), "`make campaign`"), (("a.csv",), "`make index`")])
def test_a_campaign_without_open_questions_has_a_next_step(imported, command):
    campaign = SimpleNamespace(imported=imported, name="x")
    line = to_do_next(SimpleNamespace(findings=[], campaign=campaign, commands=COMMANDS))
    [step] = line.values["steps"]
    assert command in step
    assert line.mark == "optional"


MORE = Kind("more", FAIR, "More", next_step="measure more: `repeats: {repeats}`")
EXCLUDE = "`exclude_nodes: [{exclude}]`"
STEPS = {"failed": f"retry failed: {EXCLUDE}, `snakemake`", "slow": f"avoid slow: {EXCLUDE}"}


def node_finding(name: str, nodes: str) -> Finding:
    declared = Kind(name, LOW, "Nodes", next_step=STEPS[name])
    return Finding(name, {}, (), words={"exclude": nodes}, declared=declared)


def test_an_absent_program_is_to_be_installed_not_retried(tmp_path):
    cell = program_cell(5, 1)
    faults = {(cell["id"], repeat): ("failed", "launch", "program not found: su`m") for repeat in range(3)}
    campaign = make_campaign([cell], name="own", repeats=3)
    lines = answer(write_results(tmp_path / "r", campaign, MACHINE, faults))
    step = lines["next"].values["steps"][0]
    assert (step.startswith("install su'm "), step.count("`")) == (True, 4)


def test_a_campaign_without_a_valid_record_still_has_an_answer(tmp_path):
    campaign = make_campaign([train_cell("resnet18", 1, 2)])
    fault = ("failed", "setup", "boom")
    faults = {(campaign["cells"][0]["id"], repeat): fault for repeat in range(3)}
    lines = answer(write_results(tmp_path / "r", campaign, LAPTOP, faults))
    assert [*lines] == ["subject", "failed", "next"]
    assert lines["failed"].values["num_failed"] == 3


def test_other_programs_read_the_same_lines(tmp_path):
    folder = write_laptop(tmp_path / "r")
    data = analyse(folder)
    found = json.loads(json.dumps(answer_json(data), allow_nan=False))
    assert found["num_by_status"] == {"failed": 1, "not_measured": 1, "ok": 47, "out_of_memory": 1, "timeout": 1}
    values = {line["id"]: line["values"] for line in found["lines"]}
    numbers = {"num_failed": 3, "num_not_measured": 1, "num_planned": found["num_planned"]}
    assert (found["num_planned"], values["failed"] | numbers) == (51, values["failed"])
    num_cells = len(laptop_campaign()["cells"])
    assert values["subject"] == {"num_cells": num_cells, "world_sizes": [1, 2], "stacks": ["host"]}
    page = make_report(folder).read_text()
    block = page.partition('id="summary"')[2].partition("</section>")[0]
    assert block.count("<li>") + block.count('<li class="next">') == len(found["lines"]) - 1  # the subject has chips


def write_answer(folder, text):
    (folder / "measurements.csv").write_text("cell,repeat,status,cause\na,0,ok,\na,1,failed,boom\n")
    (folder / "answer.json").write_text(text)


def test_the_answer_ends_a_run_on_the_terminal(tmp_path):
    lines = [
        {"lead": "Scaling on 2 GPUs: 90 %", "text": "largest loss: intra-node"},
        {"lead": "\x1b[31mred", "text": ""},
    ]
    write_answer(tmp_path, json.dumps({"lines": lines}))
    text = outcome_text(tmp_path).splitlines()
    assert text[1].strip() == "; ".join(lines[0].values())
    assert "\x1b" not in text[2]
    assert "boom" in text[3]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"lines": [1]}', '{"lines": [{"lead": "x"}]}', '{"lines": [{"lead": 1, "text": 2}]}']
)
def test_a_damaged_answer_costs_no_outcome(tmp_path, text):
    write_answer(tmp_path, text)
    assert outcome_text(tmp_path).splitlines()[0].endswith("1 ok")


def test_an_answer_older_than_the_measurements_is_not_shown(tmp_path):
    write_answer(tmp_path, json.dumps({"lines": [{"lead": "stale", "text": ""}]}))
    os.utime(tmp_path / "answer.json", (0, 0))
    assert "stale" not in outcome_text(tmp_path)


def stacks_of(lead: str) -> str:
    return next(part for part in lead.split(" \N{MIDDLE DOT} ") if part.startswith("stack"))


def with_stacks(folder, stacks: dict[str, dict], **fields):
    cells = [train_cell("resnet18", 1, 1, stack=stack) for stack in stacks]
    for cell, settings in zip(cells, stacks.values(), strict=True):
        cell["spec"]["stack"] |= settings
    return analyse(write_results(folder, make_campaign(cells, **fields), LAPTOP))


def test_the_subject_names_what_distinguishes_stacks(tmp_path):
    """Variables that all stacks have are left out, and a secret is a hash: the first 8 digits of its SHA-256."""
    prologue = [{"module": "cuda/12.4"}]
    stacks = {
        "old": {"env": {"MY_FACTOR": "1.0", "SAME": "1"}, "srun": ["--mpi=pmix"]},
        "new": {"env": {"MY_FACTOR": "1.25", "SAME": "1", "HF_TOKEN": "abc"}, "srun": [], "prologue": prologue},
    }
    data = with_stacks(tmp_path / "r", stacks)
    found = dict(re.findall(r"(\w+) \((.*?)\)", stacks_of(subject(data).statement[0])))
    assert {stack: facts.split(", ") for stack, facts in found.items()} == {
        "old": ["MY_FACTOR=1.0", "srun --mpi=pmix"],
        "new": ["MY_FACTOR=1.25", "HF_TOKEN=sha256:ba7816bf", "prologue cuda/12.4"],
    }


def test_the_subject_of_one_stack_names_what_the_cluster_does_not_set(tmp_path):
    env = {"OF_CLUSTER": "1", "MY_FACTOR": "2", "A": "1", "B": "1"}
    cluster = {"name": "local", "scheduler": "none", "num_nodes": 1, "gpus_per_node": 0, "env": {"OF_CLUSTER": "1"}}
    data = with_stacks(tmp_path / "r", {"host": {"env": env}}, cluster=cluster)
    assert re.findall(r"\w+=\w+", stacks_of(subject(data).statement[0])) == ["MY_FACTOR=2", "A=1", "B=1"]


def test_no_secret_of_a_stack_is_on_the_page(tmp_path):
    text = "stacks:\n  host: {kind: host, env: {HF_TOKEN: 'tops3cret', X: 1}}\n"
    folder = tmp_path / "r"
    with_stacks(folder, {"host": {"env": {"HF_TOKEN": "tops3cret", "X": "1"}}}, text=text)
    page = make_report(folder).read_text()
    assert "tops3cret" not in page
    assert "env: {HF_TOKEN: &#39;sha256:" in page


def test_the_subject_says_what_a_stack_is_unless_it_is_the_host(tmp_path):
    kinds = {"old": "host", "sif": "contained", "net": "bind-mounted"}
    cells = [train_cell("resnet18", 1, 1, stack=stack) for stack in kinds]
    for cell, kind in zip(cells, kinds.values(), strict=True):
        cell["spec"]["stack"]["kind"] = kind
    data = analyse(write_results(tmp_path / "r", make_campaign(cells), LAPTOP))
    stacks = next(part for part in subject(data).statement[0].split(" \N{MIDDLE DOT} ") if part.startswith("stacks "))
    assert [name.rstrip(")").split(" (")[1:] for name in stacks.split(", ")] == [
        [],
        ["image"],
        ["image with libraries of the host"],
    ]


@pytest.mark.parametrize(
    ("values", "mark"),
    [({}, "measured"), ({"mark": "equal"}, "equal"), ({"mark": "equal", "confidence": "low"}, "low")],
)
def test_the_mark_of_a_line_is_how_far_it_can_be_trusted_else_that_of_its_topic(values, mark):
    assert Finding("bucket", values, (), declared=Kind("bucket", SUMMARY, "Bucket size")).mark == mark


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("contained; bound is 7.0 % slower", "7.0\N{NO-BREAK SPACE}%"),
        ("68.1 % to 68.9 %", "68.1\N{NO-BREAK SPACE}% to 68.9\N{NO-BREAK SPACE}%"),
        ("18 of 1,984 measurements", "18 of 1,984"),
        ("ResNet-50 on n07, 8×4: takes 2.8× as long", "2.8×"),
        ("78.3 GB/s bus bandwidth at 1 GiB", "78.3\N{NO-BREAK SPACE}GB/s"),
        ("best is 64, 128 or 256 MiB", "64, 128 or 256\N{NO-BREAK SPACE}MiB"),
        ("n9 failed", None),
    ],
)
def test_the_number_of_a_statement_is_marked(text, number):
    found = re.search('<span class="number">(.*?)</span>', numbered(unbroken(escape(text))))
    assert (found and found[1]) == number
