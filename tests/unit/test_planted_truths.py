"""Seven campaigns with a planted truth, through files and commands: answer.json and the warnings state it and nothing false.

Only values are asserted.
"""

import random
import re
from collections import Counter
from itertools import product
from math import nan
from pathlib import Path

import pytest
from formats_files import NEEDS, run_import
from planted import Said, plant, plant_tables
from synthetic import (
    CLUSTER,
    LAPTOP,
    analyse,
    cluster_campaign,
    collective_cell,
    edit_records,
    laptop_campaign,
    make_campaign,
)
from synthetic import train_cell as train
from synthetic_sweep import sweep_campaign, write_sweep
from synthetic_waits import write_waits

from regatta.report.explore import decoded
from regatta.topics.failures import groups_of
from regatta.topics.scaling import scaling_section as scaling
from regatta.topics.scaling.scaling_findings import efficiency_findings

GPU = {"device": "cuda", "backend": "nccl", "cluster": "gh200"}
MODELS = ("resnet18", "resnet34", "resnet50", "resnet101", "mobilenet_v3_small")


def contains(values: dict, name: str, unit: str, truth: float) -> bool:
    return values[f"{name}_low_{unit}"] <= truth <= values[f"{name}_high_{unit}"]


def gpu_campaign(cells: list[dict], **fields) -> dict:
    cluster = {"schema": 1, "name": "gh200", "scheduler": "slurm", "num_nodes": 64, "gpus_per_node": 4}
    return make_campaign(cells, cluster=cluster, device="cuda", **fields)


# 1. A laptop: 62 % efficiency lost between two processes; 1 MiB buckets cost 15 % there.

EFFICIENCY, COST, CALL_S, BYTES_PER_S = 0.62, 0.15, 1.2e-4, 2.1e9


def laptop_seconds(spec: dict, *_) -> float:
    parameters, num = spec["parameters"], spec["gpus_per_node"]
    if spec["benchmark"] == "collective":
        return CALL_S + parameters["message_bytes"] / BYTES_PER_S
    step = LAPTOP.step_s[parameters["model"]] / (EFFICIENCY if num == 2 else 1)
    return step * (1 + COST if (num, parameters["bucket_cap_mb"]) == (2, 1) else 1)


def plant_laptop(folder: Path) -> Path:
    return plant(folder, laptop_campaign(), laptop_seconds, noise=0.012)


@pytest.fixture(scope="module")
def laptop(tmp_path_factory) -> Said:
    return Said(analyse(plant_laptop(tmp_path_factory.mktemp("laptop") / "r")))


def test_a_laptop_has_its_efficiency_and_where_it_is_lost(laptop):
    values = laptop.lines["scaling"]
    assert (values["world_size"], values["num_workloads"], values["num_uncertain"]) == (2, 2, 0)
    found = [one.values["efficiency"] for one in efficiency_findings(laptop.data) if one.kind == "efficiency"]
    found.sort(key=lambda value: value.estimate)
    assert [one.low <= EFFICIENCY <= one.high for one in found] == [True] * 2
    assert (values["lowest_ratio"], values["highest_ratio"]) == tuple(one.estimate for one in found)
    assert set(values["largest_losses"].values()) == {"intra_node_ratio"}
    assert list(values["largest_losses_ratio"].values()) == pytest.approx([1 - EFFICIENCY] * 2, abs=0.04)
    assert values["without_result"] == {}


def test_a_laptop_has_its_bucket_size_and_bandwidth(laptop):
    bucket, call = laptop.lines["bucket"], laptop.lines["communication"]
    assert (bucket["bucket_cap_mb"], bucket["worst_bucket_cap_mb"], bucket["undecided_mb"]) == ([25], 1, [])
    assert (bucket["num_best"], bucket["num"]) == (2, 2)
    assert contains(bucket, "worst_cost", "ratio", COST)
    largest = 2**24
    assert contains(call, "busbw", "gb_per_s", largest / (CALL_S + largest / BYTES_PER_S) / 1e9)
    assert call["latency_bound_below_bytes"] == pytest.approx([CALL_S * BYTES_PER_S] * 2, rel=0.05)


def test_a_healthy_laptop_has_no_failure_slow_node_or_comparison(laptop):
    failed, confidence = laptop.lines["failed"], laptop.lines["confidence"]
    assert (failed["num_planned"], failed["num_failed"], failed["num_not_measured"]) == (51, 0, 0)
    assert (confidence["word"], confidence["straggler"]) == ("good", None)
    assert not confidence.keys() & {"slow_launches", "loaded_measurements"}
    assert not laptop.lines.keys() & {"comparison", "nodes", "training_runs"}


# 2. 164 cells on two stacks: `bound` trains 7 % slower, collectives are equal, n07 fails 18 measurements.

SLOWER, NUM_FAILED = 1.07, 18


def stacks_seconds(spec: dict, *_) -> float:
    is_slow = spec["stack"]["name"] == "bound" and spec["benchmark"] == "train_step"
    return CLUSTER.seconds(spec | {"stack": {"name": "same"}}) * (SLOWER if is_slow else 1)


def broken_node(spec: dict, repeat: int, nodes: list[str]) -> tuple | None:
    is_broken = "n07" in nodes and spec["parameters"].get("model") == "resnet101" and repeat < 3
    return ("failed", "measure", "rank 24 on n07: RuntimeError: CUDA error: uncorrectable ECC error") * is_broken


def plant_stacks(folder: Path) -> Path:
    return plant(folder, cluster_campaign(), stacks_seconds, broken_node)


@pytest.fixture(scope="module")
def stacks(tmp_path_factory) -> Said:
    return Said(analyse(plant_stacks(tmp_path_factory.mktemp("stacks") / "r")))


def test_the_slower_stack_is_slower_in_training_alone(stacks):
    values, rows = stacks.lines["comparison"], stacks.data.tables["comparisons"]
    num_steps = int((is_step := rows["cell"].str.startswith("train_step")).sum())
    assert (len(rows), num_steps, values["num"], values["num_undecidable"]) == (82, 38, 82, 0)
    assert values["num_significant"] == {"slower": num_steps, "faster": 0}
    assert (values["by_verdict"]["faster"], values["by_verdict"]["equivalent"]) == (0, 82 - num_steps)
    assert set(rows.loc[~is_step, "verdict"]) == {"equivalent"}
    for part, truth in ((rows[is_step], SLOWER), (rows[~is_step], 1)):
        assert ((part["time_low_ratio"] <= truth) & (truth <= part["time_high_ratio"])).mean() > 0.9


def test_failures_are_those_of_the_broken_node(stacks):
    failed, [group] = stacks.lines["failed"], groups_of(stacks.data)
    assert (failed["num_failed"], failed["num_of_cause"], failed["num_not_measured"]) == (NUM_FAILED, NUM_FAILED, 0)
    assert (failed["num_planned"], failed["status"]) == (984, "failed")
    assert [tuple(host) for host in group["hosts"]] == [("n07", NUM_FAILED)]
    assert stacks.answer["num_by_status"] == {"ok": 984 - NUM_FAILED, "failed": NUM_FAILED}


def test_two_stacks_have_the_best_bucket_size_and_no_slow_node(stacks):
    bucket, confidence = stacks.lines["bucket"], stacks.lines["confidence"]
    assert (bucket["bucket_cap_mb"], bucket["worst_bucket_cap_mb"]) == ([100], 1)
    assert (confidence["straggler"], confidence["num_varying"]) == (None, 0)
    assert not confidence.keys() & {"slow_launches", "loaded_measurements"}


# 3. 2,524 cells on identical stacks: equal (A/A), and in a smaller campaign 3 % apart for no reason of theirs.


def identical_cells(num_sizes: int) -> list[dict]:
    cells, places = [], [(2**i, 20 * bucket + 5) for i in range(8) for bucket in range(10)][: 4 * num_sizes - 4]
    for stack in ("one", "two"):
        more = {"stack": stack, **GPU}
        for model, nodes in product(MODELS, (1, 2, 4, 8)):
            cells += [train(model, nodes, 4, "ddp", bucket, batch_size=size, **more) for size, bucket in places]
        for operation, nodes in product(("all_reduce", "all_gather"), range(2, 23)):
            cells += [collective_cell(1024 * 2**i, nodes, 4, operation, **more) for i in range(num_sizes)]
    return cells


def identical(folder, num_sizes: int, factor: float) -> Said:
    def seconds(spec: dict, rng: random.Random) -> float:
        parameters, is_call = spec["parameters"], spec["benchmark"] == "collective"
        time = parameters["message_bytes"] / 9e10 + 1e-4 if is_call else 1e-3 * parameters["batch_size"]
        return time * rng.lognormvariate(0, 0.01) * (factor if spec["stack"]["name"] == "two" else 1)

    baseline = {"strategy": "ddp", "nodes": 1, "gpus_per_node": 4}
    campaign = gpu_campaign(identical_cells(num_sizes), repeats=4, baseline=baseline)
    return Said(plant_tables(folder / "r", campaign, seconds), has_page=num_sizes < 10)  # a large page takes a minute


@pytest.mark.slow
def test_identical_stacks_are_not_compared_and_nothing_is_found(tmp_path):
    said = identical(tmp_path, 11, 1)
    rows, bucket, confidence = said.data.tables["comparisons"], said.lines["bucket"], said.lines["confidence"]
    assert said.lines["subject"]["num_cells"] == 2524
    assert (len(rows), set(rows["verdict"])) == (1262, {"A/A"})
    assert ((rows["time_low_ratio"] > 1) | (rows["time_high_ratio"] < 1)).mean() < 0.07
    assert "comparison" not in said.lines
    assert (len(bucket["bucket_cap_mb"]), bucket["num_best"], bucket["num"]) == (10, 40, 40)
    assert "worst_bucket_cap_mb" not in bucket
    assert (confidence["word"], confidence["straggler"]) == ("good", None)
    assert confidence["num_varying"] < 0.02 * 2524
    assert (said.lines["scaling"]["num_uncertain"], said.lines["failed"]["num_failed"]) == (0, 0)
    assert said.lines["scaling"]["lowest_low_ratio"] is None  # of several: no interval counts the selection


@pytest.fixture(scope="module")
def shifted(tmp_path_factory) -> Said:
    return identical(tmp_path_factory.mktemp("shifted"), 3, 1.03)


def test_identical_stacks_that_differ_are_not_called_slower(shifted):
    assert set(shifted.data.tables["comparisons"]["verdict"]) == {"A/A"}
    assert "comparison" not in shifted.lines


# 4. One node of 16 computes 20 % slower: in a campaign on changing nodes, and in records of waiting ranks.


def plant_slow_node(folder: Path) -> Path:
    shapes = [(nodes, 4) for nodes in (4, 8, 16)]
    models = ("resnet50", "resnet101")
    cells = [train(model, *shape, "ddp", size, **GPU) for model, shape, size in product(models, shapes, (25, 100))]
    cells += [collective_cell(4**i * 1024, *shape, **GPU) for shape in shapes for i in range(8)]
    baseline = {"strategy": "ddp", "nodes": 4, "gpus_per_node": 4}
    campaign = gpu_campaign(cells, repeats=8, allocations=8, baseline=baseline)

    def nodes(num: int, allocation: int) -> list[str]:
        return [f"n{i + 1:02d}" for i in sorted(random.Random(100 * num + allocation).sample(range(16), num))]

    return plant(folder, campaign, lambda spec, *_: CLUSTER.seconds(spec), nodes=nodes, slow={"n05": 1.2})


@pytest.fixture(scope="module")
def slow_node(tmp_path_factory) -> Said:
    return Said(analyse(plant_slow_node(tmp_path_factory.mktemp("slow-node") / "r")))


def test_the_slow_node_of_a_campaign_is_named_and_no_other(slow_node):
    hosts, confidence = slow_node.data.tables["straggler_hosts"], slow_node.lines["confidence"]
    assert set(hosts.loc[hosts["is_persistent"].fillna(False), "host"]) == {"n05"}
    assert (confidence["straggler"]["host"], confidence["straggler"]["rank"]) == ("n05", None)
    # 0.2 of the step without the slow node, which takes 1.2 times as long with it
    assert confidence["straggler"]["lag_ratio"] == pytest.approx(1 / 6, abs=0.01)
    assert confidence["straggler"]["slower_ratio"] == pytest.approx(0.2, abs=0.01)
    assert (confidence["word"], slow_node.lines["failed"]["num_failed"]) == ("low", 0)
    assert slow_node.lines["bucket"]["bucket_cap_mb"] == [25, 100]  # 25 costs 1 %, with p between 0.01 and 0.05
    assert slow_node.lines["scaling"]["largest_losses"] == {}


def test_the_slow_node_of_waiting_ranks_is_named_and_no_other(tmp_path):
    said = Said(analyse(write_waits(tmp_path / "r", (16, 4), dict.fromkeys(range(20, 24), 0.2))))
    hosts, straggler = said.data.tables["straggler_hosts"], said.lines["confidence"]["straggler"]
    assert set(hosts.loc[hosts["is_persistent"].fillna(False), "host"]) == {"node005"}
    assert (straggler["host"], straggler["rank"]) == ("node005", None)
    assert straggler["lag_ratio"] == pytest.approx(0.2, abs=0.03)
    assert "slow_launches" not in said.lines["confidence"]


# 5. Launch 2 of 5 takes 1.4 times as long in all cells, while other processes use 40 % of the CPU time.


def plant_disturbed(folder: Path) -> Path:
    def seconds(spec: dict, repeat: int, _) -> float:
        return laptop_seconds(spec) * (1.4 if repeat == 1 else 1)

    load = [0.02, 0.4, 0.02, 0.03, 0.02]
    return plant(folder, laptop_campaign() | {"repeats": 5}, seconds, load=load, noise=0.01)


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory) -> Said:
    return Said(analyse(plant_disturbed(tmp_path_factory.mktemp("disturbed") / "r")))


def test_a_disturbed_launch_leaves_low_confidence_and_wide_intervals(disturbed):
    confidence, bucket = disturbed.lines["confidence"], disturbed.lines["bucket"]
    assert (confidence["word"], confidence["num_varying"], confidence["straggler"]) == ("low", 17, None)
    slow = confidence["slow_launches"]  # one of each shape
    assert {(one["repeat"], one["other_processes_ratio"]) for one in slow} == {(1, 0.4)}
    assert sum(one["num_slow"] for one in slow) == sum(one["num_cells"] for one in slow) == 17
    assert not confidence.keys() & {"loaded_measurements", "varying_baselines"}
    found = [one for one in scaling.TOPIC.findings(disturbed.data) if "efficiency" in one.values]
    assert [one.kind for one in found] == ["efficiency_uncertain"] * 2
    needed = [one.values["launches_needed"] for one in found]
    assert all(num > 5 for num in needed)
    assert f"`repeats: {max(needed)}`" in disturbed.lines["next"]["steps"][-1]
    assert all(one.values["efficiency"].low < EFFICIENCY < one.values["efficiency"].high for one in found)
    assert bucket["bucket_cap_mb"] == [25]  # the launch is as slow with both sizes
    assert contains(bucket, "worst_cost", "ratio", COST)
    assert disturbed.lines["scaling"].keys().isdisjoint({"lowest_ratio", "highest_ratio"})


# 6. Imported tables: single values.


def imported(folder, name: str) -> Said:
    run_import(folder / "r", name, options=NEEDS.get(name))
    return Said(analyse(folder / "r"))


@pytest.fixture(scope="module")
def trainings(tmp_path_factory) -> Said:
    return imported(tmp_path_factory.mktemp("trainings"), "ddp-2x8-v100.txt")


@pytest.fixture(scope="module")
def times(tmp_path_factory) -> Said:
    return imported(tmp_path_factory.mktemp("times"), "times.csv")


@pytest.mark.parametrize(
    ("name", "bandwidth", "time"),
    [
        ("nccl-13-columns.txt", 159.46, 11783.5e-6),  # in place, 1 GiB
        ("osu-allreduce.txt", 2**20 / 2503.41e-6 * 7 / 4 / 1e9, 2503.41e-6),  # 8 ranks
    ],
)
def test_an_imported_table_has_its_largest_bandwidth_without_an_interval(tmp_path, name, bandwidth, time):
    said = imported(tmp_path, name)
    values, confidence = said.lines["communication"], said.lines["confidence"]
    assert (values["busbw_gb_per_s"], values["time_s"]) == pytest.approx((bandwidth, time), rel=1e-4)
    assert (values["busbw_low_gb_per_s"], values["busbw_high_gb_per_s"], values["num_launches"]) == (None, None, 1)
    assert (confidence["word"], confidence["num_cells"], confidence["straggler"]) == ("low", 0, None)
    assert (said.answer["first_record_utc"], said.lines["failed"]["num_failed"]) == (None, 0)
    assert not said.lines.keys() & {"comparison", "scaling", "bucket", "nodes"}


def test_imported_efficiencies_have_no_range(trainings):
    values, confidence = trainings.lines["scaling"], trainings.lines["confidence"]
    assert values.keys().isdisjoint({"lowest_ratio", "highest_ratio"})
    assert (values["num_workloads"], confidence["word"], confidence["num_launches"]) == (4, "low", 1)


# 7. A sweep of 32 nodes: n17 is 20 % slower, n9 fails.


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> Said:
    campaign = sweep_campaign([f"n{i}" for i in range(1, 33)])
    faults = {("n9", repeat): ("failed", "measure", "rank 0 on n9: RuntimeError: CUDA error") for repeat in range(6)}
    return Said(analyse(write_sweep(tmp_path_factory.mktemp("sweep") / "r", campaign, {("n17", ""): 1.2}, faults)))


def test_a_sweep_names_the_slow_and_the_failing_node_and_no_other(sweep):
    values, failed, confidence = (sweep.lines[name] for name in ("nodes", "failed", "confidence"))
    groups = {name: hosts for name, hosts in values["nodes"].items() if hosts}
    healthy = {f"n{i}" for i in range(1, 33)} - {"n9", "n17"}
    assert set(groups.pop("equivalent")) == healthy
    assert groups == {"slower": ["n17"], "failed": ["n9"]}
    [largest] = values["largest"]
    assert (largest["hosts"], values["num_slower"], values["pairs"], values["skipped"]) == ("n17", 1, [], {})
    assert largest["low"] <= 1.2 <= largest["high"]
    assert (failed["num_failed"], failed["num_planned"], failed["num_of_cause"]) == (18, 576, 18)
    assert [host for host, _ in groups_of(sweep.data)[0]["hosts"]] == ["n9"]
    assert (confidence["word"], confidence["straggler"]) == ("good", None)
    assert not sweep.lines.keys() & {"scaling", "bucket", "comparison", "communication"}


# All: what to do next, why the confidence is not good, and counts that agree.

CAMPAIGNS = ("laptop", "stacks", "shifted", "slow_node", "disturbed", "sweep")


@pytest.fixture
def said(request) -> Said:
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("said", CAMPAIGNS, indirect=True)
def test_every_count_agrees_with_the_tables(said):
    planned, ranges = said.data.measurements.dropna(subset="repeat"), said.data.tables["cells"]["range_ratio"]
    statuses = Counter(planned["status"])
    failed, confidence = said.lines["failed"], said.lines["confidence"]
    assert failed["num_planned"] == said.answer["num_planned"] == sum(statuses.values())
    assert failed["num_failed"] == statuses["failed"] + statuses["timeout"]
    assert confidence["num_cells"] == ranges.notna().sum()
    assert confidence["num_varying"] == (ranges > 0.05).sum()


def losses(said: Said) -> set[str]:
    found = [one.values for one in efficiency_findings(said.data)]
    return {part for values in found for part in values["losses_ratio"].keys() - values["noise"]}


def is_marked(said: Said, node: str) -> bool:
    """Return whether warnings that name a node mark all cells that ran on all 16 nodes."""
    marked = {cell for one in said.warnings for cell in one.cells if node in str(one.values)}
    return {cell.id for cell in said.data.campaign.cells if cell.nodes == 16} <= marked


def next_steps(said: Said) -> str:
    return " ".join(said.lines["next"]["steps"])


def reasons(said: Said) -> str:
    return " ".join(reason["text"] for reason in said.lines["confidence"]["reasons"])


TRUE = [
    ("stacks", lambda said: "n07" in str(said.lines["failed"])),
    ("stacks", lambda said: 1.06 < said.lines["comparison"]["direction"]["median_ratio"] < 1.08),
    ("shifted", lambda said: "identical" in reasons(said)),
    ("shifted", lambda said: said.lines["confidence"]["word"] == "low"),
    ("shifted", lambda said: any(286 in one.values.values() for one in said.warnings)),
    ("slow_node", lambda said: is_marked(said, "n05")),
    ("trainings", lambda said: said.lines["scaling"]["num_uncertain"] == 4),
    ("times", lambda said: said.lines["confidence"]["word"] == "low"),
    ("stacks", lambda said: "n07" in next_steps(said)),
    ("slow_node", lambda said: "n05" in next_steps(said)),
    ("sweep", lambda said: "n9" in next_steps(said) and "n17" in next_steps(said)),
    ("slow_node", lambda said: "n05" in reasons(said)),
    ("laptop", lambda said: reasons(said) == ""),
    ("laptop", lambda said: losses(said) == {"intra_node_ratio"}),
    ("shifted", lambda said: said.lines["scaling"]["highest_ratio"] and not said.lines["scaling"]["highest_low_ratio"]),
    ("disturbed", lambda said: {one["repeat"] for one in said.lines["confidence"]["slow_launches"]} == {1}),
    ("disturbed", lambda said: "launch 2" in next_steps(said)),
    ("disturbed", lambda said: "launch 2" in reasons(said)),
]


@pytest.mark.parametrize(("said", "is_true"), TRUE, indirect=["said"])
def test_the_report_says_what_was_planted(said, is_true):
    assert is_true(said)


# 8. Failures: the fastest bucket size failed on one shape, and the largest message in one of three launches.

LOST = ("failed", "measure", "rank 3 on n01: RuntimeError: NCCL error: unhandled system error")


def lossy_fault(spec: dict, repeat: int, _) -> tuple | None:
    parameters, shape = spec["parameters"], (spec["nodes"], spec["gpus_per_node"])
    is_lost = repeat == 0 if spec["benchmark"] == "collective" else parameters["bucket_cap_mb"] == 25
    return LOST if shape == (1, 4) and is_lost and parameters.get("message_bytes") != 4096 else None


def lossy_seconds(spec: dict, *_) -> float:
    parameters = spec["parameters"]
    if spec["benchmark"] == "collective":
        return 1e-5 + parameters["message_bytes"] / 1e11
    return 0.1 if parameters["bucket_cap_mb"] != 1 else 0.2


@pytest.fixture(scope="module")
def lossy(tmp_path_factory) -> Said:
    cells = [train("resnet50", 1, 1, "none", None)]
    cells += [train("resnet50", *shape, "ddp", bucket) for shape in ((1, 2), (1, 4), (2, 4)) for bucket in (1, 25)]
    cells += [collective_cell(size, 1, 4, "all_gather", backend="nccl") for size in (4096, 2**26)]
    folder = tmp_path_factory.mktemp("lossy") / "r"
    return Said(analyse(plant(folder, gpu_campaign(cells, repeats=3), lossy_seconds, lossy_fault)))


def test_the_best_of_all_valid_cells_is_highest_also_if_a_launch_of_it_failed(lossy):
    """64 MiB in 0.68 ms on 4 ranks: 73.8 GB/s, of which the bus has 3/4. 4 KiB has all launches, and 0.3 GB/s."""
    bandwidth = 2**26 * 3 / 4 / (1e-5 + 2**26 / 1e11) / 1e9
    assert lossy.lines["communication"]["busbw_gb_per_s"] == pytest.approx(bandwidth, rel=0.02)
    page = lossy.data.launches.with_name("report.html").read_text("utf-8")
    [(note, text)] = re.findall(r'title="(all-gather: bus bandwidth[^"]*)"[^>]*>([^<]*)', page)
    assert float(text.split()[0]) == pytest.approx(bandwidth, rel=0.02)
    assert re.search(r"(\d) of (\d) launches", note).groups() == ("2", "3")


def test_a_line_keeps_one_configuration_and_has_a_gap_where_that_failed(lossy):
    page = lossy.data.launches.with_name("report.html").read_text("utf-8")
    block = decoded(re.search(r'<script type="application/json" id="data-block">(.*?)</script>', page)[1])
    cells, series, ranks, values, *_ = ([*of] for of in block["figures"]["headline"])
    buckets = {
        cell.id: cell.parameters["bucket_cap_mb"] for cell in lossy.data.campaign.cells if cell.parameters.get("model")
    }
    of_line = [place for place, name in enumerate(series) if name != "100 %" and place]
    assert {buckets[block["cells"]["id"][cells[place]]] for place in of_line} == {25}
    assert [float(ranks[place]) for place in of_line] == [2, 4, 8]
    assert [float(values[place] or "nan") for place in of_line] == pytest.approx([100, nan, 100], abs=2, nan_ok=True)


# 9. Facts that lower the confidence, or stand in a line of the summary.


def test_a_drop_of_bandwidth_at_one_size_lowers_the_confidence(tmp_path):
    cells = [collective_cell(1024 * 4**i, *shape, **GPU) for shape in ((1, 4), (8, 4)) for i in range(11)]

    def seconds(spec: dict, *_) -> float:
        is_dropped = (spec["nodes"], spec["parameters"]["message_bytes"]) == (8, 2**16)
        return CLUSTER.seconds(spec) * (1.79 if is_dropped else 1)

    confidence = Said(analyse(plant(tmp_path / "r", gpu_campaign(cells, repeats=5), seconds))).lines["confidence"]
    [drop] = confidence["slow_sizes"]
    assert (confidence["word"], drop["message_bytes"]) == ("fair", 2**16)
    assert drop["ratio"] == pytest.approx(1.79, rel=0.05)


def noisy(folder: Path, is_disturbed) -> dict:
    """Return the line on confidence of a campaign in which some launches take 1.4 times as long."""
    shapes = ((1, 2), (1, 4), (2, 4))
    cells = [train(model, 1, 1, "none", None, **GPU) for model in MODELS[:4]]
    cells += [train(model, *shape, "ddp", n, **GPU) for model in MODELS[:4] for shape in shapes for n in (1, 25)]

    def seconds(spec: dict, repeat: int, _) -> float:
        return 0.1 * (1.4 if repeat == 2 and is_disturbed(spec["parameters"]["model"], spec["gpus_per_node"]) else 1)

    return Said(analyse(plant(folder, gpu_campaign(cells, repeats=5), seconds))).lines["confidence"]


def test_a_disturbed_launch_of_a_baseline_lowers_the_confidence(tmp_path):
    confidence = noisy(tmp_path / "r", lambda model, gpus: (model, gpus) == (MODELS[1], 1))
    assert (confidence["word"], confidence["varying_baselines"]["num_relative"]) == ("fair", 6)
    assert confidence["varying_baselines"]["worst_ratio"] == pytest.approx(0.4, rel=0.1)


def test_the_noisy_model_is_named(tmp_path):
    confidence = noisy(tmp_path / "r", lambda model, gpus: model == MODELS[1] and gpus > 1)
    assert confidence["num_varying"] == 6
    assert [of["value"] for of in confidence["variation"]["pattern"]["conditions"]] == ["ResNet-34"]


def test_a_timeout_beside_six_failures_of_another_cause_is_counted(tmp_path):
    cells = [train("resnet50", 1, 1, "none", None, **GPU)] + [train("resnet50", 1, 4, "ddp", n, **GPU) for n in (1, 25)]

    def fault(spec: dict, repeat: int, _) -> tuple | None:
        if spec["parameters"]["bucket_cap_mb"] == 25 and repeat < 6:
            return "out_of_memory", "setup", "rank 2 on n01: OutOfMemoryError: CUDA out of memory."
        is_late = (spec["parameters"]["bucket_cap_mb"], repeat) == (1, 6)
        return ("timeout", "measure", "no record within 600 s (cell_seconds)") if is_late else None

    folder = plant(tmp_path / "r", gpu_campaign(cells, repeats=7), lambda *_: 0.1, fault)
    failed = Said(analyse(folder)).lines["failed"]
    assert (failed["num_failed"], failed["num_of_cause"], failed["others"]) == (7, 6, {"timeout": 1})


def test_timeouts_beside_more_common_timeouts_are_not_called_failed(tmp_path):
    cells = [train("resnet50", 1, 4, "ddp", n, **GPU) for n in (1, 25)]

    def fault(spec: dict, repeat: int, _) -> tuple | None:
        is_first = spec["parameters"]["bucket_cap_mb"] == 1
        cause = "no record within 600 s (cell_seconds)" if is_first else "no cell started within 120 s"
        return ("timeout", "measure" if is_first else "launch", cause) if is_first or repeat < 2 else None

    data = analyse(plant(tmp_path / "r", gpu_campaign(cells, repeats=5), lambda *_: 0.1, fault))
    line = next(line for line in Said(data).answer["lines"] if line["id"] == "failed")
    assert line["values"]["others"] == {"timeout": 2}
    assert re.search(r"others: (\d+) (\w+)", line["text"]).groups() == ("2", "timed")


def test_exposed_communication_stands_in_the_line_on_scaling(tmp_path):
    cells = [train("resnet50", 1, 1, "none", None, **GPU), train("resnet50", 1, 4, "ddp", 25, **GPU)]
    folder = plant(tmp_path / "r", gpu_campaign(cells, repeats=5), lambda *_: 0.1)
    for record in edit_records(folder):
        whole = record["samples_ns"]
        if len(whole) == 4:
            record["parts_ns"] = {"step": whole, "no_sync": [[int(0.65 * ns) for ns in rank] for rank in whole]}
    assert Said(analyse(folder)).lines["scaling"]["exposed_share_ratio"] == pytest.approx(0.35, abs=0.01)
