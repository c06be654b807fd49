"""Findings are data: each is computed from the rows that it names, and the page shows its sentence with these sources."""

import functools
import json
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from comparison_results import cell_of
from synthetic import (
    CLUSTER,
    LAPTOP,
    analyse,
    cluster_campaign,
    collective_cell,
    make_campaign,
    train_cell,
    write_laptop,
    write_lines,
    write_results,
)
from synthetic_preflight import write_preflight
from synthetic_timeline import write_nights
from synthetic_training import norm_cell, norm_record, run_record
from synthetic_waits import write_waits
from test_training_runs import ALONE, DDP, OWN, T, write_store
from typed import cell_row, typed

from regatta.kit.findings import FAIR, NOTE, RESULT, WARNINGS, Kind
from regatta.report.findings import Finding
from regatta.store.csv_files import COLLECTED, MEASUREMENTS, make_table
from regatta.topics import base, buckets, communication, training_runs
from regatta.topics.base import ReportData, Topic, headline_rows, unreliable
from regatta.topics.catalog import TABLES, TOPICS, render
from regatta.topics.quality import launch_ranges_table
from regatta.topics.scaling import section as scaling
from regatta.topics.scaling.findings import efficiency_findings

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def write_real(folder):
    shutil.copytree(GOLDEN / "launches", folder / "launches")
    shutil.copy(GOLDEN / "campaign.json", folder / "campaign.0123456789ab.json")
    return folder


def write_cluster(folder):
    campaign = cluster_campaign(repeats=3)
    wanted = [("resnet50", None), (None, "all_reduce")]
    campaign["cells"] = [
        cell
        for cell in campaign["cells"]
        if tuple(cell["spec"]["parameters"].get(name) for name in ("model", "operation")) in wanted
    ]
    write_results(folder, campaign, CLUSTER)
    write_preflight(folder)
    return folder


def write_trainings(folder):
    norms = [norm_cell(name, batch, 128) for name in ("own", "torch") for batch in (32, 64)]
    records = [
        run_record(cell, repeat, T, accuracy=[0.1, 0.2 + 0.01 * repeat])
        for cell in (OWN, DDP, ALONE)
        for repeat in range(3)
    ]
    records += [norm_record(c, r, T, 400 + 30 * i + 7 * r) for i, c in enumerate(norms) for r in range(3)]
    write_store(folder, [OWN, DDP, ALONE, *norms], records)
    return folder


def write_exchange(folder):
    """Two strategies whose exchange was measured, at two batch sizes whose memory was; and two stacks alike but for the name."""
    shapes = [train_cell("resnet18", 1, 2, "ddp", bucket, batch_size=batch) for bucket in (1, 25) for batch in (8, 16)]
    alike = [cell_of(stack, size) for stack in ("first", "second") for size in (4096, 65536)]
    write_results(folder, make_campaign([train_cell("resnet18", 1, 1, "none"), *shapes, *alike]), LAPTOP)
    rng = random.Random(2)
    for path in sorted((folder / "launches").glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for line in lines:
            if (
                line["kind"] == "record"
                and line["spec"]["benchmark"] == "train_step"
                and line["spec"]["gpus_per_node"] > 1
            ):
                add_parts(line, rng)
        write_lines(path, lines)
    return folder


def add_parts(record, rng):
    shares = {"step": 1.0, "no_sync": rng.uniform(0.7, 0.9), "communication": rng.uniform(0.3, 0.5), "host_wait": 0.02}
    steps = record["samples_ns"]
    record["parts_ns"] = {name: [[int(share * t) for t in rank] for rank in steps] for name, share in shares.items()}
    record["memory"]["saved_bytes"] = 31_000_000 * record["spec"]["parameters"]["batch_size"] + 4096


WRITERS = {
    "laptop": write_laptop,
    "real": write_real,
    "cluster": write_cluster,
    "trainings": write_trainings,
    "exchange": write_exchange,
    "nights": write_nights,
    "slow rank": lambda folder: write_waits(folder, (2, 4), {3: 0.06}),
    "slow host": lambda folder: write_waits(folder, (8, 4), dict.fromkeys((8, 9, 10, 11), 0.08)),
}


@pytest.fixture(scope="module")
def analyse_campaign(tmp_path_factory):
    """Return a function that returns a campaign's (results folder, what its report is made of); each is analysed once."""

    @functools.cache
    def analyse_once(name):
        folder = WRITERS[name](tmp_path_factory.mktemp("findings") / "r")
        return folder, analyse(folder)

    return analyse_once


@pytest.fixture(scope="module", params=WRITERS)
def analysed(request, analyse_campaign):
    return analyse_campaign(request.param)


def findings_of(data):
    return [(topic, finding) for topic in TOPICS for finding in topic.findings(data)]


def row_of(data, table, cell):
    rows = data.tables[table]
    return next(rows[rows["cell"] == cell].itertuples())


def test_a_finding_names_files_rows_and_cells_that_are_there(analysed):
    _, data = analysed
    found = findings_of(data)
    assert found
    files = {f"tables/{name}.csv": name for name in TABLES} | {f"{name}.csv": name for name in COLLECTED}
    planned = set(data.measurements["cell"])
    for topic, finding in found:
        assert finding.sources, finding.kind
        assert set(finding.cells) <= planned
        assert topic.text_of(finding)
        for source in finding.sources:
            assert source.rows or source.what
            rows = data.tables[files[source.file]] if source.file in files else None
            if rows is not None and "cell" in rows:
                assert all(any(row.startswith(cell) for cell in planned) for row in source.rows)
            elif rows is not None:
                assert {int(row.removeprefix("row ")) for row in source.rows} <= set(range(1, len(rows) + 1))


def test_numbers_of_findings_are_those_of_the_rows_that_they_name(analysed):
    _, data = analysed
    for _, finding in findings_of(data):
        if check := CHECKS.get(finding.kind):
            check(data, finding)


def check_efficiency(data, finding):
    row = row_of(data, "scaling", finding.cells[0])
    value = finding.values["efficiency"]
    assert value.estimate == row.efficiency_ratio
    assert (value.low, value.high) in ((row.efficiency_low_ratio, row.efficiency_high_ratio), (None, None))
    same = data.tables["scaling"].query("model == @row.model and stack == @row.stack")
    known = same[same["efficiency_ratio"].notna()]
    assert row.world_size == known["world_size"].max()
    assert finding.cells[1] == row.baseline


def check_scaling(data, finding):
    """The ends are efficiencies of cells that the finding names, all on the same number of ranks."""
    rows = [row_of(data, "scaling", cell) for cell in finding.cells]
    assert {row.world_size for row in rows} == {finding.values["world_size"]}
    assert len(rows) == finding.values["num_workloads"]
    known = {row.efficiency_ratio: (row.efficiency_low_ratio, row.efficiency_high_ratio) for row in rows}
    for name in {"lowest_ratio", "highest_ratio"} & finding.values.keys():
        value = finding.values[name]
        assert (value.low, value.high) in (known[value.estimate], (None, None))


def check_throughput(data, finding):
    row = row_of(data, "scaling", finding.cells[0])
    assert finding.values["throughput_samples_per_s"].estimate == row.throughput_samples_per_s
    assert finding.values["world_size"] == row.world_size


def check_bucket(data, finding):
    rows = data.tables["scaling"].dropna(subset=["bucket_cap_mb", "step_s"])
    of_finding = rows[rows["cell"].isin(finding.cells)]
    assert set(of_finding["world_size"]) == {finding.values["world_size"]} == {rows["world_size"].max()}
    assert set(finding.values["bucket_cap_mb"]) <= set(of_finding["bucket_cap_mb"])
    if cost := finding.values.get("worst_cost_ratio"):
        assert cost.estimate in set(data.tables["settings"]["cost_ratio"])
        assert finding.values["worst_bucket_cap_mb"] not in finding.values["bucket_cap_mb"]


def check_bucket_cost(data, finding):
    slow, fast = (row_of(data, "scaling", cell) for cell in finding.cells)
    assert finding.values["cost_ratio"].estimate == pytest.approx(slow.step_s / fast.step_s - 1)
    assert (slow.model, slow.nodes, slow.gpus_per_node, slow.stack) == (
        fast.model, fast.nodes, fast.gpus_per_node, fast.stack,
    )  # fmt: skip


def check_exposed(data, finding):
    rows = data.tables["strategies"]
    assert finding.values["share_ratio"].estimate == rows["exposed_share_ratio"].max()


def check_bandwidth(data, finding):
    row = row_of(data, "collectives", finding.cells[0])
    value, time = finding.values["busbw_gb_per_s"], finding.values.get("time") or finding.values["time_s"]
    assert (value.estimate, time.estimate) == (row.busbw_gb_per_s, row.time_s)
    assert (value.low, value.high) in ((row.busbw_low_gb_per_s, row.busbw_high_gb_per_s), (None, None))


def check_noisy(data, finding):
    ratios = data.tables["launch_ranges"]["range_ratio"].dropna()
    assert finding.values["num"] == int((ratios > 0.05).sum()) == len(finding.cells)
    assert finding.values["worst_ratio"].estimate == ratios.max()


def check_straggler(data, finding):
    table = data.tables[finding.sources[0].file.removeprefix("tables/").removesuffix(".csv")]
    row = table.loc[int(finding.sources[0].rows[0].removeprefix("row ")) - 1]
    assert row["is_persistent"]
    assert finding.values["lag_ratio"].estimate == row["lag_ratio"]


def check_outliers(data, finding):
    places = data.tables["stragglers"].drop_duplicates(["nodes", "gpus_per_node", "stack", "quantity"])
    assert finding.values["num"] == places["num_outliers"].sum() <= finding.values["num_iterations"]


def check_no_straggler(data, finding):
    assert not data.tables["stragglers"]["is_persistent"].any()
    assert 0 <= finding.values["num_checked"] <= finding.values["num_ok"] == len(data.ok)


def check_comparisons(data, finding):
    rows = data.tables["comparisons"]
    judged = rows[rows["verdict"].notna() & (rows["verdict"] != "A/A")]
    assert finding.values["by_verdict"] == {
        word: int((judged["verdict"] == word).sum()) for word in ("slower", "faster", "inconclusive", "equivalent")
    }
    if "largest_ratio" in finding.values:
        decided = judged[judged["verdict"].isin(["slower", "faster"])]["time_ratio"]
        assert finding.values["largest_ratio"] == max(decided, key=lambda ratio: max(ratio, 1 / ratio))


def check_training(data, finding):
    row = row_of(data, "training_runs", finding.cells[0])
    assert finding.values["total"].estimate == row.total_s
    assert finding.values["num_candidates"] == len(finding.sources[0].rows)
    assert finding.values["accuracy"].estimate == row.accuracy_ratio


def check_training_line(data, finding):
    row = row_of(data, "training_runs", finding.cells[0])
    assert (finding.values["total_s"].estimate, finding.values["epochs"]) == (row.total_s, row.epochs)
    assert finding.values["accuracy_ratio"].estimate == row.accuracy_ratio


def check_batch_norm(data, finding):
    own, torch = (row_of(data, "batch_norms", cell) for cell in finding.cells)
    assert finding.values["time_ratio"] == pytest.approx(own.time_s / torch.time_s)
    assert (own.implementation, torch.implementation) == ("own", "torch")
    assert (own.batch_size, own.hidden) == (torch.batch_size, torch.hidden)


def check_scaling_law(data, finding):
    row = data.tables["scaling_models"].loc[int(finding.sources[0].rows[0].removeprefix("row ")) - 1]
    assert pd.notna(row["scaling_model"])
    assert finding.values["samples_per_s"].estimate == row["extrapolated_samples_per_s"]


def check_crossover_size(data, finding):
    rows = [int(row.removeprefix("row ")) - 1 for row in finding.sources[0].rows]
    models = data.tables["communication_models"]
    assert finding.values["low_bytes"] <= models.loc[rows, "half_bandwidth_bytes"].min()
    assert finding.values["high_bytes"] >= models.loc[rows, "half_bandwidth_bytes"].max()
    [operation] = set(models.loc[rows, "operation"])
    known = models[models["half_bandwidth_bytes"].notna() & (models["operation"] == operation)]
    assert set(models.loc[rows, "world_size"]) == {known["world_size"].max()}


def check_rejected_fits(data, finding):
    models = data.tables[finding.sources[0].file.removeprefix("tables/").removesuffix(".csv")]
    is_rejected = models["max_residual_ratio"].isna()
    assert (finding.values["num"], finding.values["num_curves"]) == (is_rejected.sum(), len(models))
    assert sum(finding.values["reasons"].values()) == finding.values["num"]


def check_idle(data, finding):
    rows = data.tables["allocations"].dropna(subset="gpu_hours")
    if rows.empty:
        assert "idle_hours" not in finding.values
        return
    assert finding.values["idle_hours"] == pytest.approx(rows["idle_gpu_hours"].sum())
    assert finding.values["allocated_hours"] == pytest.approx(rows["gpu_hours"].sum())
    assert finding.values["idle_ratio"] == pytest.approx(rows["idle_gpu_hours"].sum() / rows["gpu_hours"].sum())


def check_stacks(data, finding):
    num_ok = data.ok["stack"].value_counts()
    assert finding.values["stacks"] == {name: num_ok[name] for name in finding.values["stacks"]}
    assert set(finding.cells) == set(data.ok.loc[data.ok["stack"].isin(finding.values["stacks"]), "cell"])


CHECKS = {
    "unreliable_stacks": check_stacks,
    "unchecked_stacks": check_stacks,
    "allocated_time": check_idle,
    "efficiency": check_efficiency,
    "efficiency_uncertain": check_efficiency,
    "baseline_suspect": check_efficiency,
    "scaling": check_scaling,
    "best_throughput": check_throughput,
    "bucket": check_bucket,
    "bucket_cost": check_bucket_cost,
    "exposed": check_exposed,
    "bandwidth": check_bandwidth,
    "communication": check_bandwidth,
    "noisy_machine": check_noisy,
    "variation": check_noisy,
    "some_variation": check_noisy,
    "straggler_rank": check_straggler,
    "straggler_host": check_straggler,
    "no_straggler": check_no_straggler,
    "outliers": check_outliers,
    "compared": check_comparisons,
    "verdicts": check_comparisons,
    "training": check_training,
    "training_runs": check_training_line,
    "batch_norm": check_batch_norm,
    "scaling_law": check_scaling_law,
    "crossover_size": check_crossover_size,
    "rejected_fits": check_rejected_fits,
}


def test_all_kinds_of_findings_occur_and_are_checked(analyse_campaign):
    """A kind without a check would pass unnoticed."""
    found = [item for name in WRITERS for item in findings_of(analyse_campaign(name)[1])]
    kinds = {finding.kind for _, finding in found}
    warnings = {of.kind for topic, of in found if (kind := topic.kind_of(of)) and kind.rank in WARNINGS}
    # Others have the law, and the cost of a bucket size at a smaller shape.
    elsewhere = {"noisy_machine", "efficiency_uncertain", "scaling_law", "bucket_cost"}
    assert set(CHECKS) - kinds <= elsewhere
    others = {"lowest", "preflight_failed", "throughput", "confidence", "failed", "compared"}
    assert kinds - set(CHECKS) <= others | warnings  # which the tests of their topics have


def test_sections_of_a_campaign_name_the_tables_that_they_draw(analysed):
    _, data = analysed
    for topic in TOPICS:
        section = topic.section(data) if topic.section else None
        shown = {"warnings", topic.part_of} | ({section.id} if section and section.has_content else set())
        assert {finding.anchor or topic.id for finding in topic.findings(data)} <= shown, "a dead link"
        for figure in section.figures if section else ():
            assert figure.source in {*TABLES, *COLLECTED} or figure.source.startswith("launches/"), figure.id
        for table in section.tables if section else ():
            assert table.sources, table.caption
            assert set(table.sources) <= {*TABLES, *COLLECTED, "launches/*.jsonl"}


def test_the_page_shows_each_finding_with_its_sources(tmp_path):
    folder = write_laptop(tmp_path / "r")
    data = analyse(folder)
    page = re.sub(r"base64,[A-Za-z0-9+/=]+", "", render(data))
    lists = [part.partition("</ul>")[0] for part in page.split('<ul class="findings">')[1:]]
    shown = [text for part in lists for text in part.split("<li")[1:]]
    # The warnings have the sentences of their findings, with advice.
    found = [(topic, finding) for topic, finding in findings_of(data) if finding.anchor != "warnings"]
    found = [(t, f) for t, f in found if t.kind_of(f) is None or t.kind_of(f).rank == RESULT]
    assert len(shown) == len(found) > 3
    for text, (_, finding) in zip(shown, found, strict=True):
        for source in finding.sources:
            assert f'<a href="{source.anchor}">{source.file}</a>' in text
            assert all(row in text for row in source.rows)
    for name in (*TABLES, *COLLECTED):
        assert page.count(f'<a id="csv-{name}" download=') == 1


def test_launches_lie_as_far_apart_as_their_times():
    cells = [train_cell("resnet18", 1, 1, "none"), collective_cell(4096, 1, 2), collective_cell(65536, 1, 2)]
    windows = [{"window_step_s": s, "p50_s": 9.0} for s in (0.10, 0.12, 0.11)]  # (0.12 - 0.10) / 0.11
    launches = [windows, [{"p50_s": 2e-4}, {"p50_s": 1e-4}], [{"p50_s": 3e-4}]]  # (2 - 1) / 1.5, and one alone
    rows = [
        cell_row(cell) | {"repeat": repeat, "status": "ok"} | columns
        for cell, own in zip(cells, launches, strict=True)
        for repeat, columns in enumerate(own)
    ]
    rows.append(cell_row(cells[2]) | {"repeat": 1, "status": "failed", "p50_s": 1.0})
    table = launch_ranges_table(make_table(rows, MEASUREMENTS)).set_index("cell")
    step, small, large = (table.loc[cell["id"]] for cell in cells)
    assert (step["num_launches"], step["median_s"], step["min_s"], step["max_s"]) == (3, 0.11, 0.10, 0.12)
    assert step["range_ratio"] == pytest.approx(0.181818, rel=1e-5)
    assert small["range_ratio"] == pytest.approx(0.666667, rel=1e-5)
    assert large["num_launches"] == 1
    assert table["range_ratio"].isna().sum() == 1


def judged(data, cells, kind="invalid", is_judge=True):
    """Return data with one more topic, whose finding is on these cells."""
    kinds = (Kind("invalid", FAIR, "Invalid."), Kind("odd", NOTE, "Odd."))
    warns = Topic("judge", "Judge", findings=lambda _: [Finding(kind, {}, (), cells)], kinds=kinds, is_judge=is_judge)
    return replace(data, topics=(*data.topics, warns))


@pytest.mark.parametrize(
    ("judge", "left"),
    [
        ({"cells": ("c0", "c1")}, ["c2", "c3"]),
        ({"cells": ("c0", "c1", "c4")}, ["c0", "c1", "c2", "c3"]),  # on more than a fifth
        ({"cells": ("c0",), "kind": "odd"}, ["c0", "c1", "c2", "c3"]),  # a note
        ({"cells": ("c0",), "is_judge": False}, ["c0", "c1", "c2", "c3"]),
    ],
)
def test_headlines_leave_out_cells_that_few_warnings_invalidate(judge, left):
    campaign = make_campaign([collective_cell(4**i, 1, 2) | {"id": f"c{i}"} for i in range(10)])
    data = judged(ReportData(typed(campaign), {}, [], {}, Path()), **judge)
    assert headline_rows(data, ["c0", "c1", "c2", "c3"], lambda cell: (cell,)) == left
    assert bool(unreliable(data, ["c0", "c9"])) == ("c0" not in left)
    assert headline_rows(data, ["c0", "c1"], lambda cell: (cell,)) == ["c0", "c1"]  # nothing else is there
    assert headline_rows(data, [("c0", "c2"), ("c2", "c3")], lambda pair: pair)[-1] == ("c2", "c3")


@pytest.mark.parametrize(
    ("name", "topic", "line"),
    [
        ("laptop", scaling, "scaling"),
        ("laptop", buckets, "bucket"),
        ("laptop", communication, "communication"),
        ("trainings", training_runs, "training_runs"),
    ],
)
def test_lines_of_the_summary_rest_on_valid_cells_or_say_that_there_are_none(
    analyse_campaign, monkeypatch, name, topic, line
):
    monkeypatch.setattr(base, "MOST_MARKED_RATIO", 1)

    def cells_of(data):
        [finding] = [one for one in topic.TOPIC.findings(data) if one.kind == line]
        return finding.cells, "unreliable" in finding.values

    data = analyse_campaign(name)[1]
    invalid, was_unreliable = cells_of(data)
    chosen, is_unreliable = cells_of(judged(data, invalid[:1]))
    assert not was_unreliable
    assert (invalid[0] in chosen) == is_unreliable
    assert chosen


def test_a_finding_names_the_model_even_if_it_is_the_only_one(tmp_path):
    cells = [train_cell("resnet18", 1, 1, "none"), train_cell("resnet18", 1, 2, "ddp", 25)]
    data = analyse(write_results(tmp_path / "r", make_campaign(cells), LAPTOP))
    [finding] = [finding for finding in efficiency_findings(data) if finding.kind == "efficiency"]
    assert finding.values["name"].startswith("ResNet-18")
